//! Three transports for the same evidence: PromQL, scrapes of our own, and pushes. The hub must not tell which.

use crate::e2e::profiles::{profile, profile_kind};
use crate::e2e::world::*;
use anyhow::{Result, ensure};
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Names of the clusters, each with its token.
const CLUSTERS: [(&str, &str); 2] = [("c1", "the token of c1"), ("c2", "the token of c2")];
const GATE: &str = "wave";

/// The same clusters, seen by three hubs.
struct Transports {
    clusters: Vec<Workload>,
    hubs: Vec<(&'static str, Hub)>,
    prometheus: Prometheus,
    queries: PathBuf,
    _etcd: Etcd,
}

impl Transports {
    /// Two clusters that are scraped, and push, every so many seconds.
    async fn start(rig: &Rig, every: u64) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let door = PushDoor::new(rig)?;
        let clusters = try_join_all(CLUSTERS.map(async |(name, token)| {
            let token = rig.file(&format!("{name}.token"), token)?;
            let arguments = door.arguments(&token, every);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            Workload::start(rig, &etcd, name, &arguments).await
        }))
        .await?;
        let queries = rig.dir().join("queries.log");
        let mut config = PrometheusConfig::with_jobs([clusters.iter().fold(job(), |job, c| c.target(job))]);
        config.scrape_interval = Duration::from_secs(every);
        config.query_log = Some(queries.clone());
        let prometheus = Prometheus::start(rig, &config).await?;
        let targets: Vec<Value> = clusters
            .iter()
            .map(|c| json!({"cluster": c.name(), "url": format!("http://{}/metrics", c.exporter.address())}))
            .collect();
        let scrape = json!({"feeds": {"scrape": {"interval": format!("{every}s"), "timeout": "2s", "targets": targets}}});
        let tokens = json!(CLUSTERS.map(|(name, token)| token_entry(name, token)));
        let tokens = rig.file("tokens.yaml", tokens.to_string())?;
        let hubs = [
            ("promql", AggregatorOptions::new(prometheus.url())),
            ("scrape", AggregatorOptions::configured(rig, "scrape", &scrape)?),
            ("push", AggregatorOptions::configured(rig, "push", &door.config(&tokens))?),
        ];
        let hubs = try_join_all(hubs.map(async |(transport, options)| {
            anyhow::Ok((transport, Hub::start_named(rig, &etcd, &format!("hub-{transport}"), options).await?))
        }))
        .await?;
        Ok(Self { clusters, hubs, prometheus, queries, _etcd: etcd })
    }

    /// Has the package reported and gated at a revision, everywhere alike.
    async fn gate(&self, revision: &str) -> Result<()> {
        let names: Vec<&str> = self.clusters.iter().map(Workload::name).collect();
        for (_, hub) in &self.hubs {
            hub.report(
                APP,
                STALE_AFTER,
                json!({"revision": revision, "detail": "All", "clusters": {"names": names}}),
            )
            .await?;
            hub.gate(GATE, APP, revision, json!({"clusters": {"names": names}})).await?;
        }
        Ok(())
    }

    /// Waits until all hubs say the same of the package and of the gate, whose `Open` has this status and
    /// reason.
    async fn all_say(&self, open: (&str, &str)) -> Result<()> {
        eventually(SOON, &format!("all hubs say Open={open:?} and all else alike"), async || {
            let mut said = Vec::new();
            for (transport, hub) in &self.hubs {
                let (gate, report) = (hub.get_gate(GATE).await?, hub.get_report(APP).await?);
                for (object, kind) in [(&gate, "Open"), (&report, "Ready")] {
                    let observed = object.data["status"]["observedGeneration"].as_i64();
                    ensure!(
                        observed == object.metadata.generation,
                        "{transport} has not looked at {kind} yet"
                    );
                }
                let is = history::condition(&gate, "Open");
                ensure!(is == open, "{transport} says {is:?}: {}", gate.data["status"]);
                said.push((transport, timeless(&gate.data["status"]), timeless(&report.data["status"])));
            }
            let (_, gate, report) = &said[0];
            for (transport, other_gate, other_report) in &said {
                ensure!(gate == other_gate, "promql: {gate}\n{transport}: {other_gate}");
                ensure!(report == other_report, "promql: {report}\n{transport}: {other_report}");
            }
            Ok(())
        })
        .await
    }
}

/// The same without times, and without the number of the leadership. Why a cluster is silent only those know who
/// scrape it.
fn timeless(status: &Value) -> Value {
    match status {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "epoch");
            kept.map(|(name, value)| (name.clone(), timeless(value))).collect()
        }
        Value::Array(items) => items.iter().map(timeless).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => json!("a time"),
        Value::String(text) if text == "ScrapeFailed" => json!("ExporterSilent"),
        Value::String(text) => json!(text.replace(" (cannot be scraped: connection refused)", "")),
        other => other.clone(),
    }
}

#[tokio::test]
async fn the_same_fleet_has_the_same_status_whichever_road_it_is_seen_by() {
    run("e2e-transports-same", async |rig| {
        let world = Transports::start(rig, 1).await?;
        let [c1, c2] = world.clusters.as_slice() else { unreachable!("two clusters") };
        let (healthy, waits) = (("True", "Healthy"), |reason| ("False", reason));

        // A good revision.
        world.gate(&revision(1)).await?;
        world.all_say(waits("Missing")).await?;
        c1.deliver(APP, &revision(1)).await?;
        world.all_say(waits("Missing")).await?;
        c2.deliver(APP, &revision(1)).await?;
        world.all_say(healthy).await?;

        // A bad one.
        world.gate(&revision(2)).await?;
        world.all_say(waits("RevisionNeverSeen")).await?;
        c1.fail(APP, &revision(2), "timeout waiting for: [Deployment/default/app status: 'Failed']").await?;
        world.all_say(waits("FailureBudgetExceeded")).await?;

        // One that puts it right.
        world.gate(&revision(3)).await?;
        for cluster in [c1, c2] {
            cluster.deliver(APP, &revision(3)).await?;
        }
        world.all_say(healthy).await?;

        // An exporter that dies, and comes back.
        c2.exporter.process().kill();
        world.all_say(waits("Stale")).await?;
        // Only who scrapes by itself knows why, and says it in the same words as long as it is so.
        let (_, scraping) = &world.hubs[1];
        eventually(SOON, "the status says why", async || {
            let (gate, report) = (scraping.get_gate(GATE).await?, scraping.get_report(APP).await?);
            let said = waiting(&gate);
            ensure!(said.contains("c2 (cannot be scraped: connection refused)"), "{said}");
            let problem = &report.data["status"]["problems"][0];
            ensure!(problem["clusterName"] == "c2" && problem["reason"] == "ScrapeFailed", "{problem}");
            Ok(())
        })
        .await?;
        let said = waiting(&scraping.get_gate(GATE).await?);
        holds_for(Duration::from_secs(5), "it is said in the same words", async || {
            let now = waiting(&scraping.get_gate(GATE).await?);
            ensure!(now == said, "{now} after {said}");
            Ok(())
        })
        .await?;
        c2.exporter.process().start()?;
        world.all_say(healthy).await?;

        // Aggregators that restart close nothing.
        let mut histories = Vec::new();
        for (_, hub) in &world.hubs {
            histories.push(hub.history(GATE).await?);
        }
        for (_, hub) in &world.hubs {
            hub.aggregator.process().kill();
            hub.aggregator.process().start()?;
        }
        for (_, hub) in &world.hubs {
            hub.aggregator.wait_ready().await?;
        }
        world.all_say(healthy).await?;
        for history in histories {
            history.check("a restart closes nothing", open).await?;
        }
        Ok(())
    })
    .await;
}

/// Time between scrapes, and between pushes, in seconds: long beside what a start takes.
const EVERY: u64 = 6;

/// Fails if a query asks about the past: a soak is proven by what an exporter says now.
fn asks_about_the_present(asked: &[Asked], started: i64) -> Result<()> {
    /// How far back digests are looked for at the start.
    const BACK: u64 = 600;
    /// How far beyond the present they are looked for.
    const AHEAD: u64 = 2 * 86_400 + 600;
    /// What a digest is read with.
    const BESIDE: &str = "(rendered_timestamp_seconds|";
    for Asked { query, at } in asked {
        ensure!(!query.contains("offset") && !query.contains("over_time"), "{query}");
        let window = query.strip_suffix("ms]").and_then(|query| query.rsplit_once('['));
        let window: u64 = window.map_or(Ok(0), |(_, millis)| millis.parse())?;
        if query.contains("(digest)") {
            ensure!(window <= 1000 * (AHEAD + BACK), "{query}");
        } else if query.contains(BESIDE) {
            ensure!(window <= 1000 * BACK, "{query}");
        } else {
            // One scrape of each cluster.
            ensure!(window <= 1000 * EVERY && *at > started - 2 * EVERY as i64, "{query} at {at}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn whoever_comes_anew_does_not_wait_for_a_soak_that_is_over() {
    run("e2e-transports-soak", async |rig| {
        // Much longer than a start, two scrapes, a poll and a write take on a busy machine.
        const SOAK: Duration = Duration::from_secs(60);
        let world = Transports::start(rig, EVERY).await?;
        let names: Vec<&str> = world.clusters.iter().map(Workload::name).collect();
        for cluster in &world.clusters {
            cluster.deliver(APP, &revision(1)).await?;
        }
        let gate = async |hub: &Hub, name: &str| {
            let spec = json!({"clusters": {"names": names}, "minSuccessTime": format!("{SOAK:?}")});
            hub.gate(name, APP, &revision(1), spec).await.map(drop)
        };
        for (_, hub) in &world.hubs {
            hub.report(APP, "40s", json!({})).await?;
            gate(hub, GATE).await?;
        }
        for (_, hub) in &world.hubs {
            hub.opens(GATE, SOON).await?;
        }

        let asked_before = queries(&world.queries)?.len();
        let started = fake_fleet::unix_now() as i64;
        let decided = try_join_all(world.hubs.iter().map(async |(transport, hub)| {
            // One that ends in good order gives back the Lease, which the next one need not wait for.
            hub.aggregator.process().terminate(SOON).await?;
            gate(hub, "anew").await?;
            let began = Instant::now();
            hub.aggregator.process().start()?;
            hub.aggregator.wait_ready().await?;
            hub.opens("anew", SOON).await?;
            anyhow::Ok((transport, began.elapsed()))
        }))
        .await?;
        println!("decided after {decided:?}");
        for (transport, took) in decided {
            ensure!(took < SOAK, "{transport} took {took:?}");
        }
        let asked = queries(&world.queries)?.split_off(asked_before);
        ensure!(!asked.is_empty(), "the log is empty");
        asks_about_the_present(&asked, started)?;

        // The same of one that takes over: it has read nothing before.
        let (_, hub) = &world.hubs[0];
        let standby = AggregatorOptions::new(world.prometheus.url());
        let _standby = hub.start_replica(rig, "standby", &standby, hub.api.address()).await?;
        let asked_before = queries(&world.queries)?.len();
        let started = fake_fleet::unix_now() as i64;
        hub.aggregator.process().kill();
        gate(hub, "taken-over").await?;
        let lead = async || anyhow::Ok(hub.lease("statusbridge-aggregator-leader").await?.holder_identity);
        let old = lead().await?;
        eventually(SOON, "the other one leads", async || {
            let now = lead().await?;
            ensure!(now != old, "still {old:?}");
            Ok(())
        })
        .await?;
        let began = Instant::now();
        hub.opens("taken-over", SOON).await?;
        ensure!(began.elapsed() < SOAK, "it took {:?}", began.elapsed());
        asks_about_the_present(&queries(&world.queries)?.split_off(asked_before), started)
    })
    .await;
}

/// The aggregator dates scrapes and pushes with its own clock, and nothing but the hub's tells it whether that is right.
#[tokio::test]
async fn who_has_another_clock_than_the_hub_does_not_lead_and_hears_all_once_it_is_right() {
    run("e2e-transports-own-clock", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let door = PushDoor::new(rig)?;
        let [(scraped, _), (pushing, token)] = CLUSTERS;
        let scraped = Workload::start(rig, &etcd, scraped, &[]).await?;
        let arguments = door.arguments(&rig.file("token", token)?, 1);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let pushing = Workload::start(rig, &etcd, pushing, &arguments).await?;
        let tokens = rig.file("tokens.yaml", json!([token_entry(pushing.name(), token)]).to_string())?;
        let mut config = door.config(&tokens);
        let url = format!("http://{}/metrics", scraped.exporter.address());
        config["feeds"]["scrape"] =
            json!({"interval": "1s", "timeout": "2s", "targets": [{"cluster": scraped.name(), "url": url}]});
        let clock = WallClock::of(rig, "aggregator")?;
        let hub = Hub::start_with(rig, &etcd, AggregatorOptions::configured(rig, "own", &config)?).await?;
        let comes_to = async |revision: &str| -> Result<()> {
            for cluster in [&scraped, &pushing] {
                cluster.deliver(APP, revision).await?;
            }
            let clusters = json!({"clusters": {"names": [scraped.name(), pushing.name()]}});
            hub.gate(GATE, APP, revision, clusters).await?;
            hub.opens(GATE, SOON).await.map(drop)
        };
        hub.report(APP, STALE_AFTER, json!({})).await?;
        comes_to(&revision(1)).await?;

        for (next, ahead, says) in
            [(2, 3600, "s behind this machine's"), (3, -3600, "s ahead of this machine's")]
        {
            clock.set(ahead)?;
            eventually(SOON, "it does not lead, and says why", async || {
                ensure!(hub.aggregator.metric("statusbridge_aggregator_is_leader").await? == 0.0, "it leads");
                let log = hub.aggregator.process().log();
                ensure!(log.contains(says), "{log}");
                Ok(())
            })
            .await?;
            clock.set(0)?;
            comes_to(&revision(next)).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_exporter_that_hangs_holds_up_no_other_and_a_profile_may_name_one() {
    run("e2e-transports-scrape", async |rig| {
        const PROPERTY: &str = "exporter.example.com/url";
        let fleet = FakeFleet::start().await?;
        for cluster in ["near", "far", "listed"] {
            fleet.says(cluster, APP, healthy_for(3600));
        }
        let proxy = FaultProxy::start(rig, fleet.address()).await?;
        let far = fleet.url("far").replace(&fleet.address().to_string(), &proxy.address().to_string());
        let config = json!({
            "clusterProfiles": {"namespace": "inventory"},
            "feeds": {"scrape": {
                "interval": "1s", "timeout": "60s", "clusterProfiles": {"property": PROPERTY},
                "targets": [{"cluster": "near", "url": fleet.url("near")}, {"cluster": "far", "url": far}],
            }},
        });
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, AggregatorOptions::configured(rig, "scrape", &config)?).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        for cluster in ["near", "far", "listed"] {
            hub.gate(cluster, APP, &revision(1), json!({"clusters": {"names": [cluster]}})).await?;
        }
        hub.opens("near", SOON).await?;
        hub.opens("far", SOON).await?;
        hub.closes("listed", "Missing", SOON).await?;

        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        hub.api.ensure_namespace("inventory").await?;
        profile(&hub.api, "inventory", "listed", json!({})).await?;
        let status = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": {"namespace": "inventory", "name": "listed"},
            "status": {"properties": [{"name": PROPERTY, "value": fleet.url("listed")}]},
        });
        let profiles = hub.api.dynamic(&profile_kind(), Some("inventory")).await?;
        let params = PatchParams::apply("inventory").force();
        profiles.patch_status("listed", &params, &Patch::Apply(&status)).await?;
        hub.opens("listed", SOON).await?;

        // Nobody else waits for the answer, which is waited for much longer than this.
        proxy.set(Fault::Freeze);
        hub.closes("far", "Stale", STALE_BY).await?;
        fleet.says("near", APP, FakePackage::healthy_at(&revision(2)));
        hub.gate("near", APP, &revision(2), json!({"clusters": {"names": ["near"]}})).await?;
        hub.opens("near", Duration::from_secs(50)).await?;
        hub.opens("listed", SOON).await?;

        // What answers with something else is not there, and the log says why.
        fleet.is_silent("near");
        hub.closes("near", "Stale", STALE_BY).await?;
        let log = hub.aggregator.process().log();
        ensure!(log.contains("cluster near") && log.contains("HTTP 404"), "{log}");
        proxy.set(Fault::Pass);
        hub.opens("far", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn an_exporter_whose_token_or_certificate_is_wrong_is_not_heard_until_it_is_put_right() {
    run("e2e-transports-push", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let door = PushDoor::new(rig)?;
        let tokens = json!([token_entry("c1", "one"), token_entry("c2", "two")]);
        let tokens = rig.file("tokens.yaml", tokens.to_string())?;
        let mut config = door.config(&tokens);
        config["feeds"]["push"]["expectWithin"] = json!("2s");
        let hub = Hub::start_with(rig, &etcd, AggregatorOptions::configured(rig, "push", &config)?).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        for cluster in ["c1", "c2"] {
            hub.gate(cluster, APP, &revision(1), json!({"clusters": {"names": [cluster]}})).await?;
        }
        let token = rig.file("token", "wrong")?;
        let arguments = door.arguments(&token, 1);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // Whatever it is called: it has the token of c1.
        let cluster = Workload::start(rig, &etcd, "c2", &arguments).await?;
        cluster.deliver(APP, &revision(1)).await?;
        let told = async |words: &str| {
            eventually(SOON, &format!("the exporter's log says {words:?}"), async || {
                let log = cluster.exporter.process().log();
                ensure!(log.contains(words), "{log}");
                Ok(())
            })
            .await
        };
        told("HTTP 401: the bearer token is of no cluster").await?;
        hub.closes("c1", "Missing", SOON).await?;
        let failures =
            cluster.says().await?.value("statusbridge_exporter_pushes_total", &[("result", "failure")]);
        ensure!(failures > Some(0.0), "{failures:?}");

        std::fs::write(&token, "one\n")?;
        hub.opens("c1", SOON).await?;
        told("pushes get through again").await?;
        hub.closes("c2", "Missing", SOON).await?;

        // Both sides read the certificate again.
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(&door.certificate, other.cert.pem())?;
        std::fs::write(&door.key, other.signing_key.serialize_pem())?;
        eventually(SOON, "the new certificate is served", async || {
            let log = hub.aggregator.process().log();
            ensure!(log.contains("the TLS certificate has changed"), "{log}");
            Ok(())
        })
        .await?;
        cluster.deliver(APP, &revision(2)).await?;
        hub.gate("c1", APP, &revision(2), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("c1", SOON).await?;

        // A token that is taken away.
        std::fs::write(&tokens, json!([token_entry("c2", "two")]).to_string())?;
        hub.closes("c1", "Stale", SOON).await?;
        let refused =
            hub.aggregator.metric("statusbridge_aggregator_pushes_total{result=\"unauthorized\"}").await?;
        ensure!(refused > 0.0, "{refused}");
        hub.closes("c2", "Missing", SOON).await.map(drop)
    })
    .await;
}

//! Several Prometheus replicas, exporter restarts, labels that a pipeline adds, and clusters that share a name.

use crate::e2e::reader::Reader;
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use statusbridge_aggregator::feed::promql::Flavour;
use statusbridge_contract::{Fingerprint, Health};
use statusbridge_core::fleet::Standing;
use statusbridge_tests::*;
use std::time::Duration;

/// A replica of an HA pair that scrapes the exporter and writes to the backend.
fn replica(exporter: &Exporter, name: &str, backend: &VictoriaMetrics) -> PrometheusConfig {
    // The target's labels hold what each scrape configuration may add; `namespace` is the exporter's own.
    let target = job().target(exporter.address(), &[("namespace", "monitoring"), ("pod", name)]);
    let external = [("cluster", "c1"), ("replica", name), ("source", "edge"), ("stage", "prod")];
    let mut config = PrometheusConfig::with_jobs([target]).external(&external);
    // One that is late by two intervals has no vote, and gets it back with what it brings then.
    config.scrape_interval = Duration::from_secs(3);
    config.remote_write.push(backend.remote_write_url());
    config
}

#[tokio::test]
async fn replicas_restarts_and_external_labels_make_no_gate_flap() {
    run("e2e-streams", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        let backend = VictoriaMetrics::start(rig).await?;
        let a = Prometheus::start(rig, &replica(&cluster.exporter, "a", &backend)).await?;
        let b = Prometheus::start(rig, &replica(&cluster.exporter, "b", &backend)).await?;
        let mut options = AggregatorOptions::new(backend.url());
        // Remote write takes its time, and VictoriaMetrics some seconds to show each series that is new.
        options.settle_delay = "10s";
        let hub = Hub::start_with(rig, &etcd, options).await?;
        cluster.deliver(APP, &revision(1)).await?;
        hub.report(APP, "40s", json!({})).await?;
        let clusters = json!({"clusters": {"names": ["c1"]}});
        hub.gate("wave", APP, &revision(1), clusters.clone()).await?;
        hub.opens("wave", SOON).await?;
        eventually(SOON, "both replicas are verified", async || streams(&hub, 2.0).await).await?;
        let history = hub.history("wave").await?;

        // The exporter is rolled: a new instance beside the old one, then the old one goes.
        let next = Exporter::start(rig, "exporter-c1-next", cluster.api.kubeconfig(), &[]).await?;
        a.reload(&replica(&next, "a", &backend)).await?;
        cluster.exporter.process().terminate(SOON).await?;
        b.reload(&replica(&next, "b", &backend)).await?;
        let of_next = format!("count(statusbridge_digest{{instance=\"{}\"}})", next.address());
        eventually(SOON, "the new instance is there by both replicas", async || {
            let count = backend.query(&of_next).await?.first().context("not yet")?.value;
            ensure!(count == 2.0, "{count}");
            Ok(())
        })
        .await?;
        // One replica restarts.
        b.stop();
        b.start_again().await?;
        holds_for(Duration::from_secs(16), "the gate stays open", async || {
            history.check("the gate stays open", open).await
        })
        .await?;
        let quiet =
            history.versions().await?.into_iter().filter(|v| v.condition("Open").1 != "Healthy").count();
        ensure!(quiet == 0, "{quiet} versions were open for another reason");

        // What both replicas bring through the new instance is still what the cluster says.
        cluster.deliver(APP, &revision(2)).await?;
        hub.gate("wave-2", APP, &revision(2), clusters).await?;
        hub.opens("wave-2", SOON).await?;
        hub.closes("wave", "Superseded", SOON).await?;
        let then = hub.history("wave-2").await?;
        holds_for(Duration::from_secs(10), "no replica brings the old revision back", async || {
            then.check("no replica brings the old revision back", open).await
        })
        .await
    })
    .await;
}

/// Fails unless at least so many streams are verified, and none is not.
async fn streams(hub: &Hub, verified: f64) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let text = http.get(format!("http://{}/metrics", hub.aggregator.address())).send().await?.text().await?;
    let own = exposition::Exposition::parse(&text)?;
    let count = |state| own.value("statusbridge_aggregator_streams", &[("state", state)]).unwrap_or_default();
    ensure!(count("verified") >= verified, "{} are verified", count("verified"));
    ensure!(count("unverified") == 0.0, "{} are not", count("unverified"));
    Ok(())
}

#[tokio::test]
async fn two_clusters_under_one_name_are_a_conflict() {
    run("e2e-one-name", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let (one, two) = tokio::try_join!(
            Workload::start(rig, &etcd, "one", &[]),
            Workload::start(rig, &etcd, "two", &[])
        )?;
        for cluster in [&one, &two] {
            // They even agree about the package.
            cluster.deliver(APP, &revision(1)).await?;
        }
        let name = [("cluster", "c1")];
        let alone = PrometheusConfig::with_jobs([job().target(one.exporter.address(), &name)]);
        let both = PrometheusConfig::with_jobs([job()
            .target(one.exporter.address(), &name)
            .target(two.exporter.address(), &name)]);
        let prometheus = Prometheus::start(rig, &alone).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        hub.gate("wave", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave", SOON).await?;

        prometheus.reload(&both).await?;
        let gate = hub.closes("wave", "Conflict", SOON).await?;
        let said = waiting(&gate);
        for cluster in [&one, &two] {
            let instance = cluster.exporter.address().to_string();
            ensure!(said.contains(&instance), "{instance} is not named: {said}");
        }
        let report = hub.reports(APP, "Ready", "False", "Conflict", SOON).await?;
        ensure!(report.data["status"]["clusters"]["conflicting"] == 1, "{}", report.data["status"]);
        ensure!(report.data["status"]["problems"][0]["reason"] == "ClusterNameConflict");

        prometheus.reload(&alone).await?;
        hub.opens("wave", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn clusters_of_one_name_conflict_at_the_first_poll() {
    run("e2e-one-name-at-once", async |rig| {
        let fleet = FakeFleet::start().await?;
        for cluster in ["one", "two"] {
            fleet.says(cluster, APP, healthy_for(3600));
        }
        let name = [("cluster", "c1")];
        let alone = PrometheusConfig::with_jobs([fleet.target(job(), "one", &name)]);
        let two = ScrapeJob { name: "other".to_owned(), ..fleet.target(job(), "two", &name) };
        let both = PrometheusConfig::with_jobs([alone.jobs[0].clone(), two]);
        let prometheus = Prometheus::start(rig, &alone).await?;
        let mut reader = Reader::of(&prometheus)?;
        reader.until("c1", APP, Standing::Fresh).await?;

        prometheus.reload(&both).await?;
        eventually(SOON, "both are scraped", async || {
            let digests = prometheus.query_at("count(statusbridge_digest)", reader.now()).await?;
            ensure!(digests.first().is_some_and(|count| count.value == 2.0), "{digests:?}");
            Ok(())
        })
        .await?;
        for mut reader in [reader, Reader::of(&prometheus)?] {
            let report = reader.poll().await;
            let seen = reader.observe("c1", APP);
            ensure!(seen.standing == Standing::Conflict, "{seen:?} after {report:?}");
            prometheus.reload(&alone).await?;
            reader.until("c1", APP, Standing::Fresh).await?;
            prometheus.reload(&both).await?;
            reader.until("c1", APP, Standing::Conflict).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn processes_that_take_turns_behind_one_service_are_heard_both_and_are_no_conflict() {
    run("e2e-turns", async |rig| {
        let fleet = FakeFleet::start().await?;
        for process in ["old", "new"] {
            fleet.says(process, APP, healthy_for(3600));
        }
        fleet.is_the_same_as("new", "old");
        let service = fleet.by_turns(["old", "new"]);
        let job = fleet.target(job(), &service, &[("cluster", "c1")]);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let mut reader = Reader::of(&prometheus)?;
        let r1 = Fingerprint::of(&revision(1));
        let is_healthy = |reader: &Reader| {
            let seen = reader.observe("c1", APP);
            let healthy = seen.row.as_ref().is_some_and(|row| row.healthy == r1);
            ensure!(seen.standing == Standing::Fresh && healthy && seen.reason == "Reported", "{seen:?}");
            Ok(())
        };
        eventually(SOON, "both are heard, and say the same", async || {
            let report = reader.poll().await;
            ensure!((report.verified, report.unverified) == (2, 0), "{report:?}");
            is_healthy(&reader)
        })
        .await?;
        holds_for(Duration::from_secs(5), "neither takes the other's place", async || {
            let report = reader.poll().await;
            ensure!((report.verified, report.unverified) == (2, 0), "{report:?}");
            is_healthy(&reader)
        })
        .await?;

        // The worst counts, whichever speaks last.
        fleet.says("old", APP, FakePackage::failed_at(&revision(1)));
        let has_failed = |reader: &Reader| {
            let seen = reader.observe("c1", APP);
            let failed = seen.row.as_ref().is_some_and(|row| row.health == Health::Failed);
            ensure!(seen.standing == Standing::Fresh && failed, "{seen:?}");
            Ok(())
        };
        eventually(SOON, "one says that it has failed", async || {
            reader.poll().await;
            has_failed(&reader)
        })
        .await?;
        holds_for(Duration::from_secs(5), "what the other says does not make it better", async || {
            reader.poll().await;
            has_failed(&reader)
        })
        .await?;

        // One that is gone counts for two of its scrapes.
        fleet.is_silent("old");
        eventually(SOON, "the other one is alone", async || {
            reader.poll().await;
            is_healthy(&reader)
        })
        .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_half_of_a_pair_that_died_counts_for_two_of_its_scrapes() {
    run("e2e-half-a-pair", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, healthy_for(3600));
        let backend = VictoriaMetrics::start(rig).await?;
        let replica = |name: &str| {
            let mut config = scraping(&fleet, &["c1"]).external(&[("replica", name)]);
            config.remote_write.push(backend.remote_write_url());
            config
        };
        let dies = Prometheus::start(rig, &replica("a")).await?;
        let _lives = Prometheus::start(rig, &replica("b")).await?;
        let mut reader = Reader::behind(backend.url(), Flavour::VictoriaMetrics)?;
        reader.sees((2, 0), APP, &["c1"]).await?;
        fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
        eventually(SOON, "both say that it has failed", async || {
            let report = reader.poll().await;
            let seen = reader.observe("c1", APP);
            let failed = seen.row.as_ref().is_some_and(|row| row.health == Health::Failed);
            ensure!(report.verified == 2 && failed && seen.reason == "Reported", "{seen:?} after {report:?}");
            Ok(())
        })
        .await?;

        dies.process().kill();
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
        eventually(SOON, "the other one is alone", async || {
            reader.poll().await;
            let seen = reader.observe("c1", APP);
            let healthy = seen.row.as_ref().is_some_and(|row| row.health == Health::Current);
            ensure!(seen.standing == Standing::Fresh && healthy && seen.reason == "Reported", "{seen:?}");
            Ok(())
        })
        .await?;
        Ok(())
    })
    .await;
}

//! Several metrics backends at once, and those that want to know who asks.

use crate::e2e::reader::poll_config;
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::poll::Poller;
use statusbridge_aggregator::feed::promql::{FeedConfig, FeedError, Flavour, PromFeed};
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_tests::*;

/// Options of an aggregator that reads what a configuration file names.
fn reading(rig: &Rig, backends: Value) -> Result<AggregatorOptions> {
    let file = rig.dir().join("aggregator.yaml");
    std::fs::write(&file, json!({"feeds": {"backends": backends}}).to_string())?;
    let mut options = AggregatorOptions::new("");
    options.more = vec!["--config".to_owned(), file.display().to_string()];
    Ok(options)
}

/// A gate on these clusters.
async fn gate(hub: &Hub, name: &str, clusters: &[&str]) -> Result<()> {
    hub.gate(name, APP, &revision(1), json!({"clusters": {"names": clusters}})).await.map(drop)
}

/// A backend that scrapes some clusters of a fleet.
async fn scraping(rig: &Rig, fleet: &FakeFleet, clusters: &[&str]) -> Result<Prometheus> {
    let job = clusters.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
    Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await
}

#[tokio::test]
async fn a_cluster_goes_on_with_the_backend_that_still_tells_of_it() {
    run("e2e-two-backends", async |rig| {
        let fleet = FakeFleet::start().await?;
        for name in ["a", "b", "c"] {
            fleet.says(name, APP, healthy_for(60));
        }
        let (east, west) =
            (scraping(rig, &fleet, &["a", "c"]).await?, scraping(rig, &fleet, &["b", "c"]).await?);
        // Bytes may stop on the way to one of them, as in a network that is cut.
        let way = FaultProxy::start(rig, east.address()).await?;
        let backends = json!([
            {"name": "east", "url": way.url(), "trust": "all", "flavour": "prometheus", "timeout": "2s"},
            {"name": "west", "url": west.url(), "trust": "all", "timeout": "2s", "checks": false},
        ]);
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, reading(rig, backends)?).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        for name in ["a", "b", "c"] {
            gate(&hub, name, &[name]).await?;
        }
        gate(&hub, "all", &["a", "b", "c"]).await?;
        // What may be older outlasts a restart, however busy the machine.
        hub.report("patient", "60s", json!({})).await?;
        for name in ["b", "c"] {
            fleet.says(name, "patient", healthy_for(60));
            let clusters = json!({"clusters": {"names": [name]}});
            hub.gate(&format!("{name}-patient"), "patient", &revision(1), clusters).await?;
        }
        for name in ["a", "b", "c", "all", "b-patient", "c-patient"] {
            hub.opens(name, SOON).await?;
        }
        let other = hub.history("c").await?;

        // One hangs. What only it tells of is closed, with its name; the rest goes on.
        way.set(Fault::Freeze);
        let said = ["feed east", "did not answer within 2 s", "\"a\""];
        waits_for(&hub, "a", STALE_BY, &said).await?;
        waits_for(&hub, "all", SOON, &["feed east"]).await?;
        // At their own pace: a cluster of the other fails and recovers while the one hangs.
        fleet.says("b", APP, FakePackage::failed_at(&revision(1)));
        hub.closes("b", "FailureBudgetExceeded", SOON).await?;
        fleet.says("b", APP, healthy_for(60));
        hub.opens("b", SOON).await?;
        other.check("c has another backend", open).await?;

        // Who begins now has never heard of the one.
        hub.aggregator.process().terminate(SOON).await?;
        let east_side = hub.history("a").await?;
        let west_side = [hub.history("b-patient").await?, hub.history("c-patient").await?];
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        eventually(SOON, "the other backend is polled some times", async || {
            let sample = "statusbridge_aggregator_polls_total{result=\"success\"}";
            let polls = hub.aggregator.metric(sample).await?;
            ensure!(polls >= 5.0, "polled {polls} times");
            Ok(())
        })
        .await?;
        for history in &west_side {
            history.check("a restart while another backend is away", open).await?;
        }
        east_side.check("nobody vouches for a", not_open).await?;

        way.set(Fault::Pass);
        for name in ["a", "all"] {
            hub.opens(name, SOON).await?;
        }
        // The other way round.
        west.stop();
        waits_for(&hub, "b", STALE_BY, &["feed west", "cannot be reached"]).await?;
        hub.opens("c", SOON).await?;
        hub.opens("a", SOON).await?;
        west.start_again().await?;
        hub.opens("all", SOON).await.map(drop)
    })
    .await;
}

const TENANT: (&str, &str) = ("x-scope-orgid", "fleet");

fn basic(password: &str) -> String {
    // user `reader`
    match password {
        "one" => "Basic cmVhZGVyOm9uZQ==".to_owned(),
        _ => "Basic cmVhZGVyOnR3byB3b3Jkcw==".to_owned(),
    }
}

#[tokio::test]
async fn who_asks_proves_who_it_is_with_secrets_that_may_change() {
    run("e2e-backend-secrets", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("a", APP, healthy_for(60));
        fleet.says("b", APP, healthy_for(60));
        let (east, west) = (scraping(rig, &fleet, &["a"]).await?, scraping(rig, &fleet, &["b"]).await?);
        let authority = Authority::new("one")?;
        let other = Authority::new("two")?;
        let secrets = rig.subdir("secrets")?;
        let file = |name: &str| secrets.join(name);
        let show = |name: &str| file(name).display().to_string();
        put(&file("ca.pem"), authority.pem())?;
        put(&file("password"), "one\n")?;
        put(&file("token"), "first\n")?;
        let client = authority.certify("reader")?;
        put(&file("tls.crt"), &client.certificate)?;
        put(&file("tls.key"), &client.key)?;

        // One is known by a name that is not its address; it wants a certificate, a password and a tenant.
        let named = authority.certify("thanos.example")?;
        let strict = |password: &str, own: &Certified, clients: &Authority| {
            Demand::new(&[TENANT, ("authorization", &basic(password))], own, Some(clients))
        };
        let first = Guard::start(rig, east.address(), strict("one", &named, &authority)?).await?;
        let addressed = authority.certify("127.0.0.1")?;
        let bearer =
            |token: &str| Demand::new(&[("authorization", &format!("Bearer {token}"))], &addressed, None);
        let second = Guard::start(rig, west.address(), bearer("first")?).await?;
        let backends = json!([
            {
                "name": "strict", "url": first.url(), "trust": "all", "timeout": "2s", "headers": {"X-Scope-OrgID": "fleet"},
                "basicAuth": {"username": "reader", "passwordFile": show("password")},
                "tls": {
                    "caFile": show("ca.pem"), "certFile": show("tls.crt"), "keyFile": show("tls.key"),
                    "serverName": "thanos.example",
                },
            },
            {
                "name": "bearer", "url": second.url(), "trust": "all", "timeout": "2s", "bearerTokenFile": show("token"),
                "tls": {"caFile": show("ca.pem")},
            },
        ]);
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, reading(rig, backends)?).await?;
        hub.report(APP, "15s", json!({})).await?;
        gate(&hub, "a", &["a"]).await?;
        gate(&hub, "b", &["b"]).await?;
        hub.opens("a", SOON).await?;
        hub.opens("b", SOON).await?;
        let history = hub.history("a").await?;

        let passes = async |guard: &Guard, what: &str| {
            eventually(SOON, what, async || {
                ensure!(guard.passed() >= 10, "{} passed, {} refused", guard.passed(), guard.refused());
                Ok(())
            })
            .await
        };
        put(&file("password"), "two words\n")?;
        first.demand(strict("two", &named, &authority)?);
        put(&file("token"), "second")?;
        second.demand(bearer("second")?);
        passes(&first, "the new password is sent").await?;
        passes(&second, "the new token is sent").await?;

        // A new certificate of a new authority: certificate and key come one after the other.
        let client = other.certify("reader")?;
        put(&file("tls.crt"), &client.certificate)?;
        put(&file("tls.key"), &client.key)?;
        first.demand(strict("two", &named, &other)?);
        passes(&first, "the new certificate is shown").await?;
        // The backend's own certificate is of the new authority.
        put(&file("ca.pem"), other.pem())?;
        first.demand(strict("two", &other.certify("thanos.example")?, &other)?);
        passes(&first, "the new authority is trusted").await?;
        history.check("secrets change without a gap that matters", open).await?;
        // The other still has one of the authority of before: nobody trusts it now.
        waits_for(&hub, "b", STALE_BY, &["feed bearer", "backend cannot be reached"]).await?;
        ensure!(second.refused() > 0, "it was not even tried");
        put(&file("ca.pem"), &format!("{}{}", authority.pem(), other.pem()))?;
        hub.opens("b", SOON).await?;

        // Whatever is wrong closes, with the reason.
        first.demand(strict("two", &other.certify("somebody.else")?, &other)?);
        second.demand(bearer("third")?);
        waits_for(&hub, "a", STALE_BY, &["feed strict", "backend cannot be reached"]).await?;
        waits_for(&hub, "b", STALE_BY, &["feed bearer", "HTTP 401"]).await?;
        first.demand(strict("two", &other.certify("thanos.example")?, &other)?);
        put(&file("token"), "third")?;
        hub.opens("a", SOON).await?;
        hub.opens("b", SOON).await?;

        let log = hub.aggregator.process().log();
        for secret in ["two words", "third", &basic("two"), "PRIVATE KEY"] {
            ensure!(!log.contains(secret), "a secret is in the log");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_backend_is_asked_for_no_more_than_it_answers() {
    run("e2e-backend-sizes", async |rig| {
        let fleet = FakeFleet::start().await?;
        let clusters: Vec<String> = (0..12).map(|n| format!("c{n}")).collect();
        for cluster in &clusters {
            for package in 0..100 {
                fleet.says(cluster, &format!("p{package}"), healthy_for(60));
            }
        }
        let victoria_metrics =
            VictoriaMetrics::start_with(rig, &["-search.maxUniqueTimeseries=1000"]).await?;
        let mimir = Mimir::start_with(rig, json!({"fleet": {"max_fetched_series_per_query": 1000}})).await?;
        let tenant = mimir.tenant("fleet")?;
        let mut config = PrometheusConfig::with_jobs([clusters
            .iter()
            .fold(job(), |job, name| fleet.target(job, name, &[]))]);
        // All of it are 2,500 series, of which a second's scrapes within some seconds are read at once. Digests are read
        // for two minutes.
        config.flags = vec!["--query.max-samples=8000".to_owned()];
        config.remote_write.push(victoria_metrics.remote_write_url());
        let prometheus = Prometheus::start(rig, &tenant.written_by(config)).await?;
        eventually(SOON, "all clusters are there", async || {
            let found = prometheus.query("statusbridge_digest").await?.len();
            ensure!(found == clusters.len(), "{found}");
            Ok(())
        })
        .await?;
        eventually(SOON, "it has more than it answers at once", async || {
            let all = prometheus.query("{__name__=~\"statusbridge_.+\"}[60s]").await;
            let refused = all.err().context("it answers everything at once")?.to_string();
            ensure!(refused.contains("too many samples"), "{refused}");
            Ok(())
        })
        .await?;
        for (url, flavour, settle) in [
            (prometheus.url(), Flavour::Prometheus, 1.0),
            (victoria_metrics.url(), Flavour::VictoriaMetrics, 3.0),
            (mimir.url(), Flavour::Prometheus, 3.0),
        ] {
            let headers = vec![tenant.header()];
            let feed = PromFeed::new(FeedConfig { flavour, headers, ..FeedConfig::new(url) })?;
            let mut poller = Poller::new(poll_config(), feed);
            let mut known = Fleet::new(FleetSettings::default());
            eventually(SOON, &format!("{flavour:?} answers in parts"), async || {
                let report = poller.poll(&mut known, clock::now() - settle).await;
                ensure!(report.ok && report.verified == clusters.len(), "{report:?}");
                Ok(())
            })
            .await?;
        }
        let all = tenant.query("{__name__=~\"statusbridge_.+\"}").await;
        let refused = all.err().context("Mimir answers everything at once")?.to_string();
        ensure!(refused.contains("err-mimir-max-series-per-query"), "{refused}");

        // A cluster of VictoriaMetrics that lacks a node answers with what the others have, and says so in a field.
        let way = FaultProxy::start(rig, victoria_metrics.address()).await?;
        for flavour in [Flavour::VictoriaMetrics, Flavour::Any] {
            let feed = PromFeed::new(FeedConfig { flavour, ..FeedConfig::new(way.url()) })?;
            let mut poller = Poller::new(poll_config(), feed);
            let mut known = Fleet::new(FleetSettings::default());
            let whole = async |poller: &mut Poller, known: &mut Fleet| {
                eventually(SOON, "what is whole is believed", async || {
                    let report = poller.poll(known, clock::now() - 3.0).await;
                    ensure!(report.ok && report.verified == clusters.len(), "{report:?}");
                    Ok(())
                })
                .await
            };
            whole(&mut poller, &mut known).await?;
            way.set(Fault::Partial);
            let before = known.newest_evidence();
            let report = poller.poll(&mut known, clock::now() - 3.0).await;
            ensure!(
                !report.ok && report.failure.as_ref().map(FeedError::kind) == Some("partial"),
                "{flavour:?}: {report:?}"
            );
            ensure!(known.newest_evidence() == before, "evidence of a partial answer");
            way.set(Fault::Pass);
            whole(&mut poller, &mut known).await?;
        }
        Ok(())
    })
    .await;
}

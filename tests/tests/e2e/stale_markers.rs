//! What backends hold of series that are gone: markers that were lost on the way, and blocks that are full of them.

use crate::e2e::reader::Reader;
use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::{FeedConfig, Flavour, PromFeed, QueryApi};
use statusbridge_contract::Metric;
use statusbridge_core::fleet::Standing;
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_tests::*;
use std::time::Duration;

/// A Prometheus is killed after a scrape that shows a failure, and comes back when the failure is over: it never says
/// that the series of the failure have ended.
async fn killed_between_two_scrapes(rig: &Rig, fleet: &FakeFleet, backend: Backend) -> Result<()> {
    let etcd = Etcd::start(rig).await?;
    let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
    fleet.says("c1", APP, healthy_for(3600));
    hub.report(APP, "60s", json!({})).await?;
    hub.gate("wave", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
    hub.opens("wave", SOON).await?;
    fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
    hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
    let history = hub.history("wave").await?;

    backend.prometheus.process().kill();
    fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
    backend.prometheus.start_again().await?;
    hub.opens("wave", SOON).await?;
    let held = backend.prometheus.query(Metric::PackageHealth.name()).await?;
    ensure!(held.len() == 1 && held[0].value == 5.0, "it was told of the end of the failure: {held:?}");
    holds_for(Duration::from_secs(5), "it stays open", async || {
        let gate = hub.get_gate("wave").await?;
        ensure!(history::condition(&gate, "Open").0 == "True", "{}", gate.data["status"]);
        Ok(())
    })
    .await?;
    let turns = history.versions().await?;
    ensure!(
        turns.iter().all(|version| version.condition("Open").1 != "Unverified"),
        "something did not add up"
    );
    Ok(())
}

#[tokio::test]
async fn a_prometheus_killed_before_it_marks_a_failure_as_over_keeps_no_gate_closed() {
    run("e2e-lost-markers-prometheus", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::prometheus(rig, &fleet, &["c1"]).await?;
        killed_between_two_scrapes(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn neither_does_one_that_writes_to_victoria_metrics() {
    run("e2e-lost-markers-victoria-metrics", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::victoria_metrics(rig, &fleet, &["c1"]).await?;
        killed_between_two_scrapes(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn nor_one_that_writes_to_mimir() {
    run("e2e-lost-markers-mimir", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::mimir(rig, &fleet, &["c1"]).await?;
        killed_between_two_scrapes(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn nor_one_that_is_read_through_thanos() {
    run("e2e-lost-markers-thanos", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::thanos(rig, &fleet, &["c1"]).await?;
        killed_between_two_scrapes(rig, &fleet, backend).await
    })
    .await;
}

/// Counts samples that are no whole numbers, and stale markers.
#[derive(Debug, Default)]
struct Odd {
    fractions: usize,
    markers: usize,
}

impl Sink for Odd {
    fn series(&mut self, _: &Labels, samples: &[Sample]) {
        self.fractions +=
            samples.iter().filter(|sample| sample.value.is_finite() && sample.value.fract() != 0.0).count();
        self.markers += samples.iter().filter(|sample| sample.value.is_nan()).count();
    }
}

#[tokio::test]
async fn blocks_of_victoria_metrics_that_are_full_of_stale_markers_add_up() {
    run("e2e-stale-blocks", async |rig| {
        let fleet = FakeFleet::start().await?;
        let every = |n: u32| format!("app-{n:03}");
        // Revisions of all sizes.
        for n in 0..200 {
            fleet.says("c1", &every(n), FakePackage::healthy_at(&revision(n)));
        }
        // A scrape in three fails, and then Prometheus says of every series that it has ended.
        let single = VictoriaMetrics::start(rig).await?;
        let cluster = VictoriaCluster::start(rig, 1).await?;
        let select = cluster.select(rig, &[]).await?;
        let mut config = PrometheusConfig::with_jobs([fleet.target(job(), "c1", &[])]);
        config.scrape_interval = Duration::from_millis(500);
        config.remote_write = vec![single.remote_write_url(), cluster.remote_write_url()];
        fleet.fails_every("c1", 3);
        let _prometheus = Prometheus::start(rig, &config).await?;

        for url in [single.url(), select.url()] {
            let feed =
                PromFeed::new(FeedConfig { flavour: Flavour::VictoriaMetrics, ..FeedConfig::new(&url) })?;
            let odd = eventually(SOON, "a block holds stale markers", async || {
                let query = "{__name__=~\"statusbridge_(package_healthy_revision|digest)\"}[120s]";
                let odd = feed.query(query, clock::now(), Odd::default()).await?;
                ensure!(odd.markers > 20, "{odd:?}");
                Ok(odd)
            })
            .await?;
            println!("{url}: {odd:?}");
            let mut reader = Reader::behind(url.clone(), Flavour::VictoriaMetrics)?.stale_after(20.0);
            for n in [0, 199] {
                reader.until("c1", &every(n), Standing::Fresh).await?;
            }
            for round in 0..10 {
                fleet.says("c1", &every(round), FakePackage::failed_at(&revision(round)));
                // A poll may fall into a write, and then reads half of a scrape.
                reader.sees((1, 0), &every(199), &["c1"]).await?;
            }
        }
        Ok(())
    })
    .await;
}

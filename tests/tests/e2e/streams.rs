//! Several Prometheus replicas, exporter restarts, labels that a pipeline adds, and clusters that share a name.

use crate::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use statusbridge_tests::*;
use std::time::Duration;

/// A replica of an HA pair that scrapes the exporter and writes to the backend.
fn replica(exporter: &Exporter, name: &str, backend: &VictoriaMetrics) -> PrometheusConfig {
    // The target's labels hold what each scrape configuration may add; `namespace` is the exporter's own.
    let target = job().target(exporter.address(), &[("namespace", "monitoring"), ("pod", name)]);
    let external = [("cluster", "c1"), ("replica", name), ("source", "edge"), ("stage", "prod")];
    let mut config = PrometheusConfig::with_jobs([target]).external(&external);
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
        // Remote write takes its time.
        options.settle_delay = "3s";
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
        holds_for(Duration::from_secs(12), "the gate stays open", async || {
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
        holds_for(Duration::from_secs(6), "no replica brings the old revision back", async || {
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

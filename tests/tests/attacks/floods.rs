//! A tenant of a workload cluster writes its own package's status again and again, so that others' news comes late.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::workload::{delivered, failed};
use statusbridge_tests::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

/// From a failure to a closed gate, whether the exporter keeps up or not.
const WITHIN: Duration = Duration::from_secs(10);
/// Of each writer: the two together write one object 60 times a second.
const BETWEEN_WRITES: Duration = Duration::from_millis(33);
const APP: &str = "app";
const NOISY: &str = "noisy";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Writes the status of the tenant's package, with so many bytes that mean nothing, until it is dropped.
fn flood(cluster: &Workload, bytes: usize) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for writer in 0..2 {
        let packages = cluster.kustomizations().clone();
        writers.spawn(async move {
            let mut next = interval(BETWEEN_WRITES);
            for number in 0_u64.. {
                next.tick().await;
                let status = failed(R1, &format!("{writer} {number} {}", "x".repeat(bytes)));
                let patch = kube::api::Patch::Merge(json!({"status": status}));
                // A conflict with the other writer is as good.
                let _ = packages.patch_status(NOISY, &Default::default(), &patch).await;
            }
        });
    }
    writers
}

/// Has the victim's package fail, and gives how long its gate stayed open after that.
async fn closes_in_time(cluster: &Workload, hub: &Hub) -> Result<Duration> {
    cluster.set_status(APP, failed(R1, "crash loop")).await?;
    let written = Instant::now();
    eventually(WITHIN, "the gate is closed", async || {
        let gate = hub.get_gate("victim").await?;
        let (open, reason) = history::condition(&gate, "Open");
        ensure!(open == "False", "{}", gate.data["status"]);
        println!("closed after {:.1} s: {reason}", written.elapsed().as_secs_f64());
        Ok(())
    })
    .await?;
    Ok(written.elapsed())
}

#[tokio::test]
async fn what_one_writes_without_an_end_keeps_no_gate_of_another_open() {
    run("attacks-floods", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let proxy = FaultProxy::start(rig, api.address()).await?;
        let exporter = Exporter::start(rig, "exporter", &api.kubeconfig_via(proxy.address())?, &[]).await?;
        let cluster = Workload::of(api, exporter).await?;
        cluster.deliver(APP, R1).await?;
        cluster.deliver(NOISY, R1).await?;
        let job = cluster.target(ScrapeJob::new("statusbridge"));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report(APP, "60s", json!({})).await?;
        hub.gate("victim", APP, R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("victim", SOON).await?;

        // The exporter keeps up.
        let writers = flood(&cluster, 100);
        let events = async || cluster.exporter.watch_events("Kustomization").await;
        let first = events().await?;
        eventually(SOON, "a flood has come", async || {
            let count = events().await? - first;
            ensure!(count > 300.0, "{count} events are no flood");
            Ok(())
        })
        .await?;
        for _ in 0..3 {
            closes_in_time(&cluster, &hub).await?;
            cluster.set_status(APP, delivered(R1)).await?;
            hub.opens("victim", SOON).await?;
        }
        drop(writers);

        // It does not: more is written than comes through.
        let writers = flood(&cluster, 20_000);
        proxy.set(Fault::Slow(Duration::from_millis(500)));
        eventually(SOON, "the exporter says that it is behind", async || {
            ensure!(cluster.says().await?.source_up(SOURCE) == Some(false), "it is up");
            Ok(())
        })
        .await?;
        closes_in_time(&cluster, &hub).await?;
        drop(writers);
        proxy.set(Fault::Pass);
        cluster.set_status(APP, delivered(R1)).await?;
        hub.opens("victim", SOON).await.map(drop)
    })
    .await;
}

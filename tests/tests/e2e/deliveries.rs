//! What becomes of each revision is counted once, whatever becomes of the aggregator.

use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_tests::*;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";
const R3: &str = "main@sha1:3333333333333333333333333333333333333333";
const CLUSTERS: [&str; 2] = ["c1", "c2"];

/// Deployments, failed revisions, and how many have a time to healthy and a time to restore.
async fn counted(aggregator: &Aggregator) -> Result<[f64; 4]> {
    let labels = r#"{fleet_package_namespace="default",fleet_package="payments"}"#;
    let mut found = [0.0; 4];
    let names = [
        "deployments_total",
        "failed_revisions_total",
        "time_to_healthy_seconds_count",
        "time_to_restore_seconds_count",
    ];
    for (name, value) in names.into_iter().zip(&mut found) {
        *value = aggregator.metric(&format!("statusbridge_delivery_{name}{labels}")).await?;
    }
    Ok(found)
}

async fn counts(aggregator: &Aggregator, right: [f64; 4]) -> Result<()> {
    eventually(SOON, &format!("deliveries come to {right:?}"), async || {
        let found = counted(aggregator).await?;
        ensure!(found == right, "{found:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_delivery_is_counted_once_across_restarts() {
    run("e2e-deliveries", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        let all_say = |what: FakePackage| {
            for cluster in CLUSTERS {
                fleet.says(cluster, "payments", what.clone());
            }
        };
        all_say(FakePackage::healthy_at(R1));
        let job = ScrapeJob::new("statusbridge");
        let job = CLUSTERS.iter().fold(job, |job, cluster| fleet.target(job, cluster, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let wants = async |revision: &str| {
            hub.report("payments", "10s", json!({"revision": revision, "clusters": {"names": CLUSTERS}}))
                .await
        };

        // It ran before anybody wanted it: that is no deployment.
        hub.report("payments", "10s", json!({"clusters": {"names": CLUSTERS}})).await?;
        hub.reports("payments", "Ready", "True", "HealthyAtOwnRevision", SOON).await?;
        wants(R1).await?;
        hub.reports("payments", "Ready", "True", "Healthy", SOON).await?;
        counts(&hub.aggregator, [0.0; 4]).await?;

        // The next one fails in one cluster, and is mended.
        wants(R2).await?;
        fleet.says("c1", "payments", FakePackage::failed_at(R2));
        hub.reports("payments", "Ready", "False", "Failed", SOON).await?;
        counts(&hub.aggregator, [0.0, 1.0, 0.0, 0.0]).await?;
        all_say(FakePackage::healthy_at(R2));
        hub.reports("payments", "Ready", "True", "Healthy", SOON).await?;
        counts(&hub.aggregator, [1.0, 1.0, 1.0, 1.0]).await?;

        // A restart reads all of it anew, and counts none of it again.
        ensure!(hub.aggregator.process().terminate(SOON).await?.success());
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        counts(&hub.aggregator, [0.0; 4]).await?;
        let status = hub.get_report("payments").await?.data["status"].clone();
        let newest = &status["history"][0];
        for time in ["healthyAt", "failedAt", "restoredAt"] {
            ensure!(newest["revision"] == R2 && newest[time].is_string(), "{status}");
        }
        wants(R3).await?;
        all_say(FakePackage::healthy_at(R3));
        hub.reports("payments", "Ready", "True", "Healthy", SOON).await?;
        counts(&hub.aggregator, [1.0, 0.0, 1.0, 0.0]).await
    })
    .await;
}

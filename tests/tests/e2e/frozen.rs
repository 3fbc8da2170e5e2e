//! A gate that keeps to the clusters that were selected when its revision was first judged.

use crate::e2e::profiles::{profile, profile_kind};
use crate::e2e::world::*;
use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::time::Duration;

/// Waits until the gate says this, keeps to these clusters, and leaves those to the next revision.
async fn says(hub: &Hub, open: &str, reason: &str, members: Value, newcomers: Value) -> Result<()> {
    let what = format!("Open is {open} by {reason} with {members}, {newcomers} wait");
    eventually(SOON, &what, async || {
        let gate = hub.get_gate("prod").await?;
        let status = &gate.data["status"];
        ensure!(status["observedGeneration"] == json!(gate.metadata.generation), "{status}");
        ensure!(history::condition(&gate, "Open") == (open, reason), "{status}");
        ensure!(status["members"]["clusters"] == members, "{status}");
        ensure!(status["newcomers"]["clusters"] == newcomers, "{status}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_gate_keeps_to_the_clusters_that_it_began_with() {
    run("e2e-frozen", async |rig| {
        let fleet = FakeFleet::start().await?;
        for name in ["c0", "c1", "c2"] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
        }
        let job = ["c0", "c1", "c2"].iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let etcd = Etcd::start(rig).await?;
        let options = AggregatorOptions::new(prometheus.url());
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        let history = hub.history("prod").await?;
        let frozen = json!({"clusters": {"selector": {"matchLabels": {"env": "prod"}}, "freeze": true}});
        hub.gate("prod", APP, &revision(1), frozen.clone()).await?;
        // Nobody can tell which clusters are meant.
        says(&hub, "False", "ClusterProfilesUnavailable", Value::Null, Value::Null).await?;
        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        let joins = async |name: &str| profile(&hub.api, "default", name, json!({"env": "prod"})).await;
        says(&hub, "False", "NoTargets", Value::Null, Value::Null).await?;
        history.check("nobody was selected yet", closed).await?;
        joins("c0").await?;
        says(&hub, "True", "Healthy", json!(["c0"]), Value::Null).await?;

        // One that joins while the gate waits waits, too.
        hub.gate("prod", APP, &revision(2), frozen.clone()).await?;
        says(&hub, "False", "RevisionNeverSeen", json!(["c0"]), Value::Null).await?;
        joins("c1").await?;
        says(&hub, "False", "RevisionNeverSeen", json!(["c0"]), json!(["c1"])).await?;
        hub.gate("prod", APP, &revision(1), frozen.clone()).await?;
        says(&hub, "True", "Healthy", json!(["c0", "c1"]), Value::Null).await?;

        // One joins, and is not even healthy; the gate stays open throughout.
        let since = hub.history("prod").await?;
        fleet.says("c2", APP, FakePackage::failed_at(&revision(1)));
        joins("c2").await?;
        says(&hub, "True", "Healthy", json!(["c0", "c1"]), json!(["c2"])).await?;
        since.check("a newcomer closes nothing", open).await?;

        // One leaves the inventory; it goes on counting.
        let profiles = hub.api.dynamic(&profile_kind(), Some("default")).await?;
        profiles.delete("c1", &DeleteParams::default()).await?;
        hub.aggregator.process().kill();
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        let kept = async || says(&hub, "True", "Healthy", json!(["c0", "c1"]), json!(["c2"])).await;
        holds_for(Duration::from_secs(8), "members outlast a restart", kept).await?;
        since.check("neither does a restart", open).await?;
        fleet.loses("c1", APP);
        says(&hub, "False", "Missing", json!(["c0", "c1"]), json!(["c2"])).await?;

        // The next revision is about those that are there now.
        for name in ["c0", "c2"] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(3)));
        }
        hub.gate("prod", APP, &revision(3), frozen).await?;
        says(&hub, "True", "Healthy", json!(["c0", "c2"]), Value::Null).await?;
        hub.aggregator.process().ensure_running()
    })
    .await;
}

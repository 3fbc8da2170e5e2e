//! The hub's etcd goes back to an older state: a gate was open then, or fewer clusters were admitted.

use crate::e2e::rollouts::{CLUSTERS, Setup, three_waves};
use crate::e2e::world::{APP, job, revision};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of the heartbeat.
const TIMEOUT: Duration = Duration::from_secs(12);

/// Saves the state of a hub.
async fn save(hub: &Hub, etcd: &Etcd) -> Result<PathBuf> {
    hub.api.stop();
    etcd.stop();
    let saved = etcd.save("saved")?;
    etcd.start_again().await?;
    hub.api.start_again().await?;
    Ok(saved)
}

/// Has a hub go back to the state that was saved.
async fn go_back(hub: &Hub, etcd: &Etcd, saved: &Path) -> Result<()> {
    hub.api.stop();
    etcd.stop();
    etcd.restore(saved)?;
    etcd.start_again().await?;
    hub.api.start_again().await
}

/// A hub with an etcd of its own, and an older state of that.
struct Restored {
    fleet: FakeFleet,
    hub: Hub,
    etcd: Etcd,
    saved: PathBuf,
    _prometheus: Prometheus,
    _sweeper: Sweeper,
}

impl Restored {
    /// The gate was open in the saved state, and is closed now, because the package has failed.
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "app", FakePackage::healthy_at(&revision(1)));
        let config = PrometheusConfig::with_jobs([fleet.target(job(), "c1", &[])]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let sweeper = hub.start_sweeper(rig, &format!("{}s", TIMEOUT.as_secs())).await?;
        hub.report("app", "1h", json!({})).await?;
        hub.gate("wave", "app", &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave", SOON).await?;
        let saved = save(&hub, &etcd).await?;
        fleet.says("c1", "app", FakePackage::failed_at(&revision(1)));
        hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        // Versions that the older state does not reach for a while.
        let later = Api::<ConfigMap>::namespaced(hub.api.client(), "default");
        for number in 0..200 {
            let object = ConfigMap {
                metadata: ObjectMeta { name: Some(format!("later-{number}")), ..ObjectMeta::default() },
                ..ConfigMap::default()
            };
            later.create(&PostParams::default(), &object).await?;
        }
        Ok(Self { fleet, hub, etcd, saved, _prometheus: prometheus, _sweeper: sweeper })
    }

    /// The hub is what it was when its state was saved.
    async fn restore(&self) -> Result<()> {
        go_back(&self.hub, &self.etcd, &self.saved).await?;
        let gate = self.hub.get_gate("wave").await?;
        ensure!(history::condition(&gate, "Open").0 == "True", "not restored: {}", gate.data["status"]);
        Ok(())
    }
}

#[tokio::test]
async fn gates_that_a_restore_has_opened_are_closed_by_the_aggregator_that_ran_all_along() {
    run("e2e-restored-hub", async |rig| {
        let world = Restored::start(rig).await?;
        let aggregator = world.hub.aggregator.process();
        aggregator.freeze()?;
        world.restore().await?;
        aggregator.thaw()?;
        world.hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        world.fleet.says("c1", "app", FakePackage::healthy_at(&revision(1)));
        world.hub.opens("wave", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn gates_that_a_restore_has_opened_are_closed_by_the_sweeper_where_there_is_no_aggregator() {
    run("e2e-restored-hub-sweeper", async |rig| {
        let world = Restored::start(rig).await?;
        world.hub.aggregator.process().kill();
        world.restore().await?;
        world.hub.closes("wave", "AggregatorSilent", SOON).await.map(drop)
    })
    .await;
}

/// The steps of docs/operations.md.
#[tokio::test]
async fn a_record_that_is_old_catches_up_with_what_runs_once_its_rollout_goes_on() {
    run("e2e-restored-hub-record", async |rig| {
        let setup = Setup::start(rig).await?;
        let (hub, aggregator) = (&setup.hub, setup.hub.aggregator.process());
        setup.rolls(APP, 1, json!([{"name": "all", "clusters": {"percentage": "100%"}}])).await?;
        let all = setup.admits(1, CLUSTERS.len()).await?;
        let saved = save(hub, &setup.etcd).await?;
        setup.rolls(APP, 2, three_waves()).await?;
        let canary = setup.admits(2, 1).await?;
        setup.deliver(2, &canary);
        let two = setup.admits(2, 2).await?;

        aggregator.kill();
        go_back(hub, &setup.etcd, &saved).await?;
        ensure!(setup.admitted(1).await? == all, "the record is no older");
        let paused = async |paused: bool| -> Result<()> {
            let rollouts = hub.api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
            let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
            rollouts.patch(APP, &PatchParams::default(), &patch).await?;
            Ok(())
        };
        paused(true).await?;
        setup.rolls(APP, 2, three_waves()).await?;
        aggregator.start()?;
        setup.says(APP, "GatePaused").await?;
        ensure!(setup.admitted(1).await? == all, "somebody was admitted in a pause");
        paused(false).await?;
        ensure!(setup.admits(2, 2).await? == two, "others are admitted");
        setup.admits_no_more(2, &two).await
    })
    .await;
}

//! FleetRollouts: which clusters may have a revision, wave by wave.

mod placements;

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const CLUSTERS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];
/// For so long nothing may happen where nothing has to: some polls.
pub(crate) const A_WHILE: Duration = Duration::from_secs(5);

/// Six fake clusters, where the package is at revision 1, and a hub.
pub(crate) struct Setup {
    pub(crate) fleet: FakeFleet,
    pub(crate) prometheus: Prometheus,
    pub(crate) hub: Hub,
    pub(crate) etcd: Etcd,
}

impl Setup {
    pub(crate) async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, Ok).await
    }

    /// The same with other options of the aggregator.
    pub(crate) async fn start_with(
        rig: &Rig,
        change: impl FnOnce(AggregatorOptions) -> Result<AggregatorOptions>,
    ) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        for cluster in CLUSTERS {
            fleet.says(cluster, APP, FakePackage::healthy_at(&revision(1)));
        }
        let prometheus = Prometheus::start(rig, &scraping(&fleet, &CLUSTERS)).await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s"].map(str::to_owned).into();
        let hub = Hub::start_with(rig, &etcd, change(options)?).await?;
        hub.report(APP, STALE_AFTER, json!({"clusters": {"names": CLUSTERS}})).await?;
        Ok(Self { fleet, prometheus, hub, etcd })
    }

    /// Makes or changes a rollout.
    pub(crate) async fn rolls(&self, name: &str, number: u32, waves: Value) -> Result<()> {
        self.hub
            .api
            .apply_object(&json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"fleetPackageRef": {"name": APP}, "revision": revision(number), "waves": waves},
            }))
            .await
            .map(drop)
    }

    pub(crate) async fn rollout(&self, name: &str) -> Result<DynamicObject> {
        let rollouts = self.hub.api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
        Ok(rollouts.get(name).await?)
    }

    /// Which clusters may have which revision, as the record says.
    async fn record(&self) -> Result<BTreeMap<String, String>> {
        let slices = self.hub.api.dynamic(&hub::kind("FleetRolloutSlice"), Some("default")).await?;
        let slices = slices.list(&ListParams::default()).await?;
        let rows =
            slices.items.iter().flat_map(|slice| slice.data["clusters"].as_array().into_iter().flatten());
        let text =
            |row: &Value, field: &str| row[field].as_str().map(str::to_owned).context("a row without it");
        rows.map(|row| Ok((text(row, "clusterName")?, text(row, "revision")?))).collect()
    }

    /// The clusters that may have the revision of this number.
    pub(crate) async fn admitted(&self, number: u32) -> Result<BTreeSet<String>> {
        let record = self.record().await?;
        Ok(record.into_iter().filter(|(_, at)| *at == revision(number)).map(|(name, _)| name).collect())
    }

    /// Waits until so many clusters may have it, and tells which.
    pub(crate) async fn admits(&self, number: u32, many: usize) -> Result<BTreeSet<String>> {
        eventually(SOON, &format!("{many} clusters may have revision {number}"), async || {
            let admitted = self.admitted(number).await?;
            ensure!(admitted.len() == many, "{admitted:?}");
            Ok(admitted)
        })
        .await
    }

    /// Sees for a while that nobody else may have it.
    pub(crate) async fn admits_no_more(&self, number: u32, these: &BTreeSet<String>) -> Result<()> {
        holds_for(A_WHILE, "nobody else may have it", async || {
            let admitted = self.admitted(number).await?;
            ensure!(admitted == *these, "{admitted:?}");
            Ok(())
        })
        .await
    }

    /// The delivery system brings a revision to clusters that may have it.
    pub(crate) fn deliver<'c>(&self, number: u32, clusters: impl IntoIterator<Item = &'c String>) {
        for cluster in clusters {
            self.fleet.says(cluster, APP, FakePackage::healthy_at(&revision(number)));
        }
    }

    /// Waits until the rollout has this reason for being Ready or not.
    pub(crate) async fn says(&self, name: &str, reason: &str) -> Result<DynamicObject> {
        eventually(SOON, &format!("rollout {name} says {reason}"), async || {
            let rollout = self.rollout(name).await?;
            ensure!(history::condition(&rollout, "Ready").1 == reason, "{}", rollout.data["status"]);
            ensure!(
                rollout.data["status"]["observedGeneration"].as_i64() == rollout.metadata.generation,
                "old"
            );
            Ok(rollout)
        })
        .await
    }
}

pub(crate) fn three_waves() -> Value {
    json!([
        {"name": "canary", "clusters": {"count": 1}},
        {"name": "some", "clusters": {"percentage": "40%"}, "maxConcurrency": 1},
        {"name": "rest", "clusters": {"percentage": "100%"}},
    ])
}

#[tokio::test]
async fn a_revision_goes_wave_by_wave_behind_gates_that_are_open() {
    run("e2e-rollouts", async |rig| {
        let setup = Setup::start(rig).await?;
        setup.rolls(APP, 2, three_waves()).await?;
        let canary = setup.admits(2, 1).await?;
        let gate = setup.hub.get_gate("app-canary").await?;
        ensure!(gate.data["spec"]["clusters"]["names"] == json!(canary), "{}", gate.data["spec"]);
        ensure!(gate.data["spec"]["revision"] == revision(2).as_str(), "{}", gate.data["spec"]);
        let labels = gate.metadata.labels.clone().unwrap_or_default();
        ensure!(labels.get("statusbridge.dev/wave").map(String::as_str) == Some("canary"), "{labels:?}");
        let owners = gate.metadata.owner_references.clone().unwrap_or_default();
        ensure!(owners.len() == 1 && owners[0].kind == "FleetRollout", "{owners:?}");
        setup.admits_no_more(2, &canary).await?;
        ensure!(setup.hub.get_gate("app-some").await.is_err(), "its wave has not started");

        // Two of the second wave, one after the other.
        setup.deliver(2, &canary);
        let first = setup.admits(2, 2).await?;
        setup.admits_no_more(2, &first).await?;
        setup.deliver(2, &first);
        let both = setup.admits(2, 3).await?;

        // A backend that is silent lets nobody on, and takes nothing back.
        setup.prometheus.stop();
        setup.deliver(2, &both);
        setup.admits_no_more(2, &both).await?;
        setup.prometheus.start_again().await?;

        let all = setup.admits(2, 6).await?;
        eventually(SOON, "the status names the last wave", async || {
            let rollout = setup.rollout(APP).await?;
            ensure!(rollout.data["status"]["wave"] == "rest (3/3)", "{}", rollout.data["status"]);
            ensure!(history::condition(&rollout, "Ready").1 == "RollingOut", "{}", rollout.data["status"]);
            Ok(())
        })
        .await?;
        setup.deliver(2, &all);
        let rollout = setup.says(APP, "RolledOut").await?;
        let status = &rollout.data["status"];
        ensure!(history::condition(&rollout, "Ready").0 == "True", "{status}");
        ensure!(
            status["admitted"] == "6/6" && status["lastCompletedRevision"] == revision(2).as_str(),
            "{status}"
        );

        // The next revision fails in its first wave: all stop, and whoever has another one keeps it.
        setup.rolls(APP, 3, three_waves()).await?;
        let canary = setup.admits(3, 1).await?;
        for cluster in &canary {
            setup.fleet.says(cluster, APP, FakePackage::failed_at(&revision(3)));
        }
        let rollout = setup.says(APP, "WaveFailed").await?;
        let status = &rollout.data["status"];
        ensure!(history::condition(&rollout, "Stalled").0 == "True", "{status}");
        ensure!(status["recommendedRevision"] == revision(2).as_str(), "{status}");
        ensure!(status["previous"]["revision"] == revision(2).as_str(), "{status}");
        setup.admits_no_more(3, &canary).await?;
        ensure!(setup.admitted(2).await?.len() == 5, "{:?}", setup.record().await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn of_two_rollouts_of_a_package_one_stands_still() {
    run("e2e-rollouts-two", async |rig| {
        let setup = Setup::start(rig).await?;
        setup.rolls("one", 2, json!([{"name": "all", "clusters": {"names": ["c1", "c2"]}}])).await?;
        let admitted = setup.admits(2, 2).await?;
        setup.rolls("other", 3, json!([{"name": "all", "clusters": {"percentage": "100%"}}])).await?;
        setup.says("other", "OtherRollout").await?;
        ensure!(setup.admitted(3).await?.is_empty() && setup.admitted(2).await? == admitted);

        // A gate that somebody gives other clusters lets nobody on; the record stays.
        let gates = setup.hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
        let patch = Patch::Merge(json!({"spec": {"clusters": {"names": ["c1", "c2", "c3"]}}}));
        gates.patch("one-all", &PatchParams::default(), &patch).await?;
        setup.says("one", "GateChanged").await?;
        setup.admits_no_more(2, &admitted).await?;

        // What it leaves behind goes with it, and the other one goes on.
        let rollouts = setup.hub.api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
        rollouts.delete("one", &DeleteParams::default()).await?;
        setup.admits(3, 6).await?;
        eventually(SOON, "its gate is gone", async || {
            ensure!(setup.hub.get_gate("one-all").await.is_err(), "its gate is there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_rollout_made_anew_for_another_package_waits_until_somebody_deletes_the_record() {
    run("e2e-rollouts-another-package", async |rig| {
        let setup = Setup::start(rig).await?;
        let api = &setup.hub.api;
        let all = json!([{"name": "all", "clusters": {"names": CLUSTERS}}]);
        setup.rolls("one", 2, all.clone()).await?;
        let admitted = setup.admits(2, 6).await?;
        api.kubectl(&["delete", "fleetrollout", "one"]).await?;
        setup.hub.report("other", STALE_AFTER, json!({"clusters": {"names": CLUSTERS}})).await?;
        api.apply_object(&json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
            "metadata": {"name": "one", "namespace": "default"},
            "spec": {"fleetPackageRef": {"name": "other"}, "revision": revision(3), "waves": all},
        }))
        .await?;
        let rollout = setup.says("one", "RecordUnavailable").await?;
        ensure!(history::condition(&rollout, "Stalled").0 == "True", "{}", rollout.data["status"]);
        ensure!(setup.admitted(3).await?.is_empty() && setup.admitted(2).await? == admitted);

        // By the command that it says, by somebody who may.
        let ready = rollout.data["status"]["conditions"].as_array().into_iter().flatten();
        let ready = ready.into_iter().find(|it| it["type"] == "Ready").context("no Ready")?;
        let (_, command) =
            ready["message"].as_str().and_then(|it| it.split_once("kubectl ")).context("no command")?;
        api.apply(include_str!("../../../deploy/rbac/override.yaml")).await?;
        let role = "--clusterrole=statusbridge-override";
        api.kubectl(&["create", "rolebinding", "openers", "-n", "default", role, "--user=opener"]).await?;
        let command: Vec<&str> = ["--as", "opener"].into_iter().chain(command.split(' ')).collect();
        eventually(SOON, "the right is in force", async || api.kubectl(&command).await.map(drop)).await?;
        setup.admits(3, 6).await.map(drop)
    })
    .await
}

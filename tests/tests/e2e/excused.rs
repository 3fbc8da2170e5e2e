//! Clusters that are excused: by their ClusterProfile or by the FleetPackage, and no longer than they are.

use crate::e2e::profiles::{profile, profile_kind};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use statusbridge_tests::*;

const INVENTORY: &str = "inventory";
const MAINTENANCE: &str = "example.com/maintenance";

async fn hub_with(rig: &Rig, etcd: &Etcd, backend: &str) -> Result<Hub> {
    let config = rig.dir().join("config.yaml");
    let excused = json!([{"label": {"key": MAINTENANCE}, "reason": "in maintenance"}]);
    let text = json!({"clusterProfiles": {"namespace": INVENTORY, "excused": excused}});
    std::fs::write(&config, text.to_string())?;
    let mut options = AggregatorOptions::new(backend);
    options.more = vec!["--config".to_owned(), config.display().to_string()];
    Hub::start_with(rig, etcd, options).await
}

/// Three clusters, of which the last has failed.
async fn one_of_three_fails(rig: &Rig) -> Result<(FakeFleet, Prometheus, Etcd, Hub)> {
    let fleet = FakeFleet::start().await?;
    for name in ["c0", "c1"] {
        fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
    }
    fleet.says("c2", APP, FakePackage::failed_at(&revision(1)));
    let job = ["c0", "c1", "c2"].iter().fold(job(), |job, name| fleet.target(job, name, &[]));
    let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
    let etcd = Etcd::start(rig).await?;
    let hub = hub_with(rig, &etcd, &prometheus.url()).await?;
    Ok((fleet, prometheus, etcd, hub))
}

async fn writes(hub: &Hub, excused: Value) -> Result<()> {
    let all = json!({"names": ["c0", "c1", "c2"]});
    let spec = json!({"revision": revision(1), "clusters": all, "detail": "All", "excused": excused});
    hub.report(APP, STALE_AFTER, spec).await
}

async fn makes_gate(hub: &Hub) -> Result<()> {
    let all = json!({"clusters": {"names": ["c0", "c1", "c2"]}});
    hub.gate("all", APP, &revision(1), all).await.map(drop)
}

/// Waits until the gate is open although `c2` has failed, for this reason.
async fn opens_without_it(hub: &Hub, why: &str) -> Result<DynamicObject> {
    let gate = hub.opens("all", SOON).await?;
    let status = &gate.data["status"];
    ensure!(status["healthy"] == "2/2" && status["clusters"]["excused"] == 1, "{status}");
    let excused = &status["excused"][0];
    ensure!(excused["clusterName"] == "c2" && excused["reason"] == why, "{status}");
    let report = hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
    let problem = &report.data["status"]["problems"][0];
    ensure!(problem["clusterName"] == "c2" && problem["state"] == "Failed", "{problem}");
    ensure!(problem["excused"] == why, "{problem}");
    Ok(gate)
}

#[tokio::test]
async fn a_label_of_a_profile_excuses_a_cluster_and_its_end_is_told_at_once() {
    run("e2e-excused-by-profile", async |rig| {
        let (fleet, _prometheus, _etcd, hub) = one_of_three_fails(rig).await?;
        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        hub.api.ensure_namespace(INVENTORY).await?;
        profile(&hub.api, INVENTORY, "c2", json!({})).await?;
        writes(&hub, json!([])).await?;
        let history = hub.history("all").await?;
        makes_gate(&hub).await?;
        hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        history.check("no cluster is excused yet", closed).await?;

        profile(&hub.api, INVENTORY, "c2", json!({MAINTENANCE: "yes"})).await?;
        opens_without_it(&hub, "in maintenance").await?;
        let row = async || -> Result<Value> {
            let slices = hub.api.kubectl(&["get", "fpkgslice", "-A", "-o", "json"]).await?;
            let slices: Value = serde_json::from_str(&slices)?;
            let rows = slices["items"].as_array().into_iter().flatten();
            let mut rows = rows.flat_map(|it| it["clusters"].as_array().into_iter().flatten());
            rows.find(|row| row["clusterName"] == "c2").cloned().context("a row of c2")
        };
        eventually(SOON, "the row says so too", async || {
            let row = row().await?;
            ensure!(row["state"] == "Failed" && row["excused"] == "in maintenance", "{row}");
            Ok(())
        })
        .await?;
        // Whatever becomes of the others decides.
        fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
        hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
        opens_without_it(&hub, "in maintenance").await?;

        profile(&hub.api, INVENTORY, "c2", json!({})).await?;
        let gate = hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        ensure!(gate.data["status"]["clusters"]["excused"] == 0, "{}", gate.data["status"]);
        hub.reports(APP, "Ready", "False", "Failed", SOON).await?;

        // All are excused: nobody is there to say that the revision works.
        for name in ["c0", "c1", "c2"] {
            profile(&hub.api, INVENTORY, name, json!({MAINTENANCE: "yes"})).await?;
        }
        hub.closes("all", "TooFewObserved", SOON).await?;
        hub.reports(APP, "Ready", "False", "TooFewObserved", SOON).await?;
        // Without profiles nobody is excused.
        let profiles = hub.api.dynamic(&profile_kind(), Some(INVENTORY)).await?;
        profiles.delete_collection(&Default::default(), &Default::default()).await?;
        hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        hub.aggregator.process().ensure_running()
    })
    .await;
}

#[tokio::test]
async fn an_excuse_ends_by_itself() {
    run("e2e-excused-until", async |rig| {
        let (_fleet, _prometheus, _etcd, hub) = one_of_three_fails(rig).await?;
        writes(&hub, json!([])).await?;
        makes_gate(&hub).await?;
        hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        let until = Timestamp::now() + SignedDuration::from_secs(45);
        let until = Timestamp::from_second(until.as_second())?;
        writes(&hub, json!([{"cluster": "c2", "reason": "a new disk", "until": until.to_string()}])).await?;
        let gate = opens_without_it(&hub, "a new disk").await?;
        ensure!(gate.data["status"]["excused"][0]["until"] == until.to_string(), "{}", gate.data["status"]);
        ensure!(Timestamp::now() < until, "the machine is too slow to see anything");

        let gate = hub.closes("all", "FailureBudgetExceeded", SOON).await?;
        let closed = gate.data["status"]["since"].as_str().context("since when")?;
        let late = closed.parse::<Timestamp>()?.duration_since(until);
        ensure!(!late.is_negative(), "it closed {late} before the end of the excuse");
        hub.reports(APP, "Ready", "False", "Failed", SOON).await?;
        Ok(())
    })
    .await;
}

//! An exporter that is killed or frozen.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use statusbridge_tests::history::condition;
use statusbridge_tests::*;

#[tokio::test]
async fn a_cluster_whose_exporter_dies_or_freezes_goes_stale_and_closes_the_gate_until_it_is_back() {
    run("e2e-exporter-silent", async |rig| {
        let world = World::start(rig, &["c1", "c2"], &[]).await?;
        world.open("wave", &revision(1)).await?;
        let exporter = &world.clusters[1].exporter;

        exporter.process().kill();
        is_noticed(&world).await?;
        exporter.process().start()?;
        exporter.wait_ready().await?;
        world.hub.opens("wave", SOON).await?;

        exporter.process().freeze()?;
        is_noticed(&world).await?;
        exporter.process().thaw()?;
        world.hub.opens("wave", SOON).await?;
        world.hub.reports(APP, "Reporting", "True", "AllReporting", SOON).await?;
        Ok(())
    })
    .await;
}

async fn is_noticed(world: &World) -> Result<()> {
    let gate = world.hub.closes("wave", "Stale", STALE_BY).await?;
    let waits = &gate.data["status"]["waitingFor"];
    ensure!(waits[0]["clusters"] == serde_json::json!(["c2"]), "{waits}");
    ensure!(gate.data["status"]["healthy"] == "1/2", "{}", gate.data["status"]);
    ensure!(condition(&gate, "OpenedOnce").0 == "True", "what was reached stays reached");
    let report = world.hub.reports(APP, "Reporting", "False", "NotReporting", SOON).await?;
    let status = &report.data["status"];
    ensure!(status["clusters"]["stale"] == 1 && status["clusters"]["healthy"] == 1, "{status}");
    let problem = &status["problems"][0];
    ensure!(problem["clusterName"] == "c2" && problem["reason"] == "ExporterSilent", "{status}");
    ensure!(problem["since"].is_string(), "{status}");
    Ok(())
}

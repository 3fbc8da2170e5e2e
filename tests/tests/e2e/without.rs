//! An exporter that leaves out what no gate needs costs seven series a package, and gates open and close all the same.

use crate::world::*;
use anyhow::ensure;
use statusbridge_tests::*;

#[tokio::test]
async fn gates_need_neither_reasons_nor_counts() {
    run("e2e-without", async |rig| {
        let world = World::start(rig, &["c1"], &["--without", "reasons,resources"]).await?;
        world.open("wave", &revision(1)).await?;
        let text = world.clusters[0].exporter.metrics().await?;
        let series = text.lines().filter(|line| line.starts_with("statusbridge_package_")).count();
        ensure!(series == 7, "{text}");
        ensure!(!text.contains("statusbridge_reason_info"), "{text}");
        world.clusters[0].fail(APP, &revision(1), "health check failed").await?;
        world.hub.closes("wave", "FailureBudgetExceeded", SOON).await.map(drop)
    })
    .await;
}

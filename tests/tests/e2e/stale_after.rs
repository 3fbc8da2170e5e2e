//! A `staleAfter` that has no room for a lost scrape.

use crate::e2e::world::*;
use anyhow::ensure;
use serde_json::json;
use statusbridge_tests::*;

#[tokio::test]
async fn a_stale_after_that_is_too_short_for_the_scrapes_is_warned_of_and_blocks_nothing() {
    run("e2e-stale-after", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, healthy_for(3600));
        let backend = Backend::prometheus(rig, &fleet, &["c1"]).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
        // Four scrapes a second apart, and three seconds of settling.
        hub.report(APP, "6s", json!({})).await?;
        hub.gate("wave", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        let report = hub.reports(APP, "Reporting", "True", "StaleAfterTooShort", SOON).await?;
        let said = report.data["status"]["conditions"].to_string();
        ensure!(
            said.contains("staleAfter 6s is short") && said.contains("(c1): 7s or more is advised"),
            "{said}"
        );
        hub.opens("wave", SOON).await?;
        hub.report(APP, "7s", json!({})).await?;
        hub.reports(APP, "Reporting", "True", "AllReporting", SOON).await.map(drop)
    })
    .await;
}

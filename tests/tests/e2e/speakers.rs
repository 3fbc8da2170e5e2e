//! An exporter that tells of other clusters counts as far as the configuration grants it, and is told apart from their own.

use super::world::*;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::*;
use std::collections::BTreeSet;

#[tokio::test]
async fn a_speaker_counts_beside_a_clusters_own_exporter_until_its_grant_is_taken_away() {
    run("speakers", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("eu-1", APP, FakePackage::healthy_at(&revision(1)));
        for cluster in ["eu-1", "eu-2"] {
            fleet.tells("hub", cluster, APP, FakePackage::healthy_at(&revision(1)));
        }
        // Nobody grants it anything.
        fleet.tells("rogue", "eu-3", APP, FakePackage::healthy_at(&revision(1)));
        let scraped = scraping(&fleet, &["eu-1", "hub", "rogue"]);
        let prometheus = Prometheus::start(rig, &scraped).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with_speaker(rig, &etcd, &prometheus.url(), SOURCE).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        let of = |names: &[&str]| json!({"clusters": {"names": names}});
        hub.gate("granted", APP, &revision(1), of(&["eu-1", "eu-2"])).await?;
        hub.gate("ungranted", APP, &revision(1), of(&["eu-3"])).await?;
        hub.opens("granted", SOON).await?;
        waits_for(&hub, "ungranted", SOON, &["eu-3"]).await?;

        // The worse of the two counts.
        fleet.tells("hub", "eu-1", APP, FakePackage::failed_at(&revision(1)));
        hub.closes("granted", "FailureBudgetExceeded", SOON).await?;
        fleet.tells("hub", "eu-1", APP, FakePackage::healthy_at(&revision(1)));
        hub.opens("granted", SOON).await?;

        let file = rig.dir().join("aggregator.yaml");
        let package = format!("{FLUX_NAMESPACE}/{APP}");
        let config = file.display().to_string();
        let args = ["history", &package, "--source", SOURCE, "--backend", &prometheus.url(), "--trust-all"];
        let args =
            [&args[..], &["--settle-delay", "1s", "--since", "10m", "--config", &config, "-o", "json"]]
                .concat();
        let has_failed = |cluster: &Value| {
            let mut operations = cluster["operations"].as_array().into_iter().flatten();
            operations.any(|operation| operation["failed"].is_object())
        };
        // A look at the past is too coarse for what has just come.
        eventually(SOON, "the history tells who tells", async || {
            let out = own_command("statusbridge", &args).await?.output().await?;
            ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let history: Value = serde_json::from_slice(&out.stdout)?;
            let clusters = history["clusters"].as_array().context("no clusters")?;
            let told: BTreeSet<_> = clusters
                .iter()
                .map(|it| (it["clusterName"].as_str(), it["reportedBy"].as_str(), has_failed(it)))
                .collect();
            let right = [
                (Some("eu-1"), None, false),
                (Some("eu-1"), Some("hub"), true),
                (Some("eu-2"), Some("hub"), false),
            ];
            ensure!(told == BTreeSet::from(right), "{history:#}");
            Ok(())
        })
        .await?;

        put(&file, "{}")?;
        waits_for(&hub, "granted", SOON, &["eu-2"]).await?;
        let log = hub.aggregator.process().log();
        ensure!(log.contains("the exporter of cluster hub is no longer believed about 2 packages"), "{log}");
        Ok(())
    })
    .await;
}

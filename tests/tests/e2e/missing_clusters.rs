//! Clusters that were meant to be there and never said a word.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_tests::*;
use std::time::Duration;

#[tokio::test]
async fn three_of_a_hundred_clusters_are_never_all_of_them() {
    run("e2e-missing-clusters", async |rig| {
        let names: Vec<String> = (0..100).map(|n| format!("c{n:02}")).collect();
        let fleet = FakeFleet::start().await?;
        for name in &names[..3] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
        }
        let mut config =
            PrometheusConfig::with_jobs([names.iter().fold(job(), |job, name| fleet.target(job, name, &[]))]);
        config.scrape_interval = Duration::from_secs(2);
        let prometheus = Prometheus::start(rig, &config).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let all = json!({"clusters": {"names": names}});
        hub.report(APP, "15s", all.clone()).await?;
        let terms = [
            ("all", json!({})),
            ("every-percent", json!({"minHealthy": "100%"})),
            ("few-are-enough", json!({"minHealthy": 3})),
            ("three-percent", json!({"minHealthy": "3%", "maxFailures": "96%"})),
        ];
        let mut histories = Vec::new();
        for (name, terms) in &terms {
            let mut spec = all.clone();
            spec.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
            histories.push(hub.history(name).await?);
            hub.gate(name, APP, &revision(1), spec).await?;
        }
        // The cluster set that follows who reports has a floor for the same reason.
        let reporting = json!({"clusters": {"reporting": {"minClusters": 100}}});
        histories.push(hub.history("who-reports").await?);
        hub.gate("who-reports", APP, &revision(1), reporting).await?;

        for (name, _) in &terms {
            let gate = eventually(SOON, "three are seen", async || {
                let gate = hub.get_gate(name).await?;
                ensure!(gate.data["status"]["healthy"] == "3/100", "{}", gate.data["status"]);
                Ok(gate)
            })
            .await?;
            ensure!(history::condition(&gate, "Open") == ("False", "Missing"), "{}", gate.data["status"]);
            ensure!(gate.data["status"]["clusters"]["missing"] == 97, "{}", gate.data["status"]);
        }
        hub.closes("who-reports", "TooFewClusters", SOON).await?;
        eventually(SOON, "the report counts the same", async || {
            let report = hub.reports(APP, "Ready", "False", "Missing", SOON).await?;
            let counts = &report.data["status"]["clusters"];
            let right = counts["total"] == 100 && counts["missing"] == 97 && counts["healthy"] == 3;
            ensure!(right, "{counts}");
            Ok(())
        })
        .await?;
        holds_for(Duration::from_secs(4), "none opens", async || all_closed(&histories).await).await?;

        // All but one: still not all.
        for name in &names[3..99] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
        }
        eventually(SOON, "ninety-nine are seen", async || {
            let gate = hub.get_gate("all").await?;
            ensure!(gate.data["status"]["healthy"] == "99/100", "{}", gate.data["status"]["healthy"]);
            Ok(())
        })
        .await?;
        for closed_still in [&histories[0], &histories[1], &histories[2], &histories[4]] {
            closed_still.check("one of a hundred is missing", closed).await?;
        }
        // What is within the budget is let pass, because somebody said so.
        hub.opens("three-percent", SOON).await?;
        fleet.says(&names[99], APP, FakePackage::healthy_at(&revision(1)));
        for name in ["all", "every-percent", "few-are-enough", "who-reports"] {
            hub.opens(name, SOON).await?;
        }
        hub.reports(APP, "Ready", "True", "HealthyAtOwnRevision", SOON).await?;

        for name in &names[3..] {
            fleet.is_silent(name);
        }
        hub.closes("all", "Stale", SOON).await?;
        let report = hub.reports(APP, "Ready", "False", "Stale", SOON).await?;
        ensure!(report.data["status"]["clusters"]["total"] == 100, "{}", report.data["status"]["clusters"]);
        Ok(())
    })
    .await;
}

async fn all_closed(histories: &[History]) -> Result<()> {
    for history in histories {
        history.check("ninety-seven of a hundred are missing", closed).await?;
    }
    Ok(())
}

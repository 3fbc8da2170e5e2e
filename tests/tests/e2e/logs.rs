//! The log tells every change of a verdict once, whoever leads and however often a write had to be tried.

use crate::e2e::world::job;
use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Status, reason and explanation of every verdict on gates that a log in JSON tells. Every line must be JSON.
fn told(log: &str) -> Result<Vec<(String, String, String)>> {
    let mut told = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if line["message"] == "verdict" && line["kind"] == "RolloutGate" {
            ensure!(line["object"] == "default/wave" && line["condition"] == "Open", "{line}");
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            told.push((text("status"), text("reason"), text("why")));
        }
    }
    Ok(told)
}

/// The changes of the verdict that the hub saw, from the first verdict on.
async fn changes(history: &History) -> Result<Vec<(String, String)>> {
    let versions = history.versions().await?;
    let verdicts = versions.iter().map(|version| version.condition("Open"));
    let mut changes: Vec<(String, String)> = verdicts
        .filter(|(status, _)| !status.is_empty())
        .map(|(status, reason)| (status.to_owned(), reason.to_owned()))
        .collect();
    changes.dedup();
    Ok(changes)
}

#[tokio::test]
async fn each_change_of_a_verdict_is_told_once_across_restarts_and_retries() {
    run("e2e-logs", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "app", FakePackage::healthy_at("r0"));
        let config = PrometheusConfig::with_jobs([fleet.target(job(), "c1", &[])]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report("app", "1m", json!({})).await?;
        let gate = json!({"clusters": {"names": ["c1"]}});
        hub.gate("wave", "app", R1, gate.clone()).await?;
        let history = hub.history("wave").await?;
        hub.closes("wave", "RevisionNeverSeen", SOON).await?;
        fleet.says("c1", "app", FakePackage::healthy_at(R1));
        hub.opens("wave", SOON).await?;

        // A restart repeats nothing.
        ensure!(hub.aggregator.process().terminate(SOON).await?.success());
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;

        // Somebody keeps changing the object, so that writes conflict and are tried again.
        let labels = async {
            let gates = hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
            for count in 0.. {
                let label = json!({"metadata": {"labels": {"count": format!("{count}")}}});
                gates.patch("wave", &PatchParams::default(), &Patch::Merge(&label)).await?;
            }
            anyhow::Ok(())
        };
        let verdicts = async {
            fleet.says("c1", "app", FakePackage::failed_at(R1));
            hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
            fleet.says("c1", "app", FakePackage::healthy_at(R1));
            hub.opens("wave", SOON).await
        };
        tokio::select! {
            ended = labels => ended?,
            verdicts = verdicts => drop(verdicts?),
        }

        let seen = changes(&history).await?;
        ensure!(seen.len() >= 4, "{seen:?}");
        let log = eventually(SOON, "the log tells what the hub saw", async || {
            let log = told(&hub.aggregator.process().log())?;
            ensure!(log.len() >= seen.len(), "{log:?}");
            Ok(log)
        })
        .await?;
        let verdicts: Vec<(String, String)> = log.iter().map(|(s, r, _)| (s.clone(), r.clone())).collect();
        ensure!(verdicts == seen, "told {verdicts:?}, happened {seen:?}");
        let why: Vec<&str> = log.iter().map(|(_, _, why)| why.as_str()).collect();
        ensure!(why.contains(&"1 of 1 cluster healthy at the revision"), "{why:?}");
        ensure!(why.iter().any(|why| why.contains("c1 (HealthCheckFailed)")), "{why:?}");

        // Another leader, for people.
        ensure!(hub.aggregator.process().terminate(SOON).await?.success());
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--log-format", "text"].map(str::to_owned).to_vec();
        let people = hub.start_replica(rig, "aggregator-text", &options, hub.api.address()).await?;
        fleet.says("c1", "app", FakePackage::failed_at(R1));
        hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        let lines = eventually(SOON, "it is told", async || {
            let log = people.process().log();
            let lines: Vec<String> = log
                .lines()
                .filter(|l| l.contains("RolloutGate") && l.contains("verdict"))
                .map(Into::into)
                .collect();
            ensure!(!lines.is_empty(), "{log}");
            Ok(lines)
        })
        .await?;
        ensure!(lines.len() == 1, "{lines:?}");
        for part in
            ["INFO", "object=default/wave", "reason=\"FailureBudgetExceeded\"", "why=\"1 cluster failed"]
        {
            ensure!(lines[0].contains(part), "{part} is missing: {}", lines[0]);
        }
        Ok(())
    })
    .await;
}

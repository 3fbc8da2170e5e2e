//! Packages that the real Flux kustomize-controller delivers, from the cluster to the hub.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use statusbridge_contract::Fingerprint;
use statusbridge_tests::*;

fn config_map(revision: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {APP}, namespace: default}}\ndata: {{revision: \"{revision}\"}}\n"
    )
}

async fn publish(flux: &Flux, cluster: &Workload, revision: &str) -> Result<()> {
    flux.publish(&cluster.api, APP, revision, &[("app.yaml", &config_map(revision))]).await
}

/// How often the Kustomization was reconciled without a change.
async fn reconciliations(cluster: &Workload) -> Result<(u64, String)> {
    let object = Flux::kustomization(&cluster.api, APP).await?;
    let total = object.data["status"]["history"][0]["totalReconciliations"].as_u64().context("no history")?;
    Ok((total, object.metadata.resource_version.unwrap_or_default()))
}

#[tokio::test]
async fn what_flux_delivers_is_counted_and_a_quiet_package_makes_no_transition() {
    run("e2e-flux", async |rig| {
        let (r1, r2) = (revision(1), revision(2));
        let world = World::start(rig, &["c1", "c2"], &[]).await?;
        let (hub, [c1, c2]) = (&world.hub, &world.clusters[..]) else { anyhow::bail!("two clusters") };
        let _controllers =
            try_join_all(world.clusters.iter().map(|c| KustomizeController::start(rig, &c.api))).await?;
        let flux = Flux::start().await?;
        let options = KustomizationOptions { interval: "2s", ..KustomizationOptions::default() };
        for cluster in &world.clusters {
            publish(&flux, cluster, &r1).await?;
            flux.kustomize(&cluster.api, APP, &options).await?;
        }
        let at = |revision: &str| {
            let mut spec = world.all();
            spec["revision"] = json!(revision);
            spec
        };
        hub.report(APP, STALE_AFTER, at(&r1)).await?;
        let report = hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        let counts = &report.data["status"]["clusters"];
        for count in ["total", "reporting", "updated", "applied", "healthy"] {
            ensure!(counts[count] == 2, "{count}: {counts}");
        }
        ensure!(
            report.data["status"]["revisions"] == json!([{"revision": r1, "applied": 2, "healthy": 2}]),
            "{}",
            report.data["status"]
        );

        // A soak longer than the interval: reconciling what has not changed does not begin it anew.
        let mut soaking = world.all();
        soaking["minSuccessTime"] = json!("8s");
        hub.gate("soak", APP, &r1, soaking).await?;
        let quiet = c1.shows(APP).await?;
        let (began, version) = reconciliations(c1).await?;
        hub.opens("soak", SOON).await?;
        let history = hub.history("soak").await?;
        eventually(SOON, "many reconciliations", async || {
            let shows = c1.shows(APP).await?;
            ensure!(shows == quiet, "now {shows:?}, it was {quiet:?}");
            let (now, _) = reconciliations(c1).await?;
            ensure!(now >= began + 8, "{} of 8", now - began);
            Ok(())
        })
        .await?;
        let shows = c1.shows(APP).await?;
        ensure!(shows == quiet, "after many reconciliations {shows:?}, before {quiet:?}");
        ensure!(reconciliations(c1).await?.1 != version, "the object was not written at all");
        history.check("a quiet package keeps its gate open", open).await?;

        // The next revision in one of the two clusters.
        publish(&flux, c1, &r2).await?;
        hub.report(APP, STALE_AFTER, at(&r2)).await?;
        let report = eventually(SOON, "r2 is counted in one cluster", async || {
            let report = hub.get_report(APP).await?;
            let counts = &report.data["status"]["clusters"];
            ensure!(counts["updated"] == 1 && counts["applied"] == 1 && counts["healthy"] == 1, "{counts}");
            Ok(report)
        })
        .await?;
        let status = &report.data["status"];
        ensure!(status["clusters"]["total"] == 2 && status["clusters"]["progressing"] == 1, "{status}");
        let before = Fingerprint::of(&r1).to_string();
        ensure!(
            status["revisions"]
                == json!([
                    {"revision": r2, "applied": 1, "healthy": 1},
                    {"revision": before, "applied": 1, "healthy": 1}
                ]),
            "{status}"
        );
        let problems = status["problems"].as_array().context("no problems")?;
        ensure!(problems.len() == 1 && problems[0]["clusterName"] == "c2", "{status}");
        ensure!(
            problems[0]["state"] == "NotUpdated" && status["lastHealthyRevision"] == json!(r1),
            "{status}"
        );
        hub.reports(APP, "Ready", "False", "NotUpdated", SOON).await?;
        hub.gate("first", APP, &r2, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.gate("both", APP, &r2, world.all()).await?;
        hub.opens("first", SOON).await?;
        hub.closes("both", "NotUpdated", SOON).await?;

        publish(&flux, c2, &r2).await?;
        hub.opens("both", SOON).await?;
        let report = hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        ensure!(report.data["status"]["lastHealthyRevision"] == json!(r2), "{}", report.data["status"]);
        let moved = c1.shows(APP).await?;
        ensure!(moved.healthy == Fingerprint::of(&r2) && moved.since > quiet.since, "{moved:?}");
        Ok(())
    })
    .await;
}

//! Somebody who may write statuses, which nobody should, claims what the aggregator has not found.

use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use statusbridge_tests::*;

use crate::attacks::full_gates::{APP, Attacked, R1};

#[tokio::test]
async fn a_forged_status_is_taken_back_and_nothing_is_built_upon_it() {
    run("attacks-forged-status", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        hub.closes("harmed", "FailureBudgetExceeded", SOON).await?;
        let clusters = json!({"names": ["harmed"]});
        hub.gate("next", APP, R1, json!({"clusters": clusters})).await?;
        hub.gate("after", APP, R1, json!({"clusters": {"names": ["other"]}, "dependsOn": [{"name": "next"}]}))
            .await?;
        hub.closes("next", "FailureBudgetExceeded", SOON).await?;
        hub.closes("after", "DependencyNotOpen", SOON).await?;
        let after = hub.history("after").await?;

        for round in 0..5 {
            let forged = ["Ready", "Open", "OpenedOnce"].map(|kind| {
                json!({"type": kind, "status": "True", "reason": "Healthy", "message": format!("believe me {round}"),
                    "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
            });
            let status = json!({"observedGeneration": 1, "conditions": forged, "waitingFor": null});
            let patch = Patch::Merge(json!({"status": status}));
            attacked.gates.patch_status("next", &PatchParams::default(), &patch).await?;
            eventually(SOON, "it is taken back", async || {
                let gate = hub.get_gate("next").await?;
                for kind in ["Ready", "Open", "OpenedOnce"] {
                    ensure!(history::condition(&gate, kind).0 == "False", "{}", gate.data["status"]);
                }
                Ok(())
            })
            .await?;
        }
        let foreign = r#"statusbridge_aggregator_foreign_statuses_total{kind="RolloutGate"}"#;
        eventually(SOON, "a metric counts them", async || {
            let count = hub.aggregator.metric(foreign).await?;
            ensure!(count >= 5.0, "{count}");
            Ok(())
        })
        .await?;
        after
            .check("what depends on it stays closed", |it| {
                ensure!(it.condition("Open").0 != "True", "it is open");
                Ok(())
            })
            .await
    })
    .await;
}

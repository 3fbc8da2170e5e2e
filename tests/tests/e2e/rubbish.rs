//! Objects whose status is not what their kind says.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::workload::delivered;
use statusbridge_tests::*;
use std::path::PathBuf;

/// Flux's CRDs, of which the Kustomization's takes anything for a status.
fn loose_crds(rig: &Rig) -> Result<Vec<PathBuf>> {
    let mut files = crds::flux()?;
    for file in &mut files {
        if !file.to_string_lossy().ends_with("_kustomizations.yaml") {
            continue;
        }
        let mut crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(&*file)?)?;
        for version in crd["spec"]["versions"].as_array_mut().context("no versions")? {
            version["schema"]["openAPIV3Schema"]["properties"]["status"] =
                json!({"x-kubernetes-preserve-unknown-fields": true, "nullable": true});
        }
        *file = rig.dir().join("loose-kustomizations.yaml");
        std::fs::write(&*file, crd.to_string())?;
    }
    Ok(files)
}

/// A healthy status with one thing wrong.
fn but(change: impl FnOnce(&mut Value)) -> Value {
    let mut status = delivered(&revision(1));
    change(&mut status);
    status
}

fn rubbish() -> Vec<(&'static str, Value)> {
    vec![
        ("status-null", Value::Null),
        ("status-text", json!("all is well")),
        ("status-number", json!(42)),
        ("status-list", json!([1, 2])),
        ("status-empty", json!({})),
        ("conditions-null", but(|s| s["conditions"] = Value::Null)),
        ("conditions-text", but(|s| s["conditions"] = json!("Ready"))),
        ("conditions-map", but(|s| s["conditions"] = json!({"Ready": "True"}))),
        ("conditions-mixed", but(|s| s["conditions"] = json!([null, 3, "Ready", [], {}]))),
        ("condition-bool", but(|s| s["conditions"][0]["status"] = json!(true))),
        ("condition-null", but(|s| s["conditions"][0]["status"] = Value::Null)),
        (
            "reason-map",
            but(|s| s["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": {}})),
        ),
        ("generation-text", but(|s| s["conditions"][0]["observedGeneration"] = json!("seven"))),
        ("attempted-number", but(|s| s["lastAttemptedRevision"] = json!(7))),
        ("applied-number", but(|s| s["lastAppliedRevision"] = json!(7))),
        ("history-text", but(|s| s["history"] = json!("none"))),
        ("applied-map", but(|s| s["lastAppliedRevision"] = json!({"revision": revision(1)}))),
    ]
}

#[tokio::test]
async fn rubbish_in_a_status_makes_its_package_unknown_and_harms_no_other() {
    run("e2e-rubbish", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&loose_crds(rig)?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &[]).await?;
        let cluster = Workload::of(api, exporter).await?;
        cluster.deliver("good", &revision(1)).await?;
        for (name, status) in rubbish() {
            cluster.create(name).await?;
            cluster.want(name, &revision(1)).await?;
            put_status(&cluster, name, &status).await?;
        }
        // Odd where nobody looks: the package is what the rest of it says.
        let odd = but(|s| (s["inventory"], s["extra"]) = (json!(3), Value::Null));
        cluster.create("odd").await?;
        cluster.want("odd", &revision(1)).await?;
        put_status(&cluster, "odd", &odd).await?;
        eventually(SOON, "each is unknown, for a reason", async || {
            let says = cluster.says().await?;
            let mut wrong = Vec::new();
            for (name, _) in rubbish() {
                let shown = says.package(SOURCE, name).with_context(|| format!("{name} is not there"))?;
                let unknown = shown.health == Health::Unknown && shown.apply != ApplyState::Applied;
                if !unknown || !shown.healthy.is_none() || shown.reason == 0 {
                    wrong.push((name, shown));
                }
            }
            ensure!(wrong.is_empty(), "{wrong:#?}");
            Ok(())
        })
        .await?;
        is_healthy(&cluster, "good", &revision(1)).await?;
        is_healthy(&cluster, "odd", &revision(1)).await?;

        // Nobody lists again and again because of it, also when the rubbish changes.
        let quiet = lists(&cluster.says().await?);
        ensure!(quiet.0 > 0.0, "lists are counted");
        for round in 2..6 {
            for (name, status) in rubbish() {
                put_status(&cluster, name, &json!({"was": status, "round": round})).await?;
            }
            cluster.deliver("good", &revision(round)).await?;
            is_healthy(&cluster, "good", &revision(round)).await?;
        }
        let says = cluster.says().await?;
        ensure!(lists(&says) == quiet, "{:?} lists and errors, {quiet:?} before", lists(&says));
        ensure!(says.source_up(SOURCE) == Some(true), "the source is up");
        cluster.exporter.process().ensure_running()?;

        // A new exporter reads the same from a list.
        let again = Exporter::start(rig, "exporter-again", cluster.api.kubeconfig(), &[]).await?;
        let again = Exposition::parse(&again.metrics().await?)?;
        ensure!(again.packages() == says.packages(), "{:?}", again.packages());
        let good = again.package(SOURCE, "good").context("good is not there")?;
        ensure!(good.healthy == Fingerprint::of(&revision(5)), "{good:?}");

        // What gets well is well.
        for (name, _) in rubbish() {
            put_status(&cluster, name, &delivered(&revision(1))).await?;
        }
        for (name, _) in rubbish() {
            is_healthy(&cluster, name, &revision(1)).await?;
        }
        Ok(())
    })
    .await;
}

/// Replaces the whole status, which a merge cannot.
async fn put_status(cluster: &Workload, name: &str, status: &Value) -> Result<()> {
    let path = format!(
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{FLUX_NAMESPACE}/kustomizations/{name}/status"
    );
    let patch = json!([{"op": "add", "path": "/status", "value": status}]);
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(serde_json::to_vec(&patch)?)?;
    cluster.api.client().request::<Value>(request).await.with_context(|| format!("{name}: {status}"))?;
    Ok(())
}

async fn is_healthy(cluster: &Workload, name: &str, revision: &str) -> Result<()> {
    eventually(SOON, &format!("{name} is healthy"), async || {
        let shows = cluster.shows(name).await?;
        ensure!(shows.healthy == Fingerprint::of(revision) && shows.reason == 0, "{shows:?}");
        Ok(())
    })
    .await
}

/// How many lists were begun, and how many watches failed.
fn lists(says: &Exposition) -> (f64, f64) {
    (says.sum("statusbridge_exporter_relists_total"), says.sum("statusbridge_exporter_watch_errors_total"))
}

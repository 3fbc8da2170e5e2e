//! What was approved is what runs, by content, followed through the stages that it goes through.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_tests::*;

const NAMESPACE: &str = "web";

fn image(digit: char) -> String {
    format!("registry.example.com/payments@sha256:{}", digit.to_string().repeat(64))
}

/// The status of a Cartographer object all of whose steps went well: one took in `first`, the next gave
/// `last`. As Cartographer writes it, with a line break behind each output, which its own digests cover.
fn went_well(kind: &str, output: &str, first: &str, last: &str) -> Value {
    let at = "2026-01-02T03:04:05Z";
    let condition = |name: &str, reason: &str| json!({"type": name, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at});
    let step = |name: &str, inputs: Value, output: &str, value: &str| {
        json!({
            "name": name, "inputs": inputs,
            "outputs": [{"name": output, "preview": format!("{value}\n"), "digest": "sha256:01", "lastTransitionTime": at}],
            "conditions": [
                condition("ResourceSubmitted", "ResourceSubmissionComplete"),
                condition("Healthy", "MatchedCondition"), condition("Ready", "Ready"),
            ],
        })
    };
    let blueprint = if kind == "Workload" { "SupplyChainReady" } else { "DeliveryReady" };
    json!({
        "observedGeneration": 1,
        "conditions": [
            condition(blueprint, "Ready"), condition("ResourcesSubmitted", "ResourceSubmissionComplete"),
            condition("ResourcesHealthy", "HealthyConditionRule"), condition("Ready", "Ready"),
        ],
        "resources": [
            step("source", json!([]), if kind == "Workload" { "revision" } else { output }, first),
            step("last", json!([{"name": "source"}]), output, last),
        ],
    })
}

/// Cartographer's objects in a cluster, whose status the test writes.
struct Cartographer {
    api: Api<DynamicObject>,
    kind: &'static str,
}

impl Cartographer {
    async fn install(cluster: &Workload, kind: &'static str) -> Result<Self> {
        cluster.api.install_crds(&crds::cartographer()?).await?;
        cluster.api.ensure_namespace(NAMESPACE).await?;
        let gvk = GroupVersionKind::gvk("carto.run", "v1alpha1", kind);
        let api = cluster.api.dynamic(&gvk, Some(NAMESPACE)).await?;
        let spec = json!({"source": {"git": {"url": "https://git.example.com/payments", "ref": {"branch": "main"}}}});
        cluster
            .api
            .apply_object(&json!({
                "apiVersion": "carto.run/v1alpha1", "kind": kind,
                "metadata": {"name": "payments", "namespace": NAMESPACE}, "spec": spec,
            }))
            .await?;
        Ok(Self { api, kind })
    }

    async fn went_well(&self, first: &str, last: &str) -> Result<()> {
        let status = Patch::Merge(json!({"status": went_well(self.kind, "image", first, last)}));
        self.api.patch_status("payments", &PatchParams::default(), &status).await?;
        Ok(())
    }
}

fn stage(report: &DynamicObject, name: &str) -> Result<Value> {
    let stages = report.data["status"]["trace"].as_array().context("no stages")?;
    stages.iter().find(|it| it["stage"] == name).cloned().with_context(|| format!("no stage {name}"))
}

#[tokio::test]
async fn an_image_is_followed_from_the_commit_in_one_cluster_to_what_runs_in_another() {
    run("e2e-provenance", async |rig| {
        let world = World::start(rig, &["build-1", "run-1"], &[]).await?;
        let (hub, [build, runs]) = (&world.hub, &world.clusters[..]) else { anyhow::bail!("two clusters") };
        let workload = Cartographer::install(build, "Workload").await?;
        let deliverable = Cartographer::install(runs, "Deliverable").await?;
        let (c1, c2, i1, i2) = (revision(1), revision(2), image('5'), image('6'));
        let report = |revision: &str| {
            json!({
                "package": {"source": "cartographer-deliverable", "namespace": NAMESPACE, "name": "payments"},
                "revision": revision, "clusters": {"names": ["run-1"]},
                "trace": [{
                    "stage": "build", "cluster": "build-1", "output": "Built",
                    "source": "cartographer-workload", "namespace": NAMESPACE, "name": "payments",
                }],
            })
        };
        let gate = json!({"clusters": {"names": ["run-1"]}, "requireStage": "build"});
        hub.report("payments", STALE_AFTER, report(&c1)).await?;
        hub.gate("production", "payments", &c1, gate.clone()).await?;

        // The image runs already, and nobody knows where it comes from.
        deliverable.went_well(&i1, &i1).await?;
        hub.closes("production", "StageNotHealthy", SOON).await?;
        hub.reports("payments", "Ready", "False", "ArtifactUnknown", SOON).await?;
        workload.went_well(&c1, &i1).await?;
        hub.opens("production", SOON).await?;
        let report_1 = hub.reports("payments", "Ready", "True", "Healthy", SOON).await?;
        let built = stage(&report_1, "build")?;
        ensure!(built["input"] == json!(Fingerprint::of(&c1).to_string()), "{built}");
        ensure!(built["output"] == "555555555555" && built["healthyAt"].is_string(), "{built}");
        ensure!(report_1.data["status"]["revisions"][0]["revision"] == json!(c1), "{:?}", report_1.data);

        // The builder takes in the next commit: what runs elsewhere still comes from the first one.
        let versions = hub.history("production").await?;
        workload.went_well(&c2, &i1).await?;
        eventually(SOON, "the build stage has moved on", async || {
            let built = stage(&hub.get_report("payments").await?, "build")?;
            ensure!(built["state"] == "Superseded" && built["output"] == "555555555555", "{built}");
            Ok(())
        })
        .await?;
        versions.check("a gate keeps open for what it was opened for", open).await?;

        // The next commit is asked for, and the builder still shows the image of the first one as healthy.
        hub.report("payments", STALE_AFTER, report(&c2)).await?;
        hub.gate("production", "payments", &c2, gate).await?;
        let closed_gate = hub.closes("production", "StageNotHealthy", SOON).await?;
        ensure!(waiting(&closed_gate).contains("was made of revision"), "{}", waiting(&closed_gate));
        let report_2 = hub.reports("payments", "Ready", "False", "ArtifactUnknown", SOON).await?;
        let built = stage(&report_2, "build")?;
        ensure!(built["before"]["revision"] == json!(c1), "what was known is kept: {built}");

        let versions = hub.history("production").await?;
        workload.went_well(&c2, &i2).await?;
        hub.closes("production", "RevisionNeverSeen", SOON).await?;
        versions.check("the image of the first commit opens nothing for the second", not_open).await?;
        deliverable.went_well(&i2, &i2).await?;
        hub.opens("production", SOON).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_wave_waits_for_the_stage_before_it_whatever_a_tag_says() {
    run("e2e-stages", async |rig| {
        let world = World::start(rig, &["staging-1", "run-1"], &[]).await?;
        let (hub, [staging, runs]) = (&world.hub, &world.clusters[..]) else { anyhow::bail!("two clusters") };
        let tagged = |tag: &str, digit: char| format!("{tag}@sha256:{}", digit.to_string().repeat(64));
        let approved = tagged("1.4.0", '5');
        hub.report(
            APP,
            STALE_AFTER,
            json!({
                "revision": approved, "clusters": {"names": ["run-1"]},
                "trace": [{
                    "stage": "staging", "cluster": "staging-1",
                    "source": "flux-kustomization", "namespace": FLUX_NAMESPACE, "name": APP,
                }],
            }),
        )
        .await?;
        hub.gate(
            "wave",
            APP,
            &approved,
            json!({"clusters": {"names": ["run-1"]}, "requireStage": "staging"}),
        )
        .await?;
        runs.deliver(APP, &approved).await?;
        // The same tag, another content.
        staging.deliver(APP, &tagged("1.4.0", '6')).await?;
        eventually(SOON, "the other content was seen in staging", async || {
            let wave = hub.closes("wave", "StageNotHealthy", SOON).await?;
            ensure!(waiting(&wave).contains("not at the revision yet: staging-1"), "{}", waiting(&wave));
            Ok(())
        })
        .await?;
        // Another tag, the same content.
        let versions = hub.history("wave").await?;
        versions.check("another content under the same tag opens nothing", not_open).await?;
        staging.deliver(APP, &tagged("latest", '5')).await?;
        hub.opens("wave", SOON).await?;
        eventually(SOON, "the report tells of it too", async || {
            let passed = stage(&hub.get_report(APP).await?, "staging")?;
            for time in ["arrivedAt", "appliedAt", "healthyAt", "asOf"] {
                ensure!(passed[time].is_string(), "{time}: {passed}");
            }
            Ok(())
        })
        .await?;
        // It turns bad where it was tried.
        staging.fail(APP, &tagged("latest", '5'), "pods crash").await?;
        hub.closes("wave", "StageNotHealthy", SOON).await?;
        staging.deliver(APP, &approved).await?;
        hub.opens("wave", SOON).await?;
        // And is heard of no more.
        staging.exporter.process().freeze()?;
        hub.closes("wave", "StageNotHealthy", STALE_BY).await?;
        Ok(())
    })
    .await;
}

//! The recipes in deploy/recipes, with those that they are for: nobody goes on before a gate is open for the
//! revision that is rolled out, nor while nobody judges it.

mod analysis;
mod argocd_waves;
mod fleets;
mod flux_waves;
mod pod;
mod rollout;
mod task;
mod verdict;

use crate::e2e::world::*;
use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_expression::{Expression, Scope};
use statusbridge_tests::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/recipes").join(name)
}

/// Fails unless the API server takes a recipe as it ships, without a field that its kinds do not have.
async fn is_accepted(api: &ApiServer, name: &str) -> Result<()> {
    let file = file(name).display().to_string();
    let how = ["apply", "--validate=strict", "--dry-run=server", "--namespace=default", "-f", &file];
    api.kubectl(&how).await.map(drop)
}

fn recipe(name: &str) -> Result<Vec<Value>> {
    let path = file(name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{}", path.display()))
}

/// A recipe with other words in the place of those that everybody has to edit, and of times that are too long for a test.
fn edited(name: &str, words: &[(&str, &str)]) -> Result<Vec<Value>> {
    let edited = recipe(name)?.into_iter().map(|object| {
        let text = words.iter().fold(object.to_string(), |text, (old, new)| text.replace(old, new));
        Ok(serde_json::from_str(&text)?)
    });
    edited.collect()
}

/// A hub with one cluster that is at the first revision.
struct One {
    fleet: FakeFleet,
    hub: Hub,
    prometheus: Prometheus,
    _etcd: Etcd,
}

impl One {
    async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, Ok).await
    }

    /// The same with other options of the aggregator.
    async fn start_with(
        rig: &Rig,
        change: impl FnOnce(AggregatorOptions) -> Result<AggregatorOptions>,
    ) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let config = PrometheusConfig::with_jobs([fleet.target(job(), "c1", &[])]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s"].map(str::to_owned).into();
        let hub = Hub::start_with(rig, &etcd, change(options)?).await?;
        let one = Self { fleet, hub, prometheus, _etcd: etcd };
        one.at(1);
        one.hub.report(APP, STALE_AFTER, json!({})).await?;
        Ok(one)
    }

    fn at(&self, number: u32) {
        self.fleet.says("c1", APP, FakePackage::healthy_at(&revision(number)));
    }
}

/// What a pipeline may do, for a service account: `deploy/rbac/wait.yaml`.
async fn wait_rights(api: &ApiServer, account: &str) -> Result<()> {
    wait_role(api).await?;
    let group = "rbac.authorization.k8s.io";
    let named = json!({"name": account, "namespace": "default"});
    api.apply_object(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named})).await?;
    api.apply_object(&json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": named,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "statusbridge-wait"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }))
    .await?;
    Ok(())
}

async fn wait_role(api: &ApiServer) -> Result<()> {
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/wait.yaml");
    api.apply(&std::fs::read_to_string(role)?).await
}

fn gate(number: u32) -> String {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"name": "wave-1", "namespace": "default"},
        "spec": {
            "fleetPackageRef": {"name": APP}, "revision": revision(number), "clusters": {"names": ["c1"]},
        },
    })
    .to_string()
}

fn second_wave(number: u32) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "second-wave", "namespace": "default"},
        "data": {"revision": revision(number)},
    })
    .to_string()
}

/// One commit that moves both waves.
async fn commit(flux: &Flux, hub: &Hub, number: u32) -> Result<()> {
    let (first, second) = (gate(number), second_wave(number));
    let files = [("waves/1/gate.yaml", first.as_str()), ("waves/2/app.yaml", second.as_str())];
    flux.publish(&hub.api, "fleet", &revision(number), &files).await
}

/// What the second wave runs, if anything.
async fn deployed(hub: &Hub) -> Result<Option<String>> {
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(hub.api.client(), "default");
    Ok(maps.get_opt("second-wave").await?.and_then(|map| map.data?.remove("revision")))
}

fn ready(object: &DynamicObject) -> (&str, &str) {
    history::condition(object, "Ready")
}

#[tokio::test]
async fn flux_goes_on_once_the_gate_is_open_and_never_while_nobody_judges_it() {
    run("e2e-recipes-flux", async |rig| {
        let one = One::start(rig).await?;
        let hub = &one.hub;
        let _controller = KustomizeController::start(rig, &hub.api).await?;
        let flux = Flux::start().await?;
        commit(&flux, hub, 2).await?;
        for mut kustomization in recipe("flux.yaml")? {
            // No source-controller runs here, and nobody waits for a minute. A health check takes half a minute
            // at least, whatever is asked for.
            kustomization["spec"]["sourceRef"]["kind"] = json!("ExternalArtifact");
            for (field, time) in [("interval", "2s"), ("retryInterval", "1s")] {
                kustomization["spec"][field] = json!(time);
            }
            hub.api.apply_object(&kustomization).await?;
        }
        let waits = async |number: u32, runs: Option<String>| {
            eventually(SOON, "the second wave waits for the first", async || {
                let first = Flux::kustomization(&hub.api, "wave-1").await?;
                let attempted = &first.data["status"]["lastAttemptedRevision"];
                ensure!(*attempted == json!(revision(number)), "attempted {attempted}");
                ensure!(ready(&first).0 != "True", "{}", first.data["status"]);
                let second = Flux::kustomization(&hub.api, "wave-2").await?;
                ensure!(ready(&second) == ("False", "DependencyNotReady"), "{}", second.data["status"]);
                Ok(())
            })
            .await?;
            let now = deployed(hub).await?;
            ensure!(now == runs, "the second wave runs {now:?}");
            Ok(())
        };
        let goes_on = async |number: u32| {
            eventually(SOON, "the second wave goes on", async || {
                let now = deployed(hub).await?;
                ensure!(now == Some(revision(number)), "it runs {now:?}");
                Ok(())
            })
            .await
        };
        waits(2, None).await?;
        one.at(2);
        hub.opens("wave-1", SOON).await?;
        goes_on(2).await?;

        // The bridge is dead, and the gate's last word was that it is open.
        hub.aggregator.process().kill();
        commit(&flux, hub, 3).await?;
        one.at(3);
        waits(3, Some(revision(2))).await?;
        hub.aggregator.process().start()?;
        goes_on(3).await
    })
    .await;
}

/// What a program answers to a question: a line of JSON each.
fn told(name: &str, question: &Value) -> Result<Value> {
    let mut child = Command::new(program(name)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    child.stdin.take().context("no stdin")?.write_all(question.to_string().as_bytes())?;
    Ok(serde_json::from_slice(&child.wait_with_output()?.stdout)?)
}

/// What Argo CD makes of an object, by the script for its kind.
fn argo_cd(scripts: &Value, object: &DynamicObject) -> Result<(String, String)> {
    let types = object.types.as_ref().context("no kind")?;
    let group = types.api_version.split('/').next().unwrap_or_default();
    let script = &scripts["data"][format!("resource.customizations.health.{group}_{}", types.kind)];
    let answer = told("argocd-lua", &json!({"script": script, "object": object}))?;
    ensure!(answer["error"].is_null(), "{answer}");
    let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    Ok((text("status"), text("message")))
}

#[test]
fn argo_cd_takes_an_application_for_healthy_only_once_it_is_synced_to_its_revision() {
    let scripts = recipe("argocd-cm.yaml").unwrap().pop().unwrap();
    let about = |revision: &str| json!({"source": {"repoURL": "https://git.example.com", "targetRevision": revision}});
    let said = |operation: Value, status: Value| {
        let mut object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "payments"},
            "spec": about("new"), "status": status,
        });
        if !operation.is_null() {
            object["operation"] = operation;
        }
        argo_cd(&scripts, &serde_json::from_value(object).unwrap()).unwrap().0
    };
    let status = |sync: &str, compared: &str, health: &str, operation: Value| {
        json!({
            "sync": {"status": sync, "comparedTo": about(compared)}, "health": {"status": health},
            "operationState": operation,
        })
    };
    let ended = |phase: &str, revision: &str, retries: u32| json!({"phase": phase, "retryCount": retries, "syncResult": about(revision)});
    let good = || ended("Succeeded", "new", 0);
    for (status, health) in [
        (json!({}), "Progressing"),
        (json!({"health": {"status": "Healthy"}}), "Progressing"),
        (status("Synced", "new", "Healthy", good()), "Healthy"),
        // A commit that changes nothing needs no operation.
        (status("Synced", "new", "Healthy", ended("Succeeded", "old", 0)), "Healthy"),
        (status("Synced", "new", "Healthy", ended("Failed", "old", 5)), "Healthy"),
        (status("Synced", "new", "Degraded", good()), "Degraded"),
        (status("Synced", "new", "Progressing", good()), "Progressing"),
        (status("Synced", "new", "Missing", good()), "Missing"),
        // What Argo CD found at the revision before.
        (status("Synced", "old", "Healthy", ended("Succeeded", "old", 0)), "Progressing"),
        (status("Synced", "old", "Healthy", good()), "Progressing"),
        (status("OutOfSync", "new", "Healthy", good()), "Progressing"),
        (status("Unknown", "new", "Healthy", good()), "Progressing"),
        (status("OutOfSync", "new", "Healthy", ended("Running", "new", 0)), "Progressing"),
        (status("OutOfSync", "new", "Healthy", ended("Failed", "old", 5)), "Progressing"),
        // The sync to the new revision is refused.
        (status("OutOfSync", "new", "Healthy", ended("Running", "new", 1)), "Degraded"),
        (status("OutOfSync", "new", "Healthy", ended("Failed", "new", 5)), "Degraded"),
        (status("OutOfSync", "old", "Healthy", ended("Error", "new", 0)), "Degraded"),
    ] {
        assert_eq!(said(json!(null), status.clone()), health, "{status}");
    }
    let status = status("Synced", "new", "Healthy", good());
    assert_eq!(said(json!({"sync": {}}), status), "Progressing", "an operation has begun");
}

/// Whether Crossplane takes an object for ready.
fn crossplane(query: &Expression, object: &DynamicObject) -> Result<bool> {
    let object = serde_json::to_value(object)?;
    let mut scope = Scope::with_steps(100_000);
    scope.bind("object", &object);
    Ok(query.truth(&mut scope)?)
}

#[tokio::test]
async fn argo_cd_and_crossplane_take_a_gate_for_ready_only_while_it_is_open_for_its_spec() {
    run("e2e-recipes-ready", async |rig| {
        let one = One::start(rig).await?;
        let hub = &one.hub;
        let scripts = recipe("argocd-cm.yaml")?.pop().context("no ConfigMap")?;
        let objects = recipe("crossplane.yaml")?;
        let query = objects[0]["spec"]["readiness"]["celQuery"].as_str().context("no query")?;
        let query = Expression::compile("celQuery", query, &["object"]).map_err(anyhow::Error::msg)?;
        let said = |object: &DynamicObject| -> Result<(String, bool)> {
            Ok((argo_cd(&scripts, object)?.0, crossplane(&query, object)?))
        };
        let says = |object: &DynamicObject, status: &str| -> Result<()> {
            let said = said(object)?;
            ensure!(
                said == (status.to_owned(), status == "Healthy"),
                "{said:?} of {}",
                object.data["status"]
            );
            Ok(())
        };
        let at = |number: u32, more: Value| {
            let mut spec = json!({"clusters": {"names": ["c1"]}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            async move { hub.gate("wave-1", APP, &revision(number), spec).await }
        };

        // Nobody judges.
        hub.aggregator.process().kill();
        says(&at(2, json!({})).await?, "Progressing")?;
        hub.aggregator.process().start()?;
        says(&hub.closes("wave-1", "RevisionNeverSeen", SOON).await?, "Progressing")?;
        one.at(2);
        says(&hub.opens("wave-1", SOON).await?, "Healthy")?;
        let report = hub.reports(APP, "Ready", "True", "HealthyAtOwnRevision", SOON).await?;
        ensure!(argo_cd(&scripts, &report)?.0 == "Healthy", "{}", report.data["status"]);

        // Open for what it was before.
        hub.aggregator.process().kill();
        let changed = at(3, json!({})).await?;
        ensure!(history::condition(&changed, "Open").0 == "True", "{}", changed.data["status"]);
        says(&changed, "Progressing")?;
        hub.aggregator.process().start()?;

        one.fleet.says("c1", APP, FakePackage::failed_at(&revision(3)));
        let stalled = hub.closes("wave-1", "FailureBudgetExceeded", SOON).await?;
        let (status, message) = argo_cd(&scripts, &stalled)?;
        ensure!(status == "Degraded" && message.contains("c1"), "{status}: {message}");
        ensure!(!crossplane(&query, &stalled)?, "{}", stalled.data["status"]);
        let report = hub.reports(APP, "Ready", "False", "Failed", SOON).await?;
        ensure!(argo_cd(&scripts, &report)?.0 == "Degraded", "{}", report.data["status"]);
        Ok(())
    })
    .await;
}

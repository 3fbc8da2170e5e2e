//! From a package revision that Porch published to a gate over the clusters where Config Sync delivers it, by the
//! lines in docs/presets/porch.md.

use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;

const SOURCE: &str = "configsync";
const REPO: &str = "https://example.com/fleet.git";
const V1: &str = "1111111111111111111111111111111111111111";
const V2: &str = "2222222222222222222222222222222222222222";

/// The shell code in the document: a function, and how to call it.
fn recipe() -> Result<[String; 2]> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/presets/porch.md");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    let blocks: Vec<String> = blocks.collect();
    blocks.try_into().map_err(|found| anyhow::anyhow!("two blocks of shell code are expected: {found:?}"))
}

/// Runs shell code in the hub.
async fn shell(hub: &ApiServer, code: &str) -> Result<Output> {
    let kubectl = program("kubectl")?;
    let directory = kubectl.parent().context("kubectl lies nowhere")?;
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", code]).env("PATH", path).env("KUBECONFIG", hub.kubeconfig());
    // A discovery cache would outlive this server on the same port.
    command.env("KUBECACHEDIR", hub.process().rig().subdir("kubectl-cache")?);
    command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("running sh")
}

/// Writes an object and its status.
async fn write(api: &ApiServer, object: &Value) -> Result<()> {
    let stored = api.apply_object(object).await?;
    let (types, name) = (stored.types.context("no kind")?, stored.metadata.name.context("no name")?);
    let client =
        api.dynamic(&GroupVersionKind::try_from(&types)?, stored.metadata.namespace.as_deref()).await?;
    let status = Patch::Merge(json!({"status": object["status"]}));
    client.patch_status(&name, &PatchParams::default(), &status).await?;
    Ok(())
}

fn package_revision(commit: &str) -> Value {
    json!({
        "apiVersion": "porch.kpt.dev/v1alpha2", "kind": "PackageRevision",
        "metadata": {"name": "web-v2", "namespace": "porch"},
        "spec": {
            "packageName": "web", "repository": "fleet", "workspaceName": "v2", "lifecycle": "Published",
            "source": {"init": {"description": "the web"}},
        },
        "status": {
            "observedGeneration": 1, "revision": 2, "publishedBy": "somebody",
            "selfLock": {
                "type": "git",
                "git": {"repo": REPO, "directory": "web", "ref": "web/v2", "commit": commit},
            },
        },
    })
}

fn synced(commit: &str) -> [Value; 2] {
    let metadata = json!({"name": "web", "namespace": "config-management-system"});
    let stage = json!({"commit": commit, "errorSummary": {"totalCount": 0}});
    let root_sync = json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync", "metadata": metadata,
        "spec": {
            "sourceType": "git", "git": {"repo": REPO, "revision": "web/v2", "dir": "web", "auth": "none"},
        },
        "status": {
            "observedGeneration": 1, "lastSyncedCommit": commit,
            "source": stage, "rendering": stage, "sync": stage,
            "conditions": [
                {"type": "Reconciling", "status": "False"},
                {"type": "Stalled", "status": "False"},
                {"type": "Syncing", "status": "False", "reason": "Sync", "commit": commit, "errorSummary": {"totalCount": 0}},
            ],
        },
    });
    let front = json!({"group": "apps", "kind": "Deployment", "namespace": "web", "name": "front"});
    let mut status = front.clone();
    status["status"] = json!("Current");
    status["sourceHash"] = json!(commit[..7]);
    let group = json!({
        "apiVersion": "kpt.dev/v1alpha1", "kind": "ResourceGroup", "metadata": metadata,
        "spec": {"resources": [front]},
        "status": {"observedGeneration": 1, "resourceStatuses": [status]},
    });
    [root_sync, group]
}

#[tokio::test]
async fn a_published_package_revision_opens_a_gate_where_its_commit_is_healthy() {
    run("porch", async |rig| {
        let [function, call] = recipe()?;
        let etcd = Etcd::start(rig).await?;
        let cluster = ApiServer::start(rig, &etcd, "eu-1").await?;
        cluster.install_crds(&crds::configsync()?).await?;
        cluster.ensure_namespace("config-management-system").await?;
        let exporter = Exporter::start(rig, "exporter", cluster.kubeconfig(), &["--presets", SOURCE]).await?;
        let job = ScrapeJob::new("statusbridge").target(exporter.address(), &[("cluster", "eu-1")]);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.api.install_crds(&crds::porch()?).await?;
        hub.api.ensure_namespace("porch").await?;
        for object in synced(V1) {
            write(&cluster, &object).await?;
        }

        // What is not published, or not what the RootSync delivers, has no commit.
        let wrong = [
            ("/spec/lifecycle", json!("Proposed")),
            ("/spec/lifecycle", json!("DeletionProposed")),
            ("/status/observedGeneration", json!(0)),
            ("/status/selfLock/git/repo", json!("https://example.com/other.git")),
            ("/status/selfLock/git/directory", json!("web/other")),
            ("/status/selfLock/git/commit", json!("2222222")),
            ("/status/selfLock/git/commit", json!(null)),
            ("/status/selfLock", json!(null)),
        ];
        let whole = format!("{function}\n{call}");
        let refused = async |what: &str| -> Result<()> {
            let out = shell(&hub.api, &whole).await?;
            ensure!(!out.status.success() && out.stdout.is_empty(), "{what}: {out:?}");
            ensure!(hub.get_gate("web-wave-1").await.is_err(), "{what}: there is a gate");
            Ok(())
        };
        refused("no package revision").await?;
        for (field, value) in wrong {
            let mut revision = package_revision(V2);
            *revision.pointer_mut(field).with_context(|| format!("there is no {field}"))? = value;
            write(&hub.api, &revision).await?;
            refused(field).await?;
            hub.api.kubectl(&["delete", "packagerevision", "web-v2", "-n", "porch"]).await?;
        }

        write(&hub.api, &package_revision(V2)).await?;
        let out = shell(&hub.api, &whole).await?;
        ensure!(out.status.success(), "{out:?}");
        let gate = hub.get_gate("web-wave-1").await?;
        ensure!(gate.data["spec"]["revision"] == V2, "{}", gate.data);
        hub.closes("web-wave-1", "RevisionNeverSeen", SOON).await?;

        // The exporter's revision is the package revision's.
        for object in synced(V2) {
            write(&cluster, &object).await?;
        }
        eventually(SOON, "the exporter shows the commit", async || {
            let shown = Exposition::parse(&exporter.metrics().await?)?.package(SOURCE, "web");
            let shown = shown.context("nothing is said of it")?;
            let commit = Fingerprint::of(V2);
            ensure!([shown.desired, shown.applied, shown.healthy] == [commit; 3], "{shown:?}");
            Ok(())
        })
        .await?;
        hub.opens("web-wave-1", SOON).await?;
        hub.reports("web", "Ready", "True", "Healthy", SOON).await?;
        Ok(())
    })
    .await;
}

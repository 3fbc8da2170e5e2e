//! Sources whose kinds are found at run time, and source files that change, against a real API server.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::{
    api::{DeleteParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_tests::{
    ApiServer, Etcd, Exporter, Flux, Rig, Rollout, SOON, deployment_manifest, eventually,
    exposition::Exposition, put_inventory, revision_manifest, run,
};

const GOOD: [(&str, &str, &str, &str); 2] =
    [("", "ConfigMap", "web", "good"), ("apps", "Deployment", "web", "front")];

/// A revision of the package, and the Deployment that is to run it.
async fn revision(api: &ApiServer, revision: &str) -> Result<()> {
    api.apply(&revision_manifest("web", "good", revision)).await?;
    let image = format!("front:{revision}");
    api.apply(&deployment_manifest("front", &image).replace("namespace: default", "namespace: web")).await
}

#[tokio::test]
async fn leaves_are_looked_at_with_the_rights_that_were_given_and_no_others() {
    run("sources-leaves", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.install_crds(&[crds_of("kpt")?]).await?;
        api.ensure_namespace("web").await?;
        let presets = ["--presets", "kpt-resourcegroup"];
        let known = ["--watched-resource", "deployments.apps,configmaps"];
        let kubeconfig = Exporter::grant(&api, &[&presets[..], &known].concat()).await?;
        let rollout = async |state| Flux::set_deployment(&api, "web", "front", state).await;
        revision(&api, "r1").await?;
        rollout(Rollout::Ready).await?;
        put_inventory(&api, "good", &GOOD).await?;
        put_inventory(&api, "blind", &[("", "Service", "web", "front")]).await?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &presets).await?;

        let good = async |expected: (&str, &str), healthy: &str| {
            eventually(SOON, &format!("good is {expected:?}"), async || {
                let shown =
                    exporter.says().await?.package("kpt-resourcegroup", "good").context("not shown")?;
                let state = (shown.apply.name(), shown.health.name());
                ensure!(state == expected && shown.healthy == Fingerprint::of(healthy), "{shown:?}");
                Ok(())
            })
            .await
        };
        good(("Applied", "Current"), "r1").await?;
        let shown = exporter.says().await?.package("kpt-resourcegroup", "blind").context("not shown")?;
        ensure!((shown.apply.name(), shown.health.name()) == ("Applied", "Unknown"), "{shown:?}");
        let text = exporter.metrics().await?;
        ensure!(text.contains("reason=\"ResourcesForbidden\""), "{text}");
        ensure!(text.contains("statusbridge_source_up{package_source=\"kpt-resourcegroup\"} 1"), "{text}");
        let log = exporter.process().log();
        ensure!(
            log.contains("may not get, list and watch Service"),
            "the log does not say what is missing: {log}"
        );

        // A new revision, and a Deployment that takes its time, fails, and recovers.
        revision(&api, "r2").await?;
        good(("Applying", "InProgress"), "").await?;
        put_inventory(&api, "good", &GOOD).await?;
        touch(&api, "good").await?;
        good(("Applied", "InProgress"), "").await?;
        rollout(Rollout::Failed).await?;
        good(("Applied", "Failed"), "").await?;
        rollout(Rollout::Ready).await?;
        good(("Applied", "Current"), "r2").await?;

        // Somebody grants what was missing.
        api.apply_object(
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front", "namespace": "web"},
            "spec": {"ports": [{"port": 80}]}}),
        )
        .await?;
        Exporter::grant(&api, &[&presets[..], &known, &["--watched-resource", "services"]].concat()).await?;
        eventually(SOON, "blind is seen", async || {
            let shown = exporter.says().await?.package("kpt-resourcegroup", "blind").context("not shown")?;
            ensure!(shown.health.name() == "Current", "{shown:?}");
            Ok(())
        })
        .await
    })
    .await;
}

/// Writes the ResourceGroup once more, as the end of an apply does.
async fn touch(api: &ApiServer, name: &str) -> Result<()> {
    let groups =
        api.dynamic(&GroupVersionKind::gvk("kpt.dev", "v1alpha1", "ResourceGroup"), Some("web")).await?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"applied": "again"}}}));
    groups.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn crds_of(system: &str) -> Result<std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(system);
    let mut files = std::fs::read_dir(&directory)?;
    let first = files.next().with_context(|| format!("{} is empty", directory.display()))??;
    Ok(first.path())
}

/// A definition of a kind that is in a category, as composite resources are.
fn definition(plural: &str, kind: &str, category: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
                "categories": [category]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

fn of_kind(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name, "namespace": "web"},
        "revision": "r1"})
}

const BY_CATEGORY: &str = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: by-category
spec:
  categories: [things]
  identity:
    nameExpression: object.?kind.orValue('').lowerAscii() + '/' + object.metadata.name
  revisions:
    desiredExpression: object.?revision
    appliedExpression: object.?revision
  apply: [{state: Applied}]
  health: [{state: Current}]
  samples: [{object: {metadata: {name: a}, revision: r1}}]
";

#[tokio::test]
async fn kinds_of_a_category_come_and_go() {
    run("sources-category", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.ensure_namespace("web").await?;
        let file = rig.dir().join("source.yaml");
        std::fs::write(&file, BY_CATEGORY)?;
        let file = file.display().to_string();
        let args = ["--presets", "", "--sources", &file, "--discovery-interval", "1s"];
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &args).await?;
        ensure!(exporter.says().await?.source_up("by-category").is_none(), "there is no such kind yet");

        let shows = async |expected: &[&str]| {
            eventually(SOON, &format!("{expected:?} are shown"), async || {
                let said = exporter.says().await?;
                let mut packages = said.packages();
                packages.sort();
                ensure!(packages == expected, "{packages:?}");
                ensure!(said.source_up("by-category") == Some(true));
                Ok(())
            })
            .await
        };
        api.apply_object(&definition("doors", "Door", "things")).await?;
        api.apply_object(&definition("others", "Other", "none-of-them")).await?;
        api.apply_object(&of_kind("Door", "a")).await?;
        api.apply_object(&of_kind("Other", "a")).await?;
        shows(&["door/a"]).await?;
        // Another kind has objects of the same name.
        api.apply_object(&definition("walls", "Wall", "things")).await?;
        api.apply_object(&of_kind("Wall", "a")).await?;
        shows(&["door/a", "wall/a"]).await?;
        let definitions = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions = api.dynamic(&definitions, None).await?;
        definitions.delete("doors.example.org", &DeleteParams::default()).await?;
        shows(&["wall/a"]).await
    })
    .await;
}

/// What a kubelet does to a mounted ConfigMap: a new directory, and a symbolic link that is put in the old one's place.
fn mount(directory: &Path, version: u32, text: &str) -> Result<()> {
    let data = directory.join(format!("..version-{version}"));
    std::fs::create_dir_all(&data)?;
    std::fs::write(data.join("source.yaml"), text)?;
    let link = directory.join("..data_tmp");
    std::os::unix::fs::symlink(&data, &link)?;
    std::fs::rename(&link, directory.join("..data"))?;
    let file = directory.join("source.yaml");
    if !file.exists() {
        std::os::unix::fs::symlink("..data/source.yaml", &file)?;
    }
    Ok(())
}

#[tokio::test]
async fn source_files_are_followed_and_a_bad_version_changes_nothing() {
    run("sources-reload", async |rig: &Rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.ensure_namespace("web").await?;
        let source = |name: &str, state: &str| {
            format!(
                "apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {{name: {name}}}
spec:
  kinds: [{{group: '', kind: ConfigMap, versions: [v1], selector: package}}]
  apply: [{{state: {state}}}]
  health: [{{state: Current}}]
  samples: [{{object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}}}]
"
            )
        };
        let directory = rig.subdir("mounted")?;
        mount(&directory, 1, &source("maps", "Applied"))?;
        api.apply_object(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "web", "labels": {"package": ""}}}))
            .await?;
        let args = ["--presets", "", "--sources", &directory.display().to_string()];
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &args).await?;
        let shows = async |source: &str, apply: &str, good: u8| {
            eventually(SOON, &format!("{source} says {apply}"), async || {
                let text = exporter.metrics().await?;
                let shown = Exposition::parse(&text)?.package(source, "a").context("not shown")?;
                ensure!(shown.apply.name() == apply, "{shown:?}");
                let reloaded = format!("statusbridge_exporter_sources_last_reload_successful {good}\n");
                ensure!(text.contains(&reloaded), "{text}");
                Ok(())
            })
            .await
        };
        shows("maps", "Applied", 1).await?;
        mount(&directory, 2, &source("maps", "Pending"))?;
        shows("maps", "Pending", 1).await?;
        mount(&directory, 3, &source("maps", "Pending").replace("Current", "Splendid"))?;
        shows("maps", "Pending", 0).await?;
        let log = exporter.process().log();
        ensure!(log.contains("health[0].state") && log.contains("`Splendid` is none of"), "{log}");
        mount(&directory, 4, &source("cards", "Applied"))?;
        shows("cards", "Applied", 1).await?;
        ensure!(exporter.says().await?.source_up("maps").is_none(), "it is no longer there");
        Ok(())
    })
    .await;
}

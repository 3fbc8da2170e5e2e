//! CRD files: the upstream ones in `tests/crds` (see PROVENANCE.md there) and our own in `deploy/crds`.

use crate::{ApiServer, eventually};
use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::core::GroupVersionKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Every CRD that kustomize-controller and the Flux sources need.
///
/// # Errors
/// When the directory cannot be read.
pub fn flux() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/flux"))
}

/// Config Sync's RootSync, RepoSync and ResourceGroup.
///
/// # Errors
/// When the directory cannot be read.
pub fn configsync() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/configsync"))
}

/// FleetPackage and RolloutGate.
///
/// # Errors
/// When the directory cannot be read.
pub fn own() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("deploy/crds"))
}

fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "no YAML file lies in {}", dir.display());
    files.sort();
    Ok(files)
}

/// The documents of a YAML text; empty ones are left out.
pub(crate) fn documents(yaml: &str) -> Result<Vec<serde_json::Value>> {
    let all: Vec<serde_json::Value> = serde_saphyr::from_multiple(yaml).context("not YAML")?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
}

/// Applies the CRDs and waits until each is Established and its kind can be listed.
pub(crate) async fn install(api: &ApiServer, files: &[PathBuf]) -> Result<()> {
    let mut made = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        for document in documents(&text)? {
            let object = api.apply_object(&document).await.with_context(|| file.display().to_string())?;
            made.push(object.metadata.name.unwrap_or_default());
        }
    }
    let crds = Api::<CustomResourceDefinition>::all(api.client());
    for name in made {
        eventually(Duration::from_secs(60), &format!("the CRD {name} is served"), async || {
            let crd = crds.get(&name).await?;
            let conditions = crd.status.and_then(|s| s.conditions).unwrap_or_default();
            ensure!(
                conditions.iter().any(|c| c.type_ == "Established" && c.status == "True"),
                "its conditions are {conditions:?}"
            );
            for version in crd.spec.versions.iter().filter(|v| v.served) {
                let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
                // A fresh kind is answered 404 or 429 for a moment.
                api.dynamic(&kind, None).await?.list(&ListParams::default().limit(1)).await?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

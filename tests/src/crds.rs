//! CRD files: the upstream ones in `tests/crds`, `tests/monitoring-crds` and `tests/consumer-crds` (see PROVENANCE.md
//! there) and our own in `deploy/crds`.

use crate::{ApiServer, SOON, eventually};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An API server that gets all of them at once serves the last ones late.
const AT_ONCE: usize = 8;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Flux's Kustomizations, HelmReleases and sources.
///
/// # Errors
/// When the directory cannot be read.
pub fn flux() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/flux"))
}

/// Argo CD's Application.
///
/// # Errors
/// When the directory cannot be read.
pub fn argocd() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/argocd"))
}

/// Config Sync's RootSync, RepoSync and ResourceGroup.
///
/// # Errors
/// When the directory cannot be read.
pub fn configsync() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/configsync"))
}

/// Porch's PackageRevision.
///
/// # Errors
/// When the directory cannot be read.
pub fn porch() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/porch"))
}

/// kpt's ResourceGroup.
///
/// # Errors
/// When the directory cannot be read.
pub fn kpt() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/kpt"))
}

/// ClusterProfile.
///
/// # Errors
/// When the directory cannot be read.
pub fn cluster_inventory() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/cluster-inventory"))
}

/// FleetPackage, FleetPackageSlice and RolloutGate.
///
/// # Errors
/// When the directory cannot be read.
pub fn own() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("deploy/crds"))
}

/// Cartographer's Workload and Deliverable, and what it runs things with.
///
/// # Errors
/// When the directory cannot be read.
pub fn cartographer() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/cartographer"))
}

/// KUDO's Instance, Operator and OperatorVersion.
///
/// # Errors
/// When the directory cannot be read.
pub fn kudo() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/crds/kudo"))
}

/// Crossplane's Provider and DeploymentRuntimeConfig.
///
/// # Errors
/// When the directory cannot be read.
pub fn crossplane_runtimes() -> Result<Vec<PathBuf>> {
    let mut files = yaml_files(&repository().join("tests/runtime-crds"))?;
    files.push(repository().join("tests/crds/crossplane/pkg.crossplane.io_providers.yaml"));
    Ok(files)
}

/// The monitors of prometheus-operator and of the VictoriaMetrics operator.
///
/// # Errors
/// When the directory cannot be read.
pub fn monitoring() -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/monitoring-crds"))
}

/// Those of a tool that waits for gates or verdicts, by its name in `tests/consumer-crds`: `argo-cd`, `argo-rollouts`, `flagger`,
/// `gitops-promoter`, `kargo`, `kubefleet`, `open-cluster-management`, `tekton`.
///
/// # Errors
/// When the directory cannot be read.
pub fn consumer(name: &str) -> Result<Vec<PathBuf>> {
    yaml_files(&repository().join("tests/consumer-crds").join(name))
}

/// Argo CD's Application, ApplicationSet and AppProject.
///
/// # Errors
/// When a directory cannot be read.
pub fn argo_cd() -> Result<Vec<PathBuf>> {
    let mut files = yaml_files(&repository().join("tests/crds/argocd"))?;
    files.append(&mut consumer("argo-cd")?);
    Ok(files)
}

/// Open Cluster Management's ManifestWork, ManagedCluster and those of placements.
///
/// # Errors
/// When a directory cannot be read.
pub fn open_cluster_management() -> Result<Vec<PathBuf>> {
    let mut files = yaml_files(&repository().join("tests/crds/open-cluster-management"))?;
    files.append(&mut consumer("open-cluster-management")?);
    Ok(files)
}

/// Every CRD in `tests/crds` by its name, in sets that one API server can have: a CRD that several files define
/// (versions or channels of one project, two projects) is another one in each set.
///
/// # Errors
/// When a file cannot be read.
pub fn upstream() -> Result<Vec<Vec<Value>>> {
    let root = repository().join("tests/crds");
    let mut by_name = BTreeMap::<String, Vec<Value>>::new();
    let mut systems = std::fs::read_dir(&root)
        .with_context(|| format!("reading {}", root.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    systems.sort();
    for file in systems.iter().filter(|path| path.is_dir()).map(|path| yaml_files(path)) {
        for file in file? {
            for crd in
                documents(&std::fs::read_to_string(&file)?).with_context(|| file.display().to_string())?
            {
                let name = crd["metadata"]["name"].as_str().context("a CRD without a name")?;
                by_name.entry(name.to_owned()).or_default().push(crd);
            }
        }
    }
    let sets = by_name.values().map(Vec::len).max().unwrap_or_default();
    let of_set =
        |set: usize| by_name.values().filter_map(|all| all.get(set).or(all.last()).cloned()).collect();
    Ok((0..sets).map(of_set).collect())
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
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).context("not YAML")?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
}

/// Applies the CRDs and waits until each is Established and its kind can be listed.
pub(crate) async fn install(api: &ApiServer, files: &[PathBuf]) -> Result<()> {
    install_definitions(api, &definitions(files)?).await
}

/// The CRDs in these files.
///
/// # Errors
/// When a file cannot be read.
pub fn definitions(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut crds = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        crds.extend(documents(&text).with_context(|| file.display().to_string())?);
    }
    Ok(crds)
}

/// The same for CRDs that were read already.
///
/// # Errors
/// When the API server refuses one or does not serve it in time.
pub async fn install_definitions(api: &ApiServer, crds: &[Value]) -> Result<()> {
    let install = async |crd| {
        let made = api.apply_object(crd).await?;
        is_served(api, made.metadata.name.unwrap_or_default()).await
    };
    stream::iter(crds).map(install).buffer_unordered(AT_ONCE).try_collect().await
}

async fn is_served(api: &ApiServer, name: String) -> Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(api.client());
    eventually(SOON, &format!("the CRD {name} is served"), async || {
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
    .await
}

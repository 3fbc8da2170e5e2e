//! What `deploy/` ships, on a real API server: charts, kustomize bases, policies.

mod accepted;
mod by_hand;
mod getting_started;
mod kind;
mod kudo;
mod lifecycle;
mod memory;
mod monitoring;
mod openshift;
mod other_clusters;
mod pods;
mod rights;
mod runs;
mod stand_ins;
mod version;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::{ApiServer, crds, program};
use std::path::{Path, PathBuf};

/// The namespace that everything is installed into.
const NAMESPACE: &str = "statusbridge-system";

/// A file or directory of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The two charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chart {
    Exporter,
    Aggregator,
}

impl Chart {
    const ALL: [Self; 2] = [Self::Exporter, Self::Aggregator];

    fn name(self) -> &'static str {
        match self {
            Self::Exporter => "statusbridge-exporter",
            Self::Aggregator => "statusbridge-aggregator",
        }
    }

    fn dir(self) -> PathBuf {
        repository("deploy/charts").join(self.name())
    }

    /// The files of values that it is tried with.
    fn values(self) -> Result<Vec<PathBuf>> {
        let files = std::fs::read_dir(self.dir().join("ci"))?.map(|entry| Ok(entry?.path()));
        let mut files = files.collect::<Result<Vec<_>>>()?;
        files.sort();
        ensure!(files.len() >= 4, "only {} files of values", files.len());
        Ok(files)
    }

    /// Its manifests; `more` are further arguments of `helm template`.
    async fn render(self, namespace: &str, more: &[&str]) -> Result<Vec<Value>> {
        let dir = self.dir();
        let mut args = vec!["template", self.name(), dir.to_str().unwrap(), "--namespace", namespace];
        args.extend(more);
        crds::documents(&helm(&args).await?)
    }
}

/// What helm prints.
async fn helm(args: &[&str]) -> Result<String> {
    let out =
        tokio::process::Command::new(program("helm")?).args(args).output().await.context("running helm")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "helm {}: {said}", args.join(" "));
    ensure!(said.is_empty(), "helm {} warns: {said}", args.join(" "));
    Ok(String::from_utf8(out.stdout)?)
}

/// The objects of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// The one object of a kind whose name ends like this.
fn the<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let mut found =
        of_kind(objects, kind).filter(|o| o["metadata"]["name"].as_str().is_some_and(|n| n.ends_with(name)));
    let object = found.next().with_context(|| format!("there is no {kind} {name}"))?;
    ensure!(found.next().is_none(), "there are two of {kind} {name}");
    Ok(object)
}

/// Makes a namespace in which only pods that meet Pod Security's `restricted` are admitted.
async fn restricted_namespace(api: &ApiServer, name: &str) -> Result<()> {
    let level = "restricted";
    let labels = json!({
        "pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
        "pod-security.kubernetes.io/audit": level,
    });
    let metadata = json!({"name": name, "labels": labels});
    api.apply_object(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await.map(drop)
}

/// The name of a file without directory and ending.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

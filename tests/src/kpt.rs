//! Packages that the real kpt applies: `kpt live`.

use crate::{ApiServer, Rig, deployment_manifest, program};
use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// kpt, applying to one API server as administrator.
#[derive(Debug)]
pub struct Kpt {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kpt {
    /// For an API server.
    ///
    /// # Errors
    /// When the program was not built yet.
    pub fn new(rig: &Rig, api: &ApiServer) -> Result<Self> {
        let home = rig.subdir(&format!("kpt-{}", api.name()))?;
        Ok(Self { program: program("kpt-live")?, kubeconfig: api.kubeconfig().to_owned(), home })
    }

    /// A new package: a directory with these files (name and content) and a Kptfile.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn package(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        let dir = self.home.join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let kptfile = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {{name: {name}}}\n");
        for (file, content) in files.iter().chain([&("Kptfile", kptfile.as_str())]) {
            std::fs::write(dir.join(file), content).with_context(|| format!("writing {file}"))?;
        }
        Ok(dir)
    }

    /// `install-resource-group`: the CRD of the inventories.
    ///
    /// # Errors
    /// When kpt fails.
    pub async fn install_resource_group(&self) -> Result<()> {
        self.succeed(["install-resource-group"]).await
    }

    /// `init`: says in the package which ResourceGroup is to hold its inventory.
    ///
    /// # Errors
    /// When kpt fails.
    pub async fn init(&self, package: &Path, namespace: &str, name: &str) -> Result<()> {
        let package = package.as_os_str();
        let to = ["--namespace", namespace, "--name", name].map(OsStr::new);
        self.succeed([OsStr::new("init"), package].into_iter().chain(to)).await
    }

    /// `apply`, with further arguments such as `--reconcile-timeout=2s`. An object that is refused or does not
    /// become ready is a failure of kpt.
    ///
    /// # Errors
    /// When kpt cannot be run.
    pub async fn apply(&self, package: &Path, more: &[&str]) -> Result<Output> {
        let more = more.iter().map(OsStr::new);
        self.command([OsStr::new("apply"), package.as_os_str()].into_iter().chain(more))
            .output()
            .await
            .context("running kpt live apply")
    }

    /// `apply`, with something that happens once kpt waits for the object of this name.
    ///
    /// # Errors
    /// When kpt cannot be run or never waits for it, and when what happens fails.
    pub async fn apply_while(
        &self,
        package: &Path,
        more: &[&str],
        waits_for: &str,
        happens: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<ExitStatus> {
        let more = more.iter().map(OsStr::new);
        let args = [OsStr::new("apply"), package.as_os_str()].into_iter().chain(more);
        let mut running =
            self.command(args).stderr(Stdio::null()).spawn().context("starting kpt live apply")?;
        let mut said = BufReader::new(running.stdout.take().context("no output")?).lines();
        let waits = format!("{waits_for} reconcile pending");
        let mut happens = Some(happens);
        while let Some(line) = said.next_line().await? {
            if line.contains(&waits)
                && let Some(happens) = happens.take()
            {
                happens().await?;
            }
        }
        ensure!(happens.is_none(), "kpt never waited for {waits_for}");
        running.wait().await.context("waiting for kpt live apply")
    }

    /// A `kpt live` command, to be started. It is killed when it is dropped.
    pub fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            // Its discovery cache lies there.
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn succeed(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
        let out = self.command(args).output().await.context("running kpt live")?;
        ensure!(
            out.status.success(),
            "kpt live: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        Ok(())
    }
}

/// A package with an inventory: a Deployment called `front`, in the namespace `default`, and what a test adds.
#[derive(Debug)]
pub struct KptPackage {
    kpt: Kpt,
    name: String,
    dir: PathBuf,
}

impl KptPackage {
    /// Makes an empty one, whose inventory is the ResourceGroup with its name in the namespace of its name.
    ///
    /// # Errors
    /// When kpt fails.
    pub async fn new(rig: &Rig, api: &ApiServer, name: &str) -> Result<Self> {
        let kpt = Kpt::new(rig, api)?;
        kpt.install_resource_group().await?;
        api.ensure_namespace(name).await?;
        let dir = kpt.package(name, &[])?;
        kpt.init(&dir, name, name).await?;
        Ok(Self { kpt, name: name.to_owned(), dir })
    }

    /// The kpt that applies it.
    pub fn kpt(&self) -> &Kpt {
        &self.kpt
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, file: &str, content: &str) -> Result<()> {
        std::fs::write(self.dir.join(file), content).with_context(|| format!("writing {file}"))
    }

    /// Makes it this revision: a ConfigMap that says so and a Deployment that runs it.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn revision(&self, revision: &str) -> Result<()> {
        self.write("revision.yaml", &revision_manifest(&self.name, &self.name, revision))?;
        self.write("front.yaml", &deployment_manifest("front", &format!("example.com/front:{revision}")))
    }

    /// Applies it and expects kpt's own verdict.
    ///
    /// # Errors
    /// When kpt says something else.
    pub async fn apply(&self, more: &[&str], succeeds: bool) -> Result<()> {
        let out = self.kpt.apply(&self.dir, more).await?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success() == succeeds, "kpt live apply ended with {}: {said}", out.status);
        Ok(())
    }

    /// The same, with something that happens once kpt waits for the Deployment.
    ///
    /// # Errors
    /// When kpt says something else or never waits, and when what happens fails.
    pub async fn apply_while(
        &self,
        more: &[&str],
        succeeds: bool,
        happens: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let status = self.kpt.apply_while(&self.dir, more, "front", happens).await?;
        ensure!(status.success() == succeeds, "kpt live apply ended with {status}");
        Ok(())
    }
}

/// Writes a ResourceGroup in the namespace `web` as kpt leaves it after an apply in which all went well: of objects by
/// group, kind, namespace and name.
///
/// # Errors
/// When the API server refuses.
pub async fn put_inventory(api: &ApiServer, name: &str, objects: &[(&str, &str, &str, &str)]) -> Result<()> {
    let entries = |more: Value| -> Vec<Value> {
        let entry = |(group, kind, namespace, name): &(&str, &str, &str, &str)| {
            let mut entry = json!({"group": group, "kind": kind, "namespace": namespace, "name": name});
            let (fields, more) = (entry.as_object_mut(), more.as_object().cloned());
            fields.into_iter().zip(more).for_each(|(fields, more)| fields.extend(more));
            entry
        };
        objects.iter().map(entry).collect()
    };
    let (version, kind) = ("v1alpha1", "ResourceGroup");
    let stored = api
        .apply_object(&json!({
            "apiVersion": format!("kpt.dev/{version}"), "kind": kind,
            "metadata": {"name": name, "namespace": "web", "labels": {"cli-utils.sigs.k8s.io/inventory-id": name}},
            "spec": {"resources": entries(json!({}))},
        }))
        .await?;
    let outcome = json!({
        "status": "Unknown", "strategy": "Apply", "actuation": "Succeeded", "reconcile": "Succeeded",
    });
    let status =
        json!({"observedGeneration": stored.metadata.generation, "resourceStatuses": entries(outcome)});
    let groups = api.dynamic(&GroupVersionKind::gvk("kpt.dev", version, kind), Some("web")).await?;
    let patch = Patch::Merge(json!({ "status": status }));
    groups.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The ConfigMap that names a package's revision: called as the package's ResourceGroup, and in its namespace.
pub fn revision_manifest(namespace: &str, name: &str, revision: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}, \
         labels: {{statusbridge.dev/revision: \"\"}}}}\ndata: {{revision: {revision}}}\n"
    )
}

/// A ConfigMap in the namespace `default`, for packages. An API server refuses keys with a slash.
pub fn config_map_manifest(name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{{key}: {value}}}\n"
    )
}

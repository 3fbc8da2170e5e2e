//! Packages that the real kpt applies: `kpt live`.

use crate::{ApiServer, Rig, program};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
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

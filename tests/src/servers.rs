//! Where the servers' programs are.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of a server's program: `kube-apiserver`, `kubectl`, `etcd`, `etcd-old`, `prometheus`, `promtool`,
/// `thanos`, `mimir`, `victoria-metrics`, `vmagent`, `vminsert`, `vmselect`, `vmstorage`, `otel-collector`,
/// `kustomize-controller`, `source-controller`, `registry`, `flux`, `kpt-live`, `kstatus`, `argocd`, `argocd-lua`, `promotion-steps`,
/// `rollouts-controller`, `flux-operator`, `kubefleet-updaterun`, `ocm-placement`, `ocm-work`, `changelog-client`, `helm`, `kube-state-metrics`,
/// `kubeconform`.
///
/// # Errors
/// When it was not built yet; the message says how.
pub fn program(name: &str) -> Result<PathBuf> {
    static PATHS: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    let paths = match PATHS.get() {
        Some(paths) => paths,
        None => {
            let found = installed()?;
            PATHS.get_or_init(|| found)
        }
    };
    let path = paths.get(name).with_context(|| format!("no server program is called {name}"))?;
    if !path.exists() {
        bail!(
            "{name} is not built yet ({} is missing): `make servers` builds what `make test` runs, `make long` and \
             `make bench-servers` what they run",
            path.display()
        );
    }
    Ok(path.clone())
}

fn installed() -> Result<BTreeMap<String, PathBuf>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/install.sh");
    let out = Command::new(&script)
        .arg("--print")
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(out.status.success(), "install.sh --print: {}", String::from_utf8_lossy(&out.stderr));
    let lines = String::from_utf8(out.stdout).context("install.sh --print")?;
    Ok(lines.lines().filter_map(|l| l.split_once('=')).map(|(n, p)| (n.to_owned(), p.into())).collect())
}

/// A client for the servers of the rig: never through a proxy, never waiting for ever. None of them speaks TLS with a
/// certificate of the world's, and reading those takes longer than most answers.
pub(crate) fn http() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(std::time::Duration::from_secs(10))
        .build()
        .context("building the HTTP client")
}

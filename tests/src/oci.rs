//! An OCI registry, and Flux's source-controller, which follows its tags.

use crate::{ApiServer, FLUX_NAMESPACE, Port, Process, Rig, crds, program};
use anyhow::{Result, ensure};

/// The registry of the distribution project, with its files in the rig's directory.
#[derive(Debug)]
pub struct Registry {
    port: Port,
    process: Process,
}

impl Registry {
    /// Starts one that is empty.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig) -> Result<Self> {
        let port = Port::reserve()?;
        let (dir, config) = (rig.subdir("registry")?, rig.dir().join("registry.yaml"));
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: {}}}\n",
            dir.display(),
            port.address()
        );
        std::fs::write(&config, text)?;
        let args = ["serve".to_owned(), config.display().to_string()];
        let process = Process::spawn(
            rig,
            "registry",
            &program("registry")?,
            args,
            [("OTEL_TRACES_EXPORTER", "none".into())],
        )?;
        let it = Self { port, process };
        let url = format!("http://{}/v2/", it.port.address());
        it.process.ready(async || answers(&url).await).await?;
        Ok(it)
    }

    /// URL of a repository, as Flux writes it.
    pub fn repository(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.port.address())
    }
}

async fn answers(url: &str) -> Result<()> {
    let answer = crate::servers::http()?.get(url).send().await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    Ok(())
}

/// source-controller, reconciling in one API server.
#[derive(Debug)]
pub struct SourceController {
    _process: Process,
    _ports: [Port; 3],
}

impl SourceController {
    /// Installs Flux's CRDs and starts the controller.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig, api: &ApiServer) -> Result<Self> {
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let (metrics, health, storage) = (Port::reserve()?, Port::reserve()?, Port::reserve()?);
        let name = format!("source-controller-{}", api.name());
        let dir = rig.subdir(&name)?;
        let args = [
            format!("--metrics-addr={}", metrics.address()),
            format!("--health-addr={}", health.address()),
            "--events-addr=".to_owned(),
            format!("--storage-path={}", dir.display()),
            format!("--storage-addr={}", storage.address()),
            format!("--storage-adv-addr={}", storage.address()),
            "--interval-jitter-percentage=0".to_owned(),
        ];
        let env = [
            ("RUNTIME_NAMESPACE", FLUX_NAMESPACE.into()),
            ("KUBECONFIG", api.kubeconfig().into()),
            ("TMPDIR", rig.subdir(&format!("{name}-tmp"))?.into()),
        ];
        let process = Process::spawn(rig, &name, &program("source-controller")?, args, env)?;
        let url = format!("http://{}/readyz", health.address());
        process.ready(async || answers(&url).await).await?;
        Ok(Self { _process: process, _ports: [metrics, health, storage] })
    }
}

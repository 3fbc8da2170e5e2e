//! Packages delivered by the real Flux kustomize-controller.
//!
//! No source-controller is needed: the test serves the package's files itself and says so in an ExternalArtifact.
//! No kubelet runs either, so a Deployment in the package becomes ready, or fails, when the test writes its status.

use crate::{ApiServer, FileServer, Port, Process, Rig, crds, program};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Stdio;

/// Namespace of every Flux object here.
pub const NAMESPACE: &str = "flux-system";

/// kustomize-controller, reconciling in one API server.
#[derive(Debug)]
pub struct KustomizeController {
    process: Process,
    _ports: [Port; 2],
}

impl KustomizeController {
    /// Installs Flux's CRDs and starts the controller.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig, api: &ApiServer) -> Result<Self> {
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(NAMESPACE).await?;
        let (metrics, health) = (Port::reserve()?, Port::reserve()?);
        let args = [
            "--feature-gates=ExternalArtifact=true".to_owned(),
            format!("--metrics-addr={}", metrics.address()),
            format!("--health-addr={}", health.address()),
            "--events-addr=".to_owned(),
            // What waits for another looks again soon.
            "--requeue-dependency=2s".to_owned(),
            // Intervals of a few seconds stay what they are.
            "--interval-jitter-percentage=0".to_owned(),
        ];
        let env = [
            ("RUNTIME_NAMESPACE", NAMESPACE.into()),
            ("KUBECONFIG", api.kubeconfig().into()),
            ("TMPDIR", rig.subdir(&format!("kustomize-controller-{}", api.name()))?.into()),
        ];
        let name = format!("kustomize-controller-{}", api.name());
        let process = Process::spawn(rig, &name, &program("kustomize-controller")?, args, env)?;
        let http = crate::servers::http()?;
        process
            .ready(async || {
                let answer = http.get(format!("http://{}/readyz", health.address())).send().await?;
                ensure!(answer.status().is_success(), "{}", answer.status());
                Ok(())
            })
            .await?;
        Ok(Self { process, _ports: [metrics, health] })
    }

    /// The process, to freeze or kill.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// How a Kustomization is to reconcile.
#[derive(Debug, Clone)]
pub struct KustomizationOptions {
    /// `spec.interval`, such as `10m`.
    pub interval: &'static str,
    /// `spec.timeout`: how long a health check may take.
    pub timeout: &'static str,
    /// `spec.retryInterval`.
    pub retry_interval: &'static str,
    /// `spec.wait`: whether the health of everything applied is checked.
    pub wait: bool,
    /// `spec.suspend`.
    pub suspend: bool,
}

impl Default for KustomizationOptions {
    fn default() -> Self {
        Self { interval: "10m", timeout: "1m", retry_interval: "2s", wait: true, suspend: false }
    }
}

/// What the test makes of a Deployment, in place of the controllers and nodes that do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// All replicas are available.
    Ready,
    /// The new replicas are not available yet.
    Progressing,
    /// The progress deadline has passed.
    Failed,
}

/// Serves packages to kustomize-controllers: one for any number of API servers.
#[derive(Debug)]
pub struct Flux {
    files: FileServer,
}

impl Flux {
    /// Starts the server of artifacts.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        Ok(Self { files: FileServer::start().await? })
    }

    /// Publishes `files` (path and content) as `revision` of the package `name` in a cluster: makes or updates its
    /// ExternalArtifact, for which the cluster's kustomize-controller waits.
    ///
    /// # Errors
    /// When the archive cannot be made or the API server refuses.
    pub async fn publish(
        &self,
        api: &ApiServer,
        name: &str,
        revision: &str,
        files: &[(&str, &str)],
    ) -> Result<()> {
        api.ensure_namespace(NAMESPACE).await?;
        api.apply_object(&json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "ExternalArtifact",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {},
        }))
        .await?;
        self.store(api, "ExternalArtifact", name, revision, files).await
    }

    /// Writes into the status of a source that is there, of any kind, that its artifact is now `revision` with `files`,
    /// as source-controller does.
    ///
    /// # Errors
    /// When the archive cannot be made, there is no such source, or the API server refuses.
    pub async fn store(
        &self,
        api: &ApiServer,
        kind: &str,
        name: &str,
        revision: &str,
        files: &[(&str, &str)],
    ) -> Result<()> {
        let archive = archive(api.process().rig().dir(), files).await?;
        let digest: String = Sha256::digest(&archive).iter().map(|b| format!("{b:02x}")).collect();
        let path = format!("/{}/{name}/{digest}.tar.gz", api.name());
        let size = archive.len();
        self.files.put(&path, archive);
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", kind);
        let sources = api.dynamic(&kind, Some(NAMESPACE)).await?;
        let generation = sources.get(name).await?.metadata.generation.unwrap_or(1);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut status = json!({"status": {
            "artifact": {
                "url": self.files.url(&path),
                "path": path.trim_start_matches('/'),
                "digest": format!("sha256:{digest}"),
                "revision": revision,
                "lastUpdateTime": now,
                "size": size,
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "observedGeneration": generation,
                "message": format!("stored artifact for revision {revision}"), "lastTransitionTime": now,
            }],
        }});
        if kind.kind != "ExternalArtifact" {
            status["status"]["observedGeneration"] = json!(generation);
        }
        sources
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .context("writing the artifact's status")?;
        Ok(())
    }

    /// Makes or updates the Kustomization `name` that applies the artifact of the same name.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn kustomize(&self, api: &ApiServer, name: &str, options: &KustomizationOptions) -> Result<()> {
        api.ensure_namespace(NAMESPACE).await?;
        api.apply_object(&json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "interval": options.interval,
                "timeout": options.timeout,
                "retryInterval": options.retry_interval,
                "wait": options.wait,
                "suspend": options.suspend,
                "prune": true,
                "path": "./",
                "sourceRef": {"kind": "ExternalArtifact", "name": name},
            },
        }))
        .await
        .map(drop)
    }

    /// The Kustomization as it is now.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn kustomization(api: &ApiServer, name: &str) -> Result<DynamicObject> {
        let kind = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
        Ok(api.dynamic(&kind, Some(NAMESPACE)).await?.get(name).await?)
    }

    /// Status of one of its conditions and the revision last applied, for waiting: `("True", "main@sha1:…")`.
    /// Empty where there is none.
    ///
    /// # Errors
    /// When the Kustomization does not exist.
    pub async fn state(api: &ApiServer, name: &str, condition: &str) -> Result<(String, String)> {
        let object = Self::kustomization(api, name).await?;
        let status = &object.data["status"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let found = status["conditions"]
            .as_array()
            .and_then(|all| all.iter().find(|c| c["type"] == condition))
            .map(|c| text(&c["status"]))
            .unwrap_or_default();
        Ok((found, text(&status["lastAppliedRevision"])))
    }

    /// Waits for the Deployment's newest version to be there and writes its status. The same generation is what
    /// kstatus asks for, so a status written too early would not count.
    ///
    /// # Errors
    /// When it does not exist or the API server refuses.
    pub async fn set_deployment(
        api: &ApiServer,
        namespace: &str,
        name: &str,
        rollout: Rollout,
    ) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(api.client(), namespace);
        let deployment = deployments.get(name).await?;
        let generation = deployment.metadata.generation.unwrap_or(1);
        let replicas = deployment.spec.replicas.unwrap_or(1);
        let available = if rollout == Rollout::Ready { replicas } else { 0 };
        let (progressing, reason) = match rollout {
            Rollout::Ready => ("True", "NewReplicaSetAvailable"),
            Rollout::Progressing => ("True", "ReplicaSetUpdated"),
            Rollout::Failed => ("False", "ProgressDeadlineExceeded"),
        };
        let (is_available, why) = if rollout == Rollout::Ready {
            ("True", "MinimumReplicasAvailable")
        } else {
            ("False", "MinimumReplicasUnavailable")
        };
        let status = json!({"status": {
            "observedGeneration": generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": available,
            "availableReplicas": available,
            "unavailableReplicas": replicas - available,
            "conditions": [
                {"type": "Available", "status": is_available, "reason": why},
                {"type": "Progressing", "status": progressing, "reason": reason},
            ],
        }});
        deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}

/// A Deployment in the namespace `default`, for packages.
pub fn deployment_manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         replicas: 1\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    \
         metadata: {{labels: {{app: {name}}}}}\n    spec: {{containers: [{{name: app, image: \"{image}\"}}]}}\n"
    )
}

async fn archive(dir: &Path, files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let dir = tempfile::Builder::new().prefix("artifact-").tempdir_in(dir)?;
    for (path, content) in files {
        let path = dir.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    let out = tokio::process::Command::new("tar")
        .args(["-cz", "-C"])
        .arg(dir.path())
        .arg(".")
        .stdin(Stdio::null())
        .output()
        .await
        .context("running tar")?;
    ensure!(out.status.success(), "tar: {}", String::from_utf8_lossy(&out.stderr));
    Ok(out.stdout)
}

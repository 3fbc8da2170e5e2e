//! A workload cluster with an exporter, and packages in it whose status is written in the words of
//! kustomize-controller: by the real one, or by the test where a state is to come at once.

use crate::exposition::{Exposition, Shown};
use crate::fake_fleet::SOURCE;
use crate::{ApiServer, Etcd, Exporter, FLUX_NAMESPACE, Rig, ScrapeJob, crds};
use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The cluster.
pub struct Workload {
    /// Its API server, with Flux's CRDs.
    pub api: ApiServer,
    /// The exporter that reads it as administrator.
    pub exporter: Exporter,
    kustomizations: Api<DynamicObject>,
    artifacts: Api<DynamicObject>,
}

impl Workload {
    /// Starts API server and exporter; `more` are the exporter's further arguments.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub async fn start(rig: &Rig, etcd: &Etcd, name: &str, more: &[&str]) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, name).await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let exporter = Exporter::start(rig, &format!("exporter-{name}"), api.kubeconfig(), more).await?;
        Self::of(api, exporter).await
    }

    /// Of an API server with Flux's CRDs, and an exporter.
    ///
    /// # Errors
    /// When Flux's kinds are not served.
    pub async fn of(api: ApiServer, exporter: Exporter) -> Result<Self> {
        let kustomizations = api.dynamic(&kustomization_kind(), Some(FLUX_NAMESPACE)).await?;
        let artifact = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "ExternalArtifact");
        let artifacts = api.dynamic(&artifact, Some(FLUX_NAMESPACE)).await?;
        Ok(Self { api, exporter, kustomizations, artifacts })
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        self.api.name()
    }

    /// Adds its exporter to a scrape job under the cluster's name.
    pub fn target(&self, job: ScrapeJob) -> ScrapeJob {
        job.target(self.exporter.address(), &[("cluster", self.name())])
    }

    /// The package's Kustomizations.
    pub fn kustomizations(&self) -> &Api<DynamicObject> {
        &self.kustomizations
    }

    /// What the exporter says.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn says(&self) -> Result<Exposition> {
        self.exporter.says().await
    }

    /// What the exporter says of a package.
    ///
    /// # Errors
    /// When it does not answer or does not know it.
    pub async fn shows(&self, package: &str) -> Result<Shown> {
        self.says().await?.package(SOURCE, package).with_context(|| format!("nothing is said of {package}"))
    }

    /// Makes a package without a status: a Kustomization and the ExternalArtifact that it applies.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn create(&self, package: &str) -> Result<()> {
        let metadata = json!({"name": package, "namespace": FLUX_NAMESPACE});
        let artifact = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact", "metadata": metadata, "spec": {},
        });
        let kustomization = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata,
            "spec": {
                "interval": "10m", "prune": true, "wait": true, "path": "./",
                "sourceRef": {"kind": "ExternalArtifact", "name": package},
            },
        });
        self.api.apply_object(&artifact).await?;
        self.api.apply_object(&kustomization).await?;
        Ok(())
    }

    /// Tells the cluster to run a revision: the package's source has it.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn want(&self, package: &str, revision: &str) -> Result<()> {
        let digest: String = Sha256::digest(revision).iter().map(|b| format!("{b:02x}")).collect();
        let status = json!({"status": {"artifact": {
            "url": format!("http://127.0.0.1/{digest}.tar.gz"), "path": format!("{digest}.tar.gz"),
            "digest": format!("sha256:{digest}"), "revision": revision, "lastUpdateTime": now(),
        }}});
        self.artifacts.patch_status(package, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Writes fields of the Kustomization's status.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn set_status(&self, package: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.kustomizations.patch_status(package, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The revision is wanted, applied and healthy. Makes the package if need be.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn deliver(&self, package: &str, revision: &str) -> Result<()> {
        if self.kustomizations.get_opt(package).await?.is_none() {
            self.create(package).await?;
        }
        self.want(package, revision).await?;
        self.set_status(package, delivered(revision)).await
    }

    /// The revision is wanted and applied, and its health checks failed with this text.
    ///
    /// # Errors
    /// When the API server refuses, or there is no such package.
    pub async fn fail(&self, package: &str, revision: &str, message: &str) -> Result<()> {
        self.want(package, revision).await?;
        self.set_status(package, failed(revision, message)).await
    }
}

/// The kind of the packages.
pub fn kustomization_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization")
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn status(ready: (&str, &str, &str), healthy: (&str, &str, &str), attempted: &str) -> Value {
    let condition = |kind: &str, (status, reason, message): (&str, &str, &str)| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": now(),
        })
    };
    json!({
        "conditions": [condition("Ready", ready), condition("Healthy", healthy)],
        "lastAttemptedRevision": attempted,
    })
}

/// The status of a Kustomization, not changed since it was made, that has applied a revision and found it healthy.
pub fn delivered(revision: &str) -> Value {
    let applied = format!("Applied revision: {revision}");
    let ready = ("True", "ReconciliationSucceeded", applied.as_str());
    let mut status = status(ready, ("True", "Succeeded", "Health check passed in 15ms"), revision);
    status["lastAppliedRevision"] = json!(revision);
    status["observedGeneration"] = json!(1);
    status["history"] = json!([{
        "digest": format!("sha256:{}", "0".repeat(64)), "firstReconciled": now(), "lastReconciled": now(),
        "lastReconciledDuration": "15ms", "lastReconciledStatus": "ReconciliationSucceeded",
        "totalReconciliations": 1, "metadata": {"revision": revision},
    }]);
    status
}

/// The status of one that has applied a revision whose health checks failed with this text.
pub fn failed(revision: &str, message: &str) -> Value {
    status(("False", "HealthCheckFailed", message), ("False", "HealthCheckFailed", message), revision)
}

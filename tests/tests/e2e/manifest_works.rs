//! Open Cluster Management's real work agents apply the ManifestWorks of two clusters, and one exporter beside the hub that
//! has them tells the gates of both.
//!
//! With `STATUSBRIDGE_RECORD` set to a file, the versions of the first cluster's ManifestWork and Deployment are written there.

use super::world::*;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::Path;

const PACKAGE: &str = "payments";
/// Both clusters.
const CLUSTERS: [&str; 2] = ["eu-1", "eu-2"];

/// The spec of the ManifestWorks in the documentation, at a revision. Before its Deployment the agent has some other objects to
/// apply, so that it evaluates the rules meanwhile.
fn documented(revision: &str) -> Result<Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/presets/open-cluster-management.md");
    let page = std::fs::read_to_string(page)?;
    let mut blocks = page.split("```yaml\n").filter_map(|block| block.split_once("```"));
    let (set, _) =
        blocks.find(|(block, _)| block.contains("ManifestWorkReplicaSet")).context("no example")?;
    let set: Value = serde_saphyr::from_str(&set.replace("v2", revision))?;
    let mut spec = set["spec"]["manifestWorkTemplate"].clone();
    let manifests = spec["workload"]["manifests"].as_array_mut().context("no manifests")?;
    for number in 0..8 {
        let name = format!("{PACKAGE}-{number}");
        manifests.insert(
            0,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
                "data": {"revision": revision},
            }),
        );
    }
    Ok(spec)
}

fn manifest_works() -> GroupVersionKind {
    GroupVersionKind::gvk("work.open-cluster-management.io", "v1", "ManifestWork")
}

/// Status of a condition of a ManifestWork, if it is of the present generation.
fn says<'a>(work: &'a Value, kind: &str) -> &'a str {
    let mut all = work["status"]["conditions"].as_array().into_iter().flatten();
    let of_now = |it: &&Value| it["observedGeneration"] == work["metadata"]["generation"];
    all.find(|it| it["type"] == kind).filter(of_now).and_then(|it| it["status"].as_str()).unwrap_or_default()
}

/// A hub with two clusters, an agent for each, and an exporter.
struct Managed {
    clusters: [ApiServer; 2],
    agents: [Process; 2],
    hub: Hub,
    exporter: Exporter,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl Managed {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let [first, second] = CLUSTERS;
        let (eu_1, eu_2) =
            tokio::try_join!(ApiServer::start(rig, &etcd, first), ApiServer::start(rig, &etcd, second))?;
        let clusters = [eu_1, eu_2];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job()])).await?;
        let hub = Hub::start_with_speaker(rig, &etcd, &prometheus.url(), "ocm-manifestwork").await?;
        for api in clusters.iter().chain([&hub.api]) {
            api.install_crds(&crds::open_cluster_management()?).await?;
        }
        for cluster in CLUSTERS {
            hub.api.ensure_namespace(cluster).await?;
            hub.api
                .apply_object(&json!({
                    "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                    "metadata": {"name": cluster}, "spec": {"hubAcceptsClient": true},
                }))
                .await?;
        }
        let agent = |cluster: &ApiServer| {
            let env = [("KUBECONFIG", cluster.kubeconfig().into()), ("NO_PROXY", "127.0.0.1".into())];
            let args = [cluster.name().as_ref(), hub.api.kubeconfig().as_os_str()];
            Process::spawn(rig, &format!("ocm-work-{}", cluster.name()), &program("ocm-work")?, args, env)
        };
        let agents = [agent(&clusters[0])?, agent(&clusters[1])?];
        let presets = ["--presets", "ocm-manifestwork"];
        let kubeconfig = Exporter::grant(&hub.api, &presets).await?;
        let exporter = Exporter::start(rig, "exporter-hub", &kubeconfig, &presets).await?;
        let job = job().target(exporter.address(), &[("cluster", "hub")]);
        prometheus.reload(&PrometheusConfig::with_jobs([job])).await?;
        let managed = Self { clusters, agents, hub, exporter, _prometheus: prometheus, _etcd: etcd };
        for cluster in CLUSTERS {
            managed.is_available(cluster, "True").await?;
        }
        Ok(managed)
    }

    /// Says of a cluster what Open Cluster Management's hub would, from the lease that the agent renews.
    async fn is_available(&self, cluster: &str, status: &str) -> Result<()> {
        let kind = GroupVersionKind::gvk("cluster.open-cluster-management.io", "v1", "ManagedCluster");
        let status = json!({"status": {"conditions": [{
            "type": "ManagedClusterConditionAvailable", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": jiff::Timestamp::now(),
        }]}});
        let clusters = self.hub.api.dynamic(&kind, None).await?;
        clusters.patch_status(cluster, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Gives a cluster the package at a revision.
    async fn moves(&self, cluster: &str, revision: &str) -> Result<()> {
        self.hub
            .api
            .apply_object(&json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {
                    "name": format!("{cluster}-{PACKAGE}"), "namespace": cluster,
                    "labels": {"statusbridge.dev/package": PACKAGE},
                },
                "spec": documented(revision)?,
            }))
            .await
            .map(drop)
    }

    /// Waits until Open Cluster Management calls the revision that a cluster has been given applied and available.
    async fn applies(&self, cluster: &ApiServer, revision: &str) -> Result<()> {
        let works = self.hub.api.dynamic(&manifest_works(), Some(cluster.name())).await?;
        let deployments = Api::<Deployment>::namespaced(cluster.client(), "default");
        eventually(SOON, &format!("{} has applied {revision}", cluster.name()), async || {
            let work = works.get(&format!("{}-{PACKAGE}", cluster.name())).await?;
            let work = serde_json::to_value(work)?;
            ensure!(
                ["Applied", "Available"].iter().all(|it| says(&work, it) == "True"),
                "{}",
                work["status"]
            );
            let annotations = deployments.get(PACKAGE).await?.metadata.annotations.unwrap_or_default();
            let found = annotations.get("statusbridge.dev/revision").map(String::as_str);
            ensure!(found == Some(revision), "the Deployment is at {found:?}");
            Ok(())
        })
        .await
    }

    /// Lets the Deployment do this at a revision that is there.
    async fn rolls_out(&self, cluster: &ApiServer, revision: &str, rollout: Rollout) -> Result<()> {
        self.applies(cluster, revision).await?;
        Flux::set_deployment(cluster, "default", PACKAGE, rollout).await
    }

    /// Asks for a revision, in a report and in a gate for each cluster and one for both.
    async fn wants(&self, revision: &str) -> Result<()> {
        let package = json!({"source": "ocm-manifestwork", "name": PACKAGE});
        let spec = json!({"package": package, "revision": revision, "clusters": {"names": CLUSTERS}});
        self.hub.report(PACKAGE, STALE_AFTER, spec).await?;
        for (gate, clusters) in gates() {
            self.hub.gate(gate, PACKAGE, revision, json!({"clusters": {"names": clusters}})).await?;
        }
        Ok(())
    }

    async fn all_open(&self) -> Result<()> {
        for (gate, _) in gates() {
            self.hub.opens(gate, SOON).await?;
        }
        Ok(())
    }

    async fn is_closed(&self, gate: &str) -> Result<()> {
        let found = self.hub.get_gate(gate).await?;
        ensure!(history::condition(&found, "Open").0 == "False", "{gate} is open");
        Ok(())
    }
}

/// Names of the gates, and of the clusters that each is for.
fn gates() -> [(&'static str, Vec<&'static str>); 3] {
    let [first, second] = CLUSTERS;
    [(first, vec![first]), (second, vec![second]), ("all", CLUSTERS.to_vec())]
}

/// Writes the versions of objects, a line each, in the order in which they were stored: the API servers share an etcd.
async fn save(histories: &[&History], path: &Path) -> Result<()> {
    let mut all = Vec::new();
    for history in histories {
        for mut version in history.versions().await? {
            version.object.metadata.managed_fields = None;
            let number: u64 =
                version.object.metadata.resource_version.as_deref().context("no version")?.parse()?;
            all.push((number, serde_json::to_string(&version.object)? + "\n"));
        }
    }
    all.sort();
    let lines: String = all.into_iter().map(|(_, line)| line).collect();
    std::fs::write(path, lines).with_context(|| path.display().to_string())
}

/// A rollout that Open Cluster Management calls Available from its beginning (ocm #1207, #327) opens gates once it is done.
#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn gates_over_manifest_works_open_once_the_rules_have_seen_the_new_revision_done() {
    run("e2e-manifest-works", async |rig| {
        let managed = Managed::start(rig).await?;
        let hub = &managed.hub;
        let [eu_1, eu_2] = managed.clusters.each_ref();
        let work = History::record(&hub.api, &manifest_works(), "eu-1", "eu-1-payments").await?;
        let deployments = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let deployment = History::record(eu_1, &deployments, "default", PACKAGE).await?;
        for cluster in [eu_1, eu_2] {
            managed.moves(cluster.name(), "v1").await?;
            managed.rolls_out(cluster, "v1", Rollout::Ready).await?;
        }
        managed.wants("v1").await?;
        managed.all_open().await?;

        // Both clusters get a new template. All is Available throughout, and at the new generation from the first moment.
        managed.wants("v2").await?;
        for (gate, _) in gates() {
            hub.closes(gate, "RevisionNeverSeen", SOON).await?;
        }
        let since = work.versions().await?.len();
        let too_early = [hub.history("eu-1").await?, hub.history("eu-2").await?, hub.history("all").await?];
        for cluster in [eu_1, eu_2] {
            managed.moves(cluster.name(), "v2").await?;
            managed.applies(cluster, "v2").await?;
        }
        for (gate, _) in gates() {
            hub.closes(gate, "Progressing", SOON).await?;
        }
        for version in &work.versions().await?[since..] {
            let (available, _) = version.condition("Available");
            ensure!(available == "True", "Open Cluster Management says {available:?}");
        }
        for history in &too_early {
            history
                .check("no rollout is done", |it| {
                    ensure!(!it.lets_pass(), "open");
                    Ok(())
                })
                .await?;
        }
        managed.rolls_out(eu_1, "v2", Rollout::Ready).await?;
        hub.opens("eu-1", SOON).await?;
        managed.is_closed("eu-2").await?;
        managed.is_closed("all").await?;
        managed.rolls_out(eu_2, "v2", Rollout::Ready).await?;
        managed.all_open().await?;

        // A revision fails, and is taken back.
        managed.wants("v3").await?;
        managed.moves("eu-1", "v3").await?;
        managed.rolls_out(eu_1, "v3", Rollout::Failed).await?;
        hub.closes("eu-1", "FailureBudgetExceeded", SOON).await?;
        managed.moves("eu-1", "v2").await?;
        managed.wants("v2").await?;
        managed.rolls_out(eu_1, "v2", Rollout::Ready).await?;
        managed.all_open().await?;
        if let Some(path) = std::env::var_os("STATUSBRIDGE_RECORD") {
            save(&[&work, &deployment], Path::new(&path)).await?;
        }

        // An agent dies. What it said last stays, until the hub notices.
        managed.agents[0].kill();
        managed.is_available("eu-1", "Unknown").await?;
        hub.closes("eu-1", "HealthUnknown", SOON).await?;
        hub.closes("all", "HealthUnknown", SOON).await?;
        ensure!(managed.is_closed("eu-2").await.is_err(), "closed for a cluster that is there");
        managed.moves("eu-1", "v4").await?;
        managed.is_available("eu-1", "True").await?;
        managed.wants("v4").await?;
        hub.closes("eu-1", "Progressing", SOON).await?;
        managed.agents[0].start()?;
        managed.rolls_out(eu_1, "v4", Rollout::Ready).await?;
        hub.opens("eu-1", SOON).await?;
        managed.moves("eu-2", "v4").await?;
        managed.rolls_out(eu_2, "v4", Rollout::Ready).await?;
        managed.all_open().await?;

        // Nobody speaks for the clusters any more.
        managed.exporter.process().kill();
        for (gate, _) in gates() {
            hub.closes(gate, "Stale", SOON).await?;
        }
        managed.exporter.process().start()?;
        managed.all_open().await
    })
    .await;
}

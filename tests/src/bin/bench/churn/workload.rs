//! The exporter's half: a cluster whose packages live for less than a minute, each in a namespace, with revisions,
//! reasons, error texts and resources that none had before.

use super::report::GoneInCluster;
use crate::fleet;
use crate::resources::applied;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::{ApiServer, Etcd, Exporter, Process, Rig, crds, eventually};
use std::collections::BTreeSet;
use std::time::Duration;

/// Kustomizations that come with each step, from a GitRepository of their own.
const KUSTOMIZATIONS: usize = 5;
/// Steps that they stay.
const LIFE: usize = 40;
/// Revisions that each of them is at, one after the other.
const REVISIONS: usize = 4;
/// Resources of a ResourceGroup, which comes with every second step.
const RESOURCES: usize = 4;
/// Steps after which what is new comes into a new namespace.
const NAMESPACE: usize = 10;
/// Steps between two scrapes.
const SCRAPE: usize = 10;
/// Longest time for a write, and until what was written is shown.
const PATIENCE: Duration = Duration::from_secs(60);
/// The source that reads ResourceGroups.
const GROUPS: &str = "kpt-resourcegroup";

/// The cluster, and the exporter that reads it.
pub(crate) struct Workload {
    api: ApiServer,
    exporter: Exporter,
    /// The number of the next step.
    next: usize,
    gone: GoneInCluster,
}

impl Workload {
    /// One in which as many packages are as there will be at any time.
    pub(crate) async fn start(rig: &Rig, etcd: &Etcd) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, "workload").await?;
        api.install_crds(&[crds::flux()?, crds::kpt()?].concat()).await?;
        api.ensure_namespace(fleet::REPOSITORIES).await?;
        let presets = format!("{SOURCE},{GROUPS}");
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &["--presets", &presets]).await?;
        let mut workload = Self { api, exporter, next: 0, gone: GoneInCluster::default() };
        for step in 0..LIFE {
            workload.make(step).await?;
        }
        workload.next = LIFE;
        Ok(workload)
    }

    pub(crate) fn exporter(&self) -> &Process {
        self.exporter.process()
    }

    /// What has come and gone so far.
    pub(crate) fn gone(&self) -> GoneInCluster {
        self.gone
    }

    /// Some packages come, as many go, and others move on.
    pub(crate) async fn step(&mut self) -> Result<()> {
        let now = self.next;
        let (step, age) = (LIFE / REVISIONS, |age: usize| now - age);
        let moves = (1..REVISIONS).map(|n| self.roll_out(age(n * step), n + 1));
        tokio::try_join!(
            self.make(now),
            try_join_all(moves),
            self.replace_resource(age(LIFE / 2)),
            self.remove(age(LIFE)),
        )?;
        if now.is_multiple_of(SCRAPE) {
            self.exporter.says().await?.adds_up()?;
        }
        self.next += 1;
        let gone = &mut self.gone;
        gone.packages += (KUSTOMIZATIONS + usize::from(has_group(age(LIFE)))) as u64;
        gone.namespaces = (age(LIFE) / NAMESPACE) as u64;
        gone.revisions += (REVISIONS + 2 * usize::from(has_group(age(LIFE)))) as u64;
        gone.reasons += (REVISIONS - 1) as u64;
        gone.resources += ((RESOURCES + 1) * usize::from(has_group(age(LIFE)))) as u64;
        Ok(())
    }

    /// What comes with a step.
    async fn make(&self, step: usize) -> Result<()> {
        if step.is_multiple_of(NAMESPACE) {
            self.api.ensure_namespace(&namespace(step)).await?;
        }
        self.create(&repository(), repository_object(step)).await?;
        let kustomization = kustomization();
        try_join_all(packages(step).map(|package| self.create(&kustomization, object(package)))).await?;
        if has_group(step) {
            for n in 0..RESOURCES {
                self.create(&config_map(), resource(step, n, 1)).await?;
            }
            self.create(&group(), group_object(step, 0)).await?;
            self.group_is_applied(step, 0).await?;
        }
        Ok(())
    }

    /// The packages of a step go on to a revision, at which one of them fails in a way of its own.
    async fn roll_out(&self, step: usize, revision: usize) -> Result<()> {
        let source = fleet::repository_status(step * KUSTOMIZATIONS / fleet::PER_REPOSITORY, revision);
        self.write_status(&repository(), fleet::REPOSITORIES, &repository_name(step), &source).await?;
        let one = async |(n, package): (usize, usize)| {
            let mut status = fleet::healthy_status(package, revision);
            if n == 0 {
                status = fleet::failed_status(package, revision);
                let ready = &mut status["conditions"][0];
                ready["reason"] = json!(format!("Failure{package}At{revision}"));
                ready["message"] = json!(format!("pod {}-{revision} ended", fleet::hex(40, &[package])));
            }
            let namespace = namespace(package / KUSTOMIZATIONS);
            self.write_status(&kustomization(), &namespace, &fleet::name(package), &status).await
        };
        try_join_all(packages(step).enumerate().map(one)).await.map(drop)
    }

    /// The ResourceGroup of a step, if it has one, is applied at a new revision with one resource in place of another.
    async fn replace_resource(&self, step: usize) -> Result<()> {
        if !has_group(step) {
            return Ok(());
        }
        let (namespace, revision) = (namespace(step), resource(step, 0, 2));
        let revision = json!({"data": revision["data"]});
        self.patch(&config_map(), &namespace, &group_name(step), &revision).await?;
        self.create(&config_map(), resource(step, RESOURCES, 2)).await?;
        let spec = json!({"spec": group_object(step, 1)["spec"]});
        self.patch(&group(), &namespace, &group_name(step), &spec).await?;
        self.group_is_applied(step, 1).await?;
        self.delete(&config_map(), &namespace, &resource_name(step, 1)).await
    }

    /// Everything that came with a step goes.
    async fn remove(&self, step: usize) -> Result<()> {
        let namespace = namespace(step);
        let kustomization = kustomization();
        let packages: Vec<String> = packages(step).map(fleet::name).collect();
        try_join_all(packages.iter().map(|name| self.delete(&kustomization, &namespace, name))).await?;
        self.delete(&repository(), fleet::REPOSITORIES, &repository_name(step)).await?;
        if has_group(step) {
            self.delete(&group(), &namespace, &group_name(step)).await?;
            for n in (0..=RESOURCES).filter(|n| *n != 1) {
                self.delete(&config_map(), &namespace, &resource_name(step, n)).await?;
            }
        }
        Ok(())
    }

    /// Waits until the exporter shows the packages that are there now, and no others.
    pub(crate) async fn is_shown(&self) -> Result<()> {
        let alive = self.next - LIFE..self.next;
        let names = alive.clone().flat_map(packages).map(fleet::name);
        let groups = alive.filter(|step| has_group(*step)).map(group_name);
        let there: BTreeSet<String> = names.chain(groups).collect();
        eventually(PATIENCE, "the exporter shows what is there", async || {
            let says = self.exporter.says().await?;
            says.adds_up()?;
            let shown: BTreeSet<String> = says.packages().into_iter().collect();
            let up = [SOURCE, GROUPS].map(|source| says.source_up(source));
            ensure!(up == [Some(true); 2], "its sources are up: {up:?}");
            ensure!(shown == there, "it shows {} packages of {}", shown.len(), there.len());
            Ok(())
        })
        .await
    }

    async fn create(&self, kind: &ApiResource, object: Value) -> Result<()> {
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        let (namespace, name) = (parsed.metadata.namespace.as_deref(), parsed.metadata.name.as_deref());
        let (namespace, name) = namespace.zip(name).context("neither namespace nor name")?;
        let api = api(self.api.client(), kind, namespace);
        insist(&format!("creating {} {name}", kind.kind), 409, async || {
            api.create(&PostParams::default(), &parsed).await.map(drop)
        })
        .await?;
        match object.get("status") {
            Some(status) => self.write_status(kind, namespace, name, status).await,
            None => Ok(()),
        }
    }

    async fn write_status(
        &self,
        kind: &ApiResource,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Result<()> {
        let (api, patch) = (api(self.api.client(), kind, namespace), Patch::Merge(json!({"status": status})));
        insist(&format!("writing the status of {} {name}", kind.kind), 0, async || {
            api.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
        })
        .await
    }

    async fn patch(&self, kind: &ApiResource, namespace: &str, name: &str, change: &Value) -> Result<()> {
        let (api, patch) = (api(self.api.client(), kind, namespace), Patch::Merge(change));
        insist(&format!("changing {} {name}", kind.kind), 0, async || {
            api.patch(name, &PatchParams::default(), &patch).await.map(drop)
        })
        .await
    }

    /// The last change of the spec was the `nth` after it was made.
    async fn group_is_applied(&self, step: usize, nth: usize) -> Result<()> {
        let status = group_status(step, nth);
        self.write_status(&group(), &namespace(step), &group_name(step), &status).await
    }

    async fn delete(&self, kind: &ApiResource, namespace: &str, name: &str) -> Result<()> {
        let api = api(self.api.client(), kind, namespace);
        insist(&format!("deleting {} {name}", kind.kind), 404, async || {
            api.delete(name, &DeleteParams::default()).await.map(drop)
        })
        .await
    }
}

/// Does it until it is done, which one that was tried before may have been: that is answered by this code.
async fn insist(what: &str, done: u16, attempt: impl AsyncFn() -> kube::Result<()>) -> Result<()> {
    eventually(PATIENCE, what, async || match attempt().await {
        Err(kube::Error::Api(status)) if status.code == done => Ok(()),
        other => Ok(other?),
    })
    .await
}

fn api(client: Client, kind: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, kind)
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn kustomization() -> ApiResource {
    kind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations")
}

fn repository() -> ApiResource {
    kind("source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories")
}

fn group() -> ApiResource {
    kind("kpt.dev", "v1alpha1", "ResourceGroup", "resourcegroups")
}

fn config_map() -> ApiResource {
    kind("", "v1", "ConfigMap", "configmaps")
}

fn namespace(step: usize) -> String {
    format!("team-{}", step / NAMESPACE)
}

/// Numbers of the Kustomizations that come with a step.
fn packages(step: usize) -> std::ops::Range<usize> {
    step * KUSTOMIZATIONS..(step + 1) * KUSTOMIZATIONS
}

fn object(package: usize) -> Value {
    let mut object = fleet::package(package);
    let step = package / KUSTOMIZATIONS;
    object["metadata"]["namespace"] = json!(namespace(step));
    // Nobody is there to remove it.
    object["metadata"]["finalizers"] = json!([]);
    object["spec"]["sourceRef"]["name"] = json!(repository_name(step));
    object
}

fn repository_name(step: usize) -> String {
    format!("repository-{step}")
}

fn repository_object(step: usize) -> Value {
    let mut object = fleet::repository(step * KUSTOMIZATIONS / fleet::PER_REPOSITORY);
    object["metadata"]["name"] = json!(repository_name(step));
    object
}

fn has_group(step: usize) -> bool {
    step.is_multiple_of(2)
}

fn group_name(step: usize) -> String {
    format!("group-{step}")
}

/// The first has the name of its group, as it tells the revision.
fn resource_name(step: usize, n: usize) -> String {
    if n == 0 { group_name(step) } else { format!("{}-{n}", group_name(step)) }
}

fn resource(step: usize, n: usize, revision: usize) -> Value {
    let labels = if n == 0 { json!({"statusbridge.dev/revision": ""}) } else { json!({}) };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": resource_name(step, n), "namespace": namespace(step), "labels": labels},
        "data": {"revision": fleet::hex(40, &[step, revision])},
    })
}

/// The resources of a group in its first state, or in the next.
fn resources(step: usize, nth: usize) -> Vec<Value> {
    let numbers = (0..RESOURCES).map(|n| if n == 1 && nth > 0 { RESOURCES } else { n });
    let entry = |n| {
        let name = resource_name(step, n);
        json!({"group": "", "kind": "ConfigMap", "namespace": namespace(step), "name": name})
    };
    numbers.map(entry).collect()
}

fn group_object(step: usize, nth: usize) -> Value {
    json!({
        "apiVersion": "kpt.dev/v1alpha1", "kind": "ResourceGroup",
        "metadata": {"name": group_name(step), "namespace": namespace(step),
            "labels": {"cli-utils.sigs.k8s.io/inventory-id": fleet::hex(40, &[step])}},
        "spec": {"resources": resources(step, nth)},
    })
}

fn group_status(step: usize, nth: usize) -> Value {
    applied(&resources(step, nth), nth + 1)
}

//! A tenant takes the aggregator's time for itself, so that others' gates are judged late or not at all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const SOON: Duration = Duration::from_secs(90);
/// Polls and scrapes come every second, but the machine is busy.
const SECONDS: Duration = Duration::from_secs(15);
const APP: &str = "app";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const HOG: &str = "hog";
const MANY: usize = 200;

/// As many steps as an expression may take, and then a revision.
const EXPENSIVE: &str = "object.data.list.split(',').map(a, object.data.list.split(',').exists(b, a == b + 'x')) \
                         .exists(found, found) ? '' : object.data.revision";

/// A hub whose namespace `default` has an open gate, and whose namespace `hog` belongs to somebody else.
struct Attacked {
    fleet: FakeFleet,
    hub: Hub,
    _servers: (Etcd, Prometheus),
}

impl Attacked {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, FakePackage::healthy_at(R1));
        let job = fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report(APP, "60s", json!({})).await?;
        hub.gate("victim", APP, R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("victim", SOON).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOG}});
        hub.api.apply_object(&namespace).await?;
        hub.api
            .apply_object(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {
                    "name": "statusbridge-aggregator-configmaps",
                    "labels": {"rbac.statusbridge.dev/aggregate-to-aggregator": "true"},
                },
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}],
            }))
            .await?;
        hub.api.aggregate_cluster_roles().await?;
        Ok(Self { fleet, hub, _servers: (etcd, prometheus) })
    }

    async fn config_map(&self, revision: &str) -> Result<()> {
        let list: Vec<String> = (0..180).map(|n| n.to_string()).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "versions", "namespace": HOG},
            "data": {"revision": revision, "list": list.join(",")},
        });
        self.hub.api.apply_object(&object).await.map(drop)
    }

    /// FleetPackages of the hog that read the ConfigMap.
    async fn refer(&self, expression: impl Fn(usize) -> String) -> Result<()> {
        let package = |n: usize| {
            let from = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": "versions", "expression": expression(n),
            });
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
                "metadata": {"name": format!("app-{n}"), "namespace": HOG},
                "spec": {"package": {"source": "flux-kustomization", "name": APP}, "revisionFrom": from},
            })
        };
        let packages: Vec<Value> = (0..MANY).map(package).collect();
        for some in packages.chunks(20) {
            try_join_all(some.iter().map(|package| self.hub.api.apply_object(package))).await?;
        }
        Ok(())
    }

    async fn hogs(&self) -> Result<Api<DynamicObject>> {
        self.hub.api.dynamic(&hub::kind("FleetPackage"), Some(HOG)).await
    }

    /// Changes the ConfigMap as fast as the API server takes it.
    async fn flood(&self) -> Result<JoinSet<()>> {
        let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let config_maps: Api<DynamicObject> = self.hub.api.dynamic(&kind, Some(HOG)).await?;
        let mut writers = JoinSet::new();
        for writer in 0..4 {
            let config_maps = config_maps.clone();
            writers.spawn(async move {
                for number in 0_u64.. {
                    let patch = json!({"data": {"revision": format!("r-{writer}-{number}")}});
                    // A conflict with another writer is as good.
                    let patch = Patch::Merge(&patch);
                    let _ = config_maps.patch("versions", &PatchParams::default(), &patch).await;
                    sleep(Duration::from_millis(20)).await;
                }
            });
        }
        Ok(writers)
    }

    /// Sees that the heartbeat goes on and that the victim's gate follows its cluster, again and again.
    async fn is_not_delayed(&self, rounds: u32) -> Result<()> {
        for _ in 0..rounds {
            self.fleet.says("c1", APP, FakePackage::failed_at(R1));
            self.hub.closes("victim", "FailureBudgetExceeded", SECONDS).await?;
            self.fleet.says("c1", APP, FakePackage::healthy_at(R1));
            self.hub.opens("victim", SECONDS).await?;
            self.beats(SECONDS).await?;
        }
        Ok(())
    }

    async fn beats(&self, within: Duration) -> Result<()> {
        let renewed = async || {
            let lease = self.hub.lease("statusbridge-aggregator-heartbeat").await?;
            lease.renew_time.context("it never was renewed")
        };
        let before = renewed().await?;
        eventually(within, "the heartbeat goes on", async || {
            ensure!(renewed().await? != before, "it stands still");
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn expressions_of_one_namespace_on_a_busy_object_delay_no_other() {
    run("attacks-hogs-expressions", async |rig| {
        let attacked = Attacked::start(rig).await?;
        attacked.config_map("r1").await?;
        attacked.refer(|_| EXPENSIVE.to_owned()).await?;
        let hogs = attacked.hogs().await?;
        eventually(SOON, "all are resolved", async || {
            let all = hogs.list(&Default::default()).await?;
            let resolved = all.iter().filter(|it| it.data["status"]["revision"] == "r1").count();
            ensure!(resolved == MANY, "{resolved} are");
            Ok(())
        })
        .await?;
        let writers = attacked.flood().await?;
        let pid = attacked.hub.aggregator.process().pid().context("it is gone")?;
        let (began, before) = (Instant::now(), usage::processor(pid)?);
        attacked.is_not_delayed(3).await?;
        // The same expression on the same object, however many have it.
        let used = (usage::processor(pid)? - before).as_secs_f64() / began.elapsed().as_secs_f64();
        println!("{used:.2} cores");

        // Each of them with an expression of its own: more than the namespace gets.
        attacked.refer(|n| format!("'{n}' == '' ? '' : ({EXPENSIVE})")).await?;
        attacked.is_not_delayed(3).await?;
        // What has waited for too long is known no longer, and the status says why.
        eventually(SOON, "some have waited too long", async || {
            let all = hogs.list(&Default::default()).await?;
            let why =
                all.iter().map(|it| history::condition(it, "Ready").1).find(|it| *it == "RevisionUnreadable");
            ensure!(why.is_some(), "none has");
            Ok(())
        })
        .await?;
        drop(writers);
        eventually(SOON, "all are resolved once there is time for them", async || {
            let all = hogs.list(&Default::default()).await?;
            let unresolved = all.iter().filter(|it| it.data["status"]["revision"].is_null()).count();
            ensure!(unresolved == 0, "{unresolved} are not");
            Ok(())
        })
        .await
    })
    .await;
}

//! A tenant takes the aggregator's time for itself, so that others' gates are judged late or not at all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Polls and scrapes come every second, but the machine is busy.
const SECONDS: Duration = Duration::from_secs(15);
const APP: &str = "app";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const HOG: &str = "hog";
const MANY: usize = 200;

/// Nearly as many steps as an expression may take, and then a revision.
const EXPENSIVE: &str = "yaml(object.data.list).exists(a, yaml(object.data.list).exists(b, a == b + 1000)) \
                         ? '' : object.data.revision";

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
        let list: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "versions", "namespace": HOG},
            "data": {"revision": revision, "list": format!("[{}]", list.join(","))},
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
#[ignore = "it takes minutes: make long"]
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
        eventually(2 * SOON, "all are resolved once there is time for them", async || {
            let all = hogs.list(&Default::default()).await?;
            let unresolved = all.iter().filter(|it| it.data["status"]["revision"].is_null()).count();
            ensure!(unresolved == 0, "{unresolved} are not");
            Ok(())
        })
        .await
    })
    .await;
}

/// Statuses that the aggregator may write in a second, and how many gates the hog has.
const WRITES: usize = 5;
const GATES: usize = 300;

#[tokio::test]
async fn many_gates_of_one_namespace_keep_no_status_of_another_waiting() {
    run("attacks-hogs-writes", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, FakePackage::healthy_at(R1));
        let job = fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        let writes = WRITES.to_string();
        options.more =
            ["--backend-timeout", "2s", "--writes-per-second", &writes].map(str::to_owned).to_vec();
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, "60s", json!({})).await?;
        hub.api
            .apply_object(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOG}}))
            .await?;
        // One status after another is due: each gate waits for another revision all the time.
        let gate = |n: usize, revision: usize| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"name": format!("hog-{n}"), "namespace": HOG},
                "spec": {
                    "fleetPackageRef": {"name": APP}, "revision": format!("r{revision}"),
                    "clusters": {"names": ["c1"]},
                },
            })
        };
        let write_all = async |revision: usize| -> Result<()> {
            for some in (0..GATES).collect::<Vec<_>>().chunks(20) {
                let gates: Vec<Value> = some.iter().map(|n| gate(*n, revision)).collect();
                try_join_all(gates.iter().map(|gate| hub.api.apply_object(gate))).await?;
            }
            Ok(())
        };
        let queue = async || hub.aggregator.metric("statusbridge_aggregator_pending_writes").await;
        for round in 0..3 {
            write_all(round).await?;
            eventually(SECONDS, "the hog's statuses wait", async || {
                let waiting = queue().await?;
                ensure!(waiting > (GATES / 2) as f64, "{waiting} wait");
                Ok(())
            })
            .await?;
            let name = format!("victim-{round}");
            let began = Instant::now();
            hub.gate(&name, APP, R1, json!({"clusters": {"names": ["c1"]}})).await?;
            hub.opens(&name, SECONDS).await?;
            let waiting = queue().await?;
            println!("it opened after {:?}, while {waiting} waited", began.elapsed());
            ensure!(waiting > 100.0, "only {waiting} still wait");
        }
        Ok(())
    })
    .await;
}

/// A backend that never answers a query with this in it, and everything else.
const HANGS: &str = "hangs";

/// Forwards to `backend` what asks it anything that it answers. Returns its own URL.
async fn hanging(backend: String, tasks: &mut JoinSet<()>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&backend).await else { continue };
            connections.spawn(async move {
                let (mut asks, mut is_told) = client.into_split();
                let (mut tells, mut is_asked) = server.into_split();
                let answers = tokio::spawn(async move { copy(&mut tells, &mut is_told).await });
                let mut chunk = vec![0; 1 << 16];
                while let Ok(read @ 1..) = asks.read(&mut chunk).await {
                    if String::from_utf8_lossy(&chunk[..read]).contains(HANGS) {
                        // Until the client has had enough.
                        while let Ok(1..) = asks.read(&mut chunk).await {}
                        break;
                    }
                    if is_asked.write_all(&chunk[..read]).await.is_err() {
                        break;
                    }
                }
                answers.abort();
            });
        }
    });
    Ok(url)
}

#[tokio::test]
async fn slow_checks_of_one_namespace_keep_no_others_waiting() {
    run("attacks-hogs-checks", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, FakePackage::healthy_at(R1));
        let pages = FileServer::start().await?;
        pages.put("/metrics", "errors 0\n");
        let jobs = [
            fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]),
            ScrapeJob::new("application").target(pages.address(), &[("cluster", "c1")]),
        ];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs(jobs)).await?;
        let mut tasks = JoinSet::new();
        let address = prometheus.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let mut options = AggregatorOptions::new(hanging(address, &mut tasks).await?);
        options.more = ["--backend-timeout", "60s"].map(str::to_owned).to_vec();
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.api
            .apply_object(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOG}}))
            .await?;
        let gate = |namespace: &str, name: &str, checks: Vec<String>| {
            let check = |(n, query): (usize, String)| json!({"name": format!("check-{n}"), "query": query, "max": 0, "window": "1s"});
            let checks: Vec<Value> = checks.into_iter().enumerate().map(check).collect();
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "fleetPackageRef": {"name": APP}, "revision": R1, "clusters": {"names": ["c1"]}, "checks": checks,
                },
            })
        };
        hub.report(APP, "300s", json!({})).await?;
        let mut package = serde_json::to_value(hub.get_report(APP).await?)?;
        package["metadata"] = json!({"name": APP, "namespace": HOG});
        package.as_object_mut().context("no object")?.remove("status");
        hub.api.apply_object(&package).await?;
        for n in 0..10 {
            let queries = (0..16).map(|m| format!("{HANGS}_{n}_{m}")).collect();
            hub.api.apply_object(&gate(HOG, &format!("hog-{n}"), queries)).await?;
        }
        let hogs: Api<DynamicObject> = hub.api.dynamic(&hub::kind("RolloutGate"), Some(HOG)).await?;
        eventually(SOON, "the hog's checks are asked", async || {
            for gate in hogs.list(&Default::default()).await? {
                ensure!(history::condition(&gate, "Open").1 == "CheckPending", "{}", gate.data["status"]);
            }
            Ok(())
        })
        .await?;

        // One that only the victim asks, and one that the hog asks as well.
        hub.api.apply_object(&gate(HOG, "hog-of-the-same", vec!["errors".to_owned()])).await?;
        let queries = vec!["errors".to_owned(), "sum(errors)".to_owned()];
        hub.api.apply_object(&gate("default", "victim", queries)).await?;
        for _ in 0..3 {
            hub.opens("victim", SECONDS).await?;
            pages.put("/metrics", "errors 1\n");
            hub.closes("victim", "CheckFailed", SECONDS).await?;
            pages.put("/metrics", "errors 0\n");
        }
        hub.opens("victim", SECONDS).await.map(drop)
    })
    .await;
}

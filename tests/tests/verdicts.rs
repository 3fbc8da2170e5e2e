//! From samples in a real Prometheus to verdicts in a real hub, with exporters reduced to their expositions: every
//! state of a cluster at will, and each at once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::{Digest, Fingerprint, Metric, label, sample};
use statusbridge_tests::*;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(60);
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// What one cluster says of the one package.
#[derive(Clone, Copy)]
struct Said {
    apply: u64,
    health: u64,
    desired: &'static str,
    applied: &'static str,
    healthy: &'static str,
    since: u64,
    transitions: u64,
}

impl Said {
    fn healthy(revision: &'static str) -> Self {
        Self {
            apply: 0,
            health: 0,
            desired: revision,
            applied: revision,
            healthy: revision,
            since: now(),
            transitions: 1,
        }
    }

    fn render(&self, uid: u64) -> String {
        let mut page = String::new();
        let mut digest = Digest::default();
        let mut line = |metric: Metric, labels: &[(&str, &str)], value: u64| {
            digest.add(sample::hash(metric.name(), labels, value));
            page += &sample::canonical(metric.name(), labels, value);
            page.push('\n');
        };
        let package = [
            (label::PACKAGE, "payments"),
            (label::PACKAGE_NAMESPACE, "flux-system"),
            (label::PACKAGE_SOURCE, "flux-kustomization"),
        ];
        let source = [(label::PACKAGE_SOURCE, "flux-kustomization")];
        let revision = |text: &str| Fingerprint::of(text).value();
        line(Metric::PackageApplyState, &package, self.apply);
        line(Metric::PackageHealth, &package, self.health);
        line(Metric::PackageDesiredRevision, &package, revision(self.desired));
        line(Metric::PackageAppliedRevision, &package, revision(self.applied));
        line(Metric::PackageHealthyRevision, &package, revision(self.healthy));
        line(Metric::PackageTransitionTimestamp, &package, self.since);
        line(Metric::PackageTransitions, &package, self.transitions);
        line(Metric::PackageReason, &package, 0);
        line(Metric::SourceUp, &source, 1);
        line(Metric::SourcePackages, &source, 1);
        line(Metric::ClusterUid, &[], uid);
        let digest = digest.value();
        page += &format!("{}{{{}=\"1\"}} {digest}\n", Metric::Digest.name(), label::CONTRACT);
        page += &format!("{} {}\n", Metric::RenderedTimestamp.name(), now());
        page
    }
}

struct Cluster {
    name: &'static str,
    address: SocketAddr,
    said: Arc<Mutex<Option<Said>>>,
    task: JoinHandle<()>,
}

impl Cluster {
    async fn start(name: &'static str, uid: u64, said: Said) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let said = Arc::new(Mutex::new(Some(said)));
        let shown = said.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let _ = socket.read(&mut [0; 4096]).await;
                let Some(page) = shown.lock().unwrap().map(|said| said.render(uid)) else { continue };
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
                let _ = socket
                    .write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len()).as_bytes())
                    .await;
            }
        });
        Ok(Self { name, address, said, task })
    }

    fn says(&self, change: impl FnOnce(&mut Said)) {
        let mut said = self.said.lock().unwrap();
        let mut next = said.unwrap_or(Said::healthy(R1));
        change(&mut next);
        next.since = now();
        next.transitions += 1;
        *said = Some(next);
    }

    fn is_silent(&self) {
        *self.said.lock().unwrap() = None;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A hub, a Prometheus that scrapes the clusters every second, and an aggregator with the rights that ship.
struct World {
    hub: ApiServer,
    prometheus: Prometheus,
    aggregator: Aggregator,
    _etcd: Etcd,
}

impl World {
    async fn start(rig: &Rig, clusters: &[&Cluster]) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let hub = ApiServer::start(rig, &etcd, "hub").await?;
        hub.install_crds(&crds::own()?).await?;
        hub.ensure_namespace("statusbridge-system").await?;
        let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/aggregator.yaml");
        hub.apply(&std::fs::read_to_string(rbac)?).await?;
        let account =
            hub.kubeconfig_of_service_account("statusbridge-system", "statusbridge-aggregator").await?;
        let job = clusters.iter().fold(ScrapeJob::new("statusbridge"), |job, cluster| {
            job.target(cluster.address, &[("cluster", cluster.name)])
        });
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.namespace = "statusbridge-system".to_owned();
        options.more = vec!["--backend-timeout".to_owned(), "2s".to_owned()];
        let aggregator = Aggregator::start(rig, "aggregator", &account, &options).await?;
        Ok(Self { hub, prometheus, aggregator, _etcd: etcd })
    }

    async fn package(&self, revision: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": {"name": "payments", "namespace": "default"},
            "spec": {
                "package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "payments"},
                "revision": revision, "staleAfter": "8s", "clusters": {"names": ["c1", "c2"]},
            },
        });
        self.hub.apply_object(&object).await.map(drop)
    }

    async fn gate(&self, revision: &str, more: Value) -> Result<DynamicObject> {
        let mut object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"name": "wave", "namespace": "default"},
            "spec": {"fleetPackageRef": {"name": "payments"}, "revision": revision, "clusters": {"names": ["c1", "c2"]}},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        self.hub.apply_object(&object).await
    }

    async fn objects(&self, kind: &str) -> Result<Api<DynamicObject>> {
        self.hub.dynamic(&GroupVersionKind::gvk("statusbridge.dev", "v1alpha1", kind), Some("default")).await
    }

    /// Waits until the object's condition is like this, for the present generation.
    async fn sees(&self, kind: &str, condition: &str, status: &str, reason: &str) -> Result<DynamicObject> {
        let objects = self.objects(kind).await?;
        let name = if kind == "RolloutGate" { "wave" } else { "payments" };
        eventually(SOON, &format!("{kind} has {condition}={status}, {reason}"), async || {
            let object = objects.get(name).await?;
            let found = object.data["status"]["conditions"].as_array().context("no conditions")?;
            let found = found.iter().find(|it| it["type"] == condition).context("no such condition")?;
            ensure!(found["observedGeneration"] == json!(object.metadata.generation), "of an old generation");
            ensure!(found["status"] == status && found["reason"] == reason, "{found}");
            Ok(object)
        })
        .await
    }
}

#[tokio::test]
async fn a_rollout_seen_from_the_hub() {
    run("verdicts-rollout", async |rig| {
        let (c1, c2) = (
            Cluster::start("c1", 1, Said::healthy(R1)).await?,
            Cluster::start("c2", 2, Said::healthy(R1)).await?,
        );
        let world = World::start(rig, &[&c1, &c2]).await?;
        world.package(R1).await?;
        let ready = world.sees("FleetPackage", "Ready", "True", "Healthy").await?;
        ensure!(ready.data["status"]["clusters"]["healthy"] == 2, "{}", ready.data);
        ensure!(ready.data["status"]["revisions"] == json!([{"revision": R1, "applied": 2, "healthy": 2}]));
        world.gate(R1, json!({})).await?;
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        // The next revision: whatever is known of the first counts for nothing.
        world.package(R2).await?;
        world.gate(R2, json!({"minSuccessTime": "3s"})).await?;
        let closed = world.sees("RolloutGate", "Open", "False", "RevisionNeverSeen").await?;
        let message = closed.data["status"]["waitingFor"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.ends_with("seen instead: 111111111111 in 2 clusters"), "{message}");
        world.sees("RolloutGate", "Succeeded", "False", "NotYetOpen").await?;
        world.sees("FleetPackage", "Ready", "False", "NotUpdated").await?;

        c1.says(|said| (said.apply, said.desired, said.healthy) = (1, R2, ""));
        let closed = world.sees("RolloutGate", "Open", "False", "NotUpdated").await?;
        ensure!(closed.data["status"]["waitingFor"][0]["clusters"] == json!(["c2"]), "{}", closed.data);
        c1.says(|said| *said = Said::healthy(R2));
        c2.says(|said| (said.apply, said.desired, said.healthy) = (6, R2, ""));
        let failed = world.sees("RolloutGate", "Stalled", "True", "FailureBudgetExceeded").await?;
        ensure!(failed.data["status"]["clusters"]["failed"] == 1, "{}", failed.data);
        c2.says(|said| *said = Said::healthy(R2));
        world.sees("RolloutGate", "Open", "False", "Soaking").await?;
        let open = world.sees("RolloutGate", "Open", "True", "Healthy").await?;
        ensure!(open.data["status"].get("waitingFor").is_none(), "{}", open.data);
        world.hub.kubectl(&["wait", "--for=condition=Succeeded", "rolloutgate/wave", "--timeout=5s"]).await?;
        let ready = world.sees("FleetPackage", "Ready", "True", "Healthy").await?;
        ensure!(ready.data["status"]["lastHealthyRevision"] == R2);

        // Quiet: nothing is written but asOf, and that seldom.
        let gates = world.objects("RolloutGate").await?;
        let before = gates.get("wave").await?;
        holds_for(Duration::from_secs(5), "the gate's status rests", async || {
            let mut gate = gates.get("wave").await?;
            gate.data["status"]["asOf"] = before.data["status"]["asOf"].clone();
            ensure!(gate.data == before.data, "{} was {}", gate.data, before.data);
            Ok(())
        })
        .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn whatever_goes_silent_closes_the_gate_and_recovers() {
    run("verdicts-silence", async |rig| {
        let (c1, c2) = (
            Cluster::start("c1", 1, Said::healthy(R1)).await?,
            Cluster::start("c2", 2, Said::healthy(R1)).await?,
        );
        let world = World::start(rig, &[&c1, &c2]).await?;
        world.package(R1).await?;
        world.gate(R1, json!({})).await?;
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        c2.is_silent();
        let closed = world.sees("RolloutGate", "Open", "False", "Stale").await?;
        ensure!(closed.data["status"]["waitingFor"][0]["clusters"] == json!(["c2"]), "{}", closed.data);
        world.sees("RolloutGate", "Succeeded", "True", "Healthy").await?;
        world.sees("FleetPackage", "Reporting", "False", "NotReporting").await?;
        c2.says(|_| {});
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        world.prometheus.process().freeze()?;
        let closed = world.sees("RolloutGate", "Open", "False", "Stale").await?;
        let message = closed.data["status"]["waitingFor"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("the metrics backend does not answer"), "{message}");
        world.prometheus.process().thaw()?;
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        // A restart with a backend that is gone: the gate lives on its last evidence, then closes.
        world.aggregator.process().kill();
        world.prometheus.stop();
        world.aggregator.process().start()?;
        world.sees("RolloutGate", "Open", "False", "BackendUnavailable").await?;
        world.prometheus.start_again().await?;
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;
        Ok(())
    })
    .await;
}

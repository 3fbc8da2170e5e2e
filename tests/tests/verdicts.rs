//! From samples in a real Prometheus to verdicts in a real hub, with exporters reduced to their expositions: every
//! state of a cluster at will, and each at once.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::ApplyState;
use statusbridge_tests::fake_fleet::unix_now;
use statusbridge_tests::*;
use std::path::Path;
use std::time::Duration;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

const PAYMENTS: &str = "payments";
const CLUSTERS: [&str; 2] = ["c1", "c2"];

/// A hub, a Prometheus that scrapes the clusters every second, and an aggregator with the rights that ship.
struct World {
    fleet: FakeFleet,
    hub: ApiServer,
    prometheus: Prometheus,
    aggregator: Aggregator,
    _etcd: Etcd,
}

impl World {
    /// Every cluster has the package, healthy at the first revision.
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        CLUSTERS.iter().for_each(|name| fleet.says(name, PAYMENTS, FakePackage::healthy_at(R1)));
        let etcd = Etcd::start(rig).await?;
        let hub = ApiServer::start(rig, &etcd, "hub").await?;
        hub.install_crds(&crds::own()?).await?;
        hub.ensure_namespace("statusbridge-system").await?;
        let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/aggregator.yaml");
        hub.apply(&std::fs::read_to_string(rbac)?).await?;
        let account =
            hub.kubeconfig_of_service_account("statusbridge-system", "statusbridge-aggregator").await?;
        let job = ScrapeJob::new("statusbridge");
        let job = CLUSTERS.iter().fold(job, |job, name| fleet.target(job, name, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.namespace = hub::LEASES.to_owned();
        options.more = vec!["--backend-timeout".to_owned(), "2s".to_owned()];
        let aggregator = Aggregator::start(rig, "aggregator", &account, &options).await?;
        Ok(Self { fleet, hub, prometheus, aggregator, _etcd: etcd })
    }

    /// A cluster is at work on a revision, or failed to apply it.
    fn applies(&self, cluster: &str, apply: ApplyState, revision: &str) {
        self.fleet.changes(cluster, PAYMENTS, |package| {
            package.apply = apply;
            package.desired = revision.to_owned();
            package.healthy = String::new();
            package.since = unix_now();
        });
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
        let world = World::start(rig).await?;
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
        world.sees("RolloutGate", "OpenedOnce", "False", "NotYetOpen").await?;
        world.sees("FleetPackage", "Ready", "False", "NotUpdated").await?;

        world.applies("c1", ApplyState::Applying, R2);
        let closed = world.sees("RolloutGate", "Open", "False", "NotUpdated").await?;
        ensure!(closed.data["status"]["waitingFor"][0]["clusters"] == json!(["c2"]), "{}", closed.data);
        world.fleet.says("c1", PAYMENTS, FakePackage::healthy_at(R2));
        world.applies("c2", ApplyState::Failed, R2);
        let failed = world.sees("RolloutGate", "Stalled", "True", "FailureBudgetExceeded").await?;
        ensure!(failed.data["status"]["clusters"]["failed"] == 1, "{}", failed.data);
        world.fleet.says("c2", PAYMENTS, FakePackage::healthy_at(R2));
        world.sees("RolloutGate", "Open", "False", "Soaking").await?;
        let open = world.sees("RolloutGate", "Open", "True", "Healthy").await?;
        ensure!(open.data["status"].get("waitingFor").is_none(), "{}", open.data);
        world
            .hub
            .kubectl(&["wait", "--for=condition=OpenedOnce", "rolloutgate/wave", "--timeout=5s"])
            .await?;
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
        let world = World::start(rig).await?;
        world.package(R1).await?;
        world.gate(R1, json!({})).await?;
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        world.fleet.is_silent("c2");
        let closed = world.sees("RolloutGate", "Open", "False", "Stale").await?;
        ensure!(closed.data["status"]["waitingFor"][0]["clusters"] == json!(["c2"]), "{}", closed.data);
        world.sees("RolloutGate", "OpenedOnce", "True", "Healthy").await?;
        world.sees("FleetPackage", "Reporting", "False", "NotReporting").await?;
        world.fleet.says("c2", PAYMENTS, FakePackage::healthy_at(R1));
        world.sees("RolloutGate", "Open", "True", "Healthy").await?;

        world.prometheus.process().freeze()?;
        // It closes as Stale, and is told why as soon as it is judged again.
        let closed = world.sees("RolloutGate", "Open", "False", "BackendUnavailable").await?;
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

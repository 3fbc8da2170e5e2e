//! Somebody who may write gates makes one that cannot be closed, or keeps others from being judged by it.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{self, TryStreamExt};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use statusbridge_tests::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tokio::net::TcpListener;

pub(crate) const APP: &str = "app";
pub(crate) const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Two clusters with an open gate each, and a sweeper that closes what nobody watches over.
pub(crate) struct Attacked {
    pub(crate) clusters: Vec<Workload>,
    pub(crate) hub: Hub,
    pub(crate) gates: Api<DynamicObject>,
    sweeper: Sweeper,
    _servers: (Etcd, Prometheus),
}

impl Attacked {
    pub(crate) async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let clusters =
            try_join_all(["harmed", "other"].iter().map(|name| Workload::start(rig, &etcd, name, &[])))
                .await?;
        let job = clusters.iter().fold(ScrapeJob::new("statusbridge"), |job, cluster| cluster.target(job));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let sweeper = hub.start_sweeper(rig, "10s").await?;
        let gates = hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
        hub.report(APP, "60s", json!({})).await?;
        for cluster in &clusters {
            cluster.deliver(APP, R1).await?;
            hub.gate(cluster.name(), APP, R1, json!({"clusters": {"names": [cluster.name()]}})).await?;
        }
        for cluster in &clusters {
            hub.opens(cluster.name(), SOON).await?;
        }
        Ok(Self { clusters, hub, gates, sweeper, _servers: (etcd, prometheus) })
    }

    /// Writes labels and annotations of the gate that is attacked; whether the API server takes them.
    async fn write(&self, labels: usize, padding: usize) -> Result<bool> {
        let labels: Map<String, Value> =
            (0..labels).map(|n| (format!("n{n:062}"), Value::from("v".repeat(63)))).collect();
        let metadata = json!({"labels": labels, "annotations": {"padding": "x".repeat(padding)}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.gates.patch("harmed", &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(refusal)) if refusal.message.contains("too large") => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills the gate's object to the last byte that the API server takes.
    async fn fill(&self) -> Result<()> {
        let (mut taken, mut refused) = (0, 20_000);
        while refused - taken > 1 {
            let labels = (taken + refused) / 2;
            *(if self.write(labels, 0).await? { &mut taken } else { &mut refused }) = labels;
        }
        let labels = taken;
        (taken, refused) = (0, 1_000);
        while refused - taken > 1 {
            let padding = (taken + refused) / 2;
            *(if self.write(labels, padding).await? { &mut taken } else { &mut refused }) = padding;
        }
        ensure!(labels > 1_000 && self.write(labels, taken).await?, "{labels} labels");
        Ok(())
    }
}

/// Fails if any version of the gate is closed.
async fn stays_open(gate: &History, what: &str) -> Result<()> {
    gate.check(what, |it| {
        ensure!(it.condition("Open").0 == "True", "it is closed");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "it takes minutes: make long"]
async fn a_gate_without_room_is_closed_all_the_same_and_its_neighbour_stays_open() {
    run("attacks-full-gate", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        attacked.fill().await?;
        let opened = hub.get_gate("harmed").await?;
        ensure!(history::condition(&opened, "Open").0 == "True", "{}", opened.data["status"]);
        let neighbour = hub.history("other").await?;

        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        let closed = hub.closes("harmed", "ObjectFull", SOON).await?;
        let why = closed.data["status"]["conditions"][0]["message"].as_str().context("no message")?;
        ensure!(why == "FailureBudgetExceeded", "{}", closed.data["status"]);

        // It opens again once that is due, and can be closed by the sweeper as well.
        attacked.clusters[0].deliver(APP, R1).await?;
        attacked.write(0, 0).await?;
        hub.opens("harmed", SOON).await?;
        attacked.fill().await?;
        stays_open(&neighbour, "a full gate closes no other").await?;
        hub.aggregator.process().kill();
        for gate in ["harmed", "other"] {
            eventually(SOON, "the sweeper closes both", async || {
                let gate = hub.get_gate(gate).await?;
                ensure!(history::condition(&gate, "Open").0 == "False", "open");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_gate_that_somebody_never_stops_changing_is_closed_all_the_same() {
    run("attacks-changed-gate", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        let neighbour = hub.history("other").await?;
        let flood = |writer: usize| {
            let gates = attacked.gates.clone();
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let annotations = BTreeMap::from([(format!("writer-{writer}"), number.to_string())]);
                    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
                    // A conflict with another writer is as good.
                    let _ = gates.patch("harmed", &PatchParams::default(), &patch).await;
                }
            })
        };
        let writers: Vec<_> = (0..8).map(flood).collect();
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        hub.closes("harmed", "FailureBudgetExceeded", SOON).await?;
        writers.iter().for_each(|writer| writer.abort());
        stays_open(&neighbour, "a gate that changes all the time closes no other").await
    })
    .await;
}

/// The aggregator may close everything but the gate that is attacked, and those of a namespace.
const REFUSAL: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keeps-a-gate-open}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [statusbridge.dev], apiVersions: ["*"], operations: [UPDATE], resources: [rolloutgates/status]}
  validations:
  - expression: >-
      object.metadata.name != 'harmed' && object.metadata.namespace != 'noisy' || !request.userInfo.username.endsWith(':statusbridge-aggregator')
      || object.status.conditions.exists(it, it.type == 'Open' && it.status == 'True')
    message: it stays open
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keeps-a-gate-open}
spec: {policyName: keeps-a-gate-open, validationActions: [Deny]}
"#;

/// An admission webhook that never answers, for what the aggregator writes to the gate that is attacked.
fn hanging_webhook(address: SocketAddr) -> Value {
    let user = format!("system:serviceaccount:{}:statusbridge-aggregator", hub::NAMESPACE);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hangs"},
        "webhooks": [{
            "name": "hangs.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://{address}/")},
            "rules": [{
                "apiGroups": ["statusbridge.dev"], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": ["rolloutgates/status"],
            }],
            "matchConditions": [{
                "name": "closings",
                "expression": format!("object.metadata.name == 'harmed' && request.userInfo.username == '{user}'"),
            }],
        }],
    })
}

#[tokio::test]
async fn a_gate_whose_closing_hangs_is_named_and_closed_by_the_sweeper_and_delays_no_other() {
    run("attacks-hanging-closing", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        // It takes connections, and nothing ever comes back.
        let silent = TcpListener::bind("127.0.0.1:0").await?;
        hub.api.apply_object(&hanging_webhook(silent.local_addr()?)).await?;
        let neighbour = hub.history("other").await?;
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        let asked =
            tokio::time::timeout(SOON, silent.accept()).await.context("the webhook is not asked")??;
        hub.closes("harmed", "AggregatorSilent", SOON).await?;
        // Whatever is written to it later hangs as well.
        let renewed = async || anyhow::Ok(hub.lease("statusbridge-aggregator-heartbeat").await?.renew_time);
        for _ in 0..10 {
            let before = renewed().await?;
            eventually(SOON, "the heartbeat goes on", async || {
                ensure!(renewed().await? != before, "it stands still");
                Ok(())
            })
            .await?;
        }
        stays_open(&neighbour, "a closing that hangs closes no other").await?;
        attacked.clusters[1].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        hub.closes("other", "FailureBudgetExceeded", SOON).await?;
        drop(asked);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_gate_whose_closing_is_refused_is_named_and_closed_by_the_sweeper_and_no_other() {
    run("attacks-refused-closing", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        let neighbour = hub.history("other").await?;
        hub.api.apply(REFUSAL).await?;
        let account = format!("--as=system:serviceaccount:{}:statusbridge-aggregator", hub::NAMESPACE);
        let closing = r#"{"status": {"conditions": []}}"#;
        eventually(SOON, "the policy works", async || {
            let args = [
                "patch",
                "rolloutgate",
                "harmed",
                "--subresource=status",
                "--type=merge",
                "--dry-run=server",
            ];
            let answer = hub
                .api
                .kubectl_output(
                    &[&args[..], &["-p", closing, &account, "--as-group=system:masters"]].concat(),
                )
                .await?;
            ensure!(String::from_utf8_lossy(&answer.stderr).contains("it stays open"), "{answer:?}");
            Ok(())
        })
        .await?;

        let sweeper = attacked.sweeper.process();
        sweeper.freeze()?;
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        eventually(SOON, "a metric names the gate", async || {
            let unclosed = async |gate| {
                let labels = format!("gate_namespace=\"default\",gate=\"{gate}\"");
                hub.aggregator.metric(&format!("statusbridge_aggregator_unclosed_gate{{{labels}}}")).await
            };
            ensure!(unclosed("harmed").await? == 1.0 && unclosed("other").await.is_err());
            Ok(())
        })
        .await?;
        sweeper.thaw()?;
        hub.closes("harmed", "AggregatorSilent", SOON).await?;
        stays_open(&neighbour, "what cannot be closed closes no other").await
    })
    .await;
}

/// More than the heartbeat names one by one.
const MANY: usize = 520;

#[tokio::test]
#[ignore = "it takes minutes: make long"]
async fn a_namespace_of_gates_whose_closing_is_refused_is_closed_by_the_sweeper_and_no_other() {
    run("attacks-refused-closings", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        hub.api.ensure_namespace("noisy").await?;
        let mut package = serde_json::to_value(hub.get_report(APP).await?)?;
        package["metadata"] = json!({"namespace": "noisy", "name": APP});
        hub.api.apply_object(&package).await?;
        let gates: Api<DynamicObject> = hub.api.dynamic(&hub::kind("RolloutGate"), Some("noisy")).await?;
        let gate = |n: usize| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"namespace": "noisy", "name": format!("gate-{n}")},
                "spec": {"fleetPackageRef": {"name": APP}, "revision": R1, "clusters": {"names": ["harmed"]}},
            })
        };
        stream::iter((0..MANY).map(|n| anyhow::Ok(gate(n))))
            .try_for_each_concurrent(8, async |gate| {
                gates.create(&PostParams::default(), &serde_json::from_value(gate)?).await?;
                Ok(())
            })
            .await?;
        let open = async || {
            let all = gates.list(&ListParams::default()).await?;
            anyhow::Ok(all.iter().filter(|gate| history::condition(gate, "Open").0 == "True").count())
        };
        eventually(SOON, "all of them open", async || {
            let open = open().await?;
            ensure!(open == MANY, "{open} are open");
            Ok(())
        })
        .await?;

        let neighbour = hub.history("other").await?;
        hub.api.apply(REFUSAL).await?;
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        eventually(SOON, "the sweeper closes all of them", async || {
            let open = open().await?;
            ensure!(open == 0, "{open} are open");
            Ok(())
        })
        .await?;
        let closed = gates.get("gate-0").await?;
        ensure!(history::condition(&closed, "Open").1 == "AggregatorSilent", "{}", closed.data["status"]);
        stays_open(&neighbour, "what cannot be closed closes no other namespace").await
    })
    .await;
}

/// Gates of one tenant that are as long as labels make them.
const FAT: usize = 60;
/// Labels of each.
const LABELS: usize = 6_000;
/// What the charts allow: the sweeper, and the aggregator of a small fleet.
const MEMORY: [u64; 2] = [64 << 20, 264 << 20];

#[tokio::test]
#[ignore = "it takes minutes: make long"]
async fn fat_gates_of_a_namespace_end_neither_sweeper_nor_aggregator_and_gates_behind_them_are_closed() {
    run("attacks-fat-gates", async |rig| {
        let attacked = Attacked::start(rig).await?;
        let hub = &attacked.hub;
        // They are listed before all others.
        let namespace = "attacker";
        hub.api.ensure_namespace(namespace).await?;
        let gates: Api<DynamicObject> = hub.api.dynamic(&hub::kind("RolloutGate"), Some(namespace)).await?;
        let labels: Map<String, Value> =
            (0..LABELS).map(|n| (format!("n{n:062}"), Value::from("v".repeat(63)))).collect();
        let gate = |n: usize| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"namespace": namespace, "name": format!("gate-{n}"), "labels": labels},
                "spec": {"fleetPackageRef": {"name": APP}, "revision": R1, "clusters": {"names": ["harmed"]}},
            })
        };
        stream::iter((0..FAT).map(|n| anyhow::Ok(gate(n))))
            .try_for_each_concurrent(2, async |gate| {
                gates.create(&PostParams::default(), &serde_json::from_value(gate)?).await?;
                Ok(())
            })
            .await?;

        // Both begin anew, and list all of them.
        let (sweeper, aggregator) = (attacked.sweeper.process(), hub.aggregator.process());
        for process in [sweeper, aggregator] {
            process.kill();
            process.start()?;
        }
        let most = |process: &Process| usage::highest_resident(process.pid().context("it has ended")?);
        attacked.clusters[0].fail(APP, R1, "deployment/app: ProgressDeadlineExceeded").await?;
        hub.closes("harmed", "FailureBudgetExceeded", SOON).await?;
        let bytes = most(aggregator)?;
        ensure!(bytes < MEMORY[1], "the aggregator takes {bytes} bytes");
        // The sweeper may have closed it while no aggregator was there.
        hub.opens("other", SOON).await?;
        aggregator.kill();
        hub.closes("other", "AggregatorSilent", SOON).await?;
        let bytes = most(sweeper)?;
        ensure!(bytes < MEMORY[0], "the sweeper takes {bytes} bytes");
        Ok(())
    })
    .await;
}

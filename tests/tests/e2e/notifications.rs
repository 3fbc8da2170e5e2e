//! One message for each revision, wave and rollout, whatever becomes of the aggregator and of who is told.

use crate::e2e::world::scraping_slowly;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

/// Takes messages, or hangs.
struct Receiver {
    port: Port,
    told: Arc<Mutex<Vec<(String, Value)>>>,
    hangs: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl Receiver {
    async fn start() -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await?;
        let (told, hangs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (mut task, kept, hanging) = (JoinSet::new(), told.clone(), hangs.clone());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (told, hangs) = (kept.clone(), hanging.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (told, hangs) = (told.clone(), hangs.clone());
                    async move {
                        if hangs.load(Ordering::Relaxed) {
                            std::future::pending::<()>().await;
                        }
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        told.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
                    }
                });
                open.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self { port, told, hangs, _task: task })
    }

    /// What was told at a path of an object, in order: outcome and ID.
    fn told(&self, path: &str, name: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = self.told.lock().unwrap();
        let of = told.iter().filter(|(at, it)| at == path && it["data"]["customData"]["name"] == name);
        of.map(|(_, it)| (text(&it["data"]["customData"]["outcome"]), text(&it["id"]))).collect()
    }

    /// Waits until the outcomes of an object are these.
    async fn hears(&self, path: &str, name: &str, expected: &[&str]) -> Result<()> {
        eventually(SOON, &format!("{path} is told {expected:?} of {name}"), async || {
            let told = self.told(path, name);
            let outcomes: Vec<&str> = told.iter().map(|(outcome, _)| outcome.as_str()).collect();
            ensure!(outcomes == expected, "{outcomes:?}");
            Ok(())
        })
        .await
    }
}

/// Waits until the hub knows that the last message of an object was told, and nothing waits.
async fn is_noted(hub: &Hub, receiver: &Receiver, name: &str) -> Result<()> {
    let last = receiver.told("/all", name).pop().context("nothing was told")?.1;
    let maps = Api::<ConfigMap>::namespaced(hub.api.client(), hub::LEASES);
    eventually(SOON, "the hub knows what was told", async || {
        let data = maps.get("statusbridge-aggregator-notifications").await?.data.unwrap_or_default();
        let ledger: Value = serde_json::from_str(data.get("all").context("no ledger")?)?;
        ensure!(!ledger["told"][&last].is_null() && ledger["waiting"] == json!([]), "{ledger}");
        Ok(())
    })
    .await
}

/// A hub whose aggregator tells these sinks.
async fn hub_with(rig: &Rig, etcd: &Etcd, backend: &str, sinks: &str) -> Result<Hub> {
    let file = rig.dir().join("config.yaml");
    std::fs::write(&file, format!("notify:\n{sinks}"))?;
    let mut options = AggregatorOptions::new(backend);
    options.more = vec!["--config".to_owned(), file.display().to_string()];
    Hub::start_with(rig, etcd, options).await
}

/// Another process leads, after a clean end and after a crash.
async fn leads_anew(hub: &Hub) -> Result<()> {
    ensure!(hub.aggregator.process().terminate(SOON).await?.success());
    hub.aggregator.process().start()?;
    hub.aggregator.wait_ready().await?;
    hub.aggregator.process().kill();
    hub.aggregator.process().start()?;
    hub.aggregator.wait_ready().await
}

#[tokio::test]
async fn whoever_leads_and_whatever_hangs_each_outcome_of_a_wave_is_told_once() {
    run("e2e-notifications", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "app", FakePackage::healthy_at("r0"));
        let prometheus = Prometheus::start(rig, &scraping_slowly(&fleet, &["c1"])).await?;
        let receiver = Receiver::start().await?;
        let url = format!("http://{}", receiver.port.address());
        let sinks = format!(
            "- {{name: all, to: webhook, url: \"{url}/all\", kinds: [RolloutGate]}}\n\
             - {{name: others, to: webhook, url: \"{url}/others\", namespaces: [team-a]}}\n\
             - {{name: labelled, to: webhook, url: \"{url}/labelled\", selector: {{matchLabels: {{tier: gold}}}}}}\n"
        );
        let hub = hub_with(rig, &etcd, &prometheus.url(), &sinks).await?;
        hub.report("app", "1m", json!({})).await?;
        hub.gate("wave", "app", R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.closes("wave", "RevisionNeverSeen", SOON).await?;
        receiver.hears("/all", "wave", &["Started"]).await?;
        fleet.says("c1", "app", FakePackage::healthy_at(R1));
        hub.opens("wave", SOON).await?;
        receiver.hears("/all", "wave", &["Started", "Succeeded"]).await?;
        let said = receiver.told.lock().unwrap().last().cloned().context("nothing")?.1;
        ensure!(said["type"] == "dev.cdevents.taskrun.finished.0.2.0", "{said}");
        ensure!(said["data"]["customData"]["commit"] == R1.trim_start_matches("main@sha1:"), "{said}");
        is_noted(&hub, &receiver, "wave").await?;

        // Neither a restart nor a crash repeats anything.
        leads_anew(&hub).await?;

        // A receiver that hangs delays no verdict, and is told once it takes it, by whichever process.
        receiver.hangs.store(true, Ordering::Relaxed);
        fleet.says("c1", "app", FakePackage::failed_at(R1));
        hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        hub.aggregator.process().kill();
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        receiver.hangs.store(false, Ordering::Relaxed);
        receiver.hears("/all", "wave", &["Started", "Succeeded", "Failed"]).await?;

        // Who is told of nothing here was told nothing; with the label, what comes from now on.
        for path in ["/others", "/labelled"] {
            ensure!(receiver.told(path, "wave").is_empty(), "{path} was told");
        }
        let packages = hub.api.dynamic(&hub::kind("FleetPackage"), Some("default")).await?;
        let label = json!({"metadata": {"labels": {"tier": "gold"}}});
        packages.patch("app", &PatchParams::default(), &Patch::Merge(&label)).await?;
        fleet.says("c1", "app", FakePackage::healthy_at(R1));
        hub.opens("wave", SOON).await?;
        receiver.hears("/all", "wave", &["Started", "Succeeded", "Failed", "Succeeded"]).await?;
        receiver.hears("/labelled", "wave", &["Succeeded"]).await?;
        let told = receiver.told("/all", "wave");
        let ids: std::collections::BTreeSet<&String> = told.iter().map(|(_, id)| id).collect();
        ensure!(ids.len() == told.len(), "{told:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn whoever_leads_each_outcome_of_a_rollout_is_told_once() {
    run("e2e-notifications-rollout", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "app", FakePackage::healthy_at("r0"));
        let prometheus = Prometheus::start(rig, &scraping_slowly(&fleet, &["c1"])).await?;
        let receiver = Receiver::start().await?;
        let sinks =
            format!("- {{name: all, to: webhook, url: \"http://{}/all\"}}\n", receiver.port.address());
        let hub = hub_with(rig, &etcd, &prometheus.url(), &sinks).await?;
        hub.report("app", "1m", json!({"clusters": {"names": ["c1"]}})).await?;
        let mut expected = Vec::new();
        for (revision, comes, outcome) in
            [(R1, FakePackage::healthy_at(R1), "Succeeded"), (R2, FakePackage::failed_at(R2), "Failed")]
        {
            let plan = json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
                "metadata": {"name": "plan", "namespace": "default"},
                "spec": {
                    "fleetPackageRef": {"name": "app"}, "revision": revision,
                    "waves": [{"name": "all", "clusters": {"percentage": "100%"}}],
                },
            });
            hub.api.apply_object(&plan).await?;
            for outcome in ["Started", outcome] {
                expected.push(outcome);
                receiver.hears("/all", "plan", &expected).await?;
                receiver.hears("/all", "plan-all", &expected).await?;
                is_noted(&hub, &receiver, "plan").await?;
                let before = epoch(&hub).await?;
                leads_anew(&hub).await?;
                eventually(SOON, "another leader has judged the rollout", async || {
                    let now = epoch(&hub).await?;
                    ensure!(now > before, "{now}");
                    Ok(())
                })
                .await?;
                if outcome == "Started" {
                    fleet.says("c1", "app", comes.clone());
                }
            }
        }
        let stalled = "statusbridge_aggregator_rollouts{state=\"stalled\"}";
        eventually(SOON, "a rollout is counted as stalled", async || {
            ensure!(hub.aggregator.metric(stalled).await? == 1.0, "none is");
            Ok(())
        })
        .await?;
        let told = receiver.told("/all", "plan");
        let outcomes: Vec<&str> = told.iter().map(|(outcome, _)| outcome.as_str()).collect();
        ensure!(outcomes == expected, "{outcomes:?}");
        let said = receiver.told.lock().unwrap().last().cloned().context("nothing")?.1;
        ensure!(said["data"]["customData"]["fleetRollout"] == "plan", "{said}");
        Ok(())
    })
    .await;
}

/// Which leadership has judged the FleetRollout at last.
async fn epoch(hub: &Hub) -> Result<i64> {
    let rollouts = hub.api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
    rollouts.get("plan").await?.data["status"]["epoch"].as_i64().context("nobody has")
}

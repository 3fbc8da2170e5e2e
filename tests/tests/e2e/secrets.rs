//! What is secret in the addresses of backends, exporters and aggregators is sent there and shown nowhere.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use statusbridge_tests::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const TOKEN: &str = "token-of-c1";
const SECRETS: [&str; 6] =
    ["user-of-backend", "password-of-backend", "key-of-backend", "key-of-exporter", "key-of-push", TOKEN];

/// A cluster that is heard by three transports, each through a proxy and with a secret; and a name that two
/// clusters report as.
struct World {
    hub: Hub,
    c1: Workload,
    _c2: Workload,
    _prometheus: Prometheus,
    proxies: [FaultProxy; 3],
    config: PathBuf,
    _etcd: Etcd,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let door = Port::reserve()?;
        let push = FaultProxy::start(rig, door.address()).await?;
        let token = rig.dir().join("token");
        std::fs::write(&token, TOKEN)?;
        let url = format!("{}/v1alpha1/push?apikey=key-of-push", push.url());
        let arguments =
            ["--push-url", &url, "--push-interval", "1s", "--push-token-file", &token.display().to_string()];
        let c1 = Workload::start(rig, &etcd, "c1", &arguments).await?;
        let c2 = Workload::start(rig, &etcd, "c2", &[]).await?;
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([c1.target(job())])).await?;
        let backend = FaultProxy::start(rig, prometheus.address()).await?;
        let exporter = FaultProxy::start(rig, c1.exporter.address()).await?;

        let target = |cluster: &str, address: SocketAddr| json!({"cluster": cluster, "url": format!("http://{address}/metrics?apikey=key-of-exporter")});
        let hash: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let tokens = rig.dir().join("tokens.yaml");
        std::fs::write(&tokens, json!([{"cluster": "c1", "sha256": hash}]).to_string())?;
        let backend_url =
            format!("http://user-of-backend:password-of-backend@{}?apikey=key-of-backend", backend.address());
        let feeds = json!({"feeds": {
            "backends": [{"name": "east", "url": backend_url, "trust": "all", "timeout": "2s"}],
            "scrape": {"interval": "1s", "timeout": "2s", "targets": [
                target("c1", exporter.address()),
                target("twin", c1.exporter.address()),
                target("twin", c2.exporter.address()),
            ]},
            "push": {"listen": door.address(), "insecure": true, "tokensFile": tokens},
        }});
        let config = rig.dir().join("aggregator.yaml");
        std::fs::write(&config, feeds.to_string())?;
        let mut options = AggregatorOptions::new("");
        options.more = vec!["--config".to_owned(), config.display().to_string()];
        let hub = Hub::start_with(rig, &etcd, options).await?;
        let proxies = [backend, exporter, push];
        Ok(Self { hub, c1, _c2: c2, _prometheus: prometheus, proxies, config, _etcd: etcd })
    }

    /// Everything that is shown to anybody, by where it is.
    async fn shown(&self) -> Result<Vec<(&'static str, String)>> {
        let Self { hub, c1, .. } = self;
        let page = async |path: &str| {
            anyhow::Ok(hub.aggregator.http().get(hub.aggregator.url(path)).send().await?.text().await?)
        };
        let mut shown = vec![
            ("the exporter's log", c1.exporter.process().log()),
            ("the aggregator's log", hub.aggregator.process().log()),
            ("the exporter's /metrics", c1.exporter.metrics().await?),
            ("the aggregator's /metrics", page("/metrics").await?),
            ("the page of a gate", page("/v1alpha1/gates/default/wave").await?),
            ("the page of a gate", page("/v1alpha1/gates/default/twins").await?),
        ];
        for name in ["FleetPackage", "FleetPackageSlice", "RolloutGate"] {
            let objects = hub.api.dynamic(&hub::kind(name), Some("default")).await?;
            let objects = objects.list(&ListParams::default()).await?;
            shown.push(("the objects of a kind", serde_json::to_string(&objects.items)?));
        }
        let events = Api::<Event>::all(hub.api.client()).list(&ListParams::default()).await?;
        shown.push(("events", serde_json::to_string(&events.items)?));
        let leases = Api::<Lease>::all(hub.api.client()).list(&ListParams::default()).await?;
        shown.push(("leases", serde_json::to_string(&leases.items)?));
        let (config, hub) = (self.config.display().to_string(), hub.api.kubeconfig().display().to_string());
        for output in ["text", "json"] {
            shown.push(("doctor", said(&["doctor", "--config", &config, "-o", output]).await?));
            for of in ["gate/wave", "gate/twins", "fleetpackage/app"] {
                shown.push(("explain", said(&["explain", of, "--kubeconfig", &hub, "-o", output]).await?));
            }
        }
        Ok(shown)
    }

    /// Fails where something secret is shown.
    async fn shows_no_secret(&self) -> Result<()> {
        for (place, text) in self.shown().await? {
            for secret in SECRETS {
                ensure!(!text.contains(secret), "{place} shows {secret}: {text}");
            }
        }
        Ok(())
    }
}

/// All that our command says, however it ends.
async fn said(args: &[&str]) -> Result<String> {
    let out = own_command("statusbridge", args).await?.output().await?;
    ensure!(!out.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok([out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
}

/// What a program says that refuses to start.
async fn refusal(program: &str, args: &[&str], kubeconfig: &Path) -> Result<String> {
    let mut command = own_command(program, args).await?;
    let out = command.arg("--kubeconfig").arg(kubeconfig).output();
    let out = tokio::time::timeout(SOON, out).await.context("it goes on")??;
    ensure!(!out.status.success(), "it takes {args:?}");
    Ok(String::from_utf8_lossy(&out.stderr).into_owned())
}

#[tokio::test]
async fn secrets_in_addresses_are_shown_nowhere_whether_these_answer_refuse_or_are_gone() {
    run("e2e-secrets", async |rig| {
        let world = World::start(rig).await?;
        let World { hub, c1, .. } = &world;
        c1.deliver(APP, &revision(1)).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        hub.gate("wave", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.gate("twins", APP, &revision(1), json!({"clusters": {"names": ["twin"]}})).await?;
        hub.opens("wave", SOON).await?;
        let address = format!("http://{}/metrics?…", c1.exporter.address());
        waits_for(hub, "twins", SOON, &["2 clusters report as `twin`", &address]).await?;
        eventually(SOON, "all three answer", async || {
            for proxy in &world.proxies {
                ensure!(proxy.bytes_returned() > 0, "nothing came back from {}", proxy.address());
            }
            Ok(())
        })
        .await?;
        world.shows_no_secret().await?;

        // The answer to a push has no body that could break off.
        for [answer, push] in [[Fault::ServerError; 2], [Fault::HalfBody, Fault::Cut], [Fault::Refuse; 2]] {
            let told = |process: &Process| process.log().len();
            let before = (told(c1.exporter.process()), told(hub.aggregator.process()));
            let [backend, exporter, receiver] = &world.proxies;
            backend.set(answer);
            exporter.set(answer);
            receiver.set(push);
            eventually(SOON, &format!("{answer:?} is told of"), async || {
                let gate = hub.get_gate("wave").await?;
                let open = history::condition(&gate, "Open");
                ensure!(open.0 == "False", "the gate is {open:?}");
                let since = |process: &Process, before: usize| process.log().split_off(before);
                let exporter = since(c1.exporter.process(), before.0);
                let aggregator = since(hub.aggregator.process(), before.1);
                ensure!(exporter.contains("a push did not get through"), "{exporter}");
                for words in ["the metrics backend does not answer", "/metrics?…: "] {
                    ensure!(aggregator.contains(words), "nothing of {words}: {aggregator}");
                }
                Ok(())
            })
            .await?;
            world.shows_no_secret().await?;
            world.proxies.iter().for_each(|proxy| proxy.set(Fault::Pass));
            hub.opens("wave", SOON).await?;
        }

        // What cannot be used is refused without saying it.
        for url in ["http://user:password-of-push@hub/?apikey=key-of-push", "nowhere?apikey=key-of-push"] {
            let args = ["serve", "--push-url", url, "--push-token-file", "token", "--listen", "127.0.0.1:0"];
            let said = refusal("statusbridge-exporter", &args, c1.api.kubeconfig()).await?;
            let is_shown = said.contains("password-of-push") || said.contains("key-of-push");
            ensure!(said.contains("--push-url") && !is_shown, "{said}");
        }
        let mut feeds: Value = serde_json::from_str(&std::fs::read_to_string(&world.config)?)?;
        for url in ["http://u:password-of-exporter@c1/?apikey=key-of-exporter", "c1?apikey=key-of-exporter"] {
            feeds["feeds"]["scrape"]["targets"][0]["url"] = json!(url);
            let config = rig.dir().join("refused.yaml");
            std::fs::write(&config, feeds.to_string())?;
            let args = ["serve", "--config", &config.display().to_string(), "--listen", "127.0.0.1:0"];
            let said = refusal("statusbridge-aggregator", &args, hub.api.kubeconfig()).await?;
            let is_shown = said.contains("password-of-exporter") || said.contains("key-of-exporter");
            ensure!(said.contains("targets[0]") && !is_shown, "{said}");
        }
        Ok(())
    })
    .await;
}

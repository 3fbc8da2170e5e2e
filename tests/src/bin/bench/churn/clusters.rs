//! The aggregator's half: clusters that come, push for two minutes what their exporters say, and go; and objects in the
//! hub for the packages that all of them have.

use super::report::GoneInFleet;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use statusbridge_tests::{
    AggregatorOptions, Etcd, FakeFleet, FakePackage, Hub, Port, Process, Rig, eventually, hub,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Steps after which another cluster comes.
const COMES: usize = 3;
/// Steps that it stays.
const LIFE: usize = 120;
/// Steps between two pushes of a cluster.
const PUSH: usize = 5;
/// Packages that a cluster has for itself.
const OWN: usize = 25;
/// Of these, how many go, and as many come, from one push to the next.
const TURNED: usize = 2;
/// Packages that all clusters have: with each step one goes and one comes.
const COMMON: usize = 25;
/// Steps after which such a package moves on to another revision.
const MOVES: usize = 10;
/// Tokens of clusters that are yet to come: the aggregator reads the file only every other second.
const TOKENS: usize = 10;
/// Longest time until all that is there was judged.
const PATIENCE: Duration = Duration::from_secs(60);

/// The hub, and the clusters that push to it.
pub(crate) struct Clusters {
    hub: Hub,
    gates: Api<DynamicObject>,
    packages: Api<DynamicObject>,
    fleet: FakeFleet,
    http: reqwest::Client,
    push_to: String,
    _port: Port,
    tokens: PathBuf,
    /// The number of the next step.
    next: usize,
    /// How often each cluster has pushed.
    pushed: BTreeMap<usize, usize>,
    gone: GoneInFleet,
}

impl Clusters {
    /// An aggregator to which no cluster has pushed yet.
    pub(crate) async fn start(rig: &Rig, etcd: &Etcd) -> Result<Self> {
        let port = Port::reserve()?;
        let (tokens, config) = (rig.dir().join("tokens.yaml"), rig.dir().join("aggregator.yaml"));
        let push =
            json!({"listen": port.address(), "insecure": true, "tokensFile": tokens, "expectWithin": "2s"});
        std::fs::write(&config, json!({"feeds": {"push": push}}).to_string())?;
        write_tokens(&tokens, LIFE)?;
        let mut options = AggregatorOptions::new("");
        let config = config.display().to_string();
        options.more = ["--config", &config, "--forget-exporters-after", "60s", "--writes-per-second", "50"]
            .map(str::to_owned)
            .to_vec();
        let hub = Hub::start_with(rig, etcd, options).await?;
        Ok(Self {
            gates: hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?,
            packages: hub.api.dynamic(&hub::kind("FleetPackage"), Some("default")).await?,
            hub,
            fleet: FakeFleet::start().await?,
            http: reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?,
            push_to: format!("http://{}/v1alpha1/push", port.address()),
            _port: port,
            tokens,
            // As many clusters as ever are there from the first step on.
            next: LIFE,
            pushed: BTreeMap::new(),
            gone: GoneInFleet::default(),
        })
    }

    pub(crate) fn aggregator(&self) -> &Process {
        self.hub.aggregator.process()
    }

    /// What has come and gone so far.
    pub(crate) fn gone(&self) -> GoneInFleet {
        self.gone
    }

    /// Clusters, packages and objects come and go.
    pub(crate) async fn step(&mut self) -> Result<()> {
        let now = self.next;
        self.next += 1;
        if now.is_multiple_of(COMES) {
            write_tokens(&self.tokens, now)?;
        }
        for left in self.pushed.keys().copied().filter(|it| !alive(now).contains(it)).collect::<Vec<_>>() {
            let pushed = self.pushed.remove(&left).unwrap_or_default();
            self.fleet.is_silent(&name(left));
            let windows = pushed.saturating_sub(1) as u64;
            self.gone.clusters += 1;
            self.gone.packages += OWN as u64 + windows * TURNED as u64;
            self.gone.revisions += OWN as u64 + windows * (TURNED as u64 + 1);
            self.gone.reasons += windows;
        }
        let due: Vec<usize> = alive(now).filter(|cluster| cluster % PUSH == now % PUSH).collect();
        self.change(now, &due);
        let some: Vec<String> = self.pushed.keys().rev().take(3).copied().map(name).collect();
        tokio::try_join!(
            try_join_all(due.iter().map(|cluster| self.push(*cluster))),
            self.make_objects(now, &some),
        )?;
        if now >= LIFE + COMMON {
            let judged = self.delete_objects(now - COMMON).await?;
            self.gone.objects += 3;
            self.gone.judged += judged;
            self.gone.packages += 1;
            self.gone.revisions += 2;
        }
        if now.is_multiple_of(PUSH) {
            // Rendering is work, too.
            self.hub.aggregator.metric("statusbridge_aggregator_clusters").await?;
        }
        Ok(())
    }

    /// What clusters that are about to push say from now on.
    fn change(&mut self, now: usize, due: &[usize]) {
        for cluster in due {
            let (cluster, pushed) = (*cluster, self.pushed.entry(*cluster).or_default());
            let (first, is_new) = (*pushed * TURNED, *pushed == 0);
            *pushed += 1;
            let (own, at) = (format!("team-{cluster}"), name(cluster));
            let healthy = |n: usize| FakePackage::healthy_at(&format!("{at}-{n}-{first}"));
            let says =
                |n: usize, what| self.fleet.says_in(&own, &at, &format!("service-{cluster}-{n}"), what);
            if is_new {
                (first..first + OWN).for_each(|n| says(n, healthy(n)));
            } else {
                (first - TURNED..first).for_each(|n| {
                    self.fleet.loses_in(&own, &at, &format!("service-{cluster}-{n}"));
                });
                (first + OWN - TURNED..first + OWN).for_each(|n| says(n, healthy(n)));
                says(first + 5, healthy(first + 5));
                let reason = format!("Failure{cluster}At{first}");
                says(first + 10, FakePackage { reason, ..FakePackage::failed_at("main") });
            }
            for gone in now.saturating_sub(COMMON + PUSH)..now.saturating_sub(COMMON) {
                self.fleet.loses(&at, &common(gone));
            }
            for package in now - COMMON..=now {
                let revision = revision(package, usize::from(now - package >= MOVES));
                let age = now - package;
                // What it said before, it goes on to say since then.
                if is_new || age < PUSH || (MOVES..MOVES + PUSH).contains(&age) {
                    self.fleet.says(&at, &common(package), FakePackage::healthy_at(&revision));
                }
            }
        }
    }

    async fn push(&self, cluster: usize) -> Result<()> {
        let what = format!("{} pushes", name(cluster));
        eventually(PATIENCE, &what, async || {
            let exposition = self.http.get(self.fleet.url(&name(cluster))).send().await?.bytes().await?;
            let push = self.http.post(&self.push_to).bearer_auth(token(cluster)).body(exposition);
            let answer = push.send().await?;
            let (code, said) = (answer.status(), answer.text().await?);
            ensure!(code.is_success(), "it is answered {code}: {said}");
            Ok(())
        })
        .await
    }

    /// A FleetPackage, a gate for all clusters that report its package, and one for some of them.
    async fn make_objects(&self, step: usize, clusters: &[String]) -> Result<()> {
        let (package, revision) = (common(step), revision(step, 0));
        self.hub.report(&package, "30s", json!({})).await?;
        let gates = [("all", json!({"reporting": {"minClusters": 1}})), ("some", json!({"names": clusters}))];
        try_join_all(gates.into_iter().map(async |(gate, clusters)| {
            let spec = json!({"clusters": clusters});
            self.hub.gate(&format!("{package}-{gate}"), &package, &revision, spec).await
        }))
        .await
        .map(drop)
    }

    /// Deletes them; gives how many had been judged.
    async fn delete_objects(&self, step: usize) -> Result<u64> {
        let package = common(step);
        let mut judged = 0;
        for (api, name) in [
            (&self.gates, format!("{package}-all")),
            (&self.gates, format!("{package}-some")),
            (&self.packages, package.clone()),
        ] {
            judged += u64::from(is_answered(&api.get(&name).await?));
            api.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(judged)
    }

    /// Waits until the aggregator has judged every object that is there, and fails where it had not judged nearly all of
    /// those that are gone, or does not forget clusters.
    pub(crate) async fn are_judged(&self) -> Result<()> {
        eventually(PATIENCE, "every object is judged", async || {
            for api in [&self.gates, &self.packages] {
                let all = api.list(&Default::default()).await?.items;
                let judged = all.iter().filter(|object| is_answered(object)).count();
                ensure!(judged == all.len(), "{judged} of {}", all.len());
            }
            Ok(())
        })
        .await?;
        let GoneInFleet { objects, judged, .. } = self.gone;
        ensure!(judged * 10 >= objects * 9, "of {objects} objects that are gone {judged} had been judged");
        let known = self.hub.aggregator.metric("statusbridge_aggregator_clusters").await?;
        let most = 2.0 * (LIFE / COMES) as f64;
        ensure!(known <= most, "{known} clusters are known, of which {} push", LIFE / COMES);
        Ok(())
    }
}

/// Whether its status is about its present spec.
fn is_answered(object: &DynamicObject) -> bool {
    let generation = object.metadata.generation;
    generation.is_some() && object.data["status"]["observedGeneration"].as_i64() == generation
}

/// Numbers of the clusters that push at a step.
fn alive(step: usize) -> std::ops::RangeInclusive<usize> {
    (step - LIFE) / COMES + 1..=step / COMES
}

fn name(cluster: usize) -> String {
    format!("cluster-{cluster}")
}

fn token(cluster: usize) -> String {
    format!("the token of {}", name(cluster))
}

/// A package that all clusters have from this step on.
fn common(step: usize) -> String {
    format!("app-{step}")
}

fn revision(step: usize, nth: usize) -> String {
    format!("main@sha1:{}", crate::fleet::hex(40, &[step, nth]))
}

/// Writes the tokens of all clusters that push at a step, and of some that will.
fn write_tokens(file: &PathBuf, step: usize) -> Result<()> {
    let entry = |cluster: usize| -> Value {
        let hash: String = Sha256::digest(token(cluster)).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"cluster": name(cluster), "sha256": hash})
    };
    let all: Vec<Value> = (*alive(step).start()..=*alive(step).end() + TOKENS).map(entry).collect();
    let new = file.with_extension("new");
    std::fs::write(&new, json!(all).to_string())?;
    std::fs::rename(new, file).context("replacing the file of tokens")
}

//! The hub: objects of a rollout in waves, the aggregator, and what both have to say about themselves.

use crate::generated::{Generated, NAMESPACE as PACKAGE_NAMESPACE, SOURCE, revision};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use statusbridge_tests::bench::number;
use statusbridge_tests::history::condition;
use statusbridge_tests::{Aggregator, AggregatorOptions, ApiServer, Etcd, Rig, hub, usage};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How far behind the present the backend is asked.
pub(crate) const SETTLE_DELAY: &str = "5s";
/// Clusters of the first wave.
const CANARIES: usize = 10;
/// Objects made at the same time.
const WRITERS: usize = 16;

/// Time between two polls.
pub(crate) fn poll_interval() -> Result<Duration> {
    Ok(Duration::from_secs(number("POLL", 15)?))
}

/// The hub.
pub(crate) struct Hub {
    pub(crate) api: ApiServer,
    account: PathBuf,
    options: AggregatorOptions,
    gates: Api<DynamicObject>,
    packages: Api<DynamicObject>,
    _etcd: Etcd,
}

/// An aggregator, running.
pub(crate) struct Running {
    pub(crate) aggregator: Aggregator,
    pub(crate) started: Instant,
}

/// What an aggregator has used and done at some moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    /// Processor time.
    pub(crate) processor: Duration,
    /// Good polls.
    pub(crate) polls: u64,
    /// Bytes of the backend's answers, unpacked.
    pub(crate) bytes: u64,
    /// Streams whose digest added up at the last poll.
    pub(crate) verified: u64,
    /// Streams that had to be read again.
    pub(crate) reread: u64,
    /// Status writes that were accepted.
    pub(crate) writes: u64,
    /// Status writes that wait.
    pub(crate) pending: u64,
}

impl Account {
    /// What was used and done since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            processor: self.processor.saturating_sub(before.processor),
            polls: self.polls - before.polls,
            bytes: self.bytes - before.bytes,
            reread: self.reread - before.reread,
            writes: self.writes - before.writes,
            ..self
        }
    }
}

impl Hub {
    /// An API server with the CRDs, for an aggregator that reads `backend` and believes the fleet's speakers.
    pub(crate) async fn start(rig: &Rig, backend: &str, fleet: &Generated) -> Result<Self> {
        Self::start_with(rig, backend, fleet, &[]).await
    }

    /// The same with more arguments for the aggregator.
    pub(crate) async fn start_with(
        rig: &Rig,
        backend: &str,
        fleet: &Generated,
        more: &[String],
    ) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let account = hub::install(&api).await?.aggregator;
        let mut options = AggregatorOptions {
            poll_interval: poll_interval()?,
            settle_delay: SETTLE_DELAY,
            namespace: hub::LEASES.to_owned(),
            more: ["--backend-timeout", "120s", "--writes-per-second", "100", "--serve-fleet"]
                .map(str::to_owned)
                .to_vec(),
            ..AggregatorOptions::new(backend)
        };
        options.more.extend_from_slice(more);
        let speakers = fleet.speakers();
        let speakers: Vec<_> =
            speakers.iter().map(|(it, clusters)| (it.as_str(), clusters.as_str())).collect();
        let options = options.believing(rig.dir(), SOURCE, &speakers)?;
        let gates = api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
        let packages = api.dynamic(&hub::kind("FleetPackage"), Some("default")).await?;
        Ok(Self { api, account, options, gates, packages, _etcd: etcd })
    }

    /// Starts the aggregator, without waiting for it. The one before has ended.
    pub(crate) async fn launch(&self, rig: &Rig) -> Result<Running> {
        // To wait for the Lease of a process that was killed is not the aggregator's work.
        let leases = Api::<Lease>::namespaced(self.api.client(), hub::LEASES);
        match leases.delete("statusbridge-aggregator-leader", &DeleteParams::default()).await {
            Err(kube::Error::Api(error)) if error.is_not_found() => {}
            deleted => drop(deleted?),
        }
        let started = Instant::now();
        let aggregator = Aggregator::launch(rig, "aggregator", &self.account, &self.options).await?;
        Ok(Running { aggregator, started })
    }

    /// Makes a FleetPackage and three gates for each of so many packages: some canaries, a wave by name, and all that
    /// report. They want what the clusters have at first, but for the gate of the wave, which wants the next revision.
    pub(crate) async fn make_objects(
        &self,
        fleet: &Generated,
        packages: usize,
        wave: usize,
        stale_after: &str,
    ) -> Result<usize> {
        let mut objects = Vec::new();
        for package in fleet.packages.iter().take(packages) {
            let names =
                |count: usize| (0..count.min(fleet.len())).map(|n| fleet.cluster_name(n)).collect::<Vec<_>>();
            let reference = json!({"source": SOURCE, "namespace": PACKAGE_NAMESPACE, "name": package});
            objects.push(object(
                "FleetPackage",
                package,
                json!({"package": reference, "staleAfter": stale_after}),
            ));
            let mut gate = |name: &str, number: u64, clusters: Value| {
                let spec = json!({
                    "fleetPackageRef": {"name": package}, "revision": revision(package, number), "clusters": clusters,
                });
                objects.push(object("RolloutGate", &format!("{package}-{name}"), spec));
            };
            gate("canary", 0, json!({"names": names(CANARIES)}));
            gate("wave", 1, json!({"names": names(wave)}));
            gate("rest", 0, json!({"reporting": {"minClusters": 1}}));
        }
        let made =
            stream::iter(&objects).map(|object| self.api.apply_object(object)).buffer_unordered(WRITERS);
        made.try_for_each(|_| async { Ok(()) }).await?;
        Ok(objects.len())
    }

    /// Makes FleetRollouts of the last packages, of the revision that the clusters have, in waves of as many clusters each.
    pub(crate) async fn make_rollouts(&self, fleet: &Generated, rollouts: usize, waves: usize) -> Result<()> {
        let each = fleet.len().div_ceil(waves);
        let wave = |number: usize| {
            let clusters =
                if number + 1 == waves { json!({"percentage": "100%"}) } else { json!({"count": each}) };
            json!({"name": format!("w{number}"), "clusters": clusters})
        };
        let objects: Vec<Value> = fleet.packages.iter().rev().take(rollouts).map(|package| {
            let waves: Vec<Value> = (0..waves).map(wave).collect();
            let spec = json!({"fleetPackageRef": {"name": package}, "revision": revision(package, 0), "waves": waves});
            object("FleetRollout", package, spec)
        }).collect();
        let made = stream::iter(&objects).map(|it| self.api.apply_object(it)).buffer_unordered(WRITERS);
        made.try_for_each(|_| async { Ok(()) }).await
    }

    fn rollouts(&self) -> Api<DynamicObject> {
        let kind = kube::core::ApiResource::from_gvk(&hub::kind("FleetRollout"));
        Api::namespaced_with(self.api.client(), "default", &kind)
    }

    /// How many FleetRollouts are rolled out.
    pub(crate) async fn rolled_out(&self) -> Result<usize> {
        let all = self.rollouts().list(&kube::api::ListParams::default()).await?;
        Ok(all.iter().filter(|it| condition(it, "Ready").0 == "True").count())
    }

    /// Deletes all FleetRollouts, and waits until the aggregator has removed their gates.
    pub(crate) async fn remove_rollouts(&self) -> Result<()> {
        let all = kube::api::ListParams::default();
        self.rollouts().delete_collection(&DeleteParams::default(), &all).await?;
        let of = kube::api::ListParams::default().labels("statusbridge.dev/wave").limit(1);
        statusbridge_tests::eventually(Duration::from_secs(900), "their gates are gone", async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let left = self.gates.list(&of).await?.items.len();
            ensure!(left == 0, "there are gates");
            Ok(())
        })
        .await
    }

    /// How many FleetPackages and gates have a status that answers them.
    pub(crate) async fn judged(&self) -> Result<usize> {
        let mut judged = 0;
        for kind in [&self.packages, &self.gates] {
            let all = kind.list(&kube::api::ListParams::default()).await?;
            let answers = |object: &&DynamicObject| {
                object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
            };
            judged += all.iter().filter(answers).count();
        }
        Ok(judged)
    }

    /// How many gates are open, and of how many FleetPackages every cluster's evidence is young.
    pub(crate) async fn standing(&self) -> Result<(usize, usize)> {
        let is = |object: &&DynamicObject, kind: &str| condition(object, kind).0 == "True";
        let all = kube::api::ListParams::default();
        let gates = self.gates.list(&all).await?;
        let packages = self.packages.list(&all).await?;
        Ok((
            gates.iter().filter(|gate| is(gate, "Open")).count(),
            packages.iter().filter(|package| is(package, "Reporting")).count(),
        ))
    }

    /// Waits until a gate is open.
    pub(crate) async fn opens(&self, gate: &str, deadline: Duration) -> Result<()> {
        statusbridge_tests::eventually(deadline, &format!("{gate} is open"), async || {
            let gate = self.gates.get(gate).await?;
            ensure!(condition(&gate, "Open").0 == "True", "{}", gate.data["status"]);
            Ok(())
        })
        .await
    }

    /// How many writes of our objects' statuses the API server has accepted, and the bytes of their bodies.
    pub(crate) async fn writes(&self) -> Result<(u64, u64)> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let client = self.api.client();
        let text = client.request_text(request).await.context("reading the API server's metrics")?;
        let ours = |line: &&str| {
            ["fleetpackages", "rolloutgates"].iter().any(|r| line.contains(&format!("resource=\"{r}\"")))
                && ["PATCH", "APPLY", "patch", "apply"]
                    .iter()
                    .any(|v| line.contains(&format!("verb=\"{v}\"")))
        };
        let sum = |name: &str| -> u64 {
            let samples = text.lines().filter(|line| line.starts_with(name)).filter(ours);
            samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64
        };
        Ok((sum("apiserver_request_body_size_bytes_count{"), sum("apiserver_request_body_size_bytes_sum{")))
    }
}

impl Running {
    /// The process.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.aggregator.process().pid().context("the aggregator does not run")
    }

    /// What it has used and done so far; None while it does not answer yet.
    pub(crate) async fn account(&self, http: &reqwest::Client) -> Result<Option<Account>> {
        self.aggregator.process().ensure_running()?;
        let url = format!("http://{}/metrics", self.aggregator.address());
        let Ok(answer) = http.get(url).send().await else { return Ok(None) };
        let page = answer.text().await?;
        let samples: BTreeMap<&str, f64> = page
            .lines()
            .filter_map(|line| line.strip_prefix("statusbridge_aggregator_")?.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let sample = |name: &str| samples.get(name).copied().unwrap_or_default() as u64;
        let of_all = |prefix: &str, label: &str| {
            let all = samples.iter().filter(|(name, _)| name.starts_with(prefix) && name.contains(label));
            all.map(|(_, value)| *value).sum::<f64>() as u64
        };
        Ok(Some(Account {
            processor: usage::processor(self.pid()?)?,
            polls: sample("polls_total{result=\"success\"}"),
            bytes: sample("poll_bytes_total"),
            verified: sample("streams{state=\"verified\"}"),
            reread: sample("streams_reread_total"),
            writes: of_all("hub_writes_total{", "result=\"done\""),
            pending: sample("pending_writes"),
        }))
    }

    /// Waits until what it has used and done is as wanted.
    pub(crate) async fn wait(
        &self,
        what: &str,
        deadline: Duration,
        done: impl FnMut(&Account) -> bool,
    ) -> Result<Account> {
        self.look_every(Duration::from_millis(100), what, deadline, done).await
    }

    async fn look_every(
        &self,
        pause: Duration,
        what: &str,
        deadline: Duration,
        mut done: impl FnMut(&Account) -> bool,
    ) -> Result<Account> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        statusbridge_tests::eventually(deadline, what, async || {
            tokio::time::sleep(pause).await;
            let account = self.account(&http).await?.context("it does not answer yet")?;
            ensure!(done(&account), "{account:?}");
            Ok(account)
        })
        .await
        .inspect_err(|_| self.aggregator.process().rig().mark_failed())
    }

    /// Waits until so many polls more have ended. A look has all metrics rendered, several milliseconds' work with
    /// many objects, which is not what is measured: so there are few.
    pub(crate) async fn polls(&self, more: u64) -> Result<Account> {
        let mut until = None;
        let pause = if more == 0 { Duration::ZERO } else { Duration::from_secs(2) };
        self.look_every(pause, "polls end", Duration::from_secs(60 * (more + 2)), |account| {
            account.polls >= *until.get_or_insert(account.polls + more)
        })
        .await
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

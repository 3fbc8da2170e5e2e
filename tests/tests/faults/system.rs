//! The whole of it on real servers, with a proxy on every connection:
//!
//! ```text
//!   etcd ─ API server ◀─╳─ exporter ◀─╳─┐                              ┌─╳─ aggregator a ─╳─┐
//!        ╲ API server ◀─╳─ exporter ◀─╳─┴ Prometheus (─╳▶ store) ◀────┴─╳─ aggregator b ─╳─┴▶ API server ─ etcd
//!                                                                              sweeper ─╳─────▶
//! ```
//!
//! Or exporters push, and there is neither Prometheus nor store: each has a proxy that leads it to the replicas in turn.

use crate::faults::admissions;
use crate::faults::check::{self, ReceiptLog, Rules};
use crate::faults::fault::{DELAY, Fault, How, Place, Transport};
use crate::faults::record::Recorder;
use crate::faults::timeline::{
    GATES as OF_GATES, Move, SLICES, Seconds, Timeline, Trouble, Truth, Version, now,
};
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use sha2::{Digest, Sha256};
use statusbridge_api::FleetRollout;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::{Fault as Network, *};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Name of the package, and of its FleetPackage.
const APP: &str = "app";
/// Names of the workload clusters.
pub(crate) const CLUSTERS: [&str; 2] = ["c1", "c2"];
/// Identities of the replicas of the aggregator.
const REPLICAS: [&str; 2] = ["a", "b"];
/// The gates: their clusters, how many of them they need, and for how many seconds.
const GATES: [(&str, &[&str], usize, u64); 5] = [
    ("c1", &["c1"], 1, 0),
    ("c2", &["c2"], 1, 0),
    ("both", &["c1", "c2"], 2, 0),
    ("either", &["c1", "c2"], 1, 0),
    ("soaked", &["c1", "c2"], 2, 8),
];

const CONTACT_TIMEOUT: u64 = 4;
const HEARTBEAT_TIMEOUT: u64 = 6;
const LEASE_DURATION: u64 = 12;
const RETRY_PERIOD: u64 = 1;
const BACKEND_TIMEOUT: u64 = 2;

impl Transport {
    /// Remote write takes its time; what is pushed is there.
    const fn settle_delay(self) -> u64 {
        match self {
            Self::Prometheus => 1,
            Self::VictoriaMetrics => 3,
            Self::Push => 0,
        }
    }

    /// Four scrape intervals and the settle delay at least.
    const fn stale_after(self) -> u64 {
        match self {
            Self::Prometheus | Self::Push => 6,
            Self::VictoriaMetrics => 9,
        }
    }
}

/// The revision of this number.
pub(crate) fn revision(number: u32) -> String {
    let digits: String =
        Sha256::digest(number.to_string()).iter().take(20).map(|b| format!("{b:02x}")).collect();
    format!("main@sha1:{digits}")
}

struct Cluster {
    workload: Arc<Workload>,
    clock: WallClock,
    to_api: FaultProxy,
    /// Of what its exporter says: scrapes of it, or its pushes.
    metrics: FaultProxy,
    goal: watch::Sender<Option<Truth>>,
    mover: Mutex<JoinHandle<()>>,
}

struct Replica {
    aggregator: Aggregator,
    clock: WallClock,
    to_hub: FaultProxy,
    to_backend: Option<FaultProxy>,
}

type Log = Arc<Mutex<Timeline>>;

/// What the clusters' etcd goes back to.
#[derive(Debug)]
struct Saved {
    data: PathBuf,
    /// What was true then, of each cluster.
    truths: Vec<Truth>,
    /// How many were there before.
    number: usize,
}

/// The system, and what has happened to it.
pub(crate) struct System {
    clusters: Vec<Cluster>,
    workload_etcd: Etcd,
    saved: Mutex<Saved>,
    prometheus: Option<Prometheus>,
    store: Option<(VictoriaMetrics, FaultProxy)>,
    hub: ApiServer,
    hub_etcd: Etcd,
    replicas: Vec<Replica>,
    sweeper: Sweeper,
    sweeper_to_hub: FaultProxy,
    transport: Transport,
    rules: Rules,
    log: Log,
    recorder: Recorder,
    stalls: JoinHandle<()>,
    active: Mutex<BTreeMap<Place, (How, usize)>>,
    pub(crate) started: Seconds,
}

impl System {
    /// Starts all of it; nothing runs in the clusters yet, and there are no gates.
    pub(crate) async fn start(rig: &Rig, transport: Transport) -> Result<Self> {
        let started = now();
        let log = Log::default();
        let (workload_etcd, hub_etcd) = (Etcd::start(rig).await?, Etcd::start(rig).await?);
        let doors = [Port::reserve()?, Port::reserve()?];
        let addresses = doors.each_ref().map(Port::address);
        let mut clusters = Vec::new();
        for name in CLUSTERS {
            let pushes = match transport {
                Transport::Push => Some(FaultProxy::balance(rig, &addresses).await?),
                Transport::Prometheus | Transport::VictoriaMetrics => None,
            };
            clusters.push(Cluster::start(rig, &workload_etcd, name, &log, pushes).await?);
        }
        workload_etcd.stop();
        let saved = Saved {
            data: workload_etcd.save("saved-0")?,
            truths: vec![Truth::New; CLUSTERS.len()],
            number: 0,
        };
        workload_etcd.start_again().await?;
        let job = clusters.iter().fold(ScrapeJob::new("statusbridge"), |job, cluster| {
            job.target(cluster.metrics.address(), &[("cluster", cluster.workload.name())])
        });
        let mut config = PrometheusConfig::with_jobs([job]);
        let store = match transport {
            Transport::Prometheus | Transport::Push => None,
            Transport::VictoriaMetrics => {
                let store = VictoriaMetrics::start(rig).await?;
                let connection = FaultProxy::start(rig, store.address()).await?;
                config.remote_write.push(format!("{}/api/v1/write", connection.url()));
                Some((store, connection))
            }
        };
        let prometheus = match transport {
            Transport::Prometheus | Transport::VictoriaMetrics => {
                Some(Prometheus::start(rig, &config).await?)
            }
            Transport::Push => None,
        };
        let queried =
            store.as_ref().map(|(store, _)| store.address()).or(prometheus.as_ref().map(Prometheus::address));
        let hub = ApiServer::start(rig, &hub_etcd, "hub").await?;
        let accounts = hub::install(&hub).await?;
        let mut replicas = Vec::new();
        for (name, door) in REPLICAS.into_iter().zip(doors) {
            let to_hub = FaultProxy::start(rig, hub.address()).await?;
            let to_backend = match queried {
                Some(address) => Some(FaultProxy::start(rig, address).await?),
                None => None,
            };
            let account = hub.via(&accounts.aggregator, to_hub.address())?;
            let mut options = match &to_backend {
                Some(connection) => querying(transport, connection),
                None => taking_pushes(rig, name, &door)?,
            };
            hub::LEASES.clone_into(&mut options.namespace);
            options.more.extend(in_turn(name));
            let name = format!("aggregator-{name}");
            let clock = WallClock::of(rig, &name)?;
            let aggregator = Aggregator::start(rig, &name, &account, &options).await?;
            replicas.push(Replica { aggregator, clock, to_hub, to_backend });
        }
        let sweeper_to_hub = FaultProxy::start(rig, hub.address()).await?;
        let account = hub.via(&accounts.sweeper, sweeper_to_hub.address())?;
        let timeout = format!("{HEARTBEAT_TIMEOUT}s");
        let more = ["--heartbeat-timeout", &timeout];
        let sweeper = Sweeper::start(rig, "sweeper", &account, hub::LEASES, &more).await?;
        let recorder = Recorder::start(&hub_etcd, "/registry-hub/statusbridge.dev/", Arc::clone(&log))?;
        let stalls = tokio::spawn(measure_stalls(Arc::clone(&log)));
        let (rules, active) = (rules(transport), Mutex::default());
        Ok(Self {
            clusters,
            workload_etcd,
            saved: Mutex::new(saved),
            prometheus,
            store,
            hub,
            hub_etcd,
            replicas,
            sweeper,
            sweeper_to_hub,
            transport,
            rules,
            log,
            recorder,
            stalls,
            active,
            started,
        })
    }

    fn log(&self) -> MutexGuard<'_, Timeline> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<Place, (How, usize)>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        self.log().notes.push((now(), text.into()));
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) const fn transport(&self) -> Transport {
        self.transport
    }

    /// Every fault that there can be.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let places = Place::all(CLUSTERS.len(), REPLICAS.len(), self.transport);
        places
            .into_iter()
            .flat_map(|place| place.ways().iter().map(move |how| Fault { place, how: *how }))
            .collect()
    }

    /// Makes the FleetPackage, or leaves it as it is.
    pub(crate) async fn report(&self) -> Result<()> {
        let package = json!({"source": SOURCE, "namespace": FLUX_NAMESPACE, "name": APP});
        let stale_after = format!("{}s", self.transport.stale_after());
        // One gate is content with either of two clusters.
        let spec = json!({"package": package, "staleAfter": stale_after, "minObserved": 1});
        self.apply("FleetPackage", APP, spec).await
    }

    /// From now on all gates ask for this revision.
    pub(crate) async fn ask_for(&self, revision: &str) -> Result<()> {
        self.note(format!("gates ask for {revision}"));
        for (name, clusters, need, soak) in GATES {
            let spec = json!({
                "fleetPackageRef": {"name": APP}, "revision": revision, "clusters": {"names": clusters},
                "minHealthy": need, "maxFailures": clusters.len() - need, "minSuccessTime": format!("{soak}s"),
            });
            self.apply("RolloutGate", name, spec).await?;
        }
        Ok(())
    }

    /// A plan in so many waves, a cluster in each; any other plan is given up.
    pub(crate) async fn plan(&self, name: &str, revision: &str, waves: usize) -> Result<()> {
        self.note(format!("{name} rolls {revision} out in {waves} waves"));
        let rollouts = Api::<FleetRollout>::namespaced(self.hub.client(), "default");
        let others = ListParams::default().fields(&format!("metadata.name!={name}"));
        rollouts.delete_collection(&DeleteParams::default(), &others).await?;
        let wave =
            |cluster: &&str| json!({"name": format!("of-{cluster}"), "clusters": {"names": [cluster]}});
        let waves: Vec<_> = CLUSTERS.iter().take(waves).map(wave).collect();
        let spec = json!({"fleetPackageRef": {"name": APP}, "revision": revision, "waves": waves});
        self.apply("FleetRollout", name, spec).await
    }

    /// Waits until a plan has let every cluster have the revision.
    pub(crate) async fn is_admitted(&self, plan: &str, revision: &str, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("{plan} has admitted all clusters"), async || {
            self.revive()?;
            let log = self.log();
            let slices = log.versions.iter().filter(|it| it.resource == SLICES);
            let last: BTreeMap<&str, &Version> = slices
                .filter(|it| admissions::plan_of(it) == plan)
                .map(|it| (it.name.as_str(), it))
                .collect();
            let rows: BTreeSet<(&str, &str)> =
                last.values().flat_map(|it| it.rows()).map(|(cluster, at, _)| (cluster, at)).collect();
            let missing: Vec<_> = CLUSTERS.iter().filter(|it| !rows.contains(&(**it, revision))).collect();
            ensure!(missing.is_empty(), "{missing:?} of {rows:?}");
            Ok(())
        })
        .await
    }

    async fn apply(&self, kind: &str, name: &str, spec: serde_json::Value) -> Result<()> {
        let object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        self.hub.apply_object(&object).await.map(drop)
    }

    /// From now on this is to be true of a cluster. It becomes so when its API server takes it.
    pub(crate) fn becomes(&self, cluster: usize, truth: Truth) {
        self.clusters[cluster].goal.send_replace(Some(truth));
    }

    /// Waits until what was to become true is true.
    pub(crate) async fn is_so(&self, deadline: Duration) -> Result<()> {
        eventually(deadline, "what was to become true is true", async || {
            let log = self.log();
            for cluster in &self.clusters {
                let name = cluster.workload.name();
                let last = log.moves.iter().rev().find(|it| it.cluster == name);
                let is = last.filter(|it| it.until.is_finite()).map(|it| &it.truth);
                let goal = cluster.goal.borrow();
                ensure!(is == goal.as_ref(), "{name} is {is:?}, to become {goal:?}");
            }
            Ok(())
        })
        .await
    }

    /// Which replica leads.
    pub(crate) async fn leader(&self) -> Result<usize> {
        let leases = Api::<Lease>::namespaced(self.hub.client(), hub::LEASES);
        let lease = leases.get("statusbridge-aggregator-leader").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).context("nobody leads")?;
        let name = holder.split('_').next().unwrap_or_default();
        REPLICAS.iter().position(|it| *it == name).with_context(|| format!("{name} leads"))
    }

    /// Makes a fault. On a connection it takes the place of the one that is there: what was cut comes back slowly. Says
    /// whether anything was done: what happens to a process has to end first.
    pub(crate) fn begin(&self, fault: Fault) -> Result<bool> {
        let before = self.active().get(&fault.place).copied();
        match before {
            Some((how, _)) if how == fault.how || fault.on_the_network().is_none() => return Ok(false),
            _ if self.waits(fault) => return Ok(false),
            Some((_, index)) => self.log().troubles[index].until = now(),
            None => {}
        }
        let index = {
            let mut log = self.log();
            let (from, until) = (now(), Seconds::INFINITY);
            let (what, part, holds_back) = (fault.to_string(), fault.place.part(), fault.holds_back());
            log.troubles.push(Trouble { what, part, holds_back, from, until });
            log.troubles.len() - 1
        };
        self.active().insert(fault.place, (fault.how, index));
        match (fault.on_the_network(), fault.how) {
            (Some(how), _) => self.proxy(fault.place)?.set(how),
            (None, How::Frozen) => self.process(fault.place)?.freeze()?,
            (None, How::Clock(ahead)) => self.clock(fault.place)?.set(ahead.into())?,
            (None, How::Restored) => self.restore()?,
            (None, _) => self.process(fault.place)?.kill(),
        }
        Ok(true)
    }

    /// Waits until something is remembered that is repeated by this fault, if it repeats what exporters said.
    pub(crate) async fn remembers(&self, fault: Fault) -> Result<()> {
        if !matches!(fault.place, Place::PrometheusToExporter(_) | Place::ExporterToAggregator(_))
            || !matches!(fault.how, How::OldAnswers | How::OldRequests)
        {
            return Ok(());
        }
        let proxy = self.proxy(fault.place)?;
        eventually(SOON, &format!("{fault} has something to repeat"), async || {
            ensure!(proxy.remembers(), "nothing has passed");
            Ok(())
        })
        .await
    }

    /// Ends the fault at a place, if there is one.
    pub(crate) fn end(&self, place: Place) -> Result<()> {
        let Some((how, index)) = self.active().get(&place).copied() else { return Ok(()) };
        match how {
            How::Killed => self.process(place)?.start()?,
            How::Frozen => self.process(place)?.thaw()?,
            How::Clock(_) => self.clock(place)?.set(0)?,
            How::Restored => self.goes_on()?,
            _ => self.proxy(place)?.set(Network::Pass),
        }
        self.log().troubles[index].until = now();
        self.active().remove(&place);
        Ok(())
    }

    /// Etcd and its API servers stop; it gets the data of the last time, and what it held is kept for the next.
    fn restore(&self) -> Result<()> {
        for cluster in &self.clusters {
            cluster.workload.api.stop();
        }
        self.workload_etcd.stop();
        // What was on its way to an API server ended with it.
        let now_true = self.clusters.iter().map(|cluster| {
            cluster.mover().abort();
            let log = self.log();
            let of_it =
                log.moves.iter().filter(|it| it.cluster == cluster.workload.name() && it.until.is_finite());
            of_it.last().map_or(Truth::New, |it| it.truth.clone())
        });
        let truths = now_true.collect();
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let number = saved.number + 1;
        let next = Saved { data: self.workload_etcd.save(&format!("saved-{number}"))?, truths, number };
        self.workload_etcd.restore(&saved.data)?;
        let before = std::mem::replace(&mut *saved, next);
        std::fs::remove_dir_all(before.data)?;
        for (cluster, truth) in self.clusters.iter().zip(before.truths) {
            let (cluster, from) = (cluster.workload.name().to_owned(), now());
            self.log().moves.push(Move { cluster, truth, from, until: from });
        }
        Ok(())
    }

    /// After [`Self::restore`]; the clusters' controllers come back, too.
    fn goes_on(&self) -> Result<()> {
        self.workload_etcd.process().start()?;
        for cluster in &self.clusters {
            cluster.workload.api.process().start()?;
            let mut goals = cluster.goal.subscribe();
            goals.mark_changed();
            *cluster.mover() =
                tokio::spawn(keep_moving(Arc::clone(&cluster.workload), goals, Arc::clone(&self.log)));
        }
        Ok(())
    }

    fn is_restored(&self) -> bool {
        self.active().get(&Place::WorkloadEtcd).is_some_and(|(how, _)| *how == How::Restored)
    }

    /// Whether a fault has to wait: while etcd is restored its API servers are away, and nothing else happens to them.
    fn waits(&self, fault: Fault) -> bool {
        let is_api = |place: &Place| matches!(place, Place::WorkloadApi(_));
        match fault.how {
            How::Restored => self.active().keys().any(is_api),
            _ => is_api(&fault.place) && self.is_restored(),
        }
    }

    fn clock(&self, place: Place) -> Result<&WallClock> {
        match place {
            Place::Exporter(i) => Ok(&self.clusters[i].clock),
            Place::Aggregator(i) => Ok(&self.replicas[i].clock),
            _ => bail!("nobody sets the clock of {place:?}"),
        }
    }

    /// Where there are faults now.
    pub(crate) fn troubled(&self) -> Vec<Place> {
        self.active().keys().copied().collect()
    }

    /// Ends all faults.
    pub(crate) fn end_all(&self) -> Result<()> {
        self.troubled().into_iter().try_for_each(|place| self.end(place))
    }

    /// Starts again what has ended by itself, as whoever runs it would.
    pub(crate) fn revive(&self) -> Result<()> {
        let troubled: BTreeSet<Place> = self.troubled().into_iter().collect();
        for place in Place::all(CLUSTERS.len(), REPLICAS.len(), self.transport) {
            let Ok(process) = self.process(place) else { continue };
            let is_away = matches!(place, Place::WorkloadApi(_)) && self.is_restored();
            if troubled.contains(&place) || is_away {
                continue;
            }
            if let Err(ended) = process.ensure_running() {
                let first = format!("{ended:#}").lines().next().unwrap_or_default().to_owned();
                self.note(format!("started again: {first}"));
                process.start()?;
            }
        }
        Ok(())
    }

    fn process(&self, place: Place) -> Result<&Process> {
        Ok(match place {
            Place::Exporter(i) => self.clusters[i].workload.exporter.process(),
            Place::WorkloadApi(i) => self.clusters[i].workload.api.process(),
            Place::WorkloadEtcd => self.workload_etcd.process(),
            Place::Prometheus => self.prometheus.as_ref().context("no Prometheus")?.process(),
            Place::Store => self.store.as_ref().context("no store")?.0.process(),
            Place::Aggregator(i) => self.replicas[i].aggregator.process(),
            Place::Sweeper => self.sweeper.process(),
            Place::HubApi => self.hub.process(),
            Place::HubEtcd => self.hub_etcd.process(),
            _ => bail!("{place:?} is no process"),
        })
    }

    fn proxy(&self, place: Place) -> Result<&FaultProxy> {
        Ok(match place {
            Place::ExporterToApi(i) => &self.clusters[i].to_api,
            Place::PrometheusToExporter(i) | Place::ExporterToAggregator(i) => &self.clusters[i].metrics,
            Place::PrometheusToStore => &self.store.as_ref().context("no store")?.1,
            Place::AggregatorToBackend(i) => self.replicas[i].to_backend.as_ref().context("no backend")?,
            Place::AggregatorToHub(i) => &self.replicas[i].to_hub,
            Place::SweeperToHub => &self.sweeper_to_hub,
            _ => bail!("{place:?} is no connection"),
        })
    }

    /// Waits until these gates are all open, or all closed, as far as was recorded.
    pub(crate) async fn are(&self, gates: &[&str], open: bool, deadline: Duration) -> Result<()> {
        let what = format!("{gates:?} are {}", if open { "open" } else { "closed" });
        eventually(deadline, &what, async || {
            self.revive()?;
            let log = self.log();
            for gate in gates {
                let last = log.versions.iter().rev().find(|it| it.resource == OF_GATES && it.name == *gate);
                let last = last.with_context(|| format!("there is no gate {gate}"))?;
                ensure!(last.is_open() == open, "{gate}: {}", last.object["status"]);
            }
            Ok(())
        })
        .await
    }

    /// Names of all gates.
    pub(crate) fn gates() -> Vec<&'static str> {
        GATES.iter().map(|(name, ..)| *name).collect()
    }

    /// Names of the gates that wait for no soak.
    pub(crate) fn quick_gates() -> Vec<&'static str> {
        GATES.iter().filter(|(.., soak)| *soak == 0).map(|(name, ..)| *name).collect()
    }

    /// Holds everything so far against the promise. What breaks it is told with what happened around it.
    ///
    /// # Errors
    /// When it is broken, or nobody knows.
    pub(crate) async fn check(&self) -> Result<ReceiptLog> {
        let at = now();
        self.recorder.has_all().await?;
        // The check takes a while, and the recorder has to note what happens meanwhile.
        let timeline = self.log().clone();
        let (mut violations, mut tally) = check::check(&timeline, &self.rules, at);
        violations.extend(admissions::check(&timeline, &self.rules, &mut tally));
        let Some(first) = violations.first() else { return Ok(tally) };
        let told = timeline.tell(self.started, first.at - 90.0);
        let all: Vec<String> =
            violations.iter().map(|it| format!("at {:.3}: {}", it.at - self.started, it.what)).collect();
        bail!("the promise is broken {} times:\n{}\n{told}", all.len(), all.join("\n"))
    }

    /// What happened lately, for a failure.
    pub(crate) fn tell(&self) -> String {
        self.log().tell(self.started, now() - 120.0)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.stalls.abort();
        self.clusters.iter().for_each(|cluster| cluster.mover().abort());
    }
}

impl Cluster {
    /// Its exporter is scraped, unless it has a way for its pushes.
    async fn start(
        rig: &Rig,
        etcd: &Etcd,
        name: &str,
        log: &Log,
        pushes: Option<FaultProxy>,
    ) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, name).await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let to_api = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(to_api.address())?;
        let mut more = vec!["--contact-timeout".to_owned(), format!("{CONTACT_TIMEOUT}s")];
        if let Some(way) = &pushes {
            let token = rig.file(&format!("{name}.token"), token(name))?;
            let url = format!("{}/v1alpha1/push", way.url());
            let file = token.display().to_string();
            let flags =
                [("--push-url", url), ("--push-token-file", file), ("--push-interval", "1s".to_owned())];
            more.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        }
        let name = format!("exporter-{name}");
        let clock = WallClock::of(rig, &name)?;
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let exporter = Exporter::start(rig, &name, &kubeconfig, &more).await?;
        let metrics = match pushes {
            Some(way) => way,
            None => FaultProxy::start(rig, exporter.address()).await?,
        };
        let workload = Arc::new(Workload::of(api, exporter).await?);
        workload.create(APP).await?;
        let (goal, goals) = watch::channel(None);
        let mover = Mutex::new(tokio::spawn(keep_moving(Arc::clone(&workload), goals, Arc::clone(log))));
        Ok(Self { workload, clock, to_api, metrics, goal, mover })
    }

    fn mover(&self) -> MutexGuard<'_, JoinHandle<()>> {
        self.mover.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what is to become true, as the cluster's own controllers would: until the API server has taken it.
async fn keep_moving(workload: Arc<Workload>, mut goals: watch::Receiver<Option<Truth>>, log: Log) {
    let lock = || log.lock().unwrap_or_else(PoisonError::into_inner);
    while goals.changed().await.is_ok() {
        let Some(truth) = goals.borrow_and_update().clone() else { continue };
        let index = {
            let (cluster, truth) = (workload.name().to_owned(), truth.clone());
            let mut log = lock();
            log.moves.push(Move { cluster, truth, from: now(), until: Seconds::INFINITY });
            log.moves.len() - 1
        };
        // It must be known when it has come true, so an attempt is never given up while it might still succeed.
        while let Err(error) = write(&workload, &truth).await {
            tracing::debug!(%error, "not yet");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        lock().moves[index].until = now();
    }
}

async fn write(workload: &Workload, truth: &Truth) -> Result<()> {
    let (revision, status) = match truth {
        Truth::Healthy(revision) => (revision, workload::delivered(revision)),
        Truth::Failed(revision) => (revision, workload::failed(revision, "deployment/app is not ready")),
        Truth::New => bail!("nothing becomes new but by going back in time"),
    };
    workload.want(APP, revision).await?;
    workload.set_status(APP, status).await
}

/// Notes how late this process's own timers are: the programs under test are so too.
async fn measure_stalls(log: Log) {
    let step = Duration::from_millis(200);
    loop {
        let before = now();
        tokio::time::sleep(step).await;
        let late = now() - before - step.as_secs_f64();
        if late > 0.3 {
            log.lock().unwrap_or_else(PoisonError::into_inner).stalls.push((now(), late));
        }
    }
}

/// What a cluster's exporter shows when it pushes.
fn token(cluster: &str) -> String {
    format!("the token of {cluster}")
}

/// Options of an aggregator that queries.
fn querying(transport: Transport, connection: &FaultProxy) -> AggregatorOptions {
    let mut options = AggregatorOptions::new(connection.url());
    let (flavour, settle_delay) = match transport {
        Transport::VictoriaMetrics => ("victoriametrics", "3s"),
        Transport::Prometheus | Transport::Push => ("prometheus", "1s"),
    };
    options.settle_delay = settle_delay;
    let timeout = format!("{BACKEND_TIMEOUT}s");
    let more = ["--backend-flavour", flavour, "--backend-timeout", &timeout];
    options.more = more.map(str::to_owned).to_vec();
    options
}

/// Options of an aggregator that exporters push to here.
fn taking_pushes(rig: &Rig, name: &str, door: &Port) -> Result<AggregatorOptions> {
    let tokens = json!(CLUSTERS.map(|cluster| token_entry(cluster, &token(cluster))));
    let tokens = rig.file("tokens.yaml", tokens.to_string())?;
    let push = json!({"listen": door.address(), "insecure": true, "tokensFile": tokens});
    AggregatorOptions::configured(rig, &format!("replica-{name}"), &json!({"feeds": {"push": push}}))
}

/// Arguments of a replica that leads when it is its turn.
fn in_turn(name: &str) -> impl Iterator<Item = String> {
    let seconds = |seconds: u64| format!("{seconds}s");
    let more = [
        ("--identity", name.to_owned()),
        ("--leader-elect-lease-duration", seconds(LEASE_DURATION)),
        ("--leader-elect-renew-deadline", seconds(LEASE_DURATION / 2)),
        ("--leader-elect-retry-period", seconds(RETRY_PERIOD)),
    ];
    more.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value])
}

fn rules(transport: Transport) -> Rules {
    let seconds = |seconds: u64| seconds as Seconds;
    let unanswered = if transport == Transport::Push { 0 } else { 2 * BACKEND_TIMEOUT };
    Rules {
        stale_after: seconds(transport.stale_after()),
        settle_delay: seconds(transport.settle_delay()),
        contact_timeout: seconds(CONTACT_TIMEOUT),
        heartbeat_timeout: seconds(HEARTBEAT_TIMEOUT),
        sweep_period: seconds(HEARTBEAT_TIMEOUT) / 10.0,
        // The lease, two tries, and a poll whose queries are not answered.
        takeover: seconds(LEASE_DURATION + 2 * RETRY_PERIOD + unanswered),
        call_timeout: 10.0,
        network_delay: 2.0 * DELAY.as_secs_f64(),
        slack: 2.0,
    }
}

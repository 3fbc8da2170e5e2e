//! Clusters, backend, aggregators and hub, second by second.

use futures::executor::block_on;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event as WatchEvent;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;

use super::backend::{Backend, SHARDS};
use super::cluster::Cluster;
use super::story::{Event, Setup, Story};
use super::{CLUSTER_LABEL, PACKAGE, POLL_INTERVAL, START};
use crate::clock::Seconds;
use crate::decide::conditions::{OPEN, is_true};
use crate::decide::{self, Moment, silence};
use crate::fleet::{Fleet, FleetSettings};
use crate::judge::{GateObject, Gates, Packages};
use crate::poll::{PollConfig, Poller};
use crate::store::Object;
use crate::testing::{Surroundings, package};

/// `staleAfter` of the package.
const STALE_AFTER: Seconds = 75.0;
/// How old the heartbeat gets before the sweeper closes gates, and how often it looks.
const SWEEP_AFTER: Seconds = 60.0;
const SWEEP_EVERY: u64 = 5;
/// A call to the hub takes no longer.
pub(super) const CALL: Seconds = 10.0;
/// Longest settle delay, see [`PollConfig`].
const SETTLE: Seconds = 30.0;

/// Names of the revisions.
pub(super) fn revision(number: u8) -> String {
    format!("r{number}")
}

/// The gate as the hub has it.
struct Gate {
    version: u64,
    generation: i64,
    spec: Value,
    status: Value,
}

/// One aggregator process.
struct Aggregator {
    fleet: Fleet,
    poller: Poller<Backend>,
    /// Why the last poll failed; `Err` as long as none was good.
    last_poll: Option<Result<Option<String>, String>>,
    frozen_until: Seconds,
    next_poll: Seconds,
    /// A write on its way: what it is based on, what it says, when it lands.
    writing: Option<(u64, Value, Seconds)>,
    beat_due: bool,
}

/// All of it.
pub(super) struct World {
    setup: Setup,
    now: Seconds,
    clusters: Vec<Cluster>,
    impostor: Cluster,
    backend: Backend,
    aggregator: Option<Aggregator>,
    takeover_at: Seconds,
    gate: Gate,
    /// The gate as it was read at a version.
    read: Option<(u64, GateObject)>,
    /// One gate, which neither depends on others nor has checks.
    around: Surroundings,
    heartbeat: Seconds,
    /// What is still to become true: when, in which cluster, for which delivery.
    pending: Vec<(Seconds, usize, u32, Step)>,
    deliveries: Vec<u32>,
    write_takes: Seconds,
    /// Until when some samples arrived late.
    lagging_until: Seconds,
    /// Until when the aggregator was away last.
    unwatched_until: Seconds,
}

#[derive(Clone, Copy)]
enum Step {
    Applied,
    Well,
    Fails,
    Heals,
}

impl World {
    fn new(setup: &Setup) -> Self {
        let cluster = |n: usize| {
            let mut cluster = Cluster::new(n, START, setup.dated[n], setup.replicas);
            cluster.skew = f64::from(setup.ahead[n]);
            cluster
        };
        let clusters: Vec<Cluster> = (0..setup.dated.len()).map(cluster).collect();
        let mut impostor = Cluster::new(97, START, true, setup.replicas);
        impostor.name.clone_from(&clusters[0].name);
        impostor.unscraped_until = f64::MAX;
        let names: Vec<&str> = clusters.iter().map(|c| c.name.as_str()).collect();
        let spec = json!({
            "fleetPackageRef": {"name": PACKAGE},
            "revision": revision(1),
            "clusters": {"names": names},
            "maxFailures": setup.max_failures,
            "minHealthy": setup.min_healthy,
            "minSuccessTime": format!("{}s", setup.min_success),
        });
        Self {
            setup: setup.clone(),
            now: START,
            deliveries: vec![0; clusters.len()],
            clusters,
            impostor,
            backend: Backend::default(),
            aggregator: None,
            takeover_at: START,
            gate: Gate { version: 1, generation: 1, spec, status: json!({"observedGeneration": -1}) },
            read: None,
            around: Surroundings { packages: packages(), ..Surroundings::default() },
            heartbeat: START,
            pending: Vec::new(),
            write_takes: 0.0,
            lagging_until: START,
            unwatched_until: START,
        }
    }

    /// Plays a story to its end; `Err` says which promise was broken when.
    pub(super) fn play(story: &Story) -> Result<(), String> {
        let mut world = Self::new(&story.setup);
        let mut events = story.events.clone();
        events.sort_by_key(|(at, _)| *at);
        let mut events = events.into_iter().peekable();
        for second in 0..story.length() {
            while let Some((_, event)) = events.next_if(|(at, _)| u64::from(*at) <= second) {
                world.happens(event);
            }
            world.second();
            world.no_lie()?;
        }
        world.quiet()
    }

    /// When all faults are over and every cluster is healthy at the gate's revision, it opens.
    fn quiet(&mut self) -> Result<(), String> {
        self.backend.fault(|faults| *faults = Default::default());
        self.impostor.unscraped_until = f64::MAX;
        self.write_takes = 0.0;
        self.pending.clear();
        let wanted = self.wanted();
        for cluster in &mut self.clusters {
            (cluster.away_until, cluster.unscraped_until) = (self.now, self.now);
            (cluster.repeated_until, cluster.cut_until) = (self.now, self.now);
            cluster.becomes(self.now, |t| {
                *t = super::cluster::Truth { desired: wanted, applied: wanted, well: true, failed: false };
            });
        }
        if let Some(aggregator) = &mut self.aggregator {
            aggregator.frozen_until = self.now;
        }
        self.takeover_at = self.takeover_at.min(self.now);
        // What was wrong has to go out of date, and samples that were sent late to arrive.
        let patience = f64::from(self.setup.min_success) + 2.0 * STALE_AFTER + 300.0;
        let end = self.now + patience;
        while self.now < end {
            self.second();
            self.no_lie()?;
            if self.open() {
                return Ok(());
            }
        }
        Err(format!("{} s after all was well: {}", patience, self.gate.status))
    }

    fn wanted(&self) -> Fingerprint {
        Fingerprint::of(self.gate.spec["revision"].as_str().expect("a revision"))
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        let n = self.clusters.len();
        match event {
            Event::Deliver { cluster, to, takes, good } => {
                let cluster = usize::from(cluster) % n;
                let revision = Fingerprint::of(&revision(to));
                self.deliveries[cluster] += 1;
                let delivery = self.deliveries[cluster];
                self.clusters[cluster].becomes(now, |t| t.desired = revision);
                let takes = f64::from(takes);
                self.pending.push((now + takes, cluster, delivery, Step::Applied));
                let end = if good { Step::Well } else { Step::Fails };
                self.pending.push((now + 2.0 * takes, cluster, delivery, end));
            }
            Event::Break { cluster, recovers } => {
                let cluster = usize::from(cluster) % n;
                let delivery = self.deliveries[cluster];
                self.clusters[cluster].becomes(now, |t| t.failed = true);
                if let Some(after) = recovers {
                    self.pending.push((now + f64::from(after), cluster, delivery, Step::Heals));
                }
            }
            Event::Restart { cluster, away, moves } => {
                self.clusters[usize::from(cluster) % n].restart(now, f64::from(away), moves);
            }
            Event::Unscraped { cluster, lasts } => {
                self.clusters[usize::from(cluster) % n].unscraped_until = now + f64::from(lasts);
            }
            Event::Repeated { cluster, lasts } => {
                self.clusters[usize::from(cluster) % n].repeated_until = now + f64::from(lasts);
            }
            Event::Cut { cluster, lasts } => {
                self.clusters[usize::from(cluster) % n].cut_until = now + f64::from(lasts);
            }
            Event::Impostor { revision: number, lasts } => {
                let revision = Fingerprint::of(&revision(number));
                self.impostor.becomes(now, |t| {
                    *t = super::cluster::Truth {
                        desired: revision,
                        applied: revision,
                        well: true,
                        failed: false,
                    };
                });
                self.impostor.unscraped_until = 0.0;
                self.pending.push((now + f64::from(lasts), usize::MAX, 0, Step::Fails));
            }
            Event::Lag { shard, delay, lasts } => {
                let (delay, end) = (f64::from(delay), now + f64::from(lasts));
                self.backend.fault(|faults| faults.lag[usize::from(shard) % SHARDS] = (delay, end));
                self.lagging_until = self.lagging_until.max(end + delay);
            }
            Event::LoseMarkers { lasts } => {
                self.backend.fault(|faults| faults.markers_lost = now + f64::from(lasts));
            }
            Event::Torn { cluster, lasts } => {
                let name = self.clusters[usize::from(cluster) % n].name.clone();
                self.backend.fault(|faults| {
                    faults.torn.insert(name, now + f64::from(lasts));
                });
            }
            Event::Forgotten { cluster, lasts } => {
                let name = self.clusters[usize::from(cluster) % n].name.clone();
                self.backend.fault(|faults| {
                    faults.forgotten.insert(name, now + f64::from(lasts));
                });
            }
            Event::Refused { lasts } => {
                self.backend.fault(|faults| faults.refuses = now + f64::from(lasts));
            }
            Event::Frozen { lasts } => {
                if let Some(aggregator) = &mut self.aggregator {
                    aggregator.frozen_until = now + f64::from(lasts);
                }
            }
            Event::Killed { away } => {
                // A request that was sent lands all the same.
                if let Some(writing) = self.aggregator.take().and_then(|it| it.writing) {
                    self.land(writing);
                }
                self.takeover_at = now + f64::from(away);
            }
            Event::SlowWrites { seconds } => self.write_takes = f64::from(seconds).min(CALL - 1.0),
            Event::Regate { to } => {
                self.gate.spec["revision"] = json!(revision(to));
                self.gate.generation += 1;
                self.gate.version += 1;
            }
        }
    }

    fn second(&mut self) {
        self.now += 1.0;
        let now = self.now;
        self.backend.set_now(now);
        let due: Vec<_> = self.pending.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, cluster, delivery, step) in due {
            if cluster == usize::MAX {
                self.impostor.unscraped_until = f64::MAX;
                continue;
            }
            let current = delivery == self.deliveries[cluster];
            self.clusters[cluster].becomes(now, |t| match step {
                Step::Applied if current => {
                    *t = super::cluster::Truth { applied: t.desired, well: false, failed: false, ..*t }
                }
                Step::Well if current => t.well = true,
                Step::Fails if current => t.failed = true,
                Step::Heals => t.failed = false,
                _ => {}
            });
        }
        for cluster in self.clusters.iter_mut().chain([&mut self.impostor]) {
            cluster.tick(now, &self.backend);
        }
        self.aggregate();
        // The sweeper sees the heartbeat as it was renewed.
        if (now as u64).is_multiple_of(SWEEP_EVERY) && now - self.heartbeat > SWEEP_AFTER {
            self.sweep();
        }
    }

    fn aggregate(&mut self) {
        let now = self.now;
        if self.aggregator.is_none() && now >= self.takeover_at {
            self.aggregator = Some(Aggregator {
                fleet: Fleet::new(FleetSettings::default()),
                poller: Poller::new(
                    PollConfig { cluster_label: CLUSTER_LABEL.into(), ..PollConfig::default() },
                    self.backend.clone(),
                ),
                last_poll: None,
                frozen_until: 0.0,
                next_poll: now,
                writing: None,
                beat_due: false,
            });
        }
        let Some(mut aggregator) = self.aggregator.take() else {
            self.unwatched_until = now;
            return;
        };
        if now >= aggregator.frozen_until {
            self.work(&mut aggregator);
        } else {
            self.unwatched_until = now;
            // What was sent before lands; nothing is sent.
            if let Some(writing) = aggregator.writing.take_if(|(_, _, lands)| now >= *lands) {
                self.land(writing);
            }
        }
        self.aggregator = Some(aggregator);
    }

    fn work(&mut self, aggregator: &mut Aggregator) {
        let now = self.now;
        if let Some(writing) = aggregator.writing.take_if(|(_, _, lands)| now >= *lands) {
            self.land(writing);
        }
        if now >= aggregator.next_poll {
            let t = now - aggregator.poller.settle_delay();
            let report = block_on(aggregator.poller.poll(&mut aggregator.fleet, t));
            let known = matches!(aggregator.last_poll, Some(Ok(_)));
            aggregator.last_poll = Some(match (report.error, known) {
                (None, _) => Ok(None),
                (Some(error), true) => Ok(Some(error)),
                (Some(error), false) => Err(error),
            });
            aggregator.next_poll = now + POLL_INTERVAL;
            aggregator.beat_due = true;
            if let Some(Ok(None)) = aggregator.last_poll {
                self.look_back(aggregator, t);
            }
        }
        let backend = match &aggregator.last_poll {
            None => return,
            Some(Ok(None)) => decide::Backend::Answers,
            Some(Ok(Some(error))) => decide::Backend::Fails(error),
            Some(Err(error)) => decide::Backend::Unknown(error),
        };
        if aggregator.writing.is_some() {
            return;
        }
        let moment = Moment { t: now - aggregator.poller.settle_delay(), now };
        self.reread();
        self.around.surveys.clear();
        let judge = self.around.world(&aggregator.fleet, backend, moment);
        match self.read.as_ref().and_then(|(_, gate)| judge.gate(gate)) {
            Some(status) => {
                let status = serde_json::to_value(status).expect("a status");
                let writing = (self.gate.version, status, now + self.write_takes);
                if self.write_takes == 0.0 {
                    self.land(writing);
                    self.beat(aggregator);
                } else {
                    aggregator.writing = Some(writing);
                }
            }
            None => self.beat(aggregator),
        }
    }

    /// Looks up what the gate has to know of a past that this aggregator did not watch.
    fn look_back(&mut self, aggregator: &mut Aggregator, t: Seconds) {
        let mut gates = Gates::default();
        gates.insert(self.object());
        let moment = Moment { t: self.now - aggregator.poller.settle_delay(), now: self.now };
        self.around.surveys.clear();
        let judge = self.around.world(&aggregator.fleet, decide::Backend::Answers, moment);
        let looks = judge.looks(&gates);
        // What is refused stays unknown, and is asked again after the next poll.
        let _ = block_on(aggregator.poller.look_back(&mut aggregator.fleet, looks, t));
    }

    fn beat(&mut self, aggregator: &mut Aggregator) {
        if std::mem::take(&mut aggregator.beat_due) {
            self.heartbeat = self.now;
        }
    }

    fn land(&mut self, (version, status, _): (u64, Value, Seconds)) {
        if version == self.gate.version {
            self.gate.version += 1;
            self.gate.status = status;
        }
    }

    fn sweep(&mut self) {
        self.reread();
        let Some((_, gate)) = &self.read else { return };
        let (Ok(spec), Some(status)) = (&gate.spec, &gate.status) else { return };
        if let Some(closed) = silence::close(Ok(spec), status, self.now) {
            self.gate.status = serde_json::to_value(closed).expect("a status");
            self.gate.version += 1;
        }
    }

    /// Reads the gate if it has another version than when it was read last.
    fn reread(&mut self) {
        if self.read.as_ref().is_some_and(|(version, _)| *version == self.gate.version) {
            return;
        }
        self.read = Some((self.gate.version, Object::read(self.object()).expect("a name")));
    }

    fn object(&self) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "statusbridge.dev/v1alpha1",
            "kind": "RolloutGate",
            "metadata": {
                "namespace": "fleet",
                "name": "gate",
                "uid": "1",
                "resourceVersion": self.gate.version.to_string(),
                "generation": self.gate.generation,
            },
            "spec": self.gate.spec,
            "status": self.gate.status,
        }))
        .expect("a gate")
    }

    /// Whether a reader who follows the rules is let through.
    fn open(&mut self) -> bool {
        self.reread();
        let status = self.read.as_ref().and_then(|(_, gate)| gate.status.as_ref());
        status.is_some_and(|status| {
            status.observed_generation == Some(self.gate.generation) && is_true(&status.conditions, OPEN)
        })
    }

    /// The promise: an open gate has the clusters behind it that it asks for.
    fn no_lie(&mut self) -> Result<(), String> {
        if !self.open() {
            return Ok(());
        }
        // A verdict is good for as long as its evidence, and for what it takes to notice and to write.
        let mut window = STALE_AFTER + SETTLE + POLL_INTERVAL + 2.0 * CALL;
        if self.now - self.unwatched_until < SWEEP_AFTER + window {
            window += SWEEP_AFTER + SWEEP_EVERY as f64;
        }
        let since = self.now - window;
        let wanted = self.wanted();
        let soak = f64::from(self.setup.min_success);
        let well = |c: &Cluster| was_well(c, wanted, soak, since, self.now);
        // While nothing comes of a cluster, another one of its name is taken for it: clusters are replaced.
        let unheard = self.clusters[0].silent_after(since) || self.lagging_until >= since;
        let replaced = unheard && well(&self.impostor);
        let is_replaced = |c: &Cluster| replaced && c.name == self.impostor.name;
        let well = self.clusters.iter().filter(|c| well(c) || is_replaced(c)).count();
        let total = self.clusters.len();
        let need = usize::from(self.setup.min_healthy);
        if well < need {
            return Err(format!(
                "at {}: open at {wanted}, {well} of {total} were healthy for {soak} s at any time since {since}: {}",
                self.now, self.gate.status
            ));
        }
        let bad = self.clusters.iter().filter(|c| was_bad(c, wanted, since) && !is_replaced(c)).count();
        if bad > usize::from(self.setup.max_failures) {
            return Err(format!(
                "at {}: open, {bad} clusters failed or silent ever since {since}: {}",
                self.now, self.gate.status
            ));
        }
        Ok(())
    }
}

/// The FleetPackage.
fn packages() -> Packages {
    let id = package(PACKAGE);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1",
        "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": PACKAGE, "resourceVersion": "1", "generation": 1},
        "spec": {
            "package": {"source": id.source, "namespace": id.namespace, "name": id.name},
            "staleAfter": format!("{STALE_AFTER}s"),
        },
    }))
    .expect("a FleetPackage");
    let mut packages = Packages::default();
    for event in [WatchEvent::Init, WatchEvent::InitApply(object), WatchEvent::InitDone] {
        packages.apply(event);
    }
    packages
}

/// Whether the cluster was healthy at the revision at some time after `since`, for `soak` seconds.
fn was_well(cluster: &Cluster, wanted: Fingerprint, soak: Seconds, since: Seconds, now: Seconds) -> bool {
    // Times are whole seconds on the way, and clocks are measured to two.
    let soak = (soak - super::CLOCK_SLACK).max(0.0);
    let mut began = None;
    let ends = cluster.truth.iter().skip(1).map(|(at, _)| *at).chain([now]);
    for ((start, truth), end) in cluster.truth.iter().zip(ends) {
        if truth.healthy() == wanted {
            let began = *began.get_or_insert(*start);
            if end >= since && end - began >= soak {
                return true;
            }
        } else {
            began = None;
        }
    }
    false
}

/// Whether the cluster was failed at the revision, or nothing of it was heard, all the time since.
fn was_bad(cluster: &Cluster, wanted: Fingerprint, since: Seconds) -> bool {
    let failed = |t: &crate::model::cluster::Truth| t.desired == wanted && t.failed;
    let always_failed = cluster.truth.last().is_some_and(|(at, t)| *at <= since && failed(t));
    let always_silent = cluster.silent.last().is_some_and(|(at, silent)| *at <= since && *silent);
    always_failed || always_silent
}

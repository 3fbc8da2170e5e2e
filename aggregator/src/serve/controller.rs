//! The main loop: watches the hub's objects, owns the fleet that feeds bring up to date, keeps every
//! status up to date.
//!
//! ```text
//!   watch events ─┐                    ┌─> closings: at once, several at a time, until they land
//!                 ├─> decide, compare ─┤
//!   feeds ────────┘                    └─> the rest, slices too: a backlog, so many writes a second,
//!                                           namespaces by turns; when it is empty, what discovery found
//!                                      heartbeat once a poll's closings have landed; it names those that have not
//! ```
//!
//! The backlog holds names only: what is written is decided from the freshest object and fleet at
//! the moment of writing.
//!
//! A controller that starts, after a restart or as a new leader, knows nothing of any cluster. It
//! first closes the gates whose evidence is too old by now, and then lets the feeds begin.

mod hanging;
mod judging;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use kube::Client;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use rayon::ThreadPool;
use statusbridge_api::{ClusterSet, FleetPackageSpec, RolloutGateSpec};
use statusbridge_core::decide::Moment;
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_core::reconcile::dependencies::Graph;
use statusbridge_core::reconcile::discover;
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::observation_cache::ObservationCache;
use statusbridge_core::reconcile::profiles::{News, Profiles};
use statusbridge_core::reconcile::slices::{self, Owned, Slices};
use statusbridge_core::reconcile::store::{Event, GateObject, Gates, Key, Kind, Packages};
use statusbridge_core::reconcile::verdict_cache::VerdictCache;
use statusbridge_core::reconcile::write_queue::WriteQueue;
use statusbridge_core::time::Seconds;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock::{self, Floor};
use crate::feed::checks::{Round, Rounds};
use crate::feed::promql::FeedError;
use crate::feed::promql::poll::PollReport;
use crate::feed::{self, Feeds, Message, Overall, Plan, Polled, Standing};
use crate::gate_cache::GateCache;
use crate::health::Health;
use crate::hub::announce::Announcer;
use crate::hub::discover::Discovery;
use crate::hub::heartbeat::Heartbeat;
use crate::hub::references::References;
use crate::hub::{self, write};
use crate::metrics::{Metrics, Poll};
use crate::serve::config::ConfigFile;
use hanging::{HangingClosings, HangingStatuses};
use judging::{Due, Judged, judge, judges};

/// How much of what is heard of ClusterProfiles is taken in before it is judged.
const PROFILES_AT_ONCE: usize = 256;
/// Time between looks at the configuration file.
const CONFIG_INTERVAL: Duration = Duration::from_secs(5);

type Watched = watcher::Result<watcher::Event<LazyObject>>;

/// How often and how much.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time from the end of one poll to the next, at least.
    pub poll_interval: Duration,
    /// Status writes a second, closings not counted.
    pub writes_per_second: u32,
}

/// The main loop and all that it knows.
pub struct Controller {
    client: Client,
    feeds: Feeds,
    plan: Plan,
    /// What the feeds were made of.
    planned: feed::Settings,
    fleet_settings: FleetSettings,
    overall: Overall,
    pace: Pace,
    heartbeat: Heartbeat,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    fleet: Fleet,
    packages: Packages,
    gates: Gates,
    profiles: Profiles,
    config: ConfigFile,
    graph: Graph,
    /// What is asked for checks, beside the loop: slow queries keep no gate waiting but their namespace's.
    rounds: Rounds,
    slices: Slices,
    discovery: Option<Discovery>,
    references: References,
    observations: ObservationCache,
    verdicts: VerdictCache,
    /// The time looked at when a feed answered last, or that should have been by the backend's clock.
    floor: Option<Floor>,
    complaints: Vec<String>,
    judged_all: bool,
    closings: BTreeSet<Key>,
    hanging_closings: HangingClosings,
    backlog: WriteQueue,
    hanging_statuses: HangingStatuses,
    beat_due: bool,
    /// The gates that the heartbeat names.
    named: BTreeSet<Key>,
    /// The hub was restored to an older state.
    restored: bool,
    /// Objects that a write was sent for, and nobody knows whether it has arrived.
    unconfirmed: BTreeSet<(Kind, Key)>,
    epoch: Option<i64>,
    announcer: Announcer,
    board: Arc<GateCache>,
    judges: ThreadPool,
}

impl Controller {
    /// A controller that has read nothing yet.
    ///
    /// # Errors
    /// When the feeds that are planned for cannot be used, or there can be no more threads.
    #[expect(clippy::too_many_arguments, reason = "each is a part of its own")]
    pub fn new(
        client: Client,
        config: ConfigFile,
        plan: Plan,
        fleet: FleetSettings,
        pace: Pace,
        heartbeat: Heartbeat,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        board: Arc<GateCache>,
    ) -> anyhow::Result<Self> {
        let feeds = Feeds::new(plan(&config.current().feeds)?);
        Ok(Self {
            references: References::new(client.clone()),
            client,
            overall: Overall::of(feeds.standings()),
            feeds,
            plan,
            planned: config.current().feeds.clone(),
            fleet_settings: fleet,
            pace,
            heartbeat,
            metrics,
            health,
            fleet: Fleet::new(fleet),
            packages: Packages::default(),
            gates: Gates::default(),
            profiles: Profiles::new(config.current().profiles()),
            config,
            graph: Graph::default(),
            rounds: Rounds::default(),
            slices: Slices::default(),
            discovery: None,
            observations: ObservationCache::default(),
            verdicts: VerdictCache::default(),
            floor: None,
            complaints: Vec::new(),
            judged_all: false,
            closings: BTreeSet::new(),
            hanging_closings: HangingClosings::default(),
            backlog: WriteQueue::default(),
            hanging_statuses: HangingStatuses::default(),
            beat_due: false,
            named: BTreeSet::new(),
            restored: false,
            unconfirmed: BTreeSet::new(),
            epoch: None,
            announcer: Announcer::default(),
            board,
            judges: judges()?,
        })
    }

    /// The same, which also makes FleetPackages of what the clusters report.
    pub fn discovering(self, settings: Option<discover::Settings>) -> Self {
        Self { discovery: settings.map(Discovery::new), ..self }
    }

    /// Says of each status which leadership wrote it.
    pub fn in_epoch(self, epoch: Option<i64>) -> Self {
        Self { epoch, ..self }
    }

    /// Runs until `stop`. Whether another one has to begin anew, because the hub was restored to an older state.
    pub async fn run(mut self, stop: CancellationToken) -> bool {
        self.board.begin();
        self.board.has_tenants(self.config.current().tenants.is_configured());
        let _silence = SilenceAtTheEnd(self.board.clone());
        self.follow(stop).await;
        self.restored
    }

    async fn follow(&mut self, stop: CancellationToken) {
        let mut packages = watch(&self.client, Kind::FleetPackage);
        let mut gates = watch(&self.client, Kind::RolloutGate);
        let mut profiles = self.watch_profiles();
        let mut slices = watch(&self.client, Kind::FleetPackageSlice);
        let ticks = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let mut retries = ticks(Duration::from_secs(1));
        let a_write = Duration::from_secs(1) / self.pace.writes_per_second.max(1);
        let mut writes = ticks(a_write);
        let mut looks = ticks(CONFIG_INTERVAL);
        loop {
            if self.feeds.silence() < self.health.patience() {
                self.health.alive();
            }
            if self.restored {
                error!("the hub was restored to an older state: all is read anew");
                return;
            }
            if self.has_listed() {
                self.feeds.begin();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = packages.next() => self.on_package(event).await,
                Some(event) = gates.next() => self.on_gate(event).await,
                Some(news) = profiles.next() => self.on_profiles(news).await,
                _ = looks.tick() => if self.reread_config() {
                    self.replan();
                    if *self.profiles.settings() != self.config.current().profiles() {
                        self.profiles = Profiles::new(self.config.current().profiles());
                        profiles = self.watch_profiles();
                    }
                    self.judge_all().await;
                },
                Some(event) = slices.next() => self.on_slice(event),
                changed = self.references.changed() => self.judge(changed, BTreeSet::new()).await,
                message = self.feeds.next() => match message {
                    Some(Message::Work(work)) => {
                        work(&mut self.fleet);
                        self.observations.clear();
                    }
                    // Nobody waits for an answer any longer: then the feed is gone.
                    Some(Message::Addresses { reply }) => drop(reply.send(self.profiles.addresses())),
                    Some(Message::Polled { feed, polled }) => {
                        self.polled(feed, *polled);
                        self.judge_all().await;
                        self.ask();
                    }
                    None => {
                        error!("a feed has ended");
                        return;
                    }
                },
                Some(round) = self.rounds.next() => self.on_round(round).await,
                // Also a sign that this loop goes round, whatever it waits for.
                _ = retries.tick() => {
                    self.count_gates();
                    if !self.closings.is_empty() || self.beat_due {
                        self.close().await;
                    }
                }
                _ = writes.tick(), if self.has_writes() => {
                    let written = self.write_next().await;
                    // What was written at the same time is paid for by waiting longer.
                    if written > 1 {
                        writes.reset_after(a_write * written);
                    }
                }
            }
        }
    }

    async fn on_package(&mut self, event: Watched) {
        let Some(event) = usable(Kind::FleetPackage, event) else { return };
        let changed = self.packages.apply(event);
        if !self.are_new(Kind::FleetPackage, &changed) {
            return;
        }
        let of_them = |gate: &&GateObject| gate.package().is_some_and(|package| changed.contains(&package));
        let concerned = self.gates.iter().filter(of_them).map(|gate| gate.key.clone()).collect();
        self.judge(changed, concerned).await;
    }

    /// Has whatever a package refers to now followed from now on.
    fn refer(&mut self, key: &Key) {
        let spec = self.packages.get(key).and_then(|package| package.spec.as_ref().ok());
        let from = spec.filter(|spec| spec.managed_by.is_none()).and_then(|spec| spec.revision_from.as_ref());
        self.references.ask(key, from);
    }

    async fn on_gate(&mut self, event: Watched) {
        let Some(event) = usable(Kind::RolloutGate, event) else { return };
        let changed = self.gates.apply(event);
        if !self.are_new(Kind::RolloutGate, &changed) {
            return;
        }
        let concerned = self.concerned(changed);
        self.judge(BTreeSet::new(), concerned).await;
    }

    /// The gates that have to be looked at when these have changed: themselves, those that depend on
    /// them, and those of cycles that they closed or opened.
    fn concerned(&mut self, changed: BTreeSet<Key>) -> BTreeSet<Key> {
        let mut concerned = self.graph.update(&self.gates, &changed);
        concerned.extend(changed.iter().flat_map(|key| self.graph.dependents(key)).cloned());
        concerned.extend(changed);
        concerned
    }

    /// Begins to ask what checks call for.
    fn ask(&mut self) {
        if !self.can_judge() {
            return;
        }
        let world = self.world(self.moment());
        let mut queries = BTreeMap::<String, BTreeSet<String>>::new();
        for gate in self.gates.iter() {
            let questions = world.questions(gate);
            if !questions.is_empty() {
                queries.entry(gate.key.namespace.clone()).or_default().extend(questions);
            }
        }
        let askers = self.feeds.standings().iter().filter_map(|it| Some((it.asker.clone()?, it)));
        let backends: Vec<_> =
            askers.map(|(asker, it)| it.answers().then_some((asker, it.polled_at))).collect();
        self.rounds.begin(queries, &backends);
    }

    async fn on_round(&mut self, round: Round) {
        let namespace = round.namespace.clone();
        self.rounds.take(round);
        let asks = |gate: &&GateObject| {
            gate.key.namespace == namespace && gate.spec.as_ref().is_ok_and(|spec| !spec.checks.is_empty())
        };
        let concerned = self.gates.iter().filter(asks).map(|gate| gate.key.clone()).collect();
        self.judge(BTreeSet::new(), concerned).await;
    }

    fn watch_profiles(&self) -> BoxStream<'static, Vec<News>> {
        let news = crate::hub::profiles::watch(self.client.clone(), self.profiles.settings());
        news.ready_chunks(PROFILES_AT_ONCE).boxed()
    }

    async fn on_profiles(&mut self, news: Vec<News>) {
        let changed = self.profiles.apply(news, clock::now());
        self.observations.clear();
        let complaints = self.profiles.complaints();
        let news = complaints.iter().filter(|complaint| !self.complaints.contains(complaint));
        news.for_each(|complaint| warn!(%complaint, "ClusterProfiles"));
        self.complaints = complaints;
        // What only says more about a cluster can wait for the next poll.
        if changed {
            let selects = |clusters: &ClusterSet| clusters.selector.is_some();
            let packages =
                self.packages.iter().filter(|it| it.spec.as_ref().is_ok_and(|s| selects(&s.clusters)));
            let packages = packages.map(|it| it.key.clone()).collect();
            let gates = self.gates.iter().filter(|it| it.spec.as_ref().is_ok_and(|s| selects(&s.clusters)));
            let gates = gates.map(|it| it.key.clone()).collect();
            self.judge(packages, gates).await;
        }
    }

    /// Whether the configuration is another than before.
    fn reread_config(&mut self) -> bool {
        match self.config.reread() {
            None => false,
            Some(Ok(config)) => {
                self.board.has_tenants(config.tenants.is_configured());
                self.observations.clear();
                self.verdicts.clear();
                info!("the configuration has changed");
                true
            }
            Some(Err(error)) => {
                warn!(error = %format!("{error:#}"), "the configuration cannot be used; what it said before stays");
                false
            }
        }
    }

    /// What is wrong with slices is found at the next poll, so that nothing follows from their events.
    fn on_slice(&mut self, event: Watched) {
        if let Some(event) = usable(Kind::FleetPackageSlice, event) {
            self.slices.apply(event);
        }
    }

    /// Takes in how a feed's poll ended.
    fn polled(&mut self, feed: usize, polled: Polled) {
        let PollReport { ok, samples, bytes, reread, .. } = polled.report;
        self.metrics.polled(Poll { ok, samples, bytes, reread }, polled.took);
        let answered = polled.report.ok;
        let lags = polled.report.failure.as_ref().and_then(FeedError::clock_lags);
        let Some(standing) = self.feeds.standing_mut(feed) else { return };
        standing.polled(polled);
        if answered {
            self.floor = Some(Floor::new(self.looked_at(clock::now())));
        } else if let Some(ahead) = lags
            && !self.feeds.standings().iter().any(Standing::answers)
        {
            // Nothing can be asked, but how old everything is by now can be told.
            let t = self.looked_at(clock::now());
            self.floor = Some(Floor::new(self.floor.map_or(t, |floor| floor.raise(t)).max(t + ahead)));
        }
        self.overall = Overall::of(self.feeds.standings());
        let standings = self.feeds.standings();
        let (verified, unverified) =
            standings.iter().fold((0, 0), |sum, it| (sum.0 + it.streams.0, sum.1 + it.streams.1));
        self.metrics.found(verified, unverified, self.fleet.newest_evidence());
        self.beat_due = true;
        if let Some(mut discovery) = self.discovery.take() {
            let all_good = standings.iter().all(|it| it.answers());
            if all_good && self.packages.complete() {
                discovery.polled(&self.world(self.moment()), &self.metrics);
            } else {
                discovery.poll_failed();
            }
            self.discovery = Some(discovery);
        }
    }

    /// Begins anew with the feeds that the configuration now names, if these are others. What was known of
    /// the fleet is forgotten: nobody knows which feed will tell of which cluster.
    fn replan(&mut self) {
        if self.planned == self.config.current().feeds {
            return;
        }
        match (self.plan)(&self.config.current().feeds) {
            Ok(feeds) => {
                info!(feeds = feeds.len(), "the feeds have changed");
                self.planned = self.config.current().feeds.clone();
                self.feeds = Feeds::new(feeds);
                self.overall = Overall::of(self.feeds.standings());
                self.fleet = Fleet::new(self.fleet_settings);
                self.rounds = Rounds::default();
                self.observations.clear();
            }
            Err(error) => {
                warn!(error = %format!("{error:#}"), "the feeds cannot be used; those from before stay");
            }
        }
    }

    fn has_listed(&self) -> bool {
        self.packages.complete() && self.gates.complete()
    }

    /// Judging needs both lists, and to have asked the backend at least once: before that, nothing
    /// is known, and nothing is worse than it was but what has grown too old.
    fn can_judge(&self) -> bool {
        self.has_listed() && self.feeds.standings().iter().any(|it| it.last.is_some())
    }

    async fn judge_all(&mut self) {
        // Slices may belong to a FleetPackage that went while nobody watched.
        let owners = self.slices.iter().filter_map(|slice| slice.owner_key());
        let packages = self.packages.iter().map(|object| object.key.clone()).chain(owners).collect();
        let gates = self.gates.iter().map(|object| object.key.clone()).collect();
        self.judge(packages, gates).await;
        self.health.ready(self.judged_all && self.feeds.standings().iter().any(|it| it.has_answered));
        self.metrics.ages(self.fleet.ages(self.moment().t));
    }

    async fn judge(&mut self, packages: BTreeSet<Key>, gates: BTreeSet<Key>) {
        if !self.has_listed() {
            return;
        }
        if !self.can_judge() {
            return self.close_what_is_too_old().await;
        }
        if !self.judged_all {
            self.judged_all = true;
            return Box::pin(self.judge_all()).await;
        }
        self.sort(packages, gates);
        self.close().await;
    }

    /// Judges, and sorts what is to be written: gates that close, with all that depend on them, and the rest.
    fn sort(&mut self, packages: BTreeSet<Key>, gates: BTreeSet<Key>) {
        // What the fleet says of a package is found out once for a moment, so there is one for all.
        let moment = self.moment();
        let mut due: BTreeSet<Due> = packages.into_iter().map(|of| Due { of, gate: None }).collect();
        due.extend(gates.into_iter().map(|key| Due::gate(&self.gates, key)));
        // Closings judge gates only, which have no slices.
        let owned = if due.iter().all(|it| it.gate.is_some()) {
            Owned::new()
        } else {
            slices::by_owner(&self.slices)
        };
        let mut closing = std::mem::take(&mut self.closings);
        let mut jobs = BTreeMap::new();
        while !due.is_empty() {
            let world = World { closing: &closing, ..self.world(moment) };
            let all: Vec<Due> = std::mem::take(&mut due).into_iter().collect();
            for judged in judge(&self.judges, &world, &self.slices, &owned, &all) {
                match judged {
                    Judged::Writes(job, urgency) => drop(jobs.insert(job, urgency)),
                    Judged::Closes(key) if closing.insert(key.clone()) => {
                        let dependents = self.graph.dependents(&key);
                        due.extend(dependents.map(|key| Due::gate(&self.gates, key.clone())));
                    }
                    Judged::Closes(_) => {}
                }
            }
        }
        self.closings = closing;
        self.board.closing(&self.closings);
        for (job, urgency) in jobs {
            self.backlog.push(job, urgency);
        }
    }

    /// Before the first poll: what is open on evidence that no longer counts closes, whatever the
    /// backend may say later. All else waits for what it says.
    async fn close_what_is_too_old(&mut self) {
        let world = self.world(self.moment());
        let closings: Vec<Key> = self
            .gates
            .iter()
            .filter(|gate| gate.says_open())
            .filter(|gate| world.gate(gate).is_some_and(|status| !status.says_open()))
            .map(|gate| gate.key.clone())
            .collect();
        self.closings.extend(closings);
        self.board.closing(&self.closings);
        self.close().await;
    }

    fn moment(&self) -> Moment {
        let now = clock::now();
        let t = self.looked_at(now);
        Moment { t: self.floor.map_or(t, |floor| floor.raise(t)), now }
    }

    /// The time that every feed is looked at, when it is `now` by this machine's clock.
    fn looked_at(&self, now: Seconds) -> Seconds {
        now - self.feeds.standings().iter().map(|it| it.settle).fold(0.0, Seconds::max)
    }

    fn world(&self, moment: Moment) -> World<'_> {
        World {
            fleet: &self.fleet,
            packages: &self.packages,
            profiles: &self.profiles,
            tenancy: &self.config.current().tenants,
            gates: &self.gates,
            graph: &self.graph,
            closing: &self.closings,
            templates: &self.config.current().check_templates,
            answers: self.rounds.answers(),
            epoch: self.epoch,
            unconfirmed: &self.unconfirmed,
            references: self.references.ledger(),
            observations: &self.observations,
            verdicts: &self.verdicts,
            backend: self.overall.backend(),
            unheard: self.overall.unheard(),
            moment,
        }
    }

    /// Other versions of these objects are known, or that they are gone. Whether that is a reason to judge.
    fn are_new(&mut self, kind: Kind, changed: &BTreeSet<Key>) -> bool {
        changed.iter().for_each(|key| self.is_new(kind, key));
        !changed.is_empty() || !self.judged_all
    }

    /// Another version of an object is known, or that it is gone.
    fn is_new(&mut self, kind: Kind, key: &Key) {
        self.unconfirmed.remove(&(kind, key.clone()));
        match kind {
            Kind::RolloutGate => {
                let gate = self.gates.get(key);
                if gate.is_none() {
                    self.verdicts.forget(kind, key);
                }
                self.announcer.see::<RolloutGateSpec>(key, gate);
                self.board.gate(key, gate);
            }
            Kind::FleetPackage => {
                let package = self.packages.get(key);
                if package.is_none() {
                    self.verdicts.forget(kind, key);
                }
                self.announcer.see::<FleetPackageSpec>(key, package);
                self.board.package(key, package);
                self.refer(key);
            }
            Kind::FleetPackageSlice => {}
        }
    }
}

/// Keeps a process from speaking for the hub when it no longer judges, be it that it was stopped or
/// that it lost its lease in the middle of something.
struct SilenceAtTheEnd(Arc<GateCache>);

impl Drop for SilenceAtTheEnd {
    fn drop(&mut self) {
        self.0.silence("this aggregator does not judge gates now");
    }
}

fn watch(client: &Client, kind: Kind) -> BoxStream<'static, Watched> {
    let config = match kind {
        // Each may be 100 KB, and a page is in memory as a whole.
        Kind::FleetPackageSlice => watcher::Config::default().page_size(50),
        Kind::FleetPackage | Kind::RolloutGate => watcher::Config::default(),
    };
    watcher(write::everywhere(client, kind), config).default_backoff().boxed()
}

fn usable(kind: Kind, event: Watched) -> Option<Event<LazyObject>> {
    match event {
        Ok(event) => Some(hub::event(event)),
        Err(error) => {
            warn!(kind = kind.name(), %error, "watching the hub");
            None
        }
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;

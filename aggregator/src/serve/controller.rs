//! The main loop: carries to the reconciler what watches, feeds and answers say, and does what it wants done.
//!
//! ```text
//!   watches, feeds, answers ──> reconciler ──commands──> calls under way ──answers──> …
//! ```
//!
//! No call is waited for: whatever takes its time, evidence is taken in meanwhile.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{BoxStream, StreamExt, select_all};
use kube::Client;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use statusbridge_api::conditions::{READY, find};
use statusbridge_api::{FleetPackageSpec, FleetRolloutSpec, Reason, RolloutGateSpec};
use statusbridge_core::fleet::{Fleet, FleetSettings};
use statusbridge_core::reconcile::command::{
    Answer, Command, Found, Listed, Number, StatusWrite, Unreadable,
};
use statusbridge_core::reconcile::discover::{self, Discovery};
use statusbridge_core::reconcile::feeds::Planned;
use statusbridge_core::reconcile::holds;
use statusbridge_core::reconcile::judging::Judges;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{GateObject, HubObject, Key, Kind};
use statusbridge_core::reconcile::owned::OwnedWrite;
use statusbridge_core::reconcile::profiles::News;
use statusbridge_core::reconcile::reconciler::Reconciler;
use statusbridge_core::reconcile::references::Evaluated;
use statusbridge_core::reconcile::rollouts::placements::Seen;
use statusbridge_core::reconcile::state::{Rules, State};
use statusbridge_core::reconcile::store::Event;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::feed::checks::Rounds;
use crate::feed::promql::poll::PollReport;
use crate::feed::{self, Feeds, Message, Plan, Polled};
use crate::gate_cache::GateCache;
use crate::health::Health;
use crate::hub::announce::{Announcer, Change};
use crate::hub::events::Events;
use crate::hub::heartbeat::{Heartbeat, Renewed};
use crate::hub::references::References;
use crate::hub::write::{self, HubError, Written};
use crate::hub::{self, discover as discovery, owned, placements};
use crate::metrics::{Metrics, Poll, WriteResult};
use crate::notify::{self, About, Message as Notice, Notifier};
use crate::serve::apart::apart;
use crate::serve::config::{Config, ConfigFile};
use crate::serve::desk::Desk;
use crate::serve::states::{gate_state, rollout_state};
use crate::serve::turns::{Turn, Turns};

/// How much of what is heard of ClusterProfiles is taken in before it is judged.
const PROFILES_AT_ONCE: usize = 256;
/// Time between looks at the configuration file.
const CONFIG_INTERVAL: Duration = Duration::from_secs(5);
/// Time between looks at what waits for time.
const TICK: Duration = Duration::from_millis(100);

/// What is watched of the hub's objects.
const WATCHED: [Kind; 5] = [
    Kind::FleetPackage,
    Kind::RolloutGate,
    Kind::FleetPackageSlice,
    Kind::FleetRollout,
    Kind::FleetRolloutSlice,
];

type Watched = watcher::Result<watcher::Event<LazyObject>>;

/// How often and how much.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time from the end of one poll to the next, at least.
    pub poll_interval: Duration,
    /// Status writes a second, closings not counted.
    pub writes_per_second: u32,
}

/// What came of a call.
enum Done {
    Wrote(Number, Kind, Key, Answer),
    Read(Number, Kind, Key, Found, Turn),
    Listed(Number, Key, Listed, Turn),
    /// Whether all was written, and what is to be told.
    HandedOver(bool, Vec<placements::Told>),
    WroteOwned(Box<OwnedWrite>, Answer),
    Discovered(Result<Written, HubError>),
    Beaten(Heartbeat, anyhow::Result<Renewed>),
}

/// The main loop and all that it has to do with.
pub struct Controller {
    client: Client,
    feeds: Feeds,
    plan: Plan,
    /// What the feeds were made of.
    planned: feed::Settings,
    fleet_settings: FleetSettings,
    pace: Pace,
    clock: Clock,
    config: ConfigFile,
    reconciler: Reconciler,
    /// Calls of the hub that are under way. They go on while this loop judges: an answer that has come is not late.
    calls: JoinSet<Done>,
    turns: Turns,
    /// None while it is given.
    heartbeat: Option<Heartbeat>,
    rounds: Rounds,
    references: References,
    evaluations: JoinSet<Evaluated>,
    /// The hub was restored to an older state.
    restored: bool,
    announcer: Announcer,
    events: Events,
    lease_namespace: String,
    /// None before it runs.
    notifier: Option<Notifier>,
    /// What the sinks of messages were made of.
    notified: notify::Settings,
    /// What PlacementDecisions were last made of, and when they are held against the hub again.
    handed_over: (Option<Seen>, Duration),
    /// They are being written.
    hands_over: bool,
    board: Arc<GateCache>,
    desk: Arc<Desk>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    /// The gates that could not be closed yet, as they were shown.
    unclosed: BTreeSet<Key>,
}

/// After so long PlacementDecisions are held against the hub again, where somebody may have changed them.
const PLACED_ANEW: Duration = Duration::from_secs(60);
/// The same where they could not be written.
const PLACED_AGAIN: Duration = Duration::from_secs(15);

/// What a controller decides by.
pub struct Settings {
    /// How often and how much.
    pub pace: Pace,
    /// What is believed of clusters.
    pub fleet: FleetSettings,
    /// Which leadership it is.
    pub epoch: i64,
    /// Where FleetPackages are made of what the clusters report, if they are.
    pub discovery: Option<discover::Settings>,
    /// Where changes of verdicts are told.
    pub(crate) events: Events,
    /// Namespace of the Leases.
    pub lease_namespace: String,
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
        settings: Settings,
        heartbeat: Heartbeat,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        (board, desk): (Arc<GateCache>, Arc<Desk>),
    ) -> anyhow::Result<Self> {
        let Settings { pace, fleet, epoch, discovery, events, lease_namespace } = settings;
        let feeds = Feeds::new(plan(&config.current().feeds)?);
        let (current, clock) = (config.current(), Clock::begin());
        let state = State::new(Fleet::new(fleet), current.profiles(), rules(current), epoch);
        let mut reconciler = Reconciler::new(state, Judges::threads()?, discovery.map(Discovery::new));
        reconciler.planned(planned(&feeds), Fleet::new(fleet));
        Ok(Self {
            references: References::new(client.clone()),
            client,
            feeds,
            plan,
            planned: current.feeds.clone(),
            fleet_settings: fleet,
            pace,
            turns: Turns::new(clock.clone()),
            clock,
            config,
            reconciler,
            calls: JoinSet::new(),
            heartbeat: Some(heartbeat),
            rounds: Rounds::default(),
            evaluations: JoinSet::new(),
            restored: false,
            announcer: Announcer::new(epoch),
            events,
            lease_namespace,
            notifier: None,
            notified: notify::Settings::default(),
            handed_over: (None, Duration::ZERO),
            hands_over: false,
            board,
            desk,
            metrics,
            health,
            unclosed: BTreeSet::new(),
        })
    }

    /// Runs until `stop`. Whether another one has to begin anew, because the hub was restored to an older state.
    pub async fn run(mut self, stop: CancellationToken) -> bool {
        self.board.begin();
        self.board.has_tenants(self.config.current().tenants.is_configured());
        let _silence = SilenceAtTheEnd(self.board.clone());
        self.notify();
        self.follow(stop).await;
        self.calls.shutdown().await;
        if let Some(notifier) = self.notifier.take() {
            notifier.stop().await;
        }
        self.restored
    }

    async fn follow(&mut self, stop: CancellationToken) {
        let mut objects = select_all(WATCHED.map(|kind| watch(&self.client, kind)));
        let mut profiles = self.watch_profiles();
        let mut freezes = apart(hub::holds::watch(self.client.clone(), Kind::RolloutFreeze));
        let mut approvals = apart(hub::holds::watch(self.client.clone(), Kind::RolloutApproval));
        let mut questions = self.desk.open();
        let a_write = Duration::from_secs(1) / self.pace.writes_per_second.max(1);
        let (mut ticks, mut looks) = (every(TICK), every(CONFIG_INTERVAL));
        let (mut counts, mut writes) = (every(Duration::from_secs(1)), every(a_write));
        loop {
            if self.feeds.silence() < self.health.patience() {
                self.health.alive();
            }
            if self.restored {
                error!("the hub was restored to an older state: all is read anew");
                return;
            }
            if self.reconciler.state().has_listed() {
                self.feeds.begin();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some(done) = self.calls.join_next() => {
                    self.on_done(done.unwrap_or_else(|error| resume_unwind(error.into_panic())));
                }
                Some((kind, event)) = objects.next() => if let Some(event) = usable(kind, event) {
                    self.reconciler.heard(kind, event, self.clock.now());
                },
                Some(news) = freezes.next() => {
                    told(Kind::RolloutFreeze, &news);
                    self.reconciler.freezes(news, self.clock.now());
                }
                Some(news) = approvals.next() => {
                    told(Kind::RolloutApproval, &news);
                    self.reconciler.approvals(news, self.clock.now());
                }
                Some(news) = profiles.next() => self.reconciler.profiles(news, self.clock.now()),
                message = self.feeds.next() => match message {
                    Some(Message::Work(work)) => work(self.reconciler.fleet()),
                    // Nobody waits for an answer any longer: then the feed is gone.
                    Some(Message::Addresses { reply }) => {
                        drop(reply.send(self.reconciler.state().profiles.addresses()));
                    }
                    Some(Message::Polled { feed, polled }) => self.on_poll(feed, *polled),
                    None => {
                        error!("a feed has ended");
                        return;
                    }
                },
                (place, news) = self.references.next() => {
                    self.reconciler.referred(&place, news, self.clock.now());
                }
                Some(Ok(done)) = self.evaluations.join_next() => {
                    self.reconciler.evaluated(done, self.clock.now());
                }
                Some(round) = self.rounds.next() => {
                    self.reconciler.checked(&round.namespace, &round.queries, round.said, self.clock.now());
                }
                Some(question) = questions.recv() => question(&self.reconciler.world(self.clock.now())),
                _ = looks.tick() => if self.reread_config() {
                    let current = self.config.current();
                    let (settings, rules) = (current.profiles(), rules(current));
                    self.replan();
                    self.notify();
                    if *self.reconciler.state().profiles.settings() != settings {
                        self.reconciler.forget_profiles(settings);
                        profiles = self.watch_profiles();
                    }
                    self.reconciler.configured(rules, self.clock.now());
                },
                // Also a sign that this loop goes round, whatever it waits for.
                _ = ticks.tick() => self.reconciler.tick(self.clock.now()),
                _ = counts.tick() => {
                    self.count();
                    self.hand_over(a_write);
                }
                _ = writes.tick(), if self.reconciler.has_writes() => {
                    match self.reconciler.next_write(self.clock.now()) {
                        // Everything else has its turn first.
                        Some(0) => writes.reset_immediately(),
                        // What is written at the same time is paid for by waiting longer.
                        Some(written) if written > 1 => writes.reset_after(a_write * written),
                        Some(_) | None => {}
                    }
                }
            }
            self.carry_out();
        }
    }

    /// Does what the reconciler wants done, or begins with it.
    fn carry_out(&mut self) {
        for command in self.reconciler.commands() {
            match command {
                Command::Write(write) => self.write(write),
                Command::Read(number, kind, key) => {
                    let (client, turns) = (self.client.clone(), self.turns.clone());
                    self.calls.spawn(async move {
                        let turn = turns.next().await;
                        let found = write::read(&client, kind, &key).await.map_err(|error| {
                            warn!(kind = kind.name(), object = %key, %error, "could not be read");
                            Unreadable
                        });
                        Done::Read(number, kind, key, found, turn)
                    });
                }
                Command::List(number, key, listings) => {
                    let (client, turns) = (self.client.clone(), self.turns.clone());
                    self.calls.spawn(async move {
                        let turn = turns.next().await;
                        let found = write::heads(&client, &key.namespace, &listings).await.map_err(|error| {
                            warn!(kind = Kind::FleetRollout.name(), object = %key, %error, "what it goes on by could not be read");
                            Unreadable
                        });
                        Done::Listed(number, key, found, turn)
                    });
                }
                Command::WriteOwned(write) => {
                    let (client, metrics, clock) =
                        (self.client.clone(), self.metrics.clone(), self.clock.clone());
                    self.calls.spawn(async move {
                        if !write.may_be_sent(clock.now()) {
                            metrics.wrote(write.kind, WriteResult::Fenced);
                            return Done::WroteOwned(write, Answer::NotSent);
                        }
                        let answer = owned::write(&client, &write).await;
                        let told = match write::result(&answer) {
                            WriteResult::Gone if write.change.is_delete() => WriteResult::Done,
                            told => told,
                        };
                        metrics.wrote(write.kind, told);
                        let answer = write::answer(write.kind, &write.owner.1, answer);
                        Done::WroteOwned(write, answer)
                    });
                }
                Command::Discover(namespace, change) => {
                    let client = self.client.clone();
                    self.calls.spawn(async move {
                        Done::Discovered(discovery::write(&client, &namespace, &change).await)
                    });
                }
                Command::Beat(unclosed) => {
                    if let Some(mut heartbeat) = self.heartbeat.take() {
                        self.calls.spawn(async move {
                            let renewed = heartbeat.beat(&unclosed).await;
                            Done::Beaten(heartbeat, renewed)
                        });
                    }
                }
                Command::Ask(rounds) => {
                    let askers = self.feeds.iter().filter_map(|feed| feed.asker.clone());
                    let asked_at = self.reconciler.state().feeds.asked_at();
                    let backends: Vec<_> =
                        askers.zip(asked_at).map(|(asker, at)| Some((asker, at?))).collect();
                    self.rounds.begin(rounds, &backends);
                }
                Command::Follow(change) => self.references.follow(change),
                Command::Evaluate(evaluation) => {
                    self.evaluations.spawn_blocking(|| evaluation.run());
                }
                Command::Show(kind, key) => self.show(kind, &key),
            }
        }
        let closings = &self.reconciler.state().closings;
        if self.unclosed != *closings {
            self.unclosed.clone_from(closings);
            self.board.closing(closings);
            self.metrics.unclosed(closings);
        }
        self.metrics.queued(self.reconciler.waiting());
    }

    fn write(&mut self, write: Box<StatusWrite>) {
        let (client, metrics, clock) = (self.client.clone(), self.metrics.clone(), self.clock.clone());
        self.calls.spawn(async move {
            let StatusWrite { number, kind, version, status, .. } = write.as_ref();
            let answer = if write.may_be_sent(clock.now()) {
                let answer = write::status(&client, *kind, version, status, status.least()).await;
                metrics.wrote(*kind, write::result(&answer));
                write::answer(*kind, &version.key, answer)
            } else {
                metrics.wrote(*kind, WriteResult::Fenced);
                Answer::NotSent
            };
            Done::Wrote(*number, *kind, version.key.clone(), answer)
        });
    }

    fn on_done(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Wrote(number, kind, key, answer) => self.reconciler.wrote(number, kind, &key, answer, now),
            Done::Read(number, kind, key, found, turn) => {
                self.reconciler.read(number, kind, &key, turn.found(found, now), now);
            }
            Done::Listed(number, key, found, turn) => {
                self.reconciler.listed(number, &key, &turn.found(found, now), now);
            }
            Done::HandedOver(whole, told) => {
                self.hands_over = false;
                if !whole {
                    self.handed_over = (None, now.passed + PLACED_AGAIN);
                }
                told.into_iter().for_each(|(key, why)| self.reconciler.handed_over(&key, why, now));
            }
            Done::WroteOwned(write, answer) => self.reconciler.wrote_owned(&write, answer, now),
            Done::Discovered(answer) => {
                self.metrics.wrote(Kind::FleetPackage, write::result(&answer));
                let landed = answer.map(|written| !matches!(written, Written::Conflict));
                self.reconciler.discovered(landed.map_err(|error| error.to_string()));
            }
            Done::Beaten(heartbeat, renewed) => {
                self.heartbeat = Some(heartbeat);
                let landed = match renewed {
                    Ok(renewed) => {
                        self.restored |= renewed == Renewed::Restored;
                        true
                    }
                    Err(error) => {
                        warn!(%error, "the heartbeat could not be renewed");
                        false
                    }
                };
                self.metrics.beat(landed);
                if let Some(since) = self.reconciler.beaten(landed, now) {
                    let ago = now.passed.saturating_sub(since);
                    self.board.spoke(Instant::now().checked_sub(ago).unwrap_or_else(Instant::now));
                }
            }
        }
    }

    /// Takes in how a feed's poll ended.
    fn on_poll(&mut self, feed: usize, polled: Polled) {
        let PollReport { ok, samples, bytes, reread, .. } = polled.report;
        self.metrics.polled(Poll { ok, samples, bytes, reread }, polled.took);
        let Some(status) = self.feeds.get_mut(feed) else { return };
        let polled = status.polled(polled);
        self.reconciler.polled(feed, polled, self.clock.now());
        let state = self.reconciler.state();
        let (verified, unverified) = state.feeds.streams();
        self.metrics.found(verified, unverified, state.fleet.newest_evidence());
        if let Some((discovered, left_out)) = self.reconciler.discovery_counts() {
            self.metrics.discovered(discovered, left_out);
        }
        self.metrics.ages(state.fleet.ages(self.reconciler.present(self.clock.now()).t));
        self.health.ready(self.reconciler.is_ready());
    }

    fn watch_profiles(&self) -> BoxStream<'static, Vec<News>> {
        let settings = self.reconciler.state().profiles.settings();
        hub::profiles::watch(self.client.clone(), settings).ready_chunks(PROFILES_AT_ONCE).boxed()
    }

    /// Whether the configuration is another than before.
    fn reread_config(&mut self) -> bool {
        match self.config.reread() {
            None => false,
            Some(Ok(config)) => {
                self.board.has_tenants(config.tenants.is_configured());
                info!("the configuration has changed");
                true
            }
            Some(Err(error)) => {
                warn!(error = %format!("{error:#}"), "the configuration cannot be used; what it said before stays");
                false
            }
        }
    }

    /// Begins anew with the feeds that the configuration now names, if these are others.
    fn replan(&mut self) {
        if self.planned == self.config.current().feeds {
            return;
        }
        match (self.plan)(&self.config.current().feeds) {
            Ok(feeds) => {
                info!(feeds = feeds.len(), "the feeds have changed");
                self.planned = self.config.current().feeds.clone();
                self.feeds = Feeds::new(feeds);
                self.rounds = Rounds::default();
                self.reconciler.planned(planned(&self.feeds), Fleet::new(self.fleet_settings));
            }
            Err(error) => {
                warn!(error = %format!("{error:#}"), "the feeds cannot be used; those from before stay");
            }
        }
    }

    /// Sends messages to the sinks that the configuration names now.
    fn notify(&mut self) {
        let wanted = &self.config.current().notify;
        if self.notifier.is_some() && self.notified == *wanted {
            return;
        }
        self.notified = wanted.clone();
        let (namespace, metrics, before) = (&self.lease_namespace, &self.metrics, self.notifier.take());
        self.notifier = Some(Notifier::start(&self.client, namespace, &self.notified, metrics, before));
    }

    /// Tells whoever shows it how an object stands in the hub.
    fn show(&mut self, kind: Kind, key: &Key) {
        let (state, now) = (self.reconciler.state(), self.clock.now().wall);
        let told = match kind {
            Kind::RolloutGate => {
                let gate = state.gates.get(key);
                self.board.gate(key, gate);
                let change = self.announcer.see::<RolloutGateSpec>(key, gate, now);
                change.zip(gate.map(HubObject::version))
            }
            Kind::FleetPackage => {
                let package = state.packages.get(key);
                self.board.package(key, package);
                let change = self.announcer.see::<FleetPackageSpec>(key, package, now);
                change.zip(package.map(HubObject::version))
            }
            Kind::FleetRollout => {
                let rollout = state.rollouts.get(key);
                let change = self.announcer.see::<FleetRolloutSpec>(key, rollout, now);
                change.zip(rollout.map(HubObject::version))
            }
            _ => None,
        };
        let Some((Change { before, now, what }, version)) = told else { return };
        if what.verdict {
            self.events.tell(kind, &version, before.as_ref(), &now);
        }
        let notifier = self.notifier.as_ref().filter(|notifier| what.outcome && notifier.has_sinks());
        if let Some(notifier) = notifier {
            let (about, package, rollout) = match kind {
                Kind::RolloutGate => {
                    let gate = state.gates.get(key);
                    let rollout = gate.and_then(HubObject::belongs_to);
                    (About::RolloutGate, gate.and_then(GateObject::package), rollout)
                }
                Kind::FleetRollout => {
                    let spec = state.rollouts.get(key).and_then(|rollout| rollout.spec.as_deref().ok());
                    let package = spec.map(|spec| key.beside(&spec.fleet_package_ref.name));
                    (About::FleetRollout, package, Some(key.clone()))
                }
                _ => (About::FleetPackage, Some(key.clone()), None),
            };
            let package = package.unwrap_or_else(|| key.beside(""));
            let of = (package.name.as_str(), state.packages.get(&package));
            let rollout = rollout.as_ref().map(|rollout| rollout.name.as_str());
            if let Some(notice) = Notice::new(about, &version, of, rollout, &now) {
                notifier.tell(&notice);
            }
        }
    }

    /// Brings PlacementDecisions to what they should say, where that is other than before, or somebody may have changed them.
    fn hand_over(&mut self, a_write: Duration) {
        let now = self.clock.now();
        let (seen, anew) = self.handed_over;
        let is_due = now.passed >= anew;
        if self.hands_over || !is_due && seen.is_none() {
            return;
        }
        let Some((seen, all)) = self.reconciler.world(now).placements(seen.filter(|_| !is_due)) else {
            return;
        };
        (self.handed_over, self.hands_over) = ((Some(seen), now.passed + PLACED_ANEW), true);
        let client = self.client.clone();
        self.calls.spawn(async move {
            let (whole, told) = placements::hand_over(&client, all, a_write).await;
            Done::HandedOver(whole, told)
        });
    }

    /// Tells the metrics how the objects stand. That takes a look at each of them, so it is not done for every write.
    fn count(&mut self) {
        for kind in [Kind::RolloutGate, Kind::FleetPackage, Kind::FleetRollout] {
            self.metrics.foreign(kind, self.reconciler.take_foreign(kind));
        }
        let state = self.reconciler.state();
        let gates = || state.gates.iter().filter_map(|gate| gate.status.as_ref());
        self.metrics.gates(state.gates.iter().map(|gate| gate_state(gate.status.as_ref())));
        let packages = state.packages.iter().filter_map(|package| package.status.as_ref());
        let rollouts = state.rollouts.iter().filter_map(|rollout| rollout.status.as_ref());
        self.metrics.rollouts(state.rollouts.iter().map(|rollout| rollout_state(rollout.status.as_ref())));
        let invalid = |conditions| {
            find(conditions, READY).is_some_and(|ready| ready.reason == Reason::InvalidSpec.name())
        };
        self.metrics.invalid(Kind::RolloutGate, gates().filter(|it| invalid(&it.conditions)).count());
        self.metrics.invalid(Kind::FleetPackage, packages.filter(|it| invalid(&it.conditions)).count());
        self.metrics.invalid(Kind::FleetRollout, rollouts.filter(|it| invalid(&it.conditions)).count());
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        tenancy: config.tenants.clone(),
        templates: config.check_templates.clone(),
        speakers: config.speakers.clone(),
    }
}

fn planned(feeds: &Feeds) -> Vec<Planned> {
    let one = |feed: &feed::FeedStatus| Planned {
        name: feed.name.clone(),
        settle: feed.settle,
        asked: feed.asker.is_some(),
    };
    feeds.iter().map(one).collect()
}

/// Keeps a process from speaking for the hub when it no longer judges, be it that it was stopped or
/// that it lost its lease in the middle of something.
struct SilenceAtTheEnd(Arc<GateCache>);

impl Drop for SilenceAtTheEnd {
    fn drop(&mut self) {
        self.0.silence("this aggregator does not judge gates now");
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn watch(client: &Client, kind: Kind) -> BoxStream<'static, (Kind, Watched)> {
    // A page is in memory as a whole.
    let page = match kind {
        // Each may be 100 KB.
        Kind::FleetPackageSlice | Kind::FleetRolloutSlice => 50,
        // Whoever writes them may hang 1.5 MiB on each.
        _ => 16,
    };
    let events = watcher(write::everywhere(client, kind), watcher::Config::default().page_size(page))
        .default_backoff()
        .map(move |event| (kind, event));
    // A gate that names ten thousand clusters comes in many pieces.
    apart(events.boxed())
}

/// Logs why the objects of a kind are not known.
fn told(kind: Kind, news: &holds::News) {
    match news {
        holds::News::NotServed => {
            warn!(kind = kind.name(), "the hub does not serve the kind: there are none")
        }
        holds::News::Broken(error) => {
            warn!(kind = kind.name(), error, "they cannot be read: no gate opens that they may hold")
        }
        holds::News::Event(_) => {}
    }
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

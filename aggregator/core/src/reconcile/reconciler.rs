//! The reconciler: what is heard goes in, what is to be done comes out. It does nothing itself and reads no clock.
//!
//! ```text
//!   objects of the hub ─┐                    ┌─> closings: at once
//!   evidence, polls ────┼─> judge, compare ──┤
//!   answers to writes ──┘                    └─> the rest: a queue, so many writes a second, namespaces by turns;
//!                                                when it is empty, what discovery found
//!                                            heartbeat once a poll's closings have landed; it names those that have not
//! ```
//!
//! The queue holds names only: what is written is decided from the newest object and fleet known at the moment of writing.
//! However long an answer takes, evidence and all other objects go on meanwhile.
//!
//! One that starts, after a restart or as a new leader, knows nothing of any cluster. It first closes the gates whose
//! evidence is too old by now.

mod closings;
mod flight;
mod owned_objects;
mod rollouts;
mod statuses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::warn;

use super::command::{Command, Found, Number};
use super::discover::Discovery;
use super::feeds::{Planned, Polled};
use super::flights::Flights;
use super::heartbeat::Heartbeat;
use super::holds::{self, Concerned};
use super::judge::World;
use super::judging::{Due, Judges, Todo};
use super::lazy_object::LazyObject;
use super::object::{GateObject, HubObject, Key, Kind, PackageObject};
use super::profiles::{self, News, Profiles};
use super::references::{self, Evaluated, Place};
use super::state::{Rules, State};
use super::store::Event;
use super::write_queue::{Job, Urgency, WriteQueue};
use crate::checks::{Answers, Rounds};
use crate::decide::Moment;
use crate::fleet::Fleet;
use crate::time::Now;
use closings::Tried;
use flight::Flight;

/// For so long what was found out of the fleet at one moment serves for all that is judged, unless the fleet changes.
const MOMENT: Duration = Duration::from_millis(200);
/// FleetRollouts that are looked at between two turns of the loop: a large plan takes its time, and gates wait to be closed.
const MOST_LOOKS: usize = 4;

/// The reconciler and all that it knows.
pub struct Reconciler {
    state: State,
    judges: Judges,
    judged_all: bool,
    queue: WriteQueue,
    flights: Flights<Flight>,
    /// Closings that did not land at once.
    tried: BTreeMap<Key, Tried>,
    heartbeat: Heartbeat,
    discovery: Option<Discovery>,
    evaluates: bool,
    /// The moment that was judged at last, and when that was.
    moment: Option<(Moment, Duration)>,
    /// When was last looked for gates whose time is over.
    ends_looked_at: Duration,
    complaints: Vec<String>,
    /// The hub has kept only a part of a status, and that was said.
    cuts: bool,
    numbers: Number,
    commands: Vec<Command>,
}

impl Reconciler {
    /// One that knows this, which makes FleetPackages of what the clusters report if `discovery` is given.
    pub fn new(state: State, judges: Judges, discovery: Option<Discovery>) -> Self {
        Self {
            state,
            judges,
            judged_all: false,
            queue: WriteQueue::default(),
            flights: Flights::default(),
            tried: BTreeMap::new(),
            heartbeat: Heartbeat::default(),
            discovery,
            evaluates: false,
            moment: None,
            ends_looked_at: Duration::ZERO,
            complaints: Vec::new(),
            cuts: false,
            numbers: 0,
            commands: Vec::new(),
        }
    }

    /// What came up since this was asked before. The caller may do it in any order, and all at once.
    pub fn commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// What is known.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The fleet, to work on.
    pub fn fleet(&mut self) -> &mut Fleet {
        self.state.observations.clear();
        self.moment = None;
        &mut self.state.fleet
    }

    /// Whether everything was judged, and any feed has ever answered.
    pub fn is_ready(&self) -> bool {
        self.judged_all && self.state.feeds.any_has_answered()
    }

    /// Whether there may be something to write within the budget.
    pub fn has_writes(&self) -> bool {
        !self.queue.is_empty() || self.discovery.as_ref().is_some_and(Discovery::is_due)
    }

    /// The moment that everything would be judged at now.
    pub fn present(&self, now: Now) -> Moment {
        self.state.feeds.moment(now)
    }

    /// All that is known, to be asked at `now`.
    pub fn world(&mut self, now: Now) -> World<'_> {
        let moment = self.moment(now);
        World::new(&self.state, moment)
    }

    /// How many writes wait for their turn.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many FleetPackages discovery has made, and how many packages get none, where there is discovery.
    pub fn discovery_counts(&self) -> Option<(usize, usize)> {
        self.discovery.as_ref().map(Discovery::counts)
    }

    /// How often somebody else wrote a status of this kind since this was asked before.
    pub fn take_foreign(&mut self, kind: Kind) -> u64 {
        match kind {
            Kind::FleetPackage => self.state.packages.take_foreign(),
            Kind::RolloutGate => self.state.gates.take_foreign(),
            Kind::FleetPackageSlice => self.state.slices.take_foreign(),
            Kind::FleetRollout => self.state.rollouts.take_foreign(),
            Kind::FleetRolloutSlice => self.state.rollout_slices.take_foreign(),
            Kind::RolloutFreeze | Kind::RolloutApproval => 0,
        }
    }

    // What is heard.

    /// From now on evidence comes by these feeds. What was known of the fleet is forgotten: nobody knows which feed will
    /// tell of which cluster.
    pub fn planned(&mut self, feeds: Vec<Planned>, mut fleet: Fleet) {
        self.state.feeds.plan(feeds);
        self.moment = None;
        fleet.believe(self.state.rules.speakers.clone());
        self.state.fleet = fleet;
        self.state.checks = Rounds::default();
        self.state.observations.clear();
    }

    /// The configuration says something else from now on.
    pub fn configured(&mut self, rules: Rules, now: Now) {
        for withdrawn in self.state.fleet.believe(rules.speakers.clone()) {
            warn!("{withdrawn}");
        }
        self.state.rules = rules;
        self.state.observations.clear();
        self.state.verdicts.clear();
        self.judge_all(now);
    }

    /// ClusterProfiles are read by other rules from now on: nothing is known of them.
    pub fn forget_profiles(&mut self, settings: profiles::Settings) {
        self.state.profiles = Profiles::new(settings);
    }

    /// News of an object of this kind.
    pub fn heard(&mut self, kind: Kind, event: Event<LazyObject>, now: Now) {
        match kind {
            Kind::FleetPackage => {
                let changed = self.state.packages.apply(event);
                self.packages_changed(changed, now);
            }
            Kind::RolloutGate => {
                let changed = self.state.gates.apply(event);
                self.gates_changed(changed, now);
            }
            // What is wrong with slices is found at the next poll, so that nothing follows from it.
            Kind::FleetPackageSlice => drop(self.state.slices.apply(event)),
            Kind::FleetRollout => {
                let changed = self.state.rollouts.apply(event);
                self.rollouts_changed(&changed, now);
            }
            Kind::RolloutFreeze => self.freezes(event.into(), now),
            Kind::RolloutApproval => self.approvals(event.into(), now),
            Kind::FleetRolloutSlice => {
                let changed = self.state.rollout_slices.apply(event);
                let owners =
                    changed.iter().filter_map(|key| self.state.rollout_slices.get(key)?.belongs_to());
                let jobs: Vec<Job> = owners.map(|key| (Kind::FleetRollout, key)).collect();
                jobs.into_iter().for_each(|job| self.queue.push(job, Urgency::News));
            }
        }
    }

    /// News of ClusterProfiles.
    pub fn profiles(&mut self, news: Vec<News>, now: Now) {
        let changed = self.state.profiles.apply(news, now.wall);
        self.state.observations.clear();
        let complaints = self.state.profiles.complaints();
        let news = complaints.iter().filter(|complaint| !self.complaints.contains(complaint));
        news.for_each(|complaint| warn!(%complaint, "ClusterProfiles"));
        self.complaints = complaints;
        // What only says more about a cluster can wait for the next poll.
        if changed {
            let State { packages, gates, profiles, .. } = &self.state;
            let package = |key: &Key| packages.get(key)?.spec.as_deref().ok();
            let of_gate = |gate: &&GateObject| {
                let found = gate.spec.as_deref().ok().zip(gate.package().as_ref().and_then(package));
                found.is_some_and(|(spec, package)| profiles.choose(package, &spec.clusters))
            };
            let gates = gates.iter().filter(of_gate).map(|it| it.key.clone()).collect();
            let of_package = |it: &&PackageObject| {
                it.spec.as_deref().is_ok_and(|spec| profiles.choose(spec, &spec.clusters))
            };
            let packages = packages.iter().filter(of_package).map(|it| it.key.clone()).collect();
            self.judge(packages, gates, now);
        }
    }

    /// News of RolloutFreezes.
    pub fn freezes(&mut self, news: holds::News, now: Now) {
        let concerned = self.state.holds.take_freezes(news, now.wall);
        self.held_otherwise(concerned, now);
    }

    /// News of RolloutApprovals.
    pub fn approvals(&mut self, news: holds::News, now: Now) {
        let concerned = self.state.holds.take_approvals(news, now.wall);
        self.held_otherwise(concerned, now);
    }

    /// How a poll of the feed with this number ended.
    pub fn polled(&mut self, feed: usize, polled: Polled, now: Now) {
        self.state.feeds.polled(feed, polled, now);
        self.moment = None;
        self.heartbeat.is_due(now);
        if let Some(mut discovery) = self.discovery.take() {
            if self.state.feeds.all_answer() && self.state.packages.complete() {
                let moment = self.moment(now);
                discovery.polled(&World::new(&self.state, moment));
            } else {
                discovery.poll_failed();
            }
            self.discovery = Some(discovery);
        }
        self.judge_all(now);
        self.ask(now);
    }

    /// What the backends, each in its place, said to queries of a namespace.
    pub fn checked(&mut self, namespace: &str, queries: &[String], said: Vec<Answers>, now: Now) {
        self.state.checks.take(namespace, queries, said);
        let asks = |gate: &&GateObject| {
            gate.key.namespace == namespace
                && gate.spec.as_deref().is_ok_and(|spec| !spec.terms.checks.is_empty())
        };
        let concerned = self.state.gates.iter().filter(asks).map(|gate| gate.key.clone()).collect();
        self.judge(BTreeSet::new(), concerned, now);
    }

    /// What was found out about objects that FleetPackages refer to.
    pub fn referred(&mut self, place: &Place, news: references::News, now: Now) {
        let changed = self.state.references.take(place, news, now.passed);
        self.judge(changed, BTreeSet::new(), now);
        self.evaluate(now);
    }

    /// What an expression gave.
    pub fn evaluated(&mut self, done: Evaluated, now: Now) {
        self.evaluates = false;
        let changed = self.state.references.evaluated(done, now.passed);
        self.judge(changed, BTreeSet::new(), now);
        self.evaluate(now);
    }

    /// A while has passed: what waits for time goes on. Meant to come ten times a second.
    pub fn tick(&mut self, now: Now) {
        self.close_what_ends(now);
        let changed = self.state.references.expire(now.passed);
        self.judge(changed, BTreeSet::new(), now);
        self.evaluate(now);
        self.go_on(now);
    }

    /// The heartbeat has landed or not. Since when all gates that had to be closed were, but for those that it names.
    pub fn beaten(&mut self, landed: bool, now: Now) -> Option<Duration> {
        self.heartbeat.end(landed, now)
    }

    /// How reading an object ended.
    pub fn read(&mut self, number: Number, kind: Kind, key: &Key, found: Found, now: Now) {
        let known = found.is_ok();
        match found {
            Ok(Some(object)) if self.is_there(kind, key) => self.heard(kind, Event::Apply(object), now),
            Ok(None) => self.is_gone(kind, key, now),
            // The watch tells of one that is new. It may have told already that this one is gone.
            Ok(Some(_)) | Err(_) => {}
        }
        self.goes_on_after(number, kind, key, known, now);
        self.go_on(now);
    }

    /// Whether an object of this kind is known.
    fn is_there(&self, kind: Kind, key: &Key) -> bool {
        match kind {
            Kind::FleetPackage => self.state.packages.get(key).is_some(),
            Kind::RolloutGate => self.state.gates.get(key).is_some(),
            Kind::FleetRollout => self.state.rollouts.get(key).is_some(),
            Kind::FleetPackageSlice => self.state.slices.get(key).is_some(),
            Kind::FleetRolloutSlice => self.state.rollout_slices.get(key).is_some(),
            // Only their watches tell of them.
            Kind::RolloutFreeze | Kind::RolloutApproval => false,
        }
    }

    /// An object of this kind is gone.
    fn is_gone(&mut self, kind: Kind, key: &Key, now: Now) {
        match kind {
            Kind::FleetPackage => {
                let changed = self.state.packages.forget(key);
                self.packages_changed(changed, now);
            }
            Kind::RolloutGate => {
                self.look_at_rollouts_of(&[key.clone()].into());
                let changed = self.state.gates.forget(key);
                self.gates_changed(changed, now);
            }
            Kind::FleetPackageSlice => drop(self.state.slices.forget(key)),
            Kind::FleetRollout => {
                let changed = self.state.rollouts.forget(key);
                self.rollouts_changed(&changed, now);
            }
            Kind::FleetRolloutSlice => drop(self.state.rollout_slices.forget(key)),
            // Only their watches tell of them.
            Kind::RolloutFreeze | Kind::RolloutApproval => {}
        }
    }

    /// How a change of discovery's ended: whether it landed, or why not.
    pub fn discovered(&mut self, answer: Result<bool, String>) {
        if let Some(discovery) = &mut self.discovery {
            discovery.wrote(answer);
        }
    }

    // What follows.

    fn packages_changed(&mut self, changed: BTreeSet<Key>, now: Now) {
        if !self.are_new(Kind::FleetPackage, &changed, now) {
            return;
        }
        self.look_at_rollouts_for(&changed);
        let of_them = |gate: &&GateObject| gate.package().is_some_and(|package| changed.contains(&package));
        let concerned = self.state.gates.iter().filter(of_them).map(|gate| gate.key.clone()).collect();
        self.judge(changed, concerned, now);
    }

    fn gates_changed(&mut self, changed: BTreeSet<Key>, now: Now) {
        if self.are_new(Kind::RolloutGate, &changed, now) {
            self.look_at_rollouts_of(&changed);
            let concerned = self.state.concerned(changed);
            self.judge(BTreeSet::new(), concerned, now);
        }
    }

    /// What holds gates back is other than before for these.
    fn held_otherwise(&mut self, concerned: Concerned, now: Now) {
        let gates = match concerned {
            Concerned::All => return self.judge_all(now),
            Concerned::Namespaces(namespaces) => {
                namespaces.iter().for_each(|namespace| self.look_at_rollouts_within(namespace));
                let within = namespaces.iter().flat_map(|namespace| self.state.gates.within(namespace));
                within.map(|gate| gate.key.clone()).collect()
            }
            Concerned::Gates(gates) => gates,
        };
        if !gates.is_empty() {
            self.judge(BTreeSet::new(), gates, now);
        }
    }

    /// Other versions of these objects are known, or that they are gone. Whether that is a reason to judge.
    fn are_new(&mut self, kind: Kind, changed: &BTreeSet<Key>, now: Now) -> bool {
        changed.iter().for_each(|key| self.is_new(kind, key, now));
        !changed.is_empty() || !self.judged_all
    }

    /// Another version of an object is known, or that it is gone.
    fn is_new(&mut self, kind: Kind, key: &Key, now: Now) {
        let is_gone = !self.is_there(kind, key);
        let state = &mut self.state;
        state.unconfirmed.remove(&(kind, key.clone()));
        if is_gone {
            state.verdicts.forget(kind, key);
            if kind == Kind::FleetRollout {
                state.refused.remove(key);
                state.not_handed_over.remove(key);
            }
        }
        // The watch may be faster than the answer to a write.
        let under_way = self.flights.get(&(kind, key.clone())).map(|flight| &flight.what);
        if let (Some(Flight::Package(written)), Some(package)) = (under_way, state.packages.get(key)) {
            statuses::stands(state, written, package);
        } else if let (Some(Flight::Gate(written)), Some(gate)) = (under_way, state.gates.get(key)) {
            statuses::stands(state, written, gate);
        } else if let (Some(Flight::Rollout(written)), Some(rollout)) = (under_way, state.rollouts.get(key)) {
            statuses::stands(state, written, rollout);
        }
        self.commands.push(Command::Show(kind, key.clone()));
        if kind == Kind::FleetPackage {
            // Whatever it refers to now is followed from now on.
            let spec = state.packages.get(key).and_then(|package| package.spec.as_deref().ok());
            let from = spec.filter(|it| it.managed_by.is_none()).and_then(|it| it.revision_from.as_ref());
            let change = state.references.ask(key, from, now.passed);
            if change != references::Change::default() {
                self.commands.push(Command::Follow(change));
            }
        }
    }

    /// Has the next expression evaluated; one at a time.
    fn evaluate(&mut self, now: Now) {
        if !self.evaluates
            && let Some(evaluation) = self.state.references.next(now.passed)
        {
            self.evaluates = true;
            self.commands.push(Command::Evaluate(Box::new(evaluation)));
        }
    }

    /// Begins to ask what checks call for.
    fn ask(&mut self, now: Now) {
        if !self.state.can_judge() {
            return;
        }
        let moment = self.moment(now);
        let world = World::new(&self.state, moment);
        let mut queries = BTreeMap::<String, BTreeSet<String>>::new();
        for gate in self.state.gates.iter() {
            let questions = world.questions(gate);
            if !questions.is_empty() {
                queries.entry(gate.key.namespace.clone()).or_default().extend(questions);
            }
        }
        let backends = self.state.feeds.asked_at().count();
        let begun = self.state.checks.begin(queries, backends);
        if !begun.is_empty() {
            self.commands.push(Command::Ask(begun));
        }
    }

    fn judge_all(&mut self, now: Now) {
        // Slices may belong to a FleetPackage that went while nobody watched.
        let owners = self.state.slices.owners();
        let packages = self.state.packages.iter().map(|object| &object.key).chain(owners).cloned().collect();
        let gates = self.state.gates.iter().map(|object| object.key.clone()).collect();
        self.look_at_rollouts();
        self.judge(packages, gates, now);
    }

    fn judge(&mut self, packages: BTreeSet<Key>, gates: BTreeSet<Key>, now: Now) {
        if !self.state.has_listed() {
            return;
        }
        if !self.state.can_judge() {
            self.close_what_is_too_old(&gates, now);
        } else if !self.judged_all {
            self.judged_all = true;
            return self.judge_all(now);
        } else if !packages.is_empty() || !gates.is_empty() {
            self.sort(packages, gates, now);
        }
        self.go_on(now);
    }

    /// Judges, and sorts what is to be written: gates that close, with all that depend on them, and the rest.
    fn sort(&mut self, packages: BTreeSet<Key>, gates: BTreeSet<Key>, now: Now) {
        // What the fleet says of a package is found out once for a moment, so there is one for all.
        let moment = self.moment(now);
        let state = &self.state;
        let mut due: BTreeSet<Due> = packages.into_iter().map(|of| Due { of, gate: None }).collect();
        due.extend(gates.into_iter().map(|key| Due::gate(&state.gates, key)));
        let mut closing = state.closings.clone();
        let mut jobs = BTreeMap::new();
        while !due.is_empty() {
            let world = World { closing: &closing, ..World::new(state, moment) };
            let all: Vec<Due> = std::mem::take(&mut due).into_iter().collect();
            for todo in self.judges.judge(&world, &state.slices, &all) {
                match todo {
                    Todo::Writes(job, urgency) => drop(jobs.insert(job, urgency)),
                    Todo::Closes(key) if closing.insert(key.clone()) => {
                        let dependents = state.graph.dependents(&key);
                        due.extend(dependents.map(|key| Due::gate(&state.gates, key.clone())));
                    }
                    Todo::Closes(_) => {}
                }
            }
        }
        self.state.closings = closing;
        for (job, urgency) in jobs {
            self.queue.push(job, urgency);
        }
    }

    // What is to be done.

    /// Sends the closings for which there is room, and gives the sign of life when it is due.
    fn go_on(&mut self, now: Now) {
        self.close(now);
        if self.state.can_judge()
            && let Some(named) = self.heartbeat.begin(&self.state.closings, now)
        {
            self.commands.push(Command::Beat(named));
        }
    }

    /// The write budget allows for one write more: sends what waits longest, as it should be by now. How many writes that
    /// were; none yet where there is more to look at, and `None` where nothing can be written now.
    pub fn next_write(&mut self, now: Now) -> Option<u32> {
        let moment = self.moment(now);
        // Most of what waited may have been settled meanwhile; that costs no write.
        let mut looks = 0;
        loop {
            if looks == MOST_LOOKS {
                return Some(0);
            }
            let flights = &self.flights;
            let Some(job) = self.queue.pop(|namespace| flights.has_room(namespace)) else { break };
            if let Some(flight) = self.flights.get_mut(&job) {
                flight.again = true;
                continue;
            }
            let written = match job.0 {
                Kind::FleetPackage => self.write_package(&job.1, moment, now),
                Kind::RolloutGate => self.write_gate(&job.1, moment, 0, now),
                Kind::FleetPackageSlice => self.write_slices(&job.1, moment, now),
                Kind::FleetRollout => {
                    looks += 1;
                    self.write_rollout(&job.1, moment, 0, now)
                }
                Kind::FleetRolloutSlice => 0,
                // People write these, and nobody else.
                Kind::RolloutFreeze | Kind::RolloutApproval => 0,
            };
            if written > 0 {
                return Some(written);
            }
        }
        let discovery = self.discovery.as_mut().filter(|_| self.queue.is_empty());
        if let Some(discovery) = discovery
            && let Some(change) = discovery.begin_next()
        {
            self.commands.push(Command::Discover(discovery.namespace().to_owned(), change));
            return Some(1);
        }
        None
    }

    /// A write is over: what was known of it.
    fn end(&mut self, job: &Job, number: Number) -> Option<Flight> {
        let flight = self.flights.end(job, number)?;
        // It was to be written again meanwhile.
        if flight.again {
            self.queue.push(job.clone(), Urgency::News);
        }
        Some(flight.what)
    }

    /// The moment to judge at.
    fn moment(&mut self, now: Now) -> Moment {
        let since = |at: Duration| now.passed.saturating_sub(at) < MOMENT;
        match self.moment {
            Some((moment, at)) if since(at) => moment,
            _ => {
                let moment = self.state.feeds.moment(now);
                self.moment = Some((moment, now.passed));
                moment
            }
        }
    }

    fn number(&mut self) -> Number {
        self.numbers += 1;
        self.numbers
    }
}

#[cfg(test)]
#[path = "reconciler_tests.rs"]
mod tests;

//! One history: clusters, the feeds that tell of them, a hub, and the reconciler between them.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use statusbridge_contract::Metric;

use super::steps::{
    CLUSTERS, Change, FEEDS, GATES, Holds, Landing, NAMESPACES, PACKAGES, REFERENCES, REPORTED, Read, Step,
};
use crate::decide::closing::{self, Unwatched};
use crate::decide::time;
use crate::fleet::{self, Fleet, FleetSettings, Heard};
use crate::reconcile::command::{Answer, Command, StatusWrite};
use crate::reconcile::feeds::{Failure as Unanswered, Planned, Polled};
use crate::reconcile::holds;
use crate::reconcile::judge::World;
use crate::reconcile::judging::Judges;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{GateObject, Key, Kind};
use crate::reconcile::profiles::{self, News};
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::references::{self, Failure, Place};
use crate::reconcile::state::{Rules, State};
use crate::reconcile::store::Event;
use crate::testing::hub::{Hub, object};
use crate::testing::{Exposition, digests, failed, healthy, kept, package};
use crate::time::{Now, Seconds};

const START: Seconds = 1_800_000_000.0;
/// How far behind the present the feeds are looked at, in seconds.
const SETTLE: Seconds = 5.0;
/// By which feed each of the two exporters of each cluster is heard.
const HEARD_BY: [[usize; 2]; CLUSTERS.len()] = [[0, 1], [0, 0], [1, 1]];
/// No step leads to more writes and readings than this.
const MOST_TURNS: usize = 300;

/// One workload cluster.
struct Cluster {
    exposition: Exposition,
    behind: Seconds,
    scraped: [bool; 2],
    restarts: u64,
}

/// All of it.
pub(super) struct History {
    pub(super) reconciler: Reconciler,
    clusters: Vec<Cluster>,
    /// The objects of the hub.
    pub(super) hub: Hub,
    /// Why each feed fails, if it does.
    failing: [Option<&'static str>; FEEDS.len()],
    epoch: i64,
    /// What was sent and has not arrived yet.
    on_its_way: Vec<StatusWrite>,
    /// By how much our own clock is ahead of what is looked at.
    ahead: Seconds,
    t: Seconds,
}

fn key((namespace, name): (&str, &str)) -> Key {
    Key { namespace: namespace.into(), name: name.into() }
}

/// No gate opens by members that did not stand in the hub before, and none has others for the same revision.
fn keeps_to_members(object: &Value, status: &Value) {
    let clusters = &object["spec"]["clusters"];
    if clusters["freeze"] != true || clusters["selector"].is_null() {
        assert!(status["members"].is_null(), "nothing is frozen: {status}");
        return;
    }
    if object["metadata"]["annotations"]["touched"] == "true" {
        // What stands there is not the aggregator's.
        return;
    }
    let (before, after) = (&object["status"]["members"], &status["members"]);
    let conditions = status["conditions"].as_array().unwrap();
    let open = conditions.iter().find(|it| it["type"] == "Open").unwrap();
    if open["status"] == "True" && open["reason"] != "Overridden" {
        assert!(!before.is_null() && before == after, "{object} {status}");
    }
    if before["of"] == after["of"] && object["status"]["tenancy"] == status["tenancy"] {
        assert_eq!(before, after);
    }
}

/// Both feeds, of which nothing was heard yet.
fn feeds() -> Vec<Planned> {
    FEEDS.map(|name| Planned { name: name.into(), settle: SETTLE, asked: false }).into()
}

fn fleet() -> Fleet {
    Fleet::new(FleetSettings { forget_after: 400.0, ..FleetSettings::default() })
}

fn reconciler(epoch: i64) -> Reconciler {
    let mut state = State::new(fleet(), profiles::Settings::default(), Rules::default(), epoch);
    state.holds = holds::Holds::none();
    let mut reconciler = Reconciler::new(state, Judges::threads().unwrap(), None);
    reconciler.planned(feeds(), fleet());
    reconciler
}

impl History {
    pub(super) fn new() -> Self {
        let exposition = |uid| {
            let all = Exposition::new(uid);
            REPORTED.iter().fold(all, |all, name| all.with(name, healthy("r1", START as u64 - 300)))
        };
        let cluster =
            |uid| Cluster { exposition: exposition(uid), behind: 0.0, scraped: [true, false], restarts: 0 };
        let mut history = Self {
            reconciler: reconciler(1),
            clusters: vec![cluster(1), cluster(2), cluster(3)],
            hub: Hub::default(),
            failing: [None; FEEDS.len()],
            epoch: 1,
            on_its_way: Vec::new(),
            ahead: SETTLE,
            t: START,
        };
        let all = json!({"reporting": {"minClusters": 1}});
        for at in 0..PACKAGES.len() {
            history.make_package(at, json!({"clusters": all, "staleAfter": "2m"}));
        }
        for (at, (namespace, _)) in GATES.iter().enumerate() {
            let clusters = if at == 0 { json!({"names": ["a", "b", "c"]}) } else { all.clone() };
            let of = if *namespace == "fleet" { REPORTED[at % 2] } else { "p" };
            history.make_gate(
                at,
                json!({"fleetPackageRef": {"name": of}, "revision": "r1", "clusters": clusters}),
            );
        }
        history.lists();
        (0..FEEDS.len()).for_each(|feed| history.poll_ends(feed));
        history
    }

    fn now(&self) -> Now {
        Now { wall: self.t + self.ahead, passed: Duration::from_secs_f64(self.t - START) }
    }

    /// The reconciler lists the hub's objects.
    fn lists(&mut self) {
        let now = self.now();
        for kind in [Kind::FleetPackage, Kind::RolloutGate] {
            for event in self.hub.listed(kind) {
                self.reconciler.heard(kind, event, now);
            }
        }
    }

    /// The reconciler hears of an object.
    fn hears(&mut self, kind: Kind, event: Event<LazyObject>) {
        self.reconciler.heard(kind, event, self.now());
    }

    /// An object is made, or has another spec; its status stays.
    fn make(&mut self, kind: Kind, key: Key, spec: Value) {
        let made = self.hub.make(kind, key, spec);
        self.hears(kind, Event::Apply(made));
    }

    fn make_gate(&mut self, at: usize, spec: Value) {
        self.make(Kind::RolloutGate, key(GATES[at]), spec);
    }

    fn make_package(&mut self, at: usize, mut spec: Value) {
        let id = package(PACKAGES[at].1);
        spec["package"] = json!({"source": id.source, "namespace": id.namespace, "name": id.name});
        self.make(Kind::FleetPackage, key(PACKAGES[at]), spec);
    }

    fn gone(&mut self, kind: Kind, key: Key) {
        if let Some(gone) = self.hub.remove(kind, key) {
            self.hears(kind, Event::Delete(gone));
        }
    }

    /// Somebody else changes an object, if it is there.
    fn touch(&mut self, kind: Kind, key: Key, change: impl FnOnce(&mut Value)) {
        if let Some(it) = self.hub.touch(kind, key, change) {
            self.hears(kind, Event::Apply(it));
        }
    }

    /// These clusters alone are in the inventory, and are selected.
    pub(super) fn inventory(&mut self, clusters: &[usize]) {
        let profile = |at: &usize| {
            let profile =
                json!({"metadata": {"namespace": "fleet", "name": CLUSTERS[*at], "labels": {"in": "true"}}});
            Event::InitApply(serde_json::from_value::<kube_core::DynamicObject>(profile).unwrap())
        };
        let events = [Event::Init].into_iter().chain(clusters.iter().map(profile)).chain([Event::InitDone]);
        self.reconciler.profiles(events.map(News::from).collect(), self.now());
    }

    /// Somebody else changes what a gate says.
    pub(super) fn touched_status(&mut self, at: usize, change: impl FnOnce(&mut Value)) {
        self.touch(Kind::RolloutGate, key(GATES[at]), |gate| {
            gate["metadata"]["annotations"] = json!({"touched": "true"});
            change(&mut gate["status"]);
        });
    }

    /// A feed is polled, and if it answers it tells of every exporter that is scraped.
    fn polled(&mut self, feed: usize) {
        for (cluster, instance) in (0..CLUSTERS.len()).flat_map(|it| [(it, 0), (it, 1)]) {
            let heard = self.failing[feed].is_none() && HEARD_BY[cluster][instance] == feed;
            if heard && self.clusters[cluster].scraped[instance] {
                let late = (3 * cluster + 5 * instance) as Seconds;
                self.hear(cluster, instance, late, false);
            }
        }
        self.answers(feed);
        self.poll_ends(feed);
    }

    /// The poll of a feed has come to its end.
    fn poll_ends(&mut self, feed: usize) {
        let failure = |error: &str| Unanswered { error: error.to_owned(), clock_lags: None };
        let outcome = self.failing[feed].map_or(Ok((0, 0)), |error| Err(failure(error)));
        self.reconciler.polled(feed, Polled { t: self.t, settle: SETTLE, outcome }, self.now());
    }

    /// The fleet hears whether a feed answers.
    fn answers(&mut self, feed: usize) {
        match self.failing[feed] {
            None => self.reconciler.fleet().answered(FEEDS[feed], self.t),
            Some(why) => self.reconciler.fleet().unanswered(FEEDS[feed], why.into()),
        }
    }

    fn hear(&mut self, cluster: usize, instance: usize, late: Seconds, torn: bool) {
        let Cluster { exposition, behind, restarts, .. } = &self.clusters[cluster];
        let at = self.t - late;
        let feed = FEEDS[HEARD_BY[cluster][instance]];
        // Every other one goes on under the same labels.
        let instance = format!("{instance}-{}", restarts / 2);
        let labels = [("cluster", CLUSTERS[cluster]), ("instance", instance.as_str())];
        let rendered = (at - behind) as u64;
        let mut digests = digests(&labels, exposition, &[at]);
        digests.stream.feed = feed.into();
        let digest = exposition.digest(rendered) ^ u64::from(torn);
        digests.samples[0].exposition = fleet::Exposition { digest, rendered };
        let fleet = self.reconciler.fleet();
        if let Heard::Unread(samples) = fleet.hear(&digests, self.t) {
            let key = (&*digests.cluster, &digests.stream);
            if torn {
                fleet.reject(key, "it is torn".into());
            } else {
                fleet.accept(key, &samples[0], exposition.content(), self.t);
            }
        }
    }

    fn values(&mut self, cluster: usize, at: usize, to: Change) {
        let since = self.t as u64;
        let packages = &mut self.clusters[cluster].exposition.packages;
        let values = match to {
            Change::Gone => return drop(packages.remove(&package(REPORTED[at]))),
            Change::Healthy(first) => healthy(if first { "r1" } else { "r2" }, since),
            Change::Failed => failed("r1", since),
            Change::Undated => healthy("r1", 0),
            Change::Counts => {
                let counts = [(Metric::PackageResources, 3), (Metric::PackageResourcesCurrent, 1)];
                [healthy("r1", START as u64 - 300), counts.to_vec()].concat()
            }
        };
        packages.insert(package(REPORTED[at]), values);
    }

    fn freeze(&mut self, namespace: usize, name: usize, span: Option<(i16, i16)>) {
        let key = Key { namespace: NAMESPACES[namespace].into(), name: format!("f{name}") };
        let Some((from, until)) = span else { return self.gone(Kind::RolloutFreeze, key) };
        let now = self.now().wall;
        let at = |seconds: i16| time(now + Seconds::from(seconds));
        let spec = json!({"reason": "because", "from": at(from), "until": at(until)});
        self.make(Kind::RolloutFreeze, key, spec);
    }

    fn approval(&mut self, name: usize, of: Option<(usize, bool)>) {
        let gate = of.map_or(GATES[0], |(gate, _)| GATES[gate]);
        let key = Key { namespace: gate.0.into(), name: format!("a{name}") };
        let Some((_, first)) = of else { return self.gone(Kind::RolloutApproval, key) };
        let revision = if first { "r1" } else { "r2" };
        let spec = json!({"gateRef": {"name": gate.1}, "revision": revision, "by": {"user": "anna"}});
        self.make(Kind::RolloutApproval, key, spec);
    }

    fn holds(&mut self, freezes: bool, news: Holds) {
        let news = match news {
            Holds::Listed => vec![Event::Init.into(), Event::InitDone.into()],
            Holds::NotServed => vec![holds::News::NotServed],
            Holds::Broken => vec![holds::News::Broken("refused".into())],
        };
        let now = self.now();
        for news in news {
            if freezes {
                self.reconciler.freezes(news, now);
            } else {
                self.reconciler.approvals(news, now);
            }
        }
    }

    pub(super) fn happens(&mut self, step: Step) {
        match step {
            Step::Round(seconds) => {
                self.t += f64::from(seconds);
                (0..FEEDS.len()).for_each(|feed| self.polled(feed));
            }
            Step::Polled(feed) => self.polled(feed),
            Step::Wait(seconds) => self.t += f64::from(seconds),
            Step::Beat { cluster, instance, late } => self.hear(cluster, instance, late.into(), false),
            Step::Torn { cluster, instance } => self.hear(cluster, instance, 0.0, true),
            Step::Change { cluster, package, to } => self.values(cluster, package, to),
            Step::Down { cluster } => {
                let down = &mut self.clusters[cluster].exposition.down;
                if down.pop().is_none() {
                    down.push("flux".into());
                }
            }
            Step::Uid { cluster, uid } => self.clusters[cluster].exposition.uid = uid,
            Step::Scraped { cluster, instance } => self.clusters[cluster].scraped[instance] ^= true,
            Step::Restart { cluster } => {
                self.clusters[cluster].restarts += 1;
                self.clusters[cluster].exposition.process += 1;
            }
            Step::Clock { cluster, behind } => self.clusters[cluster].behind = behind.into(),
            Step::Feed { feed, answers, ended } => {
                let why = ["refused", "timed out"][(self.hub.versions % 2) as usize];
                self.failing[feed] = (!answers).then_some(why);
                self.answers(feed);
                if ended {
                    self.poll_ends(feed);
                }
            }
            Step::Replanned => self.reconciler.planned(feeds(), fleet()),
            Step::Reread => {
                let rules = self.reconciler.state().rules.clone();
                let label = json!([{"label": {"key": "in", "value": "false"}}]);
                let excused = if self.hub.versions.is_multiple_of(2) { label } else { json!([]) };
                let settings = serde_json::from_value(json!({"excused": excused})).unwrap();
                self.reconciler.forget_profiles(settings);
                self.reconciler.configured(rules, self.now());
            }
            Step::Tenants(rules) => {
                let tenancy =
                    if rules.is_null() { <_>::default() } else { serde_json::from_value(rules).unwrap() };
                self.reconciler.configured(Rules { tenancy, ..Rules::default() }, self.now());
            }
            Step::Reference { namespace, news } => self.read(NAMESPACES[namespace], news),
            Step::Leads => {
                self.epoch += 1;
                self.reconciler = reconciler(self.epoch);
                self.lists();
            }
            Step::Gate(at, spec) => self.make_gate(at, spec),
            Step::Package(at, spec) => self.make_package(at, spec),
            Step::Profile { cluster, label, unhealthy } => {
                let status = if unhealthy { "False" } else { "True" };
                let profile = json!({
                    "metadata": {"namespace": "fleet", "name": CLUSTERS[cluster], "labels": {"in": label.to_string()}},
                    "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": status, "reason": "Why"}]},
                });
                let profile: kube_core::DynamicObject = serde_json::from_value(profile).unwrap();
                let mut news = vec![Event::Apply(profile)];
                if self.hub.versions.is_multiple_of(2) {
                    news.splice(0..0, [Event::Init, Event::InitDone]);
                }
                self.reconciler.profiles(news.into_iter().map(News::from).collect(), self.now());
            }
            Step::Freeze { namespace, name, span } => self.freeze(namespace, name, span),
            Step::Approval { name, of } => self.approval(name, of),
            Step::Holds { freezes, news } => self.holds(freezes, news),
            Step::OwnClock(ahead) => self.ahead = ahead.into(),
            Step::Unscraped { cluster, why } => {
                let why = ["refused", "timed out"].get(usize::from(why)).map(|why| (*why).to_owned());
                self.reconciler.fleet().unscraped(CLUSTERS[cluster], "http://exporter/", why);
            }
            Step::Unlisted => self.reconciler.profiles(vec![News::Broken("refused".into())], self.now()),
            Step::Swept(at) => {
                let now = self.t + self.ahead;
                self.touch(Kind::RolloutGate, key(GATES[at]), |gate| {
                    let read = GateObject::read(object(gate)).unwrap();
                    let spec = read.spec.as_deref().map_err(String::as_str);
                    let closed =
                        read.status.and_then(|it| closing::unwatched(Unwatched::Silent, spec, &it, now));
                    if let Some(closed) = closed {
                        gate["status"] = json!(closed);
                    }
                });
            }
            Step::Touched(at) => {
                self.touch(Kind::RolloutGate, key(GATES[at]), |gate| {
                    gate["metadata"]["labels"] = json!({"touched": "true"});
                });
            }
            Step::GateGone(at) => self.gone(Kind::RolloutGate, key(GATES[at])),
            Step::PackageGone(at) => self.gone(Kind::FleetPackage, key(PACKAGES[at])),
            Step::Arrives => {
                for write in std::mem::take(&mut self.on_its_way) {
                    if let Answer::Done(object) = self.arrives(&write, Landing::Whole) {
                        self.hears(write.kind, Event::Apply(*object));
                    }
                }
            }
        }
    }

    /// Something is heard of the objects that hold revisions.
    fn read(&mut self, namespace: &str, news: Read) {
        let place = Place { namespace: namespace.into(), api_version: "v1".into(), kind: "ConfigMap".into() };
        let holds = |revision: Option<bool>| {
            kept(&match revision {
                Some(first) => json!({"data": {"revision": if first { "r1" } else { "r2" }}}),
                None => json!({"data": {}}),
            })
        };
        let name = |at: usize| REFERENCES[at].to_owned();
        let news = match news {
            Read::Listed(all) => references::News::Listed {
                asked: REFERENCES.map(str::to_owned).into(),
                objects: (0..)
                    .zip(all)
                    .filter(|(_, it)| it.is_some())
                    .map(|(at, it)| (name(at), holds(it)))
                    .collect(),
            },
            Read::Holds(at, revision) => references::News::Changed(name(at), Some(holds(revision))),
            Read::Deleted(at) => references::News::Changed(name(at), None),
            Read::Failed { forbidden: true } => {
                references::News::Failed(Failure::Forbidden { verb: "list", resource: "configmaps".into() })
            }
            Read::Failed { forbidden: false } => {
                references::News::Failed(Failure::NotAnswered("refused".into()))
            }
        };
        self.reconciler.referred(&place, news, self.now());
    }

    /// Judges every object by what is remembered, and by what is not: how many would be written.
    pub(super) fn compare(&self) -> Result<usize, TestCaseError> {
        let state = self.reconciler.state();
        let world = World::new(state, self.reconciler.present(self.now()));
        let mut unsaid = 0;
        let known = |kind: Kind, key: &Key| match kind {
            Kind::RolloutGate => state.gates.get(key).is_some(),
            _ => state.packages.get(key).is_some(),
        };
        let names = |kind, all: &[_]| all.iter().map(|name| (kind, key(*name))).collect::<Vec<_>>();
        prop_assert!(state.fleet.is_noted(), "what has become of a cluster was not noted");
        for (kind, key) in [names(Kind::FleetPackage, &PACKAGES), names(Kind::RolloutGate, &GATES)].concat() {
            prop_assert!(known(kind, &key) || state.verdicts.number(kind, &key).is_none(), "{} is gone", key);
        }
        for gate in state.gates.iter() {
            let (nothing, observations) = Default::default();
            let anew = World { verdicts: &nothing, observations: &observations, ..world }.gate(gate);
            // Twice the same.
            for again in [world.gate(gate), world.gate(gate)] {
                comes_to_the_same(&json!(again), &json!(anew), &gate.key)?;
            }
            unsaid += usize::from(anew.is_some());
        }
        for package in state.packages.iter() {
            let (nothing, observations) = Default::default();
            let anew = World { verdicts: &nothing, observations: &observations, ..world }.package(package);
            comes_to_the_same(&json!(world.package(package)), &json!(anew), &package.key)?;
            unsaid += usize::from(anew.is_some());
        }
        Ok(unsaid)
    }

    /// Does all that the reconciler wants done.
    pub(super) fn acts(&mut self, landing: Landing) -> Result<(), TestCaseError> {
        for _ in 0..MOST_TURNS {
            let now = self.now();
            let mut commands = self.reconciler.commands();
            if commands.is_empty() {
                if !self.reconciler.has_writes() {
                    return Ok(());
                }
                self.reconciler.next_write(now);
                commands = self.reconciler.commands();
            }
            for command in commands {
                match command {
                    Command::Write(write) => {
                        let answer = match landing {
                            Landing::None => Answer::Unconfirmed,
                            _ => self.arrives(&write, landing),
                        };
                        if let Answer::Done(object) = &answer
                            && self.hub.versions.is_multiple_of(2)
                        {
                            // The watch is faster than the answer.
                            self.hears(write.kind, Event::Apply(*object.clone()));
                        }
                        self.reconciler.wrote(write.number, write.kind, &write.version.key, answer, now);
                        if landing == Landing::None {
                            self.on_its_way.push(*write);
                        }
                    }
                    Command::Read(number, kind, key) => {
                        let found = self.hub.get(kind, &key).map(object);
                        self.reconciler.read(number, kind, &key, Ok(found), now);
                    }
                    Command::Evaluate(evaluation) => self.reconciler.evaluated(evaluation.run(), now),
                    Command::Beat(_) => _ = self.reconciler.beaten(true, now),
                    _ => {}
                }
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// A write arrives in the hub: its answer.
    fn arrives(&mut self, write: &StatusWrite, landing: Landing) -> Answer {
        let mut status = json!(write.status);
        if landing == Landing::Pruned {
            status.as_object_mut().unwrap().remove("epoch");
        }
        let before = self.hub.get(write.kind, &write.version.key).cloned();
        let answer = self.hub.write_status(write, status.clone());
        if let (Some(before), Answer::Done(_)) = (before, &answer) {
            keeps_to_members(&before, &status);
        }
        answer
    }
}

fn comes_to_the_same(again: &Value, anew: &Value, key: &Key) -> Result<(), TestCaseError> {
    prop_assert!(comes_to(again, anew), "{}: {} and anew {}", key, again, anew);
    Ok(())
}

/// Whether two statuses say the same; one that was decided before and waits to be written may say so of earlier times.
fn comes_to(again: &Value, anew: &Value) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    match (again, anew) {
        (Value::Object(again), Value::Object(anew)) => {
            again.len() == anew.len()
                && again.iter().all(|(name, value)| match anew.get(name) {
                    // How old the evidence is, is told of now.
                    Some(other) if name == "asOf" => value == other,
                    Some(other) => comes_to(value, other),
                    None => false,
                })
        }
        (Value::Array(again), Value::Array(anew)) => {
            again.len() == anew.len() && again.iter().zip(anew).all(|(value, other)| comes_to(value, other))
        }
        (Value::String(again), Value::String(anew)) if again != anew => {
            time(again).zip(time(anew)).is_some_and(|(again, anew)| again < anew)
        }
        _ => again == anew,
    }
}

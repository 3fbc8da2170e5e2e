//! The reconciler against a hub of a few lines: what it wants done, and what it makes of answers that come late or never.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use statusbridge_api::conditions::{OPEN, is_true};

use super::Reconciler;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::command::{Answer, Command, Number, Status, StatusWrite, Unreadable};
use crate::reconcile::feeds::{Failure, Planned, Polled};
use crate::reconcile::holds::{Holds, News};
use crate::reconcile::judging::Judges;
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{Key, Kind};
use crate::reconcile::owned::Change;
use crate::reconcile::profiles;
use crate::reconcile::state::{Rules, State};
use crate::reconcile::store::Event;
use crate::reconcile::tenancy::Tenancy;
use crate::testing::{Exposition, failed, healthy, tell};
use crate::time::{Now, Seconds};

const START: Seconds = 1_000_000.0;
/// Nothing leads to more than that.
const MOST_TURNS: usize = 2000;

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

fn gate(name: &str, generation: i64, depends_on: &[&str], status: Value) -> Value {
    let depends_on: Vec<Value> = depends_on.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"namespace": "fleet", "name": name, "uid": name, "resourceVersion": "10", "generation": generation},
        "spec": {"fleetPackageRef": {"name": "p"}, "revision": "r1", "clusters": {"names": ["a"]}, "dependsOn": depends_on},
        "status": status,
    })
}

fn open(generation: i64) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Healthy", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"observedGeneration": generation, "asOf": "1970-01-12T13:46:35Z", "conditions": [condition("Ready"), condition("Open"), condition("OpenedOnce")]})
}

fn object(value: &Value) -> LazyObject {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// A reconciler, the hub that it writes to, and what happened: `READ wave-1`, `WRITE wave-1 True`, `BEAT` with the gates
/// that the heartbeat names.
struct World {
    reconciler: Reconciler,
    gates: BTreeMap<String, Value>,
    happened: Vec<String>,
    millis: u64,
    /// Writes of this gate are never answered, and reach the hub only if a test says so.
    hangs: String,
    hanging: Vec<StatusWrite>,
    /// Gates cannot be read.
    unreadable: bool,
    /// The hub knows nothing of who wrote a status, as with an older CRD.
    cuts: bool,
}

impl World {
    /// It knows these gates, and a cluster where the package is healthy at their revision. The hub has others.
    fn new(known: &[Value], hub: &[Value]) -> Self {
        let fleet = || Fleet::new(FleetSettings::default());
        let mut state = State::new(fleet(), profiles::Settings::default(), Rules::default(), 1);
        state.holds = Holds::none();
        let mut reconciler = Reconciler::new(state, Judges::default(), None);
        let feed = Planned { name: "".into(), settle: 5.0, asked: false };
        reconciler.planned(vec![feed], fleet());
        let name = |gate: &Value| gate["metadata"]["name"].as_str().unwrap().to_owned();
        let gates = hub.iter().map(|gate| (name(gate), gate.clone())).collect();
        let mut world = Self {
            reconciler,
            gates,
            happened: Vec::new(),
            millis: 0,
            hangs: String::new(),
            hanging: Vec::new(),
            unreadable: false,
            cuts: false,
        };
        let now = world.now();
        let package = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": {"namespace": "fleet", "name": "p", "resourceVersion": "1", "generation": 1},
            "spec": {"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "1h"},
        });
        for event in [Event::Init, Event::InitApply(object(&package)), Event::InitDone] {
            world.reconciler.heard(Kind::FleetPackage, event, now);
        }
        world.reconciler.heard(Kind::RolloutGate, Event::Init, now);
        for gate in known {
            world.reconciler.heard(Kind::RolloutGate, Event::InitApply(object(gate)), now);
        }
        world.reconciler.heard(Kind::RolloutGate, Event::InitDone, now);
        world.says(true);
        world
    }

    fn now(&self) -> Now {
        let passed = Duration::from_millis(self.millis);
        Now { wall: START + passed.as_secs_f64(), passed }
    }

    /// The cluster says this some seconds later, and a poll finds it.
    fn says(&mut self, is_healthy: bool) {
        self.millis += 20_000;
        let values = if is_healthy { healthy("r1", 10) } else { failed("r1", 10) };
        let at = self.now().wall - 5.0;
        tell(self.reconciler.fleet(), &[("cluster", "a")], &Exposition::new(1).with("p", values), at);
        self.polled();
    }

    fn polled(&mut self) {
        let now = self.now();
        self.reconciler.polled(0, Polled { t: now.wall - 5.0, settle: 5.0, outcome: Ok((1, 0)) }, now);
    }

    /// Lets so much time pass, in steps of 100 ms, and all happen that happens in it.
    fn pass(&mut self, millis: u64) {
        let until = self.millis + millis;
        loop {
            let now = self.now();
            self.reconciler.tick(now);
            let turns = (0..MOST_TURNS).take_while(|_| self.act()).count();
            assert!(turns < MOST_TURNS, "it does not come to rest");
            if self.millis >= until {
                return;
            }
            self.millis += 100;
        }
    }

    /// Does what is to be done now; whether anything was.
    fn act(&mut self) -> bool {
        let now = self.now();
        let mut commands = self.reconciler.commands();
        if commands.is_empty() && self.reconciler.has_writes() {
            self.reconciler.next_write(now);
            commands = self.reconciler.commands();
        }
        let any = !commands.is_empty();
        for command in commands {
            match command {
                Command::Write(write) => self.write(write),
                Command::Read(number, kind, key) => self.read(number, kind, &key),
                Command::Beat(named) => {
                    let named: Vec<String> = named.iter().map(|key| key.name.clone()).collect();
                    self.happened.push(format!("BEAT {}", named.join(" ")));
                    self.reconciler.beaten(true, now);
                }
                _ => {}
            }
        }
        any
    }

    fn write(&mut self, write: Box<StatusWrite>) {
        let Status::Gate { status, .. } = &write.status else {
            return self.answer(&write, Answer::NotSent);
        };
        let name = &write.version.key.name;
        let is_open = if is_true(&status.conditions, OPEN) { "True" } else { "False" };
        self.happened.push(format!("WRITE {name} {is_open}"));
        if *name == self.hangs {
            self.hanging.push(*write);
        } else {
            self.arrives(&write);
        }
    }

    /// A write reaches the hub, and its answer this process.
    fn arrives(&mut self, write: &StatusWrite) {
        let version = &write.version;
        let Some(gate) = self.gates.get_mut(&version.key.name) else {
            return self.answer(write, Answer::Gone);
        };
        let known = gate["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        if !version.resource_version.is_empty() && version.resource_version != known {
            return self.answer(write, Answer::Conflict);
        }
        let next: u64 = known.parse::<u64>().unwrap() + 1;
        gate["metadata"]["resourceVersion"] = json!(next.to_string());
        gate["status"] = json!(write.status);
        if self.cuts {
            gate["status"].as_object_mut().unwrap().remove("epoch");
        }
        let answer = Answer::Done(Box::new(object(gate)));
        self.answer(write, answer);
    }

    fn answer(&mut self, write: &StatusWrite, answer: Answer) {
        let now = self.now();
        self.reconciler.wrote(write.number, write.kind, &write.version.key, answer, now);
    }

    fn read(&mut self, number: Number, kind: Kind, key: &Key) {
        self.happened.push(format!("READ {}", key.name));
        let found = if self.unreadable { Err(Unreadable) } else { Ok(self.gates.get(&key.name).map(object)) };
        let now = self.now();
        self.reconciler.read(number, kind, key, found, now);
    }

    /// What happened since this was asked before, that begins so.
    fn take(&mut self, begins: &str) -> Vec<String> {
        let happened = std::mem::take(&mut self.happened);
        happened.into_iter().filter_map(|it| it.strip_prefix(begins).map(str::to_owned)).collect()
    }
}

fn world(gates: &[Value]) -> World {
    World::new(gates, gates)
}

#[test]
fn a_gate_opens_once_the_one_before_it_was_seen_to_be_open() {
    let mut world = world(&[gate("wave-1", 1, &[], open(1)), gate("wave-2", 1, &["wave-1"], Value::Null)]);
    world.pass(0);
    let read = world.happened.iter().position(|it| it == "READ wave-1").unwrap();
    let written = world.happened.iter().position(|it| it == "WRITE wave-2 True").unwrap();
    assert!(read < written, "{:?}", world.happened);
}

/// What a hub says of a freeze from then until then, in seconds after the start.
fn freeze(version: u32, from: f64, until: f64) -> News {
    let at = |seconds| crate::decide::time(START + seconds);
    let freeze = json!({
        "metadata": {"namespace": "fleet", "name": "f", "uid": "f", "resourceVersion": version.to_string()},
        "spec": {"reason": "because", "from": at(from), "until": at(until)},
    });
    Event::Apply(object(&freeze)).into()
}

#[test]
fn a_freeze_closes_at_once_and_one_that_is_to_come_when_it_begins() {
    let mut world = world(&[gate("wave-1", 1, &[], open(1))]);
    world.pass(0);
    world.happened.clear();
    let now = world.now();
    world.reconciler.freezes(freeze(1, 0.0, 3_600.0), now);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave-1 False"]);

    // It is put off, and no poll comes by when it begins.
    let begins = now.wall - START + 10.0;
    world.reconciler.freezes(freeze(2, begins, 3_600.0), now);
    world.pass(9_000);
    assert_eq!(world.take("WRITE "), ["wave-1 True"]);
    world.pass(2_100);
    assert_eq!(world.take("WRITE "), ["wave-1 False"]);
    let status = &world.gates["wave-1"]["status"];
    assert_eq!((&status["waitingFor"][0]["reason"], &status["openUntil"]), (&json!("Frozen"), &Value::Null));
}

#[test]
fn nothing_opens_before_freezes_and_approvals_were_heard_of() {
    let [first, second] = ["wave-1", "wave-2"].map(|name| gate(name, 1, &[], Value::Null));
    let mut world = World::new(std::slice::from_ref(&first), &[first.clone(), second.clone()]);
    world.pass(1_000);
    world.happened.clear();
    world.reconciler.state.holds = Holds::default();
    let now = world.now();
    world.reconciler.heard(Kind::RolloutGate, Event::Apply(object(&second)), now);
    world.polled();
    world.pass(1_000);
    assert_eq!(world.take("WRITE "), Vec::<String>::new());
    let now = world.now();
    world.reconciler.freezes(News::Broken("refused".into()), now);
    world.reconciler.approvals(News::NotServed, now);
    world.pass(1_000);
    assert_eq!(world.take("WRITE "), ["wave-2 False"]);
    world.reconciler.freezes(News::NotServed, now);
    world.pass(1_000);
    assert_eq!(world.take("WRITE "), ["wave-2 True"]);
}

#[test]
fn a_watch_that_lags_does_not_open_a_gate() {
    // Be it that the second was never judged, or was open for its spec of before.
    for second in [gate("wave-2", 1, &["wave-1"], Value::Null), gate("wave-2", 2, &["wave-1"], open(1))] {
        // The first has another spec by now, for which it has not been judged.
        let mut first = gate("wave-1", 2, &["nobody"], open(1));
        first["metadata"]["resourceVersion"] = json!("20");
        let mut world =
            World::new(&[gate("wave-1", 1, &[], open(1)), second.clone()], &[first, second.clone()]);
        world.pass(1000);
        assert!(world.happened.contains(&"READ wave-1".to_owned()), "{:?}", world.happened);
        let written = world.take("WRITE ");
        assert!(!written.contains(&"wave-2 True".to_owned()), "{written:?}");
        assert!(written.contains(&"wave-2 False".to_owned()), "{written:?}");
        assert!(written.contains(&"wave-1 False".to_owned()), "it is judged for what it is now: {written:?}");
    }
}

#[test]
fn a_dependency_that_is_gone_or_cannot_be_read_does_not_open_a_gate() {
    let known = [gate("wave-1", 1, &[], open(1)), gate("wave-2", 1, &["wave-1"], Value::Null)];
    for unreadable in [false, true] {
        let mut world = World::new(&known, if unreadable { &known } else { &known[1..] });
        world.unreadable = unreadable;
        world.pass(1000);
        assert_eq!(world.happened.contains(&"READ wave-1".to_owned()), unreadable, "{:?}", world.happened);
        let written = world.take("WRITE wave-2 ");
        let expected = if unreadable { &[][..] } else { &["False"] };
        assert_eq!(written, expected, "what is gone is found out by writing to it");
    }
}

#[test]
fn a_whole_row_closes_in_one_go() {
    const GATES: usize = 300;
    let name = |at: usize| format!("g{at:03}");
    let mut gates: Vec<Value> = (1..GATES).map(|at| gate(&name(at), 1, &[&name(at - 1)], open(1))).collect();
    // The first has lost what it rests on.
    gates.push(gate(&name(0), 1, &["nobody"], open(1)));
    let mut world = world(&gates);
    world.pass(0);
    let expected: BTreeSet<String> = (0..GATES).map(|at| format!("{} False", name(at))).collect();
    assert_eq!(world.take("WRITE ").into_iter().collect::<BTreeSet<_>>(), expected);
    assert!(world.reconciler.state().closings.is_empty());
}

#[test]
fn a_closing_that_hangs_takes_the_heartbeat_from_its_gate_alone_and_holds_up_nothing() {
    let gates = ["hangs", "other"].map(|name| gate(name, 1, &[], open(1)));
    let mut world = world(&gates);
    world.pass(0);
    assert_eq!(world.take("BEAT "), [""]);
    world.hangs = "hangs".into();
    world.says(false);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["hangs False", "other False"]);
    world.pass(1900);
    assert_eq!(world.take("BEAT "), Vec::<String>::new(), "it may land yet");
    world.pass(100);
    assert_eq!(world.take("BEAT "), ["hangs"]);
    // Evidence goes on, and so does the other gate.
    world.says(true);
    world.pass(2000);
    assert_eq!(world.happened, ["WRITE other True", "BEAT hangs"], "what was sent may land yet");
    world.happened.clear();
    world.says(false);
    world.pass(2000);
    assert_eq!(world.happened, ["WRITE other False", "BEAT hangs"], "one write of a gate at a time");
    world.happened.clear();
    // The hub takes the write that hung after all.
    world.hangs.clear();
    let late = world.hanging.pop().unwrap();
    world.arrives(&late);
    world.pass(0);
    assert!(world.reconciler.state().closings.is_empty());
    assert_eq!(world.take("BEAT "), [""]);
}

#[test]
fn writes_that_hang_take_the_places_of_their_namespace_alone() {
    let mut gates: Vec<Value> = (0..50).map(|n| gate(&format!("hangs-{n}"), 1, &[], Value::Null)).collect();
    let mut other = gate("other", 1, &[], Value::Null);
    other["metadata"]["namespace"] = json!("elsewhere");
    other["metadata"]["name"] = json!("z");
    let mut package = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "elsewhere", "name": "p", "resourceVersion": "1", "generation": 1},
        "spec": {"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "1h"},
    });
    package["metadata"]["uid"] = json!("p2");
    gates.push(other);
    let mut world = world(&gates);
    let now = world.now();
    world.reconciler.heard(Kind::FleetPackage, Event::Apply(object(&package)), now);
    for _ in 0..100 {
        world.reconciler.next_write(now);
    }
    let commands = world.reconciler.commands();
    let gates: Vec<&Key> = commands
        .iter()
        .filter_map(|it| match it {
            Command::Write(write) if write.kind == Kind::RolloutGate => Some(&write.version.key),
            _ => None,
        })
        .collect();
    assert!(gates.iter().filter(|key| key.namespace == "fleet").count() <= 8, "{gates:?}");
    assert!(gates.iter().any(|key| key.namespace == "elsewhere"), "{gates:?}");
}

#[test]
fn a_closing_that_is_not_sent_or_not_answered_is_tried_again_after_a_second() {
    let mut world = world(&[gate("wave", 1, &[], open(1))]);
    world.pass(0);
    world.happened.clear();
    world.hangs = "wave".into();
    world.says(false);
    for answer in [Answer::NotSent, Answer::Unconfirmed] {
        world.pass(900);
        let sent = world.hanging.pop().unwrap();
        world.answer(&sent, answer);
        world.pass(900);
        assert_eq!(world.take("WRITE "), ["wave False"]);
        world.pass(100);
        assert_eq!(world.take("WRITE "), ["wave False"]);
        world.happened.push("WRITE wave False".into());
    }
    assert!(!world.reconciler.state().unconfirmed.is_empty());
    let sent = world.hanging.pop().unwrap();
    world.arrives(&sent);
    assert!(world.reconciler.state().unconfirmed.is_empty(), "it is known again what the hub has");
}

#[test]
fn nobody_keeps_a_gate_open_by_changing_it_all_the_time() {
    let mut world = world(&[gate("wave", 1, &[], open(1))]);
    world.pass(0);
    world.hangs = "wave".into();
    world.says(false);
    world.pass(0);
    for attempt in 0..5 {
        let sent = world.hanging.pop().unwrap();
        assert!(!sent.version.resource_version.is_empty(), "{attempt}");
        // Somebody was quicker.
        world.gates.get_mut("wave").unwrap()["metadata"]["resourceVersion"] =
            json!((20 + attempt).to_string());
        world.arrives(&sent);
        world.pass(0);
    }
    let sent = world.hanging.pop().unwrap();
    assert_eq!((sent.version.resource_version.as_str(), sent.version.uid.as_str()), ("", "wave"));
    world.gates.get_mut("wave").unwrap()["metadata"]["resourceVersion"] = json!("30");
    world.arrives(&sent);
    assert!(world.reconciler.state().closings.is_empty());
}

#[test]
fn what_turns_bad_while_an_opening_is_under_way_closes_as_soon_as_that_has_landed() {
    let mut world = world(&[gate("wave", 1, &[], Value::Null)]);
    world.hangs = "wave".into();
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave True"]);
    world.says(false);
    world.pass(3000);
    assert_eq!(world.take("WRITE "), Vec::<String>::new());
    let opening = world.hanging.pop().unwrap();
    world.hangs.clear();
    world.arrives(&opening);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave False"]);
}

/// A gate of which the opening was sent, and is on its way.
fn opening_that_hangs() -> (World, StatusWrite) {
    let mut world = world(&[gate("wave", 1, &[], Value::Null)]);
    world.hangs = "wave".into();
    world.pass(0);
    let opening = world.hanging.pop().unwrap();
    (world, opening)
}

#[test]
fn an_answer_that_comes_after_a_later_version_changes_nothing() {
    let (mut world, opening) = opening_that_hangs();
    let mut written = gate("wave", 1, &[], json!(opening.status));
    written["metadata"]["resourceVersion"] = json!("11");
    let mut later = gate("wave", 2, &[], json!(opening.status));
    later["metadata"]["resourceVersion"] = json!("12");
    world.reconciler.heard(Kind::RolloutGate, Event::Apply(object(&later)), world.now());
    world.answer(&opening, Answer::Done(Box::new(object(&written))));
    assert_eq!(world.reconciler.state().gates.get(&key("wave")).unwrap().generation, 2);
}

#[test]
fn nothing_brings_back_a_gate_whose_deletion_was_heard_of() {
    let (mut world, opening) = opening_that_hangs();
    let written = object(&gate("wave", 1, &[], json!(opening.status)));
    let now = world.now();
    world.reconciler.heard(Kind::RolloutGate, Event::Delete(written.clone()), now);
    world.answer(&opening, Answer::Done(Box::new(written.clone())));
    assert_eq!(world.reconciler.state().gates.get(&key("wave")), None);
    world.reconciler.read(7, Kind::RolloutGate, &key("wave"), Ok(Some(written)), now);
    assert_eq!(world.reconciler.state().gates.get(&key("wave")), None);
}

#[test]
fn an_opening_of_which_a_part_lands_after_its_evidence_is_too_old_is_closed_at_once() {
    let (mut world, opening) = opening_that_hangs();
    world.hangs.clear();
    world.cuts = true;
    world.take("WRITE ");
    world.millis += 7_200_000;
    world.arrives(&opening);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave False"]);
}

#[test]
fn what_was_sent_for_one_spec_does_not_stand_for_the_next() {
    let (mut world, opening) = opening_that_hangs();
    world.hangs.clear();
    let mut written = gate("wave", 1, &[], json!(opening.status));
    written["metadata"]["resourceVersion"] = json!("11");
    let mut later = gate("wave", 2, &[], json!(opening.status));
    (later["metadata"]["resourceVersion"], later["spec"]["revision"]) = (json!("12"), json!("r2"));
    world.gates.insert("wave".into(), later.clone());
    world.take("WRITE ");
    world.reconciler.heard(Kind::RolloutGate, Event::Apply(object(&later)), world.now());
    world.answer(&opening, Answer::Done(Box::new(object(&written))));
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave False"]);
}

#[test]
fn a_poll_that_finds_our_clock_hours_behind_closes_what_is_too_old_at_once() {
    let mut world = world(&[gate("wave", 1, &[], open(1))]);
    world.pass(0);
    world.take("WRITE ");
    let now = world.now();
    let outcome = Err(Failure { error: "our clock lags".into(), clock_lags: Some(7200.0) });
    world.reconciler.polled(0, Polled { t: now.wall - 5.0, settle: 5.0, outcome }, now);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave False"]);
}

#[test]
fn slices_of_a_report_that_went_while_nobody_watched_are_removed() {
    let mut world = world(&[]);
    let slice = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackageSlice",
        "metadata": {"namespace": "fleet", "name": "gone-0", "uid": "gone-0", "resourceVersion": "9", "ownerReferences": [{
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage", "name": "gone", "uid": "gone", "controller": true}]},
        "fleetPackageGeneration": 1, "clusters": [],
    });
    for event in [Event::Init, Event::InitApply(object(&slice)), Event::InitDone] {
        world.reconciler.heard(Kind::FleetPackageSlice, event, world.now());
    }
    world.polled();
    while world.reconciler.has_writes() {
        world.reconciler.next_write(world.now());
    }
    let commands = world.reconciler.commands();
    let removed: Vec<&str> = commands
        .iter()
        .filter_map(|it| match it {
            Command::WriteOwned(write) => match &write.change {
                Change::Delete(version) => Some(version.key.name.as_str()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(removed, ["gone-0"]);
}

#[test]
fn what_was_decided_long_ago_is_not_sent() {
    let (mut world, write) = opening_that_hangs();
    assert!(write.may_be_sent(world.now()));
    world.millis += 9999;
    assert!(write.may_be_sent(world.now()));
    world.millis += 1;
    assert!(!write.may_be_sent(world.now()));
}

#[test]
fn a_verdict_does_not_outlive_the_rules_that_it_was_given_under() {
    let mut world = world(&[gate("wave", 1, &[], Value::Null)]);
    world.pass(0);
    world.polled();
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave True"], "it is given once, and stands");
    let tenancy: Tenancy = serde_json::from_str("[]").unwrap();
    let now = world.now();
    world.reconciler.configured(Rules { tenancy, ..Rules::default() }, now);
    world.pass(0);
    assert_eq!(world.take("WRITE "), ["wave False"], "its namespace may see nothing any more");
}

/// A gate that is open by evidence of this time.
fn dated(name: &str, depends_on: &[&str], as_of: &str) -> Value {
    let mut gate = gate(name, 1, depends_on, open(1));
    gate["status"]["asOf"] = json!(as_of);
    gate
}

/// One that has listed these, and that no backend has answered yet.
fn before_the_first_poll(gates: &[Value]) -> Reconciler {
    let fleet = || Fleet::new(FleetSettings::default());
    let mut state = State::new(fleet(), profiles::Settings::default(), Rules::default(), 1);
    state.holds = Holds::none();
    let mut reconciler = Reconciler::new(state, Judges::default(), None);
    reconciler.planned(vec![Planned { name: "".into(), settle: 5.0, asked: false }], fleet());
    let now = Now { wall: START, passed: Duration::ZERO };
    let package = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "p", "resourceVersion": "1", "generation": 1},
        "spec": {
            "package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "3m",
            "excused": [{"cluster": "c2", "reason": "a new disk", "until": IN_A_MINUTE}],
        },
    });
    for event in [Event::Init, Event::InitApply(object(&package)), Event::InitDone] {
        reconciler.heard(Kind::FleetPackage, event, now);
    }
    let gates = gates.iter().map(|gate| Event::InitApply(object(gate)));
    for event in [Event::Init].into_iter().chain(gates).chain([Event::InitDone]) {
        reconciler.heard(Kind::RolloutGate, event, now);
    }
    reconciler
}

/// `START` and a minute.
const IN_A_MINUTE: &str = "1970-01-12T13:47:40Z";
/// Ten seconds before `START`.
const YOUNG: &str = "1970-01-12T13:46:30Z";

/// What is written so many seconds after `START`.
fn after(seconds: u32, reconciler: &mut Reconciler) -> Vec<Key> {
    let passed = Duration::from_secs(seconds.into());
    reconciler.tick(Now { wall: START + Seconds::from(seconds), passed });
    writes(reconciler)
}

fn writes(reconciler: &mut Reconciler) -> Vec<Key> {
    let writes = reconciler.commands().into_iter();
    writes.filter_map(|it| if let Command::Write(it) = it { Some(it.version.key) } else { None }).collect()
}

#[test]
fn before_the_first_poll_only_what_is_too_old_closes_and_what_depends_on_it() {
    let old = dated("old", &[], "1970-01-01T00:00:00Z");
    let gates = [old, dated("young", &[], YOUNG), dated("after", &["old"], YOUNG)];
    let mut reconciler = before_the_first_poll(&gates);
    assert_eq!(writes(&mut reconciler), [key("old")]);
    reconciler.tick(Now { wall: START, passed: Duration::ZERO });
    assert_eq!(writes(&mut reconciler), [key("after")]);
    assert!(!reconciler.has_writes());
}

#[test]
fn before_the_first_poll_what_is_open_closes_at_the_end_of_its_window_and_when_a_freeze_begins() {
    let mut windowed = dated("windowed", &[], YOUNG);
    windowed["spec"]["windows"] = json!([{"schedule": "46 13 * * *", "duration": "90s"}]);
    let mut reconciler = before_the_first_poll(&[windowed, dated("young", &[], YOUNG)]);
    assert_eq!((after(0, &mut reconciler), after(49, &mut reconciler)), (vec![], vec![]));
    assert_eq!(after(51, &mut reconciler), [key("windowed")]);
    let freeze = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutFreeze",
        "metadata": {"namespace": "fleet", "name": "night", "resourceVersion": "1", "generation": 1},
        "spec": {"reason": "night", "from": IN_A_MINUTE, "until": "1970-01-13T00:00:00Z"},
    });
    let now = Now { wall: START + 52.0, passed: Duration::from_secs(52) };
    reconciler.heard(Kind::RolloutFreeze, Event::Apply(object(&freeze)), now);
    assert_eq!(after(59, &mut reconciler), []);
    assert_eq!(after(61, &mut reconciler), [key("young")]);
}

#[test]
fn before_the_first_poll_what_is_open_by_an_override_or_an_excuse_closes_with_that() {
    let mut overridden = dated("overridden", &[], YOUNG);
    overridden["spec"]["override"] = json!({"state": "Open", "reason": "we know", "until": IN_A_MINUTE});
    let mut excused = dated("excused", &[], YOUNG);
    excused["status"]["excused"] =
        json!([{"clusterName": "c2", "reason": "a new disk", "until": IN_A_MINUTE}]);
    excused["status"]["clusters"] = json!({"total": 1, "excused": 1, "healthy": 1});
    let mut reconciler = before_the_first_poll(&[overridden, excused, dated("young", &[], YOUNG)]);
    assert_eq!((after(0, &mut reconciler), after(59, &mut reconciler)), (vec![], vec![]));
    assert_eq!(after(61, &mut reconciler), [key("excused"), key("overridden")]);
}

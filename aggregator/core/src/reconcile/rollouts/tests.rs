//! FleetRollouts through the reconciler, against a hub of a few lines.

use std::time::Duration;

use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;

use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::command::Command;
use crate::reconcile::feeds::Polled;
use crate::reconcile::holds::Holds;
use crate::reconcile::object::{Key, Kind};
use crate::reconcile::profiles::{News, Settings};
use crate::reconcile::reconciler::Reconciler;
use crate::reconcile::references;
use crate::reconcile::state::{Rules, State};
use crate::reconcile::store::Event;
use crate::testing::hub::Hub as Objects;
use crate::testing::{Exposition, healthy, kept, tell};
use crate::time::{Now, Seconds};

const START: Seconds = 1_800_000_000.0;
/// Nothing leads to more than that.
const MOST_TURNS: usize = 500;
const KINDS: [Kind; 4] = [Kind::FleetPackage, Kind::RolloutGate, Kind::FleetRollout, Kind::FleetRolloutSlice];

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

fn at(t: Seconds) -> Now {
    Now { wall: t, passed: Duration::from_secs_f64(t - START) }
}

fn state(epoch: i64) -> State {
    let fleet = Fleet::new(FleetSettings::default());
    let mut state = State::new(fleet, Settings::default(), Rules::default(), epoch);
    state.holds = Holds::none();
    state
}

/// The reconciler, and a hub that takes all that it writes.
struct Hub {
    reconciler: Reconciler,
    objects: Objects,
    epoch: i64,
    t: Seconds,
}

impl Hub {
    /// The FleetPackage `p` in these clusters and more of its spec, and the FleetRollout `roll` with these waves.
    fn new(clusters: &[&str], package: Value, waves: Value) -> Self {
        let mut objects = Objects::default();
        let mut spec = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"},
            "clusters": {"names": clusters}, "staleAfter": "1h"});
        spec.as_object_mut().unwrap().extend(package.as_object().unwrap().clone());
        objects.make(Kind::FleetPackage, key("p"), spec);
        let spec = json!({"fleetPackageRef": {"name": "p"}, "waves": waves});
        objects.make(Kind::FleetRollout, key("roll"), spec);
        let (epoch, t) = (1, START);
        Self { reconciler: objects.leader(state(epoch), &KINDS, at(t)), objects, epoch, t }
    }

    fn now(&self) -> Now {
        at(self.t)
    }

    /// Another process leads, which has read all objects of the hub, and nothing else.
    fn leads(&mut self) {
        self.epoch += 1;
        self.reconciler = self.objects.leader(state(self.epoch), &KINDS, self.now());
    }

    /// Some seconds pass, in which these clusters say that the package is healthy at this revision, and the backend is polled.
    /// Then all is done that the reconciler wants done.
    fn polled(&mut self, clusters: &[&str], revision: &str) {
        self.t += 15.0;
        for cluster in clusters {
            let uid = Fingerprint::of(cluster).value();
            let said = Exposition::new(uid).with("p", healthy(revision, START as u64));
            tell(self.reconciler.fleet(), &[("cluster", cluster)], &said, self.t - 5.0);
        }
        let now = self.now();
        self.reconciler.polled(0, Polled { t: self.t - 5.0, settle: 5.0, outcome: Ok((1, 0)) }, now);
        self.comes_to_rest();
    }

    fn comes_to_rest(&mut self) {
        let now = self.now();
        for _ in 0..MOST_TURNS {
            let mut commands = self.reconciler.commands();
            if commands.is_empty() {
                if !self.reconciler.has_writes() {
                    return;
                }
                self.reconciler.next_write(now);
                commands = self.reconciler.commands();
            }
            for command in commands {
                match command {
                    Command::Write(write) => {
                        let answer = self.objects.write_status(&write, json!(write.status));
                        self.reconciler.wrote(write.number, write.kind, &write.version.key, answer, now);
                    }
                    Command::WriteOwned(write) => {
                        let answer = self.objects.write_owned(&write);
                        self.reconciler.wrote_owned(&write, answer, now);
                    }
                    Command::List(number, key, listings) => {
                        let found = listings.iter().flat_map(|it| self.objects.heads(it)).collect();
                        self.reconciler.listed(number, &key, &Ok(found), now);
                    }
                    Command::Evaluate(evaluation) => self.reconciler.evaluated(evaluation.run(), now),
                    Command::Beat(_) => drop(self.reconciler.beaten(true, now)),
                    _ => {}
                }
            }
        }
        panic!("it does not come to rest");
    }

    /// Somebody changes a spec.
    fn edit(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut spec = self.spec(kind, name);
        edit(&mut spec);
        let made = self.objects.make(kind, key(name), spec);
        self.reconciler.heard(kind, Event::Apply(made), self.now());
    }

    fn spec(&self, kind: Kind, name: &str) -> Value {
        self.objects.get(kind, &key(name)).unwrap()["spec"].clone()
    }

    /// The clusters of a wave; none before it has started.
    fn wave(&self, name: &str) -> Vec<String> {
        let gate = self.objects.get(Kind::RolloutGate, &key(&format!("roll-{name}")));
        gate.map(|it| serde_json::from_value(it["spec"]["clusters"]["names"].clone()).unwrap())
            .unwrap_or_default()
    }

    fn status(&self) -> Value {
        self.objects.get(Kind::FleetRollout, &key("roll")).unwrap()["status"].clone()
    }

    fn reason(&self) -> String {
        let status = self.status();
        let ready = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
        ready.map(|it| it["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

fn two_waves() -> Value {
    json!([
        {"name": "canary", "clusters": {"count": 2}},
        {"name": "rest", "clusters": {"percentage": "100%"}},
    ])
}

#[test]
fn a_cluster_that_is_excused_is_in_a_later_wave_and_holds_none_up() {
    let clusters = ["a", "b", "c", "d", "e"];
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), two_waves());
    hub.polled(&clusters, "r1");
    let usual = hub.wave("canary");
    assert_eq!(usual.len(), 2, "{}", hub.status());

    // The first of them is excused, and does not get there.
    let excused = json!([{"cluster": usual[0], "reason": "repair"}]);
    let mut hub = Hub::new(&clusters, json!({"revision": "r2", "excused": excused}), two_waves());
    hub.polled(&clusters, "r1");
    let canary = hub.wave("canary");
    assert!(!canary.contains(&usual[0]), "{canary:?}");
    assert_eq!((canary.len(), canary.first()), (2, usual.get(1)), "the order of the others stays");
    let others: Vec<&str> = clusters.into_iter().filter(|it| *it != usual[0]).collect();
    hub.polled(&others, "r2");
    let rest = hub.wave("rest");
    assert_eq!((rest.len(), rest.last()), (3, usual.first()), "{}", hub.status());
    hub.polled(&others, "r2");
    assert_eq!(hub.reason(), "RolledOut");
}

#[test]
fn nobody_is_taken_of_the_rest_before_it_is_known_whom_a_selector_means() {
    let clusters = ["a", "b", "c"];
    let waves = json!([
        {"name": "canary", "clusters": {"count": 2}},
        {"name": "prod", "clusters": {"selector": {"matchLabels": {"env": "prod"}}}},
    ]);
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), waves);
    hub.polled(&clusters, "r1");
    assert_eq!((hub.wave("canary"), hub.reason().as_str()), (Vec::new(), "ClusterProfilesUnavailable"));
    let profile = |name: &str, env: &str| {
        let profile = json!({"metadata": {"namespace": "fleet", "name": name, "labels": {"env": env}}});
        Event::InitApply(serde_json::from_value(profile).unwrap())
    };
    let all = [profile("a", "prod"), profile("b", "prod"), profile("c", "lab")];
    let news = [Event::Init].into_iter().chain(all).chain([Event::InitDone]).map(News::from).collect();
    let now = hub.now();
    hub.reconciler.profiles(news, now);
    hub.polled(&clusters, "r1");
    assert_eq!(hub.wave("canary"), ["c"]);
}

#[test]
fn a_gate_that_was_opened_by_hand_is_not_so_for_the_next_revision() {
    let clusters = ["a", "b", "c"];
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), two_waves());
    hub.polled(&clusters, "r1");
    hub.edit(Kind::RolloutGate, "roll-canary", |spec| {
        spec["override"] = json!({"state": "Open", "reason": "promoted"});
    });
    hub.polled(&clusters, "r1");
    assert_eq!(hub.wave("rest").len(), 1, "{}", hub.status());
    hub.edit(Kind::FleetPackage, "p", |spec| spec["revision"] = json!("r3"));
    hub.polled(&clusters, "r1");
    hub.polled(&clusters, "r1");
    let gate = hub.spec(Kind::RolloutGate, "roll-canary");
    assert_eq!((&gate["revision"], &gate["override"]), (&json!("r3"), &Value::Null));
    assert!(hub.wave("rest").is_empty(), "{}", hub.status());
}

#[test]
fn what_closes_a_gate_by_hand_outlasts_revisions_and_cannot_be_planned_around() {
    let clusters = ["a", "b", "c"];
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), two_waves());
    hub.polled(&clusters, "r1");
    let closed = json!({"state": "Closed", "reason": "stop"});
    hub.edit(Kind::RolloutGate, "roll-canary", |spec| spec["override"] = closed.clone());
    hub.edit(Kind::FleetPackage, "p", |spec| spec["revision"] = json!("r3"));
    hub.polled(&clusters, "r3");
    hub.polled(&clusters, "r3");
    let gate = hub.spec(Kind::RolloutGate, "roll-canary");
    assert_eq!((&gate["revision"], &gate["override"]), (&json!("r3"), &closed));
    hub.edit(Kind::FleetRollout, "roll", |spec| spec["waves"][0]["name"] = json!("other"));
    hub.polled(&clusters, "r3");
    assert_eq!((hub.reason().as_str(), hub.wave("other").len()), ("GateChanged", 0), "{}", hub.status());
}

#[test]
fn a_gate_has_the_terms_that_its_wave_has_now_and_keeps_what_people_close_it_by() {
    let clusters = ["a", "b", "c"];
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), two_waves());
    let terms = json!({"minSuccessTime": "1h", "maxFailures": 1});
    hub.edit(Kind::FleetRollout, "roll", |spec| spec["waves"][0]["gate"] = terms);
    hub.polled(&clusters, "r2");
    let asked = |hub: &Hub| {
        let gate = hub.spec(Kind::RolloutGate, "roll-canary");
        ["minSuccessTime", "maxFailures", "approval", "paused"].map(|field| gate[field].clone())
    };
    assert_eq!(asked(&hub), [json!("1h"), json!(1), Value::Null, Value::Null]);
    // Somebody asks for less, and for an approval.
    hub.edit(Kind::RolloutGate, "roll-canary", |spec| {
        spec["minSuccessTime"] = json!("0s");
        spec["approval"] = json!("Required");
        spec["paused"] = json!(true);
    });
    hub.polled(&clusters, "r2");
    assert_eq!(asked(&hub), [json!("1h"), json!(1), json!("Required"), json!(true)]);
    hub.edit(Kind::FleetRollout, "roll", |spec| spec["waves"][0]["gate"] = json!({}));
    hub.polled(&clusters, "r2");
    assert_eq!(asked(&hub), [Value::Null, Value::Null, json!("Required"), json!(true)]);
}

#[test]
fn a_plan_that_is_being_deleted_does_nothing() {
    let clusters = ["a", "b", "c"];
    let mut hub = Hub::new(&clusters, json!({"revision": "r2"}), two_waves());
    let going = hub.objects.touch(Kind::FleetRollout, key("roll"), |it| {
        it["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    });
    hub.reconciler.heard(Kind::FleetRollout, Event::Apply(going.unwrap()), hub.now());
    hub.polled(&clusters, "r2");
    assert!(hub.wave("canary").is_empty(), "{}", hub.status());
}

/// Else each leader would tell once more that a rollout has come to its end, or has failed.
#[test]
fn what_was_said_stands_until_the_revision_was_read_again() {
    let from =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "it", "expression": "object.data.revision"});
    let place =
        references::Place { namespace: "fleet".into(), api_version: "v1".into(), kind: "ConfigMap".into() };
    let reads = |hub: &mut Hub, news: &references::News| {
        let now = hub.now();
        hub.reconciler.referred(&place, news.clone(), now);
        hub.comes_to_rest();
    };
    let read = references::News::Listed {
        asked: ["it".to_owned()].into(),
        objects: [("it".to_owned(), kept(&json!({"data": {"revision": "r2"}})))].into(),
    };
    let refused = references::Failure::Forbidden { verb: "list", resource: "configmaps".into() };
    let mut hub = Hub::new(&["a"], json!({"revisionFrom": from}), two_waves());
    hub.polled(&["a"], "r2");
    assert_eq!(hub.reason(), "Pending");
    for (news, reason) in [(read, "RolledOut"), (references::News::Failed(refused), "RevisionForbidden")] {
        reads(&mut hub, &news);
        hub.polled(&["a"], "r2");
        hub.polled(&["a"], "r2");
        assert_eq!(hub.reason(), reason, "{}", hub.status());
        let told = hub.status();
        hub.leads();
        hub.polled(&["a"], "r2");
        assert_eq!(hub.status(), told);
        reads(&mut hub, &news);
        hub.polled(&["a"], "r2");
        assert_eq!(
            (&hub.status()["verdictSince"], &hub.status()["outcomeSince"]),
            (&told["verdictSince"], &told["outcomeSince"])
        );
        assert_eq!(hub.status()["epoch"], hub.epoch);
    }
}

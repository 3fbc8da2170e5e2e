//! When a status is written again that says nothing new.

use std::sync::atomic::Ordering;

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::common::ClusterSet;
use statusbridge_api::{FleetPackageStatus, RolloutGateStatus, conditions};

use super::*;
use crate::decide::{Evidence, only_refreshes};
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::object::Object;
use crate::reconcile::store::{Event, Packages};
use crate::testing::{self, Exposition, healthy, tell};

const T: Seconds = 1_800_000_000.0;

/// A fleet in which one cluster has `p` healthy at `r`, verified at `at`.
fn fleet(at: Seconds) -> Fleet {
    let exposition = Exposition::new(1).with("p", healthy("r", 10));
    let mut fleet = Fleet::new(FleetSettings::default());
    tell(&mut fleet, &[("cluster", "c")], &exposition, at);
    fleet
}

fn object<S, T>(kind: &str, spec: Value, status: Option<&Value>) -> Object<S, T>
where
    S: serde::de::DeserializeOwned,
    T: serde::de::DeserializeOwned + Evidence,
{
    let object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "fleet", "name": "it", "generation": 1}, "spec": spec, "status": status,
    });
    Object::read(serde_json::from_value(object).unwrap()).unwrap()
}

fn package(status: Option<&FleetPackageStatus>) -> PackageObject {
    let spec = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "revision": "r",
        "clusters": ClusterSet::any_reporting(), "staleAfter": "3m"});
    object("FleetPackage", spec, status.map(|it| json!(it)).as_ref())
}

fn gate(status: Option<&RolloutGateStatus>) -> GateObject {
    let spec = json!({"fleetPackageRef": {"name": "it"}, "revision": "r", "clusters": {"names": ["c"]}});
    object("RolloutGate", spec, status.map(|it| json!(it)).as_ref())
}

fn packages() -> Packages {
    let mut packages = Packages::default();
    let object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "it"}, "spec": *package(None).spec.unwrap(),
    });
    packages.apply(Event::Apply(serde_json::from_value(object).unwrap()));
    packages
}

/// What is worth writing of both kinds at `at`, over what is there.
fn worth(
    at: Seconds,
    epoch: i64,
    unconfirmed: &BTreeSet<(Kind, Key)>,
    over: Option<&(FleetPackageStatus, RolloutGateStatus)>,
) -> (Option<FleetPackageStatus>, Option<RolloutGateStatus>) {
    let mut state = testing::state(fleet(at));
    (state.packages, state.epoch, state.unconfirmed) = (packages(), epoch, unconfirmed.clone());
    let world = World::new(&state, Moment { t: at, now: at });
    (world.package(&package(over.map(|it| &it.0))), world.gate(&gate(over.map(|it| &it.1))))
}

#[test]
fn quiet_objects_are_written_once_by_a_new_leader_and_when_a_write_is_in_doubt() {
    let sure = BTreeSet::new();
    let (package, gate) = worth(T, 1, &sure, None);
    let there = (package.unwrap(), gate.unwrap());
    assert!(conditions::is_true(&there.1.conditions, conditions::OPEN), "{:?}", there.1);
    assert_eq!((there.0.epoch, there.1.epoch), (Some(1), Some(1)));

    assert_eq!(worth(T + 5.0, 1, &sure, Some(&there)), (None, None), "nothing but time has passed");
    let (package, gate) = worth(T, 2, &sure, Some(&there));
    let next = (package.unwrap(), gate.unwrap());
    assert_eq!((next.0.epoch, next.1.epoch), (Some(2), Some(2)));
    assert!(only_refreshes(Some(&there.0), &next.0) && only_refreshes(Some(&there.1), &next.1));
    assert_eq!(worth(T, 2, &sure, Some(&next)), (None, None), "once is enough");

    let key = Key { namespace: "fleet".into(), name: "it".into() };
    let unconfirmed = [(Kind::FleetPackage, key.clone()), (Kind::RolloutGate, key)].into();
    assert_eq!(worth(T, 1, &unconfirmed, Some(&there)), (None, None), "the same would be no new version");
    let (package, gate) = worth(T + 5.0, 1, &unconfirmed, Some(&there));
    assert!(only_refreshes(Some(&there.0), &package.unwrap()));
    assert!(only_refreshes(Some(&there.1), &gate.unwrap()));
}

#[test]
fn a_verdict_stands_only_on_what_does_not_change_unseen() {
    let mut state = testing::state(fleet(T));
    state.packages = packages();
    let stands = |state: &State, clusters: &Value, checks: Value| {
        let spec = json!({"fleetPackageRef": {"name": "it"}, "revision": "r", "clusters": clusters, "checks": checks});
        let world = World::new(state, Moment { t: T, now: T });
        world.basis_of_gate(&object("RolloutGate", spec, None)).is_some()
    };
    let named = json!({"names": ["c"]});
    assert!(stands(&state, &named, json!([])));
    let check = json!([{"name": "errors", "query": "q", "max": 0.5}]);
    assert!(!stands(&state, &named, check), "its answer is another at the next poll");
    assert!(!stands(&state, &json!({"selector": {}}), json!([])), "no ClusterProfile was read yet");
    let key = Key { namespace: "fleet".into(), name: "it".into() };
    state.unconfirmed = [(Kind::RolloutGate, key)].into();
    assert!(!stands(&state, &named, json!([])), "nobody knows what the hub has");
}

#[rstest]
#[case::the_same("u", "2", [1, 0, 1, 2])]
#[case::another_object_of_that_name("v", "2", [0, 0, 1, 3])]
#[case::another_version("u", "3", [0, 0, 1, 3])]
fn a_verdict_is_on_one_version_of_one_object(
    #[case] uid: &str,
    #[case] version: &str,
    #[case] stood_refreshed_due_unknown: [u64; 4],
) {
    let mut state = testing::state(fleet(T));
    state.packages = packages();
    let world = World::new(&state, Moment { t: T, now: T });
    let mut it = gate(None);
    (it.uid, it.resource_version) = ("u".into(), "1".into());
    let status = world.gate(&it);
    assert!(status.is_some());
    assert_eq!(world.gate(&it), status, "as long as it is not written, it is due");
    (it.status, it.resource_version) = (status, "2".into());
    assert_eq!(world.gate(&it), None);
    (it.uid, it.resource_version) = (uid.into(), version.into());
    assert_eq!(world.gate(&it), None);
    let counts = state.verdicts.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, stood_refreshed_due_unknown);
}

#[test]
fn what_is_due_is_judged_anew_once_it_rests_on_something_else() {
    let mut state = testing::state(fleet(T));
    state.packages = packages();
    let mut it = gate(None);
    (it.uid, it.resource_version) = ("u".into(), "1".into());
    let judged = |state: &State, at: Seconds| World::new(state, Moment { t: at, now: at }).gate(&it).unwrap();
    assert!(judged(&state, T).says_open());
    // A poll later the evidence is younger, and the status says so; then it is too old.
    let exposition = Exposition::new(1).with("p", healthy("r", 10));
    tell(&mut state.fleet, &[("cluster", "c")], &exposition, T + 5.0);
    assert_eq!(crate::decide::unix(judged(&state, T + 5.0).as_of.as_ref().unwrap()), T + 5.0);
    assert!(!judged(&state, T + 1000.0).says_open());
    state.packages = Packages::default();
    assert!(!judged(&state, T + 5.0).says_open());
}

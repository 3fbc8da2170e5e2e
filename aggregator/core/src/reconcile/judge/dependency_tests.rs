//! How a gate finds the gates that it depends on.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::fleet::Fleet;
use crate::reconcile::object::Object;
use crate::testing;

fn object(
    kind: &str,
    name: &str,
    generation: i64,
    spec: Value,
    status: Value,
) -> crate::reconcile::lazy_object::LazyObject {
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "fleet", "name": name, "resourceVersion": "1", "generation": generation},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

fn spec(package: &str, revision: &str, depends_on: &[&str]) -> Value {
    let depends_on: Vec<Value> = depends_on.iter().map(|name| json!({"name": name})).collect();
    json!({"fleetPackageRef": {"name": package}, "revision": revision, "clusters": {"names": ["a"]},
        "dependsOn": depends_on})
}

/// Open, by a condition of one generation in a status of another.
fn open(status: i64, condition: i64, is: &str) -> Value {
    json!({"observedGeneration": status, "conditions": [{
        "type": "Open", "status": is, "reason": "Healthy", "message": "", "observedGeneration": condition,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

const R: &str = "main@sha1:1111111111111111111111111111111111111111";

#[rstest]
#[case::open(spec("p", R, &[]), open(2, 2, "True"), Dependency::Open)]
#[case::in_other_words(spec("p", "111111111111", &[]), open(2, 2, "True"), Dependency::Open)]
#[case::closed(spec("p", R, &[]), open(2, 2, "False"), Dependency::NotOpen)]
#[case::never_judged(spec("p", R, &[]), json!({"observedGeneration": -1, "conditions": []}), Dependency::NotOpen)]
#[case::no_status(spec("p", R, &[]), json!(null), Dependency::NotOpen)]
#[case::open_before_it_was_changed(spec("p", R, &[]), open(1, 1, "True"), Dependency::NotOpen)]
#[case::a_condition_of_before(spec("p", R, &[]), open(2, 1, "True"), Dependency::NotOpen)]
#[case::a_status_of_before(spec("p", R, &[]), open(1, 2, "True"), Dependency::NotOpen)]
#[case::unreadable(json!({"revision": 7}), open(2, 2, "True"), Dependency::NotOpen)]
#[case::another_revision(spec("p", "v2", &[]), open(2, 2, "True"), Dependency::AtAnotherRevision)]
#[case::another_revision_by_another_report(spec("same", "v2", &[]), open(2, 2, "True"), Dependency::AtAnotherRevision)]
#[case::another_package(spec("other", "v2", &[]), open(2, 2, "True"), Dependency::Open)]
#[case::a_package_that_is_not_there(spec("gone", "v2", &[]), open(2, 2, "True"), Dependency::NotOpen)]
fn how_another_gate_stands(#[case] theirs: Value, #[case] status: Value, #[case] expected: Dependency) {
    let mut state = testing::state(Fleet::default());
    for (name, package) in [("p", "payments"), ("same", "payments"), ("other", "billing")] {
        let spec = json!({"package": {"source": "flux", "name": package}});
        state.packages.insert(object("FleetPackage", name, 1, spec, json!(null)));
    }
    let first = Object::read(object("RolloutGate", "wave-1", 2, theirs, status)).unwrap();
    state.gates.keep(first);
    state.gates.insert(object("RolloutGate", "wave-2", 1, spec("p", R, &["wave-1", "none"]), json!(null)));
    let key = |name: &str| Key { namespace: "fleet".into(), name: name.into() };
    state.graph.update(&state.gates, &[key("wave-1"), key("wave-2")].into());
    let world = World::new(&state, Moment { t: 0.0, now: 0.0 });
    let second = state.gates.get(&key("wave-2")).unwrap();
    let found = world.dependencies(second);
    assert_eq!(found.gates, [("wave-1", expected), ("none", Dependency::NotFound)]);
    assert_eq!(found.cycle, None);
    // One that is about to close carries nobody.
    let closing = BTreeSet::from([key("wave-1")]);
    let found = World { closing: &closing, ..world }.dependencies(second);
    assert_ne!(found.gates[0].1, Dependency::Open);
}

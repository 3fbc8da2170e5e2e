//! What is said while some feed has never answered and others have.

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::conditions::{OPEN, find};

use super::*;
use crate::fleet::Fleet;
use crate::reconcile::object::Object;
use crate::testing::{self, Exposition, feeds, healthy};

const T: Seconds = 10_000.0;
const REVISION: &str = "r1";

fn object(kind: &str, name: &str, spec: Value, status: Value) -> crate::reconcile::lazy_object::LazyObject {
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "fleet", "name": name, "resourceVersion": "1", "generation": 1},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

/// Open since long ago, by evidence of this time.
fn open(as_of: Seconds) -> Value {
    let condition = |name: &str| {
        json!({"type": name, "status": "True", "reason": "Healthy", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "1970-01-01T01:00:00Z"})
    };
    json!({"epoch": 1, "observedGeneration": 1, "asOf": jiff::Timestamp::from_second(as_of as i64).unwrap().to_string(),
        "conditions": [condition("Open"), condition("OpenedOnce"), condition("Ready")]})
}

/// A feed tells that all is well in a cluster, as of `at`.
fn tell(fleet: &mut Fleet, feed: &str, cluster: &str, at: Seconds) {
    let said = Exposition::new(1).with("p", healthy(REVISION, 10));
    testing::tell_by(feed, fleet, &[("cluster", cluster)], &said, at);
}

/// A fleet that knows cluster `a`, where all is well.
fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    tell(&mut fleet, "", "a", T);
    fleet
}

fn gate(state: &mut State, clusters: Value, status: Value) -> GateObject {
    let package = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "3m"});
    state.packages.insert(object("FleetPackage", "p", package, Value::Null));
    let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": REVISION, "clusters": clusters});
    Object::read(object("RolloutGate", "g", spec, status)).unwrap()
}

/// Two feeds have told of clusters, and some have failed since: what do gates say of it?
#[rstest]
#[case::of_the_one_that_answers(json!({"names": ["b"]}), &["a"], "True", "")]
#[case::of_the_one_that_fails(json!({"names": ["a"]}), &["a"], "False", "feed a: gone")]
#[case::of_both(json!({"names": ["b", "a"]}), &["a"], "False", "feed a: gone")]
#[case::told_by_both_last_by_the_one_that_answers(json!({"names": ["both"]}), &["a"], "True", "")]
#[case::told_by_both_last_by_the_one_that_fails(json!({"names": ["both"]}), &["b"], "False", "feed b: gone")]
#[case::both_fail_and_the_right_one_is_named(json!({"names": ["b"]}), &["a", "b"], "False", "feed b: gone")]
#[case::never_seen(json!({"names": ["c"]}), &["a"], "False", "feed a: gone")]
#[case::whoever_reports(json!({"reporting": {"minClusters": 1}}), &["a"], "False", "feed a: gone")]
fn a_feed_that_fails_stops_only_what_rests_on_it(
    #[case] clusters: Value,
    #[case] failing: &[&str],
    #[case] open: &str,
    #[case] says: &str,
) {
    let mut fleet = Fleet::default();
    for (feed, cluster, at) in [("a", "a", T), ("b", "b", T), ("a", "both", T - 5.0), ("b", "both", T)] {
        tell(&mut fleet, feed, cluster, at);
    }
    failing.iter().for_each(|feed| fleet.unanswered(feed, "gone".into()));
    let mut state = testing::state(fleet);
    let polls = |name| if failing.contains(&name) { &[Ok(()), Err("gone")][..] } else { &[Ok(())] };
    state.feeds = feeds(&["a", "b"].map(|name| (name, polls(name))));
    let gate = gate(&mut state, clusters, Value::Null);
    let status = World::new(&state, Moment { t: T, now: T }).gate(&gate).unwrap();
    assert_eq!(find(&status.conditions, OPEN).unwrap().status, open);
    let waiting = status.waiting_for.iter().map(|it| it.message.as_str()).collect::<Vec<_>>().join("; ");
    assert!(waiting.contains(says) && (open == "False" || waiting.is_empty()), "{waiting}");
}

#[rstest]
#[case::all_are_known(json!({"names": ["a"]}), Value::Null, "True Healthy")]
#[case::one_was_never_seen(json!({"names": ["a", "b"]}), Value::Null, "False BackendUnavailable")]
#[case::nobody_knows_who_reports(json!({"reporting": {"minClusters": 1}}), Value::Null, "False BackendUnavailable")]
#[case::open_by_what_still_counts(json!({"names": ["a", "b"]}), open(T - 100.0), "as it was")]
#[case::open_by_what_is_too_old(json!({"names": ["a", "b"]}), open(T - 200.0), "False BackendUnavailable")]
fn a_gate_whose_clusters_another_feed_may_tell_of_waits_for_it(
    #[case] clusters: Value,
    #[case] status: Value,
    #[case] expected: &str,
) {
    let mut state = testing::state(fleet());
    let gate = gate(&mut state, clusters, status);
    let mut said = |of_the_other: &[_]| {
        state.feeds = feeds(&[("a", &[Ok(())]), ("b", of_the_other)]);
        let Some(status) = World::new(&state, Moment { t: T, now: T }).gate(&gate) else {
            return "as it was".to_owned();
        };
        let open = find(&status.conditions, OPEN).unwrap();
        format!("{} {}", open.status, open.reason)
    };
    assert_eq!(said(&[Err("no route to host")]), expected);
    let all_have_answered = said(&[Ok(())]);
    match expected {
        "True Healthy" => assert_eq!(all_have_answered, expected),
        _ => assert!(!all_have_answered.ends_with("BackendUnavailable"), "{all_have_answered}"),
    }
}

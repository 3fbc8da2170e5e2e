use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::conditions::{READY, find};

use super::detail::tests::{T, hub, object};
use super::*;
use crate::decide::Moment;
use crate::reconcile::state::State;
use crate::reconcile::store::{Gates as AllGates, Rollouts};

fn slice(package: &str, clusters: &Value) -> Value {
    json!({"fleetRolloutRef": {"name": "roll"}, "fleetPackageRef": {"name": package}, "clusters": clusters})
}

fn waves(name: &str) -> Value {
    json!([{"name": name, "clusters": {"percentage": "100%"}}])
}

fn rolls(state: &mut State, name: &str, waves: &Value) {
    let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": "r2", "waves": waves});
    let status = json!({"observedGeneration": 1, "revision": "r2", "admitted": "4/6"});
    state.rollouts.forget(&Key { namespace: "tenant".into(), name: name.into() });
    state.rollouts.insert(object("FleetRollout", name, &json!({"spec": spec, "status": status})));
}

/// The status of the last rollout by name after this has happened, with the reason and the message of Ready.
fn stopped(spoil: fn(&mut State)) -> (FleetRolloutStatus, String, String) {
    let mut state = hub();
    (state.gates, state.rollouts) = (AllGates::default(), Rollouts::of_others());
    rolls(&mut state, "roll", &waves("all"));
    spoil(&mut state);
    let world = World::new(&state, Moment { t: T + 1.0, now: T + 6.0 });
    let Work::Status(status) = world.rollout_work(state.rollouts.iter().last().unwrap()) else {
        panic!("something is done")
    };
    assert!(is_true(&status.conditions, STALLED));
    let Condition { reason, message, .. } = find(&status.conditions, READY).unwrap().clone();
    (*status, reason, message)
}

#[rstest]
#[case::a_gate_that_is_taken(
    |state: &mut State| drop(state.gates.insert(object("RolloutGate", "roll-all", &json!({"spec": {}})))),
    "GateTaken",
    "wave all: RolloutGate roll-all is not this FleetRollout's: rename the wave, or delete that gate"
)]
#[case::a_name_that_is_too_long(
    |state: &mut State| {
        state.rollouts = Rollouts::of_others();
        rolls(state, &"x".repeat(245), &waves("some-wave"));
    },
    "InvalidSpec",
    "wave some-wave: the name of its RolloutGate would have 255 characters, at most 253: give the wave or the FleetRollout a \
     shorter one"
)]
#[case::another_rollout(
    |state: &mut State| rolls(state, "other", &waves("all")),
    "OtherRollout",
    "FleetRollout other was there first, and rolls the same package out: delete one of the two"
)]
fn what_stops_a_rollout_is_named_with_what_to_do(
    #[case] spoil: fn(&mut State),
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (_, why, told) = stopped(spoil);
    assert_eq!((why.as_str(), told.as_str()), (reason, message));
}

#[rstest]
#[case::a_slice_that_cannot_be_read(
    |state: &mut State| drop(state.rollout_slices.insert(object("FleetRolloutSlice", "bad", &slice("p", &json!(7))))),
    "FleetRolloutSlice bad cannot be read: restore it, or delete it"
)]
#[case::a_slice_of_another_package(
    |state: &mut State| drop(state.rollout_slices.insert(object("FleetRolloutSlice", "old", &slice("q", &json!([]))))),
    "FleetRolloutSlice old is of FleetPackage q, by a FleetRollout that had this name before: kubectl delete \
     fleetrolloutslices -n tenant -l statusbridge.dev/fleet-rollout=roll"
)]
fn slices_that_are_no_record_are_named_and_what_was_told_of_the_rollout_stays(
    #[case] spoil: fn(&mut State),
    #[case] message: &str,
) {
    let (status, why, told) = stopped(spoil);
    assert_eq!((why.as_str(), told.as_str()), ("RecordUnavailable", message));
    assert_eq!((status.admitted.as_deref(), status.revision.as_deref()), (Some("4/6"), Some("r2")));
}

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::decide::Moment;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::state::State;
use crate::reconcile::store::Event;
use crate::testing::{self, Exposition, failed, feeds, healthy, tell};
use crate::time::Seconds;

pub(crate) const T: Seconds = 10_000.0;

pub(crate) fn object(kind: &str, name: &str, more: &Value) -> LazyObject {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "tenant", "name": name, "uid": name, "resourceVersion": "1", "generation": 1},
    });
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "labels" | "ownerReferences" => object["metadata"][field] = value.clone(),
            _ => object[field] = value.clone(),
        }
    }
    serde_json::from_value(object).unwrap()
}

/// A rollout of revision r2: its first wave has the clusters a to f, of which all but e and f are admitted.
pub(crate) fn hub() -> State {
    let mut fleet = Fleet::new(FleetSettings::default());
    for (uid, cluster, said) in [
        (1, "a", healthy("r2", 100)),
        (2, "b", failed("r2", 100)),
        (3, "c", healthy("r1", 100)),
        (5, "e", healthy("r1", 100)),
        (6, "f", healthy("r2", 100)),
    ] {
        tell(&mut fleet, &[("cluster", cluster)], &Exposition::new(uid).with("p", said), T);
    }
    let mut state = testing::state(fleet);
    state.feeds = feeds(&[("", &[Ok(())])]);
    let package = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "revision": "r1",
        "clusters": {"names": ["a", "b", "c", "d", "e", "f"]}});
    state.packages.insert(object("FleetPackage", "p", &json!({"spec": package})));
    let waves = json!([
        {"name": "one", "clusters": {"names": ["a", "b", "c", "d", "e", "f"]}},
        {"name": "two", "clusters": {"percentage": "100%"}},
    ]);
    let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": "r2", "waves": waves});
    state.rollouts.insert(object("FleetRollout", "roll", &json!({"spec": spec})));
    let owner = json!([{"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout", "name": "roll", "uid": "roll",
        "controller": true}]);
    let labels = json!({"statusbridge.dev/fleet-rollout": "roll", "statusbridge.dev/wave": "one"});
    let gate = json!({"fleetPackageRef": {"name": "p"}, "revision": "r2",
        "clusters": {"names": ["a", "b", "c", "d", "e", "f"]}});
    let gate = json!({"spec": gate, "labels": labels, "ownerReferences": owner});
    state.gates.insert(object("RolloutGate", "roll-one", &gate));
    let row = |cluster: &str, revision: &str| json!({"clusterName": cluster, "revision": revision, "wave": "one", "since": "2026-01-01T00:00:00Z"});
    let rows = json!([row("a", "r2"), row("b", "r2"), row("c", "r2"), row("d", "r2"), row("e", "r1")]);
    let slice =
        json!({"fleetRolloutRef": {"name": "roll"}, "fleetPackageRef": {"name": "p"}, "clusters": rows});
    let events =
        [Event::Init, Event::InitApply(object("FleetRolloutSlice", "roll-0", &slice)), Event::InitDone];
    for event in events {
        state.rollout_slices.apply(event);
    }
    state
}

fn ask(state: &State, asked: Option<(&str, usize)>) -> Result<Value, Unseen> {
    let world = World::new(state, Moment { t: T + 1.0, now: T + 6.0 });
    let asked = asked.map(|(wave, limit)| MembersOf { wave: wave.to_owned(), limit });
    let key = Key { namespace: "tenant".into(), name: "roll".into() };
    world.rollout_in_detail(&key, asked.as_ref()).map(|told| serde_json::to_value(told).unwrap())
}

/// Name, state and whether it may have the revision.
fn members(told: &Value) -> Vec<(String, String, bool)> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let members = told["clusters"].as_array().unwrap().iter();
    members
        .map(|it| (text(&it["clusterName"]), text(&it["row"]["state"]), it["admitted"].is_string()))
        .collect()
}

#[test]
fn clusters_in_trouble_come_first_and_each_is_judged_by_the_revision_of_the_rollout() {
    let told = ask(&hub(), Some(("one", 10))).unwrap();
    let expected = [
        ("b", "Failed", true),
        ("d", "Missing", true),
        ("c", "NotUpdated", true),
        ("e", "NotUpdated", false),
        ("a", "Healthy", true),
        ("f", "Healthy", false),
    ];
    let found = members(&told);
    let found: Vec<(&str, &str, bool)> = found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), *c)).collect();
    // Which of the healthy ones is first is the order in which they are admitted.
    assert_eq!(found[..4], expected[..4]);
    assert!(expected[4..].iter().all(|it| found[4..].contains(it)), "{found:?}");
    assert_eq!(told["clusters"][0]["row"]["reason"], "HealthCheckFailed");
    assert_eq!(
        (&told["more"], &told["package"], &told["reason"]),
        (&json!(false), &json!("p"), &json!("Pending"))
    );
}

#[rstest]
#[case::none_is_asked_for(None, None)]
#[case::cut(Some(("one", 2)), Some((2, true)))]
#[case::none_at_all(Some(("one", 0)), Some((0, true)))]
#[case::has_not_started(Some(("two", 10)), Some((0, false)))]
fn as_many_as_are_asked_for(#[case] asked: Option<(&str, usize)>, #[case] expected: Option<(usize, bool)>) {
    let told = ask(&hub(), asked).unwrap();
    let found = told.get("clusters").map(|it| (it.as_array().unwrap().len(), told["more"] == true));
    assert_eq!(found, expected);
}

#[test]
fn what_is_not_there_and_what_is_not_known_are_told_apart() {
    let mut state = hub();
    let why = |state: &State, wave| ask(state, Some((wave, 9))).unwrap_err();
    assert_eq!(
        why(&state, "three"),
        Unseen::NotFound("FleetRollout tenant/roll has no wave \"three\"".into())
    );
    let unread =
        json!({"fleetRolloutRef": {"name": "roll"}, "fleetPackageRef": {"name": "p"}, "clusters": 7});
    state.rollout_slices.insert(object("FleetRolloutSlice", "roll-1", &unread));
    assert_eq!(why(&state, "one"), Unseen::Unread);
    assert!(ask(&state, None).is_ok(), "the rest is known");
    state.rollout_slices = Default::default();
    assert_eq!(why(&state, "one"), Unseen::Unread, "nothing was listed");
    state.rollouts.forget(&Key { namespace: "tenant".into(), name: "roll".into() });
    assert_eq!(why(&state, "one"), Unseen::NotFound("there is no FleetRollout tenant/roll".into()));
}

#[test]
fn nothing_is_said_of_clusters_that_no_backend_was_asked_about() {
    let mut state = hub();
    state.feeds = feeds(&[("", &[Err("refused")])]);
    let told = ask(&state, Some(("one", 10))).unwrap();
    assert!(members(&told).iter().all(|(_, state, _)| state == "none"), "{told}");
    assert_eq!(members(&told).iter().filter(|(_, _, admitted)| *admitted).count(), 4);
}

#[test]
fn without_evidence_the_hub_tells_what_is_written_about_the_same_revision_alone() {
    let mut state = hub();
    state.feeds = Default::default();
    let status = |revision: &str| {
        let condition = json!({"type": "Ready", "status": "False", "reason": "Failed", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "1970-01-01T02:46:40Z"});
        json!({"observedGeneration": 1, "asOf": "1970-01-01T02:46:40Z", "revision": revision, "conditions": [condition],
            "problems": [{"clusterName": "c", "state": "Failed", "reason": "HealthCheckFailed"}]})
    };
    for (revision, expected) in [("r2", "Failed"), ("r1", "none")] {
        let spec = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "revision": revision,
            "staleAfter": "3m", "clusters": {"names": ["a", "b", "c", "d", "e", "f"]}});
        let more = json!({"spec": spec, "status": status(revision)});
        state.packages = crate::reconcile::store::Packages::of_others();
        state.packages.insert(object("FleetPackage", "p", &more));
        let told = ask(&state, Some(("one", 10))).unwrap();
        let of_c = members(&told).into_iter().find(|(cluster, ..)| cluster == "c").unwrap();
        assert_eq!(of_c, ("c".to_owned(), expected.to_owned(), true), "{revision}");
    }
}

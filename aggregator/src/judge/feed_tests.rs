//! What is said while some feed has never answered and others have.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::decide::conditions::{OPEN, find};
use crate::fleet::Beat;
use crate::testing::{Exposition, Surroundings, gather, healthy, stream};
use crate::verify::verify;

const T: Seconds = 10_000.0;
const REVISION: &str = "r1";

fn object(kind: &str, name: &str, spec: Value, status: Value) -> kube::api::DynamicObject {
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
    json!({"observedGeneration": 1, "asOf": jiff::Timestamp::from_second(as_of as i64).unwrap().to_string(),
        "conditions": [condition("Open"), condition("Succeeded"), condition("Ready")]})
}

/// A fleet that knows cluster `a`, where all is well.
fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    let said = Exposition::new(1).with("p", healthy(REVISION, 10, 1));
    let beat = Beat {
        cluster: "a".into(),
        stream: stream(&[("cluster", "a")]),
        contract: "1".into(),
        digest: Some(said.digest()),
        at: T,
        rendered: Some((T, T)),
        ..Beat::default()
    };
    fleet.hear(&beat, T);
    fleet.accept(&beat, verify(gather(&said.lines()), said.digest()).unwrap(), T);
    fleet
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
    let mut around = Surroundings::default();
    let package = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "3m"});
    around.packages.insert(object("FleetPackage", "p", package, Value::Null));
    let spec = json!({"fleetPackageRef": {"name": "p"}, "revision": REVISION, "clusters": clusters});
    let gate = Object::read(object("RolloutGate", "g", spec, status)).unwrap();
    let fleet = fleet();
    let world = around.world(&fleet, Backend::Answers, Moment { t: T, now: T });
    let said = |world: World<'_>| match world.gate(&gate) {
        Some(status) => {
            let open = find(&status.conditions, OPEN).unwrap();
            format!("{} {}", open.status, open.reason)
        }
        None => "as it was".to_owned(),
    };
    assert_eq!(said(World { unheard: Some("feed b: no route to host"), ..world }), expected);
    let all_have_answered = said(world);
    match expected {
        "True Healthy" => assert_eq!(all_have_answered, expected),
        _ => assert!(!all_have_answered.ends_with("BackendUnavailable"), "{all_have_answered}"),
    }
}

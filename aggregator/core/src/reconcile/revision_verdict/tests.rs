use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::Reason;

use super::*;
use crate::decide::Moment;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::state::State;
use crate::testing::{self, Exposition, failed, feeds, healthy, tell};

const T: Seconds = 10_000.0;

fn question(change: &Value) -> RevisionQuestion {
    let mut all = json!({
        "source": "flux", "namespace": "ns", "name": "p", "revision": "r1", "clusters": {"names": ["a", "b"]},
        "staleAfter": "3m",
    });
    all.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    RevisionQuestion {
        asker: "tenant".to_owned(),
        package: serde_json::from_value(all.clone()).unwrap(),
        revision: all["revision"].as_str().unwrap().to_owned(),
        clusters: serde_json::from_value(all["clusters"].clone()).unwrap(),
        require: all.get("require").map(|it| serde_json::from_value(it.clone()).unwrap()).unwrap_or_default(),
        min_healthy: serde_json::from_value(all["minHealthy"].clone()).unwrap(),
        max_failures: serde_json::from_value(all["maxFailures"].clone()).unwrap(),
        min_success_time: serde_json::from_value(all["minSuccessTime"].clone()).unwrap(),
        stale_after: all["staleAfter"].as_str().unwrap().to_owned(),
    }
}

fn state(clusters: &[(&str, &str, bool, Seconds)]) -> State {
    let mut fleet = Fleet::new(FleetSettings::default());
    for (cluster, revision, well, at) in clusters {
        let package = if *well { healthy(revision, 100) } else { failed(revision, 100) };
        let exposition = Exposition::new(Fingerprint::of(cluster).value()).with("p", package);
        tell(&mut fleet, &[("cluster", cluster)], &exposition, *at);
    }
    testing::state(fleet)
}

fn ask(state: &State, change: &Value) -> RevisionVerdict {
    World::new(state, Moment { t: T, now: T + 5.0 }).revision(&question(change))
}

#[rstest]
#[case::at_the_revision(json!({}), RevisionState::Open, "Healthy", Some("2/2"))]
#[case::at_another(json!({"revision": "r2"}), RevisionState::Closed, "RevisionNeverSeen", Some("0/2"))]
#[case::by_its_fingerprint(json!({"revision": Fingerprint::of("r1").to_string()}), RevisionState::Open, "Healthy", Some("2/2"))]
#[case::one_has_failed(json!({"clusters": {"names": ["a", "failed"]}}), RevisionState::Closed, "FailureBudgetExceeded", Some("1/2"))]
#[case::one_may_fail(json!({"clusters": {"names": ["a", "failed"]}, "maxFailures": 1}), RevisionState::Open, "Healthy", Some("1/2"))]
#[case::one_is_unheard_of(json!({"clusters": {"names": ["a", "nobody"]}}), RevisionState::Closed, "Missing", Some("1/2"))]
#[case::nothing_is_fresh(json!({"clusters": {"names": ["old"]}}), RevisionState::Unknown, "Stale", Some("0/1"))]
#[case::not_for_long_enough(json!({"minSuccessTime": "9h"}), RevisionState::Closed, "Soaking", Some("0/2"))]
#[case::no_clusters(json!({"clusters": {}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::no_names(json!({"clusters": {"names": []}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::no_name(json!({"clusters": {"names": [""]}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::no_revision(json!({"revision": ""}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::white_space(json!({"revision": " r1"}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::too_long(json!({"revision": "r".repeat(4097)}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::a_long_source(json!({"source": "s".repeat(254)}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::a_long_package(json!({"name": "p".repeat(513)}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::a_long_name(json!({"clusters": {"names": ["c".repeat(254)]}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::many_names(json!({"clusters": {"names": vec!["c"; 10_001]}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::many_bytes(json!({"clusters": {"names": vec!["c".repeat(200); 1_601]}}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::no_duration(json!({"minSuccessTime": "soon"}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::no_stale_after(json!({"staleAfter": "soon"}), RevisionState::Invalid, "InvalidSpec", None)]
#[case::profiles_are_not_known(json!({"clusters": {"selector": {}}}), RevisionState::Unknown, "ClusterProfilesUnavailable", None)]
fn any_revision_is_judged(
    #[case] change: Value,
    #[case] state_: RevisionState,
    #[case] reason: &str,
    #[case] healthy: Option<&str>,
) {
    let state = state(&[
        ("a", "r1", true, T - 5.0),
        ("b", "r1", true, T - 5.0),
        ("failed", "r1", false, T - 5.0),
        ("old", "r1", true, T - 1000.0),
    ]);
    let verdict = ask(&state, &change);
    let found = (verdict.state, verdict.reason.as_str(), verdict.healthy.as_deref());
    assert_eq!(found, (state_, reason, healthy), "{}", verdict.message);
    assert_eq!(verdict.is_open(), state_ == RevisionState::Open);
    assert_eq!(serde_json::to_value(&verdict).unwrap()["open"], verdict.is_open());
}

#[test]
fn nothing_is_said_before_every_feed_has_answered() {
    let mut state = state(&[("a", "r1", true, T - 5.0)]);
    let about = json!({"clusters": {"reporting": {"minClusters": 1}}});
    assert!(ask(&state, &about).is_open());
    state.feeds = feeds(&[("", &[Ok(())]), ("other", &[Err("refused")])]);
    let verdict = ask(&state, &about);
    assert_eq!(
        (verdict.state, verdict.reason.as_str()),
        (RevisionState::Unknown, Reason::BackendUnavailable.name())
    );
}

#[test]
fn a_namespace_is_told_of_its_own_clusters_only() {
    let mut state = state(&[("a", "r1", true, T - 5.0), ("b", "r1", true, T - 5.0)]);
    state.rules.tenancy = serde_json::from_value(json!([
        {"namespaces": ["tenant"], "clusters": ["a"], "packageNamespaces": ["*"], "sources": ["*"]},
    ]))
    .unwrap();
    let named = ask(&state, &json!({}));
    assert_eq!(
        (named.state, named.message.as_str()),
        (RevisionState::Forbidden, "this namespace may not see b")
    );
    let reporting = ask(&state, &json!({"clusters": {"reporting": {"minClusters": 1}}}));
    assert_eq!((reporting.state, reporting.healthy.as_deref()), (RevisionState::Open, Some("1/1")));
}

proptest! {
    #[test]
    fn it_says_what_a_new_gate_with_the_same_terms_would_tell_a_reader(
        clusters in prop::collection::btree_map("[a-d]", ("r[12]", any::<bool>(), 0.0..400.0), 1..4),
        revision in "r[12]",
        budget in 0..3,
        least in prop::option::of(1..3),
        soak in prop::option::of(prop_oneof![Just("1s"), Just("2h45m"), Just("3h")]),
    ) {
        let told: Vec<_> = clusters.iter()
            .map(|(cluster, (revision, well, age))| (cluster.as_str(), revision.as_str(), *well, T - age)).collect();
        let mut state = state(&told);
        let spec = json!({
            "fleetPackageRef": {"name": "p"}, "revision": revision, "clusters": {"names": ["a", "b", "c"]},
            "maxFailures": budget, "minHealthy": least, "minSuccessTime": soak,
        });
        let verdict = ask(&state, &spec);
        let object = |kind: &str, name: &str, spec: &Value| serde_json::from_value(json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
            "metadata": {"namespace": "tenant", "name": name, "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": spec,
        })).unwrap();
        let package = json!({"package": {"source": "flux", "namespace": "ns", "name": "p"}, "staleAfter": "3m"});
        state.packages.insert(object("FleetPackage", "p", &package));
        let mut gate = GateObject::read(object("RolloutGate", "g", &spec)).unwrap();
        let status = World::new(&state, Moment { t: T, now: T + 5.0 }).gate(&gate).unwrap();
        gate.status = Some(status.clone());
        let asked = gate_verdict::Question { revision: None, stale_after: Some(180.0), slack: 0.0, now: T + 5.0 };
        prop_assert_eq!(verdict.is_open(), gate_verdict::read(&Gate::from(&gate), &asked).is_open());
        prop_assert_eq!((verdict.clusters, verdict.healthy, verdict.waiting_for), (status.clusters, status.healthy, status.waiting_for));
    }
}

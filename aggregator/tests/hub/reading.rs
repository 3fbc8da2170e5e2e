//! What a gate's status tells a reader, case by case, and over whatever a status may hold.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::gate_verdict::{Gate, Question, State, read};
use statusbridge_core::reconcile::object::{GateObject, Object, PackageObject};

const NOW: f64 = 1_800_000_000.0;
pub const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
pub const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

fn at(seconds: f64) -> Value {
    json!(time(seconds))
}

/// An open gate at [`R2`], as the hub holds it, on evidence that is 20 s old.
pub fn open() -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Healthy", "message": "2 of 2 clusters healthy at the revision",
            "observedGeneration": 3, "lastTransitionTime": at(NOW - 500.0)})
    };
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"namespace": "fleet", "name": "wave", "generation": 3, "resourceVersion": "7", "uid": "u"},
        "spec": {"fleetPackageRef": {"name": "payments"}, "revision": R2, "clusters": {"names": ["a", "b"]}},
        "status": {
            "observedGeneration": 3, "revision": R2, "asOf": at(NOW - 20.0), "since": at(NOW - 500.0), "healthy": "2/2",
            "clusters": {"total": 2, "healthy": 2, "applied": 2, "updated": 2},
            "conditions": [condition("Ready"), condition("Open"), condition("OpenedOnce")],
        },
    })
}

/// Sets what lies at a JSON pointer; null takes it away.
pub fn with(mut gate: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = gate.pointer_mut(parent).unwrap();
        match (value, field.parse::<usize>()) {
            (Value::Null, Err(_)) => drop(parent.as_object_mut().unwrap().remove(field)),
            (value, Ok(at)) => parent[at] = value.clone(),
            (value, Err(_)) => parent[field] = value.clone(),
        }
    }
    gate
}

fn gate(object: Value) -> Gate {
    let object: GateObject = Object::read(serde_json::from_value(object).unwrap()).unwrap();
    Gate::from(&object)
}

const OPEN: &str = "/status/conditions/1";

fn closed(reason: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("/status/conditions/1/status", json!("False")),
        ("/status/conditions/1/reason", json!(reason)),
        ("/status/conditions/1/message", json!("because")),
    ]
}

fn overridden(state: &str, until: Option<f64>) -> Vec<(&'static str, Value)> {
    let mut word = json!({"state": state, "reason": "we know"});
    if let Some(until) = until {
        word["until"] = at(until);
    }
    vec![
        ("/spec/override", word),
        ("/status/conditions/1/reason", json!("Overridden")),
        ("/status/asOf", Value::Null),
    ]
}

fn stalled() -> Vec<(&'static str, Value)> {
    let mut changes = closed("FailureBudgetExceeded");
    changes.push(("/status/conditions/0/type", json!("Stalled")));
    changes
}

#[rstest]
#[case::as_it_should_be(vec![], State::Open, "Healthy")]
#[case::evidence_at_the_limit(vec![("/status/asOf", at(NOW - 60.0))], State::Open, "Healthy")]
#[case::evidence_beyond_it(vec![("/status/asOf", at(NOW - 61.0))], State::Stale, "Stale")]
#[case::no_word_of_the_evidence(vec![("/status/asOf", Value::Null)], State::Stale, "Stale")]
#[case::evidence_of_the_future(vec![("/status/asOf", at(NOW + 61.0))], State::Stale, "ClockSkew")]
#[case::a_new_generation(vec![("/metadata/generation", json!(4))], State::NotJudged, "Pending")]
#[case::a_condition_of_an_old_generation(vec![("/status/conditions/1/observedGeneration", json!(2))], State::NotJudged, "Pending")]
#[case::a_condition_of_no_generation(vec![("/status/conditions/1/observedGeneration", Value::Null)], State::NotJudged, "Pending")]
#[case::no_status(vec![("/status", Value::Null)], State::NotJudged, "Pending")]
#[case::no_verdict(vec![(OPEN, json!({"type": "Other", "status": "True", "reason": "X", "message": "", "lastTransitionTime": at(NOW)}))], State::NotJudged, "Pending")]
#[case::another_revision_was_judged(vec![("/status/revision", json!(R1))], State::NotJudged, "Pending")]
#[case::no_revision_was_judged(vec![("/status/revision", Value::Null)], State::NotJudged, "Pending")]
#[case::the_gate_is_for_another(vec![("/spec/revision", json!(R1)), ("/status/revision", json!(R1))], State::OtherRevision, "OtherRevision")]
#[case::the_same_revision_in_other_words(vec![("/spec/revision", json!("222222222222"))], State::Open, "Healthy")]
#[case::closed(closed("NotUpdated"), State::Waiting, "NotUpdated")]
#[case::unknown(vec![("/status/conditions/1/status", json!("Unknown"))], State::Waiting, "Healthy")]
#[case::stalled(stalled(), State::Stalled, "FailureBudgetExceeded")]
#[case::a_spec_of_tomorrow(vec![("/spec/require", json!("Blessed"))], State::Stalled, "InvalidSpec")]
#[case::by_hand(overridden("Open", None), State::Open, "Overridden")]
#[case::by_hand_for_a_while(overridden("Open", Some(NOW + 1.0)), State::Open, "Overridden")]
#[case::by_hand_until_a_moment_ago(overridden("Open", Some(NOW)), State::NotJudged, "Pending")]
#[case::closed_by_hand_says_the_spec(overridden("Closed", None), State::NotJudged, "Pending")]
#[case::by_hand_says_only_the_status(vec![("/status/conditions/1/reason", json!("Overridden"))], State::NotJudged, "Pending")]
fn a_reader_of_r2_reads(#[case] changes: Vec<(&str, Value)>, #[case] state: State, #[case] reason: &str) {
    let gate = gate(with(open(), &changes));
    let question =
        Question { revision: Some(Fingerprint::of(R2)), stale_after: Some(60.0), slack: 0.0, now: NOW };
    let reading = read(&gate, &question);
    assert_eq!((reading.state, reading.reason.as_str()), (state, reason), "{}", reading.message);
    assert_eq!(reading.is_open(), state == State::Open);
    let open_for = if state == State::Open { 0x2222_2222_2222 } else { 0 };
    assert_eq!(reading.open_for(), open_for);
    assert_eq!(json!(reading)["open"], json!(state == State::Open));
    assert!(state != State::OtherRevision || !reading.opened_once, "it opened_once at another revision");
}

#[test]
fn without_its_fleet_package_nobody_can_say_how_old_is_too_old() {
    let question = Question { revision: None, stale_after: None, slack: 0.0, now: NOW };
    let reading = read(&gate(open()), &question);
    assert_eq!((reading.state, reading.reason.as_str()), (State::Stale, "FleetPackageNotFound"));
}

#[test]
fn slack_is_for_clocks_and_whoever_does_not_ask_for_a_revision_is_told_which() {
    let old = gate(with(open(), &[("/status/asOf", at(NOW - 70.0))]));
    let mut question = Question { revision: None, stale_after: Some(60.0), slack: 15.0, now: NOW };
    let reading = read(&old, &question);
    assert!(reading.is_open() && !reading.is_silent(15.0) && reading.is_silent(0.0));
    assert_eq!(reading.fingerprint.as_deref(), Some("222222222222"));
    question.slack = 9.0;
    assert!(!read(&old, &question).is_open());
}

#[rstest]
#[case::closed_and_kept_up_to_date(closed("NotUpdated"), false)]
#[case::swept(closed("AggregatorSilent"), true)]
#[case::closed_on_old_evidence([closed("NotUpdated"), vec![("/status/asOf", at(NOW - 90.0))]].concat(), true)]
#[case::closed_without_evidence([closed("Missing"), vec![("/status/asOf", Value::Null)]].concat(), false)]
#[case::not_judged(vec![("/metadata/generation", json!(4))], true)]
fn silence_is_noticed_in_a_closed_gate_too(#[case] changes: Vec<(&str, Value)>, #[case] silent: bool) {
    let question = Question { revision: None, stale_after: Some(60.0), slack: 0.0, now: NOW };
    assert_eq!(read(&gate(with(open(), &changes)), &question).is_silent(0.0), silent);
}

#[test]
fn a_reading_reads_well() {
    let question = Question { revision: None, stale_after: Some(60.0), slack: 0.0, now: NOW };
    let reading = json!(read(&gate(open()), &question));
    for (field, value) in [
        ("open", json!(true)),
        ("state", json!("Open")),
        ("reason", json!("Healthy")),
        ("revision", json!(R2)),
        ("fingerprint", json!("222222222222")),
        ("generation", json!(3)),
        ("observedGeneration", json!(3)),
        ("openedOnce", json!(true)),
        ("ageSeconds", json!(20.0)),
        ("staleAfterSeconds", json!(60.0)),
        ("since", at(NOW - 500.0)),
        ("healthy", json!("2/2")),
    ] {
        assert_eq!(reading[field], value, "{field}");
    }
    assert_eq!(reading["clusters"]["total"], 2);
    assert!(reading.get("waitingFor").is_none());
}

proptest! {
    /// Whatever a status holds: it opens only for a reader who asks for what was judged, now.
    #[test]
    fn open_is_only_what_was_judged_for_this_spec_and_revision_on_young_evidence(
        generation in 2..5i64,
        observed in 2..5i64,
        of_condition in 2..5i64,
        judged in prop::sample::select(vec![R1, R2, ""]),
        spec in prop::sample::select(vec![R1, R2]),
        asked in prop::option::of(prop::sample::select(vec![R1, R2])),
        status in prop::sample::select(vec!["True", "False", "Unknown"]),
        reason in prop::sample::select(vec!["Healthy", "Applied", "Overridden", "Stale"]),
        age in prop::option::of(-200.0..200.0f64),
        stale_after in prop::option::of(1.0..100.0f64),
    ) {
        let object = with(open(), &[
            ("/metadata/generation", json!(generation)),
            ("/spec/revision", json!(spec)),
            ("/status/observedGeneration", json!(observed)),
            ("/status/revision", json!(judged)),
            ("/status/asOf", age.map_or(Value::Null, |age: f64| at(NOW - age.floor()))),
            ("/status/conditions/1/observedGeneration", json!(of_condition)),
            ("/status/conditions/1/status", json!(status)),
            ("/status/conditions/1/reason", json!(reason)),
        ]);
        let question =
            Question { revision: asked.map(Fingerprint::of), stale_after, slack: 0.0, now: NOW };
        let open = read(&gate(object), &question).is_open();
        let young = age.zip(stale_after).is_some_and(|(age, limit)| age.floor() <= limit && age >= -60.0);
        let may = generation == observed && generation == of_condition && judged == spec
            && asked.is_none_or(|asked| asked == spec) && status == "True" && reason != "Overridden" && young;
        prop_assert_eq!(open, may);
    }
}

fn from() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "it", "expression": "object.data.revision"})
}

/// A FleetPackage that is Ready with this in its spec and its status.
fn package(spec: Value, status: Value) -> Gate {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "payments", "generation": 3},
        "spec": {"package": {"source": "s", "name": "payments"}, "staleAfter": "60s"},
        "status": {
            "observedGeneration": 3, "asOf": at(NOW - 20.0), "clusters": {"total": 2, "healthy": 2},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Healthy", "message": "m",
                "observedGeneration": 3, "lastTransitionTime": at(NOW - 500.0)}],
        },
    });
    for (part, more) in [("spec", spec), ("status", status)] {
        let more = more.as_object().unwrap().clone();
        object[part].as_object_mut().unwrap().extend(more);
    }
    let object: PackageObject = Object::read(serde_json::from_value(object).unwrap()).unwrap();
    Gate::from(&object)
}

#[rstest]
#[case::at_its_revision(json!({"revision": R2}), json!({"revision": R2}), 3, State::Open)]
#[case::at_another(json!({"revision": R1}), json!({"revision": R2}), 3, State::OtherRevision)]
#[case::at_whatever_each_cluster_wants(json!({}), json!({}), 3, State::OtherRevision)]
#[case::at_one_that_was_read(json!({"revisionFrom": from()}), json!({"revision": R2}), 3, State::Open)]
#[case::at_another_that_was_read(json!({"revisionFrom": from()}), json!({"revision": R1}), 3, State::OtherRevision)]
#[case::at_none_that_was_read(json!({"revisionFrom": from()}), json!({}), 3, State::OtherRevision)]
#[case::a_new_generation(json!({"revision": R2}), json!({}), 4, State::NotJudged)]
fn a_fleet_package_is_read_as_open_while_it_is_ready_at_the_revision(
    #[case] spec: Value,
    #[case] status: Value,
    #[case] generation: i64,
    #[case] state: State,
) {
    let package = Gate { generation, ..package(spec, status) };
    let mut question =
        Question { revision: Some(Fingerprint::of(R2)), stale_after: Some(60.0), slack: 0.0, now: NOW };
    assert_eq!(read(&package, &question).state, state);
    question.now += 60.0;
    assert!(!read(&package, &question).is_open());
}

#[test]
fn a_fleet_package_without_a_revision_is_ready_to_readers_that_ask_for_none() {
    let question = Question { revision: None, stale_after: Some(60.0), slack: 0.0, now: NOW };
    let package = package(json!({}), json!({}));
    assert_eq!(read(&package, &question).state, State::Open);
    assert_eq!(read(&package, &Question { now: NOW + 60.0, ..question }).state, State::Stale);
    // A gate without one is for nothing.
    let gate = gate(with(open(), &[("/spec/revision", json!("")), ("/status/revision", json!(""))]));
    assert_eq!(read(&gate, &question).state, State::NotJudged);
}

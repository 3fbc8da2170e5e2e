//! A recording of the real KUDO manager (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from the recording itself, in a way that has
//! nothing to do with the preset.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::{
    source::{Preset, RelatedObjects},
    state::Shown,
};
use support::{Replay, own_time, recording};

const REVISION: &str = "kafka-2.0-1.0.0";

fn versions() -> Vec<Value> {
    recording(include_str!("traces/kudo-instance-0.19.jsonl"))
}

/// About when a version was written, in unix milliseconds: the newest time that it or an earlier one
/// has in it.
fn times(versions: &[Value]) -> Vec<i64> {
    let mut newest = 0;
    let millis =
        |v: &Value| v.as_str().map(|t| t.parse::<jiff::Timestamp>().expect("a time").as_millisecond());
    let step = |version: &Value| {
        let plan = &version["status"]["planStatus"]["deploy"]["lastUpdatedTimestamp"];
        newest = newest.max(millis(plan).or(millis(&version["metadata"]["creationTimestamp"])).unwrap_or(0));
        newest
    };
    versions.iter().map(step).collect()
}

fn replay() -> Vec<(Value, Shown, bool)> {
    let versions = versions();
    let mut replay = Replay::of("kudo-instance", &versions);
    let times = times(&versions);
    let step = |(object, at): (Value, i64)| {
        let (shown, changed) = replay.step(&object, &[], at);
        (object, shown, changed)
    };
    versions.into_iter().zip(times).map(step).collect()
}

/// The parameter that the last completed run of the plan was given. A run is told by its uid.
fn completed_counts(versions: &[Value]) -> Vec<Option<String>> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let count_of = |uid: &str| {
        let scheduled = |v: &&Value| text(&v["spec"]["planExecution"]["uid"]) == uid;
        text(&versions.iter().find(scheduled).expect("a run was scheduled")["spec"]["parameters"]["COUNT"])
    };
    let completed = |v: &Value| {
        let plan = &v["status"]["planStatus"]["deploy"];
        (plan["status"] == "COMPLETE").then(|| count_of(&text(&plan["uid"])))
    };
    versions.iter().map(completed).collect()
}

#[test]
fn healthy_is_only_claimed_when_the_plan_completed_with_the_parameters_that_are_wanted() {
    let shown = replay();
    let versions: Vec<Value> = shown.iter().map(|(v, ..)| v.clone()).collect();
    let mut healthy = 0;
    for (n, ((object, shown, _), completed)) in shown.iter().zip(completed_counts(&versions)).enumerate() {
        let wanted = object["spec"]["parameters"]["COUNT"].as_str().map(str::to_owned);
        let ready = object["status"]["conditions"][0]["status"] == "True";
        let truth = completed == wanted && ready;
        let claimed = shown.verdict.healthy;
        assert!(claimed.is_none() || truth, "version {n} claims {claimed}");
        assert_eq!(!claimed.is_none(), truth, "version {n}: nothing is held back either");
        assert_eq!(shown.verdict.desired, Fingerprint::of(REVISION));
        healthy += usize::from(truth);
    }
    assert_eq!(healthy, 2, "the recording has a healthy version after each of two completed runs");
}

#[test]
fn a_running_plan_makes_no_transitions_and_each_scheduled_one_does() {
    let shown = replay();
    let transitions: Vec<_> = shown
        .iter()
        .enumerate()
        .filter(|(_, (_, _, changed))| *changed)
        .map(|(n, (_, s, _))| {
            let v = &s.verdict;
            (n, v.apply, v.health, !v.healthy.is_none(), v.reason.as_deref().unwrap_or_default().to_owned())
        })
        .collect();
    let expected = [
        (0, ApplyState::Pending, Health::Unknown, false, "PlanScheduled"),
        // Versions 3 to 16: lastUpdatedTimestamp moves every second.
        (2, ApplyState::Applying, Health::InProgress, false, "PlanInProgress"),
        // The parameter is changed while the plan runs, twice: the same plan with a new uid.
        (17, ApplyState::Pending, Health::InProgress, false, "PlanScheduled"),
        (19, ApplyState::Applying, Health::InProgress, false, "PlanInProgress"),
        (25, ApplyState::Pending, Health::InProgress, false, "PlanScheduled"),
        (27, ApplyState::Applying, Health::InProgress, false, "PlanInProgress"),
        // Version 42: planExecution is empty and the plan not complete.
        (43, ApplyState::Applied, Health::Current, true, ""),
        // The parameter is changed again; versions 44 and 45 say COMPLETE and Ready.
        (44, ApplyState::Pending, Health::InProgress, false, "PlanScheduled"),
        (46, ApplyState::Applying, Health::InProgress, false, "PlanInProgress"),
        (51, ApplyState::Applied, Health::Current, true, ""),
    ];
    assert_eq!(transitions, expected.map(|(n, a, h, good, r)| (n, a, h, good, r.to_owned())));
    assert_eq!(shown.len(), 52);
}

#[test]
fn the_objects_own_time_is_when_the_plan_ended() {
    let shown = replay();
    let at = |n: usize| own_time(&shown[n].1);
    assert_eq!((at(43), at(51)), ("2026-11-21T00:57:52Z".to_owned(), "2026-11-21T00:58:00Z".to_owned()));
    // Found for the first time in that state, it says the same.
    let mut anew = Replay::of("kudo-instance", &versions());
    let (last, _) = anew.step(&shown[51].0, &[], i64::from(u32::MAX) * 1000);
    assert_eq!(last.verdict.since, shown[51].1.verdict.since);
}

#[test]
fn the_log_tells_one_run_of_a_plan_from_the_next() {
    let source = Preset::find("kudo-instance").expect("a preset").source().expect("it compiles");
    let mut runs: Vec<String> = Vec::new();
    for object in versions() {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let scheduled = text(&object["spec"]["planExecution"]["uid"]);
        let run = scheduled.or_else(|| text(&object["status"]["planStatus"]["deploy"]["uid"]));
        let detail = source.evaluate(&object, &RelatedObjects(Vec::new()), 0).detail;
        assert_eq!(detail.operation, run.as_ref().map(|uid| format!("deploy/{uid}")));
        runs.extend(run);
    }
    runs.dedup();
    assert!(runs.len() >= 2, "the recording has several runs of the plan: {runs:?}");
}

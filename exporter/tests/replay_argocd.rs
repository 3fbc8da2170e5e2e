//! A recording of the real Argo CD (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from what the versions say of the resources, not
//! from the fields of the Application that the preset goes by.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::{Replay, own_time, recording, transitions};

const R1: &str = "1096c9b7dbe0";
const R2: &str = "e6543d3a2bc7";
const R3: &str = "d41a19c07544";
const R4: &str = "15c1af7e4961";
const R5: &str = "cbbf1e254ecb";

fn versions() -> Vec<Value> {
    recording(include_str!("traces/argocd-application-3.3.0.jsonl"))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn seconds(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(|t| t.as_second())
}

/// The newest time that a version has in it: about when it was written.
fn written_at(object: &Value) -> i64 {
    let times = [
        "/status/reconciledAt",
        "/status/health/lastTransitionTime",
        "/status/operationState/startedAt",
        "/status/operationState/finishedAt",
    ];
    times.iter().filter_map(|t| seconds(text(object, t))).max().expect("some time")
}

fn replay() -> Vec<(Value, Shown, bool)> {
    let versions = versions();
    let mut replay = Replay::of("argocd-application", &versions);
    let mut at = 0;
    let step = |object: Value| {
        at = written_at(&object).max(at);
        let (shown, changed) = replay.step(&object, &[], at * 1000);
        (object, shown, changed)
    };
    versions.into_iter().map(step).collect()
}

/// What the cluster really ran and how it did, version by version: the revision that every resource
/// is of, once the Deployment is ready with it.
///
/// r2 is the only commit after the first that changes the Deployment; its readiness at a commit is
/// known by the moments at which health was seen to change after that commit was rolled out.
fn truths(versions: &[Value]) -> Vec<Option<&'static str>> {
    let mut rolled_out = ""; // the last commit whose Deployment was applied
    let mut ready = ""; // the last commit whose Deployment was ready
    let mut before = String::new();
    let truth = |object: &Value| {
        let seen = text(object, "/status/sync/revision");
        let resources = object["status"]["resources"].as_array().expect("resources");
        let all_synced = resources.iter().all(|r| r["status"] == "Synced");
        let health = text(object, "/status/health/status");
        let moved = format!("{health} {}", text(object, "/status/health/lastTransitionTime"));
        let revision = [R1, R2, R3, R4, R5].into_iter().find(|r| seen.starts_with(r)).unwrap_or_default();
        // A Deployment that was just applied is never ready at once: Progressing was seen first.
        if all_synced && health == "Progressing" && moved != before {
            rolled_out = revision;
        }
        if all_synced && health == "Healthy" && moved != before {
            ready = rolled_out;
        }
        before = moved;
        let deployment_of = match revision {
            R3 | R4 | R5 => R2,
            other => other,
        };
        (all_synced && health == "Healthy" && ready == deployment_of).then_some(revision)
    };
    versions.iter().map(truth).collect()
}

#[test]
fn no_version_claims_a_healthy_revision_that_was_not() {
    let versions = versions();
    let truths = truths(&versions);
    let healthy_at_all = |revision| truths.contains(&Some(revision));
    assert_eq!([R1, R2, R3, R4, R5].map(healthy_at_all), [true, true, true, true, false]);
    for (version, (_, shown, _)) in replay().iter().enumerate() {
        let claimed = shown.verdict.healthy;
        let truth = Fingerprint::of(truths[version].unwrap_or_default());
        assert!(claimed.is_none() || claimed == truth, "version {version} claims {claimed}, true is {truth}");
    }
}

#[test]
fn a_synced_revision_is_not_healthy_by_the_health_of_the_one_before() {
    let mut seen = 0;
    for (version, (object, shown, _)) in replay().iter().enumerate() {
        // Synced to r2, in the history, Healthy since before r2 was known.
        let history = object["status"]["history"].as_array().map_or(&[][..], Vec::as_slice);
        let deployed = history.last().map_or("", |h| text(h, "/revision"));
        let left_over = deployed.starts_with(R2)
            && text(object, "/status/sync/revision").starts_with(R2)
            && text(object, "/status/health/status") == "Healthy"
            && text(object, "/status/health/lastTransitionTime") < "2026-11-21T01:27:22Z";
        if left_over {
            seen += 1;
            assert_ne!(shown.verdict.health, Health::Current, "version {version}");
            assert!(shown.verdict.healthy.is_none(), "version {version}");
        }
    }
    assert_eq!(seen, 5, "the recording has the race");
}

#[test]
fn resyncs_and_retries_are_no_transitions() {
    let shown = replay();
    let transitions = transitions(&shown);
    let [r1, r2, r3, r4] = [R1, R2, R3, R4].map(Fingerprint::of);
    let none = Fingerprint::NONE;
    let expected = [
        (0, ApplyState::Applying, Health::InProgress, none, "OperationRunning"),
        // Versions 1 to 7: the operation, the time until the next comparison, and a second operation.
        (8, ApplyState::Applied, Health::InProgress, none, "Progressing"),
        // Versions 9 to 11: resyncs.
        (12, ApplyState::Applied, Health::Current, r1, ""),
        // Versions 13 to 15: resyncs.
        (16, ApplyState::Applying, Health::InProgress, none, "OperationRunning"),
        (25, ApplyState::Applied, Health::InProgress, none, "Progressing"),
        (26, ApplyState::Applied, Health::Current, r2, ""),
        (28, ApplyState::Applying, Health::InProgress, none, "OperationRunning"),
        (33, ApplyState::Applied, Health::Current, r3, ""),
        (35, ApplyState::Applied, Health::Current, r4, ""),
        (37, ApplyState::Applying, Health::InProgress, none, "OperationRunning"),
        (40, ApplyState::Failed, Health::Unknown, none, "OperationRetrying"),
        // Versions 41 to 43: a resync, a retry and its failure.
    ];
    let expected = expected.map(|(v, a, h, f, r)| (v, a, h, f, r.to_owned()));
    assert_eq!(transitions, expected);
}

#[test]
fn what_is_wanted_and_applied_is_known_all_along() {
    let shown = replay();
    let at = |version: usize| (shown[version].1.verdict.desired, shown[version].1.verdict.applied);
    let [r1, r2, r3, r4, r5] = [R1, R2, R3, R4, R5].map(Fingerprint::of);
    assert_eq!(at(0), (r1, Fingerprint::NONE));
    assert_eq!(at(8), (r1, r1));
    assert_eq!(at(17), (r2, r1), "r2 is only wanted");
    assert_eq!(at(20), (r2, r2));
    assert_eq!(at(34), (r3, r3));
    assert_eq!(at(35), (r4, r4), "r4 changes nothing, so it is applied without being synced");
    assert_eq!(at(43), (r5, r3), "what was synced last");
}

#[test]
fn the_objects_own_time_is_that_of_its_health_or_sync() {
    let shown = replay();
    let at = |version: usize| own_time(&shown[version].1);
    // Health has its own time; resyncs do not move it.
    assert_eq!([at(12), at(15)], ["2026-11-21T01:27:08Z"; 2]);
    assert_eq!([at(26), at(27)], ["2026-11-21T01:27:35Z"; 2]);
    // r3 was Healthy without a break: since it was synced.
    assert_eq!([at(33), at(34)], ["2026-11-21T01:27:43Z"; 2]);
    // r4 has none.
    assert_eq!([at(35), at(36)], ["-"; 2]);
}

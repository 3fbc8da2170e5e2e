//! A recording of the real kustomize-controller (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from the recording itself, in a way that has
//! nothing to do with the preset.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::{Replay, own_time, recording, transitions};

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";
const R3: &str = "main@sha1:3333333333333333333333333333333333333333";

/// What one version says, read by hand.
struct Facts {
    ready: String,
    reason: String,
    attempted: String,
    applied: String,
    /// The newest time that the version has in it, in unix milliseconds: about when it was written.
    at: i64,
}

fn facts(object: &Value) -> Facts {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|c| c["type"] == "Ready").expect("a Ready condition");
    let history = status["history"].as_array().expect("a history");
    let times = conditions.iter().map(|c| &c["lastTransitionTime"]);
    let times = times.chain(history.iter().map(|h| &h["lastReconciled"]));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let millis = |v: &Value| text(v).parse::<jiff::Timestamp>().expect("a time").as_millisecond();
    Facts {
        ready: text(&ready["status"]),
        reason: text(&ready["reason"]),
        attempted: text(&status["lastAttemptedRevision"]),
        applied: text(&status["lastAppliedRevision"]),
        at: times.map(millis).max().expect("some time"),
    }
}

/// Everything shown, version by version; `source_revision` gives the source object's revision.
fn replay(source_revision: impl Fn(&Facts) -> Option<String>) -> Vec<(Facts, Shown, bool)> {
    let versions = recording(include_str!("traces/flux-kustomization-1.7.3.jsonl"));
    let artifact = |revision: String| {
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
            "metadata": {"name": "payments", "namespace": "flux-system"},
            "status": {"artifact": {"revision": revision}}})
    };
    let mut replay = Replay::of("flux-kustomization", &[versions[0].clone(), artifact(String::new())]);
    let step = |object: Value| {
        let facts = facts(&object);
        let artifacts: Vec<Value> = source_revision(&facts).map(artifact).into_iter().collect();
        let (shown, changed) = replay.step(&object, &artifacts, facts.at);
        (facts, shown, changed)
    };
    versions.into_iter().map(step).collect()
}

#[test]
fn no_version_claims_a_healthy_revision_that_was_not() {
    // Without a source object, with one that is as the controller sees it, and with one that is ahead.
    let as_attempted = |f: &Facts| Some(f.attempted.clone());
    let ahead = |_: &Facts| Some(R3.to_owned());
    for shown in [replay(|_| None), replay(as_attempted), replay(ahead)] {
        let mut last_success: Option<String> = None;
        for (version, (facts, shown, _)) in shown.iter().enumerate() {
            // A revision is healthy from when an attempt at it ended well and was written down...
            if facts.ready == "True" && facts.applied == facts.attempted {
                last_success = Some(facts.applied.clone());
            }
            // ...until an attempt ends badly, or another revision is attempted.
            if facts.ready == "False" || last_success.as_ref() != Some(&facts.attempted) {
                last_success = None;
            }
            let claimed = shown.verdict.healthy;
            let truth = Fingerprint::of(last_success.as_deref().unwrap_or_default());
            assert!(
                claimed.is_none() || claimed == truth,
                "version {version} claims {claimed}, true is {truth}"
            );
            assert_ne!(claimed, Fingerprint::of(R3), "r3 never even builds");
            if claimed == Fingerprint::of(R2) {
                assert_eq!((facts.applied.as_str(), facts.attempted.as_str()), (R2, R2), "version {version}");
            }
        }
    }
}

#[test]
fn a_timer_is_no_transition_and_a_failing_attempt_stays_failed() {
    let shown = replay(|_| None);
    let transitions = transitions(&shown);
    let (r1, r2, none) = (Fingerprint::of(R1), Fingerprint::of(R2), Fingerprint::NONE);
    let expected = [
        (0, ApplyState::Applied, Health::Current, r1, ""),
        // Versions 1 to 9: the timer, twice.
        (10, ApplyState::Applying, Health::InProgress, none, "Progressing"),
        (14, ApplyState::Applied, Health::Failed, none, "HealthCheckFailed"),
        // Versions 15 to 21: the retry, up to Ready=True with lastAppliedRevision still behind.
        (22, ApplyState::Applied, Health::Current, r2, ""),
        (25, ApplyState::Applying, Health::InProgress, none, "Progressing"),
        (26, ApplyState::Failed, Health::Unknown, none, "BuildFailed"),
        // Versions 27 to 53: nine more retries.
    ];
    let expected = expected.map(|(v, a, h, f, r)| (v, a, h, f, r.to_owned()));
    assert_eq!(transitions, expected);
}

#[test]
fn every_retry_of_the_failing_build_reads_as_failed() {
    for (facts, shown, _) in &replay(|_| None)[26..] {
        assert_eq!(facts.attempted, R3);
        assert!(matches!(
            (facts.ready.as_str(), facts.reason.as_str()),
            ("Unknown", "Progressing") | ("False", "BuildFailed")
        ));
        assert_eq!(shown.verdict.apply, ApplyState::Failed);
        assert_eq!(shown.verdict.reason.as_deref(), Some("BuildFailed"));
        assert_eq!(shown.verdict.applied, Fingerprint::of(R2), "what is applied is still r2");
    }
}

#[test]
fn the_objects_own_time_is_that_of_its_condition() {
    let shown = replay(|_| None);
    let at = |version: usize| own_time(&shown[version].1);
    // r1 was first reconciled long before the recording begins, and no timer since changed that.
    assert_eq!((at(0), at(9)), ("2026-11-21T00:14:39Z".to_owned(), "2026-11-21T00:14:39Z".to_owned()));
    assert_eq!((at(22), at(24)), ("2026-11-21T00:50:52Z".to_owned(), "2026-11-21T00:50:52Z".to_owned()));
}

#[test]
fn a_source_that_is_ahead_makes_the_package_pending_until_it_is_attempted() {
    let shown = replay(|_| Some(R3.to_owned()));
    let (_, first, _) = &shown[0];
    assert_eq!((first.verdict.apply, first.verdict.health), (ApplyState::Pending, Health::Current));
    assert_eq!(first.verdict.reason.as_deref(), Some("NewRevision"));
    assert_eq!(first.verdict.desired, Fingerprint::of(R3));
    let (_, last, _) = shown.last().expect("versions");
    assert_eq!(last.verdict.apply, ApplyState::Failed);
}

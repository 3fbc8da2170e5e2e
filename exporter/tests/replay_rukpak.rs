//! A recording of the real rukpak core controller (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from the recording itself, in a way that has
//! nothing to do with the preset.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

/// The name of the ConfigMap in a source, or nothing.
fn config_map(source: &Value) -> &str {
    source["configMaps"][0]["configMap"]["name"].as_str().unwrap_or_default()
}

/// The newest time that a version has in it, in unix milliseconds: about when it was written.
fn written(object: &Value) -> i64 {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let times = conditions.iter().map(|c| &c["lastTransitionTime"]);
    let times = times.chain([&object["metadata"]["creationTimestamp"]]).filter_map(Value::as_str);
    let millis = times.map(|t| t.parse::<jiff::Timestamp>().expect("a time").as_millisecond());
    millis.max().expect("some time")
}

fn replay() -> Vec<(Value, Shown, bool)> {
    let versions = recording(include_str!("traces/rukpak-bundledeployment-0.24.jsonl"));
    let mut replay = Replay::of("rukpak-bundledeployment", &versions);
    let step = |object: Value| {
        let (shown, changed) = replay.step(&object, &[], written(&object));
        (object, shown, changed)
    };
    versions.into_iter().map(step).collect()
}

#[test]
fn no_version_claims_a_healthy_revision_that_was_not() {
    // The content that the last good word was about. The controller clears `resolvedSource` when it
    // cannot unpack what is wanted, and says True of the content that it unpacked in the same write.
    let mut healthy_ever = Vec::new();
    for (version, (object, shown, _)) in replay().into_iter().enumerate() {
        let status = &object["status"];
        let said = |kind: &str| {
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            conditions.iter().any(|c| c["type"] == kind && c["status"] == "True")
        };
        let wanted = config_map(&object["spec"]["source"]);
        let unpacked = config_map(&status["resolvedSource"]);
        let truth = if unpacked == wanted && said("Healthy") { unpacked } else { "" };
        let claimed = shown.verdict.healthy;
        assert!(
            claimed.is_none() || claimed == Fingerprint::of(truth),
            "version {version} claims {claimed}, true is {truth:?}"
        );
        assert_eq!(shown.verdict.desired, Fingerprint::of(wanted), "version {version}");
        assert_ne!(shown.verdict.applied, Fingerprint::of("missing"), "version {version}");
        healthy_ever.extend((!claimed.is_none()).then_some(truth.to_owned()));
    }
    assert_eq!(healthy_ever, ["bundle-a", "bundle-b"]);
}

#[test]
fn every_transition_is_one_that_happened() {
    let shown = replay();
    let transitions = transitions(&shown);
    let (a, b, none) = (Fingerprint::of("bundle-a"), Fingerprint::of("bundle-b"), Fingerprint::NONE);
    let expected = [
        (0, ApplyState::Pending, Health::Unknown, none, "NotObserved"),
        // The Deployment has no Pods yet; version 2 is the finalizer.
        (1, ApplyState::Applied, Health::InProgress, none, "Unhealthy"),
        (3, ApplyState::Applied, Health::Current, a, ""),
        (4, ApplyState::Pending, Health::Unknown, none, "NotObserved"),
        (5, ApplyState::Applied, Health::Current, b, ""),
        (6, ApplyState::Pending, Health::Unknown, none, "NotObserved"),
        // Installed and Healthy are still True, of bundle-b.
        (7, ApplyState::Failed, Health::Unknown, none, "UnpackFailed"),
    ];
    assert_eq!(transitions, expected.map(|(v, a, h, r, reason)| (v, a, h, r, reason.to_owned())));
}

#[test]
fn a_transition_is_dated_when_it_was_seen() {
    let times: Vec<_> =
        replay().iter().map(|(object, s, changed)| (written(object), s.clone(), *changed)).collect();
    for (at, shown, changed) in times {
        if changed {
            assert_eq!(shown.since, at);
        }
    }
}

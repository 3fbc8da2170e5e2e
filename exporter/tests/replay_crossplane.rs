//! Recordings of the real Crossplane package manager (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from the recordings themselves, in a way that has
//! nothing to do with the preset.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::{Replay, own_time, recording};

/// The first digits of the digests of the images.
const V1: &str = "af9fe915b259";
const V11: &str = "be38c9b42928";
const V2: &str = "7c236b220e2f";

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn written(object: &Value) -> u64 {
    text(&object["metadata"]["resourceVersion"]).parse().expect("a resource version")
}

/// Versions of the Provider and of its revisions, in the order in which they were written.
fn versions() -> Vec<Value> {
    let mut all = recording(include_str!("traces/crossplane-provider-1.20.jsonl"));
    all.extend(recording(include_str!("traces/crossplane-providerrevision-1.20.jsonl")));
    all.sort_by_key(written);
    all
}

fn status_of(object: &Value, condition: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().find(|c| c["type"] == condition).map(|c| text(&c["status"])).unwrap_or_default()
}

/// The newest time in an object, in unix milliseconds.
fn newest(object: &Value) -> i64 {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let times = conditions.iter().map(|c| text(&c["lastTransitionTime"]));
    let times = times.chain([text(&object["metadata"]["creationTimestamp"])]);
    times.map(|t| t.parse::<jiff::Timestamp>().expect("a time").as_millisecond()).max().unwrap_or(0)
}

/// One look: which write came last, what is true after it, and what is shown.
struct Look {
    written: u64,
    truth: Option<String>,
    shown: Shown,
    changed: bool,
}

/// The revisions as they are after the given writes.
fn revisions<'a>(written: impl Iterator<Item = &'a Value>) -> BTreeMap<String, Value> {
    let revisions = written.filter(|v| v["kind"] == "ProviderRevision");
    revisions.map(|v| (text(&v["metadata"]["name"]), v.clone())).collect()
}

/// What works: the content of the wanted tag, once its revision said so, was active and had its
/// objects. Which tag is which content is read off the revisions that were ever made for it.
fn truth(all: &[Value], provider: &Value, revisions: &BTreeMap<String, Value>) -> Option<String> {
    let wanted = &provider["spec"]["package"];
    let of_wanted = |v: &&Value| v["kind"] == "ProviderRevision" && v["spec"]["image"] == *wanted;
    let name = text(&all.iter().find(of_wanted)?["metadata"]["name"]);
    let revision = revisions.get(&name)?;
    let works = revision["spec"]["desiredState"] == "Active"
        && status_of(revision, "Healthy") == "True"
        && revision["status"]["objectRefs"].as_array().is_some_and(|refs| !refs.is_empty());
    works.then(|| name.rsplit_once('-').expect("a name with a digest").1.to_owned())
}

/// Replays both recordings, the revisions seen `lag` writes too late (or, when negative, too early).
fn replay(lag: isize) -> Vec<Look> {
    let all = versions();
    let of_revisions: Vec<Value> = all.iter().filter(|v| v["kind"] == "ProviderRevision").cloned().collect();
    let mut replay = Replay::of("crossplane-package", &all);
    let (mut looks, mut now) = (Vec::new(), 0);
    for (n, version) in all.iter().enumerate() {
        now = now.max(newest(version));
        let so_far = &all[..=n];
        let Some(provider) = so_far.iter().rev().find(|v| v["kind"] == "Provider") else { continue };
        let seen = so_far.iter().filter(|v| v["kind"] == "ProviderRevision").count();
        let seen = seen.saturating_add_signed(-lag).min(of_revisions.len());
        let related: Vec<Value> = revisions(of_revisions[..seen].iter()).into_values().collect();
        let (shown, changed) = replay.step(provider, &related, now);
        let truth = truth(&all, provider, &revisions(so_far.iter()));
        looks.push(Look { written: written(version), truth, shown, changed });
    }
    looks
}

#[test]
fn no_version_claims_a_healthy_revision_that_was_not() {
    for lag in [0, 1, 2, -1, -2] {
        let looks = replay(lag);
        let mut last = None;
        for look in &looks {
            let claimed = look.shown.verdict.healthy;
            // One that sees the revisions late may say for as long what was true before.
            let known = [&look.truth, if lag > 0 { &last } else { &look.truth }];
            let true_of = |truth: &&Option<String>| {
                truth.as_ref().is_some_and(|revision| Fingerprint::of(revision) == claimed)
            };
            assert!(
                claimed.is_none() || known.iter().any(true_of),
                "lag {lag}, after write {}: claims {claimed}, true is {:?}",
                look.written,
                look.truth
            );
            assert_ne!(claimed, Fingerprint::of(V2), "v2.0.0 cannot even be parsed");
            last.clone_from(&look.truth);
        }
    }
}

#[test]
fn every_revision_that_worked_is_claimed_once_both_objects_say_so() {
    let claimed: Vec<_> = replay(0)
        .iter()
        .filter(|look| !look.shown.verdict.healthy.is_none())
        .map(|look| (look.written, look.shown.verdict.healthy))
        .collect();
    // The revision says so in 1163 and 1206, the package two writes later and until it is changed.
    assert_eq!(claimed, [(1165, Fingerprint::of(V1)), (1208, Fingerprint::of(V11))]);
}

#[test]
fn the_transitions_are_those_of_the_rollouts() {
    let looks = replay(0);
    let transitions: Vec<_> = looks
        .iter()
        .filter(|look| look.changed)
        .map(|look| {
            let v = &look.shown.verdict;
            let reason = v.reason.as_deref().unwrap_or_default().to_owned();
            (look.written, v.apply, v.health, v.applied, v.healthy, reason)
        })
        .collect();
    let (v1, v11, none) = (Fingerprint::of(V1), Fingerprint::of(V11), Fingerprint::NONE);
    let expected = [
        (1112, ApplyState::Failed, Health::Unknown, none, none, "UnhealthyPackageRevision"),
        (1145, ApplyState::Applied, Health::InProgress, v1, none, "RuntimeUnavailable"),
        (1165, ApplyState::Applied, Health::Current, v1, v1, ""),
        // v1.1.0 is wanted, and everything else still says that v1.0.0 is healthy.
        (1167, ApplyState::Pending, Health::Current, v1, none, "NewRevision"),
        (1168, ApplyState::Pending, Health::Unknown, none, none, "NewRevision"),
        (1169, ApplyState::Pending, Health::InProgress, none, none, "NewRevision"),
        (1173, ApplyState::Applying, Health::InProgress, none, none, "RevisionNotObserved"),
        (1190, ApplyState::Applied, Health::InProgress, v11, none, "RuntimeUnavailable"),
        (1208, ApplyState::Applied, Health::Current, v11, v11, ""),
        (1211, ApplyState::Pending, Health::Current, v11, none, "NewRevision"),
        (1212, ApplyState::Pending, Health::Unknown, none, none, "NewRevision"),
        (1213, ApplyState::Pending, Health::InProgress, none, none, "NewRevision"),
        (1215, ApplyState::Applying, Health::InProgress, none, none, "RevisionNotObserved"),
        // It cannot be parsed: Installed stays True.
        (1226, ApplyState::Failed, Health::Unknown, none, none, "UnhealthyPackageRevision"),
    ];
    assert_eq!(transitions, expected.map(|(w, s, h, a, g, r)| (w, s, h, a, g, r.to_owned())));
}

#[test]
fn the_wanted_revision_is_the_content_of_the_package_once_it_is_known() {
    for look in replay(0) {
        let desired = look.shown.verdict.desired;
        let expected = match look.written {
            ..1167 => V1,
            1173..1211 => V11,
            1215.. => V2,
            _ => "",
        };
        assert_eq!(desired, Fingerprint::of(expected), "after write {}", look.written);
    }
}

#[test]
fn the_objects_own_time_is_when_the_package_became_healthy() {
    let looks = replay(0);
    let at = |written: u64| {
        let look = looks.iter().find(|look| look.written == written).expect("a write");
        own_time(&look.shown)
    };
    assert_eq!((at(1165), at(1208)), ("2026-11-21T01:01:01Z".to_owned(), "2026-11-21T01:01:30Z".to_owned()));
}

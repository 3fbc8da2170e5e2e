//! A recording of KubeFleet's agents (tests/traces), replayed version by version.
//!
//! What works at each version is worked out here from the manifests in the Works and the objects in the member cluster, and not from
//! any condition.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

const MAIN: &str = "payments-work";
const ENVELOPED: &str = "payments-work-configmap-6db9e2f6-e2f5-463e-8c66-99e976486d09";
const BINDING: &str = "payments-eu-1-cecf9031";

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn is_of(object: &Value, kind: &str, named: &str) -> bool {
    object["kind"] == kind && name(object) == named
}

/// The newest time in an object, in unix milliseconds.
fn newest(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond),
        Value::Array(items) => items.iter().map(newest).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(newest).max().unwrap_or(0),
        _ => 0,
    }
}

/// What is there at one moment, by cluster, kind and name.
#[derive(Default, Clone)]
struct World(BTreeMap<(String, String, String), Value>);

impl World {
    fn follow(&mut self, event: &Value) {
        let object = &event["object"];
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let key = (text(&event["cluster"]), text(&object["kind"]), name(object).to_owned());
        match event["type"] == "DELETED" {
            true => self.0.remove(&key),
            false => self.0.insert(key, object.clone()),
        };
    }

    fn works(&self) -> impl Iterator<Item = &Value> {
        self.0.values().filter(|object| object["kind"] == "Work")
    }

    /// Whether an object is in the member cluster as a manifest says, and works.
    fn has(&self, manifest: &Value) -> bool {
        let kind = manifest["kind"].as_str().expect("a kind");
        let key = ("eu-1".to_owned(), kind.to_owned(), name(manifest).to_owned());
        let found = self.0.get(&key);
        match kind {
            "Namespace" => true,
            "ConfigMap" => found.is_some_and(|found| found["data"] == manifest["data"]),
            "Deployment" => found.is_some_and(|found| {
                let image = "/spec/template/spec/containers/0/image";
                found.pointer(image) == manifest.pointer(image)
                    && found["status"]["observedGeneration"] == found["metadata"]["generation"]
                    && found["status"]["availableReplicas"] == 1
            }),
            _ => false,
        }
    }

    /// The snapshot of a Work, if all that it holds works.
    fn working<'a>(&self, work: &'a Value) -> Option<&'a str> {
        let manifests = work["spec"]["workload"]["manifests"].as_array().map_or(&[][..], Vec::as_slice);
        let snapshot = &work["metadata"]["annotations"]["kubernetes-fleet.io/parent-resource-snapshot-name"];
        manifests.iter().all(|manifest| self.has(manifest)).then(|| snapshot.as_str().expect("a snapshot"))
    }

    /// Those of a package's Works.
    fn works_at(&self, package: &str) -> Vec<Option<&str>> {
        let of_package = |work: &&Value| package == BINDING || name(work) == package;
        self.works().filter(of_package).map(|work| self.working(work)).collect()
    }
}

/// Each version of one object, what there was then, what is shown of it and whether that is a transition.
fn replay(preset: &str, kind: &str, named: &str) -> Vec<(World, Shown, bool)> {
    let events = recording(include_str!("traces/kubefleet-0.14.0.jsonl"));
    let objects: Vec<Value> = events.iter().map(|event| event["object"].clone()).collect();
    let mut replay = Replay::of(preset, &objects);
    let (mut world, mut now, mut shown) = (World::default(), 0, Vec::new());
    for event in &events {
        let object = &event["object"];
        world.follow(event);
        now = now.max(newest(object));
        if is_of(object, kind, named) && event["type"] != "DELETED" {
            let related: Vec<Value> =
                world.0.values().filter(|o| o["kind"] == "MemberCluster").cloned().collect();
            let (it, changed) = replay.step(object, &related, now);
            shown.push((world.clone(), it, changed));
        }
    }
    shown
}

fn snapshot(fingerprint: Fingerprint) -> String {
    let names = (0..9).map(|n| format!("payments-{n}-snapshot"));
    names.into_iter().find(|name| Fingerprint::of(name) == fingerprint).unwrap_or_default()
}

#[rstest]
#[case::placement("kubefleet-binding", "ClusterResourceBinding", BINDING, &[0, 2, 3, 4, 6, 7])]
#[case::manifests("kubefleet-work", "Work", MAIN, &[0, 1, 2, 3, 4, 6, 7])]
#[case::envelope("kubefleet-work", "Work", ENVELOPED, &[0, 1, 2, 3, 4, 5, 6, 7, 8])]
fn healthy_is_only_claimed_of_the_snapshot_that_works_in_the_member_cluster(
    #[case] preset: &str,
    #[case] kind: &str,
    #[case] named: &str,
    #[case] claimed: &[usize],
) {
    let mut claims = BTreeSet::new();
    for (n, (world, shown, _)) in replay(preset, kind, named).iter().enumerate() {
        let healthy = snapshot(shown.verdict.healthy);
        if shown.verdict.healthy.is_none() {
            continue;
        }
        let works = world.works_at(named);
        assert!(!works.is_empty(), "version {n}: there is no Work");
        for works in works {
            assert_eq!(works, Some(healthy.as_str()), "version {n}");
        }
        claims.insert(healthy);
    }
    let claims: Vec<String> = claims.into_iter().collect();
    assert_eq!(claims, claimed.iter().map(|n| format!("payments-{n}-snapshot")).collect::<Vec<_>>());
}

#[test]
fn a_rollout_is_told_step_by_step() {
    let shown = replay("kubefleet-binding", "ClusterResourceBinding", BINDING);
    let told: Vec<String> = transitions(&shown)
        .into_iter()
        .map(|(n, apply, health, healthy, reason)| {
            let healthy = snapshot(healthy);
            let healthy = healthy.split('-').nth(1).unwrap_or("-");
            format!("{n} {apply}/{health} {healthy} {reason}")
        })
        .collect();
    // Version of the binding, state, snapshot that is claimed healthy, reason.
    let expected = [
        "0 Pending/Unknown - NotBound",
        "5 Applying/InProgress - ApplyInProgress",
        // The envelope comes before its namespace is there.
        "8 Failed/Unknown - ManifestApplyFailed",
        "9 Applied/InProgress - NotAllWorkAreAvailable",
        "10 Applied/Current 0 ",
        "11 Pending/Unknown - NotObserved",
        // payments-1 is replaced before it is applied everywhere.
        "14 Applying/InProgress - ApplyInProgress",
        "15 Pending/Unknown - NotObserved",
        "18 Applying/InProgress - ApplyInProgress",
        "21 Applied/InProgress - NotAllWorkAreAvailable",
        "22 Applied/Current 2 ",
        "23 Pending/Unknown - NotObserved",
        "25 Applying/InProgress - ApplyInProgress",
        "27 Applied/Current 3 ",
        "28 Pending/Unknown - NotObserved",
        "30 Applying/InProgress - ApplyInProgress",
        "31 Applied/Current 4 ",
        // The Deployment loses its pod, and gets it back.
        "32 Applied/InProgress - NotAllWorkAreAvailable",
        "33 Applied/Current 4 ",
        "34 Pending/Unknown - NotObserved",
        "37 Applying/InProgress - ApplyInProgress",
        // A ConfigMap is refused.
        "38 Failed/Unknown - ManifestApplyFailed",
        "39 Pending/Unknown - NotObserved",
        "41 Applying/InProgress - ApplyInProgress",
        "43 Failed/Unknown - ManifestApplyFailed",
        "44 Applied/InProgress - NotAllWorkAreAvailable",
        "45 Applied/Current 6 ",
        "46 Pending/Unknown - NotObserved",
        "48 Applying/InProgress - ApplyInProgress",
        "50 Applied/Current 7 ",
        "51 Pending/Unknown - NotObserved",
        "53 Applying/InProgress - ApplyInProgress",
        // A Job, which KubeFleet does not track.
        "56 Applied/Unknown - NoHealthChecks",
        "58 Deleting/Terminating - Deleting",
    ];
    assert_eq!(told, expected);
}

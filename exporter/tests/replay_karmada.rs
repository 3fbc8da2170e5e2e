//! A recording of Karmada's controllers (tests/traces), replayed version by version.
//!
//! What works at each version is worked out here from the manifest and the object in the member cluster, and not from what Karmada
//! reports of it.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

/// What is there at one moment, by kind.
type World = BTreeMap<String, Value>;

/// The generation of the template that works in the member cluster.
fn working(world: &World) -> Option<&str> {
    let (work, found, cluster) = (world.get("Work")?, world.get("Deployment")?, world.get("Cluster")?);
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let image = "/spec/template/spec/containers/0/image";
    let status = &found["status"];
    let works = found.pointer(image) == manifest.pointer(image)
        && status["observedGeneration"] == found["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[field] == 1);
    let conditions = cluster["status"]["conditions"].as_array()?;
    let reached = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let generation = &manifest["metadata"]["annotations"]["resourcetemplate.karmada.io/generation"];
    (works && reached).then(|| generation.as_str().expect("a generation"))
}

/// Each version of the Work and of the cluster, what there was then, what is shown and whether that is a transition.
fn replay() -> Vec<(World, Shown, bool)> {
    let events = recording(include_str!("traces/karmada-1.18.2.jsonl"));
    let objects: Vec<Value> = events.iter().map(|event| event["object"].clone()).collect();
    let mut replay = Replay::of("karmada-work", &objects);
    let (mut world, mut shown) = (World::new(), Vec::new());
    for event in &events {
        let kind = event["object"]["kind"].as_str().expect("a kind");
        if event["type"] == "DELETED" {
            world.remove(kind);
            continue;
        }
        world.insert(kind.to_owned(), event["object"].clone());
        if let (true, Some(work)) = (kind != "Deployment", world.get("Work")) {
            let cluster: Vec<Value> = world.get("Cluster").cloned().into_iter().collect();
            let (it, changed) = replay.step(work, &cluster, 0);
            shown.push((world.clone(), it, changed));
        }
    }
    shown
}

fn generation(fingerprint: Fingerprint) -> String {
    (1..9).map(|n| n.to_string()).find(|n| Fingerprint::of(n) == fingerprint).unwrap_or("-".to_owned())
}

#[test]
fn healthy_is_only_claimed_of_the_generation_that_works_in_the_member_cluster() {
    let mut claims = Vec::new();
    for (n, (world, shown, _)) in replay().iter().enumerate() {
        if !shown.verdict.healthy.is_none() {
            let healthy = generation(shown.verdict.healthy);
            assert_eq!(working(world), Some(healthy.as_str()), "version {n}");
            claims.push(healthy);
        }
    }
    claims.dedup();
    assert_eq!(claims, ["2", "3", "4", "5", "6"]);
}

#[test]
fn a_rollout_is_told_step_by_step() {
    let told: Vec<String> = transitions(&replay())
        .into_iter()
        .map(|(n, apply, health, healthy, reason)| {
            format!("{n} {apply}/{health} {} {reason}", generation(healthy))
        })
        .collect();
    // Version, state, generation that is claimed healthy, reason.
    let expected = [
        "0 Pending/Unknown - NotApplied",
        "2 Applying/InProgress - NotReported",
        "3 Applied/InProgress - Unhealthy",
        "4 Applied/Current 2 ",
        // Applied is True and the health Healthy, of generation 2.
        "5 Applying/InProgress - NotReported",
        "6 Applied/InProgress - Unhealthy",
        // In version 7 it is Healthy by a pod of generation 2.
        "8 Applied/Current 3 ",
        "9 Applied/InProgress - Unhealthy",
        "10 Applied/Current 3 ",
        "11 Applying/InProgress - NotReported",
        "12 Failed/Unknown - AppliedFailed",
        // Applied is True again before the status is of generation 4.
        "13 Applying/InProgress - NotReported",
        "14 Applied/InProgress - Unhealthy",
        "15 Applied/Current 4 ",
        "16 Paused/Unknown - SuspendDispatching",
        "19 Applying/InProgress - NotReported",
        "21 Applied/InProgress - Unhealthy",
        "22 Applied/Current 5 ",
        "23 Applied/Unknown - ClusterNotReady",
        "24 Applying/Unknown - NotReported",
        "25 Applying/InProgress - NotReported",
        "26 Applied/InProgress - Unhealthy",
        "27 Applied/Current 6 ",
        "28 Deleting/Terminating - Deleting",
    ];
    assert_eq!(told, expected);
}

//! A recording of Open Cluster Management's real work agent (tests/traces), replayed version by version.
//!
//! What is true at each version is worked out here from the Deployment in the cluster, which the preset never sees.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

const REVISION: &str = "statusbridge.dev/revision";

/// A version of the ManifestWork, and the Deployment as it was then, if there was one.
struct Version {
    work: Value,
    deployment: Option<Value>,
}

impl Version {
    /// The revision that the manifests have.
    fn wanted(&self) -> &str {
        let manifests = self.work["spec"]["workload"]["manifests"].as_array().expect("manifests");
        let revision = &manifests.last().expect("a Deployment")["metadata"]["annotations"][REVISION];
        revision.as_str().expect("a revision")
    }

    /// The revision of which the Deployment is rolled out in the cluster.
    fn runs(&self) -> Option<&str> {
        let deployment = self.deployment.as_ref()?;
        let status = &deployment["status"];
        let is_observed = status["observedGeneration"] == deployment["metadata"]["generation"];
        let is_available = status["availableReplicas"] == deployment["spec"]["replicas"];
        let revision = deployment["metadata"]["annotations"][REVISION].as_str();
        revision.filter(|_| is_observed && is_available)
    }

    /// Whether all that the agent says of the whole is good, and of the present generation.
    fn is_called_done(&self) -> bool {
        let conditions = self.work["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let generation = &self.work["metadata"]["generation"];
        let good =
            [("Applied", "True"), ("Available", "True"), ("Degraded", "False"), ("Progressing", "False")];
        good.iter().all(|(kind, status)| {
            conditions.iter().any(|c| {
                c["type"] == *kind && c["status"] == *status && c["observedGeneration"] == *generation
            })
        })
    }
}

fn versions() -> Vec<Version> {
    let mut deployment = None;
    let mut versions = Vec::new();
    for object in recording(include_str!("traces/ocm-manifestwork-1.2.1.jsonl")) {
        match object["kind"].as_str() {
            Some("Deployment") => deployment = Some(object),
            _ => versions.push(Version { work: object, deployment: deployment.clone() }),
        }
    }
    versions
}

fn replay() -> Vec<(Version, Shown, bool)> {
    let versions = versions();
    // No hub's registration controller ran: what it would say of a cluster whose agent lives.
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": versions[0].work["metadata"]["namespace"]},
        "status": {"conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True"}]},
    });
    let mut replay = Replay::of("ocm-manifestwork", &[versions[0].work.clone(), cluster.clone()]);
    let step = |(second, version): (i64, Version)| {
        let (shown, changed) = replay.step(&version.work, std::slice::from_ref(&cluster), second * 1000);
        (version, shown, changed)
    };
    (1..).zip(versions).map(step).collect()
}

#[test]
fn a_healthy_revision_is_one_that_runs_in_the_cluster() {
    let mut healthy = Vec::new();
    for (number, (version, shown, _)) in replay().iter().enumerate() {
        assert_eq!(shown.verdict.desired, Fingerprint::of(version.wanted()), "version {number}");
        if shown.verdict.healthy.is_none() {
            continue;
        }
        let truth = version.runs().expect("a Deployment that is rolled out");
        assert_eq!(shown.verdict.healthy, Fingerprint::of(truth), "version {number}");
        assert_eq!(truth, version.wanted(), "version {number}");
        healthy.push(truth.to_owned());
    }
    assert_eq!(healthy, ["v1", "v2", "v2"]);
}

/// Why conditions alone, even of the present generation, are not believed.
#[test]
fn the_agent_calls_revisions_done_that_do_not_run() {
    let wrong: Vec<_> = replay()
        .iter()
        .filter(|(version, ..)| version.is_called_done() && version.runs() != Some(version.wanted()))
        .map(|(version, shown, _)| {
            (version.wanted().to_owned(), shown.verdict.reason.as_deref().map(str::to_owned))
        })
        .collect();
    let expected = ["v2", "v3"].map(|revision| (revision.to_owned(), Some("RevisionNotRead".to_owned())));
    assert_eq!(wrong, expected);
}

#[test]
fn every_transition_is_one_that_happened() {
    let (v1, v2, none) = (Fingerprint::of("v1"), Fingerprint::of("v2"), Fingerprint::NONE);
    let expected = [
        (0, ApplyState::Pending, Health::InProgress, none, "NotObserved"),
        (2, ApplyState::Applied, Health::Unknown, none, "ObjectsNotRead"),
        (3, ApplyState::Applied, Health::InProgress, none, "Progressing"),
        (4, ApplyState::Applied, Health::Current, v1, ""),
        // Version 6: Progressing is False at the new generation, of the Deployment of v1.
        (5, ApplyState::Pending, Health::InProgress, none, "NotObserved"),
        // So it is in version 7, and Applied by now. Version 8: the new Deployment is Progressing.
        (7, ApplyState::Applied, Health::InProgress, none, "RevisionNotRead"),
        (9, ApplyState::Applied, Health::Current, v2, ""),
        (10, ApplyState::Pending, Health::InProgress, none, "NotObserved"),
        (12, ApplyState::Applied, Health::InProgress, none, "RevisionNotRead"),
        (13, ApplyState::Applied, Health::Failed, none, "Degraded"),
        (14, ApplyState::Pending, Health::InProgress, none, "NotObserved"),
        // Degraded at the new generation, of v3.
        (16, ApplyState::Applied, Health::InProgress, none, "RevisionNotRead"),
        (17, ApplyState::Applied, Health::Current, v2, ""),
    ];
    assert_eq!(transitions(&replay()), expected.map(|(v, a, h, r, reason)| (v, a, h, r, reason.to_owned())));
}

//! A package in the midst of a rollout, for tests.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use statusbridge_core::reconcile::object::{Key, Kind};
use statusbridge_core::time::Seconds;

use crate::rollout::Rollout;
use crate::watched::Objects;

/// 2026-01-01T02:00:00Z
pub(crate) const NOW: Seconds = 1_767_232_800.0;
const START: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "main@sha1:2222222222222222222222222222222222222222";
const OLD: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Objects as the API server would send them.
pub(crate) fn objects(sent: &[Value]) -> Objects {
    let mut objects = Objects::default();
    for object in sent {
        let kind = match object["kind"].as_str() {
            Some("FleetPackage") => Kind::FleetPackage,
            Some("FleetRollout") => Kind::FleetRollout,
            _ => Kind::RolloutGate,
        };
        objects.apply(kind, Event::Apply(serde_json::from_value(object.clone()).unwrap()));
    }
    objects
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
        "lastTransitionTime": START})
}

fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": "fleet", "name": name, "uid": format!("uid of {name}"), "resourceVersion": "1",
            "generation": 1},
        "spec": spec, "status": status,
    })
}

/// A FleetPackage of which one cluster has failed, in `half`, and one is silent, in no wave.
pub(crate) fn package() -> Value {
    let problem = |cluster: &str, state: &str, reason: &str| json!({"clusterName": cluster, "state": state, "reason": reason, "since": "2026-01-01T01:56:00Z"});
    let message = "1 cluster failed: eu-7";
    let spec = json!({"package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "payments"},
        "revision": NEW, "clusters": {"names": ["eu-1", "eu-7"]}, "staleAfter": "3m"});
    let status = json!({
        "observedGeneration": 1, "asOf": "2026-01-01T01:59:56Z", "revision": NEW,
        "clusters": {"total": 212, "reporting": 211, "stale": 1, "updated": 14, "applied": 13, "healthy": 12, "failed": 1},
        "conditions": [condition("Ready", "False", "Failed", message), condition("Reporting", "True", "AllReporting", "")],
        "problems": [problem("eu-7", "Failed", "HealthCheckFailed"), problem("us-9", "Stale", "silent"),
            problem("us-1", "NotUpdated", "NotUpdated")],
    });
    object("FleetPackage", "payments", spec, status)
}

/// A gate; with an `owner` that of a wave of this FleetRollout.
pub(crate) fn gate(name: &str, owner: Option<&str>, open: bool, status: Value) -> Value {
    let spec =
        json!({"fleetPackageRef": {"name": "payments"}, "revision": NEW, "clusters": {"names": ["eu-1"]}});
    let (state, reason, message) =
        if open { ("True", "Healthy", "all healthy") } else { ("False", "Progressing", "not yet") };
    let mut gate = object("RolloutGate", name, spec, status);
    if let Some(owner) = owner {
        gate["metadata"]["ownerReferences"] = json!([{"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
            "name": owner, "uid": format!("uid of {owner}"), "controller": true}]);
    }
    let status = &mut gate["status"];
    let message = status["waitingFor"][0]["message"].as_str().unwrap_or(message).to_owned();
    let reason = status["waitingFor"][0]["reason"].as_str().unwrap_or(reason).to_owned();
    status["observedGeneration"] = json!(1);
    status["asOf"] = json!("2026-01-01T01:59:56Z");
    status["revision"] = json!(NEW);
    status["conditions"] = json!([condition("Open", state, &reason, &message)]);
    gate
}

fn wave(name: &str, state: &str, (admitted, clusters): (u64, u64)) -> Value {
    let mut wave = json!({"name": name, "state": state, "admitted": admitted, "clusters": clusters});
    if state != "Pending" {
        wave["gate"] = json!(format!("payments-{name}"));
        wave["startedAt"] = json!("2026-01-01T00:30:00Z");
    }
    if state == "Open" {
        wave["openedAt"] = json!("2026-01-01T01:00:00Z");
    }
    wave
}

/// A FleetRollout whose third wave is stalled.
pub(crate) fn rollout() -> Value {
    let waves =
        ["canary", "staging", "half", "rest"].map(|name| json!({"name": name, "clusters": {"count": 2}}));
    let spec = json!({"fleetPackageRef": {"name": "payments"}, "revision": NEW, "waves": waves});
    let message = "wave half: 1 cluster failed, 0 allowed: eu-7 (HealthCheckFailed)";
    let status = json!({
        "observedGeneration": 1, "revision": NEW, "fingerprint": "222222222222", "startedAt": START,
        "wave": "half (3/4)", "admitted": "14/212", "clusters": {"total": 212, "admitted": 14, "leftOut": 3},
        "waves": [wave("canary", "Open", (2, 2)), wave("staging", "Open", (2, 2)), wave("half", "Failed", (10, 100)),
            wave("rest", "Pending", (0, 108))],
        "previous": {"revision": OLD, "replacedAt": START, "completedAt": "2025-12-31T00:00:00Z", "admitted": "212/212"},
        "lastCompletedRevision": OLD, "recommendedRevision": OLD,
        "conditions": [condition("Ready", "False", "WaveFailed", message),
            condition("Stalled", "True", "WaveFailed", message)],
    });
    object("FleetRollout", "payments", spec, status)
}

/// All of it, and a gate of somebody else.
pub(crate) fn all() -> Vec<Value> {
    let failed = json!({"reason": "FailureBudgetExceeded", "count": 12, "clusters": ["eu-7"],
        "message": "1 cluster failed, 0 allowed: eu-7 (HealthCheckFailed)"});
    let frozen = json!({"reason": "Frozen", "count": 0, "message": "freeze \u{1b}[2Jblack-friday"});
    let healthy = || json!({"healthy": "2/2", "clusters": {"total": 2, "healthy": 2}});
    let of_half = json!({"healthy": "8/100", "clusters": {"total": 100, "healthy": 8, "progressing": 91, "failed": 1},
        "waitingFor": [failed, frozen]});
    vec![
        package(),
        rollout(),
        gate("payments-canary", Some("payments"), true, healthy()),
        gate("payments-staging", Some("payments"), true, healthy()),
        gate("payments-half", Some("payments"), false, of_half),
        gate("by-hand", None, true, healthy()),
    ]
}

/// The FleetRollout among these.
pub(crate) fn read(objects: &Objects) -> Rollout {
    let key = |name: &str| Key { namespace: "fleet".to_owned(), name: name.to_owned() };
    let package = objects.packages.get(&key("payments"));
    Rollout::of(objects.rollouts.get(&key("payments")).unwrap(), package, objects.gates.iter(), NOW)
}

//! The writes of helm-controller in their order, as its source has them (there is no recording): an
//! interval, an upgrade, a failed upgrade with its rollback and retry.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use support::Replay;

fn entry(version: i64, status: &str, chart: &str) -> Value {
    json!({"version": version, "status": status, "action": "upgrade", "chartVersion": chart})
}

fn conditions(ready: &str, reason: &str, reconciling: bool) -> Value {
    let at = "2026-01-02T03:04:05Z";
    let mut all = vec![json!({"type": "Ready", "status": ready, "reason": reason, "observedGeneration": 1,
                    "lastTransitionTime": at})];
    if reconciling {
        all.push(json!({"type": "Reconciling", "status": "True", "reason": "Progressing"}));
    }
    Value::Array(all)
}

#[test]
fn only_upgrades_and_failures_are_transitions_and_nothing_is_healthy_too_early() {
    let (ready, busy, failed) = ("True", "Unknown", "False");
    let one = json!([entry(1, "deployed", "1.0.0")]);
    let two = json!([entry(2, "deployed", "2.0.0"), entry(1, "superseded", "1.0.0")]);
    let failing = json!([entry(3, "failed", "3.0.0"), entry(2, "deployed", "2.0.0")]);
    let back =
        json!([entry(4, "deployed", "2.0.0"), entry(3, "failed", "3.0.0"), entry(2, "superseded", "2.0.0")]);
    // Conditions are written before the rest of the status. In the cluster: what is healthy.
    let writes = [
        // An interval: Reconciling comes and goes.
        ("1.0.0", "1.0.0", ready, "InstallSucceeded", false, &one, "1.0.0"),
        ("1.0.0", "1.0.0", ready, "InstallSucceeded", true, &one, "1.0.0"),
        ("1.0.0", "1.0.0", ready, "InstallSucceeded", false, &one, "1.0.0"),
        // An upgrade.
        ("2.0.0", "1.0.0", ready, "InstallSucceeded", false, &one, "1.0.0"),
        ("2.0.0", "1.0.0", ready, "InstallSucceeded", true, &one, "1.0.0"),
        ("2.0.0", "1.0.0", busy, "Progressing", true, &one, "1.0.0"),
        ("2.0.0", "2.0.0", busy, "Progressing", true, &one, ""),
        ("2.0.0", "2.0.0", ready, "UpgradeSucceeded", true, &one, "2.0.0"),
        ("2.0.0", "2.0.0", ready, "UpgradeSucceeded", true, &two, "2.0.0"),
        ("2.0.0", "2.0.0", ready, "UpgradeSucceeded", false, &two, "2.0.0"),
        // One that fails, is rolled back and tried again.
        ("3.0.0", "3.0.0", busy, "Progressing", true, &two, ""),
        ("3.0.0", "3.0.0", failed, "UpgradeFailed", true, &two, ""),
        ("3.0.0", "3.0.0", failed, "UpgradeFailed", true, &failing, ""),
        ("3.0.0", "3.0.0", failed, "RollbackSucceeded", true, &failing, "2.0.0"),
        ("3.0.0", "3.0.0", failed, "RollbackSucceeded", true, &back, "2.0.0"),
        ("3.0.0", "3.0.0", busy, "Progressing", true, &back, ""),
        ("3.0.0", "3.0.0", failed, "UpgradeFailed", true, &back, ""),
    ];
    let chart = |revision: &str| {
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {"name": "n-a", "namespace": "n", "generation": 1},
            "status": {"observedGeneration": 1, "artifact": {"revision": revision}}})
    };
    let release = |status: Value| {
        json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "a", "namespace": "n", "generation": 1},
            "spec": {"chart": {"spec": {"chart": "a", "sourceRef": {"kind": "HelmRepository", "name": "a"}}}},
            "status": status,
        })
    };
    let mut replay = Replay::of("flux-helmrelease", &[release(json!({})), chart("")]);
    let mut transitions = Vec::new();
    for (number, (wanted, attempted, status, reason, reconciling, history, truth)) in
        writes.iter().enumerate()
    {
        let object = release(json!({
            "observedGeneration": 1,
            "lastAttemptedRevision": attempted,
            "conditions": conditions(status, reason, *reconciling),
            "history": history,
        }));
        let at = 1_767_400_000_000 + 1_000 * i64::try_from(number).expect("a small number");
        let (shown, changed) = replay.step(&object, &[chart(wanted)], at);
        let v = &shown.verdict;
        assert!(v.healthy.is_none() || v.healthy == Fingerprint::of(truth), "write {number}: {}", v.healthy);
        assert_eq!(v.desired, Fingerprint::of(wanted), "write {number}");
        if changed {
            transitions.push((number, v.apply, v.health, v.healthy));
        }
        if number == writes.len() - 1 {
            assert_eq!(v.applied, Fingerprint::of("2.0.0"), "what runs is the old chart");
            assert_eq!(v.reason.as_deref(), Some("UpgradeFailed"));
        }
    }
    let none = Fingerprint::NONE;
    let expected = [
        (0, ApplyState::Applied, Health::Current, Fingerprint::of("1.0.0")),
        (3, ApplyState::Pending, Health::Current, none),
        // What is still about the version before is held.
        (6, ApplyState::Applying, Health::InProgress, none),
        (9, ApplyState::Applied, Health::Current, Fingerprint::of("2.0.0")),
        (10, ApplyState::Applying, Health::InProgress, none),
        (11, ApplyState::Failed, Health::Unknown, none),
    ];
    assert_eq!(transitions, expected);
}

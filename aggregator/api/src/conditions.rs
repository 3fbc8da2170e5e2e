//! Types of the conditions, and how one is found.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The present verdict: equal to Open on a RolloutGate.
pub const READY: &str = "Ready";
/// Whether a gate is open now.
pub const OPEN: &str = "Open";
/// Whether a gate was open once in this generation of its spec: it stays True when the gate closes.
pub const OPENED_ONCE: &str = "OpenedOnce";
/// Whether all targets have fresh, verified status.
pub const REPORTING: &str = "Reporting";
/// kstatus: in progress.
pub const RECONCILING: &str = "Reconciling";
/// kstatus: failed.
pub const STALLED: &str = "Stalled";

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of this type is True.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

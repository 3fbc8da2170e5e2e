//! Health of an object whose source says nothing about it: the general rules of kstatus
//! (kubernetes-sigs/cli-utils, `pkg/kstatus/status/generic.go`), without its table of built-in kinds,
//! none of which is a package.

use serde_json::Value;
use statusbridge_contract::Health;

use crate::projection::Projection;

/// A health with what made it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The health.
    pub health: Health,
    /// The reason of the condition that decided, or one of ours; empty when Current.
    pub reason: String,
    /// The message of the condition that decided.
    pub message: String,
}

/// The status of an object. The conditions count in the order in which they stand: of `Reconciling`
/// and `Stalled` the first one that is True. Rubbish where conditions should be is Unknown (kstatus
/// itself fails on it), and so is an object that has neither of the conditions that kstatus knows
/// (kstatus calls it Current, which would open a gate on an object that nobody has looked at).
pub fn compute(object: &Value) -> Status {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let ours = |health, reason: &str| Status { health, reason: reason.to_owned(), message: String::new() };
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let status = object.get("status").unwrap_or(&Value::Null);
    if metadata.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        return ours(Health::Terminating, "Terminating");
    }
    let present = |value: Option<&Value>| value.filter(|v| !v.is_null()).cloned();
    if let (Some(generation), Some(observed)) =
        (present(metadata.get("generation")), present(status.get("observedGeneration")))
        && generation != observed
    {
        return ours(Health::InProgress, "LatestGenerationNotObserved");
    }
    let conditions = match status.get("conditions") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(conditions)) if conditions.iter().all(Value::is_object) => conditions,
        Some(_) => return ours(Health::Unknown, "MalformedConditions"),
    };
    let decided_by = |condition: &Value, health| Status {
        health,
        reason: text(condition, "reason"),
        message: text(condition, "message"),
    };
    for condition in conditions {
        match (text(condition, "type").as_str(), text(condition, "status").as_str()) {
            ("Reconciling", "True") => return decided_by(condition, Health::InProgress),
            ("Stalled", "True") => return decided_by(condition, Health::Failed),
            _ => {}
        }
    }
    let ready = conditions.iter().find(|c| text(c, "type") == "Ready");
    match ready.map(|ready| (ready, text(ready, "status"))) {
        Some((_, status)) if status == "True" => ours(Health::Current, ""),
        Some((ready, status)) if status == "False" || status == "Unknown" => {
            decided_by(ready, Health::InProgress)
        }
        _ => ours(Health::Unknown, "NoConditions"),
    }
}

/// The status of an object that a package consists of, at `now` (unix seconds).
pub fn of_leaf(object: &Value, _now: i64) -> Status {
    compute(object)
}

/// What [`of_leaf`] reads of an object of a kind.
pub fn leaf_projection(_group: &str, _kind: &str) -> Projection {
    projection()
}

/// What [`compute`] reads of an object.
pub fn projection() -> Projection {
    let mut object = Projection::of_object();
    let status = object.field("status");
    status.field("observedGeneration").keep();
    let condition = status.field("conditions").items();
    for field in ["type", "status", "reason", "message"] {
        condition.field(field).keep();
    }
    object
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::deleting(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Health::Terminating, "Terminating")]
    #[case::old_generation(
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}}),
        Health::InProgress, "LatestGenerationNotObserved")]
    #[case::generation_not_told(
        json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        Health::Current, "")]
    #[case::the_first_of_reconciling_and_stalled_wins(
        json!({"status": {"conditions": [{"type": "Reconciling", "status": "True", "reason": "A"}, {"type": "Stalled", "status": "True"}]}}),
        Health::InProgress, "A")]
    #[case::stalled_first(
        json!({"status": {"conditions": [{"type": "Stalled", "status": "True", "reason": "B"}, {"type": "Reconciling", "status": "True"}]}}),
        Health::Failed, "B")]
    #[case::not_ready(json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "C"}]}}), Health::InProgress, "C")]
    #[case::nothing(json!({}), Health::Unknown, "NoConditions")]
    #[case::rubbish(json!({"status": {"conditions": "Ready"}}), Health::Unknown, "MalformedConditions")]
    #[case::rubbish_inside(json!({"status": {"conditions": [5]}}), Health::Unknown, "MalformedConditions")]
    #[case::null(json!({"status": {"conditions": null}}), Health::Unknown, "NoConditions")]
    fn follows_the_general_rules(#[case] object: Value, #[case] health: Health, #[case] reason: &str) {
        let status = compute(&object);
        assert_eq!((status.health, status.reason.as_str()), (health, reason));
        assert_eq!(compute(&projection().project(&object)), status, "a lean object says the same");
    }
}

//! Health of any object by the rules of kstatus (kubernetes-sigs/cli-utils, `pkg/kstatus/status`).
//!
//! [`compute`] says of every object what Go's `status.Compute` says; where that returns an error, or
//! panics, the health is Unknown. [`of_resource`] and [`of_package`] are what the exporter uses, each
//! stricter in one point. The `…fields` say what each reads, for who keeps no more of an object.

#[cfg(test)]
mod fuzz;
mod kinds;
mod object;
mod status;

pub use status::Status;

use serde_json::Value;
use statusbridge_contract::{ApplyState, Health};

use kinds::Rules;
use object::{Condition, Malformed, Nulls, Object, group_kind};

/// Key of the aggregation layer's own objects, to which kstatus pays no attention.
const API_SERVICE: &str = "apiregistration.k8s.io/APIService";

/// kstatus's reason for an object that its controller has not looked at since it changed.
const GENERATION_NOT_OBSERVED: &str = "LatestGenerationNotObserved";

/// The status of an object at this moment.
pub fn compute(object: &Value) -> Status {
    compute_at(object, jiff::Timestamp::now().as_second())
}

/// The status of an object, at a time in unix seconds. An object of which kstatus knows nothing at
/// all is Current.
pub fn compute_at(object: &Value, now: i64) -> Status {
    resource(Object::new(object, Nulls::AreValues), now, false).unwrap_or_else(Status::from)
}

/// The status of an object that belongs to a package, at a time in unix seconds: as [`compute_at`],
/// but an APIService counts when it is available, and null is the same as nothing.
pub fn of_resource(object: &Value, now: i64) -> Status {
    resource(Object::new(object, Nulls::AreAbsent), now, true).unwrap_or_else(Status::from)
}

/// The status of a package whose source has no rules for its health: the rules for every kind, not
/// those for kinds that are known by name, none of which is a package. An object that has neither of
/// the conditions that they ask for is Unknown; kstatus calls it Current, which would open a gate on
/// an object that nobody has looked at.
pub fn of_package(object: &Value) -> Status {
    let object = Object::new(object, Nulls::AreAbsent);
    let judge = || {
        let conditions = match every_kind(&object)? {
            Decided::Yes(status) => return Ok(status),
            Decided::No(conditions) => conditions,
        };
        // The first one: kstatus looks for another one when it has a status of its own invention.
        let ready = conditions.iter().find(|c| c.type_ == "Ready");
        let undecided = || Status::new(Health::Unknown, "NoConditions", "");
        Ok(ready.and_then(by_ready).unwrap_or_else(undecided))
    };
    let status = judge().unwrap_or_else(|malformed: Malformed| malformed.into());
    // That all is well is no news: the source's own message counts.
    if status.health == Health::Current { Status::current("") } else { status }
}

/// How far a package has got with being applied, whose source has no rules for that either. Nothing
/// else says then that the revision in the object's status is in, so it is Applied only while it is
/// Current, and while the conditions that say so are of this generation, for which kstatus does not ask.
pub fn apply_of_package(object: &Value) -> (ApplyState, Status) {
    let status = of_package(object);
    let state = match status.health {
        Health::Terminating => ApplyState::Deleting,
        Health::Unknown | Health::NotFound => ApplyState::Unknown,
        Health::Current | Health::InProgress | Health::Failed => {
            match of_this_generation(&Object::new(object, Nulls::AreAbsent)) {
                Ok(true) => match status.health {
                    Health::Current => ApplyState::Applied,
                    Health::Failed => ApplyState::Failed,
                    _ => ApplyState::Applying,
                },
                Ok(false) => {
                    let reason = GENERATION_NOT_OBSERVED;
                    let message = "the conditions are of another generation";
                    // kstatus has words of its own for the generation of the whole status.
                    let status =
                        if status.reason == reason { status } else { Status::in_progress(reason, message) };
                    return (ApplyState::Pending, status);
                }
                Err(malformed) => return (ApplyState::Unknown, malformed.into()),
            }
        }
    };
    (state, status)
}

/// Whether the status is of the object's generation, and so is every condition that decides, as far
/// as they say.
fn of_this_generation(object: &Object<'_>) -> Result<bool, Malformed> {
    let Some(generation) = object.int64(&["metadata", "generation"])? else { return Ok(true) };
    let observed = object.int64(&["status", "observedGeneration"])?;
    let decides = |c: &Condition<'_>| match c.type_ {
        "Ready" => true,
        "Reconciling" | "Stalled" => c.status == "True",
        _ => false,
    };
    let conditions = object.conditions_with_generation()?;
    let mut deciding = conditions.iter().filter(|(c, _)| decides(c));
    Ok(observed.is_none_or(|o| o == generation) && deciding.all(|(_, o)| o.is_none_or(|o| o == generation)))
}

fn resource(object: Object<'_>, now: i64, api_services: bool) -> Result<Status, Malformed> {
    let conditions = match every_kind(&object)? {
        Decided::Yes(status) => return Ok(status),
        Decided::No(conditions) => conditions,
    };
    let group_kind = object.group_kind();
    if let Some(rules) = Rules::of(&group_kind) {
        return rules.judge(&object, &conditions, now);
    }
    if api_services && group_kind == API_SERVICE {
        return Ok(api_service(&conditions));
    }
    let ready = conditions.iter().filter(|c| c.type_ == "Ready").find_map(by_ready);
    Ok(ready.unwrap_or_else(|| Status::current("Resource is current")))
}

/// Whether the rules for every kind came to a decision.
enum Decided<'v> {
    Yes(Status),
    /// The conditions, for the rules that come next.
    No(Vec<Condition<'v>>),
}

fn every_kind<'v>(object: &Object<'v>) -> Result<Decided<'v>, Malformed> {
    object.check()?;
    if object.string(&["metadata", "deletionTimestamp"])?.is_some_and(|time| !time.is_empty()) {
        let message = "Resource scheduled for deletion";
        return Ok(Decided::Yes(Status::new(Health::Terminating, "Terminating", message)));
    }
    if let Some(generation) = object.int64(&["metadata", "generation"])?
        && let Some(observed) = object.int64(&["status", "observedGeneration"])?
        && generation != observed
    {
        let kind = object.kind();
        let message =
            format!("{kind} generation is {generation}, but latest observed generation is {observed}");
        return Ok(Decided::Yes(Status::in_progress(GENERATION_NOT_OBSERVED, message)));
    }
    let conditions = object.conditions()?;
    // In the order in which they stand: the first one that is True wins.
    let decided = conditions.iter().filter(|c| c.status == "True").find_map(|c| match c.type_ {
        "Reconciling" => Some(Status::by(Health::InProgress, c)),
        "Stalled" => Some(Status::by(Health::Failed, c)),
        _ => None,
    });
    Ok(decided.map_or(Decided::No(conditions), Decided::Yes))
}

fn by_ready(ready: &Condition<'_>) -> Option<Status> {
    match ready.status {
        "True" => Some(Status::current("Resource is Ready")),
        "False" | "Unknown" => Some(Status::by(Health::InProgress, ready)),
        _ => None,
    }
}

/// The rule of rukpak's health check: an APIService whose server does not answer is of no use.
fn api_service(conditions: &[Condition<'_>]) -> Status {
    match conditions.iter().find(|c| c.type_ == "Available") {
        Some(c) if c.status == "True" => Status::current("APIService is available"),
        Some(c) => Status::by(Health::InProgress, c),
        None => Status::in_progress("NoAvailableCondition", "APIService has no condition Available"),
    }
}

/// The fields that [`of_package`] reads, as every verdict does; `[]` is every item of a list.
const PACKAGE: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "status.observedGeneration",
    "status.conditions[].type",
    "status.conditions[].status",
    "status.conditions[].reason",
    "status.conditions[].message",
];

/// The fields that [`compute`] and [`of_resource`] read of an object of any kind; `[]` is every item of a list.
pub fn fields() -> impl Iterator<Item = &'static str> {
    package_fields().chain(Rules::ALL.iter().flat_map(|rules| rules.fields()).copied())
}

/// The fields that [`compute`] and [`of_resource`] read of an object of this kind. The group is empty for the core
/// group.
pub fn resource_fields(group: &str, kind: &str) -> impl Iterator<Item = &'static str> {
    let rules = Rules::of(&group_kind(group, kind));
    package_fields().chain(rules.into_iter().flat_map(Rules::fields).copied())
}

/// The fields that [`of_package`] reads.
pub fn package_fields() -> impl Iterator<Item = &'static str> {
    PACKAGE.iter().copied()
}

/// The fields that [`apply_of_package`] reads.
pub fn apply_fields() -> impl Iterator<Item = &'static str> {
    package_fields().chain(["status.conditions[].observedGeneration"])
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
    fn a_package_follows_the_rules_for_every_kind(
        #[case] object: Value,
        #[case] health: Health,
        #[case] reason: &str,
    ) {
        let status = of_package(&object);
        assert_eq!((status.health, status.reason.as_str()), (health, reason));
    }

    #[rstest]
    #[case::deleting(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), ApplyState::Deleting, "Terminating")]
    #[case::generation_not_observed(
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}}),
        ApplyState::Pending, "LatestGenerationNotObserved")]
    #[case::generation_not_observed_by_ready(
        json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}}),
        ApplyState::Pending, "LatestGenerationNotObserved")]
    #[case::stalled_over_the_generation_before(
        json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Stalled", "status": "True", "observedGeneration": 1}]}}),
        ApplyState::Pending, "LatestGenerationNotObserved")]
    #[case::what_does_not_decide_may_be_old(
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 2}, {"type": "Stalled", "status": "False", "observedGeneration": 1},
            {"type": "Tested", "status": "True", "observedGeneration": 1}]}}),
        ApplyState::Applied, "")]
    #[case::stalled(json!({"status": {"conditions": [{"type": "Stalled", "status": "True", "reason": "B"}]}}), ApplyState::Failed, "B")]
    #[case::reconciling(
        json!({"status": {"conditions": [{"type": "Reconciling", "status": "True", "reason": "A"}, {"type": "Ready", "status": "True"}]}}),
        ApplyState::Applying, "A")]
    #[case::not_ready(json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "C"}]}}), ApplyState::Applying, "C")]
    #[case::ready_unknown(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), ApplyState::Applying, "")]
    #[case::ready_of_an_odd_kind(json!({"status": {"conditions": [{"type": "Ready", "status": "true"}]}}), ApplyState::Unknown, "NoConditions")]
    #[case::ready(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), ApplyState::Applied, "")]
    #[case::nothing(json!({}), ApplyState::Unknown, "NoConditions")]
    #[case::no_object(json!("x"), ApplyState::Unknown, "Malformed")]
    #[case::rubbish(json!({"status": {"conditions": "Ready"}}), ApplyState::Unknown, "MalformedConditions")]
    #[case::rubbish_generation(
        json!({"metadata": {"generation": 1}, "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": "1"}]}}),
        ApplyState::Unknown, "MalformedConditions")]
    fn a_package_is_applied_when_it_is_current_and_of_this_generation(
        #[case] object: Value,
        #[case] state: ApplyState,
        #[case] reason: &str,
    ) {
        let (apply, status) = apply_of_package(&object);
        assert_eq!((apply, status.reason.as_str()), (state, reason));
    }

    const NOW: i64 = 1_800_000_000;

    fn object(version: &str, kind: &str, mut fields: Value) -> Value {
        fields["apiVersion"] = json!(version);
        fields["kind"] = json!(kind);
        fields
    }

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": "m"})
    }

    /// The whole comparison is with Go, in tests/tests/kstatus.rs; these are the rules that surprise.
    #[rstest]
    #[case::nothing_known_is_current("example.com/v1", "Widget", json!({}), Health::Current, "")]
    #[case::observed_generation_before_any(
        "example.com/v1", "Widget", json!({"metadata": {"generation": 1}, "status": {"observedGeneration": -1}}),
        Health::InProgress, "LatestGenerationNotObserved")]
    #[case::order_counts(
        "apps/v1", "Deployment",
        json!({"status": {"conditions": [condition("Reconciling", "True", "A"), condition("Stalled", "True", "B")]}}),
        Health::InProgress, "A")]
    #[case::reconciling_false_says_nothing(
        "example.com/v1", "Widget",
        json!({"status": {"conditions": [condition("Reconciling", "False", "A"), condition("Ready", "Unknown", "B")]}}),
        Health::InProgress, "B")]
    #[case::ready_is_not_asked_of_a_known_kind(
        "v1", "ConfigMap", json!({"status": {"conditions": [condition("Ready", "False", "A")]}}), Health::Current, "")]
    #[case::stuck_rollout(
        "apps/v1", "Deployment",
        json!({"status": {"conditions": [condition("Progressing", "False", "ProgressDeadlineExceeded")]}}),
        Health::Failed, "ProgressDeadlineExceeded")]
    #[case::old_replicas_are_still_there(
        "apps/v1", "Deployment",
        json!({"spec": {"replicas": 1}, "status": {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2, "readyReplicas": 2}}),
        Health::InProgress, "ExtraPods")]
    #[case::one_replica_is_the_default("apps/v1", "StatefulSet", json!({}), Health::InProgress, "LessReplicas")]
    #[case::daemon_set_that_nobody_looked_at(
        "apps/v1", "DaemonSet", json!({"metadata": {"generation": 1}}), Health::InProgress, "NoObservedGeneration")]
    #[case::failed_pod_is_done("v1", "Pod", json!({"status": {"phase": "Failed"}}), Health::Current, "")]
    #[case::crash_loop(
        "v1", "Pod",
        json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
        Health::Failed, "ContainerCrashLooping")]
    #[case::pod_of_a_phase_to_come("v1", "Pod", json!({"status": {"phase": "Resting"}}), Health::Unknown, "UnknownPhase")]
    #[case::panic_in_go(
        "v1", "Pod", json!({"status": {"phase": "Running", "containerStatuses": [{"name": 5}]}}),
        Health::Unknown, "MalformedStatus")]
    #[case::running_job_is_current("batch/v1", "Job", json!({"status": {"startTime": "t"}}), Health::Current, "")]
    #[case::job_that_did_not_start("batch/v1", "Job", json!({}), Health::InProgress, "JobNotStarted")]
    #[case::suspended_job(
        "batch/v1", "Job",
        json!({"spec": {"suspend": true}, "status": {"conditions": [condition("Suspended", "True", "")]}}),
        Health::Current, "")]
    #[case::generation_of_the_wrong_type(
        "v1", "Secret", json!({"metadata": {"generation": 1.0}}), Health::Unknown, "MalformedMetadata")]
    #[case::status_of_the_wrong_type("v1", "Secret", json!({"status": "ok"}), Health::Unknown, "MalformedStatus")]
    #[case::metadata_of_the_wrong_type("v1", "Secret", json!({"metadata": []}), Health::Unknown, "MalformedMetadata")]
    #[case::no_such_version("a/b/c", "Pod", json!({}), Health::Current, "")]
    fn follows_the_rules_of_the_kind(
        #[case] version: &str,
        #[case] kind: &str,
        #[case] fields: Value,
        #[case] health: Health,
        #[case] reason: &str,
    ) {
        let object = object(version, kind, fields);
        let status = compute_at(&object, NOW);
        assert_eq!((status.health, status.reason.as_str()), (health, reason), "{status:?}");
        assert_eq!(of_resource(&object, NOW), status);
    }

    #[rstest]
    #[case::available(json!([condition("Available", "True", "Passed")]), Health::Current, "")]
    #[case::not_available(json!([condition("Available", "False", "MissingEndpoints")]), Health::InProgress, "MissingEndpoints")]
    #[case::unknown(json!([condition("Available", "Unknown", "A")]), Health::InProgress, "A")]
    #[case::another_word(json!([condition("Available", "true", "A")]), Health::InProgress, "A")]
    #[case::no_condition(json!([]), Health::InProgress, "NoAvailableCondition")]
    #[case::another_condition(json!([condition("Ready", "True", "A")]), Health::InProgress, "NoAvailableCondition")]
    #[case::malformed(json!([condition("Available", "True", "A"), 5]), Health::Unknown, "MalformedConditions")]
    fn an_api_service_counts_when_it_is_available(
        #[case] conditions: Value,
        #[case] health: Health,
        #[case] reason: &str,
    ) {
        let fields = json!({"status": {"conditions": conditions}});
        let service = object("apiregistration.k8s.io/v1", "APIService", fields);
        let status = of_resource(&service, NOW);
        assert_eq!((status.health, status.reason.as_str()), (health, reason));
        if health != Health::Unknown {
            assert_eq!(compute_at(&service, NOW).health, Health::Current, "plain kstatus does not ask");
        }
    }

    /// A null is of the wrong type for Go, and a field that is not there for the exporter.
    #[test]
    fn what_a_null_is() {
        let object = json!({"kind": "Widget", "metadata": {"generation": 1, "deletionTimestamp": null}});
        assert_eq!(compute_at(&object, NOW).reason, "MalformedMetadata");
        assert_eq!(of_resource(&object, NOW).health, Health::Current);
        assert_eq!(of_package(&object).reason, "NoConditions");
    }

    #[test]
    fn what_is_no_object_is_unknown() {
        for value in [json!("x"), json!(5), json!([])] {
            assert_eq!(compute_at(&value, NOW).health, Health::Unknown);
            assert_eq!(of_package(&value).health, Health::Unknown);
        }
        assert_eq!(of_package(&Value::Null).health, Health::Unknown);
        assert_eq!(compute_at(&Value::Null, NOW).health, Health::Unknown);
    }

    #[test]
    fn an_object_of_one_kind_is_read_as_far_as_that_kind_needs() {
        let reads = |group, kind, field| resource_fields(group, kind).any(|it| it == field);
        assert!(reads("apps", "Deployment", "spec.replicas"));
        assert!(!reads("", "Pod", "spec.replicas") && !reads("", "Deployment", "spec.replicas"));
        assert!(resource_fields("example.com", "Widget").eq(package_fields()));
    }
}

//! Conditions with the times that Kubernetes expects of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Moment, time};
use crate::api::Reason;

/// The present verdict: equal to Open on a RolloutGate.
pub const READY: &str = "Ready";
/// Whether a gate is open now.
pub const OPEN: &str = "Open";
/// Whether a gate has been open in this generation.
pub const SUCCEEDED: &str = "Succeeded";
/// Whether all targets have fresh, verified status.
pub const REPORTING: &str = "Reporting";
/// kstatus: in progress.
pub const RECONCILING: &str = "Reconciling";
/// kstatus: failed.
pub const STALLED: &str = "Stalled";

/// Builds the conditions of one status.
pub struct Conditions<'a> {
    generation: i64,
    moment: Moment,
    previous: &'a [Condition],
    set: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// Starts from the conditions of the previous status.
    pub fn new(generation: i64, moment: Moment, previous: &'a [Condition]) -> Self {
        Self { generation, moment, previous, set: Vec::new() }
    }

    /// Sets one. Its transition time moves only when its status does.
    pub fn set(&mut self, kind: &str, is: bool, reason: Reason, message: impl Into<String>) {
        let status = if is { "True" } else { "False" };
        let since = find(self.previous, kind)
            .filter(|before| before.status == status)
            .map(|before| before.last_transition_time.clone());
        self.set.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            observed_generation: Some(self.generation),
            reason: reason.name().to_owned(),
            message: message.into(),
            last_transition_time: since.unwrap_or_else(|| time(self.moment.now)),
        });
    }

    /// Keeps one as it was.
    pub fn keep(&mut self, condition: Condition) {
        self.set.push(condition);
    }

    /// All that were set, in this order.
    pub fn finish(self) -> Vec<Condition> {
        self.set
    }
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of this type is True.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

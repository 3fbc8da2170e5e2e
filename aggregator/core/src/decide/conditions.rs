//! Conditions with the times that Kubernetes expects of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use statusbridge_api::Reason;
use statusbridge_api::conditions::find;

use super::{Moment, time};

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

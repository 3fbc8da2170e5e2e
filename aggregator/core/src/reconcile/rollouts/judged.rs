//! What the status of a FleetRollout says of its present spec.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use statusbridge_api::FleetRolloutStatus;
use statusbridge_api::conditions::{READY, find};

use crate::reconcile::object::RolloutObject;

impl RolloutObject {
    /// The status, and in it the condition Ready.
    ///
    /// # Errors
    /// In words, where the present spec has not been judged yet.
    pub fn judged(&self) -> Result<(&FleetRolloutStatus, &Condition), String> {
        let status = self.status.as_ref();
        let status = status.filter(|status| status.observed_generation == Some(self.generation));
        status.and_then(|status| Some((status, find(&status.conditions, READY)?))).ok_or_else(|| {
            format!("generation {} of the FleetRollout has not been judged yet", self.generation)
        })
    }
}

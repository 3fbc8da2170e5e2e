//! FleetRollouts of a picture: as they stand in the hub.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;
use statusbridge_api::conditions::{READY, STALLED, find, is_true};
use statusbridge_api::{FleetRolloutStatus, Reason};

use super::{Dated, Picture, World, metadata};
use crate::reconcile::store::{Kind, RolloutObject};

/// What is sent of a FleetRollout.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutView<'a> {
    metadata: Value,
    /// Name of its FleetPackage; None where the spec cannot be read.
    package: Option<&'a str>,
    paused: bool,
    ready: bool,
    stalled: bool,
    reason: &'a str,
    message: Cow<'a, str>,
    /// The status as it stands in the hub.
    status: Option<&'a FleetRolloutStatus>,
}

impl<'a> From<&'a RolloutObject> for RolloutView<'a> {
    fn from(object: &'a RolloutObject) -> Self {
        let spec = object.spec.as_ref().ok();
        let status = object.status.as_ref();
        let answered = status.filter(|status| status.observed_generation == Some(object.generation));
        let conditions = answered.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let verdict = find(conditions, READY);
        let unjudged =
            || format!("generation {} of the FleetRollout has not been judged yet", object.generation).into();
        Self {
            metadata: metadata(object),
            package: spec.map(|spec| spec.fleet_package_ref.name.as_str()),
            paused: spec.is_some_and(|spec| spec.paused),
            ready: is_true(conditions, READY),
            stalled: is_true(conditions, STALLED),
            reason: verdict.map_or(Reason::Pending.name(), |verdict| &verdict.reason),
            message: verdict.map_or_else(unjudged, |verdict| verdict.message.as_str().into()),
            status,
        }
    }
}

impl Picture {
    pub(super) fn update_rollouts(&mut self, world: &World<'_>, version: u64) -> bool {
        let rollouts = &world.state.rollouts;
        let mut changed = self.forget(Kind::FleetRollout, version, |key| rollouts.get(key).is_some());
        for object in rollouts.iter() {
            let known = self.rollouts.get(&object.key);
            let is_same = known.is_some_and(|it| it.it.resource_version == object.resource_version);
            if is_same || !self.shows(&object.key) {
                continue;
            }
            changed = true;
            self.gone.remove(&(Kind::FleetRollout, object.key.clone()));
            self.rollouts.insert(object.key.clone(), Dated { it: object.clone(), version });
        }
        changed
    }

    /// The FleetRollouts that it shows.
    pub fn rollouts(&self) -> impl Iterator<Item = RolloutView<'_>> {
        self.rollouts.values().map(|rollout| RolloutView::from(&rollout.it))
    }
}

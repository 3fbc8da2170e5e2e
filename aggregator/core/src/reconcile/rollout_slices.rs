//! FleetRolloutSlices as the hub has them.

use std::collections::HashMap;

use statusbridge_api::FleetRolloutSlice;
use statusbridge_api::fleet_rollout_slice::{AdmittedCluster, FleetRolloutRef};

use super::lazy_object::LazyObject;
use super::object::{HubObject, Key, Version};
use super::store::Mirror;

/// All slices of the hub.
pub type RolloutSlices = Mirror<RolloutSlice>;

/// A slice of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutSlice {
    /// Where it lives.
    pub key: Key,
    /// Which object of this name it is.
    pub uid: String,
    /// Which version of it this is.
    pub resource_version: String,
    /// The FleetRollout that it is of.
    pub rollout: String,
    /// What it says; `None` where that cannot be read.
    pub content: Option<FleetRolloutSlice>,
}

/// What these slices say of each cluster.
pub(super) fn rows<'s>(
    slices: impl IntoIterator<Item = &'s FleetRolloutSlice>,
) -> HashMap<&'s str, &'s AdmittedCluster> {
    let mut rows = HashMap::<&str, &AdmittedCluster>::new();
    for row in slices.into_iter().flat_map(|slice| &slice.clusters) {
        let known = rows.entry(&row.cluster_name).or_insert(row);
        // Never there but for a slice that somebody else wrote.
        if row.since > known.since {
            *known = row;
        }
    }
    rows
}

impl HubObject for RolloutSlice {
    fn read(object: LazyObject, _: Option<&Self>) -> Option<Self> {
        let content = serde_json::from_value(object.values()).ok();
        let rollout = object.read::<FleetRolloutRef>("fleetRolloutRef").map(|it| it.name);
        let metadata = object.metadata;
        let Version { key, uid, resource_version } = Version::of(&metadata)?;
        Some(Self { key, uid, resource_version, rollout: rollout.unwrap_or_default(), content })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn belongs_to(&self) -> Option<Key> {
        Some(self.key.beside(&self.rollout))
    }
}

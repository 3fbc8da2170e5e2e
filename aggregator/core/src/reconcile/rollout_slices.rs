//! FleetRolloutSlices as the hub has them.

use statusbridge_api::FleetRolloutSlice;
use statusbridge_api::fleet_rollout_slice::AdmittedCluster;

use super::lazy_object::LazyObject;
use super::store::{HubObject, Key, Kind, Mirror, Owner};

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
    /// The FleetRollout that controls it. `None`: it is somebody else's.
    pub owner: Option<Owner>,
    /// What it says; `None` where that cannot be read.
    pub clusters: Option<Vec<AdmittedCluster>>,
}

impl RolloutSlice {
    /// Name and namespace of the FleetRollout that controls it.
    pub(crate) fn owner_key(&self) -> Option<Key> {
        self.owner.as_ref().map(|owner| self.key.beside(&owner.name))
    }
}

impl HubObject for RolloutSlice {
    fn read(object: LazyObject) -> Option<Self> {
        let content = serde_json::from_value::<FleetRolloutSlice>(object.values()).ok();
        let metadata = object.metadata;
        Some(Self {
            key: Key { namespace: metadata.namespace.unwrap_or_default(), name: metadata.name? },
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            owner: Owner::among(metadata.owner_references).filter(|it| it.is_a(Kind::FleetRollout)),
            clusters: content.map(|it| it.clusters),
        })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }
}

//! FleetPackageSlices: every cluster of a FleetPackage with `detail: All`.
//!
//! ```text
//!   decide::rows (one row a cluster) ─┐
//!                                     ├─> plan: which slices to make, change, remove ──> write
//!   the slices that are there ────────┘
//! ```
//!
//! The slices are their own memory: which cluster is in which slice is read from them, so a restart
//! goes on where the last process stopped.

mod plan;

pub use plan::{Change, Wanted, plan};

use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::object::{HubObject, Key, Kind, Owner, Version};
use crate::reconcile::store::Mirror;
use statusbridge_api::FleetPackageSlice;
use statusbridge_api::fleet_package_slice::FLEET_PACKAGE_LABEL;

/// All slices of the hub.
pub type Slices = Mirror<Slice>;

/// A slice of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Where it lives.
    pub key: Key,
    /// Which object of this name it is.
    pub uid: String,
    /// Which version of it this is.
    pub resource_version: String,
    /// The FleetPackage that controls it. `None`: it is somebody else's.
    pub owner: Option<Owner>,
    /// Its label with the FleetPackage's name.
    pub label: Option<String>,
    /// What it says, if that can be read.
    pub content: Option<FleetPackageSlice>,
}

impl HubObject for Slice {
    fn read(object: LazyObject, _: Option<&Self>) -> Option<Self> {
        let content = serde_json::from_value(object.values()).ok();
        let metadata = object.metadata;
        let Version { key, uid, resource_version } = Version::of(&metadata)?;
        let owner = Owner::among(metadata.owner_references).filter(|owner| owner.is_a(Kind::FleetPackage));
        Some(Self {
            key,
            uid,
            resource_version,
            owner,
            label: metadata.labels.unwrap_or_default().remove(FLEET_PACKAGE_LABEL),
            content,
        })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }

    /// The FleetPackage that controls it.
    fn belongs_to(&self) -> Option<Key> {
        self.owner.as_ref().map(|owner| self.key.beside(&owner.name))
    }
}

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

use std::collections::BTreeMap;

pub use plan::{Change, Wanted, plan};

use crate::decide::fleet_package;
use crate::reconcile::judge::{Rows, World};
use crate::reconcile::lazy_object::LazyObject;
use crate::reconcile::store::PackageObject;
use crate::reconcile::store::{Kept, Key, Mirror};
use statusbridge_api::FleetPackageSlice;
use statusbridge_api::fleet_package_slice::FLEET_PACKAGE_LABEL;
use statusbridge_api::names::{LONGEST_LABEL, shortened};
use statusbridge_api::{FleetPackage, GROUP};

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

/// The FleetPackage that controls a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Which object of this name.
    pub uid: String,
}

impl Slice {
    /// Name and namespace of the FleetPackage that controls it.
    pub(crate) fn owner_key(&self) -> Option<Key> {
        self.owner.as_ref().map(|owner| self.key.beside(&owner.name))
    }
}

impl Kept for Slice {
    fn read(object: LazyObject) -> Option<Self> {
        let content = serde_json::from_value(object.values()).ok();
        let metadata = object.metadata;
        let owner = metadata
            .owner_references
            .into_iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
            .filter(|owner| {
                owner.kind == <FleetPackage as kube_core::Resource>::kind(&())
                    && owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
            })
            .map(|owner| Owner { name: owner.name, uid: owner.uid });
        Some(Self {
            key: Key { namespace: metadata.namespace.unwrap_or_default(), name: metadata.name? },
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            owner,
            label: metadata.labels.unwrap_or_default().remove(FLEET_PACKAGE_LABEL),
            content,
        })
    }

    fn identity(&self) -> (&Key, &str, &str) {
        (&self.key, &self.uid, &self.resource_version)
    }
}

/// The value of [`FLEET_PACKAGE_LABEL`] for a FleetPackage of this name.
pub fn label(name: &str) -> String {
    shortened(name, LONGEST_LABEL)
}

/// The slices of each FleetPackage, by its name.
pub type Owned<'a> = BTreeMap<Key, Vec<&'a Slice>>;

/// The slices of each FleetPackage.
pub(crate) fn by_owner(slices: &Slices) -> Owned<'_> {
    let mut owned = Owned::new();
    for slice in slices.iter() {
        if let Some(key) = slice.owner_key() {
            owned.entry(key).or_default().push(slice);
        }
    }
    owned
}

/// What is to be done about the slices of the FleetPackage at `key`, which may be gone: then its
/// slices go too, also where no garbage collector runs. Nothing as long as not all slices are known.
pub fn changes(world: &World<'_>, slices: &Slices, owned: &Owned<'_>, key: &Key) -> Vec<Change> {
    // Without the kind or the right to read it everything else goes on.
    if !slices.complete() {
        return Vec::new();
    }
    let owned = owned.get(key).map(Vec::as_slice).unwrap_or_default();
    let package = world.state.packages.get(key);
    // Of a FleetPackage that had the name before, they are as good as of one that is gone.
    let (own, orphans): (Vec<&Slice>, Vec<&Slice>) = owned.iter().copied().partition(|slice| {
        package.is_some_and(|it| slice.owner.as_ref().is_some_and(|owner| owner.uid == it.uid))
    });
    let mut changes = match package.map(|package| (package, world.rows(package))) {
        None | Some((_, Rows::NotOurs)) => Vec::new(),
        Some((package, Rows::Unknown)) => {
            let hidden = own.into_iter().filter(|slice| !may_stay(world, package, slice));
            hidden.cloned().map(Change::Delete).collect()
        }
        Some((_, Rows::Known(rows))) if rows.is_empty() && own.is_empty() => Vec::new(),
        Some((package, Rows::Known(rows))) => {
            let spec = package.spec.as_ref().ok();
            let wanted = Wanted {
                name: &key.name,
                uid: &package.uid,
                generation: package.generation,
                stale_after: spec.and_then(|spec| fleet_package::check(spec).ok()).unwrap_or_default(),
                rows: &rows,
            };
            plan(&own, |name| slices.get(&key.beside(name)).is_some(), &wanted)
        }
    };
    changes.extend(orphans.into_iter().map(|slice| Change::Delete(slice.clone())));
    changes
}

/// Whether a slice has nothing that its namespace may not see.
fn may_stay(world: &World<'_>, package: &PackageObject, slice: &Slice) -> bool {
    let mut clusters = slice.content.iter().flat_map(|content| &content.clusters);
    clusters.all(|row| world.may_show(package, &row.cluster_name))
}

#[cfg(test)]
mod tests;

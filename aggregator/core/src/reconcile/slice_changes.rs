//! What is to be done about slices: they are held against what their FleetPackage says now.

use super::slices::{Change, Slice, Slices, Wanted, plan};
use crate::decide::fleet_package;
use crate::reconcile::judge::{Rows, World};
use crate::reconcile::object::{Key, PackageObject};

/// What is to be done about the slices of the FleetPackage at `key`, which may be gone: then its
/// slices go too, also where no garbage collector runs. Nothing as long as not all slices are known.
pub(crate) fn changes(world: &World<'_>, slices: &Slices, key: &Key) -> Vec<Change> {
    // Without the kind or the right to read it everything else goes on.
    if !slices.complete() {
        return Vec::new();
    }
    let package = world.state.packages.get(key);
    // Of a FleetPackage that had the name before, they are as good as of one that is gone.
    let (own, orphans): (Vec<&Slice>, Vec<&Slice>) = slices.of(key).partition(|slice| {
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
            let spec = package.spec.as_deref().ok();
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
#[path = "slice_changes_tests.rs"]
mod tests;

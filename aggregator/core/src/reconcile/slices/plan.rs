//! Which slice holds which cluster.
//!
//! A cluster stays where it is, so that its change is a write of one slice; newcomers fill up what
//! has room. No more than twice as many slices are kept as are needed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::FleetPackageSlice;
use statusbridge_api::fleet_package_slice::{ClusterRow, FLEET_PACKAGE_LABEL, MOST_CLUSTERS};

use super::Slice;
use crate::decide::rows::Evident;
use crate::decide::{refreshed, time, unix};
use crate::reconcile::object::HubObject;
use crate::reconcile::owned::{self, Content, label, numbered};
use crate::time::Seconds;

/// Two times of the same transition that are not further apart are the same: they are corrected by
/// clocks and rounded.
const SAME_TIME: Seconds = 2.0;

/// What the slices of a FleetPackage should say.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Name of the FleetPackage.
    pub name: &'a str,
    /// Which object of this name.
    pub uid: &'a str,
    /// The generation that is answered.
    pub generation: i64,
    /// `asOf` is refreshed when it has moved by a third of this.
    pub stale_after: Seconds,
    /// One row for each cluster.
    pub rows: &'a [Evident],
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Make a slice of this name.
    Create(String, FleetPackageSlice),
    /// Let this slice say something else.
    Update(Slice, FleetPackageSlice),
    /// Remove this slice.
    Delete(Slice),
}

impl Change {
    /// The same as a change of any object, for the FleetPackage of this name.
    pub(crate) fn owned(self, package: &str) -> owned::Change {
        let content =
            |content: &FleetPackageSlice| Content::of((FLEET_PACKAGE_LABEL, label(package)), content);
        match self {
            Self::Create(name, slice) => owned::Change::Create(name, content(&slice)),
            Self::Update(slice, new) => owned::Change::Update(slice.version(), content(&new)),
            Self::Delete(slice) => owned::Change::Delete(slice.version()),
        }
    }
}

/// A slice to be, and the one that it is now, if it is one.
struct Shelf<'a> {
    slice: Option<&'a Slice>,
    rows: BTreeMap<&'a str, &'a Evident>,
}

/// What to do with the slices that there are so that they say what they should; deletions come last. `taken` knows the names
/// of all slices in the namespace.
pub fn plan(old: &[&Slice], taken: impl Fn(&str) -> bool, wanted: &Wanted<'_>) -> Vec<Change> {
    let mut homeless: BTreeMap<&str, &Evident> =
        wanted.rows.iter().map(|it| (it.row.cluster_name.as_str(), it)).collect();
    let needed = homeless.len().div_ceil(MOST_CLUSTERS);
    let mut shelves: Vec<Shelf<'_>> = old.iter().map(|slice| settled(slice, &mut homeless)).collect();
    // The fullest first.
    shelves.sort_by_key(|shelf| Reverse(shelf.rows.len()));
    for sparse in shelves.iter_mut().skip(2 * needed) {
        homeless.append(&mut sparse.rows);
    }
    let (mut shelves, empty): (Vec<Shelf<'_>>, Vec<Shelf<'_>>) =
        shelves.into_iter().partition(|shelf| !shelf.rows.is_empty());
    house(&mut shelves, homeless, wanted);

    let mut free =
        (0..u64::MAX).map(|number| numbered(wanted.name, wanted.uid, number)).filter(|name| !taken(name));
    let (mut creates, mut updates) = (Vec::new(), Vec::new());
    for shelf in shelves {
        match shelf.slice {
            None => creates.extend(free.next().map(|name| Change::Create(name, content(&shelf, wanted)))),
            Some(slice) => {
                let content = content(&shelf, wanted);
                if differs(slice, &content, wanted) {
                    updates.push(Change::Update(slice.clone(), content));
                }
            }
        }
    }
    let deletes = empty.iter().filter_map(|shelf| shelf.slice.cloned()).map(Change::Delete);
    creates.into_iter().chain(updates).chain(deletes).collect()
}

/// What of a slice's clusters is still wanted, and in no other slice.
fn settled<'a>(slice: &'a Slice, homeless: &mut BTreeMap<&'a str, &'a Evident>) -> Shelf<'a> {
    let clusters = slice.content.iter().flat_map(|content| &content.clusters);
    let rows = clusters
        .filter_map(|row| homeless.remove_entry(row.cluster_name.as_str()))
        .take(MOST_CLUSTERS)
        .collect();
    Shelf { slice: Some(slice), rows }
}

/// Finds a place for each newcomer: in a slice that is written anyway, else in the fullest that has
/// room, else in a new one.
#[expect(clippy::indexing_slicing, reason = "places are those of shelves and written, which grow together")]
fn house<'a>(shelves: &mut Vec<Shelf<'a>>, homeless: BTreeMap<&'a str, &'a Evident>, wanted: &Wanted<'_>) {
    let mut written: Vec<bool> = shelves
        .iter()
        .map(|shelf| shelf.slice.is_none_or(|slice| differs(slice, &content(shelf, wanted), wanted)))
        .collect();
    let mut open = None;
    for (name, row) in homeless {
        let has_room = |shelf: &Shelf<'_>| shelf.rows.len() < MOST_CLUSTERS;
        // The one that the last newcomer went to, until it is full.
        let at = open.filter(|at: &usize| has_room(&shelves[*at])).unwrap_or_else(|| {
            let with_room = (0..shelves.len()).filter(|at| has_room(&shelves[*at]));
            with_room.max_by_key(|at| (written[*at], shelves[*at].rows.len(), Reverse(*at))).unwrap_or_else(
                || {
                    shelves.push(Shelf { slice: None, rows: BTreeMap::new() });
                    written.push(true);
                    shelves.len() - 1
                },
            )
        });
        shelves[at].rows.insert(name, row);
        open = Some(at);
    }
}

fn content(shelf: &Shelf<'_>, wanted: &Wanted<'_>) -> FleetPackageSlice {
    let before = shelf.slice.and_then(|slice| slice.content.as_ref());
    let mut before = before.map(|it| it.clusters.as_slice()).unwrap_or_default().iter();
    let evidence = shelf.rows.values().filter_map(|it| it.as_of);
    FleetPackageSlice {
        fleet_package_generation: wanted.generation,
        as_of: evidence.min_by(Seconds::total_cmp).map(time),
        clusters: shelf
            .rows
            .values()
            .map(|it| {
                // Both are sorted by name.
                let old = before.as_slice().iter().position(|old| old.cluster_name == it.row.cluster_name);
                let old = old.and_then(|at| before.nth(at));
                steady(&it.row, old)
            })
            .collect(),
    }
}

/// The row, with the time that it had when it says the same transition.
fn steady(row: &ClusterRow, old: Option<&ClusterRow>) -> ClusterRow {
    let mut row = row.clone();
    let near = |(a, b): (&Time, &Time)| (unix(a) - unix(b)).abs() < SAME_TIME;
    if let Some(old) = old
        && row.last_transition_time.as_ref().zip(old.last_transition_time.as_ref()).is_some_and(near)
        && (&row.state, &row.healthy_revision) == (&old.state, &old.healthy_revision)
    {
        row.last_transition_time = old.last_transition_time.clone();
    }
    row
}

/// Whether a slice is worth a write.
fn differs(slice: &Slice, content: &FleetPackageSlice, wanted: &Wanted<'_>) -> bool {
    let Some(old) = &slice.content else { return true };
    slice.label.as_deref() != Some(label(wanted.name).as_str())
        || (old.fleet_package_generation, &old.clusters)
            != (content.fleet_package_generation, &content.clusters)
        || refreshed(old.as_of.as_ref(), content.as_of.as_ref(), wanted.stale_after)
}

//! The record of a FleetRollout: which clusters may have which revision, as its slices say.
//!
//! The slices are their own memory. A row is added, or moves on to another revision; none is taken away.

use std::collections::{BTreeMap, HashMap};

use statusbridge_api::FleetRolloutSlice;
use statusbridge_api::fleet_rollout_slice::{
    AdmittedCluster, FLEET_ROLLOUT_LABEL, FleetRolloutRef, MOST_CLUSTERS,
};
use statusbridge_api::rollout_gate::FleetPackageRef;

use crate::reconcile::owned::{Change, Content, label, numbered};
use crate::reconcile::rollout_slices::{RolloutSlice, RolloutSlices, rows};
use crate::reconcile::store::{HubObject, Key};

/// Which clusters may have which revision.
pub(super) struct Record<'a> {
    all: &'a RolloutSlices,
    slices: Vec<(&'a RolloutSlice, &'a FleetRolloutSlice)>,
    rows: HashMap<&'a str, &'a AdmittedCluster>,
}

impl<'a> Record<'a> {
    /// What the slices of a FleetRollout say of this FleetPackage; `None` where one of them cannot be read, so that not all is
    /// known.
    pub(super) fn of(all: &'a RolloutSlices, rollout: &Key, package: &str) -> Option<Self> {
        let slices: Option<Vec<_>> = all.of(rollout).map(|it| Some((it, it.content.as_ref()?))).collect();
        let mut slices = slices?;
        // Another one of this name may have been for another package.
        slices.retain(|(_, content)| content.fleet_package_ref.name == package);
        let rows = rows(slices.iter().map(|(_, content)| *content));
        Some(Self { all, slices, rows })
    }

    /// All rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a AdmittedCluster> {
        self.rows.values().copied()
    }

    /// The row of a cluster.
    pub(super) fn get(&self, cluster: &str) -> Option<&'a AdmittedCluster> {
        self.rows.get(cluster).copied()
    }

    /// What is to be done so that these rows are in the record. A row that is there takes the place of the one before; a new
    /// one goes where there is room.
    pub(super) fn add(&self, rollout: &Key, package: &str, rows: Vec<AdmittedCluster>) -> Vec<Change> {
        let mut rows: BTreeMap<String, AdmittedCluster> =
            rows.into_iter().map(|row| (row.cluster_name.clone(), row)).collect();
        let mut contents: Vec<(&RolloutSlice, Vec<AdmittedCluster>, bool)> = Vec::new();
        for (slice, content) in &self.slices {
            let mut clusters = content.clusters.clone();
            let mut changed = false;
            for row in &mut clusters {
                if let Some(new) = rows.remove(&row.cluster_name) {
                    (*row, changed) = (new, true);
                }
            }
            contents.push((slice, clusters, changed));
        }
        let mut left: Vec<AdmittedCluster> = rows.into_values().collect();
        for (_, clusters, changed) in &mut contents {
            let room = MOST_CLUSTERS.saturating_sub(clusters.len()).min(left.len());
            if room > 0 {
                clusters.extend(left.drain(..room));
                clusters.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
                *changed = true;
            }
        }
        let content = |clusters| {
            let slice = FleetRolloutSlice {
                fleet_rollout_ref: FleetRolloutRef { name: rollout.name.clone() },
                fleet_package_ref: FleetPackageRef { name: package.to_owned() },
                clusters,
            };
            Content::of((FLEET_ROLLOUT_LABEL, label(&rollout.name)), &slice)
        };
        let mut changes: Vec<Change> = contents
            .into_iter()
            .filter(|(_, _, changed)| *changed)
            .map(|(slice, clusters, _)| Change::Update(slice.version(), content(clusters)))
            .collect();
        let mut free = (0..u64::MAX)
            .map(|number| numbered(&rollout.name, package, number))
            .filter(|name| self.all.get(&rollout.beside(name)).is_none());
        while !left.is_empty() {
            let clusters = left.drain(..left.len().min(MOST_CLUSTERS)).collect();
            let Some(name) = free.next() else { break };
            changes.push(Change::Create(name, content(clusters)));
        }
        changes
    }
}

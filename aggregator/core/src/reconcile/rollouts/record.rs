//! The record of a FleetRollout: which clusters may have which revision, as its slices say.
//!
//! The slices are their own memory. A row is added, or moves on to another revision; none is taken away.

use std::collections::{BTreeMap, HashMap};

use statusbridge_api::FleetRolloutSlice;
use statusbridge_api::fleet_rollout_slice::{AdmittedCluster, FLEET_ROLLOUT_LABEL, MOST_CLUSTERS};

use crate::reconcile::owned::{Change, Content, label, numbered};
use crate::reconcile::rollout_slices::{RolloutSlice, RolloutSlices};
use crate::reconcile::store::{HubObject, Key};

/// Which clusters may have which revision.
pub(super) struct Record<'a> {
    slices: Vec<&'a RolloutSlice>,
    rows: HashMap<&'a str, &'a AdmittedCluster>,
}

impl<'a> Record<'a> {
    /// What the slices of a FleetRollout say; `None` where one of them cannot be read, so that not all is known.
    pub(super) fn of(slices: &'a RolloutSlices, rollout: &Key, uid: &str) -> Option<Self> {
        let is_own = |slice: &&RolloutSlice| slice.owner.as_ref().is_some_and(|owner| owner.uid == uid);
        let slices: Vec<&RolloutSlice> = slices.within(&rollout.namespace).filter(is_own).collect();
        let mut rows = HashMap::<&str, &AdmittedCluster>::new();
        for slice in &slices {
            for row in slice.clusters.as_ref()? {
                let known = rows.entry(&row.cluster_name).or_insert(row);
                // Never there but for a slice that somebody else wrote.
                if row.since > known.since {
                    *known = row;
                }
            }
        }
        Some(Self { slices, rows })
    }

    /// The row of a cluster.
    pub(super) fn get(&self, cluster: &str) -> Option<&'a AdmittedCluster> {
        self.rows.get(cluster).copied()
    }

    /// What is to be done so that these rows are in the record. A row that is there takes the place of the one before; a new
    /// one goes where there is room.
    pub(super) fn add(&self, name: &str, uid: &str, rows: Vec<AdmittedCluster>) -> Vec<Change> {
        let mut rows: BTreeMap<String, AdmittedCluster> =
            rows.into_iter().map(|row| (row.cluster_name.clone(), row)).collect();
        let mut contents: Vec<(&RolloutSlice, Vec<AdmittedCluster>, bool)> = Vec::new();
        for slice in &self.slices {
            let mut clusters = slice.clusters.clone().unwrap_or_default();
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
        let label = || (FLEET_ROLLOUT_LABEL, label(name));
        let mut changes: Vec<Change> = contents
            .into_iter()
            .filter(|(_, _, changed)| *changed)
            .map(|(slice, clusters, _)| {
                Change::Update(slice.version(), Content::of(label(), &FleetRolloutSlice { clusters }))
            })
            .collect();
        let taken = |name: &str| self.slices.iter().any(|slice| slice.key.name == name);
        let mut free = (0..u64::MAX).map(|number| numbered(name, uid, number)).filter(|it| !taken(it));
        while !left.is_empty() {
            let clusters = left.drain(..left.len().min(MOST_CLUSTERS)).collect();
            let Some(name) = free.next() else { break };
            changes.push(Change::Create(name, Content::of(label(), &FleetRolloutSlice { clusters })));
        }
        changes
    }
}

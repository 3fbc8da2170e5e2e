//! The record of a FleetRollout: which clusters may have which revision, as its slices say.
//!
//! The slices are their own memory. A row is added, or moves on to another revision; none is taken away. They alone tell what
//! is handed over, to whoever reads them, whether or not anything judges.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use statusbridge_api::FleetRolloutSlice;
use statusbridge_api::fleet_rollout_slice::{
    AdmittedCluster, FLEET_ROLLOUT_LABEL, FleetRolloutRef, MOST_CLUSTERS,
};
use statusbridge_api::rollout_gate::FleetPackageRef;
use statusbridge_contract::wanted;

use crate::reconcile::object::{HubObject, Key};
use crate::reconcile::owned::{Change, Content, label, numbered};
use crate::reconcile::rollout_slices::{RolloutSlice, RolloutSlices, rows};

/// Which clusters may have which revision.
pub(super) struct Record<'a> {
    all: &'a RolloutSlices,
    slices: Vec<(&'a RolloutSlice, &'a FleetRolloutSlice)>,
    rows: HashMap<&'a str, &'a AdmittedCluster>,
}

/// Why the slices of a FleetRollout are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// Not all rows are known.
    #[error("FleetRolloutSlice {0} cannot be read: restore it, or delete it")]
    Unreadable(String),
    /// Another FleetRollout has had the name.
    #[error(
        "FleetRolloutSlice {slice} is of FleetPackage {package}, by a FleetRollout that had this name before: kubectl delete \
         fleetrolloutslices -n {namespace} -l {FLEET_ROLLOUT_LABEL}={rollout}"
    )]
    OfAnother { slice: String, package: String, namespace: String, rollout: String },
}

impl RolloutSlices {
    /// The rows of a FleetRollout, by cluster; `None` where its slices are no record.
    pub fn admitted(&self, rollout: &Key) -> Option<HashMap<&str, &AdmittedCluster>> {
        Some(Record::of(self, rollout, None).ok()?.rows)
    }
}

impl<'a> Record<'a> {
    /// What the slices of a FleetRollout say: each can be read, and all are of one FleetPackage, which is `package` where that is
    /// known.
    pub(super) fn of(all: &'a RolloutSlices, rollout: &Key, package: Option<&str>) -> Result<Self, Unusable> {
        let (mut slices, mut package) = (Vec::new(), package);
        for slice in all.of(rollout) {
            let name = || slice.key.name.clone();
            let content = slice.content.as_ref().ok_or_else(|| Unusable::Unreadable(name()))?;
            let of = content.fleet_package_ref.name.as_str();
            if of != *package.get_or_insert(of) {
                return Err(Unusable::OfAnother {
                    slice: name(),
                    package: of.to_owned(),
                    namespace: rollout.namespace.clone(),
                    rollout: label(&rollout.name),
                });
            }
            slices.push((slice, content));
        }
        let rows = rows(slices.iter().map(|(_, content)| *content));
        Ok(Self { all, slices, rows })
    }

    /// All rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a AdmittedCluster> {
        self.rows.values().copied()
    }

    /// The row of a cluster.
    pub(super) fn get(&self, cluster: &str) -> Option<&'a AdmittedCluster> {
        self.rows.get(cluster).copied()
    }

    /// The clusters that may have a revision.
    pub(super) fn admitted(&self, revision: &str) -> HashSet<&'a str> {
        let rows = self.rows().filter(|row| wanted::is_same(&row.revision, revision));
        rows.map(|row| row.cluster_name.as_str()).collect()
    }

    /// What is to be done so that these rows are in the record. A row that is there takes the place of the one before; a new
    /// one goes where there is room.
    pub(super) fn add(&self, rollout: &Key, package: &str, rows: Vec<AdmittedCluster>) -> Vec<Change> {
        let mut rows: BTreeMap<String, AdmittedCluster> =
            rows.into_iter().map(|row| (row.cluster_name.clone(), row)).collect();
        let mut contents: Vec<(&RolloutSlice, Cow<'_, [AdmittedCluster]>)> = Vec::new();
        for (slice, content) in &self.slices {
            let mut clusters = Cow::Borrowed(content.clusters.as_slice());
            for (at, row) in content.clusters.iter().enumerate() {
                if let Some(new) = rows.remove(&row.cluster_name)
                    && let Some(row) = clusters.to_mut().get_mut(at)
                {
                    *row = new;
                }
            }
            contents.push((slice, clusters));
        }
        let mut left: Vec<AdmittedCluster> = rows.into_values().collect();
        for (_, clusters) in &mut contents {
            let room = MOST_CLUSTERS.saturating_sub(clusters.len()).min(left.len());
            if room > 0 {
                let clusters = clusters.to_mut();
                clusters.extend(left.drain(..room));
                clusters.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
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
            .filter_map(|(slice, clusters)| match clusters {
                Cow::Owned(clusters) => Some(Change::Update(slice.version(), content(clusters))),
                Cow::Borrowed(_) => None,
            })
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::reconcile::store::Event;

    fn slice(name: &str, rollout: &str, clusters: Value) -> Event<crate::reconcile::lazy_object::LazyObject> {
        let (rollout, package) = rollout.split_once('/').unwrap_or((rollout, "p"));
        let object = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRolloutSlice",
            "metadata": {"namespace": "fleet", "name": name, "uid": name, "resourceVersion": "1"},
            "fleetRolloutRef": {"name": rollout}, "fleetPackageRef": {"name": package}, "clusters": clusters,
        });
        Event::Apply(serde_json::from_value(object).unwrap())
    }

    fn row(cluster: &str, revision: &str, minute: u32) -> Value {
        let since = format!("2026-05-04T10:{minute:02}:00Z");
        json!({"clusterName": cluster, "revision": revision, "wave": "w", "since": since})
    }

    fn revisions(slices: &RolloutSlices, rollout: &str) -> Option<Vec<(String, String)>> {
        let key = Key { namespace: "fleet".into(), name: rollout.into() };
        let rows = slices.admitted(&key)?;
        let rows: BTreeMap<_, _> = rows.into_iter().collect();
        Some(rows.iter().map(|(cluster, row)| ((*cluster).to_owned(), row.revision.clone())).collect())
    }

    #[test]
    fn all_slices_of_a_rollout_are_put_together_and_those_of_others_left_out() {
        let mut slices = RolloutSlices::default();
        slices.apply(slice("1", "payments", json!([row("a", "r1", 1), row("b", "r2", 2)])));
        slices.apply(slice("2", "payments", json!([row("c", "r1", 1), row("a", "r2", 3)])));
        slices.apply(slice("3", "orders", json!([row("d", "r9", 1)])));
        let expected = [("a", "r2"), ("b", "r2"), ("c", "r1")].map(|(it, at)| (it.to_owned(), at.to_owned()));
        assert_eq!(revisions(&slices, "payments"), Some(expected.to_vec()));
        assert_eq!(revisions(&slices, "pay"), Some(Vec::new()));
        slices.apply(slice("4", "payments/another", json!([row("e", "r9", 1)])));
        assert_eq!(revisions(&slices, "payments"), None, "of two FleetPackages");
    }

    #[test]
    fn a_slice_that_cannot_be_read_leaves_nothing_to_be_handed_over_of_its_rollout() {
        let mut slices = RolloutSlices::default();
        slices.apply(slice("1", "payments", json!([row("a", "r1", 1)])));
        slices.apply(slice("2", "payments", json!([{"clusterName": "b"}])));
        slices.apply(slice("3", "orders", json!([row("d", "r9", 1)])));
        assert_eq!(revisions(&slices, "payments"), None);
        assert_eq!(revisions(&slices, "orders"), Some(vec![("d".into(), "r9".into())]));
    }
}

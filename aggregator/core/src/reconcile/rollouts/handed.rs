//! What is handed over of a record: the slices alone tell it, to whoever reads them, whether or not anything judges.

use std::collections::{BTreeSet, HashMap};

use statusbridge_api::fleet_rollout_slice::AdmittedCluster;

use crate::reconcile::rollout_slices::{RolloutSlices, rows};
use crate::reconcile::store::Key;

impl RolloutSlices {
    /// The rows of a FleetRollout, by cluster. `None` where one of its slices cannot be read, so that not all are known, or where
    /// they are of two FleetPackages, as another FleetRollout has had the name.
    pub fn admitted(&self, rollout: &Key) -> Option<HashMap<&str, &AdmittedCluster>> {
        let slices: Vec<_> = self.of(rollout).map(|slice| slice.content.as_ref()).collect::<Option<_>>()?;
        let packages: BTreeSet<&str> =
            slices.iter().map(|slice| slice.fleet_package_ref.name.as_str()).collect();
        if packages.len() > 1 {
            return None;
        }
        Some(rows(slices))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

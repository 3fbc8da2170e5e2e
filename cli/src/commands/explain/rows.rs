//! The clusters, one by one, as the slices have them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::ClusterSet;
use statusbridge_api::fleet_package_slice::{ClusterRow, RolloutStatus};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::slices::Slice;

/// One cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// The row of the slice. A cluster that is in none has only its name.
    #[serde(flatten)]
    pub row: ClusterRow,
    /// How far the cluster is with the revision that is asked about.
    pub at_revision: Option<AtRevision>,
}

/// How far a cluster is with a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum AtRevision {
    /// Nothing is known that is fresh and verified.
    Unknown,
    /// It has nothing to do with it.
    No,
    /// It has been told to run it.
    Desired,
    /// It has applied it in full.
    Applied,
    /// It is healthy at it.
    Healthy,
}

/// The clusters that are meant, those first that are not done.
pub(super) fn rows(slices: &[Slice], revision: Option<Fingerprint>, clusters: &ClusterSet) -> Vec<Row> {
    let all = slices.iter().filter_map(|slice| slice.content.as_ref()).flat_map(|it| &it.clusters);
    let mut known: BTreeMap<&str, &ClusterRow> = all.map(|row| (row.cluster_name.as_str(), row)).collect();
    let row_of = |name: &String| known.remove(name.as_str()).cloned().unwrap_or_else(|| unknown(name));
    let chosen: Vec<ClusterRow> = match &clusters.names {
        Some(names) => names.iter().map(row_of).collect(),
        None => known.into_values().cloned().collect(),
    };
    let row = |row: ClusterRow| Row { at_revision: revision.map(|it| at_revision(&row, it)), row };
    let mut rows: Vec<Row> = chosen.into_iter().map(row).collect();
    rows.sort_by_cached_key(|Row { row, at_revision }| {
        (*at_revision, row.status == RolloutStatus::Succeeded, row.cluster_name.clone())
    });
    rows
}

fn unknown(name: &str) -> ClusterRow {
    ClusterRow {
        cluster_name: name.to_owned(),
        status: RolloutStatus::ToApply,
        state: "Unknown".to_owned(),
        reason: "NotInSlices".to_owned(),
        desired_revision: None,
        applied_revision: None,
        healthy_revision: None,
        last_transition_time: None,
        reported_by: None,
        excused: None,
    }
}

fn at_revision(row: &ClusterRow, revision: Fingerprint) -> AtRevision {
    let is =
        |words: &Option<String>| words.as_deref().is_some_and(|words| Fingerprint::of(words) == revision);
    if is(&row.healthy_revision) {
        AtRevision::Healthy
    } else if is(&row.applied_revision) {
        AtRevision::Applied
    } else if is(&row.desired_revision) {
        AtRevision::Desired
    } else if row.desired_revision.is_some() || row.applied_revision.is_some() {
        AtRevision::No
    } else {
        AtRevision::Unknown
    }
}

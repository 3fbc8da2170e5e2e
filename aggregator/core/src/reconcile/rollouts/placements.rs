//! What PlacementDecisions should say: of a FleetRollout that asks for them a set for each revision in its record, with the
//! clusters that may have that revision. A set is about one revision for good, so that whoever places by it never gets
//! another one placed.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use statusbridge_api::fleet_rollout::PlacementApi;
use statusbridge_api::names::{LONGEST_LABEL, shortened};
use statusbridge_contract::Fingerprint;

use super::record::Record;
use crate::decide::list;
use crate::reconcile::judge::World;
use crate::reconcile::object::Key;

/// The PlacementDecisions of one FleetRollout in one API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placements {
    /// The API.
    pub api: PlacementApi,
    /// The FleetRollout.
    pub rollout: Key,
    /// The sets by name, that of the revision that is rolled out first.
    pub sets: Vec<(String, BTreeSet<Placed>)>,
    /// All ClusterProfiles that there are, where the sets are made of some.
    pub profiles: Arc<BTreeSet<Key>>,
    /// Clusters that are in none of them, because they have no ClusterProfile.
    without_profile: BTreeSet<String>,
}

impl Placements {
    /// That clusters are in none of the sets, if any are.
    pub fn lack(&self) -> Option<String> {
        let names: Vec<String> = self.without_profile.iter().cloned().collect();
        let clusters = match names.len() {
            0 => return None,
            1 => "1 admitted cluster has".to_owned(),
            many => format!("{many} admitted clusters have"),
        };
        Some(format!(
            "{clusters} no ClusterProfile, without which no PlacementDecision names any: {}",
            list(&names)
        ))
    }
}

/// Who is placed: the name of a cluster, or the place of its ClusterProfile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placed {
    /// A managed cluster.
    Cluster(String),
    /// A ClusterProfile.
    Profile(Key),
}

/// What all of that depends on: it is the same as long as this is.
pub type Seen = [u64; 3];

impl World<'_> {
    /// What all PlacementDecisions should say, if it may be other than when `seen` was; `None` where it is not known.
    pub fn placements(&self, seen: Option<Seen>) -> Option<(Seen, Vec<Placements>)> {
        let state = self.state;
        let now = [state.rollouts.revision(), state.rollout_slices.revision(), state.profiles.revision()];
        if seen == Some(now) || !state.rollouts.complete() || !state.rollout_slices.complete() {
            return None;
        }
        let mut all = Vec::new();
        let profiles = LazyCell::new(|| Arc::new(state.profiles.keys().cloned().collect::<BTreeSet<Key>>()));
        for rollout in state.rollouts.iter() {
            let Ok(spec) = &rollout.spec else { continue };
            if spec.placement_decisions.is_empty() {
                continue;
            }
            // Of a record that cannot be read nothing is said, and what was said stays.
            let package = Some(spec.fleet_package_ref.name.as_str());
            let Ok(record) = Record::of(&state.rollout_slices, &rollout.key, package) else {
                continue;
            };
            let mut revisions = BTreeMap::<Fingerprint, Vec<&str>>::new();
            for row in record.rows() {
                revisions.entry(Fingerprint::of(&row.revision)).or_default().push(&row.cluster_name);
            }
            let current = rollout.status.as_ref().and_then(|it| it.revision.as_deref()).map(Fingerprint::of);
            let mut revisions: Vec<_> = revisions.into_iter().collect();
            revisions.sort_by_key(|(revision, _)| Some(*revision) != current);
            for api in &spec.placement_decisions {
                let mut without_profile = BTreeSet::new();
                let mut placed = |cluster: &str| match api {
                    PlacementApi::OpenClusterManagement => Some(Placed::Cluster(cluster.to_owned())),
                    PlacementApi::Multicluster => {
                        let profile = state.profiles.profile(cluster);
                        if profile.is_none() {
                            without_profile.insert(cluster.to_owned());
                        }
                        profile.cloned().map(Placed::Profile)
                    }
                };
                let sets = revisions.iter().map(|(revision, clusters)| {
                    let name = set_name(&rollout.key.name, *revision);
                    (name, clusters.iter().filter_map(|cluster| placed(cluster)).collect())
                });
                let sets = sets.collect();
                let profiles = match api {
                    PlacementApi::OpenClusterManagement => Arc::default(),
                    PlacementApi::Multicluster => profiles.clone(),
                };
                all.push(Placements {
                    api: *api,
                    rollout: rollout.key.clone(),
                    sets,
                    profiles,
                    without_profile,
                });
            }
        }
        Some((now, all))
    }
}

/// The name of a set, which is a label: the FleetRollout's, and the twelve digits of the revision.
fn set_name(rollout: &str, revision: Fingerprint) -> String {
    let digits = revision.to_string();
    format!("{}-{digits}", shortened(rollout, LONGEST_LABEL - digits.len() - 1))
}

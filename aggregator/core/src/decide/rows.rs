//! What each cluster of a FleetPackage comes to, one row for each: the content of its slices.

use statusbridge_api::Reason;
use statusbridge_api::fleet_package_slice::{ClusterRow, LONGEST_CLUSTER_NAME, RolloutStatus};
use statusbridge_contract::Fingerprint;

use super::classify::{for_package, unobserved};
use super::excused::Excused;
use super::fleet_package::{Wanted, word_and_since};
use super::{Target, shorten, time};
use crate::fleet::observation::Standing;
use crate::time::Seconds;

/// Longest wanted revision, in bytes, that is written into every row in its own words: three of them
/// in 256 rows are to stay small.
const LONGEST_WORDS: usize = 128;

/// One row, and the time of the evidence that it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Evident {
    /// The row.
    pub row: ClusterRow,
    /// Time of its evidence; none where the cluster's word does not count.
    pub as_of: Option<Seconds>,
}

/// A row for each target, also those that are excused, but for names that no slice takes.
pub fn rows(wanted: Wanted<'_>, targets: &[Target], excused: &Excused<'_>) -> Vec<Evident> {
    let wanted = wanted.fingerprint().map(|mark| (mark, wanted.text().unwrap_or_default()));
    let counted = targets.iter().map(|target| (target, None));
    let excused = excused.targets().iter().map(|it| (&it.target, Some(&it.reason)));
    let named = |(target, _): &(&Target, _)| (1..=LONGEST_CLUSTER_NAME).contains(&target.cluster.len());
    let row = |(target, why): (&Target, Option<&String>)| row(target, wanted, why.cloned());
    counted.chain(excused).filter(named).map(row).collect()
}

/// What a target comes to, and the revision that it has applied, where its word counts.
pub(crate) fn state(target: &Target, wanted: Wanted<'_>) -> (Reason, Fingerprint) {
    match unobserved(&target.observation) {
        Ok(row) => (for_package(row, wanted.fingerprint()).reason, row.applied),
        Err(reason) => (reason, Fingerprint::NONE),
    }
}

fn row(target: &Target, wanted: Option<(Fingerprint, &str)>, excused: Option<String>) -> Evident {
    let observation = &target.observation;
    let seen = unobserved(observation);
    let (state, updated) = match seen.map(|row| for_package(row, wanted.map(|(mark, _)| mark))) {
        Ok(state) => (state.reason, state.updated),
        Err(reason) => (reason, false),
    };
    let (word, since) = word_and_since(state, target);
    let show = |revision: Fingerprint| match wanted {
        _ if revision.is_none() => None,
        Some((mark, words)) if mark == revision && words.len() <= LONGEST_WORDS => Some(words.to_owned()),
        _ => Some(revision.to_string()),
    };
    // The last known revisions of a cluster that is out of sight could be taken for present ones.
    let seen = seen.ok();
    Evident {
        row: ClusterRow {
            cluster_name: target.cluster.clone(),
            status: rollout_status(state, updated),
            state: state.name().to_owned(),
            reason: shorten(&word),
            desired_revision: seen.and_then(|row| show(row.desired)),
            applied_revision: seen.and_then(|row| show(row.applied)),
            healthy_revision: seen.and_then(|row| show(row.healthy)),
            last_transition_time: since.map(time),
            reported_by: observation.told_by.as_deref().map(str::to_owned),
            excused,
        },
        as_of: observation.as_of.filter(|_| observation.standing == Standing::Fresh),
    }
}

/// Open Cluster Management has no word for a cluster that is out of sight. It is not done, and holds
/// up whoever waits for it, as one that is on the way.
fn rollout_status(state: Reason, updated: bool) -> RolloutStatus {
    match state {
        Reason::Healthy => RolloutStatus::Succeeded,
        Reason::Failed => RolloutStatus::Failed,
        Reason::NotUpdated | Reason::Missing => RolloutStatus::ToApply,
        Reason::Paused if !updated => RolloutStatus::ToApply,
        _ => RolloutStatus::Progressing,
    }
}

//! What one cluster counts as.

use statusbridge_api::Reason;
use statusbridge_api::rollout_gate::Require;
use statusbridge_contract::{ApplyState, Fingerprint, Health};

use crate::fleet::observation::{Observation, Row, Standing};
use crate::time::Seconds;

/// What a gate asks of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Fingerprint of the gate's revision.
    pub revision: Fingerprint,
    /// How far the cluster must be.
    pub require: Require,
    /// For how long it must have been so.
    pub min_success: Seconds,
}

/// Why a cluster cannot be judged, if it cannot.
pub fn unobserved(observation: &Observation) -> Result<&Row, Reason> {
    match (observation.standing, &observation.row) {
        (Standing::Fresh, Some(row)) => Ok(row),
        (Standing::Fresh, None) | (Standing::Missing, _) => Err(Reason::Missing),
        (Standing::Stale, _) => Err(Reason::Stale),
        (Standing::Unverified, _) => Err(Reason::Unverified),
        (Standing::Conflict, _) => Err(Reason::Conflict),
        (Standing::ClockSkew, _) => Err(Reason::ClockSkew),
    }
}

/// What a cluster counts as for a gate; [`Reason::Healthy`] is the only one that helps to open it.
///
/// Only the row's own statement that the gate's revision is healthy (or applied) counts, so the
/// health of a previous revision can never be taken for that of the gate's.
pub(crate) fn for_gate(observation: &Observation, demand: &Demand, t: Seconds) -> Reason {
    let row = match unobserved(observation) {
        Ok(row) => row,
        Err(reason) => return reason,
    };
    let wanted = demand.revision;
    if wanted.is_none() {
        return Reason::NotUpdated;
    }
    if !row.desired.is_none() && row.desired != wanted {
        let was_here = [row.applied, row.healthy, row.previously_applied].contains(&wanted);
        return if was_here { Reason::Superseded } else { Reason::NotUpdated };
    }
    // From here on the cluster wants the gate's revision, or does not say what it wants.
    let unhealthy = demand.require == Require::Healthy && row.health == Health::Failed;
    if row.apply == ApplyState::Failed || unhealthy {
        return Reason::Failed;
    }
    let there = match demand.require {
        Require::Healthy => row.healthy == wanted,
        Require::Applied => row.applied == wanted,
    };
    match row.apply {
        ApplyState::Paused => return Reason::Paused,
        ApplyState::Deleting => return Reason::Deleting,
        _ if there => {}
        _ if row.applied == wanted && row.health == Health::Unknown => return Reason::HealthUnknown,
        _ if row.applied == wanted || row.desired == wanted => return Reason::Progressing,
        _ if row.previously_applied == wanted => return Reason::Superseded,
        _ => return Reason::NotUpdated,
    }
    if has_soaked(observation, row, demand.min_success, t) { Reason::Healthy } else { Reason::Soaking }
}

/// Whether a cluster that is as far as it has to be has been so for long enough.
///
/// It is proved only as far as the evidence reaches: while the backend is silent, no time passes for
/// it.
fn has_soaked(observation: &Observation, row: &Row, min_success: Seconds, t: Seconds) -> bool {
    min_success <= 0.0 || held_for(observation, row, t) >= min_success
}

/// For how long a cluster has been as it is, at `t`. That is proved only as far as the evidence
/// reaches: while the backend is silent, no time passes for it.
pub(crate) fn held_for(observation: &Observation, row: &Row, t: Seconds) -> Seconds {
    observation.as_of.map_or(Seconds::NEG_INFINITY, |as_of| as_of.min(t)) - row.since
}

/// Whether a cluster that counts as this has yet to reach the gate's revision, so that it counts as
/// failed once the gate's deadline has passed. One that is out of sight is in the budget already,
/// and one that has moved on was there.
pub(crate) fn is_under_way(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotUpdated | Reason::Paused | Reason::Deleting | Reason::HealthUnknown | Reason::Progressing
    )
}

/// What a cluster counts as for a FleetPackage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackageState {
    /// [`Reason::Healthy`] when nothing is to be said.
    pub reason: Reason,
    /// It has been told to run the wanted revision.
    pub updated: bool,
    /// And has applied it in full.
    pub applied: bool,
    /// And is healthy at it.
    pub healthy: bool,
    /// Applying the wanted revision failed, or it is applied and has failed. A failure of the revision before is none.
    pub failed: bool,
}

/// What a row counts as for a FleetPackage that wants `wanted`, or whatever the cluster itself
/// wants when that is `None`.
pub(crate) fn for_package(row: &Row, wanted: Option<Fingerprint>) -> PackageState {
    let own = if row.desired.is_none() { row.applied } else { row.desired };
    let wanted = wanted.unwrap_or(own);
    let updated = own == wanted && !wanted.is_none();
    let applied = updated && row.applied == wanted;
    let healthy = applied && row.healthy == wanted;
    let reason = if row.apply == ApplyState::Failed || row.health == Health::Failed {
        Reason::Failed
    } else if row.apply == ApplyState::Paused {
        Reason::Paused
    } else if row.apply == ApplyState::Deleting {
        Reason::Deleting
    } else if healthy {
        Reason::Healthy
    } else if !updated && !own.is_none() {
        Reason::NotUpdated
    } else if applied && row.health == Health::Unknown {
        Reason::HealthUnknown
    } else {
        Reason::Progressing
    };
    let failed = updated && row.apply == ApplyState::Failed || applied && row.health == Health::Failed;
    PackageState { reason, updated, applied, healthy, failed }
}

//! Closing a gate without room, or without anybody who judges it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use statusbridge_api::Reason;
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, RECONCILING, find, is_true};
use statusbridge_api::rollout_gate::{OverrideState, RolloutGateSpec, RolloutGateStatus, Waiting};

use super::conditions::Conditions;
use super::rollout_gate::holds;
use super::{Moment, time, transition};
use crate::time::Seconds;

/// Why the sweeper closes gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwatched {
    /// The heartbeat is too old.
    Silent,
    /// The heartbeat says that the aggregator cannot close this gate.
    Named,
}

/// The status that closes a gate because nobody watches over it, or `None` when it is closed
/// already or a person's word keeps it open.
pub fn unwatched(
    why: Unwatched,
    spec: Result<&RolloutGateSpec, &str>,
    status: &RolloutGateStatus,
    now: Seconds,
) -> Option<RolloutGateStatus> {
    let open = [OPEN, READY].iter().any(|kind| is_true(&status.conditions, kind));
    let by_hand =
        find(&status.conditions, OPEN).is_some_and(|condition| condition.reason == Reason::Overridden.name());
    let word = spec.ok().and_then(|spec| spec.override_.as_ref());
    let stands = word.is_some_and(|word| word.state == OverrideState::Open && holds(word, now));
    if !open || (by_hand && stands) {
        return None;
    }
    let message = match why {
        Unwatched::Silent => "the aggregator has stopped giving signs of life",
        Unwatched::Named => "the aggregator says that this gate has to close and that it cannot close it",
    };
    let message = message.to_owned();
    // What this status answers does not change: a generation that was not judged stays unjudged.
    let generation = status.observed_generation.unwrap_or(-1);
    let mut conditions = Conditions::new(generation, Moment { t: now, now }, &status.conditions);
    conditions.set(READY, false, Reason::AggregatorSilent, message.clone());
    conditions.set(OPEN, false, Reason::AggregatorSilent, message.clone());
    if let Some(opened_once) = find(&status.conditions, OPENED_ONCE) {
        conditions.keep(opened_once.clone());
    }
    conditions.set(RECONCILING, true, Reason::AggregatorSilent, message.clone());
    let closed = RolloutGateStatus {
        since: Some(time(now)),
        waiting_for: vec![Waiting {
            reason: Reason::AggregatorSilent.name().to_owned(),
            message,
            count: 0,
            until: None,
            clusters: Vec::new(),
        }],
        conditions: conditions.finish(),
        ..status.clone()
    };
    Some(transition::dated(closed, Some(status), now))
}

/// The least that says that a gate is closed, as `closed` does at length: as JSON it is never longer than the open
/// status that it replaces, so that it can be written over an object that has no room for more.
pub fn least(open: &RolloutGateStatus, closed: &RolloutGateStatus) -> RolloutGateStatus {
    let condition = |kind| {
        let condition = find(&closed.conditions, kind)?.clone();
        Some(match kind {
            OPENED_ONCE if condition.status == "True" => condition,
            OPENED_ONCE => Condition { message: String::new(), ..condition },
            _ => Condition {
                message: condition.reason,
                reason: Reason::ObjectFull.name().to_owned(),
                ..condition
            },
        })
    };
    RolloutGateStatus {
        observed_generation: closed.observed_generation,
        epoch: closed.epoch,
        revision: open.revision.clone(),
        fingerprint: open.fingerprint.clone(),
        started_at: open.started_at.clone(),
        verdict_since: open.verdict_since.as_ref().and(closed.verdict_since.clone()),
        outcome_since: open.outcome_since.as_ref().and(closed.outcome_since.clone()),
        tenancy: open.tenancy.clone(),
        // Else they would be fixed anew, without those that have left.
        members: open.members.clone(),
        conditions: [READY, OPEN, OPENED_ONCE].into_iter().filter_map(condition).collect(),
        ..RolloutGateStatus::default()
    }
}

//! What becomes of a gate when the aggregator is silent.

use super::conditions::{Conditions, OPEN, READY, RECONCILING, SUCCEEDED, find, is_true};
use super::rollout_gate::holds;
use super::{Moment, time};
use crate::api::Reason;
use crate::api::rollout_gate::{OverrideState, RolloutGateSpec, RolloutGateStatus, Waiting};
use crate::clock::Seconds;

/// The status that closes a gate because nobody watches over it, or `None` when it is closed
/// already or a person's word keeps it open.
pub fn close(
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
    let message = "the aggregator has stopped giving signs of life".to_owned();
    // What this status answers does not change: a generation that was not judged stays unjudged.
    let generation = status.observed_generation.unwrap_or(-1);
    let mut conditions = Conditions::new(generation, Moment { t: now, now }, &status.conditions);
    conditions.set(READY, false, Reason::AggregatorSilent, message.clone());
    conditions.set(OPEN, false, Reason::AggregatorSilent, message.clone());
    if let Some(succeeded) = find(&status.conditions, SUCCEEDED) {
        conditions.keep(succeeded.clone());
    }
    conditions.set(RECONCILING, true, Reason::AggregatorSilent, message.clone());
    Some(RolloutGateStatus {
        since: Some(time(now)),
        waiting_for: vec![Waiting {
            reason: Reason::AggregatorSilent.name().to_owned(),
            message,
            count: 0,
            clusters: Vec::new(),
        }],
        conditions: conditions.finish(),
        ..status.clone()
    })
}

//! What gates and FleetRollouts count as in the metrics, by their statuses.

use statusbridge_api::conditions::{OPEN, READY, STALLED, find, is_true};
use statusbridge_api::{FleetRolloutStatus, Reason, RolloutGateStatus};

use crate::metrics::{GateState, RolloutState};

/// What a gate is.
pub(super) fn gate_state(status: Option<&RolloutGateStatus>) -> GateState {
    let Some(status) = status else { return GateState::Closed };
    let by_hand = find(&status.conditions, OPEN).is_some_and(|open| open.reason == Reason::Overridden.name());
    match () {
        () if by_hand => GateState::Overridden,
        () if status.says_open() => GateState::Open,
        () if is_true(&status.conditions, STALLED) => GateState::Stalled,
        () => GateState::Closed,
    }
}

/// How far a FleetRollout is.
pub(super) fn rollout_state(status: Option<&FleetRolloutStatus>) -> RolloutState {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let held = [Reason::GatePaused, Reason::OutsideWindow, Reason::Frozen, Reason::FreezesUnavailable];
    let waits_for = |reasons: &[Reason]| {
        let ready = find(conditions, READY);
        ready.is_some_and(|ready| reasons.iter().any(|reason| ready.reason == reason.name()))
    };
    match () {
        () if is_true(conditions, STALLED) => RolloutState::Stalled,
        () if is_true(conditions, READY) => RolloutState::RolledOut,
        () if waits_for(&held) => RolloutState::Held,
        () if waits_for(&[Reason::NotWritten]) => RolloutState::NotWritten,
        () => RolloutState::RollingOut,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::not_judged_yet(None, "", RolloutState::RollingOut)]
    #[case::on_its_way(Some("RollingOut"), "Reconciling", RolloutState::RollingOut)]
    #[case::nobody_to_admit(Some("NoTargets"), "Reconciling", RolloutState::RollingOut)]
    #[case::done(Some("RolledOut"), "", RolloutState::RolledOut)]
    #[case::paused(Some("GatePaused"), "Reconciling", RolloutState::Held)]
    #[case::at_night(Some("OutsideWindow"), "Reconciling", RolloutState::Held)]
    #[case::frozen(Some("Frozen"), "Reconciling", RolloutState::Held)]
    #[case::perhaps_frozen(Some("FreezesUnavailable"), "Reconciling", RolloutState::Held)]
    #[case::over_quota(Some("NotWritten"), "Reconciling", RolloutState::NotWritten)]
    #[case::failed(Some("WaveFailed"), "Stalled", RolloutState::Stalled)]
    #[case::another_one_is_older(Some("OtherRollout"), "Stalled", RolloutState::Stalled)]
    fn what_a_rollout_counts_as(
        #[case] reason: Option<&str>,
        #[case] besides: &str,
        #[case] expected: RolloutState,
    ) {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = reason.map(|reason| {
            let ready = if reason == "RolledOut" { "True" } else { "False" };
            let mut all = vec![condition("Ready", ready, reason)];
            if !besides.is_empty() {
                all.push(condition(besides, "True", reason));
            }
            serde_json::from_value(json!({"conditions": all})).unwrap()
        });
        assert_eq!(rollout_state(status.as_ref()), expected);
    }
}

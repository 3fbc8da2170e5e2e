//! What makes a status not to be relied upon at present.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_api::Reason;
use statusbridge_api::conditions::{OPEN, find};
use statusbridge_api::rollout_gate::RolloutGateStatus;
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::slices::Slice;
use statusbridge_core::time::Seconds;

use super::read::Heartbeat;
use crate::text::span;

/// How far ahead evidence may lie before the clocks are said to differ.
const AHEAD: Seconds = 60.0;

/// Why the status is not to be relied upon; empty when nothing speaks against it.
pub(super) fn of_status(
    generation: i64,
    status: &RolloutGateStatus,
    stale_after: Option<Seconds>,
    now: Seconds,
) -> Vec<String> {
    let mut doubts = Vec::new();
    match status.observed_generation {
        None | Some(..=-1) => doubts.push("the aggregator has not looked at this object yet".to_owned()),
        Some(observed) if observed != generation => doubts.push(format!(
            "the status answers generation {observed} of the spec, which is at generation {generation}"
        )),
        Some(_) => {}
    }
    let verdict = find(&status.conditions, OPEN);
    let by_hand = verdict.is_some_and(|it| it.reason == Reason::Overridden.name());
    match (&status.as_of, verdict) {
        (Some(as_of), _) => doubts.extend(of_age("the evidence", as_of, stale_after, now)),
        (None, Some(verdict)) if verdict.status == "True" && !by_hand => {
            doubts.push("it rests on no fresh, verified evidence".to_owned());
        }
        (None, _) => {}
    }
    doubts
}

fn of_age(what: &str, as_of: &Time, stale_after: Option<Seconds>, now: Seconds) -> Option<String> {
    let age = now - unix(as_of);
    match stale_after {
        Some(stale_after) if age > stale_after => {
            Some(format!("{what} is {} old, staleAfter is {}", span(age), span(stale_after)))
        }
        _ if age < -AHEAD => {
            Some(format!("{what} lies {} ahead: this machine's clock differs from the hub's", span(-age)))
        }
        _ => None,
    }
}

/// Why the aggregator may not be keeping the status up to date.
pub(super) fn of_heartbeat(heartbeat: &Heartbeat, now: Seconds) -> Option<String> {
    match heartbeat {
        Heartbeat::Renewed(at, seconds) => {
            let age = now - unix(&Time(*at));
            (age > f64::from(*seconds)).then(|| {
                format!(
                    "the aggregator's heartbeat is {} old and should be renewed every {}: nothing here is kept up to date",
                    span(age),
                    span(f64::from(*seconds))
                )
            })
        }
        Heartbeat::Never => Some("there is no heartbeat of an aggregator".to_owned()),
        Heartbeat::Unreadable(error) => {
            Some(format!("the aggregator's heartbeat could not be read: {error}"))
        }
    }
}

/// Why the rows may not be those of the present; one line for all slices of a kind.
pub(super) fn of_slices(
    slices: &[Slice],
    generation: i64,
    stale_after: Option<Seconds>,
    now: Seconds,
) -> Vec<String> {
    let contents = || slices.iter().filter_map(|slice| slice.content.as_ref());
    let mut doubts = Vec::new();
    let behind = contents().filter(|it| it.fleet_package_generation != generation).count();
    if behind > 0 {
        doubts.push(format!(
            "{behind} of {} slices answer another generation than the FleetPackage's {generation}",
            slices.len()
        ));
    }
    let oldest = contents().filter_map(|it| it.as_of.as_ref()).min_by_key(|as_of| as_of.0);
    doubts.extend(oldest.and_then(|as_of| of_age("the evidence of a slice", as_of, stale_after, now)));
    let unreadable = slices.len() - contents().count();
    if unreadable > 0 {
        doubts.push(format!("{unreadable} of {} slices cannot be read", slices.len()));
    }
    doubts
}

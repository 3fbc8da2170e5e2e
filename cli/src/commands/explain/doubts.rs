//! What makes a status not to be relied upon at present.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use statusbridge_core::decide::unix;
use statusbridge_core::reconcile::gate_verdict::{GateVerdict, State};
use statusbridge_core::reconcile::slices::Slice;
use statusbridge_core::time::Seconds;

use super::read::Heartbeat;
use crate::text::span;

/// Why what was read of an object is not to be relied upon, if it is not.
pub(super) fn of_reading(reading: &GateVerdict) -> Option<String> {
    match reading.state {
        State::NotJudged | State::Stale => Some(reading.message.clone()),
        _ if reading.is_silent(0.0) => Some("nobody keeps the status up to date".to_owned()),
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
    let age = oldest.map(|as_of| now - unix(as_of));
    if let Some((age, limit)) = age.zip(stale_after).filter(|(age, limit)| age > limit) {
        doubts.push(format!("the evidence of a slice is {} old, staleAfter is {}", span(age), span(limit)));
    }
    let unreadable = slices.len() - contents().count();
    if unreadable > 0 {
        doubts.push(format!("{unreadable} of {} slices cannot be read", slices.len()));
    }
    doubts
}

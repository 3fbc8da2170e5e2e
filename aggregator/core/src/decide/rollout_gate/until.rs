//! Until when a verdict holds while nothing is heard.

use statusbridge_api::{RolloutGateSpec, common};

use super::{Input, own_terms, started_at};
use crate::decide::classify::unobserved;
use crate::decide::{Moment, unix};
use crate::time::Seconds;

/// What two ways of adding up times may differ by.
const ROUNDING: Seconds = 0.001;

/// The times, by either clock, before which a gate's verdict is the same whatever time it is, as long as all that it
/// rests on is the same and no evidence grows too old: the end of a soak, of the time to reach the revision, of an
/// override, of an excuse, of a window, of a freeze; or when the clock, which was set back, reaches the gate's beginning again.
pub(crate) fn holds_until(input: &Input<'_>, spec: &RolloutGateSpec) -> Moment {
    let seconds = |text: &Option<String>| text.as_deref().and_then(|text| common::seconds(text).ok());
    let soak = seconds(&spec.terms.min_success_time).filter(|soak| *soak > 0.0).map(|soak| {
        let rows = input.targets.iter().filter_map(|it| Some((it, unobserved(&it.observation).ok()?)));
        let ends = rows.filter_map(|(target, row)| {
            let begin =
                target.observation.as_of.map_or(Seconds::NEG_INFINITY, |at| at.min(input.moment.t)) - soak;
            Some(row.since).filter(|at| *at > begin).map(|at| at + soak - ROUNDING)
        });
        ends.fold(Seconds::INFINITY, Seconds::min)
    });
    let deadline =
        seconds(&spec.terms.progress_deadline).map(|longest| unix(&started_at(input, spec)) + longest);
    let word = spec.override_.as_ref().and_then(|word| word.until.as_ref()).map(unix);
    // What has ended has ended.
    let excused = input.excused.until();
    let hold = own_terms::hold(input, spec).ok().map(|hold| hold.holds_until);
    // Until the clock gets there, `started_at` takes this time for one that a wrong clock gave.
    let began = input.previous.and_then(|status| status.started_at.as_ref()).map(unix);
    let began = began.filter(|at| *at > input.moment.now);
    let to_come =
        [deadline, word, hold, began].into_iter().flatten().filter(|at| *at > input.moment.now - ROUNDING);
    Moment {
        t: soak.unwrap_or(Seconds::INFINITY),
        now: to_come.map(|at| at - ROUNDING).fold(excused, Seconds::min),
    }
}

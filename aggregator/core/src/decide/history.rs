//! Which revisions were wanted, and how far each came.

use statusbridge_api::fleet_package::HistoryEntry;
use statusbridge_contract::Fingerprint;

use super::{Moment, time};

/// Most entries.
const MOST_ENTRIES: usize = 10;

/// How far all targets together have come with the wanted revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Every target has applied it.
    pub applied: bool,
    /// The package is Ready at it.
    pub healthy: bool,
}

/// The history that follows, newest first. A revision that is wanted again after another one starts
/// anew; without a wanted revision nothing is added.
pub fn next(
    previous: Vec<HistoryEntry>,
    wanted: Option<&str>,
    reached: Reached,
    moment: Moment,
) -> Vec<HistoryEntry> {
    let mut history = previous;
    let Some(wanted) = wanted else { return history };
    let mark = Fingerprint::of(wanted);
    if history.first().is_none_or(|newest| Fingerprint::of(&newest.revision) != mark) {
        let started_at = time(moment.now);
        let revision = wanted.to_owned();
        history.insert(0, HistoryEntry { revision, started_at, applied_at: None, healthy_at: None });
        history.truncate(MOST_ENTRIES);
    }
    if let Some(newest) = history.first_mut() {
        // The same revision may be said in other words.
        newest.revision = wanted.to_owned();
        let reach = |at: &mut Option<_>, reached: bool| {
            if reached && at.is_none() {
                *at = Some(time(moment.now));
            }
        };
        reach(&mut newest.applied_at, reached.applied || reached.healthy);
        reach(&mut newest.healthy_at, reached.healthy);
    }
    history
}

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
    /// A target that was told to run it has failed.
    pub failed: bool,
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
        let (applied_at, healthy_at, failed_at, restored_at) = (None, None, None, None);
        history
            .insert(0, HistoryEntry { revision, started_at, applied_at, healthy_at, failed_at, restored_at });
        history.truncate(MOST_ENTRIES);
    }
    let reach = |at: &mut Option<_>, reached: bool| {
        if reached && at.is_none() {
            *at = Some(time(moment.now));
        }
    };
    if let Some(newest) = history.first_mut() {
        // The same revision may be said in other words.
        newest.revision = wanted.to_owned();
        reach(&mut newest.applied_at, reached.applied || reached.healthy);
        reach(&mut newest.healthy_at, reached.healthy);
        reach(&mut newest.failed_at, reached.failed);
    }
    // Whichever revision it is healthy at now, what failed before is over.
    for failed in history.iter_mut().filter(|entry| entry.failed_at.is_some()) {
        reach(&mut failed.restored_at, reached.healthy);
    }
    history
}

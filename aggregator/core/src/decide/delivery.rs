//! What has happened to rollouts between two versions of a FleetPackage's history: what delivery is measured by.

use statusbridge_api::fleet_package::HistoryEntry;
use statusbridge_contract::Fingerprint;

use super::unix;
use crate::time::Seconds;

/// Something that happens to a revision once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// It became healthy everywhere, so long after it was first wanted.
    Deployed(Seconds),
    /// A cluster failed at it.
    Failed,
    /// The package was Ready again, so long after that failure, at this revision or another.
    Restored(Seconds),
}

/// What `after` tells that `before` does not, oldest revision first.
///
/// Both are histories that stood in the hub, one after the other, so no step is found twice, however often a history is
/// read. A revision that is healthy everywhere when the first entry of a history is made was deployed before anybody looked:
/// that is no deployment. A history that begins anew, as when tenants are configured, tells nothing new of its revision.
pub fn steps(before: &[HistoryEntry], after: &[HistoryEntry]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (place, entry) in after.iter().enumerate().rev() {
        let exact = before.iter().find(|known| is_same(known, entry));
        let is_first = exact.is_none() && place + 1 == after.len();
        let known =
            exact.or_else(|| before.first().filter(|it| is_first && place == 0 && says_same(it, entry)));
        let ran_before = is_first && entry.healthy_at.as_ref() == Some(&entry.started_at);
        let since_then = |at: &_, from: &_| (unix(at) - unix(from)).max(0.0);
        if let (Some(at), None) = (&entry.healthy_at, known.and_then(|it| it.healthy_at.as_ref()))
            && !ran_before
        {
            steps.push(Step::Deployed(since_then(at, &entry.started_at)));
        }
        if entry.failed_at.is_some() && known.is_none_or(|it| it.failed_at.is_none()) {
            steps.push(Step::Failed);
        }
        if let (Some(failed), Some(at), None) =
            (&entry.failed_at, &entry.restored_at, known.and_then(|it| it.restored_at.as_ref()))
        {
            steps.push(Step::Restored(since_then(at, failed)));
        }
    }
    steps
}

/// Whether both tell of the same time that a revision was wanted.
fn is_same(one: &HistoryEntry, other: &HistoryEntry) -> bool {
    one.started_at == other.started_at && says_same(one, other)
}

/// Whether both are about the same revision; it may be said in other words.
fn says_same(one: &HistoryEntry, other: &HistoryEntry) -> bool {
    let revision = |entry: &HistoryEntry| Fingerprint::of(&entry.revision);
    revision(one) == revision(other)
}

#[cfg(test)]
mod tests {
    use super::super::time;
    use super::*;
    use rstest::rstest;

    /// An entry for `revision` with its times: wanted, healthy, failed, restored.
    fn entry(revision: &str, started: f64, [healthy, failed, restored]: [f64; 3]) -> HistoryEntry {
        let at = |at: f64| (at > 0.0).then(|| time(at));
        HistoryEntry {
            revision: revision.to_owned(),
            started_at: time(started),
            applied_at: None,
            healthy_at: at(healthy),
            failed_at: at(failed),
            restored_at: at(restored),
        }
    }

    const NEVER: [f64; 3] = [0.0; 3];

    #[rstest]
    #[case::nothing(vec![], vec![], vec![])]
    #[case::only_wanted(vec![], vec![entry("a", 100.0, NEVER)], vec![])]
    #[case::ran_before_anybody_looked(vec![], vec![entry("a", 100.0, [100.0, 0.0, 0.0])], vec![])]
    #[case::deployed(vec![entry("a", 100.0, NEVER)], vec![entry("a", 100.0, [160.0, 0.0, 0.0])], vec![Step::Deployed(60.0)])]
    #[case::deployed_at_once_after_another(
        vec![entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![entry("b", 200.0, [200.0, 0.0, 0.0]), entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![Step::Deployed(0.0)]
    )]
    #[case::the_same_again(vec![entry("a", 100.0, [160.0, 130.0, 160.0])], vec![entry("a", 100.0, [160.0, 130.0, 160.0])], vec![])]
    #[case::wanted_again(
        vec![entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![entry("a", 300.0, [310.0, 0.0, 0.0]), entry("b", 200.0, NEVER), entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![Step::Deployed(10.0)]
    )]
    #[case::failed(vec![entry("a", 100.0, NEVER)], vec![entry("a", 100.0, [0.0, 130.0, 0.0])], vec![Step::Failed])]
    #[case::restored_by_itself(
        vec![entry("a", 100.0, [0.0, 130.0, 0.0])],
        vec![entry("a", 100.0, [160.0, 130.0, 160.0])],
        vec![Step::Deployed(60.0), Step::Restored(30.0)]
    )]
    #[case::restored_by_the_next(
        vec![entry("b", 200.0, NEVER), entry("a", 100.0, [0.0, 130.0, 0.0])],
        vec![entry("b", 200.0, [240.0, 0.0, 0.0]), entry("a", 100.0, [0.0, 130.0, 240.0])],
        vec![Step::Restored(110.0), Step::Deployed(40.0)]
    )]
    #[case::a_clock_that_was_set_back(
        vec![entry("a", 100.0, NEVER)],
        vec![entry("a", 100.0, [40.0, 0.0, 0.0])],
        vec![Step::Deployed(0.0)]
    )]
    #[case::in_other_words(
        vec![entry("main@sha1:1111111111111111111111111111111111111111", 100.0, [160.0, 0.0, 0.0])],
        vec![entry("111111111111", 100.0, [160.0, 0.0, 0.0])],
        vec![]
    )]
    #[case::a_history_that_begins_anew(
        vec![entry("b", 200.0, [240.0, 210.0, 240.0]), entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![entry("b", 900.0, [900.0, 900.0, 900.0])],
        vec![]
    )]
    #[case::one_that_begins_anew_with_another_revision(
        vec![entry("a", 100.0, [160.0, 0.0, 0.0])],
        vec![entry("b", 200.0, [240.0, 0.0, 0.0])],
        vec![Step::Deployed(40.0)]
    )]
    #[case::what_falls_off_the_end(vec![entry("b", 200.0, NEVER), entry("a", 100.0, NEVER)], vec![entry("b", 200.0, NEVER)], vec![])]
    fn a_step_is_what_the_later_history_tells_and_the_earlier_does_not(
        #[case] before: Vec<HistoryEntry>,
        #[case] after: Vec<HistoryEntry>,
        #[case] found: Vec<Step>,
    ) {
        assert_eq!(steps(&before, &after), found);
        assert_eq!(steps(&after, &after), [], "read anew");
    }
}

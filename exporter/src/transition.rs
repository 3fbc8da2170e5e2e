//! When a package's state changed, and how often this process saw it change.

use crate::verdict::Verdict;

/// A verdict with its history, as the metrics show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The state of the package.
    pub verdict: Verdict,
    /// When apply state, health or healthy revision last changed, in unix seconds.
    pub transition_timestamp: i64,
    /// How many such changes this process saw; finding a package is none.
    pub transitions: u64,
}

/// Folds the next verdict into what is shown; the flag says whether it is a transition, which the
/// first one is too (it is worth a log line, though it counts as no change).
///
/// The time is the object's own where it can be true: not in the future, and after the previous
/// transition, which was seen to happen. Else it is `now` (unix seconds). It stays put
/// while nothing changes, whatever the object says by then.
pub fn advance(previous: Option<&Shown>, verdict: Verdict, now: i64) -> (Shown, bool) {
    let Some(previous) = previous else {
        let transition_timestamp = verdict.since.map_or(now, |since| since.min(now));
        return (Shown { verdict, transition_timestamp, transitions: 0 }, true);
    };
    let (old, new) = (&previous.verdict, &verdict);
    if old.apply == new.apply && old.health == new.health && old.healthy == new.healthy {
        let shown = Shown {
            verdict,
            transition_timestamp: previous.transition_timestamp,
            transitions: previous.transitions,
        };
        return (shown, false);
    }
    let transition_timestamp =
        verdict.since.filter(|since| previous.transition_timestamp < *since && *since <= now).unwrap_or(now);
    (Shown { verdict, transition_timestamp, transitions: previous.transitions + 1 }, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statusbridge_contract::{ApplyState, Fingerprint, Health};

    use super::*;

    fn verdict(apply: ApplyState, since: Option<i64>) -> Verdict {
        let good = apply == ApplyState::Applied;
        Verdict {
            apply,
            health: if good { Health::Current } else { Health::Unknown },
            desired: Fingerprint::of("r1"),
            applied: Fingerprint::of("r1"),
            healthy: if good { Fingerprint::of("r1") } else { Fingerprint::NONE },
            reason: None,
            since,
            inventory: None,
        }
    }

    #[test]
    fn the_first_sight_takes_the_objects_time_and_counts_nothing() {
        let (shown, changed) = advance(None, verdict(ApplyState::Applied, Some(70)), 100);
        assert_eq!((shown.transition_timestamp, shown.transitions, changed), (70, 0, true));
        let (shown, _) = advance(None, verdict(ApplyState::Applied, None), 100);
        assert_eq!(shown.transition_timestamp, 100);
    }

    #[test]
    fn a_time_in_the_future_is_not_believed() {
        let (shown, _) = advance(None, verdict(ApplyState::Applied, Some(999)), 100);
        assert_eq!(shown.transition_timestamp, 100);
        let (shown, _) = advance(Some(&shown), verdict(ApplyState::Failed, Some(999)), 120);
        assert_eq!(shown.transition_timestamp, 120);
    }

    #[test]
    fn nothing_changed_keeps_time_and_count_and_takes_the_rest() {
        let (first, _) = advance(None, verdict(ApplyState::Applied, None), 100);
        let mut next = verdict(ApplyState::Applied, Some(40));
        next.desired = Fingerprint::of("r2");
        let (shown, changed) = advance(Some(&first), next, 160);
        assert!(!changed);
        assert_eq!((shown.transition_timestamp, shown.transitions), (100, 0));
        assert_eq!(shown.verdict.desired, Fingerprint::of("r2"));
    }

    #[test]
    fn a_new_healthy_revision_alone_is_a_transition() {
        let (first, _) = advance(None, verdict(ApplyState::Applied, None), 100);
        let mut next = verdict(ApplyState::Applied, Some(150));
        next.healthy = Fingerprint::of("r2");
        let (shown, changed) = advance(Some(&first), next, 160);
        assert!(changed);
        assert_eq!((shown.transition_timestamp, shown.transitions), (150, 1));
    }

    #[test]
    fn a_time_up_to_a_transition_that_was_seen_is_not_believed() {
        let (failed, _) = advance(None, verdict(ApplyState::Failed, None), 100);
        for since in [40, 100] {
            let (shown, _) = advance(Some(&failed), verdict(ApplyState::Applied, Some(since)), 160);
            assert_eq!(shown.transition_timestamp, 160);
        }
    }

    proptest! {
        #[test]
        fn time_never_goes_back_nor_ahead_and_counts_every_change(
            looks in proptest::collection::vec((0usize..7, proptest::option::of(0i64..2000), 1i64..50), 1..40)
        ) {
            let (mut now, mut shown): (i64, Option<Shown>) = (1000, None);
            for (state, since, step) in looks {
                now += step;
                let next = verdict(ApplyState::ALL[state], since);
                let differs = shown.as_ref().is_some_and(|s| s.verdict.apply != next.apply);
                let (after, changed) = advance(shown.as_ref(), next, now);
                prop_assert!(after.transition_timestamp <= now);
                if let Some(before) = &shown {
                    prop_assert!(after.transition_timestamp >= before.transition_timestamp);
                    prop_assert_eq!(changed, differs);
                    prop_assert_eq!(after.transitions, before.transitions + u64::from(differs));
                }
                shown = Some(after);
            }
        }
    }
}

//! Keeping a verdict while a controller looks again at what it already decided.
//!
//! Controllers re-reconcile unchanged packages on a timer and retry failing ones; in between, their
//! conditions say "unknown, progressing". Read naively, every timer would be a transition and a
//! failing package would flap for ever. So while an object is undecided about the very thing that
//! the last verdict was made about (the same [`HoldKey`]), that verdict stays: a failed one until it
//! is decided anew, any other for 30 seconds at most. An old verdict never covers something else (a new
//! revision, a new generation).

use crate::source::{Evaluation, HoldKey, Verdict};

/// How long a verdict that is not a failure is kept while its object is undecided, in milliseconds.
pub(crate) const HOLD_MILLIS: i64 = 30_000;

/// What is shown of a package after the hold, and what the next look needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The verdict to show.
    pub shown: Verdict,
    /// When to call [`expire`], in unix milliseconds; `None` when nothing waits.
    pub until: Option<i64>,
    /// What the shown verdict was decided about; `None` when it was not decided.
    basis: Option<HoldKey>,
    /// The verdict that the object itself has, while another one is shown.
    pending: Option<Box<Verdict>>,
}

impl Settled {
    /// Whether an earlier verdict is shown in place of the object's own.
    pub(crate) fn held(&self) -> bool {
        self.pending.is_some()
    }
}

/// Folds the next look at an object into what is shown; `now` in unix milliseconds.
pub(crate) fn settle(previous: Option<&Settled>, next: Evaluation, now: i64) -> Settled {
    let Some(hold) = next.hold else {
        return plain(next.verdict, None);
    };
    if !hold.undecided {
        return plain(next.verdict, Some(hold.key));
    }
    match previous {
        Some(p) if p.basis == Some(hold.key) && p.until.is_none_or(|until| now < until) => {
            let until = if p.shown.failed() { None } else { p.until.or(Some(now + HOLD_MILLIS)) };
            let shown = Verdict { desired: next.verdict.desired, ..p.shown.clone() };
            Settled { shown, until, basis: p.basis, pending: Some(Box::new(next.verdict)) }
        }
        _ => plain(next.verdict, None),
    }
}

/// The state after a hold has run out at `now` (unix milliseconds); `None` when it has not.
pub(crate) fn expire(settled: &Settled, now: i64) -> Option<Settled> {
    match (settled.until, &settled.pending) {
        (Some(until), Some(pending)) if until <= now => Some(plain((**pending).clone(), None)),
        _ => None,
    }
}

fn plain(shown: Verdict, basis: Option<HoldKey>) -> Settled {
    Settled { shown, until: None, basis, pending: None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statusbridge_contract::{ApplyState, Fingerprint, Health};

    use super::*;
    use crate::source::{Detail, Hold};

    fn look(apply: ApplyState, revision: u64, undecided: bool) -> Evaluation {
        let health = match apply {
            ApplyState::Applied => Health::Current,
            ApplyState::Failed => Health::Unknown,
            _ => Health::InProgress,
        };
        let applied = Fingerprint::of(&format!("r{revision}"));
        let verdict = Verdict {
            apply,
            health,
            desired: applied,
            applied,
            healthy: if apply == ApplyState::Applied { applied } else { Fingerprint::NONE },
            reason: None,
            since: None,
            resources: None,
        };
        let hold = Some(Hold { undecided, key: HoldKey(revision) });
        Evaluation { verdict, detail: Detail::default(), hold, again: None, error: None }
    }

    const GOOD: ApplyState = ApplyState::Applied;
    const BAD: ApplyState = ApplyState::Failed;
    const BUSY: ApplyState = ApplyState::Applying;

    #[test]
    fn a_routine_check_keeps_a_good_verdict_for_thirty_seconds() {
        let good = settle(None, look(GOOD, 1, false), 0);
        let held = settle(Some(&good), look(BUSY, 1, true), 1_000);
        assert_eq!((held.shown.apply, held.until), (GOOD, Some(31_000)));
        // More of the same does not prolong it.
        let held = settle(Some(&held), look(BUSY, 1, true), 20_000);
        assert_eq!((held.shown.apply, held.until), (GOOD, Some(31_000)));
        assert_eq!(expire(&held, 30_999), None);
        let expired = expire(&held, 31_000).expect("the hold has run out");
        assert_eq!((expired.shown.apply, expired.until), (BUSY, None));
        // Once shown as busy it stays so until it is decided.
        let busy = settle(Some(&expired), look(BUSY, 1, true), 32_000);
        assert_eq!(busy.shown.apply, BUSY);
        assert_eq!(settle(Some(&busy), look(GOOD, 1, false), 33_000).shown.apply, GOOD);
    }

    #[test]
    fn a_hold_that_nobody_expired_runs_out_all_the_same() {
        let good = settle(None, look(GOOD, 1, false), 0);
        let held = settle(Some(&good), look(BUSY, 1, true), 0);
        assert_eq!(settle(Some(&held), look(BUSY, 1, true), 30_000).shown.apply, BUSY);
    }

    #[test]
    fn a_decision_ends_the_hold_and_a_later_one_starts_afresh() {
        let good = settle(None, look(GOOD, 1, false), 0);
        let held = settle(Some(&good), look(BUSY, 1, true), 1_000);
        let good = settle(Some(&held), look(GOOD, 1, false), 2_000);
        assert!(!good.held());
        assert_eq!(settle(Some(&good), look(BUSY, 1, true), 60_000).until, Some(90_000));
    }

    #[test]
    fn a_failed_verdict_stays_through_its_retries_however_long() {
        let bad = settle(None, look(BAD, 1, false), 0);
        let held = settle(Some(&bad), look(BUSY, 1, true), 1_000);
        assert_eq!((held.shown.apply, held.until), (BAD, None));
        let held = settle(Some(&held), look(BUSY, 1, true), 9_000_000);
        assert_eq!(held.shown.apply, BAD);
        assert_eq!(expire(&held, i64::MAX), None);
        assert_eq!(settle(Some(&held), look(GOOD, 1, false), 9_000_001).shown.apply, GOOD);
    }

    #[test]
    fn a_new_revision_is_never_covered_by_an_old_verdict() {
        for old in [GOOD, BAD] {
            let decided = settle(None, look(old, 1, false), 0);
            assert_eq!(settle(Some(&decided), look(BUSY, 2, true), 1).shown.apply, BUSY);
            // Not even when it had already been held for the old one.
            let held = settle(Some(&decided), look(BUSY, 1, true), 1);
            assert_eq!(settle(Some(&held), look(BUSY, 2, true), 2).shown.apply, BUSY);
        }
    }

    #[test]
    fn the_wanted_revision_is_always_the_newest() {
        let good = settle(None, look(GOOD, 1, false), 0);
        let mut next = look(BUSY, 1, true);
        next.verdict.desired = Fingerprint::of("r2");
        assert_eq!(settle(Some(&good), next, 1).shown.desired, Fingerprint::of("r2"));
    }

    #[test]
    fn a_source_without_hold_and_a_failed_evaluation_show_at_once() {
        let good = settle(None, look(GOOD, 1, false), 0);
        let mut next = look(ApplyState::Unknown, 1, true);
        next.hold = None;
        let unknown = settle(Some(&good), next, 1);
        assert_eq!(unknown.shown.apply, ApplyState::Unknown);
        assert_eq!(settle(Some(&unknown), look(BUSY, 1, true), 2).shown.apply, BUSY);
    }

    proptest! {
        #[test]
        fn healthy_is_only_shown_of_what_was_decided_healthy_with_the_same_key_and_lately(
            looks in proptest::collection::vec((0usize..3, 1u64..3, any::<bool>(), 0i64..20_000), 1..60)
        ) {
            let (mut now, mut settled, mut decided): (i64, Option<Settled>, Option<(u64, ApplyState)>) = (0, None, None);
            let mut undecided_since = None;
            for (state, revision, undecided, step) in looks {
                now += step;
                let apply = if undecided { BUSY } else { [GOOD, BAD, BUSY][state] };
                if undecided {
                    undecided_since = undecided_since.or(Some(now));
                } else {
                    decided = Some((revision, apply));
                    undecided_since = None;
                }
                let after = settle(settled.as_ref(), look(apply, revision, undecided), now);
                if after.shown.good() {
                    prop_assert_eq!(decided, Some((revision, GOOD)));
                    prop_assert!(undecided_since.is_none_or(|since| now - since < HOLD_MILLIS));
                }
                settled = Some(after);
            }
        }
    }
}

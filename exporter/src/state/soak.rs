//! Since when the exporter vouches for what it shows of a package.
//!
//! The time is a promise: from then on every version of everything that the verdict rests on was seen, and apply
//! state, health and revisions were all the time what they are now. It is kept by the `run` clock (see
//! `clock`), in milliseconds.

use serde_json::Value;

use crate::source::Verdict;

/// A verdict, and since when it is vouched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The state of the package.
    pub verdict: Verdict,
    /// Since when the exporter vouches for it, in milliseconds by the `run` clock.
    pub since: i64,
}

/// How an exporter came to know what is to be shown now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It saw every version since the last verdict.
    Watched,
    /// It may have missed versions: this is the first sight, or something that the verdict rests on is not what it was
    /// before a gap.
    Anew,
}

/// Folds the next verdict into what is shown; the flag says whether that is news to people ([`is_news`]), as the first
/// verdict is.
///
/// With every version seen, the time moves to `now` exactly when apply state, health or a revision changed. Else it is `own`, the time that
/// the object itself gives (see [`own`]), or `now` without one. No such time reaches back to what was seen to be
/// otherwise.
pub(crate) fn advance(
    previous: Option<&Shown>,
    verdict: Verdict,
    known: Known,
    own: Option<i64>,
    now: i64,
) -> (Shown, bool) {
    let Some(previous) = previous else {
        return (Shown { verdict, since: own.unwrap_or(now).min(now) }, true);
    };
    let promised = |v: &Verdict| (v.apply, v.health, v.desired, v.applied, v.healthy);
    let changed = promised(&previous.verdict) != promised(&verdict);
    let since = match known {
        _ if changed => now,
        Known::Watched => previous.since,
        Known::Anew => own.unwrap_or(now).max(previous.since).min(now),
    };
    let news = is_news(&previous.verdict, &verdict);
    (Shown { verdict, since }, news)
}

/// Whether a verdict differs from the one before in state or healthy revision: then it is a transition to people, and
/// has a line in the log.
pub(crate) fn is_news(before: &Verdict, after: &Verdict) -> bool {
    let state = |v: &Verdict| (v.apply, v.health, v.healthy);
    state(before) != state(after)
}

/// The moment (in milliseconds by the `run` clock) since when an object says that it is in its state: `since` in unix
/// seconds, by the clock of the API server, which is ahead of `run` by at least `server` milliseconds.
///
/// It is never before the object's creation: a status may have been copied from an earlier one. Rounded so that the age
/// is never overstated. `None` where the object, or the server, gives no time.
pub(crate) fn own(object: &Value, since: Option<i64>, server: Option<i64>) -> Option<i64> {
    let created = object.get("metadata")?.get("creationTimestamp")?.as_str()?;
    let created: jiff::Timestamp = created.parse().ok()?;
    let second = since?.max(created.as_second());
    // Whole seconds were cut off: it may have been as late as the end of this one.
    Some((second + 1) * 1000 - server?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;
    use statusbridge_contract::{ApplyState, Fingerprint, Health};

    use super::*;

    fn verdict(apply: ApplyState) -> Verdict {
        let good = apply == ApplyState::Applied;
        Verdict {
            apply,
            health: if good { Health::Current } else { Health::Unknown },
            desired: Fingerprint::of("r1"),
            applied: Fingerprint::of("r1"),
            healthy: if good { Fingerprint::of("r1") } else { Fingerprint::NONE },
            reason: None,
            since: None,
            resources: None,
        }
    }

    fn good() -> Verdict {
        verdict(ApplyState::Applied)
    }

    #[rstest]
    #[case::without_a_time_of_its_own(None, None, 100)]
    #[case::with_one(None, Some(70), 70)]
    #[case::in_the_future(None, Some(999), 100)]
    #[case::after_a_gap(Some(60), None, 100)]
    #[case::after_a_gap_with_a_time_of_its_own(Some(60), Some(70), 70)]
    #[case::which_what_was_seen_gives_the_lie(Some(60), Some(40), 60)]
    fn what_was_not_watched_is_vouched_for_since_now_or_since_the_object_says(
        #[case] shown: Option<i64>,
        #[case] own: Option<i64>,
        #[case] since: i64,
    ) {
        let previous = shown.map(|since| Shown { verdict: good(), since });
        let (shown, _) = advance(previous.as_ref(), good(), Known::Anew, own, 100);
        assert_eq!(shown.since, since);
    }

    #[rstest]
    #[case::apply_state(|v: &mut Verdict| v.apply = ApplyState::Applying, true)]
    #[case::health(|v: &mut Verdict| v.health = Health::Failed, true)]
    #[case::desired(|v: &mut Verdict| v.desired = Fingerprint::of("r2"), true)]
    #[case::applied(|v: &mut Verdict| v.applied = Fingerprint::of("r2"), true)]
    #[case::healthy(|v: &mut Verdict| v.healthy = Fingerprint::NONE, true)]
    #[case::reason(|v: &mut Verdict| v.reason = Some("Because".into()), false)]
    #[case::counts(|v: &mut Verdict| v.resources = Some(Default::default()), false)]
    #[case::the_objects_own_time(|v: &mut Verdict| v.since = Some(1), false)]
    #[case::nothing(|_: &mut Verdict| {}, false)]
    fn what_is_watched_moves_the_time_with_every_change_and_with_nothing_else(
        #[case] change: fn(&mut Verdict),
        #[case] moves: bool,
    ) {
        let before = Shown { verdict: good(), since: 50 };
        let mut next = good();
        change(&mut next);
        let (shown, _) = advance(Some(&before), next, Known::Watched, Some(7), 100);
        assert_eq!(shown.since, if moves { 100 } else { 50 });
    }

    #[rstest]
    #[case::its_own(Some("1970-01-01T00:00:10Z"), Some(20), Some(5_000), Some(16_000))]
    #[case::older_than_itself(Some("1970-01-01T00:00:30Z"), Some(20), Some(5_000), Some(26_000))]
    #[case::no_time(Some("1970-01-01T00:00:10Z"), None, Some(5_000), None)]
    #[case::no_clock(Some("1970-01-01T00:00:10Z"), Some(20), None, None)]
    #[case::never_created(None, Some(20), Some(5_000), None)]
    fn an_objects_own_time_is_taken_by_the_servers_clock(
        #[case] created: Option<&str>,
        #[case] since: Option<i64>,
        #[case] server: Option<i64>,
        #[case] expected: Option<i64>,
    ) {
        let object = json!({"metadata": {"creationTimestamp": created}});
        assert_eq!(own(&object, since, server), expected);
    }

    proptest! {
        /// A model that remembers everything: the time is never before the last version that was seen to say something
        /// else, nor before the last gap.
        #[test]
        fn no_time_covers_what_was_seen_to_differ_or_was_not_seen(
            looks in prop::collection::vec((0usize..7, any::<bool>(), prop::option::of(0i64..2000), 1i64..50), 1..40)
        ) {
            let (mut now, mut shown): (i64, Option<Shown>) = (1000, None);
            let mut gap = 0;
            for (state, watched, own, step) in looks {
                now += step;
                let (known, next) = (if watched { Known::Watched } else { Known::Anew }, verdict(ApplyState::ALL[state]));
                let differs = shown.as_ref().is_some_and(|s| s.verdict != next);
                if (!watched || shown.is_none()) && own.is_none() {
                    gap = now;
                }
                let (after, _) = advance(shown.as_ref(), next, known, own, now);
                prop_assert!(after.since <= now && after.since >= gap);
                if differs {
                    prop_assert_eq!(after.since, now);
                }
                if let Some(before) = &shown {
                    prop_assert!(after.since >= before.since);
                    prop_assert!(!watched || differs || after.since == before.since);
                }
                shown = Some(after);
            }
        }
    }
}

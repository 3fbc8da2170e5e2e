//! What is remembered about a package besides what was verified last.

use statusbridge_contract::{Fingerprint, Metric};

use super::offset::Offset;
use crate::{clock::Seconds, verify::Package};

/// Memory of one package in one stream. Times are the backend's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct History {
    /// Applied revision before the present one.
    pub(super) previously_applied: Fingerprint,
    /// When this state was first verified.
    pub(super) changed_at: Seconds,
    /// `since` is not before this: the transitions counter was seen to move, or the state to change,
    /// and the transition timestamp did not move along; or there is no such timestamp to go by.
    pub(super) floor: Seconds,
}

/// Whether both observations come from the same stream, so that counters can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The same stream.
    Same,
    /// Another stream of the same cluster: another exporter process, or another replica.
    Sibling,
}

/// When an exposition came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// Time of the evidence, which a cluster's slow clock makes older.
    pub(super) evidence: Seconds,
    /// When the backend stamped it: what a cluster's clock has no say in.
    pub(super) at: Seconds,
}

fn since(package: &Package) -> u64 {
    package.value(Metric::PackageTransitionTimestamp)
}

/// Whether the package has moved, as far as can be told from what two expositions of it say.
struct Moved {
    /// It is in another state.
    state: bool,
    /// Its counter has moved, of the same process.
    counted: bool,
    /// Another process counts.
    another_process: bool,
}

impl Moved {
    fn between(old: &Package, new: &Package, origin: Origin) -> Self {
        let moves = |p: &Package| p.value(Metric::PackageTransitions);
        let transition = |p: &Package| {
            [Metric::PackageApplyState, Metric::PackageHealth, Metric::PackageHealthyRevision]
                .map(|m| p.value(m))
        };
        Self {
            state: transition(old) != transition(new),
            // A new process under the same name counts from zero: that alone is no move.
            counted: origin == Origin::Same && moves(new) != moves(old) && moves(new) > 0,
            another_process: origin == Origin::Sibling || moves(new) < moves(old),
        }
    }
}

/// Whether more may have happened between two expositions than can be told from them: of several moves the
/// timestamp may show an earlier one than the last, and the counter of a process that was restarted meanwhile
/// does not tell how many there were.
pub(super) fn hides_moves(old: &Package, new: &Package, origin: Origin) -> bool {
    let moved = Moved::between(old, new, origin);
    moved.state || moved.counted || moved.another_process && new.value(Metric::PackageTransitions) > 0
}

impl History {
    /// Of a package that was never seen before.
    pub(super) fn first(package: &Package, seen: Seen) -> Self {
        // Without a time of the cluster's, what was seen is all there is. A clock that is ahead may have been
        // set after it gave the time: nobody was there to notice, so that time is not moved into the past.
        let floor = match since(package) {
            0 => seen.at,
            theirs => (theirs as Seconds).min(seen.at),
        };
        Self { previously_applied: Fingerprint::NONE, changed_at: seen.evidence, floor }
    }

    /// Of a package that was seen before.
    ///
    /// The floor rises when something changed that the transition timestamp does not show. It does
    /// not when a new exporter process counts from zero and says the same state since the same
    /// time: then the object itself says since when, and nothing was missed.
    pub(super) fn next(
        self,
        old: &Package,
        new: &Package,
        seen: Seen,
        offset: Offset,
        origin: Origin,
    ) -> Self {
        let Moved { state: changed, counted, another_process } = Moved::between(old, new, origin);
        let mut floor = self.floor;
        if (changed || counted) && since(new) <= since(old) || another_process && since(new) == 0 {
            floor = floor.max(seen.at);
        } else if since(new) < since(old) {
            // A time that goes back while nothing changed would lengthen a soak.
            floor = floor.max(offset.correct(since(old) as Seconds));
        }
        let (was, is) =
            (old.revision(Metric::PackageAppliedRevision), new.revision(Metric::PackageAppliedRevision));
        Self {
            previously_applied: if was != is && !was.is_none() { was } else { self.previously_applied },
            changed_at: if origin == Origin::Same && old.same_state(new) {
                self.changed_at
            } else {
                seen.evidence
            },
            floor,
        }
    }

    /// Whether the same follows from it for what is known of the package now.
    pub(super) fn says_the_same(self, other: Self) -> bool {
        (self.previously_applied, self.floor) == (other.previously_applied, other.floor)
    }

    /// The cluster's clock was set: what it dated before `at` is not moved into the past by that.
    pub(super) fn clock_set(&mut self, package: &Package, was: Offset, at: Seconds) {
        if since(package) != 0 {
            self.floor = self.floor.max(was.correct(since(package) as Seconds).min(at));
        }
    }

    /// Since when the package is in its state, in the backend's clock.
    pub(super) fn since(self, package: &Package, offset: Offset) -> Seconds {
        match since(package) {
            0 => self.floor,
            theirs => offset.correct(theirs as Seconds).max(self.floor),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::{failed, healthy};

    fn package(values: &[u64]) -> Package {
        let mut package = Package::new("flux\0ns\0p".into());
        for (slot, value) in values.iter().enumerate() {
            package.present |= 1 << slot;
            package.values[slot] = *value;
        }
        package
    }

    const SEEN: Seconds = 1000.0;

    fn seen(at: Seconds) -> Seen {
        Seen { evidence: at, at }
    }

    fn first(seen: Seconds) -> History {
        History::first(&package(&healthy("r0", 1, 0)), self::seen(seen))
    }

    #[rstest]
    #[case::nothing_happened(healthy("r1", 100, 3), healthy("r1", 100, 3), 100.0)]
    #[case::a_transition_that_says_when(failed("r1", 100, 3), healthy("r1", 900, 4), 900.0)]
    #[case::there_and_back_says_when(healthy("r1", 100, 3), healthy("r1", 900, 5), 900.0)]
    #[case::there_and_back_unexplained(healthy("r1", 100, 3), healthy("r1", 100, 5), SEEN)]
    #[case::a_change_unexplained(failed("r1", 100, 3), healthy("r1", 100, 4), SEEN)]
    #[case::another_revision_unexplained(healthy("r1", 100, 3), healthy("r2", 100, 3), SEEN)]
    #[case::a_restart_that_knows_since_when(healthy("r1", 100, 3), healthy("r1", 100, 0), 100.0)]
    #[case::a_restart_that_does_not(healthy("r1", 100, 3), healthy("r1", 950, 0), 950.0)]
    #[case::a_restart_and_there_and_back_unexplained(healthy("r1", 100, 3), healthy("r1", 100, 2), SEEN)]
    #[case::a_restart_across_a_change(failed("r1", 100, 3), healthy("r1", 50, 0), SEEN)]
    #[case::time_goes_back(healthy("r1", 100, 3), healthy("r1", 50, 0), 100.0)]
    fn since_is_never_before_an_unexplained_move(
        #[case] old: Vec<u64>,
        #[case] new: Vec<u64>,
        #[case] since: f64,
    ) {
        let (old, new) = (package(&old), package(&new));
        let history = first(500.0).next(&old, &new, seen(SEEN), Offset::default(), Origin::Same);
        assert_eq!(history.since(&new, Offset::default()), since);
    }

    #[test]
    fn what_was_dated_before_anybody_looked_is_not_moved_into_the_past() {
        let (mut ahead, mut behind) = (Offset::default(), Offset::default());
        ahead.measure(-56.0);
        behind.measure(56.0);
        let since = |theirs, offset| {
            let package = package(&healthy("r1", theirs, 3));
            History::first(&package, seen(SEEN)).since(&package, offset)
        };
        assert_eq!((since(900, ahead), since(900, behind)), (900.0, 956.0));
        // It did not happen after it was seen.
        assert_eq!(since(1030, ahead), SEEN);
    }

    #[rstest]
    #[case::it_stays_so(healthy("r1", 100, 3), false)]
    #[case::a_restart_that_knows_since_when(healthy("r1", 100, 0), false)]
    #[case::a_transition_that_says_when(healthy("r1", 900, 4), true)]
    #[case::a_restart_that_counted_as_far(failed("r1", 900, 3), true)]
    #[case::a_restart_and_there_and_back(healthy("r1", 900, 1), true)]
    fn of_several_moves_a_timestamp_may_not_show_the_last(#[case] new: Vec<u64>, #[case] hidden: bool) {
        let (old, new) = (package(&healthy("r1", 100, 3)), package(&new));
        assert_eq!(hides_moves(&old, &new, Origin::Same), hidden);
    }

    #[rstest]
    #[case::it_never_moved(0, false)]
    #[case::it_moved_before_or_after(2, true)]
    fn of_another_process_nobody_knows_when_it_counted(#[case] counted: u64, #[case] hidden: bool) {
        let (old, new) = (package(&healthy("r1", 100, 3)), package(&healthy("r1", 100, counted)));
        assert_eq!(hides_moves(&old, &new, Origin::Sibling), hidden);
    }

    #[test]
    fn a_package_is_small() {
        // A fleet of a million packages is to fit 300 MB.
        assert!(size_of::<Package>() + size_of::<History>() <= 136);
    }

    #[test]
    fn counters_of_another_process_are_not_compared() {
        let (old, new) = (package(&healthy("r1", 100, 3)), package(&healthy("r1", 100, 9)));
        let next = |origin| first(500.0).next(&old, &new, seen(SEEN), Offset::default(), origin).floor;
        assert_eq!((next(Origin::Same), next(Origin::Sibling)), (SEEN, 1.0));
    }

    #[test]
    fn a_floor_is_kept_until_a_later_transition() {
        let offset = Offset::default();
        let steps =
            [healthy("r1", 100, 3), healthy("r1", 100, 4), healthy("r1", 100, 4), healthy("r1", 1200, 5)];
        let mut history = first(500.0);
        let mut sinces = Vec::new();
        for (i, pair) in steps.windows(2).enumerate() {
            let (old, new) = (package(&pair[0]), package(&pair[1]));
            history = history.next(&old, &new, seen(SEEN + i as f64), offset, Origin::Same);
            sinces.push(history.since(&new, offset));
        }
        assert_eq!(sinces, [SEEN, SEEN, 1200.0]);
    }

    #[test]
    fn the_previously_applied_revision_is_remembered_over_none() {
        let none = {
            let mut v = healthy("r1", 1, 1);
            v[3] = 0;
            v
        };
        let steps =
            [healthy("r1", 1, 1), none, healthy("r2", 2, 2), healthy("r2", 2, 2), healthy("r1", 3, 3)];
        let mut history = first(0.0);
        let mut remembered = Vec::new();
        for pair in steps.windows(2) {
            let (old, new) = (package(&pair[0]), package(&pair[1]));
            history = history.next(&old, &new, seen(1.0), Offset::default(), Origin::Same);
            remembered.push(history.previously_applied);
        }
        let (r1, r2) = (Fingerprint::of("r1"), Fingerprint::of("r2"));
        assert_eq!(remembered, [r1, r1, r1, r2]);
    }

    #[rstest]
    #[case::it_stays_so(Origin::Same, healthy("r1", 0, 3), 500.0)]
    #[case::there_and_back(Origin::Same, healthy("r1", 0, 5), SEEN)]
    #[case::a_restart(Origin::Same, healthy("r1", 0, 0), SEEN)]
    #[case::another_process(Origin::Sibling, healthy("r1", 0, 3), SEEN)]
    #[case::a_change(Origin::Same, failed("r1", 0, 4), SEEN)]
    fn without_a_time_of_the_clusters_what_was_seen_counts(
        #[case] origin: Origin,
        #[case] new: Vec<u64>,
        #[case] since: f64,
    ) {
        let (old, new) = (package(&healthy("r1", 0, 3)), package(&new));
        let history = History::first(&old, seen(500.0));
        assert_eq!(history.since(&old, Offset::default()), 500.0);
        let history = history.next(&old, &new, seen(SEEN), Offset::default(), origin);
        assert_eq!(history.since(&new, Offset::default()), since);
    }

    #[test]
    fn a_floor_is_in_the_backends_clock_whatever_the_clusters_says() {
        let (old, new) = (package(&healthy("r1", 100, 3)), package(&healthy("r1", 100, 5)));
        let slow = Seen { evidence: SEEN - 600.0, at: SEEN };
        let history = first(500.0).next(&old, &new, slow, Offset::default(), Origin::Same);
        assert_eq!(history.since(&new, Offset::default()), SEEN);
    }

    #[test]
    fn setting_a_clock_forward_does_not_move_what_it_dated_into_the_past() {
        let package = package(&healthy("r1", 300, 3));
        let (mut slow, mut right) = (Offset::default(), Offset::default());
        slow.measure(600.0);
        right.measure(0.0);
        let mut history = first(900.0);
        assert_eq!(history.since(&package, slow), 900.0);
        history.clock_set(&package, slow, 2000.0);
        assert_eq!(history.since(&package, right), 900.0);
        // What is seen now cannot have happened later than now.
        let mut history = first(900.0);
        history.clock_set(&package, slow, 850.0);
        assert_eq!(history.since(&package, right), 850.0);
    }
}

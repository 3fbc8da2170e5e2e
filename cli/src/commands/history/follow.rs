//! One story out of several streams.
//!
//! Two exporters, or two replicas of a backend, do not see a change at the same moment: taken together
//! they would seem to go back and forth. So one stream is followed for as long as it goes on, and another
//! one takes over where it ends or has a hole.

use serde::Serialize;
use statusbridge_core::time::Seconds;

use super::sight::{Sight, State, Stream};

/// An exposition that is rendered earlier than the one before it, but not by more than this, comes late
/// by another way. By more, the cluster's clock was set.
const LATE: u64 = 120;

/// A sight, and what joins it to the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    /// When it was stamped, in the backend's clock.
    pub(super) at: Seconds,
    /// The package; None: it was not there.
    pub(super) package: Option<State>,
    /// For how long the package had been what it is when that was said, by the cluster's clock alone.
    pub(super) soak: Seconds,
    /// Why no exporter watched the package all the time since the look before, if none did.
    pub(super) unwatched: Option<Because>,
    /// The backend's clock minus the cluster's.
    pub(super) offset: Seconds,
}

impl Look {
    /// A time of the cluster's clock in the backend's.
    pub(super) fn local(&self, theirs: u64) -> Seconds {
        theirs as Seconds + self.offset
    }
}

/// Why it is not known what happened between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Because {
    /// It is what it was, and not since then: it moved at least once, or its exporter could not watch it for a moment.
    Moved,
    /// The exporter did not see its cluster for a while.
    Blind,
    /// Another process of the exporter took over.
    OtherProcess,
}

/// A sight, and the stream that it is of.
type Followed<'a> = (&'a Stream, Sight);

/// Follows a cluster's streams. A stream has a hole when nothing of it is heard for `patience`.
pub(super) fn follow(streams: &[Stream], patience: Seconds) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut last: Option<Followed<'_>> = None;
    while let Some((stream, sight)) = next(streams, last, patience) {
        let unwatched = last.and_then(|before| unwatched(before, (stream, sight)));
        let soak = sight.package.map_or(0.0, |state| sight.rendered.saturating_sub(state.since) as Seconds);
        looks.push(Look { at: sight.at, package: sight.package, soak, unwatched, offset: stream.offset });
        last = Some((stream, sight));
    }
    looks
}

/// Why it was not watched all the time between two sights, if it was not.
fn unwatched((old, before): Followed<'_>, (new, now): Followed<'_>) -> Option<Because> {
    if new.is_blind(before.at, now.at) {
        return Some(Because::Blind);
    }
    // One that was there already, and said the same, has watched as well.
    let until = new.sights.partition_point(|sight| sight.at <= before.at);
    let then = until.checked_sub(1).and_then(|at| new.sights.get(at));
    let has_watched = then.is_some_and(|then| match (then.package, before.package) {
        (Some(theirs), Some(ours)) => !theirs.differs(&ours),
        (theirs, ours) => theirs.is_none() && ours.is_none(),
    });
    (old.process != new.process && !has_watched).then_some(Because::OtherProcess)
}

fn next<'a>(streams: &'a [Stream], last: Option<Followed<'a>>, patience: Seconds) -> Option<Followed<'a>> {
    let Some((followed, last)) = last else {
        let firsts = streams.iter().filter_map(|stream| Some((stream, *stream.sights.first()?)));
        return firsts.min_by(|a, b| a.1.at.total_cmp(&b.1.at));
    };
    let later = |stream: &Stream| {
        let from = stream.sights.partition_point(|sight| sight.at <= last.at);
        stream.sights.get(from..)?.iter().find(|sight| !is_late(sight, &last)).copied()
    };
    if let Some(own) = later(followed).filter(|own| own.at - last.at <= patience) {
        return Some((followed, own));
    }
    let all = streams.iter().filter_map(|stream| Some((stream, later(stream)?)));
    let is_other = |stream: &Stream| !std::ptr::eq(stream, followed);
    all.min_by(|a, b| a.1.at.total_cmp(&b.1.at).then(is_other(a.0).cmp(&is_other(b.0))))
}

/// Whether a sight shows what was before `last`.
fn is_late(sight: &Sight, last: &Sight) -> bool {
    let was_before = sight.package.zip(last.package).is_some_and(|(now, then)| now.since < then.since);
    let ago = last.rendered.saturating_sub(sight.rendered);
    ago > 0 && ago <= LATE || sight.rendered == last.rendered && was_before
}

#[cfg(test)]
mod tests {
    use statusbridge_contract::{ApplyState, Fingerprint, Health};

    use super::*;

    fn sight(at: Seconds, since: u64) -> Sight {
        let r = Fingerprint::of("r1");
        let (apply, health) = (ApplyState::Applied, Health::Current);
        let state = State { apply, health, desired: r, applied: r, healthy: r, reason: 0, since };
        Sight { at, rendered: at as u64, package: Some(state) }
    }

    fn stream(process: u64, sights: &[Sight]) -> Stream {
        Stream { process, sights: sights.to_vec(), ..Stream::default() }
    }

    fn looks(streams: &[Stream]) -> Vec<(Seconds, Option<Because>)> {
        follow(streams, 60.0).into_iter().map(|look| (look.at, look.unwatched)).collect()
    }

    const OTHER: Option<Because> = Some(Because::OtherProcess);

    #[test]
    fn one_process_watches_all_the_time_but_where_it_is_blind() {
        let mut one = stream(1, &[sight(100.0, 50), sight(115.0, 110), sight(145.0, 110)]);
        one.blind = vec![130.0];
        assert_eq!(looks(&[one]), [(100.0, None), (115.0, None), (145.0, Some(Because::Blind))]);
    }

    #[test]
    fn a_soak_is_told_by_the_clusters_clock_alone() {
        let mut ahead = sight(100.0, 3_650);
        ahead.rendered = 3_700;
        assert_eq!(follow(&[stream(1, &[ahead])], 60.0)[0].soak, 50.0);
    }

    #[test]
    fn a_replica_is_not_mixed_in_and_takes_over_in_a_hole() {
        let a = stream(1, &[sight(100.0, 50), sight(115.0, 110), sight(300.0, 290)]);
        // Scraped a little later, and it has not seen the change yet.
        let b = stream(1, &[sight(99.0, 50), sight(115.1, 50), sight(130.0, 110), sight(145.0, 110)]);
        let expected = [99.0, 115.1, 130.0, 145.0, 300.0].map(|at| (at, None));
        assert_eq!(looks(&[a, b]), expected);
    }

    #[test]
    fn of_another_process_nothing_is_known_before_it_was_there() {
        let a = stream(1, &[sight(100.0, 50), sight(115.0, 50)]);
        let b = stream(2, &[sight(130.0, 50)]);
        assert_eq!(looks(&[a.clone(), b])[2], (130.0, OTHER));
        // It was there, and said the same.
        let b = stream(2, &[sight(107.0, 90), sight(130.0, 90)]);
        assert_eq!(looks(&[a.clone(), b])[2], (130.0, None));
        // It was there, and said something else.
        let mut then = sight(107.0, 90);
        then.package = None;
        assert_eq!(looks(&[a, stream(2, &[then, sight(130.0, 110)])])[2], (130.0, OTHER));
    }

    #[test]
    fn of_two_processes_that_alternate_one_is_followed() {
        let a = stream(1, &[sight(100.0, 50), sight(130.0, 50), sight(160.0, 50)]);
        let b = stream(2, &[sight(115.0, 90), sight(145.0, 90), sight(175.0, 90)]);
        let expected = [(100.0, None), (130.0, None), (160.0, None), (175.0, None)];
        assert_eq!(looks(&[a, b]), expected);
    }

    #[test]
    fn what_was_rendered_before_is_passed_over() {
        let mut late = sight(116.0, 50);
        late.rendered = 112;
        let sights = [sight(100.0, 50), sight(115.0, 110), late, sight(130.0, 110)];
        assert_eq!(looks(&[stream(1, &sights)]).len(), 3);
        // A clock that was set back by an hour hides nothing.
        let mut set = sight(4000.0, 110);
        set.rendered = 500;
        let sights = [sight(3990.0, 110), set];
        assert_eq!(looks(&[stream(1, &sights)]).len(), 2);
    }
}

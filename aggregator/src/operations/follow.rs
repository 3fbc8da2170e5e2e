//! One story out of several streams.
//!
//! Two exporters, or two replicas of a backend, do not see a change at the same moment: taken together
//! they would seem to go back and forth. So one stream is followed for as long as it goes on, and another
//! one takes over where it ends or has a hole.

use super::sight::{Sight, State, Stream};
use crate::clock::Seconds;

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
    /// The counter's word on what happened since the look before.
    pub(super) link: Link,
    /// Whether the time that the package gives for its state is that of a transition. Else it may be when
    /// an exporter that was started anew first saw it.
    pub(super) dated: bool,
    /// Whether the exporter did not see its cluster for a while since the look before.
    pub(super) blind: bool,
    /// The backend's clock minus the cluster's.
    pub(super) offset: Seconds,
}

/// What the transitions counter says of the time between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// There is none before it, or the package was not there.
    First,
    /// The same process counted so many transitions.
    Same(u64),
    /// Another process came in between. It counted so many; what came before it nobody knows.
    Restarted(u64),
    /// Another stream, whose counter says nothing about this time.
    Other,
}

/// Follows a cluster's streams. A stream has a hole when nothing of it is heard for `patience`.
pub(super) fn follow(streams: &[Stream], patience: Seconds) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut last: Option<(usize, Sight)> = None;
    while let Some((stream, sight)) = next(streams, last, patience) {
        let blind =
            last.zip(streams.get(stream)).is_some_and(|((_, before), all)| all.is_blind(before.at, sight.at));
        let link = match &last {
            Some((before, previous)) => link(streams, (*before, previous), (stream, &sight), blind),
            None => Link::First,
        };
        let offset = streams.get(stream).map_or(0.0, |stream| stream.offset);
        let package = sight.package.map(|(state, _)| state);
        let dated = dated(last, stream, &sight, link, blind);
        looks.push(Look { at: sight.at, package, link, dated, blind, offset });
        last = Some((stream, sight));
    }
    looks
}

fn dated(last: Option<(usize, Sight)>, stream: usize, now: &Sight, link: Link, blind: bool) -> bool {
    let before_it_began = || now.package.zip(now.started).is_some_and(|((it, _), began)| it.since < began);
    match (link, last) {
        // What changed while it did not see its cluster it may date by when it saw it again.
        _ if blind => before_it_began(),
        // The process that did not have the package before has seen it come.
        (_, Some((was, before))) if before.package.is_none() => {
            was == stream && before.started.is_some() && before.started == now.started || before_it_began()
        }
        (Link::Same(_), _) => true,
        _ => before_it_began(),
    }
}

fn next(streams: &[Stream], last: Option<(usize, Sight)>, patience: Seconds) -> Option<(usize, Sight)> {
    let Some((followed, last)) = last else {
        let firsts = streams.iter().enumerate().filter_map(|(i, s)| Some((i, *s.sights.first()?)));
        return firsts.min_by(|a, b| a.1.at.total_cmp(&b.1.at));
    };
    let later = |stream: &Stream| {
        let from = stream.sights.partition_point(|sight| sight.at <= last.at);
        stream.sights.get(from..)?.iter().find(|sight| !is_late(sight, &last)).copied()
    };
    let own = streams.get(followed).and_then(later);
    if let Some(own) = own.filter(|own| own.at - last.at <= patience) {
        return Some((followed, own));
    }
    let all = streams.iter().enumerate().filter_map(|(i, stream)| Some((i, later(stream)?)));
    all.min_by(|a, b| a.1.at.total_cmp(&b.1.at).then((a.0 != followed).cmp(&(b.0 != followed))))
}

/// Whether a sight shows what was before `last`.
fn is_late(sight: &Sight, last: &Sight) -> bool {
    let (Some(rendered), Some(before)) = (sight.rendered, last.rendered) else { return false };
    let fewer = sight.package.zip(last.package).is_some_and(|((_, now), (_, then))| now < then);
    rendered < before && before - rendered <= LATE || rendered == before && fewer
}

fn link(streams: &[Stream], (was, before): (usize, &Sight), (is, now): (usize, &Sight), blind: bool) -> Link {
    let ((old, moves), (new, count)) = match (before.package, now.package) {
        (Some(old), Some(new)) => (old, new),
        // It is counted from when it was found.
        (None, Some((_, count))) if was == is => return Link::Same(count),
        _ => return Link::First,
    };
    if was == is {
        let restarted = before.started.zip(now.started).is_some_and(|(then, now)| then != now);
        return if restarted { Link::Restarted(count) } else { counted((old, moves), (new, count), blind) };
    }
    let Some(stream) = streams.get(is) else { return Link::Other };
    if now.started.is_some_and(|started| started as Seconds + stream.offset >= before.at) {
        return Link::Restarted(count);
    }
    // What that stream said when the other one was last heard.
    let until = stream.sights.partition_point(|sight| sight.at <= before.at);
    let then = until.checked_sub(1).and_then(|at| stream.sights.get(at)).and_then(|sight| sight.package);
    match then {
        Some(then) if !then.0.differs(&old) && then.0.since == old.since => {
            counted(then, (new, count), blind)
        }
        _ => Link::Other,
    }
}

/// By the counter of one stream. It falls, or something changes without it, when a new process counts
/// from zero. One that was blind may find that the object has come back to what it was.
fn counted((old, moves): (State, u64), (new, count): (State, u64), blind: bool) -> Link {
    match count.checked_sub(moves) {
        None => Link::Restarted(count),
        Some(0) if new.differs(&old) || new.since != old.since && !blind => Link::Restarted(count),
        Some(moved) => Link::Same(moved),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use statusbridge_contract::{ApplyState, Fingerprint, Health};

    use super::*;

    fn sight(at: Seconds, count: u64, since: u64) -> Sight {
        let r = Fingerprint::of("r1");
        let (apply, health) = (ApplyState::Applied, Health::Current);
        let state = State { apply, health, desired: r, applied: r, healthy: r, reason: 0, since };
        Sight { at, rendered: Some(at as u64), started: None, package: Some((state, count)) }
    }

    fn stream(sights: &[Sight]) -> Stream {
        Stream { sights: sights.to_vec(), ..Stream::default() }
    }

    fn links(streams: &[Stream]) -> Vec<(Seconds, Link)> {
        follow(streams, 60.0).into_iter().map(|look| (look.at, look.link)).collect()
    }

    #[rstest]
    #[case::quiet((3, 50), (3, 50), Link::Same(0))]
    #[case::counted((3, 50), (5, 115), Link::Same(2))]
    #[case::fell((3, 50), (1, 115), Link::Restarted(1))]
    #[case::time_moved_alone((3, 50), (3, 115), Link::Restarted(3))]
    fn counters_of_one_stream(#[case] old: (u64, u64), #[case] new: (u64, u64), #[case] link: Link) {
        let got = links(&[stream(&[sight(100.0, old.0, old.1), sight(115.0, new.0, new.1)])]);
        assert_eq!(got, [(100.0, Link::First), (115.0, link)]);
    }

    #[test]
    fn a_process_that_counted_beyond_the_one_before_is_told_by_its_start() {
        let mut sights = [sight(100.0, 1, 50), sight(115.0, 4, 110)];
        (sights[0].started, sights[1].started) = (Some(10), Some(105));
        assert_eq!(links(&[stream(&sights)])[1].1, Link::Restarted(4));
    }

    #[test]
    fn a_replica_is_not_mixed_in_and_takes_over_in_a_hole() {
        let a = stream(&[sight(100.0, 1, 50), sight(115.0, 2, 110), sight(300.0, 3, 290)]);
        // Scraped a little later, and it has not seen the change yet.
        let b =
            stream(&[sight(99.0, 1, 50), sight(115.1, 1, 50), sight(130.0, 2, 110), sight(145.0, 2, 110)]);
        let expected = [
            (99.0, Link::First),
            (115.1, Link::Same(0)),
            (130.0, Link::Same(1)),
            (145.0, Link::Same(0)),
            (300.0, Link::Same(1)),
        ];
        assert_eq!(links(&[a, b]), expected);
    }

    #[test]
    fn another_exporters_counter_says_nothing_about_the_time_before_it() {
        let a = stream(&[sight(100.0, 1, 50), sight(115.0, 1, 50)]);
        let b = stream(&[sight(130.0, 7, 50)]);
        assert_eq!(links(&[a.clone(), b])[2], (130.0, Link::Other));
        let mut began = sight(130.0, 2, 128);
        began.started = Some(120);
        assert_eq!(links(&[a, stream(&[began])])[2], (130.0, Link::Restarted(2)));
    }

    #[test]
    fn what_was_rendered_before_is_passed_over() {
        let mut late = sight(116.0, 1, 50);
        late.rendered = Some(112);
        let sights = [sight(100.0, 1, 50), sight(115.0, 2, 110), late, sight(130.0, 2, 110)];
        assert_eq!(links(&[stream(&sights)]).len(), 3);
        // A clock that was set back by an hour hides nothing.
        let mut set = sight(4000.0, 2, 110);
        set.rendered = Some(500);
        let sights = [sight(3990.0, 2, 110), set];
        assert_eq!(links(&[stream(&sights)]).len(), 2);
    }
}

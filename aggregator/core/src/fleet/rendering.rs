//! When the expositions of a stream first came: one that some gateway repeats is as old as its first scrape.

use std::collections::VecDeque;

use crate::time::Seconds;

/// Expositions are remembered for so many scrape intervals after they were last scraped.
const REMEMBERED: Seconds = 2.5;
/// The same in seconds, as long as the interval is not known.
const REMEMBERED_AT_FIRST: Seconds = 120.0;

/// Expositions that were scraped lately, in order of their first scrapes.
#[derive(Debug, Default)]
pub(super) struct Renderings(VecDeque<Rendering>);

/// The scrapes of one exposition.
#[derive(Debug, Clone, Copy)]
struct Rendering {
    /// When it was rendered, in unix seconds of the cluster's clock.
    at: u64,
    first: Seconds,
    last: Seconds,
    /// When it came first, if that is known: an older one was scraped before it. A later one that was scraped before it
    /// is told of here too, as that may be forgotten first.
    since: Option<Seconds>,
}

impl Renderings {
    /// Takes note of a scrape. It may be known already, or have been stamped before others that are.
    pub(super) fn note(&mut self, rendered: u64, stamped: Seconds, interval: Option<Seconds>) {
        let remembered = interval.map_or(REMEMBERED_AT_FIRST, |interval| REMEMBERED * interval);
        let newest = self.0.iter().map(|it| it.last).fold(stamped, Seconds::max);
        self.0.retain(|it| newest - it.last <= remembered);
        let known = self.0.iter().position(|it| it.at == rendered);
        if let Some(known) = known.and_then(|place| self.0.get_mut(place)).filter(|it| it.first <= stamped) {
            known.last = known.last.max(stamped);
            return;
        }
        if newest - stamped > remembered {
            return;
        }
        let last = known.and_then(|place| self.0.remove(place)).map_or(stamped, |it| it.last);
        let place = self.0.partition_point(|it| it.first < stamped);
        let later = self.0.iter().take(place).find(|it| it.at >= rendered);
        let since = later.map_or((place > 0).then_some(stamped), |later| later.since);
        self.0.insert(place, Rendering { at: rendered, first: stamped, last, since });
        for it in self.0.iter_mut().skip(place + 1).filter(|it| it.at <= rendered && it.since > since) {
            it.since = since;
        }
    }

    /// The first scrape of an exposition that was rendered then or later. None when that is not known: the exposition
    /// may have been repeated since before anybody looked.
    pub(super) fn first(&self, rendered: u64) -> Option<Seconds> {
        self.0.iter().find(|it| it.at >= rendered)?.since
    }

    /// The first scrape that is known of this very exposition.
    pub(super) fn first_of(&self, rendered: u64) -> Option<Seconds> {
        self.0.iter().find(|it| it.at == rendered).map(|it| it.first)
    }

    /// The first scrape that is known of, be it that there may have been earlier ones.
    pub(super) fn first_known(&self, rendered: u64) -> Option<Seconds> {
        self.0.iter().find(|it| it.at >= rendered).map(|it| it.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(scrapes: &[(u64, Seconds)]) -> Renderings {
        let mut renderings = Renderings::default();
        scrapes.iter().for_each(|(rendered, stamped)| renderings.note(*rendered, *stamped, Some(15.0)));
        renderings
    }

    #[test]
    fn an_exposition_is_as_old_as_its_first_scrape() {
        let renderings = noted(&[(100, 100.0), (115, 115.0), (115, 130.0), (115, 145.0)]);
        assert_eq!(renderings.first(115), Some(115.0));
    }

    #[test]
    fn a_first_scrape_that_is_found_late_counts() {
        assert_eq!(noted(&[(100, 100.0), (115, 130.0), (115, 115.0)]).first(115), Some(115.0));
    }

    #[test]
    fn what_nothing_came_before_waits_for_the_next_one() {
        assert_eq!(noted(&[(100, 100.0)]).first(100), None);
        assert_eq!(noted(&[(100, 100.0), (100, 115.0), (100, 130.0)]).first(100), None);
        assert_eq!(noted(&[(100, 100.0), (100, 115.0), (129, 130.0)]).first(129), Some(130.0));
    }

    #[test]
    fn an_older_exposition_that_comes_again_is_no_younger_than_the_later_one_before() {
        let renderings = noted(&[(100, 100.0), (115, 115.0), (130, 130.0), (116, 145.0)]);
        assert_eq!(renderings.first(116), Some(130.0));
    }

    #[test]
    fn an_older_exposition_that_comes_again_is_no_younger_once_the_later_one_is_forgotten() {
        let scrapes = [(100, 100.0), (130, 130.0), (116, 145.0), (116, 160.0), (116, 175.0)];
        assert_eq!(noted(&scrapes).first(116), Some(130.0));
        // Nothing tells when the later one came first, nor so of the older one.
        assert_eq!(noted(&scrapes[1..]).first(116), None);
        // The later one came late.
        let scrapes = [(100, 115.0), (116, 145.0), (130, 130.0), (116, 160.0), (116, 175.0)];
        assert_eq!(noted(&scrapes).first(116), Some(130.0));
    }

    #[test]
    fn after_a_gap_nothing_is_known_of_repetitions_before() {
        let renderings = noted(&[(85, 85.0), (100, 100.0), (100, 200.0)]);
        assert_eq!(renderings.first(100), None);
    }

    #[test]
    fn a_clock_that_was_set_right_is_believed_after_two_scrapes() {
        let renderings = noted(&[(3700, 100.0), (3715, 115.0), (130, 130.0), (145, 145.0), (160, 160.0)]);
        assert_eq!(renderings.first(160), Some(160.0));
    }
}

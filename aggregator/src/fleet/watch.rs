//! From when on the past of a cluster's packages is known: because it was watched without a break, or
//! because it was looked up afterwards.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    clock::Seconds,
    verify::{Content, content},
};

/// A source may go unseen for so long, or for so many scrape intervals, before that is a break. What
/// happens in less is told by counters and timestamps; of a package that may have moved more often than
/// these tell, nothing is known before.
const BREAK: Seconds = 120.0;
const BREAK_INTERVALS: Seconds = 4.0;

/// What of one cluster's past is known.
#[derive(Debug, Default)]
pub(super) struct Watch {
    uid: Option<u64>,
    sources: Vec<(Box<str>, Unbroken)>,
    /// By package: from when on what was not watched was looked up.
    looked_up: BTreeMap<Arc<str>, Seconds>,
    /// By package: until when it may have moved unseen.
    missed: BTreeMap<Arc<str>, Seconds>,
}

/// A time in which a source was verified again and again.
#[derive(Debug, Clone, Copy)]
struct Unbroken {
    /// When the first of these polls was: what it found may be older, and another stream's.
    from: Seconds,
    /// When the newest of what they found was stamped.
    to: Seconds,
}

/// The longest time between two looks that is no break, for a cluster scraped every `interval`.
pub(super) fn longest_gap(interval: Option<Seconds>) -> Seconds {
    interval.map_or(BREAK, |interval| BREAK.max(BREAK_INTERVALS * interval))
}

impl Watch {
    /// The poll at `t` found verified content that was stamped `at`. Whether the past of any package is known
    /// from another time on for that.
    pub(super) fn saw(&mut self, content: &Content, at: Seconds, t: Seconds, longest_gap: Seconds) -> bool {
        let mut changed = self.uid != content.uid;
        if changed {
            // Another cluster has taken the name.
            *self = Self { uid: content.uid, ..Self::default() };
        }
        for source in &content.sources {
            match self.sources.iter_mut().find(|(name, _)| *name == source.name) {
                Some((_, seen)) if at - seen.to <= longest_gap => seen.to = seen.to.max(at),
                Some((name, seen)) => {
                    changed = true;
                    *seen = Unbroken { from: t, to: at };
                    self.looked_up.retain(|key, _| content::parts(key).0 != name.as_ref());
                    self.missed.retain(|key, _| content::parts(key).0 != name.as_ref());
                }
                None => {
                    changed = true;
                    self.sources.push((source.name.clone(), Unbroken { from: t, to: at }));
                }
            }
        }
        changed
    }

    /// The package may have moved unseen before the poll at `t`.
    pub(super) fn missed(&mut self, key: &Arc<str>, t: Seconds) {
        self.looked_up.remove(key);
        self.missed.insert(key.clone(), t);
    }

    /// The package's past was looked up from then on.
    pub(super) fn looked_up(&mut self, key: &str, from: Seconds) {
        if self.missed.get(key).is_some_and(|missed| from <= *missed) {
            self.missed.remove(key);
        }
        self.looked_up.entry(key.into()).and_modify(|known| *known = known.min(from)).or_insert(from);
    }

    /// From when on the package's past is known; of what was never seen nothing is.
    pub(super) fn known_since(&self, key: &str) -> Seconds {
        let source = content::parts(key).0;
        let watched = self.sources.iter().find(|(name, _)| name.as_ref() == source);
        let watched = watched.map_or(Seconds::INFINITY, |(_, seen)| seen.from);
        let watched = self.missed.get(key).map_or(watched, |missed| watched.max(*missed));
        self.looked_up.get(key).map_or(watched, |from| watched.min(*from))
    }

    /// Keeps what was looked up of these packages only.
    pub(super) fn keep(&mut self, still_there: impl Fn(&str) -> bool) {
        self.looked_up.retain(|key, _| still_there(key));
        self.missed.retain(|key, _| still_there(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::content::Source;

    fn content(uid: u64, sources: &[&str]) -> Content {
        let source = |name: &&str| Source { name: (*name).into(), up: Some(1), packages: Some(1) };
        Content { uid: Some(uid), sources: sources.iter().map(source).collect(), ..Content::default() }
    }

    #[test]
    fn a_break_forgets_what_was_known_of_its_source_only() {
        let mut watch = Watch::default();
        let (flux, argo) = (content::key("flux", "ns", "p"), content::key("argo", "ns", "p"));
        assert_eq!(watch.known_since(&flux), Seconds::INFINITY);
        watch.saw(&content(1, &["flux", "argo"]), 1000.0, 1000.0, 60.0);
        watch.saw(&content(1, &["flux"]), 1060.0, 1060.0, 60.0);
        watch.looked_up(&flux, 400.0);
        watch.looked_up(&flux, 700.0);
        watch.looked_up(&argo, 500.0);
        assert_eq!((watch.known_since(&flux), watch.known_since(&argo)), (400.0, 500.0));
        watch.saw(&content(1, &["flux", "argo"]), 1100.0, 1100.0, 60.0);
        assert_eq!((watch.known_since(&flux), watch.known_since(&argo)), (400.0, 1100.0));
        watch.keep(|_| false);
        assert_eq!(watch.known_since(&flux), 1000.0);
        watch.saw(&content(2, &["flux"]), 1110.0, 1110.0, 60.0);
        assert_eq!(watch.known_since(&flux), 1110.0);
    }

    #[test]
    fn what_was_missed_is_known_only_from_a_look_that_goes_back_to_before_it() {
        let mut watch = Watch::default();
        let key: Arc<str> = content::key("flux", "ns", "p").into();
        watch.saw(&content(1, &["flux"]), 1000.0, 1000.0, 60.0);
        watch.missed(&key, 1040.0);
        watch.looked_up(&key, 1041.0);
        assert_eq!(watch.known_since(&key), 1040.0);
        watch.looked_up(&key, 1020.0);
        assert_eq!(watch.known_since(&key), 1000.0);
        // What was looked up before says nothing of what is missed afterwards.
        watch.missed(&key, 1050.0);
        assert_eq!(watch.known_since(&key), 1050.0);
    }

    #[test]
    fn what_is_found_first_may_be_old_and_was_not_watched() {
        let mut watch = Watch::default();
        let key = content::key("flux", "ns", "p");
        watch.saw(&content(1, &["flux"]), 900.0, 1000.0, 120.0);
        watch.saw(&content(1, &["flux"]), 1000.0, 1000.0, 120.0);
        assert_eq!(watch.known_since(&key), 1000.0);
    }

    #[test]
    fn slow_scrapes_are_no_breaks() {
        assert_eq!(
            (longest_gap(None), longest_gap(Some(15.0)), longest_gap(Some(60.0))),
            (120.0, 120.0, 240.0)
        );
    }
}

//! What a backend tells of a package's past, and what of it shortens a soak.
//!
//! These samples are verified by no digest: they only ever raise a floor, never lower one.

use std::collections::BTreeMap;

use statusbridge_contract::{Metric, stream::StreamLabels};

use super::{
    history::{History, Origin, Seen, hides_moves},
    offset::Offset,
};
use crate::{
    clock::Seconds,
    feed::Sample,
    verify::{Package, content::slot},
};

/// The metrics in which a move of a package shows: its state, and the time that explains a change of it.
pub const STATES: [Metric; 4] = [
    Metric::PackageApplyState,
    Metric::PackageHealth,
    Metric::PackageHealthyRevision,
    Metric::PackageTransitionTimestamp,
];

/// The metrics that the past is read of. All but the last are the package's.
pub const OF_THE_PAST: [Metric; 6] =
    [STATES[0], STATES[1], STATES[2], STATES[3], Metric::PackageTransitions, Metric::RenderedTimestamp];

/// What all streams of a cluster said of a package within a time, summed up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extent {
    /// The least value of each of [`STATES`].
    pub least: [Option<u64>; STATES.len()],
    /// The greatest.
    pub most: [Option<u64>; STATES.len()],
    /// How often the transitions counter rose, as some stream saw it.
    pub rises: Option<f64>,
    /// How many series there are of each of [`STATES`], and of the counter: as many of one as of another,
    /// or the answer has lost some.
    pub series: [Option<u64>; STATES.len() + 1],
    /// Whether some stream told of it when the time began. If none did, it is only the cluster's own clock that
    /// says since when, and that may have been set meanwhile.
    pub began: bool,
}

impl Extent {
    /// Whether the package has been all the time what it is now, and the backend says so. A counter
    /// that fell is no move: a new process counts from zero.
    pub(super) fn is_quiet(&self, now: &Package) -> bool {
        let still = |(i, metric): (usize, &Metric)| {
            let now = Some(now.value(*metric));
            self.least[i] == now && self.most[i] == now
        };
        let whole = self.series.iter().all(|count| count.is_some() && *count == self.series[0]);
        whole && self.began && self.rises == Some(0.0) && STATES.iter().enumerate().all(still)
    }
}

/// Raw samples of one package in one cluster.
#[derive(Debug, Clone, Default)]
pub struct Past {
    streams: BTreeMap<StreamLabels, BTreeMap<i64, Scrape>>,
}

/// What one scrape brought of it, by [`OF_THE_PAST`].
type Scrape = [Option<u64>; OF_THE_PAST.len()];

/// How far the story of a stream has been told.
#[derive(Debug, Clone, Default)]
struct Told {
    offset: Offset,
    dated_by: Option<Offset>,
    rendered: Option<u64>,
    /// Values so far of those metrics that are the package's.
    values: Scrape,
    package: Option<(Package, History)>,
    at: i64,
}

impl Past {
    /// Takes samples of a stream.
    pub fn add(&mut self, stream: &StreamLabels, metric: Metric, samples: &[Sample]) {
        let Some(place) = OF_THE_PAST.iter().position(|m| *m == metric) else { return };
        let scrapes = match self.streams.get_mut(stream) {
            Some(scrapes) => scrapes,
            None => self.streams.entry(stream.clone()).or_default(),
        };
        for sample in samples {
            if let Some(value) = sample.whole() {
                // Backends keep milliseconds.
                scrapes.entry((sample.at * 1000.0).round() as i64).or_default()[place] = Some(value);
            }
        }
    }

    /// Before this moment the package was not, or not surely, in the state that it was last in; None
    /// when nothing is told of the package, or only a part by some stream.
    ///
    /// The streams' scrapes are gone through in order of time, as a poll at each of them would have
    /// seen them. A sample that was lost is taken to be what the one before was: the next one tells.
    /// So is a gap: counter, state and timestamp after it are held against those before it.
    pub(super) fn floor(&self) -> Option<Seconds> {
        let mut story: Vec<(i64, usize, &Scrape)> = Vec::new();
        for (stream, scrapes) in self.streams.values().enumerate() {
            story.extend(scrapes.iter().map(|(at, scrape)| (*at, stream, scrape)));
        }
        story.sort_by_key(|(at, stream, _)| (*at, *stream));
        let mut told = vec![Told::default(); self.streams.len()];
        for (at, stream, scrape) in story {
            let sibling = if told[stream].package.is_none() { freshest(&told) } else { None };
            told[stream].go_on(at, scrape, sibling);
        }
        if told.iter().any(Told::is_partial) {
            return None;
        }
        told.iter()
            .filter_map(|told| told.package.as_ref())
            .map(|(_, history)| history.floor)
            .reduce(f64::max)
    }
}

/// The package as the stream had it that was scraped last, with that stream's offset.
fn freshest(told: &[Told]) -> Option<((Package, History), Offset)> {
    let all = told.iter().filter_map(|told| Some((told.at, told.package.as_ref()?, told.offset)));
    all.max_by_key(|(at, ..)| *at).map(|(_, package, offset)| (package.clone(), offset))
}

impl Told {
    fn go_on(&mut self, at: i64, scrape: &Scrape, sibling: Option<((Package, History), Offset)>) {
        let now = at as Seconds / 1000.0;
        let had_clock = self.offset.measured().is_some();
        if let Some(rendered) = scrape[OF_THE_PAST.len() - 1] {
            // One that is repeated says nothing about clocks, and the first may be.
            if self.rendered.replace(rendered).is_some_and(|before| before != rendered) {
                self.offset.measure(now - rendered as Seconds);
            }
        }
        self.at = at;
        for (known, new) in self.values.iter_mut().zip(scrape) {
            *known = new.or(*known);
        }
        let Some(package) = self.as_package() else { return };
        let seen = Seen { evidence: now, at: now };
        let mut history = match (&self.package, sibling) {
            (Some((before, history)), _) => history.next(before, &package, seen, self.offset, Origin::Same),
            (None, Some(((before, history), offset))) => {
                history.next(&before, &package, seen, offset, Origin::Sibling)
            }
            (None, None) => History::first(&package, seen),
        };
        if let Some(was) = self.dated_by.replace(self.offset).filter(|was| self.offset.is_before(*was)) {
            history.clock_set(&package, was, now);
        }
        if let Some((before, _)) = &self.package
            && !had_clock
            && hides_moves(before, &package, Origin::Same)
        {
            // By what clock it was dated is not known: only repetitions were there to see.
            history.floor = history.floor.max(now);
        }
        self.package = Some((package, history));
    }

    /// Whether it told of the package, but not all that there is to tell.
    fn is_partial(&self) -> bool {
        self.package.is_none() && self.values[..OF_THE_PAST.len() - 1].iter().any(Option::is_some)
    }

    fn as_package(&self) -> Option<Package> {
        let mut package = Package::new("".into());
        for (metric, value) in OF_THE_PAST.iter().zip(self.values) {
            if let Some(slot) = slot(*metric) {
                package.present |= 1 << slot;
                package.values[slot] = value?;
            }
        }
        Some(package)
    }
}

//! What scrapes said of one package in one cluster, as raw samples tell it.

use std::collections::BTreeMap;

use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric, PACKAGE_METRICS, stream::StreamLabels};

use crate::clock::Seconds;
use crate::feed::Sample;

/// The exporter's own metric that tells one of its processes from the next. It is no part of the
/// contract: where a pipeline drops it, counters that fall tell as much of it as they can.
pub(super) const START_TIME: &str = "statusbridge_exporter_start_time_seconds";

/// The metrics of a package that are read: those that come before its inventory. All but the last are there
/// for every package.
pub(super) const OF_PACKAGE: &[Metric] = PACKAGE_METRICS.split_at(8).0;

/// How many series are read of one stream.
pub(super) const SERIES: usize = OF_PACKAGE.len() + 3;
/// Values of one scrape: those of [`OF_PACKAGE`], when it was rendered, when its process started, whether the
/// package's source was up.
pub(super) type Values = [Option<u64>; SERIES];
const RENDERED: usize = OF_PACKAGE.len();
const STARTED: usize = OF_PACKAGE.len() + 1;
const UP: usize = OF_PACKAGE.len() + 2;

/// Place of a metric's value in [`Values`].
pub(super) fn place(metric: &str) -> Option<usize> {
    match metric {
        START_TIME => Some(STARTED),
        name if name == Metric::RenderedTimestamp.name() => Some(RENDERED),
        name if name == Metric::SourceUp.name() => Some(UP),
        name => OF_PACKAGE.iter().position(|metric| metric.name() == name),
    }
}

/// The state of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// How far applying has come.
    pub(super) apply: ApplyState,
    /// Whether what was applied works.
    pub(super) health: Health,
    /// What the cluster has been told to run.
    pub(super) desired: Fingerprint,
    /// What was last applied in full.
    pub(super) applied: Fingerprint,
    /// What is applied in full and works now.
    pub(super) healthy: Fingerprint,
    /// Code of the reason; 0 is none.
    pub(super) reason: u64,
    /// When it last changed, in the cluster's clock.
    pub(super) since: u64,
}

impl State {
    /// Whether the transitions counter counts the way from one to the other.
    pub(super) fn differs(&self, other: &Self) -> bool {
        (self.apply, self.health, self.healthy) != (other.apply, other.health, other.healthy)
    }

    /// Whether it works at what the cluster wants.
    pub(super) fn is_healthy(&self) -> bool {
        let good = self.apply == ApplyState::Applied && self.health == Health::Current;
        good && (self.desired.is_none() || self.healthy == self.desired)
    }

    /// Whether what the cluster wants is applied in full.
    pub(super) fn is_applied(&self) -> bool {
        self.apply == ApplyState::Applied && (self.desired.is_none() || self.applied == self.desired)
    }

    /// Whether applying or what was applied has failed.
    pub(super) fn is_failed(&self) -> bool {
        self.apply == ApplyState::Failed || self.health == Health::Failed
    }

    /// Whether nothing is being done: it is healthy, or applied and nobody checks.
    pub(super) fn is_settled(&self) -> bool {
        self.is_healthy() || self.is_applied() && self.health == Health::Unknown
    }
}

/// What one scrape says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sight {
    /// When it was stamped, in the backend's clock.
    pub(super) at: Seconds,
    /// When it was rendered, in the cluster's.
    pub(super) rendered: Option<u64>,
    /// When the exporter's process started, in the cluster's clock.
    pub(super) started: Option<u64>,
    /// The package and how many transitions the process has counted; None: it has no such package.
    pub(super) package: Option<(State, u64)>,
}

/// All sights of one stream, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stream {
    /// What its scrapes said.
    pub(super) sights: Vec<Sight>,
    /// When it was scraped while the exporter did not see its cluster, in order: what it says then is what it knew
    /// before, or nothing yet.
    pub(super) blind: Vec<Seconds>,
    /// The backend's clock minus the cluster's, when that is more than what scraping takes.
    pub(super) offset: Seconds,
}

impl Stream {
    /// Whether the exporter did not see its cluster at some time between two others.
    pub(super) fn is_blind(&self, after: Seconds, before: Seconds) -> bool {
        let from = self.blind.partition_point(|at| *at <= after);
        self.blind.get(from).is_some_and(|at| *at < before)
    }

    /// The usual time between two scrapes.
    pub(super) fn interval(&self) -> Option<Seconds> {
        let mut gaps: Vec<Seconds> = self.sights.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }
}

/// Rendering, scraping and whole seconds make up for so much of a difference between clocks.
const NO_OFFSET: Seconds = 2.0;

/// Raw samples of one package in one cluster, by stream and time in milliseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrapes {
    streams: BTreeMap<StreamLabels, BTreeMap<i64, Values>>,
    /// Samples whose value is none that the contract knows.
    odd: usize,
}

impl Scrapes {
    /// Takes samples of the metric at a [`place`].
    pub(super) fn add(&mut self, stream: StreamLabels, place: usize, samples: &[Sample]) {
        let scrapes = self.streams.entry(stream).or_default();
        for sample in samples {
            let Some(value) = sample.whole() else {
                self.odd += 1;
                continue;
            };
            // Backends keep milliseconds.
            let scrape = scrapes.entry((sample.at * 1000.0).round() as i64).or_default();
            if let Some(slot) = scrape.get_mut(place) {
                *slot = Some(value);
            }
        }
    }

    /// Takes in what was read elsewhere.
    pub(super) fn absorb(&mut self, other: Self) {
        for (stream, scrapes) in other.streams {
            self.streams.entry(stream).or_default().extend(scrapes);
        }
        self.odd += other.odd;
    }

    /// Forgets what was before a time, but for the last scrape of each stream: the story begins with it.
    pub(super) fn begin_at(&mut self, from: Seconds) {
        let from = (from * 1000.0) as i64;
        for scrapes in self.streams.values_mut() {
            let first = scrapes.range(..=from).next_back().map_or(from, |(at, _)| *at);
            *scrapes = scrapes.split_off(&first);
        }
    }

    /// The scrapes by stream.
    pub(super) fn by_stream(&self) -> impl Iterator<Item = &BTreeMap<i64, Values>> {
        self.streams.values()
    }

    /// Whether any scrape has the package.
    pub(super) fn has_package(&self) -> bool {
        self.streams.values().flat_map(BTreeMap::values).any(|values| values[0].is_some())
    }

    /// The streams' sights, and how many scrapes could not be used because something of them was
    /// missing or made no sense.
    pub(super) fn streams(&self) -> (Vec<Stream>, usize) {
        let mut unusable = self.odd;
        let mut streams = Vec::new();
        for scrapes in self.streams.values() {
            let (mut sights, mut blind) = (Vec::new(), Vec::new());
            for (at, values) in scrapes {
                match sight(*at, values) {
                    Scrape::Sight(sight) => sights.push(sight),
                    Scrape::Blind(at) => blind.push(at),
                    Scrape::Nothing => {}
                    Scrape::Unusable => unusable += 1,
                }
            }
            let sights = without_glimpses(sights);
            if !sights.is_empty() {
                streams.push(Stream { offset: offset(&sights), sights, blind });
            }
        }
        (streams, unusable)
    }
}

/// What a scrape is worth.
enum Scrape {
    /// It says how the package is, or that there is none.
    Sight(Sight),
    /// The exporter did not see its cluster at this time.
    Blind(Seconds),
    /// It is none of the package's source.
    Nothing,
    /// Something of it is missing or makes no sense.
    Unusable,
}

fn sight(at: i64, values: &Values) -> Scrape {
    let (package, [rendered, started]) = (&values[..OF_PACKAGE.len()], [values[RENDERED], values[STARTED]]);
    let at = at as Seconds / 1000.0;
    let is_absent = package.iter().all(Option::is_none);
    match values[UP] {
        Some(1) => {}
        Some(0) => return Scrape::Blind(at),
        None if is_absent => return Scrape::Nothing,
        _ => return Scrape::Unusable,
    }
    if is_absent {
        return Scrape::Sight(Sight { at, rendered, started, package: None });
    }
    let read = || {
        let fingerprint = |value: Option<u64>| Fingerprint::from_value(value?);
        let state = State {
            apply: ApplyState::from_code(package[0]?)?,
            health: Health::from_code(package[1]?)?,
            desired: fingerprint(package[2])?,
            applied: fingerprint(package[3])?,
            healthy: fingerprint(package[4])?,
            since: package[5]?,
            reason: package[7].unwrap_or_default(),
        };
        Some((state, package[6]?))
    };
    match read() {
        Some(package) => Scrape::Sight(Sight { at, rendered, started, package: Some(package) }),
        None => Scrape::Unusable,
    }
}

/// One scrape without the package says little: its samples may be late or lost. Two in a row do.
fn without_glimpses(sights: Vec<Sight>) -> Vec<Sight> {
    let absent = |at: Option<usize>| at.and_then(|at| sights.get(at)).is_some_and(|s| s.package.is_none());
    let kept = (0..sights.len())
        .filter(|at| !absent(Some(*at)) || absent(at.checked_sub(1)) || absent(Some(at + 1)))
        .collect::<Vec<_>>();
    kept.into_iter().filter_map(|at| sights.get(at).copied()).collect()
}

/// How far the clocks are apart. An exposition that is repeated looks old: the youngest tells.
fn offset(sights: &[Sight]) -> Seconds {
    let ages = sights.iter().filter_map(|sight| Some(sight.at - sight.rendered? as Seconds));
    ages.reduce(f64::min).filter(|age| age.abs() > NO_OFFSET).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn scrapes(all: &[(i64, Values)]) -> Scrapes {
        let mut scrapes = Scrapes::default();
        for (at, values) in all {
            for (place, value) in values.iter().enumerate() {
                let sample = value.map(|value| Sample { at: *at as f64, value: value as f64 });
                scrapes.add(StreamLabels::new(), place, sample.as_slice());
            }
        }
        scrapes
    }

    const GOOD: Values =
        [Some(0), Some(0), Some(7), Some(7), Some(7), Some(50), Some(3), Some(0), Some(100), None, Some(1)];
    const NONE: Values = [None, None, None, None, None, None, None, None, Some(100), None, Some(1)];

    #[test]
    fn places_are_those_of_the_metrics() {
        for (at, metric) in OF_PACKAGE.iter().enumerate() {
            assert_eq!(place(metric.name()), Some(at));
        }
        assert_eq!(place("statusbridge_rendered_timestamp_seconds"), Some(RENDERED));
        assert_eq!(place(START_TIME), Some(STARTED));
        assert_eq!(place("statusbridge_source_up"), Some(UP));
        assert_eq!(place("statusbridge_digest"), None);
    }

    #[rstest]
    #[case::whole(GOOD, 1, 0)]
    #[case::without_a_reason({ let mut v = GOOD; v[7] = None; v }, 1, 0)]
    #[case::torn({ let mut v = GOOD; v[4] = None; v }, 0, 1)]
    #[case::without_its_source({ let mut v = GOOD; v[UP] = None; v }, 0, 1)]
    #[case::blind({ let mut v = GOOD; v[UP] = Some(0); v }, 0, 0)]
    #[case::not_there(NONE, 0, 0)]
    #[case::no_such_state({ let mut v = GOOD; v[0] = Some(9); v }, 0, 1)]
    #[case::no_such_fingerprint({ let mut v = GOOD; v[2] = Some(1 << 50); v }, 0, 1)]
    fn a_scrape_counts_as_a_whole_or_not_at_all(
        #[case] values: Values,
        #[case] seen: usize,
        #[case] unusable: usize,
    ) {
        let (streams, count) = scrapes(&[(100, values)]).streams();
        assert_eq!((streams.iter().map(|s| s.sights.len()).sum::<usize>(), count), (seen, unusable));
    }

    #[test]
    fn a_package_is_away_when_two_scrapes_say_so() {
        let presences = |all: &[Values]| {
            let all: Vec<_> = all.iter().enumerate().map(|(i, v)| (i as i64, *v)).collect();
            let (streams, _) = scrapes(&all).streams();
            streams[0].sights.iter().map(|s| s.package.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(presences(&[GOOD, NONE, GOOD]), [true, true]);
        assert_eq!(presences(&[GOOD, NONE]), [true]);
        assert_eq!(
            presences(&[GOOD, NONE, NONE, GOOD, NONE, NONE]),
            [true, false, false, true, false, false]
        );
    }

    /// As of an exporter that was started anew while its API server did not answer, and of one that lost it.
    #[test]
    fn an_exporter_that_sees_nothing_says_nothing() {
        let with = |mut values: Values, up: Option<u64>| {
            values[UP] = up;
            values
        };
        let all =
            [GOOD, with(NONE, Some(0)), with(NONE, Some(0)), with(GOOD, Some(0)), with(NONE, None), GOOD];
        let all: Vec<_> = all.iter().enumerate().map(|(i, v)| (i as i64, *v)).collect();
        let (streams, unusable) = scrapes(&all).streams();
        let stream = &streams[0];
        assert_eq!(
            stream.sights.iter().map(|s| (s.at, s.package.is_some())).collect::<Vec<_>>(),
            [(0.0, true), (5.0, true)]
        );
        assert_eq!((&stream.blind[..], unusable), (&[1.0, 2.0, 3.0][..], 0));
        assert!(stream.is_blind(0.0, 5.0) && stream.is_blind(2.0, 4.0));
        assert!(!stream.is_blind(3.0, 5.0) && !stream.is_blind(0.0, 1.0));
    }

    #[rstest]
    #[case::agree(&[(100, 100), (115, 114)], 0.0)]
    #[case::slow(&[(100, 40), (115, 56)], 59.0)]
    #[case::ahead(&[(100, 160), (115, 175)], -60.0)]
    #[case::repeated(&[(100, 100), (700, 100)], 0.0)]
    fn clocks_are_held_against_each_other(#[case] ages: &[(i64, u64)], #[case] expected: Seconds) {
        let all: Vec<_> = ages
            .iter()
            .map(|(at, rendered)| {
                let mut values = GOOD;
                values[RENDERED] = Some(*rendered);
                (*at, values)
            })
            .collect();
        assert_eq!(scrapes(&all).streams().0[0].offset, expected);
    }
}

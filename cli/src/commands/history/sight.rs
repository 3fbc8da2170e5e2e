//! What scrapes said of one package in one cluster, as raw samples tell it.

use std::collections::BTreeMap;
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric, PACKAGE_METRICS};
use statusbridge_core::fleet::FeedName;
use statusbridge_core::sample::Sample;
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::{Package, odd_package};

/// The metrics of a package that are read: those that come before the counts of its resources.
pub(super) const OF_PACKAGE: &[Metric] = PACKAGE_METRICS.split_at(7).0;

/// How many series are read of one stream at most.
pub(super) const SERIES: usize = OF_PACKAGE.len() + 3;
/// Values of one scrape: those of [`OF_PACKAGE`], when it was rendered, the number of the process, whether the
/// package's source was up.
pub(super) type Values = [Option<u64>; SERIES];
const MOVED: usize = 1;
const RENDERED: usize = OF_PACKAGE.len();
const PROCESS: usize = OF_PACKAGE.len() + 1;
const UP: usize = OF_PACKAGE.len() + 2;

/// What a coarse look asks for of a package: each of its moves moves this, and every package has it.
pub(super) const MOVES: &[Metric] = &[Metric::PackageTransitionTimestamp];
/// How many series that is of one stream, with the process and the source.
pub(super) const COARSE_SERIES: usize = MOVES.len() + 2;

/// Place of a metric's value in [`Values`].
pub(super) fn place(metric: Metric) -> Option<usize> {
    match metric {
        Metric::RenderedTimestamp => Some(RENDERED),
        Metric::ProcessNumber => Some(PROCESS),
        Metric::SourceUp => Some(UP),
        _ => OF_PACKAGE.iter().position(|it| *it == metric),
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
    /// Since when the exporter vouches for it, in the cluster's clock.
    pub(super) since: u64,
}

impl State {
    /// What a package's samples say, those included that are left out because they follow from others.
    pub(super) fn of(package: &Package) -> Self {
        Self {
            apply: package.apply(),
            health: package.health(),
            desired: package.desired(),
            applied: package.applied(),
            healthy: package.healthy(),
            reason: package.reason(),
            since: package.since(),
        }
    }

    /// Whether the way from one to the other moves the time since when it is so.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.shows_otherwise(other) || self.desired != other.desired
    }

    /// Whether they differ in what was done, and not only in what was wanted.
    pub(super) fn shows_otherwise(&self, other: &Self) -> bool {
        let done = |state: &Self| (state.apply, state.health, state.applied, state.healthy);
        done(self) != done(other)
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
    pub(super) rendered: u64,
    /// The package; None: there is no such package.
    pub(super) package: Option<State>,
}

/// All sights of one process of an exporter, as one replica of a backend has them, in order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stream {
    /// The number of the process.
    pub(super) process: u64,
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
        let mut gaps: Vec<Seconds> =
            self.sights.iter().zip(self.sights.iter().skip(1)).map(|(a, b)| b.at - a.at).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }
}

/// What was seen of a state that is this old, in whole seconds, was not seen in the middle of a move.
const SETTLED: u64 = 2;
/// Rendering, scraping and whole seconds make up for so much of a difference between clocks.
const NO_OFFSET: Seconds = 2.0;

/// Raw samples of one package in one cluster, by stream and time in milliseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrapes {
    /// By feed and labels.
    streams: BTreeMap<(FeedName, StreamLabels), BTreeMap<i64, Values>>,
    /// Samples whose value is none that the contract knows.
    odd: usize,
}

impl Scrapes {
    /// Takes samples of the metric at a [`place`].
    pub(super) fn add(&mut self, stream: (FeedName, StreamLabels), place: usize, samples: &[Sample]) {
        let scrapes = self.streams.entry(stream).or_default();
        // VictoriaMetrics answers stale markers as such, and they are no samples.
        for sample in samples.iter().filter(|sample| !sample.value.is_nan()) {
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
        self.streams.values().flat_map(BTreeMap::values).any(|values| values[MOVED].is_some())
    }

    /// The sights of each process, and how many scrapes could not be used because something of them was
    /// missing or made no sense.
    pub(super) fn streams(&self) -> (Vec<Stream>, usize) {
        let mut unusable = self.odd;
        let mut streams = Vec::new();
        for scrapes in self.streams.values() {
            let mut processes = BTreeMap::<u64, (Vec<(Sight, u32)>, Vec<Seconds>)>::new();
            for (at, values) in scrapes {
                match sight(*at, values) {
                    Scrape::Sight(process, sight, samples) => {
                        processes.entry(process).or_default().0.push((sight, samples));
                    }
                    Scrape::Blind(process, at) => processes.entry(process).or_default().1.push(at),
                    Scrape::Nothing => {}
                    Scrape::Unusable => unusable += 1,
                }
            }
            for (process, (sights, blind)) in processes {
                let all = sights.len();
                let sights = without_torn(sights);
                unusable += all - sights.len();
                let sights = without_glimpses(sights);
                if !sights.is_empty() {
                    streams.push(Stream { process, offset: offset(&sights), sights, blind });
                }
            }
        }
        (streams, unusable)
    }
}

/// What a scrape is worth.
enum Scrape {
    /// A process says how the package is, or that there is none, in so many samples.
    Sight(u64, Sight, u32),
    /// The exporter's process did not see its cluster at this time.
    Blind(u64, Seconds),
    /// It is none of the package's source.
    Nothing,
    /// Something of it is missing or makes no sense.
    Unusable,
}

fn sight(at: i64, values: &Values) -> Scrape {
    let mut package = Package::new(Arc::default());
    for (slot, (value, place)) in values.iter().zip(&mut package.values).take(OF_PACKAGE.len()).enumerate() {
        package.present |= u16::from(value.is_some()) << slot;
        *place = value.unwrap_or_default();
    }
    let at = at as Seconds / 1000.0;
    let (process, rendered) = match (values[UP], values[PROCESS], values[RENDERED]) {
        (Some(1), Some(process), Some(rendered)) => (process, rendered),
        (Some(0), Some(process), _) => return Scrape::Blind(process, at),
        (None, ..) if package.present == 0 => return Scrape::Nothing,
        _ => return Scrape::Unusable,
    };
    let package = match package.present {
        0 => None,
        _ if odd_package(&package).is_some() => return Scrape::Unusable,
        _ => Some(package),
    };
    // Reasons come and go by themselves.
    let samples = |package: &Package| {
        package.samples().filter(|(metric, _)| *metric != Metric::PackageReason).count() as u32
    };
    let count = package.as_ref().map_or(0, samples);
    Scrape::Sight(process, Sight { at, rendered, package: package.as_ref().map(State::of) }, count)
}

/// A process does not show two states since the same time. Where a sample is lost on the way, a package looks better than
/// it is: of scrapes that say the same time those count that brought most.
fn without_torn(sights: Vec<(Sight, u32)>) -> Vec<Sight> {
    let settled = |sight: &Sight| sight.package.filter(|state| sight.rendered >= state.since + SETTLED);
    let mut whole = BTreeMap::<u64, (u32, State)>::new();
    for (sight, samples) in &sights {
        let Some(state) = settled(sight) else { continue };
        let most = whole.entry(state.since).or_insert((*samples, state));
        if most.0 < *samples {
            *most = (*samples, state);
        }
    }
    let is_torn = |state: State| whole.get(&state.since).is_some_and(|(_, most)| most.differs(&state));
    let sights = sights.into_iter().map(|(sight, _)| sight);
    sights.filter(|sight| !settled(sight).is_some_and(is_torn)).collect()
}

/// One scrape without the package says little: its samples may be late or lost. Two in a row do.
fn without_glimpses(sights: Vec<Sight>) -> Vec<Sight> {
    let absent = |at: Option<usize>| at.and_then(|at| sights.get(at)).is_some_and(|s| s.package.is_none());
    let kept = |at: &usize| !absent(Some(*at)) || absent(at.checked_sub(1)) || absent(Some(at + 1));
    (0..sights.len()).filter(kept).filter_map(|at| sights.get(at).copied()).collect()
}

/// How far the clocks are apart. An exposition that is repeated looks old: the youngest tells.
fn offset(sights: &[Sight]) -> Seconds {
    let ages = sights.iter().map(|sight| sight.at - sight.rendered as Seconds);
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
                scrapes.add(Default::default(), place, sample.as_slice());
            }
        }
        scrapes
    }

    /// Healthy at a revision since 50.
    const GOOD: Values = [Some(7), Some(50), None, None, None, None, None, Some(100), Some(1), Some(1)];
    /// Failed with what was applied, since 60.
    const BAD: Values =
        [Some(0), Some(60), None, Some(5), Some(7), Some(8), Some(3), Some(100), Some(1), Some(1)];
    const NONE: Values = [None, None, None, None, None, None, None, Some(100), Some(1), Some(1)];

    fn with(mut values: Values, place: usize, value: Option<u64>) -> Values {
        values[place] = value;
        values
    }

    #[test]
    fn places_are_those_of_the_metrics() {
        for (at, metric) in OF_PACKAGE.iter().enumerate() {
            assert_eq!(place(*metric), Some(at));
        }
        assert_eq!(place(MOVES[0]), Some(MOVED));
        assert_eq!(place(Metric::RenderedTimestamp), Some(RENDERED));
        assert_eq!(place(Metric::ProcessNumber), Some(PROCESS));
        assert_eq!(place(Metric::SourceUp), Some(UP));
        assert_eq!((place(Metric::Digest), place(Metric::PackageResources)), (None, None));
    }

    #[rstest]
    #[case::whole(GOOD, 1, 0)]
    #[case::in_trouble(BAD, 1, 0)]
    #[case::without_a_reason(with(BAD, 6, None), 1, 0)]
    #[case::not_there(NONE, 0, 0)]
    #[case::without_the_sample_that_every_package_has(with(BAD, 0, None), 0, 1)]
    #[case::without_its_time(with(GOOD, MOVED, None), 0, 1)]
    #[case::without_its_source(with(GOOD, UP, None), 0, 1)]
    #[case::without_its_process(with(GOOD, PROCESS, None), 0, 1)]
    #[case::without_when_it_was_rendered(with(GOOD, RENDERED, None), 0, 1)]
    #[case::blind(with(GOOD, UP, Some(0)), 0, 0)]
    #[case::no_such_state(with(BAD, 2, Some(9)), 0, 1)]
    #[case::no_such_fingerprint(with(BAD, 5, Some(1 << 50)), 0, 1)]
    #[case::filled_with_zeros(with(GOOD, 2, Some(0)), 0, 1)]
    #[case::what_was_left_out_is_repeated(with(GOOD, 3, Some(5)), 0, 1)]
    fn a_scrape_counts_as_a_whole_or_not_at_all(
        #[case] values: Values,
        #[case] seen: usize,
        #[case] unusable: usize,
    ) {
        let (streams, count) = scrapes(&[(100, values)]).streams();
        assert_eq!((streams.iter().map(|s| s.sights.len()).sum::<usize>(), count), (seen, unusable));
    }

    #[test]
    fn what_is_left_out_follows_from_the_rest() {
        let state = |values: Values| scrapes(&[(100, values)]).streams().0[0].sights[0].package.unwrap();
        let of = |value| Fingerprint::from_value(value).unwrap();
        let good = state(GOOD);
        assert_eq!((good.apply, good.health, good.reason), (ApplyState::Applied, Health::Current, 0));
        assert_eq!([good.desired, good.applied, good.healthy], [of(7); 3]);
        let bad = state(BAD);
        assert_eq!((bad.apply, bad.health, bad.reason), (ApplyState::Applied, Health::Failed, 3));
        assert_eq!([bad.desired, bad.applied, bad.healthy], [of(8), of(7), Fingerprint::NONE]);
    }

    /// A sample that is lost would make it look well, or as if it had never been told another revision.
    #[rstest]
    #[case::health(3)]
    #[case::desired(5)]
    fn a_sample_that_is_lost_makes_no_state_of_its_own(#[case] lost: usize) {
        let all = [(100, BAD), (115, with(BAD, lost, None)), (130, BAD)];
        let (streams, unusable) = scrapes(&all).streams();
        let at: Vec<Seconds> = streams[0].sights.iter().map(|sight| sight.at).collect();
        assert_eq!((at, unusable), (vec![100.0, 130.0], 1));
        // Two moves within the second that both say.
        let moving = |values: Values| with(with(values, RENDERED, Some(60)), MOVED, Some(60));
        let (streams, unusable) = scrapes(&[(60, moving(BAD)), (75, with(GOOD, MOVED, Some(60)))]).streams();
        assert_eq!((streams[0].sights.len(), unusable), (2, 0));
    }

    #[test]
    fn processes_under_the_same_labels_are_told_apart() {
        let other = with(with(GOOD, PROCESS, Some(2)), MOVED, Some(90));
        let (streams, _) = scrapes(&[(100, GOOD), (107, other), (115, GOOD), (122, other)]).streams();
        let told: Vec<_> =
            streams.iter().map(|s| (s.process, s.sights.iter().map(|s| s.at).collect::<Vec<_>>())).collect();
        assert_eq!(told, [(1, vec![100.0, 115.0]), (2, vec![107.0, 122.0])]);
    }

    #[test]
    fn a_stale_marker_is_no_sample() {
        let mut scrapes = scrapes(&[(100, GOOD)]);
        scrapes.add(Default::default(), 3, &[Sample { at: 100.0, value: f64::NAN }]);
        let (streams, unusable) = scrapes.streams();
        assert_eq!((streams[0].sights[0].package.map(|it| it.health), unusable), (Some(Health::Current), 0));
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
        let up = |values, up| with(values, UP, up);
        let all = [GOOD, up(NONE, Some(0)), up(NONE, Some(0)), up(GOOD, Some(0)), up(NONE, None), GOOD];
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

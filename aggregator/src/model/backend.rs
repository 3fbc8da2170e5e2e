//! A metrics backend that loses, delays and leaves out what real ones do.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statusbridge_contract::Metric;

use super::CLUSTER_LABEL;
use crate::clock::Seconds;
use crate::feed::{FeedError, Labels, QueryApi, Sample, Sink, contract_selector};
use crate::fleet::past::{OF_THE_PAST, STATES};
use crate::poll::{lately_query, stamp_query, value_query};

/// For how long a series without new samples is still found (Prometheus' lookback).
const LOOKBACK: Seconds = 300.0;
/// Shards of the remote write.
pub(super) const SHARDS: usize = 3;
/// What passes between the queries of one poll.
const BETWEEN_QUERIES: Seconds = 0.2;
/// An aggregator whose clock is further off than this is not answered, see `FeedConfig`.
pub(super) const MAX_CLOCK_SKEW: Seconds = 10.0;

/// Some of a cluster's series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Every third, without heads.
    Third(u8),
    /// All that a digest covers.
    Body,
    /// The digest, and when it was rendered.
    Heads,
}

/// What answers do to a part of a cluster's series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tear {
    pub(super) part: Part,
    /// Answers are as of so long ago; without it they lack the part.
    pub(super) behind: Option<Seconds>,
    pub(super) until: Seconds,
}

/// What is wrong with the backend now; times are ends.
#[derive(Debug, Default, Clone)]
pub(super) struct Faults {
    /// Queries are refused.
    pub(super) refuses: Seconds,
    /// By shard: how late samples arrive, and until when.
    pub(super) lag: [(Seconds, Seconds); SHARDS],
    /// Stale markers are lost.
    pub(super) markers_lost: Seconds,
    /// By cluster.
    pub(super) torn: BTreeMap<String, Tear>,
    /// By cluster: all of its series are missing from answers.
    pub(super) forgotten: BTreeMap<String, Seconds>,
}

/// A series of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeriesId(usize);

struct Series {
    metric: Metric,
    cluster: String,
    shard: usize,
    /// Without and with the metric's name.
    labels: [Labels; 2],
    samples: Vec<Stored>,
}

#[derive(Clone, Copy)]
struct Stored {
    at: Seconds,
    /// `None` is a stale marker.
    value: Option<f64>,
    /// When a query can find it.
    arrives: Seconds,
}

#[derive(Default)]
struct Store {
    series: Vec<Series>,
    ids: HashMap<Vec<(String, String)>, usize>,
    shard_free: [Seconds; SHARDS],
    /// Which series goes to which shard.
    spread: usize,
    faults: Faults,
    now: Seconds,
}

/// The backend, shared between scrapes and queries.
#[derive(Clone, Default)]
pub(super) struct Backend(Arc<Mutex<Store>>);

/// The backend as an aggregator asks it, whose own clock may be wrong.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) backend: Backend,
    /// By how much the aggregator's clock is ahead.
    pub(super) ahead: Arc<Mutex<Seconds>>,
}

impl Backend {
    pub(super) fn new(spread: u8) -> Self {
        let backend = Self::default();
        backend.lock().spread = usize::from(spread);
        backend
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fault(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }

    pub(super) fn set_now(&self, now: Seconds) {
        self.lock().now = now;
    }

    /// The series of a metric with these other labels, which need not be in order.
    pub(super) fn series(&self, metric: Metric, mut labels: Vec<(String, String)>) -> SeriesId {
        labels.sort_unstable();
        let mut key = labels.clone();
        key.push(("__name__".to_owned(), metric.name().to_owned()));
        let mut store = self.lock();
        if let Some(id) = store.ids.get(&key) {
            return SeriesId(*id);
        }
        let hash = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let hash = key.iter().flat_map(|(_, value)| value.bytes()).fold(store.spread, hash);
        let borrowed = || labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let cluster = borrowed().find(|(name, _)| *name == CLUSTER_LABEL).map_or("", |(_, value)| value);
        let series = Series {
            metric,
            cluster: cluster.to_owned(),
            shard: (hash >> 3) % SHARDS,
            labels: [borrowed().collect(), borrowed().chain([("__name__", metric.name())]).collect()],
            samples: Vec::new(),
        };
        let id = store.series.len();
        store.series.push(series);
        store.ids.insert(key, id);
        SeriesId(id)
    }

    /// Appends a sample, or a stale marker.
    pub(super) fn append(&self, SeriesId(id): SeriesId, at: Seconds, value: Option<f64>) {
        let mut store = self.lock();
        if value.is_none() && at < store.faults.markers_lost {
            return;
        }
        let shard = store.series[id].shard;
        let (lag, until) = store.faults.lag[shard];
        let delay = if at < until { lag } else { 0.5 };
        // A shard sends in order.
        let arrives = (at + delay).max(store.shard_free[shard]);
        store.shard_free[shard] = arrives;
        store.series[id].samples.push(Stored { at, value, arrives });
    }
}

impl Series {
    /// Its samples until `now` that are not later than `t` and younger than `span`, the newest first.
    fn visible(&self, now: Seconds, t: Seconds, span: Seconds) -> impl Iterator<Item = &Stored> {
        let samples = self.samples.iter().rev().take_while(move |s| s.at > t - span);
        samples.filter(move |s| s.arrives <= now && s.at <= t)
    }
}

impl Store {
    /// Hands out every series that a query finds, with its samples up to `t` and not older than `span`.
    fn find(&self, t: Seconds, span: Seconds, want: &Want, mut take: impl FnMut(&Series, &[Sample])) {
        let mut samples = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            let forgotten = self.faults.forgotten.get(&series.cluster);
            if !want.wants(series) || forgotten.is_some_and(|end| self.now < *end) {
                continue;
            }
            let tear = self.faults.torn.get(&series.cluster).filter(|tear| self.now < tear.until);
            let body = series.metric.in_digest() && series.metric != Metric::Digest || want.all_tear;
            let tear = tear.filter(|tear| match tear.part {
                Part::Third(which) => body && number % 3 == usize::from(which) % 3,
                Part::Body => body,
                Part::Heads => !body,
            });
            let now = match tear {
                Some(Tear { behind: None, .. }) => continue,
                Some(Tear { behind: Some(behind), .. }) => self.now - behind,
                None => self.now,
            };
            let sample = |s: &Stored| Some(Sample { at: s.at, value: s.value? });
            samples.clear();
            let mut visible = series.visible(now, t, span);
            if want.raw {
                samples.extend(visible.filter_map(sample));
                samples.reverse();
            } else {
                samples.extend(visible.next().and_then(sample));
            }
            if !samples.is_empty() {
                take(series, &samples);
            }
        }
    }
}

/// What one of the aggregator's queries asks for.
struct Want {
    metrics: Vec<Metric>,
    clusters: Option<Vec<String>>,
    raw: bool,
    /// Whatever tears bodies tears all of this.
    all_tear: bool,
}

impl Want {
    fn heads(metrics: &[Metric]) -> Self {
        Self { metrics: metrics.to_vec(), clusters: None, raw: false, all_tear: false }
    }

    fn wants(&self, series: &Series) -> bool {
        self.metrics.contains(&series.metric)
            && self.clusters.as_ref().is_none_or(|all| all.contains(&series.cluster))
    }
}

/// Whether a query asks for the raw samples of a package, or of when expositions were rendered.
fn is_past(expression: &str) -> bool {
    let rendered =
        expression.starts_with("{__name__=~\"statusbridge_(rendered_timestamp_seconds)\",cluster=~");
    expression.ends_with("ms]") && (rendered || expression.contains(",package=\""))
}

/// The clusters that a query names; none are all.
fn named_clusters(expression: &str) -> Option<Vec<String>> {
    let (_, rest) = expression.split_once(&format!(",{CLUSTER_LABEL}=~\""))?;
    let (names, _) = rest.split_once('"')?;
    Some(names.split('|').map(str::to_owned).collect())
}

/// The first range of a query.
fn window(expression: &str) -> Seconds {
    let range = expression.split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a range").0;
    let (number, unit) = match range.strip_suffix("ms") {
        Some(number) => (number, 1000.0),
        None => (range.trim_end_matches('s'), 1.0),
    };
    number.parse::<f64>().expect("a number of seconds") / unit
}

/// How often the value is another than before.
fn changes(samples: &[Sample]) -> f64 {
    samples.windows(2).filter(|pair| pair[0].value != pair[1].value).count() as f64
}

impl QueryApi for Asked {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, sink: S) -> Result<S, FeedError> {
        let mut store = self.backend.lock();
        store.now += BETWEEN_QUERIES;
        // Every answer is dated, whatever it says.
        let ahead = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.abs() > MAX_CLOCK_SKEW {
            return Err(FeedError::ClockDisagrees { ahead: -ahead });
        }
        if store.now < store.faults.refuses {
            return Err(FeedError::Http { status: 503, excerpt: "not now".to_owned() });
        }
        Ok(store.answer(expression, at, sink))
    }

    fn received(&self) -> u64 {
        0
    }
}

impl Store {
    fn answer<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> S {
        let heads = [Metric::Digest, Metric::RenderedTimestamp];
        let stamped = heads.into_iter().find(|metric| expression == stamp_query(*metric));
        let valued = heads.into_iter().find(|metric| expression == value_query(*metric));
        if let Some(metric) = stamped {
            self.find(at, LOOKBACK, &Want::heads(&[metric]), |series, samples| {
                sink.series(&series.labels[0], &[Sample { at, value: samples[0].at }]);
            });
        } else if let Some(metric) = valued {
            self.find(at, LOOKBACK, &Want::heads(&[metric]), |series, samples| {
                sink.series(&series.labels[0], &[Sample { at, ..samples[0] }]);
            });
        } else if expression == lately_query() {
            self.lately(expression, at, &mut sink);
        } else if expression.starts_with("group by (__name__,") {
            // Metrics that the contract does not know: there are none here.
        } else if expression.starts_with("label_replace(") {
            for ((cluster, part), value) in self.sum_up(expression, at) {
                let labels = [(CLUSTER_LABEL, cluster.as_str()), ("statusbridge_part", part.as_str())];
                sink.series(&labels.into_iter().collect(), &[Sample { at, value }]);
            }
        } else if is_past(expression) {
            let rendered = expression.contains("rendered");
            let metrics = OF_THE_PAST.into_iter().filter(|m| (*m == Metric::RenderedTimestamp) == rendered);
            let clusters = named_clusters(expression);
            let want = Want { metrics: metrics.collect(), clusters, raw: true, all_tear: false };
            self.find(at, window(expression), &want, |series, samples| {
                sink.series(&series.labels[1], samples);
            });
        } else if expression.starts_with("sum by") {
            let mut sums = BTreeMap::<String, f64>::new();
            self.find(at, LOOKBACK, &Want::heads(&[Metric::SourcePackages]), |series, samples| {
                *sums.entry(series.cluster.clone()).or_default() += samples[0].value;
            });
            for (cluster, value) in sums {
                sink.series(
                    &[(CLUSTER_LABEL, cluster.as_str())].into_iter().collect(),
                    &[Sample { at, value }],
                );
            }
        } else {
            let (selector, window) = match expression.split_once('[') {
                Some((selector, window)) => (selector, window.strip_suffix("ms]")),
                None => (expression, None),
            };
            let clusters: Vec<String> = selector
                .rsplit_once("=~\"")
                .and_then(|(_, rest)| rest.strip_suffix("\"}"))
                .map(|names| names.split('|').map(str::to_owned).collect())
                .unwrap_or_default();
            let asked = contract_selector(CLUSTER_LABEL, clusters.iter().map(String::as_str));
            assert_eq!(selector, asked, "a query that the model does not know");
            let window = window.map(|ms| ms.parse::<f64>().expect("a number of milliseconds") / 1000.0);
            let want = Want {
                metrics: Metric::ALL.iter().copied().filter(|m| m.in_digest()).collect(),
                clusters: Some(clusters),
                raw: window.is_some(),
                all_tear: false,
            };
            self.find(at, window.unwrap_or(LOOKBACK), &want, |series, samples| match window {
                Some(_) => sink.series(&series.labels[1], samples),
                None => sink.series(&series.labels[1], &[Sample { at, ..samples[0] }]),
            });
        }
        sink
    }

    /// When the UID of each stream came last, whether it was always the same, and whether expositions repeat.
    fn lately(&self, expression: &str, at: Seconds, sink: &mut impl Sink) {
        let short = at - window(expression);
        let mut factors = HashMap::new();
        let want = Want { raw: true, all_tear: true, ..Want::heads(&[Metric::RenderedTimestamp]) };
        self.find(at, window(expression), &want, |series, samples| {
            let repeats = changes(samples) < 0.8 * samples.len() as f64 - 1.0;
            factors.insert(series.labels[0].clone(), 1.0 + f64::from(repeats));
        });
        let want = Want { raw: true, ..Want::heads(&[Metric::ClusterUid]) };
        self.find(at, LOOKBACK, &want, |series, samples| {
            let stamp = samples.last().map_or(0.0, |last| last.at);
            let lately = &samples[samples.partition_point(|sample| sample.at <= short)..];
            let turns = if changes(lately) > 0.0 { -1.0 } else { 1.0 };
            let product = factors.get(&series.labels[0]).filter(|_| !lately.is_empty());
            let told = product.map(|factor| stamp * turns * factor).or((stamp < short).then_some(stamp));
            if let Some(value) = told {
                sink.series(&series.labels[0], &[Sample { at, value }]);
            }
        });
    }

    /// A package summed up: what a cluster's streams said of it, by part.
    fn sum_up(&self, expression: &str, at: Seconds) -> BTreeMap<(String, String), f64> {
        let clusters = named_clusters(expression);
        let want = Want { metrics: OF_THE_PAST.to_vec(), clusters, raw: true, all_tear: false };
        let mut parts = BTreeMap::<(String, String), f64>::new();
        self.find(at, window(expression), &want, |series, samples| {
            let mut part = |name: String, value: f64, fold: fn(f64, f64) -> f64| {
                let entry = parts.entry((series.cluster.clone(), name));
                entry.and_modify(|known| *known = fold(*known, value)).or_insert(value);
            };
            let mut places = STATES.into_iter().chain([Metric::PackageTransitions]);
            if let Some(i) = places.position(|place| place == series.metric) {
                part(format!("series{i}"), 1.0, |a, b| a + b);
            }
            if let Some(i) = STATES.iter().position(|state| *state == series.metric) {
                for sample in samples {
                    part(format!("min{i}"), sample.value, f64::min);
                    part(format!("max{i}"), sample.value, f64::max);
                }
            } else if series.metric == Metric::PackageTransitions {
                let rises = samples.windows(2).filter(|pair| pair[1].value > pair[0].value).count() as f64;
                part("rises".to_owned(), rises, f64::max);
            }
        });
        let began = Want { raw: false, ..want };
        self.find(at - window(expression), LOOKBACK, &began, |series, _| {
            if series.metric == Metric::PackageTransitionTimestamp {
                parts.insert((series.cluster.clone(), "began".to_owned()), 1.0);
            }
        });
        parts
    }
}

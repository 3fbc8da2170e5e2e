//! A metrics backend that loses, delays and leaves out what real ones do.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statusbridge_contract::Metric;
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;

use super::{CLUSTER_LABEL, EXPORTERS, JOB};
use crate::feed::promql::{FeedError, QueryApi};

/// For how long a series without new samples is still found (Prometheus' lookback).
const LOOKBACK: Seconds = 300.0;
/// Shards of the remote write.
pub(super) const SHARDS: usize = 3;
/// What passes between the queries of one poll.
const BETWEEN_QUERIES: Seconds = 0.2;
/// How long samples take at best, and how much longer the first ones of a series in VictoriaMetrics.
const ON_THE_WAY: Seconds = 0.5;
const INDEXING: Seconds = 3.0;
/// An aggregator whose clock is further off than this is not answered, see `FeedConfig`.
pub(super) const MAX_CLOCK_SKEW: Seconds = 10.0;
/// What is asked of every stream that may say something else than before.
const BESIDE: [Metric; 2] = [Metric::RenderedTimestamp, Metric::ProcessNumber];

/// Whose ways the backend has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It takes no sample that is older than the one before, and keeps stale markers to itself.
    Prometheus,
    /// It takes any sample, answers stale markers as NaN and rounds beside them, and finds a new series late.
    VictoriaMetrics,
}

/// Some of a cluster's series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Every third, in any answer.
    Third(u8),
    /// All that is read to be held against a digest.
    Body,
    /// What digests are looked for by.
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
    is_exporters: bool,
    labels: Labels,
    /// By stamp.
    samples: Vec<Stored>,
    has_markers: bool,
}

#[derive(Clone, Copy)]
struct Stored {
    at: Seconds,
    /// `None` is a stale marker.
    value: Option<f64>,
    /// When a query can find it.
    arrives: Seconds,
}

struct Store {
    kind: Kind,
    series: Vec<Series>,
    ids: HashMap<Vec<(String, String)>, usize>,
    shard_free: [Seconds; SHARDS],
    /// Which series goes to which shard.
    spread: usize,
    faults: Faults,
    now: Seconds,
}

/// The backend, shared between scrapes and queries.
#[derive(Clone)]
pub(super) struct Backend(Arc<Mutex<Store>>);

/// The backend as an aggregator asks it, whose own clock may be wrong.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) backend: Backend,
    /// By how much the aggregator's clock is ahead.
    pub(super) ahead: Arc<Mutex<Seconds>>,
}

impl Backend {
    pub(super) fn new(kind: Kind, spread: u8) -> Self {
        Self(Arc::new(Mutex::new(Store {
            kind,
            series: Vec::new(),
            ids: HashMap::new(),
            shard_free: [0.0; SHARDS],
            spread: usize::from(spread),
            faults: Faults::default(),
            now: 0.0,
        })))
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
        labels.push(("__name__".to_owned(), metric.name().to_owned()));
        labels.sort_unstable();
        let mut store = self.lock();
        if let Some(id) = store.ids.get(&labels) {
            return SeriesId(*id);
        }
        let hash = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let hash = labels.iter().flat_map(|(_, value)| value.bytes()).fold(store.spread, hash);
        let cluster = labels.iter().find(|(name, _)| *name == CLUSTER_LABEL).map(|(_, value)| value.clone());
        let is_exporters = labels.iter().any(|(name, value)| (name.as_str(), value.as_str()) == JOB);
        let series = Series {
            metric,
            is_exporters,
            cluster: cluster.unwrap_or_default(),
            shard: (hash >> 3) % SHARDS,
            labels: labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            samples: Vec::new(),
            has_markers: false,
        };
        let id = store.series.len();
        store.series.push(series);
        store.ids.insert(labels, id);
        SeriesId(id)
    }

    /// Stores a sample, or a stale marker, with this stamp. When a query can find it, if it was taken.
    pub(super) fn append(
        &self,
        SeriesId(id): SeriesId,
        now: Seconds,
        at: Seconds,
        value: Option<f64>,
    ) -> Option<Seconds> {
        let store = &mut *self.lock();
        let series = &mut store.series[id];
        let is_late = series.samples.last().is_some_and(|last| at <= last.at);
        if value.is_none() && now < store.faults.markers_lost || is_late && store.kind == Kind::Prometheus {
            return None;
        }
        let (lag, until) = store.faults.lag[series.shard];
        let mut delay = if now < until { lag } else { ON_THE_WAY };
        // A shard sends in order.
        let free = &mut store.shard_free[series.shard];
        *free = free.max(now + delay);
        if series.samples.is_empty() && store.kind == Kind::VictoriaMetrics {
            delay = INDEXING;
        } else {
            delay = 0.0;
        }
        let stored = Stored { at, value, arrives: *free + delay };
        series.has_markers |= value.is_none();
        let place = series.samples.partition_point(|sample| sample.at < at);
        if series.samples.get(place).is_some_and(|same| same.at == at) {
            return None;
        }
        series.samples.insert(place, stored);
        Some(stored.arrives)
    }
}

impl Series {
    /// Its samples that a query finds at `now`, of `span` before `t`, oldest first.
    fn visible(&self, now: Seconds, t: Seconds, span: Seconds) -> impl Iterator<Item = &Stored> {
        let (from, to) = (
            self.samples.partition_point(|sample| sample.at <= t - span),
            self.samples.partition_point(|sample| sample.at <= t),
        );
        self.samples[from.min(to)..to].iter().filter(move |sample| sample.arrives <= now)
    }
}

/// What one of the aggregator's queries asks for.
struct Want<'a> {
    metrics: &'a [Metric],
    clusters: Option<&'a [&'a str]>,
    /// Whether it asks for what exporters say, and nobody else.
    of_exporters: bool,
    /// The raw samples of `span` before `t`.
    t: Seconds,
    span: Seconds,
    /// Whether it looks for digests, or reads what they attest.
    tears: Part,
}

impl Store {
    /// Hands out every series that a query finds, with its raw samples.
    fn find(&self, want: &Want<'_>, mut take: impl FnMut(&Series, &[Sample])) {
        let mut samples = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            let forgotten = self.faults.forgotten.get(&series.cluster);
            let is_wanted = want.metrics.contains(&series.metric)
                && (series.is_exporters || !want.of_exporters)
                && want.clusters.is_none_or(|all| all.contains(&series.cluster.as_str()));
            if !is_wanted || forgotten.is_some_and(|end| self.now < *end) {
                continue;
            }
            let tear = self.faults.torn.get(&series.cluster).filter(|tear| self.now < tear.until);
            let tear = tear.filter(|tear| match tear.part {
                Part::Third(which) => number % 3 == usize::from(which) % 3,
                part => part == want.tears,
            });
            let now = match tear {
                Some(Tear { behind: None, .. }) => continue,
                Some(Tear { behind: Some(behind), .. }) => self.now - behind,
                None => self.now,
            };
            samples.clear();
            for stored in series.visible(now, want.t, want.span) {
                match stored.value {
                    Some(value) => {
                        samples.push(Sample { at: stored.at, value: value + self.error(series, stored.at) })
                    }
                    None if self.kind == Kind::Prometheus => {}
                    None => samples.push(Sample { at: stored.at, value: f64::NAN }),
                }
            }
            if !samples.is_empty() {
                take(series, &samples);
            }
        }
    }

    /// By how much a value comes back as another: `VictoriaMetrics` rounds in blocks that hold stale markers.
    fn error(&self, series: &Series, at: Seconds) -> f64 {
        if self.kind == Kind::Prometheus || !series.has_markers {
            return 0.0;
        }
        [0.0, 0.02, -0.03][at as usize % 3]
    }

    fn answer<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> S {
        let exporters = &*EXPORTERS;
        let trusted = format!(",{}", exporters.trust);
        let of_exporters = expression.contains(&trusted);
        if expression.starts_with("group by (__name__,") {
            // Metrics that the contract does not know: there are none here.
        } else if expression.starts_with("sum by (cluster) ({__name__=~\"statusbridge_(source_packages)\"") {
            let metrics = [Metric::SourcePackages];
            let span = LOOKBACK;
            let want =
                Want { metrics: &metrics, clusters: None, of_exporters, t: at, span, tears: Part::Heads };
            let mut sums = BTreeMap::<String, f64>::new();
            self.find(&want, |series, samples| {
                let last = samples.last().map(|last| last.value).filter(|value| !value.is_nan());
                *sums.entry(series.cluster.clone()).or_default() += last.unwrap_or_default();
            });
            for (cluster, value) in sums {
                let labels = [(CLUSTER_LABEL, cluster.as_str())].into_iter().collect();
                sink.series(&labels, &[Sample { at, value }]);
            }
        } else {
            let (selector, window) = expression.split_once('[').expect("a range");
            let window: f64 =
                window.strip_suffix("ms]").and_then(|ms| ms.parse().ok()).expect("milliseconds");
            // A query that trusts everybody is one that the model knows, and answers.
            let asks = |all: &str| selector == all || selector == all.replace(&trusted, "");
            let named = selector.split_once("cluster=~\"").and_then(|(_, rest)| rest.split_once('"'));
            let names = named.map(|(names, _)| names);
            let clusters: Vec<&str> = names.unwrap_or_default().split('|').collect();
            let covered: Vec<Metric> = Metric::ALL.iter().copied().filter(|m| m.in_state()).collect();
            let want = Want {
                metrics: &covered,
                clusters: Some(&clusters),
                of_exporters,
                t: at,
                span: window / 1000.0,
                tears: Part::Body,
            };
            let some = || clusters.iter().copied().filter(|_| names.is_some());
            let heads = [&[Metric::Digest][..], &BESIDE];
            let metrics = heads.into_iter().find(|metrics| asks(&exporters.select(metrics, some())));
            let want = if let Some(metrics) = metrics {
                let clusters = want.clusters.filter(|_| names.is_some());
                Want { metrics, clusters, tears: Part::Heads, ..want }
            } else {
                let asked = exporters.attested(clusters.iter().copied());
                assert!(asks(&asked), "a query that the model does not know: {selector}");
                want
            };
            self.find(&want, |series, samples| sink.series(&series.labels, samples));
        }
        sink
    }
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

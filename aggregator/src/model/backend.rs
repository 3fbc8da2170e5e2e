//! A metrics backend that loses, delays and leaves out what real ones do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statusbridge_contract::Metric;

use crate::clock::Seconds;
use crate::feed::{FeedError, Labels, QueryApi, Sample, Sink, contract_selector, head_selector};

use super::CLUSTER_LABEL;
use crate::fleet::past::{OF_THE_PAST, STATES};
use crate::poll::{repeats_query, turns_query};

/// For how long a series without new samples is still found (Prometheus' lookback).
const LOOKBACK: Seconds = 300.0;
/// Shards of the remote write.
pub(super) const SHARDS: usize = 3;
/// What passes between the queries of one poll.
const BETWEEN_QUERIES: Seconds = 0.2;

/// All labels of a series, `__name__` among them.
pub(super) type Series = BTreeMap<String, String>;

struct Stored {
    at: Seconds,
    /// `None` is a stale marker.
    value: Option<f64>,
    /// When a query can find it.
    arrives: Seconds,
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
    /// By cluster: a third of its series is missing from answers.
    pub(super) torn: BTreeMap<String, Seconds>,
    /// By cluster: all of its series are missing from answers.
    pub(super) forgotten: BTreeMap<String, Seconds>,
}

#[derive(Default)]
struct Store {
    series: BTreeMap<Series, Vec<Stored>>,
    shard_free: [Seconds; SHARDS],
    faults: Faults,
    now: Seconds,
}

/// The backend, shared between scrapes and queries.
#[derive(Clone, Default)]
pub(super) struct Backend(Arc<Mutex<Store>>);

impl Backend {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fault(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }

    pub(super) fn set_now(&self, now: Seconds) {
        self.lock().now = now;
    }

    /// Appends a sample, or a stale marker.
    pub(super) fn append(&self, series: &Series, at: Seconds, value: Option<f64>) {
        let mut store = self.lock();
        if value.is_none() && at < store.faults.markers_lost {
            return;
        }
        let shard = series.values().flat_map(|v| v.bytes()).map(usize::from).sum::<usize>() % SHARDS;
        let (lag, until) = store.faults.lag[shard];
        let delay = if at < until { lag } else { 0.5 };
        // A shard sends in order.
        let arrives = (at + delay).max(store.shard_free[shard]);
        store.shard_free[shard] = arrives;
        store.series.entry(series.clone()).or_default().push(Stored { at, value, arrives });
    }
}

impl Store {
    /// Every series that a query finds, with its samples up to `t` and not older than `span`.
    fn find(&self, t: Seconds, span: Seconds, want: &Want) -> Vec<(&Series, Vec<Sample>)> {
        let mut found = Vec::new();
        for (number, (series, stored)) in self.series.iter().enumerate() {
            let cluster = series.get(CLUSTER_LABEL).map_or("", String::as_str);
            let on =
                |faults: &BTreeMap<String, Seconds>| faults.get(cluster).is_some_and(|end| self.now < *end);
            if !want.wants(series, cluster) || on(&self.faults.forgotten) {
                continue;
            }
            if on(&self.faults.torn) && number % 3 == 0 && want.samples {
                continue;
            }
            let mut visible = stored.iter().filter(|s| s.arrives <= self.now && s.at <= t && s.at > t - span);
            let samples: Vec<Sample> = if want.raw {
                visible.filter_map(|s| Some(Sample { at: s.at, value: s.value? })).collect()
            } else {
                visible
                    .next_back()
                    .and_then(|s| Some(Sample { at: s.at, value: s.value? }))
                    .into_iter()
                    .collect()
            };
            if !samples.is_empty() {
                found.push((series, samples));
            }
        }
        found
    }
}

/// What one of the aggregator's queries asks for.
struct Want {
    metrics: Vec<Metric>,
    clusters: Option<Vec<String>>,
    raw: bool,
    /// Asks for the samples that a digest covers.
    samples: bool,
}

impl Want {
    fn heads(metrics: &[Metric]) -> Self {
        Self { metrics: metrics.to_vec(), clusters: None, raw: false, samples: false }
    }

    fn wants(&self, series: &Series, cluster: &str) -> bool {
        let metric = series.get("__name__").and_then(|name| Metric::from_name(name));
        metric.is_some_and(|metric| self.metrics.contains(&metric))
            && self.clusters.as_ref().is_none_or(|all| all.iter().any(|name| name == cluster))
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
    let range = expression.split_once('[').and_then(|(_, rest)| rest.split_once("ms]"));
    range.and_then(|(ms, _)| ms.parse::<f64>().ok()).expect("a number of milliseconds") / 1000.0
}

impl QueryApi for Backend {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
        let mut store = self.lock();
        store.now += BETWEEN_QUERIES;
        if store.now < store.faults.refuses {
            return Err(FeedError::Http { status: 503, excerpt: "not now".to_owned() });
        }
        let mut give = |series: &Series, name: bool, samples: &[Sample]| {
            let labels: Labels = series
                .iter()
                .filter(|(key, _)| name || *key != "__name__")
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            sink.series(&labels, samples);
        };
        let stamp = |metric: Metric| format!("timestamp({})", metric.name());
        let stamped =
            [Metric::Digest, Metric::RenderedTimestamp].into_iter().find(|m| expression == stamp(*m));
        if let Some(metric) = stamped {
            for (series, samples) in store.find(at, LOOKBACK, &Want::heads(&[metric])) {
                let value = samples[0].at;
                give(series, false, &[Sample { at, value }]);
            }
        } else if expression == head_selector() {
            let want = Want::heads(&[Metric::Digest, Metric::RenderedTimestamp]);
            for (series, samples) in store.find(at, LOOKBACK, &want) {
                give(series, true, &[Sample { at, value: samples[0].value }]);
            }
        } else if expression == turns_query() || expression == repeats_query() {
            let turns = expression == turns_query();
            let metric = if turns { Metric::ClusterUid } else { Metric::RenderedTimestamp };
            let want = Want { raw: true, ..Want::heads(&[metric]) };
            for (series, samples) in store.find(at, 120.0, &want) {
                let changes = samples.windows(2).filter(|pair| pair[0].value != pair[1].value).count() as f64;
                let found = if turns { changes > 0.0 } else { changes < 0.8 * samples.len() as f64 - 1.0 };
                if found {
                    give(series, false, &[Sample { at, value: samples[0].value }]);
                }
            }
        } else if expression.starts_with("group by (__name__,") {
            // Metrics that the contract does not know: there are none here.
        } else if expression.starts_with("label_replace(") {
            // A package summed up: what a cluster's streams said of it, by part.
            let want = Want {
                metrics: OF_THE_PAST.to_vec(),
                clusters: named_clusters(expression),
                raw: true,
                samples: true,
            };
            let mut parts = BTreeMap::<(&str, String), f64>::new();
            for (series, samples) in store.find(at, window(expression), &want) {
                let cluster = series.get(CLUSTER_LABEL).map_or("", String::as_str);
                let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
                let metric = series.get("__name__").and_then(|name| Metric::from_name(name));
                let mut places = STATES.into_iter().chain([Metric::PackageTransitions]);
                if let Some(i) = places.position(|place| Some(place) == metric) {
                    *parts.entry((cluster, format!("series{i}"))).or_default() += 1.0;
                }
                if let Some(i) = STATES.iter().position(|state| Some(*state) == metric) {
                    for value in values {
                        let least = parts.entry((cluster, format!("min{i}"))).or_insert(value);
                        *least = least.min(value);
                        let most = parts.entry((cluster, format!("max{i}"))).or_insert(value);
                        *most = most.max(value);
                    }
                } else if metric == Some(Metric::PackageTransitions) {
                    let rises = values.windows(2).filter(|pair| pair[1] > pair[0]).count() as f64;
                    let most = parts.entry((cluster, "rises".to_owned())).or_insert(rises);
                    *most = most.max(rises);
                }
            }
            for ((cluster, part), value) in parts {
                let labels = [(CLUSTER_LABEL, cluster), ("statusbridge_part", &part)];
                let series = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                give(&series, false, &[Sample { at, value }]);
            }
        } else if is_past(expression) {
            let rendered = expression.contains("rendered");
            let metrics = OF_THE_PAST.into_iter().filter(|m| (*m == Metric::RenderedTimestamp) == rendered);
            let want = Want {
                metrics: metrics.collect(),
                clusters: named_clusters(expression),
                raw: true,
                samples: true,
            };
            for (series, samples) in store.find(at, window(expression), &want) {
                give(series, true, &samples);
            }
        } else if expression.starts_with("sum by") {
            let mut sums = BTreeMap::<&str, f64>::new();
            for (series, samples) in store.find(at, LOOKBACK, &Want::heads(&[Metric::SourcePackages])) {
                *sums.entry(series.get(CLUSTER_LABEL).map_or("", String::as_str)).or_default() +=
                    samples[0].value;
            }
            for (cluster, value) in sums {
                let series = [(CLUSTER_LABEL.to_owned(), cluster.to_owned())].into();
                give(&series, false, &[Sample { at, value }]);
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
                samples: true,
            };
            for (series, samples) in store.find(at, window.unwrap_or(LOOKBACK), &want) {
                match window {
                    Some(_) => give(series, true, &samples),
                    None => give(series, true, &[Sample { at, value: samples[0].value }]),
                }
            }
        }
        Ok(sink)
    }

    fn received(&self) -> u64 {
        0
    }
}

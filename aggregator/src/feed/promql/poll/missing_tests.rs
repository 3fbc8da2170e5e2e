//! A backend to which the samples of some clusters come late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use rstest::rstest;
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::Fleet;
use statusbridge_core::sample::{Sample, Sink};
use statusbridge_core::time::Seconds;

use super::Poller;
use crate::feed::promql::{FeedError, QueryApi};
use crate::testing::poll_config;

const SCRAPES: Seconds = 15.0;
const POLLS: Seconds = 60.0;

/// Clusters by name, with how late their samples are.
struct Late {
    clusters: BTreeMap<String, Seconds>,
    now: Mutex<Seconds>,
    /// What each look for digests named.
    looks: Mutex<Vec<BTreeSet<String>>>,
}

impl QueryApi for &Late {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
        let window = expression.split_once('[').and_then(|(_, it)| it.split_once("ms]"));
        let Some(from) = window.map(|(window, _)| at - window.parse::<Seconds>().unwrap() / 1000.0) else {
            return Ok(sink);
        };
        let named = expression.split_once(",cluster=~\"").map(|(_, it)| it.split_once("\"}").unwrap().0);
        let named: BTreeSet<String> =
            named.iter().flat_map(|names| names.split('|')).map(ToOwned::to_owned).collect();
        let metrics = if expression.contains("statusbridge_(digest)") {
            self.looks.lock().unwrap().push(named.clone());
            &[Metric::Digest][..]
        } else if expression.contains("statusbridge_(rendered_timestamp") {
            &[Metric::RenderedTimestamp, Metric::ProcessNumber][..]
        } else {
            &[]
        };
        let now = *self.now.lock().unwrap();
        let is_asked = |(name, _): &(&String, &Seconds)| named.is_empty() || named.contains(*name);
        let uid = Fingerprint::from_value(1).unwrap().to_string();
        for (name, late) in self.clusters.iter().filter(is_asked) {
            for metric in metrics {
                let stamps = (0..40).map(|scrape| (now - late) - SCRAPES * f64::from(scrape));
                let samples = stamps.filter(|stamp| *stamp > from && *stamp <= at);
                let value = |at: Seconds| if *metric == Metric::ProcessNumber { 1.0 } else { at.floor() };
                let mut samples: Vec<Sample> = samples.map(|at| Sample { at, value: value(at) }).collect();
                samples.reverse();
                let labels = [("__name__", metric.name()), ("cluster", name)];
                let own = [(label::CONTRACT, "2"), (label::CLUSTER_UID, uid.as_str())];
                let own = own.into_iter().filter(|_| *metric == Metric::Digest);
                if !samples.is_empty() {
                    sink.series(&labels.into_iter().chain(own).collect(), &samples);
                }
            }
        }
        Ok(sink)
    }

    fn received(&self) -> u64 {
        0
    }
}

/// The first poll finds all of them. Those that the next ones miss are named, unless that takes too many queries; and after ten
/// minutes a poll misses nobody.
#[rstest]
#[case::nobody(0, 4, Some(0))]
#[case::some(3, 4, Some(1))]
#[case::in_two_queries(501, 4, Some(2))]
#[case::too_many_to_be_named(9, 5000, None)]
#[case::longer_than_a_query(1, 9000, Some(0))]
#[tokio::test]
async fn clusters_whose_samples_are_always_late_are_looked_for_further_back(
    #[case] late: usize,
    #[case] length: usize,
    #[case] queries: Option<usize>,
) {
    let late: Vec<String> = (0..late).map(|number| format!("{number:0length$}")).collect();
    let others = (0..100).map(|number| (format!("c{number}"), 8.0));
    let clusters = late.iter().map(|name| (name.clone(), 100.0)).chain(others).collect();
    let backend = Late { clusters, now: Mutex::default(), looks: Mutex::default() };
    let (mut poller, mut fleet) = (Poller::new(poll_config(), &backend), Fleet::default());
    let far = match queries {
        Some(0) => Vec::new(),
        Some(_) => late.chunks(500).map(|named| named.iter().cloned().collect()).collect(),
        None => vec![BTreeSet::new()],
    };
    assert_eq!(far.len(), queries.unwrap_or(1));
    for round in 0..12 {
        let now = 10_000.0 + POLLS * f64::from(round);
        *backend.now.lock().unwrap() = now;
        let report = poller.poll(&mut fleet, now - poller.settle_delay()).await;
        assert!(report.ok, "{report:?}");
        let is_far = round % 10 == 0;
        if is_far || !far.is_empty() {
            let newest: Vec<_> = fleet.streams().map(|it| (it.cluster.to_owned(), it.newest)).collect();
            let latest: Vec<_> =
                backend.clusters.iter().map(|(it, late)| (it.clone(), Some(now - late))).collect();
            assert_eq!(newest, latest, "round {round}");
        }
        let looks = std::mem::take(&mut *backend.looks.lock().unwrap());
        let mut expected = vec![BTreeSet::new()];
        expected.extend(far.iter().filter(|_| !is_far).cloned());
        assert_eq!(looks, expected, "round {round}");
    }
}

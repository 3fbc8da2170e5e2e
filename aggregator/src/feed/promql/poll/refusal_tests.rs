//! A backend that refuses more than it can answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::Fleet;
use statusbridge_core::sample::{Sample, Sink};
use statusbridge_core::testing::{Exposition, healthy};
use statusbridge_core::time::Seconds;

use super::Poller;
use crate::feed::promql::{FeedError, QueryApi};
use crate::testing::poll_config;

/// Clusters, and how many samples are answered at most.
struct State {
    clusters: BTreeMap<String, Exposition>,
    most: usize,
    now: Seconds,
    refused: usize,
    queries: usize,
    /// How many samples each query for what digests cover was about.
    asked: Vec<usize>,
    /// The longest query, in bytes.
    longest: usize,
}

struct Small(Mutex<State>);

impl Small {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self) {
        let mut state = self.state();
        (state.refused, state.asked) = (0, Vec::new());
    }
}

impl QueryApi for &Small {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
        let mut state = self.state();
        state.queries += 1;
        state.longest = state.longest.max(expression.len());
        let mut give = |metric: Metric, cluster: &str, own: &[(&str, &str)], values: &[Sample]| {
            let labels = [("__name__", metric.name()), ("cluster", cluster)];
            sink.series(&labels.into_iter().chain(own.iter().copied()).collect(), values);
        };
        let named =
            expression.split_once(",cluster=~\"").map(|(_, named)| named.split_once("\"}").unwrap().0);
        let named = named.map(|named| named.split('|').collect::<Vec<&str>>());
        let is_beside =
            expression.contains(Metric::RenderedTimestamp.name().trim_start_matches("statusbridge_"));
        if let Some(named) = named.as_ref().filter(|_| !is_beside) {
            let of = |name: &&str| state.clusters[*name].lines().len();
            let samples = named.iter().map(of).sum();
            if samples > state.most {
                state.refused += 1;
                return Err(FeedError::Api { kind: "execution".into(), message: "too many samples".into() });
            }
            state.asked.push(samples);
            for name in named {
                for line in state.clusters[*name].lines() {
                    give(line.metric, name, &line.own(), &[Sample { at, value: line.value as f64 }]);
                }
            }
        } else {
            for (name, exposition) in &state.clusters {
                if expression.starts_with("sum by (cluster)") {
                    give(Metric::SourcePackages, name, &[], &[Sample { at, value: 10.0 }]);
                    continue;
                }
                let uid = Fingerprint::from_value(exposition.uid).unwrap().to_string();
                let own = [(label::CONTRACT, "2"), (label::CLUSTER_UID, uid.as_str())];
                let at = [state.now - 10.0, state.now];
                let values = |value: &dyn Fn(f64) -> u64| at.map(|at| Sample { at, value: value(at) as f64 });
                if !is_beside {
                    give(Metric::Digest, name, &own, &values(&|at| exposition.digest(at as u64)));
                } else if named.as_ref().is_none_or(|named| named.contains(&name.as_str())) {
                    give(Metric::RenderedTimestamp, name, &[], &values(&|at| at as u64));
                    give(Metric::ProcessNumber, name, &[], &values(&|_| 1));
                }
            }
        }
        Ok(sink)
    }

    fn received(&self) -> u64 {
        0
    }
}

const CLUSTERS: usize = 16;

/// Every cluster has changed since.
fn change(backend: &Small, at: u64) {
    let exposition = |number: usize| {
        let names = (0..10).map(|package| format!("p{package}"));
        names.fold(Exposition::new(number as u64 + 1), |all, name| all.with(&name, healthy("r1", at)))
    };
    backend.state().clusters =
        (0..CLUSTERS).map(|number| (format!("c{number}"), exposition(number))).collect();
}

fn small(most: usize) -> Small {
    let (clusters, asked) = (BTreeMap::new(), Vec::new());
    Small(Mutex::new(State { clusters, most, now: 1000.0, refused: 0, queries: 0, asked, longest: 0 }))
}

#[tokio::test]
async fn a_backend_is_asked_for_less_at_a_time_until_it_can_take_more_again() {
    let backend = small(150);
    let mut fleet = Fleet::default();
    let mut poller = Poller::new(poll_config(), &backend);
    let mut poll = async |at: u64| {
        change(&backend, at);
        backend.state().now = at as f64;
        backend.forget();
        let report = poller.poll(&mut fleet, at as f64).await;
        assert_eq!((report.error, report.verified), (None, CLUSTERS), "{at}");
        let state = backend.state();
        (state.refused, state.asked.len())
    };
    let (refused, asked) = poll(1000).await;
    assert!(refused >= 2 && asked >= 4, "{refused} refused, {asked} asked");
    // It has learned, once it knows how much each cluster has to say.
    assert!(poll(1010).await.0 <= 1);
    assert_eq!(poll(1020).await.0, 0);
    backend.state().most = usize::MAX;
    let mut at = 1030;
    while poll(at).await.1 > 1 {
        at += 10;
        assert!(at < 2500, "it never asks for more again");
    }
}

#[tokio::test]
async fn a_poll_without_news_is_one_query() {
    let backend = small(usize::MAX);
    change(&backend, 1000);
    let mut fleet = Fleet::default();
    let mut poller = Poller::new(poll_config(), &backend);
    for (at, queries) in [(1000.0, 4), (1010.0, 1), (1020.0, 1)] {
        backend.state().now = at;
        backend.state().queries = 0;
        assert_eq!(poller.poll(&mut fleet, at).await.verified, CLUSTERS, "{at}");
        assert_eq!(backend.state().queries, queries, "{at}");
    }
}

#[tokio::test]
async fn no_query_is_longer_than_a_backend_takes_however_long_names_are() {
    let backend = small(usize::MAX);
    let name = |number: usize| format!("arn:aws:eks:eu-central-1:{number:012}:cluster/of-somebody");
    let of = |number: usize| Exposition::new(number as u64 + 1).with("p", healthy("r1", 1000));
    backend.state().clusters = (0..450).map(|number| (name(number), of(number))).collect();
    let report = Poller::new(poll_config(), &backend).poll(&mut Fleet::default(), 1000.0).await;
    assert_eq!((report.error, report.verified), (None, 450));
    let longest = backend.state().longest;
    assert!((4 << 10..16 << 10).contains(&longest), "{longest}");
}

#[tokio::test]
async fn one_cluster_that_is_too_large_takes_no_other_down() {
    let backend = small(40);
    change(&backend, 1000);
    let names = (0..20).map(|package| format!("p{package}"));
    let large = names.fold(Exposition::new(1), |all, name| all.with(&name, healthy("r1", 1000)));
    backend.state().clusters.insert("c0".to_owned(), large);
    let mut fleet = Fleet::default();
    let report = Poller::new(poll_config(), &backend).poll(&mut fleet, 1000.0).await;
    assert_eq!((report.error, report.verified, report.unverified), (None, CLUSTERS - 1, 1));
    assert_eq!(report.problems, ["cluster c0: backend refused the query: execution: too many samples"]);
}

#[tokio::test]
async fn clusters_that_are_all_too_large_are_a_failure_that_says_so() {
    let backend = small(20);
    change(&backend, 1000);
    let mut fleet = Fleet::default();
    let report = Poller::new(poll_config(), &backend).poll(&mut fleet, 1000.0).await;
    assert_eq!(report.error.as_deref(), Some("backend refused the query: execution: too many samples"));
    assert!(!report.ok && report.verified == 0);
    assert!(backend.state().refused < 12, "{}", backend.state().refused);
}

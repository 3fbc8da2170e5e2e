//! Of an exporter that tells of many clusters only what changed is read, and it is believed no sooner for that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rstest::rstest;
use statusbridge_contract::{Digest, Metric, PACKAGE_METRICS, label};
use statusbridge_core::fleet::{Fleet, Speakers};
use statusbridge_core::sample::{Sample, Sink};
use statusbridge_core::testing::{Exposition, Line, Values, failed, healthy, package};
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::Content;

use super::{Poller, parts::LEAST};
use crate::feed::promql::{FeedError, QueryApi};
use crate::testing::poll_config;

const CLUSTERS: usize = 20;
/// Packages of each; so many that it is worth while to read one cluster alone.
const EACH: usize = 150;

/// What the backend has of the exporter of cluster `hub`, and what it was asked.
struct State {
    said: Exposition,
    now: Seconds,
    /// What parts read, where they do not read what they should.
    parts: BTreeMap<String, u64>,
    /// Samples that never come.
    lost: Option<fn(&Line) -> bool>,
    refuses_parts: bool,
    /// How many samples each query for what is attested got.
    given: Vec<usize>,
}

struct Backend(Mutex<State>);

impl Backend {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cluster_of(line: &Line) -> String {
    let own = line.own();
    own.iter().find(|(name, _)| *name == label::PACKAGE_CLUSTER).map_or("", |(_, value)| *value).to_owned()
}

impl QueryApi for &Backend {
    async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
        let mut state = self.state();
        let target = [("cluster", "hub"), ("instance", "i")];
        let mut give = |metric: Metric, own: &[(&str, &str)], values: &[(Seconds, u64)]| {
            let labels = [("__name__", metric.name())].into_iter().chain(target).chain(own.iter().copied());
            let values: Vec<_> =
                values.iter().map(|(at, it)| Sample { at: *at, value: *it as f64 }).collect();
            sink.series(&labels.collect(), &values);
        };
        if expression.starts_with("sum by") {
            give(Metric::SourcePackages, &[], &[(at, 10)]);
        } else if expression.contains("rendered_timestamp") {
            let times = [state.now - 10.0, state.now];
            give(Metric::RenderedTimestamp, &[], &times.map(|at| (at, at as u64)));
            give(Metric::ProcessNumber, &[], &times.map(|at| (at, state.said.process)));
        } else if expression.contains("digest") {
            let uid = format!("{:012x}", state.said.uid);
            let own = [(label::CONTRACT, "2"), (label::CLUSTER_UID, uid.as_str())];
            let times = [state.now - 10.0, state.now];
            let each = |value: &dyn Fn(u64) -> u64| times.map(|at| (at, value(at as u64)));
            give(Metric::Digest, &own, &each(&|at| state.said.digest(at)));
            let mut parts = BTreeMap::<String, Digest>::new();
            for line in state.said.lines() {
                parts.entry(cluster_of(&line)).or_default().add(line.hash());
            }
            for (cluster, digest) in parts.into_iter().filter(|(cluster, _)| !cluster.is_empty()) {
                let value = state.parts.get(&cluster).copied().unwrap_or(digest.value());
                let own = [own[0], own[1], (label::PACKAGE_CLUSTER, cluster.as_str())];
                give(Metric::Digest, &own, &times.map(|at| (at, value)));
            }
        } else {
            let wanted = expression.split_once("package_cluster=~\"").map(|(_, rest)| rest);
            let wanted =
                wanted.and_then(|rest| Some(rest.split_once("\"}")?.0.split('|').collect::<Vec<_>>()));
            if wanted.is_some() && state.refuses_parts {
                return Err(FeedError::Api { kind: "execution".into(), message: "too many samples".into() });
            }
            let is_wanted = |line: &&Line| {
                let lost = state.lost.is_some_and(|lost| lost(line));
                !lost && wanted.as_ref().is_none_or(|names| names.contains(&cluster_of(line).as_str()))
            };
            let lines = state.said.lines();
            let lines: Vec<&Line> = lines.iter().filter(is_wanted).collect();
            lines.iter().for_each(|line| give(line.metric, &line.own(), &[(at, line.value)]));
            let count = lines.len();
            state.given.push(count);
        }
        Ok(sink)
    }

    fn received(&self) -> u64 {
        0
    }
}

/// Packages in many clusters, and one in its own.
fn said() -> Exposition {
    let own = Exposition::new(0xa).with("own", healthy("r1", 10));
    let all = (0..CLUSTERS).map(|n| format!("eu-{n}"));
    let names = ["p".to_owned(), "q".to_owned()].into_iter().chain((2..EACH).map(|n| format!("n{n}")));
    let names: Vec<String> = names.collect();
    all.fold(own, |said, cluster| {
        names.iter().fold(said, |said, name| said.with_in(&cluster, name, healthy("r1", 10)))
    })
}

struct Rig<'a> {
    backend: &'a Backend,
    poller: Poller<&'a Backend>,
    fleet: Fleet,
}

impl<'a> Rig<'a> {
    /// Everything was read once.
    async fn start(backend: &'a Backend) -> Self {
        let speakers = serde_json::json!([{"cluster": "hub", "sources": ["flux"], "clusters": ["eu-*"]}]);
        let speakers: Speakers = serde_json::from_value(speakers).unwrap();
        let mut fleet = Fleet::default();
        fleet.believe(speakers);
        let mut rig = Self { backend, poller: Poller::new(poll_config(), backend), fleet };
        let all = backend.state().said.lines().len();
        assert!(all as u64 > LEAST, "{all}");
        assert_eq!(rig.poll(|_| {}).await, (1, vec![all]));
        rig
    }

    /// How many streams were verified at the next poll, and how many samples came for that.
    async fn poll(&mut self, change: impl FnOnce(&mut State)) -> (usize, Vec<usize>) {
        let now = {
            let mut state = self.backend.state();
            change(&mut state);
            state.now += 10.0;
            state.given.clear();
            state.now
        };
        let report = self.poller.poll(&mut self.fleet, now).await;
        assert_eq!(report.error, None);
        (report.verified, self.backend.state().given.clone())
    }

    fn content(&self) -> &Content {
        let said = self.backend.state().said.clone();
        self.fleet.verified("hub", &said.stream(&[("cluster", "hub"), ("instance", "i")])).unwrap()
    }
}

fn backend() -> Backend {
    let (parts, given) = (BTreeMap::new(), Vec::new());
    Backend(Mutex::new(State { said: said(), now: 1000.0, parts, lost: None, refuses_parts: false, given }))
}

fn says(state: &mut State, cluster: &str, name: &str, values: Option<Values>) {
    let key = (cluster.to_owned(), package(name));
    match values {
        Some(values) => state.said.elsewhere.insert(key, values),
        None => state.said.elsewhere.remove(&key),
    };
}

/// A part reads what it does now, whatever comes.
fn stands_still(state: &mut State, cluster: &str) {
    let lines = state.said.lines();
    let now: Digest = lines.iter().filter(|line| cluster_of(line) == cluster).map(Line::hash).collect();
    state.parts.insert(cluster.to_owned(), now.value());
}

/// Samples that belong to no other cluster.
fn common(said: &Exposition) -> usize {
    said.lines().iter().filter(|line| cluster_of(line).is_empty()).count()
}

#[rstest]
#[case::a_package_fails(|state: &mut State| says(state, "eu-3", "p", Some(failed("r1", 20))), 1)]
#[case::a_package_goes(|state: &mut State| says(state, "eu-3", "p", None), 1)]
#[case::a_cluster_goes(|state: &mut State| state.said.elsewhere.retain(|(cluster, _), _| cluster != "eu-3"), 0)]
#[case::a_cluster_comes(|state: &mut State| says(state, "us-1", "p", Some(healthy("r2", 20))), 1)]
#[case::several(|state: &mut State| (0..5).for_each(|n| says(state, &format!("eu-{n}"), "q", Some(failed("r2", 20)))), 5)]
#[case::its_own(|state: &mut State| state.said = std::mem::take(&mut state.said).with("own", failed("r1", 20)), 0)]
#[case::a_source_is_down(|state: &mut State| state.said = std::mem::take(&mut state.said).down("flux"), 0)]
#[tokio::test]
async fn only_what_changed_is_read_and_everything_is_known(
    #[case] change: fn(&mut State),
    #[case] read: usize,
) {
    let backend = backend();
    let mut rig = Rig::start(&backend).await;
    assert_eq!(rig.poll(|_| {}).await, (1, vec![]), "nothing changed");
    let (verified, given) = rig.poll(change).await;
    let said = backend.state().said.clone();
    let of_clusters = given.iter().sum::<usize>() - common(&said);
    let most = read * (EACH + 1) * PACKAGE_METRICS.len();
    let fits = if read == 0 { of_clusters == 0 } else { (1..=most).contains(&of_clusters) };
    assert!(verified == 1 && given.len() == 1 && fits, "{verified}, {given:?}");
    assert!(said.lines().len() > 2 * given[0], "nearly all of it was read");
    assert_eq!(rig.content(), &said.content());
    // And again, out of what was put together.
    rig.poll(|state| says(state, "eu-7", "q", Some(failed("r9", 30)))).await;
    assert_eq!(rig.content(), &backend.state().said.content());
}

/// A part that lies hides nothing: what does not add up is read anew, all of it.
#[rstest]
#[case::a_part_that_stands_still(|state: &mut State| {
    stands_still(state, "eu-3");
    says(state, "eu-3", "p", Some(failed("r1", 20)));
})]
#[case::a_part_that_moved_for_another(|state: &mut State| {
    stands_still(state, "eu-3");
    state.parts.insert("eu-4".into(), 7);
    says(state, "eu-3", "p", Some(failed("r1", 20)));
})]
#[case::a_query_that_is_refused(|state: &mut State| {
    state.refuses_parts = true;
    says(state, "eu-3", "p", Some(failed("r1", 20)));
})]
#[case::most_of_them(|state: &mut State| {
    (0..15).for_each(|n| says(state, &format!("eu-{n}"), "p", Some(failed("r1", 20))));
})]
#[tokio::test]
async fn where_parts_do_not_tell_everything_is_read(#[case] change: fn(&mut State)) {
    let backend = backend();
    let mut rig = Rig::start(&backend).await;
    let (verified, given) = rig.poll(change).await;
    let said = backend.state().said.clone();
    assert_eq!((verified, given.last()), (1, Some(&said.lines().len())));
    assert_eq!(rig.content(), &said.content());
}

#[tokio::test]
async fn a_part_that_arrives_torn_is_not_taken_in() {
    let backend = backend();
    let mut rig = Rig::start(&backend).await;
    let before = rig.content().clone();
    let (verified, given) = rig
        .poll(|state| {
            says(state, "eu-3", "p", Some(failed("r1", 20)));
            state.lost = Some(|line| line.metric == Metric::PackageHealth);
        })
        .await;
    assert_eq!((verified, given.len()), (0, 2), "{given:?}");
    assert_eq!(rig.content(), &before);
}

#[tokio::test]
async fn parts_that_misled_are_not_relied_upon_at_the_next_change() {
    let backend = backend();
    let mut rig = Rig::start(&backend).await;
    let all = |backend: &Backend| backend.state().said.lines().len();
    let (_, given) = rig
        .poll(|state| {
            stands_still(state, "eu-3");
            says(state, "eu-3", "p", Some(failed("r1", 20)));
        })
        .await;
    let said = backend.state().said.clone();
    assert_eq!(given, [common(&said), said.lines().len()]);
    let (_, given) = rig.poll(|state| says(state, "eu-5", "q", Some(failed("r1", 30)))).await;
    assert_eq!(given, [all(&backend)]);
    let (_, given) = rig.poll(|state| says(state, "eu-6", "q", Some(failed("r1", 30)))).await;
    assert!(given.len() == 1 && given[0] < all(&backend) / 2, "{given:?}");
}

#[tokio::test]
async fn a_new_process_is_read_as_a_whole() {
    let backend = backend();
    let mut rig = Rig::start(&backend).await;
    let (verified, given) = rig.poll(|state| state.said.process = 2).await;
    assert_eq!(given, [backend.state().said.lines().len()]);
    assert!(verified >= 1);
}

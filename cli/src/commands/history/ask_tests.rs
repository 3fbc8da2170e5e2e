//! What is read of a backend that keeps every scrape, and answers as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_aggregator::feed::promql::{FeedError, QueryApi};
use statusbridge_aggregator::testing::poll_config;
use statusbridge_contract::{CONTRACT_VERSION, Fingerprint, Health, Metric, label};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::testing::{Exposition, Values, failed, healthy, package};
use statusbridge_core::time::Seconds;

use super::ask::{Backend, Question};
use super::fold::{Evidence, Outcome, Story, Trigger, fold};
use super::follow::follow;

const INTERVAL: Seconds = 15.0;
const DAY: Seconds = 86_400.0;
const LOOKBACK: Seconds = 300.0;

/// Labels, the metric's name among them.
type Series = Vec<(String, String)>;
/// Samples by series.
type Found<'a> = BTreeMap<&'a Series, Vec<Sample>>;

/// The scrapes of one cluster, in order of time.
#[derive(Default)]
struct Recorded(Vec<(Seconds, BTreeMap<Series, f64>)>);

impl Recorded {
    /// An exporter's process says this from one time to another.
    fn says(mut self, from: Seconds, to: Seconds, said: &Exposition) -> Self {
        let series = |name: &str, own: &[(&str, &str)]| {
            let named = [("__name__", name), ("cluster", "c")];
            own.iter().chain(&named).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let uid = Fingerprint::from_value(said.uid).unwrap().to_string();
        let mut at = from;
        while at < to {
            let mut scrape: BTreeMap<Series, f64> = said
                .lines()
                .iter()
                .map(|line| (series(line.metric.name(), &line.own()), line.value as f64))
                .collect();
            let contract = [(label::CONTRACT, CONTRACT_VERSION), (label::CLUSTER_UID, uid.as_str())];
            scrape.insert(series(Metric::Digest.name(), &contract), said.digest(at as u64) as f64);
            scrape.insert(series(Metric::RenderedTimestamp.name(), &[]), at.floor());
            self.0.push((at, scrape));
            at += INTERVAL;
        }
        self
    }

    /// Every series of a selector with its samples after `from` and until `to`.
    fn raw(&self, query: &str, from: Seconds, to: Seconds) -> Found<'_> {
        let mut found: Found<'_> = BTreeMap::new();
        for (at, scrape) in self.0.iter().filter(|(at, _)| from < *at && *at <= to) {
            for (series, value) in scrape.iter().filter(|(series, _)| selects(query, series)) {
                found.entry(series).or_default().push(Sample { at: *at, value: *value });
            }
        }
        found
    }

    /// Loses every sample of a metric between two times.
    fn loses(mut self, metric: Metric, from: Seconds, to: Seconds) -> Self {
        let of_metric = |series: &Series| series.iter().any(|(_, value)| value == metric.name());
        for (_, scrape) in self.0.iter_mut().filter(|(at, _)| (from..to).contains(at)) {
            scrape.retain(|series, _| !of_metric(series));
        }
        self
    }

    /// The same as it is seen at distances of `step`, where no stale marker says that a series has ended.
    fn looks(&self, query: &str, from: Seconds, to: Seconds, step: Seconds) -> Found<'_> {
        let mut found: Found<'_> = BTreeMap::new();
        let mut at = (from / step).floor() * step + step;
        while at <= to {
            let until = self.0.partition_point(|(scraped, _)| *scraped <= at);
            let mut seen = BTreeMap::new();
            for (_, scrape) in self.0[..until].iter().filter(|(scraped, _)| *scraped > at - LOOKBACK) {
                seen.extend(scrape.iter().filter(|(series, _)| selects(query, series)));
            }
            for (series, value) in seen {
                found.entry(series).or_default().push(Sample { at, value: *value });
            }
            at += step;
        }
        found
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?.1.split_once(end).map(|(found, _)| found)
}

fn selects(query: &str, series: &[(String, String)]) -> bool {
    let names = between(query, "__name__=~\"", "\"").unwrap();
    let (begin, names) = match names.strip_prefix("statusbridge_(").and_then(|it| it.strip_suffix(")")) {
        Some(names) => ("statusbridge_", names),
        None => ("", names),
    };
    let label = |name: &str| series.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str());
    let name = label("__name__").unwrap();
    let is = |wanted: &str| {
        between(query, &format!(",{wanted}=\""), "\"").is_none_or(|value| label(wanted) == Some(value))
    };
    names.split('|').any(|it| name.strip_prefix(begin) == Some(it))
        && is(label::PACKAGE)
        && is(label::PACKAGE_SOURCE)
        && between(query, &format!(",{}=\"", label::PACKAGE_CLUSTER), "\"")
            .is_none_or(|value| label(label::PACKAGE_CLUSTER).unwrap_or_default() == value)
        && (!query.contains("package_cluster!=") || label(label::PACKAGE_CLUSTER).is_some())
}

impl QueryApi for Recorded {
    async fn query<S: Sink>(&self, query: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
        let range = between(query, "[", "]").unwrap();
        let ms = |text: &str| text.strip_suffix("ms").unwrap().parse::<f64>().unwrap() / 1000.0;
        let found = match range.split_once(':') {
            Some((range, step)) => self.looks(query, at - ms(range), at, ms(step)),
            None => self.raw(query, at - ms(range), at),
        };
        for (series, samples) in found {
            let labels: Labels = series.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            if query.starts_with("count_over_time") {
                sink.series(&labels, &[Sample { at, value: samples.len() as f64 }]);
            } else {
                sink.series(&labels, &samples);
            }
        }
        Ok(sink)
    }

    fn received(&self) -> u64 {
        0
    }
}

fn backend(kept: Recorded) -> Backend<Recorded> {
    Backend::new(kept, poll_config())
}

/// What became of the package between two times, and how many scrapes were of no use.
async fn tell(kept: Recorded, from: Seconds, to: Seconds) -> (Story, usize) {
    let question = Question { package: package("p"), clusters: BTreeSet::new(), elsewhere: None, from, to };
    let found = backend(kept).ask(&question).await.unwrap();
    let (streams, unusable) = found.clusters["c"].streams();
    (fold(follow(&streams, 120.0)), unusable)
}

async fn story(kept: Recorded, from: Seconds, to: Seconds) -> Story {
    let (story, unusable) = tell(kept, from, to).await;
    assert_eq!(unusable, 0);
    story
}

fn outcomes(story: &Story) -> Vec<(Trigger, Outcome)> {
    story.operations.iter().map(|it| (it.trigger, it.outcome)).collect()
}

fn there() -> Exposition {
    Exposition::new(7).with("p", healthy("r1", 50)).with("q", healthy("r1", 50))
}

fn away() -> Exposition {
    Exposition::new(7).with("q", healthy("r1", 50))
}

#[tokio::test]
async fn a_quiet_package_is_known_from_the_beginning_to_the_end() {
    let kept = Recorded::default().says(0.0, 2.5 * DAY, &there());
    let story = story(kept, 1_000.0, 2.4 * DAY).await;
    assert_eq!(outcomes(&story), []);
    assert_eq!(story.unknown(1_120.0, 2.4 * DAY - 120.0), (None, None));
}

/// The time is asked for in parts of a day.
#[tokio::test]
async fn a_package_that_goes_just_before_a_part_ends_is_gone_in_the_next_one_too() {
    let left = DAY - 5.0;
    let kept = Recorded::default().says(0.0, left, &there()).says(left, 2.5 * DAY, &away());
    let story = story(kept, 0.0, 2.4 * DAY).await;
    assert_eq!(story.now, None);
    assert!(story.gone.is_some_and(|gone| gone.at <= DAY + INTERVAL), "{:?}", story.gone);
    assert_eq!(story.unknown(120.0, 2.4 * DAY - 120.0), (None, None));
}

#[tokio::test]
async fn an_exporter_that_does_not_see_its_cluster_takes_no_package_away() {
    let lost = [there().down("flux"), away().down("flux")];
    let kept = Recorded::default()
        .says(0.0, 10_000.0, &there())
        .says(10_000.0, 12_000.0, &lost[0])
        // It is started anew, and waits for its first lists.
        .says(12_000.0, 13_000.0, &lost[1].clone().by(2))
        .says(13_000.0, 20_000.0, &there().by(2))
        .says(20_000.0, 30_000.0, &lost[0].clone().by(2));
    let story = story(kept, 0.0, 29_000.0).await;
    assert_eq!((outcomes(&story), story.gone), (vec![], None));
    let (_, since) = story.unknown(120.0, 28_880.0);
    assert!(
        since.is_some_and(|at| (19_980.0..20_000.0).contains(&at)),
        "what it last knew is not now: {since:?}"
    );
}

/// What a healthy package leaves out goes on to be shown for some minutes where no stale marker says otherwise.
#[tokio::test]
async fn a_package_that_recovers_is_not_what_lingers() {
    let broken = Exposition::new(7).with("p", failed("r1", 10_000));
    let again = Exposition::new(7).with("p", healthy("r1", 12_000));
    let kept = Recorded::default()
        .says(0.0, 10_000.0, &there())
        .says(10_000.0, 12_000.0, &broken)
        .says(12_000.0, 30_000.0, &again);
    let story = story(kept, 0.0, 29_000.0).await;
    assert_eq!(outcomes(&story), [(Trigger::Health, Outcome::Healthy)]);
    let operation = &story.operations[0];
    let times = operation.transitions.iter().map(|it| (it.moment.at, it.moment.exact)).collect::<Vec<_>>();
    assert_eq!(times, [(10_000.0, true), (12_000.0, true)]);
    assert!(story.gaps.is_empty(), "{:?}", story.gaps);
}

#[tokio::test]
async fn a_sample_that_is_lost_makes_nobody_healthy() {
    let broken = Exposition::new(7).with("p", failed("r1", 9_995));
    let kept = Recorded::default()
        .says(0.0, 10_000.0, &there())
        .says(10_000.0, 30_000.0, &broken)
        // The first of them, which alone is read in the middle of the time.
        .loses(Metric::PackageHealth, 10_000.0, 10_015.0);
    let (story, unusable) = tell(kept, 0.0, 29_000.0).await;
    assert_eq!(outcomes(&story), [(Trigger::Health, Outcome::Failed)]);
    let [failed] = story.operations[0].transitions.as_slice() else { panic!("{story:?}") };
    assert_eq!((failed.moment.at, failed.state.health, unusable), (9_995.0, Health::Failed, 1));
}

#[tokio::test]
async fn outcomes_are_held_against_the_scrape_that_they_rest_on() {
    let broken = Exposition::new(7).with("p", failed("r1", 1_000)).with("q", healthy("r1", 50));
    let kept = Recorded::default().says(0.0, 1_000.0, &there()).says(1_000.0, 2_000.0, &broken);
    let evidence = |at, package| Evidence { at, package };
    let told = story(Recorded(kept.0.clone()), 0.0, 2_000.0).await.operations[0].evidence;
    let mut whole = backend(Recorded(kept.0.clone()));
    let attests = async |backend: &mut Backend<Recorded>, evidence| {
        backend.attest(&package("p"), "c", None, &evidence).await.unwrap()
    };
    assert_eq!(attests(&mut whole, told).await, Ok(()));
    let otherwise = Err("what adds up says something else".to_owned());
    assert_eq!(attests(&mut whole, evidence(told.at, None)).await, otherwise);
    assert_eq!(attests(&mut whole, evidence(990.0, told.package)).await, otherwise);
    // Nothing bears this timestamp.
    assert_eq!(
        attests(&mut whole, evidence(1_007.5, told.package)).await,
        Err("no digest is there for it".to_owned())
    );
    let mut torn = backend(kept.loses(Metric::SourcePackages, 1_000.0, 2_000.0));
    assert_eq!(attests(&mut torn, told).await, Err("the samples do not add up to the digest".to_owned()));
    let down = Recorded::default().says(0.0, 100.0, &Exposition::new(7).down("flux"));
    assert_eq!(attests(&mut backend(down), evidence(30.0, None)).await, otherwise);
}

#[tokio::test]
async fn what_a_speaker_tells_of_other_clusters_is_their_story_and_held_against_its_digest() {
    let in_two =
        |p: Values| Exposition::new(7).with_in("eu-1", "p", p).with_in("us-1", "p", healthy("r1", 50));
    let kept = Recorded::default().says(0.0, 1_000.0, &in_two(healthy("r1", 50))).says(
        1_000.0,
        2_000.0,
        &in_two(failed("r1", 1_000)),
    );
    let mut backend = backend(kept);
    let (clusters, from, to) = (["c".to_owned()].into(), 0.0, 2_000.0);
    let question = Question { package: package("p"), clusters, elsewhere: None, from, to };
    assert!(backend.ask(&question).await.unwrap().clusters.is_empty(), "it is not in its own");
    assert_eq!(backend.told_of(&question).await.unwrap(), ["eu-1".to_owned(), "us-1".to_owned()].into());
    let mut story_in = async |cluster: &str| {
        let question = Question { elsewhere: Some(cluster.to_owned()), ..question.clone() };
        let found = backend.ask(&question).await.unwrap();
        fold(follow(&found.clusters["c"].streams().0, 120.0))
    };
    assert_eq!(outcomes(&story_in("us-1").await), []);
    let story = story_in("eu-1").await;
    assert_eq!(outcomes(&story), [(Trigger::Health, Outcome::Failed)]);
    let evidence = story.operations[0].evidence;
    let mut attests =
        async |elsewhere| backend.attest(&package("p"), "c", elsewhere, &evidence).await.unwrap();
    assert_eq!(attests(Some("eu-1")).await, Ok(()));
    assert!(attests(Some("us-1")).await.is_err() && attests(None).await.is_err());
}

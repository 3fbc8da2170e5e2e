//! Looks up what nobody watched: before this process started, or while a cluster was not heard from.
//!
//! ```text
//!   looks --one small query a package--> extents --fleet.sum_up--> settled
//!                                                      \-> loud: raw scrapes --fleet.recall--> floors
//! ```
//!
//! Most packages rest most of the time, which a few numbers a cluster show. Only where something moved
//! are its scrapes read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream::iter};
use statusbridge_contract::{Metric, stream};

use super::Poller;
use crate::{
    clock::Seconds,
    feed::{FeedError, Labels, QueryApi, Sample, Sink, cluster_selector, package_selector},
    fleet::{
        Access, Fleet, IdentityLabels, PackageId,
        past::{Extent, OF_THE_PAST, Past, STATES},
    },
};

/// How long one round may go on before it asks for anything more; the next one takes up the rest.
const ROUND: Duration = Duration::from_secs(10);
/// Packages asked about at the same time.
const AT_ONCE: usize = 4;
/// Longest query, in bytes; VictoriaMetrics refuses queries of more than 16 KiB by default.
const QUERY: usize = 8 << 10;
/// Bytes of cluster names in one part of a query, beyond which all clusters are asked about.
const SOME_NAMES: usize = 300;
/// Bytes of cluster names in a query for scrapes.
const NAMES: usize = 6 << 10;
/// By this label the parts of an answer are told apart.
const PART: &str = "statusbridge_part";

/// What is to be looked up of one package.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The package.
    pub package: PackageId,
    /// In which clusters.
    pub clusters: Vec<String>,
    /// From when on its past has to be known.
    pub from: Seconds,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookedBack {
    /// Pasts that are known now: one for each package and cluster.
    pub known: usize,
    /// Those of which the backend tells nothing, or that are left to the next round.
    pub unknown: usize,
    /// Samples received.
    pub samples: u64,
}

/// A look with what has to be known of the clusters to ask.
struct Question {
    look: Look,
    /// Clusters by the labels that the package has there.
    groups: BTreeMap<IdentityLabels, Vec<String>>,
    /// Samples to expect of a cluster's scrapes.
    samples: HashMap<String, u64>,
    window: u64,
}

impl<Q: QueryApi> Poller<Q> {
    /// Looks up what is asked, as it is at `t`: the time of the poll that the fleet has its state from.
    /// What was found out before an error came stays found out.
    pub async fn look_back(
        &self,
        fleet: &mut impl Access,
        looks: Vec<Look>,
        t: Seconds,
    ) -> Result<LookedBack, FeedError> {
        let began = Instant::now();
        let t = (t * 1000.0).floor() / 1000.0;
        let mut done =
            LookedBack { unknown: looks.iter().map(|l| l.clusters.len()).sum(), ..LookedBack::default() };
        let feed = self.config.feed.clone();
        let questions: Vec<Arc<Question>> = fleet
            .with(move |fleet| {
                looks.into_iter().map(|look| Arc::new(Question::new(fleet, &feed, look, t))).collect()
            })
            .await;
        let mut loud: Vec<(Arc<Question>, Vec<String>)> = Vec::new();
        let asked = iter(questions).map(|question| {
            async move {
                let sums = self.sum_up(&question, t).await?;
                Ok::<_, FeedError>((question, sums))
            }
            .boxed()
        });
        let mut answers = asked.buffered(AT_ONCE);
        while began.elapsed() < ROUND
            && let Some((question, sums)) = answers.try_next().await?
        {
            done.samples += sums.samples;
            let asked = question.clone();
            let unsettled = fleet.with(move |fleet| unsettled(fleet, &asked.look, &sums)).await;
            done.found(question.look.clusters.len() - unsettled.len());
            if !unsettled.is_empty() {
                loud.push((question, unsettled));
            }
        }
        drop(answers);
        for (question, clusters) in loud {
            for batch in self.batches(&question, &clusters) {
                if began.elapsed() >= ROUND {
                    return Ok(done);
                }
                let scrapes = self.scrapes(&question, &batch, t).await?;
                done.samples += scrapes.samples;
                let question = question.clone();
                let told = fleet.with(move |fleet| {
                    let Look { package, from, .. } = &question.look;
                    let told = scrapes.pasts.iter();
                    told.filter(|(cluster, past)| fleet.recall(cluster, package, *from, past)).count()
                });
                done.found(told.await);
            }
        }
        Ok(done)
    }

    /// What a package was between two times, in a few numbers for each cluster.
    async fn sum_up(&self, question: &Question, t: Seconds) -> Result<Sums, FeedError> {
        let mut sums = Sums { label: self.config.cluster_label.clone(), ..Sums::default() };
        for query in question.summaries(&self.config.cluster_label) {
            sums = self.feed.query(&query, t, sums).await?;
        }
        Ok(sums)
    }

    /// Clusters whose scrapes are read together.
    fn batches<'a>(&self, question: &Question, clusters: &'a [String]) -> Vec<Vec<&'a str>> {
        let mut batches: Vec<Vec<&str>> = Vec::new();
        let (mut samples, mut names) = (u64::MAX, usize::MAX);
        for cluster in clusters {
            let more = question.samples.get(cluster).copied().unwrap_or_default();
            let name = 2 * cluster.len() + 1;
            if samples.saturating_add(more) > self.config.batch_samples || names.saturating_add(name) > NAMES
            {
                batches.push(Vec::new());
                (samples, names) = (0, 0);
            }
            (samples, names) = (samples.saturating_add(more), names + name);
            if let Some(batch) = batches.last_mut() {
                batch.push(cluster);
            }
        }
        batches
    }

    async fn scrapes(
        &self,
        question: &Question,
        clusters: &[&str],
        t: Seconds,
    ) -> Result<Scrapes, FeedError> {
        let label = &self.config.cluster_label;
        let mut scrapes = Scrapes {
            label: label.clone(),
            ignored: self.config.ignored_labels.clone(),
            ..Scrapes::default()
        };
        let range = format!("[{}ms]", question.window);
        let (of_package, rendered) = OF_THE_PAST.split_at(OF_THE_PAST.len() - 1);
        for (labels, there) in &question.groups {
            let both = clusters.iter().copied().filter(|cluster| there.iter().any(|it| it == cluster));
            let names: Vec<&str> = both.collect();
            if !names.is_empty() {
                let package = &question.look.package;
                let selector = package_selector(of_package, label, names, labels, package) + &range;
                scrapes = self.feed.query(&selector, t, scrapes).await?;
            }
        }
        let selector = cluster_selector(rendered, label, clusters.iter().copied()) + &range;
        self.feed.query(&selector, t, scrapes).await
    }
}

impl LookedBack {
    fn found(&mut self, pasts: usize) {
        self.known += pasts;
        self.unknown = self.unknown.saturating_sub(pasts);
    }
}

/// Takes in what was summed up; gives back the clusters whose past that does not settle.
fn unsettled(fleet: &mut Fleet, look: &Look, sums: &Sums) -> Vec<String> {
    let unsettled = look.clusters.iter().filter(|cluster| {
        let extent = sums.extents.get(*cluster).cloned().unwrap_or_default();
        !fleet.sum_up(cluster, &look.package, look.from, &extent)
    });
    unsettled.cloned().collect()
}

impl Question {
    fn new(fleet: &Fleet, feed: &str, look: Look, t: Seconds) -> Self {
        let mut groups: BTreeMap<IdentityLabels, Vec<String>> = BTreeMap::new();
        let mut gap: Seconds = 0.0;
        for cluster in &look.clusters {
            gap = gap.max(fleet.longest_gap(cluster));
            for labels in fleet.identity_labels(cluster, feed, &look.package) {
                groups.entry(labels).or_default().push(cluster.clone());
            }
        }
        // What moved right after `from` shows only beside what was before.
        let window = ((t - look.from + gap).max(1.0) * 1000.0).ceil() as u64;
        let samples = |cluster: &String| {
            // Twice what one stream has: there may be two, or another one that is gone.
            let interval = fleet.scrape_interval(cluster).unwrap_or(1.0).max(1.0);
            (cluster.clone(), 2 * OF_THE_PAST.len() as u64 * (window as f64 / 1000.0 / interval) as u64)
        };
        let samples = look.clusters.iter().map(samples).collect();
        Self { look, groups, samples, window }
    }

    /// Queries for the least and greatest value of every state, and for how often the counter rose.
    fn summaries(&self, cluster_label: &str) -> Vec<String> {
        let mut queries: Vec<String> = Vec::new();
        for (labels, clusters) in &self.groups {
            let names: usize = clusters.iter().map(|c| 2 * c.len() + 1).sum();
            let clusters: &[String] = if names > SOME_NAMES { &[] } else { clusters };
            let selector = |metric| {
                package_selector(
                    &[metric],
                    cluster_label,
                    clusters.iter().map(String::as_str),
                    labels,
                    &self.look.package,
                )
            };
            let series = |metric| format!("{}[{}ms]", selector(metric), self.window);
            let part =
                |name: &str, of: String| format!("label_replace({of},\"{PART}\",\"{name}\",\"\",\"\")");
            let mut parts = Vec::new();
            for (i, metric) in STATES.into_iter().enumerate() {
                for side in ["min", "max"] {
                    let of = format!("{side} by ({cluster_label}) ({side}_over_time({}))", series(metric));
                    parts.push(part(&format!("{side}{i}"), of));
                }
            }
            for (i, metric) in STATES.into_iter().chain([Metric::PackageTransitions]).enumerate() {
                let of = format!("count by ({cluster_label}) (count_over_time({}))", series(metric));
                parts.push(part(&format!("series{i}"), of));
            }
            let counter = series(Metric::PackageTransitions);
            let rises = format!("max by ({cluster_label}) (changes({counter}) - resets({counter}))");
            parts.push(part("rises", rises));
            let began = format!("{} offset {}ms", selector(Metric::PackageTransitionTimestamp), self.window);
            parts.push(part("began", format!("count by ({cluster_label}) ({began})")));
            let mut fresh = true;
            for part in parts {
                match queries.last_mut() {
                    Some(query) if !fresh && query.len() + part.len() < QUERY => {
                        query.push_str(" or ");
                        query.push_str(&part);
                    }
                    _ => queries.push(part),
                }
                fresh = false;
            }
        }
        queries
    }
}

/// Extents by cluster.
#[derive(Default)]
struct Sums {
    label: String,
    extents: HashMap<String, Extent>,
    samples: u64,
}

impl Sink for Sums {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let (Some(cluster), Some(part), Some(sample)) =
            (labels.get(&self.label), labels.get(PART), samples.last())
        else {
            return;
        };
        self.samples += 1;
        let extent = self.extents.entry(cluster.to_owned()).or_default();
        if part == "rises" {
            // What is no number is no answer, and no answer is no rest.
            extent.rises = Some(extent.rises.unwrap_or_default() + sample.value);
            return;
        }
        if part == "began" {
            extent.began |= sample.value > 0.0;
            return;
        }
        let place = |side: &str| part.strip_prefix(side).and_then(|i| i.parse::<usize>().ok());
        // A value that is none of the contract's is no rest either.
        let value = sample.whole().unwrap_or(u64::MAX);
        if let Some(least) = place("min").and_then(|i| extent.least.get_mut(i)) {
            *least = Some(least.map_or(value, |known| known.min(value)));
        }
        if let Some(series) = place("series").and_then(|i| extent.series.get_mut(i)) {
            *series = Some(series.unwrap_or_default().saturating_add(value));
        }
        if let Some(most) = place("max").and_then(|i| extent.most.get_mut(i)) {
            *most = Some(most.map_or(value, |known| known.max(value)));
        }
    }
}

/// Scrapes by cluster.
#[derive(Default)]
struct Scrapes {
    label: String,
    ignored: Vec<String>,
    pasts: HashMap<String, Past>,
    samples: u64,
}

impl Sink for Scrapes {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let metric = labels.get("__name__").and_then(Metric::from_name);
        let (Some(metric), Some(cluster)) = (metric, labels.get(&self.label)) else { return };
        self.samples += samples.len() as u64;
        let owned = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned()));
        let stream = stream::split(metric, owned, &self.ignored).stream;
        self.pasts.entry(cluster.to_owned()).or_default().add(&stream, metric, samples);
    }
}

#[cfg(test)]
mod tests {
    use statusbridge_contract::{Fingerprint, PACKAGE_METRICS};

    use super::*;
    use crate::{
        poll::PollConfig,
        testing::{Exposition, healthy, tell},
    };

    fn question(look: &Look, clusters: usize) -> Question {
        let labels = IdentityLabels { source: "s".into(), namespace: "n".into(), name: "p".into() };
        let clusters = look.clusters.iter().take(clusters).cloned().collect();
        let groups = [(labels, clusters)].into();
        Question { look: look.clone(), groups, samples: HashMap::new(), window: 90_000 }
    }

    fn look(name: &str) -> Look {
        Look {
            package: PackageId { source: "flux".into(), namespace: Some("ns".into()), name: name.into() },
            clusters: (0..200).map(|n| format!("cluster-{n}")).collect(),
            from: 1000.0,
        }
    }

    type Series = (Vec<(&'static str, String)>, Vec<Sample>);

    /// A backend that answers with these series, or refuses.
    struct Canned(Option<Vec<Series>>);

    impl QueryApi for Canned {
        async fn query<S: Sink>(&self, _: &str, _: Seconds, mut sink: S) -> Result<S, FeedError> {
            let refused = FeedError::Api { kind: "execution".into(), message: "too much".into() };
            for (labels, samples) in self.0.as_ref().ok_or(refused)? {
                sink.series(&labels.iter().map(|(n, v)| (*n, v.as_str())).collect(), samples);
            }
            Ok(sink)
        }

        fn received(&self) -> u64 {
            0
        }
    }

    fn known() -> Fleet {
        let mut fleet = Fleet::default();
        let exposition = Exposition::new(7).with("p", healthy("r1", 500, 3));
        tell(&mut fleet, &[("cluster", "c")], &exposition, 2000.0);
        fleet
    }

    async fn ask(fleet: &mut Fleet, backend: Canned) -> Result<LookedBack, FeedError> {
        let look = Look { package: crate::testing::package("p"), clusters: vec!["c".into()], from: 1000.0 };
        Poller::new(PollConfig::default(), backend).look_back(fleet, vec![look], 2000.0).await
    }

    fn is_unknown(fleet: &Fleet) -> bool {
        !fleet.unknown_before(&crate::testing::package("p"), 1000.0).is_empty()
    }

    #[tokio::test]
    async fn a_backend_that_refuses_or_tells_nothing_leaves_the_past_unknown() {
        let mut fleet = known();
        assert_eq!(ask(&mut fleet, Canned(None)).await.unwrap_err().kind(), "api");
        assert!(is_unknown(&fleet));
        let found = ask(&mut fleet, Canned(Some(Vec::new()))).await.unwrap();
        assert_eq!(found, LookedBack { known: 0, unknown: 1, samples: 0 });
        assert!(is_unknown(&fleet));
    }

    #[tokio::test]
    async fn what_rested_is_settled_by_numbers_and_what_moved_by_scrapes() {
        let r1 = Fingerprint::of("r1").value();
        let mut answer = Vec::new();
        for (i, value) in [0, 0, r1, 500].into_iter().enumerate() {
            for side in ["min", "max"] {
                answer.push((format!("{side}{i}"), value));
            }
        }
        answer.extend((0..5).map(|i| (format!("series{i}"), 2)));
        answer.push(("began".into(), 1));
        answer.push(("rises".into(), 0));
        let canned = |answer: &[(String, u64)]| {
            let series = answer.iter().map(|(part, value)| {
                let labels = vec![("cluster", "c".to_owned()), (PART, part.clone())];
                (labels, vec![Sample { at: 2000.0, value: *value as f64 }])
            });
            series.collect::<Vec<_>>()
        };
        let mut fleet = known();
        let found = ask(&mut fleet, Canned(Some(canned(&answer)))).await.unwrap();
        assert_eq!(found, LookedBack { known: 1, unknown: 0, samples: 15 });
        assert!(!is_unknown(&fleet));

        // The counter rose at some time: the scrapes say when.
        answer.last_mut().unwrap().1 = 1;
        let mut both = canned(&answer);
        for (metric, value) in PACKAGE_METRICS.iter().zip(healthy("r1", 500, 1)) {
            let labels = vec![("__name__", metric.name().to_owned()), ("cluster", "c".to_owned())];
            let at = |at, value: u64| Sample { at, value: value as f64 };
            let later = if *metric == Metric::PackageTransitions { 3 } else { value };
            both.push((labels, vec![at(1500.0, value), at(1600.0, value), at(1700.0, later)]));
        }
        let mut fleet = known();
        let found = ask(&mut fleet, Canned(Some(both))).await.unwrap();
        assert_eq!((found.known, found.unknown, is_unknown(&fleet)), (1, 0, false));
        let seen = fleet.observe("c", &crate::testing::package("p"), 2000.0, 180.0);
        assert_eq!(seen.row.unwrap().since, 1700.0);
    }

    #[test]
    fn a_package_is_summed_up_by_one_query() {
        let look = look("payments");
        let queries = question(&look, 2).summaries("cluster");
        assert_eq!(queries.len(), 1);
        let parts: Vec<&str> = queries[0].split(" or ").collect();
        assert_eq!(parts.len(), 15);
        insta::assert_snapshot!(
            parts[1],
            @r#"label_replace(max by (cluster) (max_over_time({__name__=~"statusbridge_(package_apply_state)",cluster=~"cluster-0|cluster-1",p="payments",n="ns",s="flux"}[90000ms])),"statusbridge_part","max0","","")"#
        );
        insta::assert_snapshot!(
            parts[13],
            @r#"label_replace(max by (cluster) (changes({__name__=~"statusbridge_(package_transitions_total)",cluster=~"cluster-0|cluster-1",p="payments",n="ns",s="flux"}[90000ms]) - resets({__name__=~"statusbridge_(package_transitions_total)",cluster=~"cluster-0|cluster-1",p="payments",n="ns",s="flux"}[90000ms])),"statusbridge_part","rises","","")"#
        );
        insta::assert_snapshot!(
            parts[14],
            @r#"label_replace(count by (cluster) ({__name__=~"statusbridge_(package_transition_timestamp_seconds)",cluster=~"cluster-0|cluster-1",p="payments",n="ns",s="flux"} offset 90000ms),"statusbridge_part","began","","")"#
        );
    }

    #[test]
    fn queries_are_bounded_whatever_the_names() {
        let many = look("payments");
        let queries = question(&many, 200).summaries("cluster");
        assert!(queries.len() == 1 && !queries[0].contains("cluster=~"), "{queries:?}");
        let long = look(&"\\".repeat(512));
        let queries = question(&long, 200).summaries("cluster");
        assert!(queries.len() > 1 && queries.iter().all(|query| query.len() < QUERY), "{}", queries.len());
    }
}

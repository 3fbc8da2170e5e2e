//! The few samples per stream that say whether anything has to be read.

use std::borrow::Cow;
use std::collections::HashMap;

use statusbridge_contract::{Metric, PACKAGE_METRICS, Version};

use super::{PollConfig, columns::Column};
use crate::{
    clock::Seconds,
    feed::{FeedError, Labels, QueryApi, Sample, Sink},
    fleet::{Beat, FEED_LABEL, Turns},
};

/// What the head queries found.
pub(super) struct Heads {
    /// One per stream, in order of streams.
    pub(super) beats: Vec<Beat>,
    /// Digests without a cluster label.
    pub(super) unnamed: usize,
    /// Samples received.
    pub(super) samples: u64,
}

/// How far back a stream is looked at as a whole, in seconds: several scrapes.
const WINDOW: u32 = 120;

/// Tells of every stream when its UID came last. Less than nothing where that was not always the same lately:
/// two clusters that write under the very same labels take turns, and polls may come at a time at which it
/// is always the turn of the same. Twice as much where the same exposition keeps coming: it is older than it
/// seems. Where scrapes are a second apart, two of them may well be rendered in the same second.
///
/// Whatever is lost of the samples that this is about, no number comes of it, or an old one: where there is
/// no number, nobody says that a stream is one cluster's. Of one that came before the window nothing else
/// is known than when that was.
pub(crate) fn lately_query() -> String {
    let (uid, rendered) = (Metric::ClusterUid.name(), Metric::RenderedTimestamp.name());
    format!(
        "timestamp({uid}) * (1 - 2 * (max_over_time({uid}[{WINDOW}s]) != bool min_over_time({uid}[{WINDOW}s]))) \
         * (1 + (changes({rendered}[{WINDOW}s]) < bool 0.8 * count_over_time({rendered}[{WINDOW}s]) - 1)) \
         or timestamp({uid}) < time() - {WINDOW}"
    )
}

/// What a stream was lately.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lately {
    turns: Turns,
    repeats: bool,
}

impl Lately {
    const UNTOLD: Self = Self { turns: Turns::Untold, repeats: true };

    /// Reads what [`lately_query`] says of a stream at `t`.
    fn read(told: f64, t: Seconds) -> Self {
        let repeats = told.abs() > 1.5 * t;
        let until = if repeats { told.abs() / 2.0 } else { told.abs() };
        let turns = if told < 0.0 { Turns::Taken { until } } else { Turns::None { until } };
        Self { turns, repeats }
    }

    /// Of what is said of two parts of a stream, that which is worse.
    fn worse(self, other: Self) -> Self {
        Self { turns: self.turns.worse(other.turns), repeats: self.repeats || other.repeats }
    }
}

/// Tells every stream's value of a metric, without the name, of which there would be one in every sample.
pub(crate) fn value_query(metric: Metric) -> String {
    format!("{} + 0", metric.name())
}

/// Tells when every stream's value of a metric came.
pub(crate) fn stamp_query(metric: Metric) -> String {
    format!("timestamp({})", metric.name())
}

/// Reads every stream's digest, its timestamp, and when it was rendered, all at `t`.
pub(super) async fn read(feed: &impl QueryApi, config: &PollConfig, t: Seconds) -> Result<Heads, FeedError> {
    let ask = async |metric, query: String| feed.query(&query, t, Column::of(metric)).await;
    let (digests, digests_at, rendered, rendered_at, lately) = tokio::try_join!(
        ask(Metric::Digest, value_query(Metric::Digest)),
        ask(Metric::Digest, stamp_query(Metric::Digest)),
        ask(Metric::RenderedTimestamp, value_query(Metric::RenderedTimestamp)),
        ask(Metric::RenderedTimestamp, stamp_query(Metric::RenderedTimestamp)),
        ask(Metric::ClusterUid, lately_query()),
    )?;
    let columns = [&digests, &digests_at, &rendered, &rendered_at, &lately];
    let samples = columns.iter().map(|column| column.len() as u64).sum();
    let ignored = &config.ignored_labels;
    let merged = (!ignored.is_empty()).then(|| lately_of(&lately, t, ignored));
    let [mut digests_at, mut rendered, mut rendered_at, mut lately] =
        [&digests_at, &rendered, &rendered_at, &lately].map(Column::finder);
    let mut beats: Vec<(Cow<'_, str>, Beat)> = Vec::with_capacity(digests.len());
    let mut unnamed = 0;
    for (key, digest) in digests.iter() {
        let Some(cluster) = key.label(&config.cluster_label).filter(|c| !c.is_empty()) else {
            unnamed += 1;
            continue;
        };
        // Both queries ask at the same time: a digest without a timestamp came in between.
        let Some(at) = digests_at.find(key).and_then(Sample::finite) else { continue };
        let of_stream = key.of_any_contract();
        let rendered_at = rendered_at.find(of_stream).and_then(Sample::finite);
        let rendered = rendered.find(of_stream).and_then(Sample::whole);
        let text = key.of_stream(ignored);
        let lately = match &merged {
            Some(merged) => merged.get(&text).copied(),
            None => lately.find(of_stream).and_then(Sample::finite).map(|told| Lately::read(told, t)),
        };
        let Lately { turns, repeats } = lately.unwrap_or(Lately::UNTOLD);
        let mut stream = key.to_stream(ignored);
        if !config.feed.is_empty() {
            stream.insert(FEED_LABEL.to_owned(), config.feed.as_ref().to_owned());
        }
        let beat = Beat {
            cluster: cluster.to_owned(),
            stream,
            contract: key.contract.to_owned(),
            digest: digest.whole(),
            at,
            rendered: rendered.map(|seconds| seconds as Seconds).zip(rendered_at),
            turns,
            repeats,
        };
        beats.push((text, beat));
    }
    beats.sort_by(|a, b| a.0.cmp(&b.0));
    beats.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same && supersedes(&next.1, &kept.1) {
            std::mem::swap(next, kept);
        }
        same
    });
    Ok(Heads { beats: beats.into_iter().map(|(_, beat)| beat).collect(), unnamed, samples })
}

/// What the answer to [`lately_query`] says of each stream at `t`, where labels are ignored: what is worse counts.
fn lately_of<'a>(answer: &'a Column, t: Seconds, ignored: &[String]) -> HashMap<Cow<'a, str>, Lately> {
    let mut lately = HashMap::new();
    for (key, told) in answer.iter().filter_map(|(key, sample)| Some((key, sample.finite()?))) {
        let told = Lately::read(told, t);
        lately
            .entry(key.of_stream(ignored))
            .and_modify(|it: &mut Lately| *it = it.worse(told))
            .or_insert(told);
    }
    lately
}

/// Of two digests of one stream, as an exporter's upgrade leaves them behind, the newer counts; of two of
/// the same scrape that of the later version among those that can be read.
fn supersedes(beat: &Beat, other: &Beat) -> bool {
    (beat.at, Version::readable(&beat.contract)) > (other.at, Version::readable(&other.contract))
}

/// How many samples each cluster with something unread will be: what it was when last verified, if that
/// is `known`, or what its exporters say.
pub(super) async fn sizes(
    feed: &impl QueryApi,
    config: &PollConfig,
    known: HashMap<String, Option<u64>>,
    t: Seconds,
) -> Result<HashMap<String, u64>, FeedError> {
    let unknown = known.values().any(Option::is_none);
    let known = known.into_iter().filter_map(|(cluster, samples)| Some((cluster, samples?)));
    let mut sizes: HashMap<String, u64> = known.collect();
    if unknown {
        let query = format!("sum by ({}) ({})", config.cluster_label, Metric::SourcePackages.name());
        let sink = Packages { label: config.cluster_label.clone(), counts: HashMap::new() };
        for (cluster, packages) in feed.query(&query, t, sink).await?.counts {
            sizes.entry(cluster).or_insert(packages.saturating_mul(PACKAGE_METRICS.len() as u64));
        }
    }
    Ok(sizes)
}

struct Packages {
    label: String,
    counts: HashMap<String, u64>,
}

impl Sink for Packages {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        if let (Some(cluster), Some(sample)) = (labels.get(&self.label), samples.last()) {
            self.counts.insert(cluster.to_owned(), sample.whole().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_one_clusters_and_does_not_repeat_only_when_that_was_said() {
        let mut answer = Column::of(Metric::ClusterUid);
        let said = [
            ("a", "0", 1000.0),
            ("b", "0", -990.0),
            ("c", "0", 1000.0),
            ("c", "1", 2.0 * 970.0),
            ("d", "0", -2.0 * 960.0),
            ("d", "1", 980.0),
        ];
        for (instance, replica, value) in said {
            let labels = [("cluster", "c"), ("instance", instance), ("replica", replica)];
            answer.series(&labels.into_iter().collect(), &[Sample { at: 1005.0, value }]);
        }
        let ignored = ["replica".to_owned()];
        let lately = lately_of(&answer, 1005.0, &ignored);
        let of = |instance: &str| {
            let (_, told) =
                lately.iter().find(|(stream, _)| stream.contains(&format!("instance\0{instance}\0")))?;
            Some((told.turns, told.repeats))
        };
        assert_eq!(of("a"), Some((Turns::None { until: 1000.0 }, false)));
        assert_eq!(of("b"), Some((Turns::Taken { until: 990.0 }, false)));
        assert_eq!(of("c"), Some((Turns::None { until: 970.0 }, true)));
        assert_eq!(of("d"), Some((Turns::Taken { until: 960.0 }, true)));
        assert_eq!(of("e"), None);
    }
}

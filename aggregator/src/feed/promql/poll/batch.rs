//! What is read in one query.

use std::collections::{BTreeMap, HashMap};

use statusbridge_core::fleet::DigestSample;
use statusbridge_core::time::Seconds;

use super::Due;
use crate::feed::promql::exporters::any_of;

/// Bytes of cluster names in one query; VictoriaMetrics refuses queries of more than 16 KiB by default.
const NAMES: usize = 8 << 10;
/// Scrapes of one query are at most so far apart: its answer grows with the span.
const SPAN: Seconds = 5.0;
/// Expositions of one stream that are tried before it is said that nothing adds up.
const TRIES: usize = 4;

/// Bytes that the name of a cluster takes in a query.
fn length(name: &str) -> usize {
    any_of([name]).len() + 1
}

/// Whether one query can name all of these.
pub(super) fn fit<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    names.map(length).sum::<usize>() <= NAMES
}

/// Names, in queries that name `most` each at most, and no more than fit. One that is too long for a query is in none.
pub(super) fn in_queries(names: Vec<String>, most: usize) -> Vec<Vec<String>> {
    let (mut queries, mut room) = (Vec::<Vec<String>>::new(), 0);
    for name in names {
        let length = length(&name);
        match queries.last_mut().filter(|query| query.len() < most && length <= room) {
            _ if length > NAMES => continue,
            Some(query) => query.push(name),
            None => {
                room = NAMES;
                queries.push(vec![name]);
            }
        }
        room -= length;
    }
    queries
}

/// Expositions that are read together.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Batch {
    pub(super) clusters: Vec<String>,
    pub(super) due: Vec<Due>,
}

impl Batch {
    /// How many samples it is about.
    pub(super) fn samples(&self, sizes: &HashMap<String, u64>) -> u64 {
        self.clusters.iter().filter_map(|cluster| sizes.get(cluster)).sum()
    }
}

/// The first and the last timestamp.
pub(super) fn span(due: &[Due]) -> (Seconds, Seconds) {
    let at = due.iter().map(|due| due.sample.at);
    at.fold((f64::MAX, f64::MIN), |(first, last), at| (first.min(at), last.max(at)))
}

/// How many samples a backend is asked for in one query: less when it refuses, and slowly more again.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    most: u64,
    now: u64,
}

/// By how much of itself the limit grows with every poll.
const GROWTH: u64 = 16;

impl Limit {
    pub(super) fn new(most: u64) -> Self {
        Self { most, now: most }
    }

    pub(super) fn samples(&self) -> u64 {
        self.now
    }

    /// So many samples were refused.
    pub(super) fn refused(&mut self, samples: u64) {
        self.now = (self.now.min(samples) / 2).max(1);
    }

    /// A poll got all that it asked for.
    pub(super) fn served(&mut self) {
        self.now = self.now.saturating_add(self.now / GROWTH + 1).min(self.most);
    }
}

/// Groups expositions by cluster, and clusters that were scraped at about the same time into batches of at most
/// `limit` samples, unless one cluster alone is more.
pub(super) fn batches(due: Vec<Due>, sizes: &HashMap<String, u64>, limit: u64) -> Vec<Batch> {
    let mut clusters: BTreeMap<String, Vec<Due>> = BTreeMap::new();
    for due in due {
        clusters.entry(due.cluster.clone()).or_default().push(due);
    }
    let mut clusters: Vec<_> = clusters.into_iter().map(|(name, due)| (span(&due), name, due)).collect();
    clusters.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
    let mut done = Vec::new();
    let mut batch = Batch::default();
    let (mut samples, mut names, mut first) = (0, 0, f64::MAX);
    for ((from, to), cluster, due) in clusters {
        let size = sizes.get(&cluster).copied().unwrap_or_default();
        let name = length(&cluster);
        let is_full = samples + size > limit || names + name > NAMES || to - first > SPAN;
        if !batch.due.is_empty() && is_full {
            done.push(std::mem::take(&mut batch));
            (samples, names, first) = (0, 0, f64::MAX);
        }
        (samples, names, first) = (samples + size, names + name, first.min(from));
        batch.clusters.push(cluster);
        batch.due.extend(due);
    }
    if !batch.due.is_empty() {
        done.push(batch);
    }
    done
}

/// Which expositions to read of those that one stream attests, the newest first: the newest of all, and one that must
/// have `arrived` whole, because it was scraped no later than this.
pub(super) fn tried(mut samples: Vec<DigestSample>, arrived: Seconds) -> impl Iterator<Item = DigestSample> {
    let older = samples.split_off(samples.len().min(TRIES - 1));
    let whole = older.iter().find(|sample| sample.at <= arrived).or(older.last()).copied();
    samples.into_iter().chain(whole)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use statusbridge_core::fleet::StreamId;

    fn due(cluster: &str, at: Seconds) -> Due {
        let labels = statusbridge_core::testing::stream(&[("cluster", cluster)]);
        Due {
            cluster: cluster.into(),
            stream: StreamId { labels: labels.into(), ..StreamId::default() },
            contract: "2".into(),
            sample: DigestSample { at, ..DigestSample::default() },
            parts: Arc::default(),
        }
    }

    #[test]
    fn batches_hold_so_many_samples_and_clusters_stay_whole() {
        let sizes: HashMap<String, u64> =
            [("a", 60), ("b", 50), ("c", 500), ("d", 10)].map(|(n, s)| (n.into(), s)).into();
        let unread = ["d", "c", "b", "a", "b", "e"].map(|c| due(c, 0.0)).to_vec();
        let got: Vec<Vec<String>> = batches(unread, &sizes, 100).into_iter().map(|b| b.clusters).collect();
        assert_eq!(got, [vec!["a"], vec!["b"], vec!["c"], vec!["d", "e"]]);
    }

    #[test]
    fn the_newest_are_tried_and_one_that_has_arrived_whole_however_late_a_part_is() {
        let t = 1000.0;
        for (count, every, tried_ages) in [
            (0, 15.0, &[][..]),
            (2, 15.0, &[0.0, 15.0]),
            (9, 15.0, &[0.0, 15.0, 30.0, 45.0]),
            (30, 2.0, &[0.0, 2.0, 4.0, 30.0]),
            (5, 2.0, &[0.0, 2.0, 4.0, 8.0]),
            (9, 60.0, &[0.0, 60.0, 120.0, 180.0]),
        ] {
            let sample = |i| DigestSample { at: t - every * f64::from(i), ..DigestSample::default() };
            let got: Vec<Seconds> =
                tried((0..count).map(sample).collect(), t - 30.0).map(|it| t - it.at).collect();
            assert_eq!(got, tried_ages, "{count} samples, one every {every} s");
        }
    }

    #[test]
    fn names_of_a_batch_are_bounded() {
        let unread = (0..1000).map(|i| due(&format!("cluster-with-a-rather-long-name-{i}"), 0.0)).collect();
        let got = batches(unread, &HashMap::new(), 100);
        assert!(got.len() > 3 && got.iter().all(|b| b.clusters.join("|").len() < NAMES));
    }

    #[test]
    fn what_was_scraped_at_about_the_same_time_is_read_together() {
        let due = [("a", 9.0), ("b", 1.0), ("c", 30.0), ("d", 3.0), ("e", 6.5)].map(|(c, at)| due(c, at));
        let got = batches(due.to_vec(), &HashMap::new(), 100);
        let spans: Vec<(Seconds, Seconds)> = got.iter().map(|batch| span(&batch.due)).collect();
        assert_eq!(spans, [(1.0, 3.0), (6.5, 9.0), (30.0, 30.0)]);
    }
}

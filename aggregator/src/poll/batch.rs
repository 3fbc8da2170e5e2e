//! How many clusters are asked about in one query.

use std::collections::{BTreeMap, HashMap};

use super::Unverified;
use crate::{clock::Seconds, fleet::Beat};

/// Bytes of cluster names in one query; VictoriaMetrics refuses queries of more than 16 KiB by default.
const NAMES: usize = 8 << 10;
/// Digest samples this close together are read again in one query: its answer grows with the span.
const SPAN: Seconds = 5.0;

/// Streams read together.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Batch {
    pub(super) clusters: Vec<String>,
    pub(super) beats: Vec<Beat>,
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

/// How many samples a batch is about.
pub(super) fn samples(batch: &Batch, sizes: &HashMap<String, u64>) -> u64 {
    batch.clusters.iter().filter_map(|cluster| sizes.get(cluster)).sum()
}

/// Groups streams by cluster, and clusters into batches of at most `limit` samples, unless one cluster
/// alone is more.
pub(super) fn batches(unread: Vec<Beat>, sizes: &HashMap<String, u64>, limit: u64) -> Vec<Batch> {
    let mut clusters: BTreeMap<String, Vec<Beat>> = BTreeMap::new();
    for beat in unread {
        clusters.entry(beat.cluster.clone()).or_default().push(beat);
    }
    let mut done = Vec::new();
    let mut batch = Batch::default();
    let (mut samples, mut names) = (0, 0);
    for (cluster, beats) in clusters {
        let size = sizes.get(&cluster).copied().unwrap_or_default();
        // Escaping can double a name.
        let name = 2 * cluster.len() + 1;
        if !batch.beats.is_empty() && (samples + size > limit || names + name > NAMES) {
            done.push(std::mem::take(&mut batch));
            (samples, names) = (0, 0);
        }
        (samples, names) = (samples + size, names + name);
        batch.clusters.push(cluster);
        batch.beats.extend(beats);
    }
    if !batch.beats.is_empty() {
        done.push(batch);
    }
    done
}

/// Groups streams whose digests were sampled at about the same time.
pub(super) fn stamp_groups(mut torn: Vec<Unverified>) -> Vec<Vec<Unverified>> {
    torn.sort_by(|a, b| a.beat.at.total_cmp(&b.beat.at));
    let mut groups: Vec<Vec<Unverified>> = Vec::new();
    for unverified in torn {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|f| unverified.beat.at - f.beat.at <= SPAN) => {
                group.push(unverified);
            }
            _ => groups.push(vec![unverified]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(cluster: &str, at: Seconds) -> Beat {
        Beat {
            cluster: cluster.into(),
            stream: crate::testing::stream(&[("cluster", cluster)]),
            contract: "1".into(),
            digest: Some(1),
            at,
            rendered: None,
            ..Beat::default()
        }
    }

    #[test]
    fn batches_hold_so_many_samples_and_clusters_stay_whole() {
        let sizes: HashMap<String, u64> =
            [("a", 60), ("b", 50), ("c", 500), ("d", 10)].map(|(n, s)| (n.into(), s)).into();
        let unread = ["d", "c", "b", "a", "b", "e"].map(|c| beat(c, 0.0)).to_vec();
        let got: Vec<Vec<String>> = batches(unread, &sizes, 100).into_iter().map(|b| b.clusters).collect();
        assert_eq!(got, [vec!["a"], vec!["b"], vec!["c"], vec!["d", "e"]]);
    }

    #[test]
    fn names_of_a_batch_are_bounded() {
        let unread = (0..1000).map(|i| beat(&format!("cluster-with-a-rather-long-name-{i}"), 0.0)).collect();
        let got = batches(unread, &HashMap::new(), 100);
        assert!(got.len() > 5 && got.iter().all(|b| b.clusters.join("|").len() < NAMES));
    }

    #[test]
    fn streams_are_read_again_with_those_sampled_at_about_the_same_time() {
        let torn = [9.0, 1.0, 30.0, 3.0, 6.5].map(|at| Unverified {
            beat: beat("a", at),
            gathered: Box::default(),
            strays: Vec::new(),
            unknown: Vec::new(),
        });
        let groups = stamp_groups(torn.into());
        let ats: Vec<Vec<Seconds>> = groups.iter().map(|g| g.iter().map(|u| u.beat.at).collect()).collect();
        assert_eq!(ats, [vec![1.0, 3.0], vec![6.5, 9.0], vec![30.0]]);
    }
}

//! Whom a look at a feed missed.

use super::stream::Stream;
use super::{Digests, Fleet, StreamId, feed_of};
use crate::time::Seconds;

impl Fleet {
    /// Clusters of which a look at a feed, that found this in the order of clusters, missed somebody, by name:
    ///
    /// - a live stream of a cluster of which another one was found
    /// - all streams of a cluster, where the last news came after `since`, or another cluster of its name was found.
    ///
    /// A stamp that is to come is no finding: it may be an old one.
    pub fn missing(&self, feed: &str, found: &[Digests], since: Seconds) -> Vec<String> {
        let mut found = found.chunk_by(|a, b| a.cluster == b.cluster).peekable();
        let mut missing = Vec::new();
        for (name, cluster) in &self.clusters {
            let is_before = |all: &&[Digests]| all.first().is_some_and(|it| it.cluster < *name);
            while found.next_if(is_before).is_some() {}
            let of_name = |all: &&[Digests]| all.first().is_some_and(|it| it.cluster == *name);
            let here = found.next_if(of_name).unwrap_or_default();
            let here = || here.iter().filter(|it| !it.samples.is_empty() || it.lack.is_some());
            let misses = |id: &StreamId, stream: &Stream| {
                let mut same = here().filter(|it| it.stream.uid == id.uid).peekable();
                match same.peek() {
                    Some(_) => {
                        !same.any(|it| it.stream.labels == id.labels) && !cluster.is_silent(id, stream)
                    }
                    None => here().next().is_some() || stream.arrived() > since,
                }
            };
            if cluster.streams.iter().any(|(id, it)| misses(id, it) && feed_of(&id.labels) == feed) {
                missing.push(name.clone());
            }
        }
        missing
    }
}

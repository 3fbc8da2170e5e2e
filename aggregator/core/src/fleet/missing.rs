//! Whom a look at a feed missed.

use super::stream::Stream;
use super::{Digests, Fleet, StreamId};
use crate::time::Seconds;

impl Fleet {
    /// Clusters of which the look at a feed at `t`, that found this in the order of clusters, missed somebody, by name:
    ///
    /// - a live stream of a cluster of which another one was found
    /// - all streams of a cluster, where the last news came after `since`, or others of its name were found, or heard since then.
    ///
    /// What was found before is no finding once its stream may be silent, nor are stamps that come soon: a look
    /// may have found them before.
    pub fn missing(&self, feed: &str, found: &[Digests], t: Seconds, since: Seconds) -> Vec<String> {
        let mut found = found.chunk_by(|a, b| a.cluster == b.cluster).peekable();
        let mut missing = Vec::new();
        for (name, cluster) in &self.clusters {
            let is_before = |all: &&[Digests]| all.first().is_some_and(|it| *it.cluster < **name);
            while found.next_if(is_before).is_some() {}
            let of_name = |all: &&[Digests]| all.first().is_some_and(|it| *it.cluster == **name);
            let here = found.next_if(of_name).unwrap_or_default();
            let is_ahead = |it: &Digests| it.signs.ahead.is_some();
            let is_there = |it: &&Digests| !it.samples.is_empty() || it.lack.is_some() || is_ahead(it);
            let goes_on = |it: &&Digests| {
                is_ahead(it) || cluster.streams.get(&it.stream).is_none_or(|known| known.goes_on(it, t))
            };
            let here = || here.iter().filter(is_there).filter(goes_on);
            let is_heard = || cluster.streams.values().any(|it| it.arrived() > since);
            let misses = |id: &StreamId, stream: &Stream| {
                let mut same = here().filter(|it| it.stream.uid == id.uid).peekable();
                match same.peek() {
                    Some(_) => {
                        !same.any(|it| it.stream.labels == id.labels) && !cluster.is_silent(id, stream)
                    }
                    None => here().next().is_some() || is_heard(),
                }
            };
            if cluster.streams.iter().any(|(id, it)| misses(id, it) && *id.feed == *feed) {
                missing.push(name.clone());
            }
        }
        missing
    }
}

//! Whom a look at a feed missed.

use super::{Digests, Fleet, feed_of};

impl Fleet {
    /// The clusters of which a feed brought something before and brings nothing now, by name: those too whose name another
    /// cluster has now. `found` are in the order of their clusters.
    ///
    /// A process of a cluster's exporter that another one has taken the place of is not missing.
    pub fn missing(&self, feed: &str, found: &[Digests]) -> Vec<String> {
        let mut found = found.chunk_by(|a, b| a.cluster == b.cluster).peekable();
        let mut missing = Vec::new();
        for (name, cluster) in &self.clusters {
            let is_before = |all: &&[Digests]| all.first().is_some_and(|it| it.cluster < *name);
            while found.next_if(is_before).is_some() {}
            let of_name = |all: &&[Digests]| all.first().is_some_and(|it| it.cluster == *name);
            let here = found.next_if(of_name).unwrap_or_default();
            let speaks = |uid| here.iter().any(|it| it.stream.uid == uid);
            if cluster.streams.keys().any(|id| !speaks(id.uid) && feed_of(&id.labels) == feed) {
                missing.push(name.clone());
            }
        }
        missing
    }
}

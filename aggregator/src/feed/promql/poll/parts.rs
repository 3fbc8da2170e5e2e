//! Exporters that tell of other clusters: what is new of some of these is read alone.
//!
//! ```text
//!   parts of before and of now --what differs--> a query for that --beside what was verified of the rest--> verify
//! ```
//!
//! What is kept and what is read have to add up to the digest of everything, as if all of it had been read. Where they do
//! not, all of it is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use statusbridge_core::fleet::{Access, Parts, StreamId};
use statusbridge_core::verify::Gathered;

use super::Due;
use super::batch::NAMES;

/// The parts of each stream when what it says was last verified.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<(String, StreamId), Arc<Parts>>);

/// Expositions of one cluster's exporters, of which only some parts are read.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub(super) cluster: String,
    /// The other clusters that are read.
    pub(super) others: BTreeSet<Box<str>>,
    pub(super) due: Vec<Due>,
    /// What was verified of the rest, in the order of `due`.
    pub(super) kept: Vec<Gathered>,
}

impl Known {
    /// An exposition was verified.
    pub(super) fn note(&mut self, due: &Due) {
        let key = (due.cluster.clone(), due.stream.clone());
        if due.parts.is_empty() {
            self.0.remove(&key);
        } else {
            self.0.insert(key, due.parts.clone());
        }
    }

    /// Forgets streams of which nothing was heard.
    pub(super) fn retain(&mut self, heard: impl Fn(&str, &StreamId) -> bool) {
        self.0.retain(|(cluster, stream), _| heard(cluster, stream));
    }

    /// Those of which only some parts have to be read, by cluster, and those of which everything has to.
    pub(super) async fn excerpts(&self, fleet: &mut impl Access, due: Vec<Due>) -> (Vec<Excerpt>, Vec<Due>) {
        let mut clusters = BTreeMap::<String, Vec<Due>>::new();
        for due in due {
            clusters.entry(due.cluster.clone()).or_default().push(due);
        }
        let (mut wanted, mut whole) = (Vec::new(), Vec::new());
        for (cluster, due) in clusters {
            match self.changed_of_all(&due) {
                Some(others) => wanted.push(Excerpt { cluster, others, due, kept: Vec::new() }),
                None => whole.extend(due),
            }
        }
        if wanted.is_empty() {
            return (wanted, whole);
        }
        let found = fleet.with(move |fleet| {
            let keep = |excerpt: &Excerpt| {
                let others = excerpt.others.iter().map(AsRef::as_ref).collect();
                let kept = excerpt.due.iter().map(|due| {
                    let content = fleet.verified(&due.cluster, &due.stream)?;
                    Some(Gathered::without(content, due.stream.process, &others))
                });
                kept.collect::<Option<_>>()
            };
            wanted.into_iter().map(|excerpt| (keep(&excerpt), excerpt)).collect::<Vec<_>>()
        });
        let mut excerpts = Vec::new();
        for (kept, excerpt) in found.await {
            match kept {
                Some(kept) => excerpts.push(Excerpt { kept, ..excerpt }),
                None => whole.extend(excerpt.due),
            }
        }
        (excerpts, whole)
    }

    /// The other clusters that differ for any of them. None where it is not known, or they are too many to be named.
    fn changed_of_all(&self, due: &[Due]) -> Option<BTreeSet<Box<str>>> {
        let each = due.iter().map(|due| {
            let before = self.0.get(&(due.cluster.clone(), due.stream.clone()))?;
            (!due.parts.is_empty()).then(|| changed(before, &due.parts))
        });
        let all = each.collect::<Option<Vec<_>>>()?;
        let others: BTreeSet<Box<str>> = all.into_iter().flatten().collect();
        // Escaping can double a name.
        let names: usize = others.iter().map(|name| 2 * name.len() + 1).sum();
        let most = due.iter().map(|due| due.parts.len()).max().unwrap_or_default();
        (names <= NAMES && 2 * others.len() <= most).then_some(others)
    }
}

/// The clusters of which one says something else than the other.
fn changed(before: &Parts, now: &Parts) -> BTreeSet<Box<str>> {
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let new = now.iter().filter(|(name, part)| before.get(*name) != Some(part)).map(|(name, _)| name);
    gone.chain(new).cloned().collect()
}

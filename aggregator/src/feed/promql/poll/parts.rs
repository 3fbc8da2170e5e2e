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

use statusbridge_contract::label;
use statusbridge_core::fleet::{Access, Parts, StreamId};
use statusbridge_core::verify::Gathered;

use super::Due;
use super::batch::fit;

/// Expositions of fewer samples are read as a whole, many in one query.
pub(super) const LEAST: u64 = 5_000;
/// Streams of one cluster whose parts are remembered: a pair of exporters, and those that take their place.
const STREAMS: usize = 4;

/// The parts of each stream when what it says was last verified, by cluster.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<String, HashMap<StreamId, Arc<Parts>>>);

/// Expositions of one cluster's exporters, of which only some parts are read.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub(super) cluster: String,
    /// The other clusters that are read.
    pub(super) others: BTreeSet<Box<str>>,
    pub(super) due: Vec<Due>,
}

impl Known {
    /// An exposition was verified.
    pub(super) fn note(&mut self, due: &Due) {
        if due.parts.is_empty() {
            return self.forget(due);
        }
        let streams = self.0.entry(due.cluster.clone()).or_default();
        if streams.len() < STREAMS || streams.contains_key(&due.stream) {
            streams.insert(due.stream.clone(), due.parts.clone());
        }
    }

    /// The parts of an exposition's stream told nothing of use: the next one is read as a whole.
    pub(super) fn forget(&mut self, due: &Due) {
        if let Some(streams) = self.0.get_mut(&due.cluster) {
            streams.remove(&due.stream);
        }
    }

    /// Forgets streams of which nothing was heard.
    pub(super) fn retain(&mut self, heard: impl Fn(&str, &StreamId) -> bool) {
        self.0.retain(|cluster, streams| {
            streams.retain(|stream, _| heard(cluster, stream));
            !streams.is_empty()
        });
    }

    /// Those of which only some parts have to be read, by cluster, and those of which everything has to; `sizes` says how many
    /// samples each cluster has.
    pub(super) fn excerpts(&self, due: Vec<Due>, sizes: &HashMap<String, u64>) -> (Vec<Excerpt>, Vec<Due>) {
        let mut clusters = BTreeMap::<String, Vec<Due>>::new();
        for due in due {
            clusters.entry(due.cluster.clone()).or_default().push(due);
        }
        let (mut excerpts, mut whole) = (Vec::new(), Vec::new());
        for (cluster, due) in clusters {
            let is_large = sizes.get(&cluster).is_some_and(|size| *size >= LEAST);
            match is_large.then(|| self.changed_of_all(&due)).flatten() {
                Some(others) => excerpts.push(Excerpt { cluster, others, due }),
                None => whole.extend(due),
            }
        }
        (excerpts, whole)
    }

    /// The other clusters that differ for any of them. None where it is not known, or they are too many to be named.
    fn changed_of_all(&self, due: &[Due]) -> Option<BTreeSet<Box<str>>> {
        let streams = self.0.get(&due.first()?.cluster)?;
        let each = due.iter().map(|due| {
            // A target's own label of that name has them arrive under another one.
            let is_plain = !due.stream.labels.contains_key(label::PACKAGE_CLUSTER);
            let before = streams.get(&due.stream).filter(|_| is_plain && !due.parts.is_empty())?;
            Some(changed(before, &due.parts))
        });
        let all = each.collect::<Option<Vec<_>>>()?;
        let others: BTreeSet<Box<str>> = all.into_iter().flatten().collect();
        let most = due.iter().map(|due| due.parts.len()).max().unwrap_or_default();
        (2 * others.len() <= most && fit(others.iter().map(AsRef::as_ref))).then_some(others)
    }
}

impl Excerpt {
    /// What was verified of the rest of each, in the order of what is due. None where something was not.
    pub(super) async fn kept(&self, fleet: &mut impl Access) -> Option<Vec<Gathered>> {
        let (cluster, others) = (self.cluster.clone(), self.others.clone());
        let streams: Vec<StreamId> = self.due.iter().map(|due| due.stream.clone()).collect();
        fleet
            .with(move |fleet| {
                let others = others.iter().map(AsRef::as_ref).collect();
                let kept = streams.iter().map(|stream| {
                    Some(Gathered::without(fleet.verified(&cluster, stream)?, stream.process, &others))
                });
                kept.collect()
            })
            .await
    }
}

/// The clusters of which one says something else than the other.
fn changed(before: &Parts, now: &Parts) -> BTreeSet<Box<str>> {
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let new = now.iter().filter(|(name, part)| before.get(*name) != Some(part)).map(|(name, _)| name);
    gone.chain(new).cloned().collect()
}

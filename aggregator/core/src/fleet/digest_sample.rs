//! Digest samples: what a look at a stream finds before anything of it is read.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Digest, Fingerprint};

use super::FeedName;
use crate::time::Seconds;

/// What tells one stream from another: one process of one cluster's exporter, as one replica of a backend saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// The feed that brings it.
    pub feed: FeedName,
    /// The labels that the pipeline gave it.
    pub labels: Arc<StreamLabels>,
    /// Of the cluster, as the digest's label says it.
    pub uid: Option<Fingerprint>,
    /// Number of the process; 0 where no exposition says it.
    pub process: u64,
}

impl Ord for StreamId {
    fn cmp(&self, other: &Self) -> Ordering {
        // Mostly the very same: a feed keeps them from poll to poll.
        let labels = if Arc::ptr_eq(&self.labels, &other.labels) {
            Ordering::Equal
        } else {
            self.labels.cmp(&other.labels)
        };
        let rest = |it: &Self| (it.uid, it.process);
        labels.then_with(|| rest(self).cmp(&rest(other))).then_with(|| self.feed.cmp(&other.feed))
    }
}

impl PartialOrd for StreamId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl StreamId {
    /// Whether both are processes of one cluster that one feed brings under the same labels.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (&self.labels, self.uid, &self.feed) == (&other.labels, other.uid, &other.feed)
    }

    /// Its feed and those of its labels that some other stream does not share, each in words.
    pub(super) fn distinct_from<'a>(&self, others: impl Iterator<Item = &'a Self> + Clone) -> Vec<String> {
        let differs = |(name, value): &(&String, &String)| {
            others.clone().any(|other| other.labels.get(*name) != Some(*value))
        };
        let labels = self.labels.iter().filter(differs).map(|(name, value)| format!("{name}=\"{value}\""));
        let is_other = !self.feed.is_empty() && others.clone().any(|other| other.feed != self.feed);
        let feed = is_other.then(|| format!("feed {}", self.feed));
        feed.into_iter().chain(labels).collect()
    }
}

/// One exposition's digest, with when it was rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposition {
    /// The digest.
    pub digest: u64,
    /// When it was rendered, in unix seconds of the cluster's clock.
    pub rendered: u64,
}

impl Exposition {
    /// The sum over the state alone.
    pub fn state(self) -> Digest {
        Digest::of_state(self.digest, self.rendered)
    }
}

/// An exposition and when it was scraped, by the clock of the scraper.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DigestSample {
    /// Timestamp of the samples of its scrape.
    pub at: Seconds,
    /// What was scraped.
    pub exposition: Exposition,
}

/// What an exporter says of each other cluster, summed up for each, by the cluster's name. Nothing attests these sums: they
/// tell where something may have changed, and prove nothing.
pub type Parts = BTreeMap<Box<str>, u64>;

/// The digest samples of one stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Digests {
    /// Name of the cluster, as the pipeline gives it.
    pub cluster: Arc<str>,
    /// The stream.
    pub stream: StreamId,
    /// Contract version of the newest.
    pub contract: Arc<str>,
    /// Oldest first, none later than the time that was asked about.
    pub samples: Vec<DigestSample>,
    /// Parts of the newest.
    pub parts: Arc<Parts>,
    /// Whether it is known already that what came with them does not add up: then they confirm nothing.
    pub is_torn: bool,
    /// What the newest digest lacks to be of use, where the look found no other one that is.
    pub lack: Option<String>,
    /// When the newest one was scraped; None where that is among the samples.
    pub seen: Option<Seconds>,
    /// What samples show whose time has not come.
    pub signs: Signs,
}

/// What samples that are stamped later than the present show of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signs {
    /// Stamps that will be believed once their time has come, in order. Some may have been found before.
    pub soon: Vec<Seconds>,
    /// By how much the latest of the others is ahead of the present that were not found before. Those that were are no sign of life:
    /// backends keep them.
    pub ahead: Option<Seconds>,
    /// Samples that are stamped until then may be as old as those, and are no evidence.
    pub doubted: Option<Seconds>,
}

impl Signs {
    /// Whether none shows that the stream goes on.
    pub fn is_empty(&self) -> bool {
        self.soon.is_empty() && self.ahead.is_none()
    }
}

/// What digest samples call for.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The newest attests what was verified already.
    Confirmed,
    /// These attest something that was not verified yet: it has to be read, of the first that adds up.
    Unread(Vec<DigestSample>),
    /// There is nothing newer than what is known.
    Old,
    /// Nothing can be verified against them.
    Unusable,
}

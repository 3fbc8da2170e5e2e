//! Takes in what was looked up of the past.

use std::collections::BTreeSet;

use statusbridge_contract::{label, stream::StreamLabels};

use super::{
    Fleet, PackageId, feed_of, key,
    past::{Extent, Past},
    watch,
};
use crate::clock::Seconds;

/// The names under which a stream's samples bear the identity of a package: what a pipeline added may
/// have pushed them aside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdentityLabels {
    /// Of the label that is `package_source` where it was scraped.
    pub source: String,
    /// `package_namespace`.
    pub namespace: String,
    /// `package`.
    pub name: String,
}

impl IdentityLabels {
    /// Those in a stream with these labels.
    pub fn of(stream: &StreamLabels) -> Self {
        let renamed = |own: &str| {
            let mut name = own.to_owned();
            while stream.contains_key(&name) {
                name.insert_str(0, "exported_");
            }
            name
        };
        Self {
            source: renamed(label::PACKAGE_SOURCE),
            namespace: renamed(label::PACKAGE_NAMESPACE),
            name: renamed(label::PACKAGE),
        }
    }
}

impl Fleet {
    /// Sorted names of the clusters that report the package and of whose past before `since` nothing is
    /// known.
    pub fn unknown_before(&self, package: &PackageId, since: Seconds) -> Vec<&str> {
        let key = key(package);
        let unknown = self.clusters.iter().filter(|(_, cluster)| {
            let mut verified = cluster.streams.values().filter_map(|s| s.verified.as_ref());
            cluster.watch.known_since(&key) > since && verified.any(|v| v.content.has(&key))
        });
        unknown.map(|(name, _)| name.as_str()).collect()
    }

    /// The names of the labels by which a feed can be asked for the package in a cluster: one set, unless
    /// its streams differ.
    pub fn identity_labels(
        &self,
        cluster: &str,
        feed: &str,
        package: &PackageId,
    ) -> BTreeSet<IdentityLabels> {
        let key = key(package);
        let streams = self.clusters.get(cluster).into_iter().flat_map(|c| &c.streams);
        streams
            .filter(|(labels, _)| feed_of(labels) == feed)
            .filter(|(_, s)| s.verified.as_ref().is_some_and(|v| v.content.has(&key)))
            .map(|(labels, _)| IdentityLabels::of(labels))
            .collect()
    }

    /// How long before a moment one has to begin to read in order to see what moved right after it.
    pub fn longest_gap(&self, cluster: &str) -> Seconds {
        watch::longest_gap(self.scrape_interval(cluster))
    }

    /// Takes in what a time that began before `from` holds. Whether that settles it: whether the package
    /// was all the time what it is now. If not, its scrapes have to be read.
    pub fn sum_up(&mut self, cluster: &str, package: &PackageId, from: Seconds, extent: &Extent) -> bool {
        let key = key(package);
        self.changes.package(&key.as_str().into());
        let Some(cluster) = self.clusters.get_mut(cluster) else { return false };
        let mut verified = cluster.streams.values().filter_map(|s| s.verified.as_ref());
        let quiet = verified.any(|v| v.content.find(&key).is_some_and(|(_, now)| extent.is_quiet(&now)));
        if quiet {
            cluster.watch.looked_up(&key, from);
        }
        quiet
    }

    /// Takes in the scrapes of a time that began before `from`. Whether they tell of the package at all.
    pub fn recall(&mut self, cluster: &str, package: &PackageId, from: Seconds, past: &Past) -> bool {
        let key = key(package);
        let (Some(floor), Some(cluster)) = (past.floor(), self.clusters.get_mut(cluster)) else {
            return false;
        };
        self.changes.package(&key.as_str().into());
        let verified = cluster.streams.values_mut().filter_map(|s| s.verified.as_mut());
        let histories = verified.filter_map(|v| v.history_mut(&key));
        histories.for_each(|history| history.floor = history.floor.max(floor));
        cluster.watch.looked_up(&key, from);
        true
    }
}

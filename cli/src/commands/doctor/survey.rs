//! What was seen of backend, streams and hub: plain data, from which everything else follows.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_aggregator::feed::promql::{Flavour, Trust};
use statusbridge_api::PackageRef;
use statusbridge_api::common::ClusterSet;
use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::fleet::{Speakers, StreamId};
use statusbridge_core::time::Seconds;

/// All that was seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Survey {
    /// Evaluation time of the last look, in the backend's clock.
    pub t: Seconds,
    /// How far behind the present the backend was asked.
    pub settle: Seconds,
    /// Largest believable difference between the backend's clock and a cluster's.
    pub max_clock_skew: Seconds,
    /// The label that names the cluster, as configured.
    pub cluster_label: String,
    /// Who is believed; None where nobody has said it.
    pub trust: Option<Trust>,
    /// What the backend is asked as.
    pub flavour: Flavour,
    /// What it seems to be.
    pub found_flavour: Option<Flavour>,
    /// The backend's clock minus this machine's, when they are too far apart to go on.
    pub clock_ahead: Option<Seconds>,
    /// The backend's warning that its answer is not whole.
    pub partial: Option<String>,
    /// Every digest, by the labels of its stream.
    pub digests: BTreeMap<StreamLabels, DigestSeen>,
    /// The same of those that are not believed.
    pub refused: BTreeMap<StreamLabels, DigestSeen>,
    /// They are too many to be read.
    pub refused_unread: bool,
    /// Names of the contract's metrics that are there; those of packages are not looked for.
    pub metrics: BTreeSet<String>,
    /// Own labels that collide with others, and how many series bear both.
    pub collisions: BTreeMap<String, u64>,
    /// By cluster, names of metrics with values that no exporter says: zeros where it leaves a sample out.
    pub filled: BTreeMap<String, BTreeSet<String>>,
    /// By cluster, how many samples stand beside newer ones of the same timestamp which say that they were left out.
    pub restamped: BTreeMap<String, u64>,
    /// What was made of the streams.
    pub streams: Vec<StreamSeen>,
    /// What the FleetPackages of the hub expect.
    pub expectations: Vec<Expectation>,
    /// Exporters were scraped from here: there is no backend in between.
    pub direct: bool,
    /// Exporters that could not be scraped.
    pub unscraped: Vec<Unscraped>,
}

/// An exporter that could not be scraped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unscraped {
    /// Name of its cluster.
    pub cluster: String,
    /// Its address.
    pub url: String,
    /// Why.
    pub why: String,
}

/// What came lately of the digest of one stream's labels, and of what comes with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DigestSeen {
    /// Contract versions of the digests that are there now.
    pub contracts: BTreeSet<String>,
    /// Clusters that they say they are of; None: it does not say.
    pub uids: BTreeSet<Option<Fingerprint>>,
    /// When digests were sampled, in order.
    pub stamps: Vec<Seconds>,
    /// When expositions were rendered, by the time of their samples in milliseconds.
    pub rendered: BTreeMap<i64, u64>,
    /// Which process said it, by the same.
    pub processes: BTreeMap<i64, u64>,
    /// By how much the latest timestamp is ahead of the present.
    pub ahead: Option<Seconds>,
}

/// An exposition is repeated when it was scraped before, and longer ago than whole seconds make up for.
const REPEATED: i64 = 1_500;

impl DigestSeen {
    /// The usual distance between its samples: the median, which neither a lost scrape nor a
    /// restart moves.
    pub(super) fn interval(&self) -> Option<Seconds> {
        let mut gaps: Vec<Seconds> =
            self.stamps.iter().zip(self.stamps.iter().skip(1)).map(|(a, b)| b - a).collect();
        gaps.sort_by(Seconds::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }

    /// How many samples bring an exposition that came before.
    pub(super) fn repeated(&self) -> usize {
        let mut first = BTreeMap::<u64, i64>::new();
        let scrapes = self.rendered.iter();
        scrapes.filter(|(at, rendered)| **at - *first.entry(**rendered).or_insert(**at) > REPEATED).count()
    }

    /// How many digests have no sample of the same time beside them that says when they were rendered, or by whom.
    pub(super) fn alone(&self) -> usize {
        let at = self.stamps.iter().map(|at| (at * 1000.0).round() as i64);
        at.filter(|at| !self.rendered.contains_key(at) || !self.processes.contains_key(at)).count()
    }

    /// Whether processes take turns: one that was replaced does not come back.
    pub(super) fn alternates(&self) -> bool {
        let processes: Vec<u64> = self.processes.values().copied().collect();
        let changes = processes.iter().zip(processes.iter().skip(1)).filter(|(a, b)| a != b).count();
        changes > processes.iter().collect::<BTreeSet<_>>().len()
    }
}

/// A stream, as the aggregator takes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StreamSeen {
    /// Name of its cluster.
    pub cluster: String,
    /// What tells it from others.
    pub id: StreamId,
    /// Timestamp of its newest digest sample.
    pub newest: Option<Seconds>,
    /// The backend's clock minus the cluster's.
    pub clock_offset: Option<Seconds>,
    /// Why it is not verified; `None`: it is.
    pub fault: Option<String>,
    /// Whether it was not verified when it was first looked at.
    pub was_torn: bool,
    /// Its sources that are down.
    pub down: Vec<String>,
    /// Which of the expected packages it has and in which clusters they run, and whether nothing checks their health.
    pub packages: BTreeMap<PackageRef, BTreeMap<String, bool>>,
}

/// What a FleetPackage expects of clusters, or whoever speaks in the place of all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Expectation {
    /// Who expects it.
    pub who: String,
    /// How old evidence may be, in seconds.
    pub stale_after: Seconds,
    /// Of which clusters, whoever tells of them.
    pub clusters: Named,
    /// Whose exporters are believed about other clusters.
    pub speakers: Speakers,
    /// The package; `None`: it is about none.
    pub package: Option<PackageRef>,
    /// The gates that wait for the package to be healthy.
    pub gates: Vec<GateSeen>,
}

/// A gate that waits for its clusters to be healthy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GateSeen {
    pub name: String,
    pub clusters: Named,
}

impl Expectation {
    /// The clusters that it names and whose own exporters have to tell of the package.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.clusters.0.iter().flatten().filter(|cluster| !self.is_told_of(cluster))
    }

    /// Whether it expects something of a cluster's own exporter, if the cluster has one.
    pub(super) fn is_of(&self, cluster: &str) -> bool {
        match &self.clusters {
            Named(None) => true,
            named => named.has(cluster) && !self.is_told_of(cluster),
        }
    }

    /// Whether another cluster's exporter tells of the package in a cluster, which may then have none of its own.
    fn is_told_of(&self, cluster: &str) -> bool {
        self.package.as_ref().is_some_and(|package| self.speakers.of(&package.source, cluster).is_some())
    }
}

/// Clusters by their names; `None`: all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Named(pub Option<BTreeSet<String>>);

impl Named {
    pub(super) fn has(&self, cluster: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(cluster))
    }
}

impl From<ClusterSet> for Named {
    fn from(clusters: ClusterSet) -> Self {
        Self(clusters.names.map(BTreeSet::from_iter))
    }
}

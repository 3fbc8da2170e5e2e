//! What was seen of backend, streams and hub: plain data, from which everything else follows.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_contract::stream::StreamLabels;

use crate::clock::Seconds;
use crate::feed::Flavour;

/// All that was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// Evaluation time of the last look, in the backend's clock.
    pub t: Seconds,
    /// How far behind the present the backend was asked.
    pub settle: Seconds,
    /// Largest believable difference between the backend's clock and a cluster's.
    pub max_clock_skew: Seconds,
    /// The label that names the cluster, as configured.
    pub cluster_label: String,
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
    /// Names of the contract's metrics that are there; those of packages are not looked for.
    pub metrics: BTreeSet<String>,
    /// Own labels that collide with others, and how many series bear both.
    pub collisions: BTreeMap<String, u64>,
    /// What was made of the streams.
    pub streams: Vec<StreamSeen>,
    /// Who says how old evidence may be.
    pub limits: Vec<Limit>,
    /// Exporters were scraped from here: there is no backend in between.
    pub direct: bool,
    /// Exporters that could not be scraped.
    pub unscraped: Vec<Unscraped>,
}

/// An exporter that could not be scraped.
#[derive(Debug, Clone, PartialEq)]
pub struct Unscraped {
    /// Name of its cluster.
    pub cluster: String,
    /// Its address.
    pub url: String,
    /// Why.
    pub why: String,
}

impl Default for Survey {
    fn default() -> Self {
        Self {
            t: 0.0,
            settle: 5.0,
            max_clock_skew: 60.0,
            cluster_label: "cluster".to_owned(),
            flavour: Flavour::Any,
            found_flavour: None,
            clock_ahead: None,
            partial: None,
            digests: BTreeMap::new(),
            metrics: BTreeSet::new(),
            collisions: BTreeMap::new(),
            streams: Vec::new(),
            limits: Vec::new(),
            direct: false,
            unscraped: Vec::new(),
        }
    }
}

/// A stream's digest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DigestSeen {
    /// Fingerprint of the cluster's UID that comes with it.
    pub uid: Option<u64>,
    /// When it was sampled lately, in order.
    pub stamps: Vec<Seconds>,
}

impl DigestSeen {
    /// The usual distance between its samples: the median, which neither a lost scrape nor a
    /// restart moves.
    pub fn interval(&self) -> Option<Seconds> {
        let mut gaps: Vec<Seconds> = self.stamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(Seconds::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }
}

/// A stream, as the aggregator takes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamSeen {
    /// Name of its cluster.
    pub cluster: String,
    /// Its labels.
    pub labels: StreamLabels,
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
}

/// How old evidence may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Who says so.
    pub who: String,
    /// In seconds.
    pub stale_after: Seconds,
    /// For which clusters; `None`: for all.
    pub clusters: Option<BTreeSet<String>>,
}

impl Limit {
    /// Whether it concerns a cluster.
    pub fn concerns(&self, cluster: &str) -> bool {
        self.clusters.as_ref().is_none_or(|clusters| clusters.contains(cluster))
    }
}

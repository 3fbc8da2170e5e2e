//! Which label names the cluster.

use std::collections::{BTreeMap, BTreeSet};

use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;

use super::survey::DigestSeen;

/// Labels that scraping itself gives to everything: they name a process and change when it is
/// replaced.
const OF_TARGETS: &[&str] = &[
    "instance",
    "job",
    "pod",
    "container",
    "endpoint",
    "service",
    "namespace",
    "node",
    "host",
    "replica",
    "prometheus",
    "prometheus_replica",
    "__replica__",
];

/// A label that could name the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) label: String,
    /// How many names it gives.
    pub(super) values: usize,
}

/// Whether a label is one that scraping gives.
pub(super) fn of_target(label: &str) -> bool {
    OF_TARGETS.contains(&label.strip_prefix("exported_").unwrap_or(label))
}

/// Labels that could name the cluster, best first: each digest bears them, and they give one name to
/// each cluster UID and to no other.
pub(super) fn candidates(digests: &BTreeMap<StreamLabels, DigestSeen>) -> Vec<Candidate> {
    let labels: BTreeSet<&String> = digests.keys().flat_map(BTreeMap::keys).collect();
    let mut found: Vec<Candidate> = labels
        .into_iter()
        .filter(|label| !of_target(label))
        .filter_map(|label| {
            let mut names = BTreeMap::<&str, BTreeSet<Fingerprint>>::new();
            let mut uids = BTreeMap::<Fingerprint, BTreeSet<&str>>::new();
            for (labels, seen) in digests {
                let name = labels.get(label).filter(|name| !name.is_empty())?;
                for uid in &seen.uids {
                    names.entry(name).or_default().insert((*uid)?);
                    uids.entry((*uid)?).or_default().insert(name);
                }
            }
            let one_to_one =
                names.values().all(|uids| uids.len() == 1) && uids.values().all(|names| names.len() == 1);
            one_to_one.then(|| Candidate { label: label.clone(), values: names.len() })
        })
        .collect();
    found.sort_by_key(|candidate| !candidate.label.contains("cluster"));
    found
}

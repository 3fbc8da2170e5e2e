//! What is known about every cluster: plain memory, no I/O.

pub mod observation;

pub use observation::{Observation, PackageId, Row, Standing};

use statusbridge_contract::Fingerprint;

use crate::clock::Seconds;
use observation::reason;

/// Everything verified about every cluster.
#[derive(Debug, Default)]
pub struct Fleet {}

impl Fleet {
    /// What is known at `t` about a package in a cluster.
    pub fn observe(
        &self,
        cluster: &str,
        _package: &PackageId,
        _t: Seconds,
        _stale_after: Seconds,
    ) -> Observation {
        Observation {
            standing: Standing::Missing,
            as_of: None,
            row: None,
            reason: reason::CLUSTER_NOT_FOUND,
            message: format!("cluster `{cluster}` was never seen"),
        }
    }

    /// Sorted names of the clusters that report the package or did lately, stale ones included.
    pub fn reporting(&self, _package: &PackageId) -> Vec<String> {
        Vec::new()
    }

    /// Whether any cluster was seen to want, have applied or have healthy this revision of the package.
    pub fn seen_anywhere(&self, _package: &PackageId, _revision: Fingerprint) -> bool {
        false
    }

    /// Time of the youngest verified evidence of any cluster.
    pub fn newest_evidence(&self) -> Option<Seconds> {
        None
    }

    /// How far apart the cluster's digest samples were seen to be.
    pub fn scrape_interval(&self, _cluster: &str) -> Option<Seconds> {
        None
    }
}

//! The promise, held against what is true.

use std::fmt;

use statusbridge_contract::Fingerprint;
use statusbridge_core::time::Seconds;

use super::cluster::{Cluster, Truth};
use super::{CLOCK_SLACK, START};

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    pub(super) at: Seconds,
    pub(super) why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} s: {}", self.at - START, self.why)
    }
}

/// What is claimed by an open gate, or by what was done behind one.
pub(super) struct Claim<'a> {
    pub(super) now: Seconds,
    /// It rests on evidence that seems no older than this.
    pub(super) since: Seconds,
    /// Since when the leader has heard all that was to be heard.
    pub(super) watched: Seconds,
    pub(super) revision: Fingerprint,
    pub(super) soak: Seconds,
    pub(super) need: usize,
    pub(super) budget: usize,
    pub(super) clusters: &'a [Cluster],
    /// A cluster that has taken the name of the first, which is not heard any more.
    pub(super) successor: Option<&'a Cluster>,
}

impl Claim<'_> {
    /// Whether it is true: that enough clusters were healthy at the revision, for as long as they must
    /// be, at a time that is not too long ago; and that not more are failed or silent than may be.
    pub(super) fn holds(&self) -> Result<(), String> {
        let replaced = |c: &Cluster| self.successor.is_some_and(|s| s.name == c.name && self.was_well(s));
        let healthy = self.clusters.iter().filter(|c| self.was_well(c) || replaced(c)).count();
        let (total, ago) = (self.clusters.len(), self.now - self.since);
        if healthy < self.need {
            return Err(format!(
                "only {healthy} of {total} clusters were healthy at its revision for {} s \
                 at any time in the last {ago} s, {} must be",
                self.soak, self.need
            ));
        }
        let bad = self.clusters.iter().filter(|c| self.was_bad(c) && !replaced(c)).count();
        if bad > self.budget {
            return Err(format!(
                "{bad} of {total} clusters were failed or silent in all of the last {ago} s, \
                 {} may be",
                self.budget
            ));
        }
        Ok(())
    }

    /// Whether the cluster was healthy at the revision for as long as it must be, at some time of which young
    /// evidence tells. What nobody is granted to tell counts no longer than old evidence.
    fn was_well(&self, cluster: &Cluster) -> bool {
        if cluster.granted < self.since {
            return false;
        }
        let since = cluster.told_since(self.since, self.watched);
        let soak = (self.soak - CLOCK_SLACK).max(0.0);
        let mut began = None;
        let ends = cluster.truth.iter().skip(1).map(|(at, _)| *at).chain([self.now]);
        for ((start, truth), end) in cluster.truth.iter().zip(ends) {
            if truth.healthy() != self.revision {
                began = None;
                continue;
            }
            let began = *began.get_or_insert(*start);
            if end < since {
                continue;
            }
            let believed = cluster.believed(self.revision, self.watched);
            let believed = believed.filter(|(sight, _)| (began..=end).contains(sight));
            if end - believed.map(|(_, claimed)| claimed).fold(began, Seconds::min) >= soak {
                return true;
            }
        }
        false
    }

    /// Whether the cluster was failed at the revision, or nothing of it was heard from anybody who is granted to tell, in all
    /// the time of which young evidence tells.
    fn was_bad(&self, cluster: &Cluster) -> bool {
        let since = cluster.told_since(self.since, self.watched);
        let failed = |t: &Truth| t.desired == self.revision && t.failed;
        let always_failed = cluster.truth.last().is_some_and(|(at, t)| *at < since && failed(t));
        always_failed || cluster.is_untold(since) || cluster.granted < self.since
    }
}

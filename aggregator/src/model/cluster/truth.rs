//! What is true of the package in a cluster, and how an exporter says so.

use statusbridge_contract::{CONTRACT_VERSION, Digest, Fingerprint, Metric, label, reason};
use statusbridge_core::testing::{Exposition, Line, package, said};

use super::super::PACKAGE;

/// What is true of the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Truth {
    pub(in super::super) desired: Fingerprint,
    pub(in super::super) applied: Fingerprint,
    pub(in super::super) well: bool,
    pub(in super::super) failed: bool,
}

/// States, revisions (desired, applied, healthy) and reason, as an exporter says them.
type Shown = ((u64, u64), [Fingerprint; 3], u64);

impl Truth {
    /// Nothing is known or applied.
    pub(super) const NOTHING: Self =
        Self { desired: Fingerprint::NONE, applied: Fingerprint::NONE, well: false, failed: false };

    /// Applied in full and Current.
    pub(in super::super) fn healthy_at(revision: Fingerprint) -> Self {
        Self { desired: revision, applied: revision, well: true, failed: false }
    }

    /// The revision that is applied in full and Current.
    pub(in super::super) fn healthy(self) -> Fingerprint {
        let is_healthy = self.well && !self.failed && self.desired == self.applied;
        if is_healthy { self.applied } else { Fingerprint::NONE }
    }

    pub(super) fn shown(self) -> Shown {
        let apply = u64::from(self.desired != self.applied);
        let (health, reason) = if self.failed { (5, failed()) } else { (u64::from(!self.well), 0) };
        ((apply, health), [self.desired, self.applied, self.healthy()], reason)
    }

    /// The samples by which the exporter of the cluster with a UID says so, of its own cluster or of another one.
    pub(super) fn samples(self, uid: u64, told_of: Option<&str>, by: Attested) -> Vec<Sample> {
        let Attested { process, since, is_up, clock } = by;
        let (states, revisions, reason) = self.shown();
        let values = said(states, revisions, since, reason);
        let exposition = Exposition::new(uid).by(process);
        let exposition = match told_of {
            None => exposition.with(PACKAGE, values),
            Some(cluster) => exposition.with_in(cluster, PACKAGE, values),
        };
        let exposition = if is_up { exposition } else { exposition.down(&package(PACKAGE).source) };
        let lines = exposition.lines();
        let uid = Fingerprint::from_value(uid).map(|uid| uid.to_string()).unwrap_or_default();
        let own = vec![(label::CONTRACT, CONTRACT_VERSION.to_owned()), (label::CLUSTER_UID, uid)];
        let part = told_of.map(|cluster| {
            let is_elsewhere =
                |own: &[(&str, String)]| own.iter().any(|(name, _)| *name == label::PACKAGE_CLUSTER);
            let part: Digest = lines.iter().filter(|line| is_elsewhere(&line.own)).map(Line::hash).collect();
            let own = own.iter().cloned().chain([(label::PACKAGE_CLUSTER, cluster.to_owned())]);
            (Metric::Digest, own.collect(), part.value())
        });
        let digest = exposition.digest(clock);
        let mut samples: Vec<_> = lines.into_iter().map(|line| (line.metric, line.own, line.value)).collect();
        samples.push((Metric::RenderedTimestamp, Vec::new(), clock));
        samples.extend(part);
        samples.push((Metric::Digest, own, digest));
        samples
    }
}

/// Who says something, and when by the cluster's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attested {
    pub(super) process: u64,
    /// Since when it vouches for what it says.
    pub(super) since: u64,
    /// Whether it is in touch with what it reads.
    pub(super) is_up: bool,
    /// When it is rendered.
    pub(super) clock: u64,
}

/// Metric, own labels and value.
pub(super) type Sample = (Metric, Vec<(&'static str, String)>, u64);

fn failed() -> u64 {
    static CODE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *CODE.get_or_init(|| reason::code("HealthCheckFailed"))
}

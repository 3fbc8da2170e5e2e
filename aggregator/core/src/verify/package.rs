//! One package of an exposition: its identity, and up to ten numbers. What is left out follows from the rest.

use std::sync::Arc;

use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric, PACKAGE_METRICS, label, sample};

/// Place of a metric in [`PACKAGE_METRICS`].
pub fn slot(metric: Metric) -> Option<usize> {
    PACKAGE_METRICS.iter().position(|m| *m == metric)
}

/// Identity of a package as one string, in which keys sort by source, namespace, name and cluster. A
/// cluster-scoped package has an empty namespace, as an empty label is no label. No part has a NUL in it.
pub fn key(source: &str, namespace: &str, name: &str) -> String {
    [source, namespace, name].join("\0")
}

/// A key that no package has.
pub(crate) const NOBODY: &str = "\0\0\0\0\0\0";

/// The key of what another cluster's exporter says of a package in this cluster, out of the package's own.
pub(crate) fn key_in(key: &str, cluster: &str) -> String {
    [key, cluster].join("\0")
}

/// The [`key`] of the package, and the cluster in which it runs where that is not the exporter's own.
pub(crate) fn without_cluster(key: &str) -> (&str, Option<&str>) {
    match key.match_indices('\0').nth(2).and_then(|(at, _)| key.split_at_checked(at)) {
        Some((package, cluster)) => (package, cluster.strip_prefix('\0')),
        None => (key, None),
    }
}

/// Source, namespace and name out of a [`key`].
pub fn parts(key: &str) -> (&str, &str, &str) {
    let mut parts = key.split('\0');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

/// The identity labels of a package, as its samples bear them.
pub fn identity(key: &str) -> Vec<(&'static str, &str)> {
    let (package, cluster) = without_cluster(key);
    let (source, namespace, name) = parts(package);
    let mut labels = vec![(label::PACKAGE, name)];
    labels.extend(cluster.map(|cluster| (label::PACKAGE_CLUSTER, cluster)));
    if !namespace.is_empty() {
        labels.push((label::PACKAGE_NAMESPACE, namespace));
    }
    labels.push((label::PACKAGE_SOURCE, source));
    labels
}

/// One package's samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its identity, see [`key`].
    pub key: Arc<str>,
    /// Bit n is set when there is a sample of `PACKAGE_METRICS[n]`.
    pub present: u16,
    /// The samples' values; 0 where there is none.
    pub values: [u64; PACKAGE_METRICS.len()],
}

impl Package {
    /// A package without samples.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, present: 0, values: [0; PACKAGE_METRICS.len()] }
    }

    /// Its value of a per-package metric, if there is a sample.
    pub fn get(&self, metric: Metric) -> Option<u64> {
        slot(metric).filter(|s| self.present & 1 << s != 0).and_then(|s| self.values.get(s).copied())
    }

    fn revision(&self, metric: Metric) -> Option<Fingerprint> {
        self.get(metric).and_then(Fingerprint::from_value)
    }

    /// How far applying has come: Applied where nothing is said.
    pub fn apply(&self) -> ApplyState {
        let code = self.get(Metric::PackageApplyState);
        code.map_or(ApplyState::Applied, |code| ApplyState::from_code(code).unwrap_or(ApplyState::Unknown))
    }

    /// Health of what is applied: Current where nothing is said.
    pub fn health(&self) -> Health {
        let code = self.get(Metric::PackageHealth);
        code.map_or(Health::Current, |code| Health::from_code(code).unwrap_or(Health::Unknown))
    }

    /// The revision that is applied in full and Current; none is [`Fingerprint::NONE`].
    pub fn healthy(&self) -> Fingerprint {
        self.revision(Metric::PackageHealthyRevision).unwrap_or_default()
    }

    /// The revision last applied in full: the healthy one where nothing is said.
    pub fn applied(&self) -> Fingerprint {
        self.revision(Metric::PackageAppliedRevision).unwrap_or_else(|| self.healthy())
    }

    /// The revision that the cluster has been told to run: the applied one where nothing is said.
    pub fn desired(&self) -> Fingerprint {
        self.revision(Metric::PackageDesiredRevision).unwrap_or_else(|| self.applied())
    }

    /// Code of the reason; 0 is none.
    pub fn reason(&self) -> u64 {
        self.get(Metric::PackageReason).unwrap_or_default()
    }

    /// Since when the exporter vouches that all this is so, in unix seconds of its cluster's clock.
    pub fn since(&self) -> u64 {
        self.get(Metric::PackageTransitionTimestamp).unwrap_or_default()
    }

    /// Metric and value of each sample.
    pub fn samples(&self) -> impl Iterator<Item = (Metric, u64)> {
        let samples = PACKAGE_METRICS.into_iter().zip(self.values).enumerate();
        samples.filter(|(slot, _)| self.present & 1 << slot != 0).map(|(_, sample)| sample)
    }

    /// Hash of one of its samples, had it this value.
    pub fn hash(&self, metric: Metric, value: u64) -> u64 {
        sample::hash(metric.name(), &identity(&self.key), value)
    }

    /// Whether two observations say the same of all that counts for a verdict: of states, revisions, reason,
    /// and since when.
    pub(crate) fn same_row(&self, other: &Self) -> bool {
        self.same_state(other) && (self.since(), self.reason()) == (other.since(), other.reason())
    }

    /// Whether two observations say the same about apply state, health and revisions.
    pub(crate) fn same_state(&self, other: &Self) -> bool {
        const STATE: [Metric; 5] = [
            Metric::PackageHealthyRevision,
            Metric::PackageApplyState,
            Metric::PackageHealth,
            Metric::PackageAppliedRevision,
            Metric::PackageDesiredRevision,
        ];
        STATE.iter().all(|metric| self.get(*metric) == other.get(*metric))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_per_package_metric_has_its_place() {
        for metric in Metric::ALL {
            assert_eq!(slot(*metric).is_some(), metric.per_package(), "{metric:?}");
        }
    }

    #[test]
    fn a_key_gives_its_parts_back() {
        assert_eq!(parts(&key("s", "ns", "p")), ("s", "ns", "p"));
        assert_eq!(identity(&key("s", "", "p")), [("package", "p"), ("package_source", "s")]);
        assert_eq!(
            identity(&key("s", "ns", "p")),
            [("package", "p"), ("package_namespace", "ns"), ("package_source", "s")]
        );
        let elsewhere = key_in(&key("s", "", "p"), "eu-1");
        assert_eq!(
            (parts(&elsewhere), without_cluster(&elsewhere)),
            (("s", "", "p"), ("s\0\0p", Some("eu-1")))
        );
        assert_eq!(
            identity(&elsewhere),
            [("package", "p"), ("package_cluster", "eu-1"), ("package_source", "s")]
        );
        assert_eq!(without_cluster("s\0\0p"), ("s\0\0p", None));
    }
}

//! What one exposition attests: a package is its name and eleven numbers.

use std::sync::Arc;

use statusbridge_contract::{Fingerprint, Metric, PACKAGE_METRICS, label, sample};

use super::packages::Packages;

/// Place of a metric in [`PACKAGE_METRICS`].
pub fn slot(metric: Metric) -> Option<usize> {
    PACKAGE_METRICS.iter().position(|m| *m == metric)
}

/// Identity of a package as one string, in which keys sort by source, namespace and name. A
/// cluster-scoped package has an empty namespace, as an empty label is no label.
pub fn key(source: &str, namespace: &str, name: &str) -> String {
    [source, namespace, name].join("\0")
}

/// Source, namespace and name out of a [`key`].
pub fn parts(key: &str) -> (&str, &str, &str) {
    let mut parts = key.splitn(3, '\0');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

/// The identity labels of a package, as its samples bear them.
pub fn identity(key: &str) -> Vec<(&'static str, &str)> {
    let (source, namespace, name) = parts(key);
    let mut labels = vec![(label::PACKAGE, name), (label::PACKAGE_SOURCE, source)];
    if !namespace.is_empty() {
        labels.insert(1, (label::PACKAGE_NAMESPACE, namespace));
    }
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
        slot(metric).filter(|s| self.present & 1 << s != 0).map(|s| self.values[s])
    }

    /// The value of a metric that every package has.
    pub fn value(&self, metric: Metric) -> u64 {
        self.get(metric).unwrap_or_default()
    }

    /// The value of a revision metric.
    pub fn revision(&self, metric: Metric) -> Fingerprint {
        Fingerprint::from_value(self.value(metric)).unwrap_or_default()
    }

    /// Metric and value of each sample.
    pub fn samples(&self) -> impl Iterator<Item = (Metric, u64)> {
        let present = |slot: &usize| self.present & 1 << slot != 0;
        (0..PACKAGE_METRICS.len()).filter(present).map(|s| (PACKAGE_METRICS[s], self.values[s]))
    }

    /// Hash of one of its samples, had it this value.
    pub fn hash(&self, metric: Metric, value: u64) -> u64 {
        sample::hash(metric.name(), &identity(&self.key), value)
    }

    /// Whether two observations say the same of all that counts for a verdict: of states, revisions, reason,
    /// and since when.
    pub fn same_row(&self, other: &Self) -> bool {
        const REST: usize = 6; // the first six metrics, and the reason
        let reason = |package: &Self| package.value(Metric::PackageReason);
        self.values[..REST] == other.values[..REST] && reason(self) == reason(other)
    }

    /// Whether two observations say the same about apply state, health and revisions.
    pub fn same_state(&self, other: &Self) -> bool {
        const STATE: usize = 5; // the first five metrics
        self.values[..STATE] == other.values[..STATE]
    }
}

/// What an exposition says about one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The source's name.
    pub name: Box<str>,
    /// `statusbridge_source_up`.
    pub up: Option<u64>,
    /// `statusbridge_source_packages`.
    pub packages: Option<u64>,
}

/// An entry of the dictionary of reasons.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The source whose dictionary it is in.
    pub source: Box<str>,
    /// The code, as the label has it.
    pub code: Box<str>,
    /// The word.
    pub word: Box<str>,
    /// The sample's value, which is 1.
    pub value: u64,
}

/// Everything that one exposition attests, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The digest that it adds up to.
    pub digest: u64,
    /// How many samples it is.
    pub samples: u64,
    /// `statusbridge_cluster_uid`.
    pub uid: Option<u64>,
    /// The sources, by name.
    pub sources: Vec<Source>,
    /// The dictionary of reasons, by source, code and word.
    pub reasons: Arc<[Reason]>,
    /// The packages, by key.
    pub packages: Packages,
}

impl Content {
    /// A package, by its [`key`], and its place among [`Content::packages`].
    pub fn find(&self, key: &str) -> Option<(usize, Package)> {
        let at = self.packages.position(key)?;
        Some((at, self.packages.get(at)?))
    }

    /// Whether there is a package with this [`key`].
    pub fn has(&self, key: &str) -> bool {
        self.packages.position(key).is_some()
    }

    /// Whether the same sources of the same cluster are up, and no others.
    pub fn has_same_sources(&self, other: &Self) -> bool {
        let ups =
            |content: &Self| content.sources.iter().map(|it| (it.name.clone(), it.up)).collect::<Vec<_>>();
        self.uid == other.uid && ups(self) == ups(other)
    }

    /// What it says about a source.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|s| s.name.as_ref() == name)
    }

    /// The word for a reason code; codes that the dictionary lacks are shown as they are, 0 is none.
    pub fn reason(&self, source: &str, code: u64) -> Option<String> {
        let known = |r: &&Reason| r.source.as_ref() == source && r.code.parse() == Ok(code);
        match code {
            0 => None,
            _ => Some(match self.reasons.iter().find(known) {
                Some(reason) => reason.word.to_string(),
                None => format!("code {code:#x}"),
            }),
        }
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
    }
}

//! Reads an exposition as text, the way a test looks at what a program says.

use anyhow::{Context, Result, ensure};
use statusbridge_contract::{ApplyState, Digest, Fingerprint, Health, Metric, exposition, label, sample};
use std::collections::BTreeMap;

/// One line of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Name of the sample.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// The samples of an exposition in the text format, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    /// All of them.
    pub lines: Vec<Line>,
}

/// One package as an exposition shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown {
    /// Apply state.
    pub apply: ApplyState,
    /// Health.
    pub health: Health,
    /// The revision that the cluster was told to run.
    pub desired: Fingerprint,
    /// The revision last applied.
    pub applied: Fingerprint,
    /// The revision that is healthy.
    pub healthy: Fingerprint,
    /// When the state last changed, in unix seconds.
    pub since: u64,
    /// How many changes were seen.
    pub transitions: u64,
    /// Code of the reason.
    pub reason: u64,
}

impl Exposition {
    /// Reads a text.
    ///
    /// # Errors
    /// When a line is no sample, as [`exposition::read`] says.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = Vec::new();
        exposition::read(text, |sample| {
            let labels = sample.labels.iter().map(|(n, v)| ((*n).to_owned(), v.to_string())).collect();
            lines.push(Line { name: sample.name.to_owned(), labels, value: sample.value });
        })
        .with_context(|| text.to_owned())?;
        Ok(Self { lines })
    }

    /// Value of the only sample of this name that carries all of these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let carries = |l: &&Line| labels.iter().all(|(n, v)| l.labels.get(*n).is_some_and(|has| has == v));
        let mut found = self.lines.iter().filter(|l| l.name == name).filter(carries);
        let first = found.next()?;
        found.next().is_none().then_some(first.value)
    }

    /// Sum of all samples of this name; 0 when there is none.
    pub fn sum(&self, name: &str) -> f64 {
        self.lines.iter().filter(|l| l.name == name).map(|l| l.value).sum()
    }

    /// A package, when all of its metrics are there.
    pub fn package(&self, source: &str, name: &str) -> Option<Shown> {
        let labels = [(label::PACKAGE_SOURCE, source), (label::PACKAGE, name)];
        let whole = |metric: Metric| Some(self.value(metric.name(), &labels)? as u64);
        let revision = |metric: Metric| Fingerprint::from_value(whole(metric)?);
        Some(Shown {
            apply: ApplyState::from_code(whole(Metric::PackageApplyState)?)?,
            health: Health::from_code(whole(Metric::PackageHealth)?)?,
            desired: revision(Metric::PackageDesiredRevision)?,
            applied: revision(Metric::PackageAppliedRevision)?,
            healthy: revision(Metric::PackageHealthyRevision)?,
            since: whole(Metric::PackageTransitionTimestamp)?,
            transitions: whole(Metric::PackageTransitions)?,
            reason: whole(Metric::PackageReason)?,
        })
    }

    /// The word that is the reason of this code.
    pub fn reason(&self, source: &str, code: u64) -> Option<&str> {
        let code = code.to_string();
        let of = |l: &&Line| {
            let is = |name: &str, value: &str| l.labels.get(name).is_some_and(|has| has == value);
            l.name == Metric::ReasonInfo.name() && is(label::PACKAGE_SOURCE, source) && is(label::CODE, &code)
        };
        self.lines.iter().find(of)?.labels.get(label::REASON).map(String::as_str)
    }

    /// Names of all packages that any metric speaks of.
    pub fn packages(&self) -> Vec<String> {
        let named = self.lines.iter().filter_map(|l| l.labels.get(label::PACKAGE).cloned());
        let mut names: Vec<String> = named.collect();
        names.sort();
        names.dedup();
        names
    }

    /// Fails unless the digest is that of the samples: what a reader does who may have got only a part of them.
    ///
    /// # Errors
    /// When it is another one, or not there.
    pub fn adds_up(&self) -> Result<()> {
        let attested = |l: &&Line| Metric::from_name(&l.name).is_some_and(Metric::in_digest);
        let hash = |l: &Line| {
            let labels: Vec<(&str, &str)> = l.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            sample::hash(&l.name, &labels, l.value as u64)
        };
        let digest: Digest = self.lines.iter().filter(attested).map(hash).collect();
        let said = self.value(Metric::Digest.name(), &[]).context("no digest")?;
        ensure!(
            said == digest.value() as f64,
            "its digest is {said}, that of its samples {}",
            digest.value()
        );
        Ok(())
    }

    /// `statusbridge_source_up` of a source; `None` when nothing is said of it.
    pub fn source_up(&self, source: &str) -> Option<bool> {
        self.value(Metric::SourceUp.name(), &[(label::PACKAGE_SOURCE, source)]).map(|v| v == 1.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# HELP a what\na{} 1\nb 2.5\nc{x=\"1\",y=\"a\\\\b\\\"c\\nd}\"} 3e2\n";
        let read = Exposition::parse(text).unwrap();
        assert_eq!(read.value("a", &[]), Some(1.0));
        assert_eq!(read.value("b", &[]), Some(2.5));
        assert_eq!(read.value("c", &[("y", "a\\b\"c\nd}"), ("x", "1")]), Some(300.0));
        assert_eq!(read.value("c", &[("x", "2")]), None);
        assert!(Exposition::parse("a{x=\"1").is_err());
    }
}

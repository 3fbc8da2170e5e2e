//! Reads an exposition as text, the way a test looks at what a program says, and writes one as a program would.

use anyhow::{Context, Result, ensure};
use statusbridge_contract::{
    ApplyState, CONTRACT_VERSION, Digest, Fingerprint, Health, Metric, exposition, label, sample,
};
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
    /// Since when the exporter vouches for all of it, in unix seconds.
    pub since: u64,
    /// Code of the reason; 0 = none.
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

    /// A package, with all that is left out because it follows.
    pub fn package(&self, source: &str, name: &str) -> Option<Shown> {
        let labels = [(label::PACKAGE_SOURCE, source), (label::PACKAGE, name)];
        let whole = |metric: Metric| Some(self.value(metric.name(), &labels)? as u64);
        let code = |metric| whole(metric).unwrap_or(0);
        let revision = |metric: Metric| whole(metric).and_then(Fingerprint::from_value);
        let healthy = revision(Metric::PackageHealthyRevision)?;
        let applied = revision(Metric::PackageAppliedRevision).unwrap_or(healthy);
        Some(Shown {
            apply: ApplyState::from_code(code(Metric::PackageApplyState))?,
            health: Health::from_code(code(Metric::PackageHealth))?,
            desired: revision(Metric::PackageDesiredRevision).unwrap_or(applied),
            applied,
            healthy,
            since: whole(Metric::PackageTransitionTimestamp)?,
            reason: code(Metric::PackageReason),
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

    /// The cluster's UID, as the digest's label says it; `None` without a digest.
    pub fn cluster_uid(&self) -> Option<&str> {
        let digest = self.lines.iter().find(|line| line.name == Metric::Digest.name())?;
        digest.labels.get(label::CLUSTER_UID).map(String::as_str)
    }

    /// `statusbridge_source_up` of a source; `None` when nothing is said of it.
    pub fn source_up(&self, source: &str) -> Option<bool> {
        self.value(Metric::SourceUp.name(), &[(label::PACKAGE_SOURCE, source)]).map(|v| v == 1.0)
    }
}

/// An exposition that is written sample by sample, and attested when it is done.
#[derive(Debug, Clone, Default)]
pub struct Page {
    text: String,
    digest: Digest,
    /// By the cluster that samples are about, if that is another one.
    parts: BTreeMap<String, Digest>,
}

/// Who attests an exposition, and when.
#[derive(Debug, Clone, Copy)]
pub struct Attestation<'a> {
    /// Contract version.
    pub contract: &'a str,
    /// The cluster's UID.
    pub uid: Fingerprint,
    /// Number of the process.
    pub process: u64,
    /// When, in unix seconds.
    pub rendered: u64,
}

impl Attestation<'_> {
    /// By the present version of the contract.
    pub fn new(uid: Fingerprint, process: u64, rendered: u64) -> Self {
        Self { contract: CONTRACT_VERSION, uid, process, rendered }
    }
}

impl Page {
    /// Adds a sample of the contract.
    pub fn say(&mut self, metric: Metric, labels: &[(&str, &str)], value: u64) {
        self.write(metric.name(), metric.in_digest(), labels, value);
    }

    /// Adds a sample of any metric that the digest covers.
    pub fn say_covered(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.write(name, true, labels, value);
    }

    fn write(&mut self, name: &str, in_digest: bool, labels: &[(&str, &str)], value: u64) {
        if in_digest {
            let hash = sample::hash(name, labels, value);
            self.digest.add(hash);
            if let Some((_, cluster)) = labels.iter().find(|(name, _)| *name == label::PACKAGE_CLUSTER) {
                self.parts.entry((*cluster).to_owned()).or_default().add(hash);
            }
        }
        self.text += &sample::canonical(name, labels, value);
        self.text.push('\n');
    }

    /// The whole text.
    pub fn attested(mut self, by: Attestation<'_>) -> String {
        self.say(Metric::ProcessNumber, &[], by.process);
        self.say(Metric::RenderedTimestamp, &[], by.rendered);
        let (uid, digest) = (by.uid.to_string(), self.digest.value());
        let labels = [(label::CONTRACT, by.contract), (label::CLUSTER_UID, uid.as_str())];
        self.say(Metric::Digest, &labels, digest);
        for (cluster, part) in std::mem::take(&mut self.parts) {
            let labels = [labels[0], (label::PACKAGE_CLUSTER, cluster.as_str()), labels[1]];
            self.say(Metric::Digest, &labels, part.value());
        }
        self.text
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

    #[test]
    fn what_is_written_adds_up() {
        let mut page = Page::default();
        page.say(Metric::SourcePackages, &[(label::PACKAGE_SOURCE, "s")], 3);
        page.say(Metric::SourceLastContact, &[(label::PACKAGE_SOURCE, "s")], 4);
        page.say_covered("statusbridge_package_new", &[], 5);
        let text = page.attested(Attestation::new(Fingerprint::of("uid"), 6, 7));
        // A reader that does not know a metric misses it.
        Exposition::parse(&text).unwrap().adds_up().unwrap_err();
        let known = text.replace("statusbridge_package_new", "statusbridge_source_up");
        Exposition::parse(&known).unwrap().adds_up().unwrap_err();
        let mut page = Page::default();
        page.say(Metric::SourcePackages, &[(label::PACKAGE_SOURCE, "s")], 3);
        Exposition::parse(&page.attested(Attestation::new(Fingerprint::of("uid"), 6, 7)))
            .unwrap()
            .adds_up()
            .unwrap();
    }
}

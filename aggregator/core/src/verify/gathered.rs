//! The samples of one stream as they come in, added up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use statusbridge_contract::exposition::LONGEST_VALUE;
use statusbridge_contract::{Digest, Metric, label, sample};

use super::content::{Content, Reason, Source};
use super::limits::{Excess, MOST_NAMES, MOST_PACKAGES, MOST_REASONS, MOST_SAMPLES, MOST_SOURCES};
use super::package::{Package, key, key_in, slot, without_cluster};
use crate::sample::Sample;

/// Samples of one kind of fault: how many, and the first as an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Few {
    /// How many.
    pub count: u64,
    /// The first of them, for a person to read.
    pub first: Option<String>,
}

impl Few {
    fn note(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(example);
    }
}

/// Everything that arrived of one stream.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Sum over all samples that have a value, repeated ones included.
    pub digest: Digest,
    /// How many samples arrived.
    pub samples: u64,
    /// What it has too much of; then nothing else is kept of it.
    pub excess: Option<Excess>,
    /// `statusbridge_process_number`.
    pub process: Option<u64>,
    /// By name.
    pub sources: BTreeMap<Box<str>, (Option<u64>, Option<u64>)>,
    /// By source, code and word.
    pub reasons: BTreeMap<[Box<str>; 3], u64>,
    /// In order of arrival.
    pub packages: Vec<Package>,
    /// Bytes of the names of packages and reasons.
    names: usize,
    index: HashMap<Arc<str>, u32>,
    /// Where the package of the next sample is likely to be: samples mostly come metric by metric, each
    /// time with the packages in the same order.
    next: usize,
    /// Reused from sample to sample.
    text: String,
    /// Samples whose value is no whole number.
    pub not_whole: Few,
    /// Samples that arrived more than once.
    pub twice: Few,
    /// Samples that lack a label of their own.
    pub unlabelled: Few,
}

impl Gathered {
    /// What a process was verified to say of all other clusters but these: what it says of these and of its own cluster
    /// is yet to arrive.
    pub fn without(content: &Content, process: u64, clusters: &BTreeSet<&str>) -> Self {
        let hash =
            |metric: Metric, own: &[(&'static str, &str)], value| sample::hash(metric.name(), own, value);
        let (mut kept, mut taken) = (Self::default(), vec![hash(Metric::ProcessNumber, &[], process)]);
        for Source { name, up, packages } in &content.sources {
            let values = [(Metric::SourceUp, *up), (Metric::SourcePackages, *packages)];
            let values = values.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
            taken.extend(values.map(|(metric, value)| hash(metric, &[(label::PACKAGE_SOURCE, name)], value)));
        }
        for Reason { source, code, word, value } in content.reasons.iter() {
            let own = [(label::CODE, &**code), (label::PACKAGE_SOURCE, source), (label::REASON, word)];
            taken.push(hash(Metric::ReasonInfo, &own, *value));
        }
        for package in content.packages.iter() {
            match without_cluster(&package.key) {
                (_, Some(cluster)) if !clusters.contains(cluster) => kept.keep(package),
                _ => taken.extend(package.samples().map(|(metric, value)| package.hash(metric, value))),
            }
        }
        kept.samples = content.samples.saturating_sub(taken.len() as u64);
        kept.digest = content.state;
        taken.into_iter().for_each(|hash| kept.digest.remove(hash));
        kept
    }

    /// Takes a sample with its own labels. Metrics outside of what the exporter says about its cluster are passed
    /// over.
    pub fn add(&mut self, metric: Metric, own: &[(&'static str, &str)], sample: Sample) {
        if !metric.in_state() {
            return;
        }
        self.samples += 1;
        if self.excess.is_some() {
            return;
        }
        if let Some((label, value)) = own.iter().find(|(_, value)| value.len() > LONGEST_VALUE) {
            return self.exceed(Excess::Value { metric, label, bytes: value.len() });
        }
        if self.samples > MOST_SAMPLES {
            return self.exceed(Excess::Samples);
        }
        let get = |name: &str| own.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| *v);
        if let Some(missing) = metric.labels().iter().find(|l| !metric.may_lack(l) && get(l).is_empty()) {
            self.unlabelled.note(|| format!("{} lacks its label {missing}", show(metric, own)));
            return;
        }
        // Where the parts of a key end would be anybody's to say.
        if metric.per_package() && own.iter().any(|(_, value)| value.contains('\0')) {
            self.unlabelled.note(|| format!("{} has a NUL in a label", show(metric, own)));
            return;
        }
        let Some(value) = sample.whole() else {
            self.not_whole.note(|| format!("{} reads {}", show(metric, own), sample.value));
            return;
        };
        self.text.clear();
        sample::write_canonical(&mut self.text, metric.name(), own, value);
        self.digest.add(sample::hash_canonical(self.text.as_bytes()));
        let before = match metric {
            Metric::ProcessNumber => self.process.replace(value),
            Metric::SourceUp => self.source(get(label::PACKAGE_SOURCE)).0.replace(value),
            Metric::SourcePackages => self.source(get(label::PACKAGE_SOURCE)).1.replace(value),
            Metric::ReasonInfo => {
                let names = [label::PACKAGE_SOURCE, label::CODE, label::REASON].map(get);
                let before = self.reasons.insert(names.map(Box::from), value);
                if before.is_none() {
                    self.names += names.iter().map(|name| name.len()).sum::<usize>();
                }
                before
            }
            _ => {
                let names =
                    [label::PACKAGE_SOURCE, label::PACKAGE_NAMESPACE, label::PACKAGE, label::PACKAGE_CLUSTER];
                self.package_sample(metric, names.map(&get), value)
            }
        };
        if before.is_some() {
            self.twice.note(|| show(metric, own));
        }
        let lengths = [
            (self.sources.len(), MOST_SOURCES, Excess::Sources),
            (self.packages.len(), MOST_PACKAGES, Excess::Packages),
            (self.reasons.len(), MOST_REASONS, Excess::Reasons),
            (self.names, MOST_NAMES, Excess::Names),
        ];
        if let Some((.., excess)) = lengths.into_iter().find(|(length, most, _)| length > most) {
            self.exceed(excess);
        }
    }

    /// Gives up what was gathered: it will not be verified.
    fn exceed(&mut self, excess: Excess) {
        *self =
            Self { samples: self.samples, process: self.process, excess: Some(excess), ..Self::default() };
    }

    fn source(&mut self, name: &str) -> &mut (Option<u64>, Option<u64>) {
        self.sources.entry(name.into()).or_default()
    }

    /// Notes a package's sample; gives the value that it had, if it had one.
    fn package_sample(&mut self, metric: Metric, identity: [&str; 4], value: u64) -> Option<u64> {
        let slot = slot(metric)?;
        let at = match self.packages.get(self.next).or_else(|| self.packages.first()) {
            Some(package) if is_key(&package.key, identity) => {
                if self.next < self.packages.len() {
                    self.next
                } else {
                    0
                }
            }
            _ => self.place(identity),
        };
        self.next = at + 1;
        let package = self.packages.get_mut(at)?;
        let before = std::mem::replace(package.values.get_mut(slot)?, value);
        let before = (package.present & 1 << slot != 0).then_some(before);
        package.present |= 1 << slot;
        before
    }

    /// Where a package is kept, from now on if it was not before.
    fn place(&mut self, [source, namespace, name, cluster]: [&str; 4]) -> usize {
        let key = key(source, namespace, name);
        let key = if cluster.is_empty() { key } else { key_in(&key, cluster) };
        if let Some(at) = self.index.get(key.as_str()) {
            return *at as usize;
        }
        let at = self.packages.len();
        self.keep(Package::new(key.into()));
        at
    }

    /// Keeps a package that is not there yet.
    fn keep(&mut self, package: Package) {
        self.names += package.key.len();
        let at = u32::try_from(self.packages.len()).unwrap_or(u32::MAX);
        self.index.insert(package.key.clone(), at);
        self.packages.push(package);
    }

    /// A package by its key.
    pub fn package(&self, key: &str) -> Option<&Package> {
        self.packages.get(*self.index.get(key)? as usize)
    }

    /// How many packages of each source arrived, those included that run in other clusters.
    pub fn counts(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for package in &self.packages {
            *counts.entry(super::package::parts(&package.key).0).or_default() += 1;
        }
        counts
    }

    /// Puts it in order, without its faults.
    pub(super) fn into_content(self) -> Content {
        let source = |(name, (up, packages)): (Box<str>, _)| Source { name: name.into(), up, packages };
        let reason =
            |([source, code, word], value): ([Box<str>; 3], u64)| Reason { source, code, word, value };
        Content {
            state: self.digest,
            samples: self.samples,
            sources: self.sources.into_iter().map(source).collect(),
            reasons: self.reasons.into_iter().map(reason).collect(),
            packages: self.packages.into_iter().collect(),
        }
    }
}

/// Whether this is the key of the package with this source, namespace, name and cluster.
fn is_key(key: &str, [source, namespace, name, cluster]: [&str; 4]) -> bool {
    let rest = key.strip_prefix(source).and_then(|rest| rest.strip_prefix('\0'));
    let rest = rest.and_then(|rest| rest.strip_prefix(namespace)).and_then(|rest| rest.strip_prefix('\0'));
    match rest.and_then(|rest| rest.strip_prefix(name)) {
        Some(rest) if cluster.is_empty() => rest.is_empty(),
        Some(rest) => rest.strip_prefix('\0') == Some(cluster),
        None => false,
    }
}

/// A series as PromQL writes it.
pub(super) fn show(metric: Metric, labels: &[(&str, &str)]) -> String {
    let mut out = metric.name().to_owned();
    if !labels.is_empty() {
        sample::write_labels(&mut out, labels);
    }
    out
}

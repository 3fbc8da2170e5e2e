//! Says in words how the samples of a stream differ from what their digest attests.

use std::collections::BTreeMap;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{ALWAYS, Metric, PACKAGE_METRICS};

use super::content::Content;
use super::gathered::{Few, Gathered, show};
use super::guess::{guess, renamed};
use super::package::{Package, identity};
use super::{Attested, contradiction};
use crate::sample::excerpt;

/// Longest diagnosis, in bytes.
const LIMIT: usize = 480;
/// The one sample at fault is looked for among so many packages at most: each costs some 50 hashes, and whoever sends what
/// never adds up must hold up nobody else.
const GUESSED: usize = 2000;
/// Findings shown at most.
const FINDINGS: usize = 3;

/// Samples of the same cluster in a stream that has no digest of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stray {
    /// The labels of the stream.
    pub labels: StreamLabels,
    /// How many samples it has, by metric.
    pub metrics: BTreeMap<Metric, u64>,
}

/// What differs, most telling first; bounded. `last` is what was verified before of this stream.
pub fn diagnose(
    gathered: &Gathered,
    attested: Attested,
    labels: &StreamLabels,
    last: Option<&Content>,
    strays: &[Stray],
) -> String {
    if let Some(excess) = gathered.excess {
        return excess.to_string();
    }
    let mut findings = Vec::new();
    faults(gathered, &mut findings);
    findings.extend(strays.iter().filter(|s| !s.metrics.is_empty()).map(|s| stray(labels, s)));
    match fragments(gathered, last) {
        Some(text) => findings.push(text),
        None => missing(gathered, attested, &mut findings),
    }
    if findings.is_empty() {
        let is_small = |last: &&Content| last.packages.len().max(gathered.packages.len()) <= GUESSED;
        findings.extend(last.filter(is_small).and_then(|last| guess(gathered, attested.state, last)));
    }
    if findings.is_empty() {
        findings.extend(contradiction(gathered));
    }
    if findings.is_empty() {
        findings.extend(rounded(gathered));
    }
    if findings.is_empty() {
        findings.push("samples of different scrapes, or changed on the way".to_owned());
    }
    let more = findings.len().saturating_sub(FINDINGS);
    findings.truncate(FINDINGS);
    let mut text = format!(
        "{} samples add up to {:012x}, {:012x} is attested: {}",
        gathered.samples,
        gathered.digest.value(),
        attested.state.value(),
        findings.join("; ")
    );
    if more > 0 {
        text.push_str(&format!("; and {more} more findings"));
    }
    excerpt(&text, LIMIT)
}

fn faults(gathered: &Gathered, findings: &mut Vec<String>) {
    let mut note = |few: &Few, text: &dyn Fn(&str) -> String| {
        if let Some(first) = &few.first {
            let rest = if few.count > 1 { format!(" (and {} more)", few.count - 1) } else { String::new() };
            findings.push(text(first) + &rest);
        }
    };
    note(&gathered.not_whole, &|first| format!("{first}, which is no whole number"));
    note(&gathered.twice, &|first| format!("{first} arrived more than once"));
    note(&gathered.unlabelled, &|first| first.to_owned());
}

/// Relabelling that touches only some metrics sends these to a stream without a digest.
fn stray(labels: &StreamLabels, stray: &Stray) -> String {
    let mut differences: Vec<String> = Vec::new();
    for (name, value) in &stray.labels {
        match labels.get(name) {
            Some(same) if same == value => {}
            Some(other) => differences.push(format!("{name}=\"{value}\" instead of \"{other}\"")),
            None => differences.push(format!("an additional label {name}=\"{value}\"")),
        }
    }
    let lost = labels.keys().filter(|name| !stray.labels.contains_key(*name));
    differences.extend(lost.map(|name| format!("no label {name}")));
    differences.truncate(4);
    let count: u64 = stray.metrics.values().sum();
    let metrics: Vec<&str> = stray.metrics.keys().take(2).map(|m| m.name()).collect();
    let more = if stray.metrics.len() > 2 { ", …" } else { "" };
    format!("{count} samples ({}{more}) have {}", metrics.join(", "), differences.join(", "))
}

/// An identity label that was rewritten on some metrics only breaks packages into two parts each.
fn fragments(gathered: &Gathered, last: Option<&Content>) -> Option<String> {
    let has = |p: &Package| PACKAGE_METRICS[..ALWAYS].iter().filter(|m| p.get(**m).is_some()).count();
    let broken = gathered.packages.iter().filter(|p| has(p) < ALWAYS);
    // Which part bears the right labels only what was verified before tells.
    let is_known = |p: &Package| last.is_some_and(|last| last.has(&p.key));
    let some_are = broken.clone().any(is_known);
    let is_right = |p: &&Package| if some_are { is_known(p) } else { p.get(PACKAGE_METRICS[0]).is_some() };
    let (mut large, small): (Vec<&Package>, Vec<&Package>) = broken.partition(is_right);
    let metrics: Vec<Metric> = small.first()?.samples().take(2).map(|(metric, _)| metric).collect();
    let metric = *metrics.first()?;
    if large.is_empty() {
        let had = |p: &&Package| last.and_then(|last| last.find(&p.key)?.1.get(metric)).is_some();
        large = gathered.packages.iter().filter(|p| p.get(metric).is_none()).filter(had).collect();
    }
    let text = renamed(&large, &small)?;
    let metrics: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
    Some(format!("{text} ({})", metrics.join(", ")))
}

/// Metrics that every package has and that are missing altogether, then packages that lack some. Of the others only
/// what was verified before tells that they are missing.
fn missing(gathered: &Gathered, attested: Attested, findings: &mut Vec<String>) {
    if gathered.samples == 0 {
        findings.push("none of the samples arrived".to_owned());
        return;
    }
    let total = gathered.packages.len();
    for metric in PACKAGE_METRICS.into_iter().take(ALWAYS) {
        let lacking = || gathered.packages.iter().filter(move |p| p.get(metric).is_none());
        let count = lacking().count();
        if count > 0 && count == total {
            findings.push(format!("{} is missing altogether", metric.name()));
        } else if let Some(first) = lacking().next() {
            let rest = if count > 1 { format!(" and of {} more packages", count - 1) } else { String::new() };
            findings.push(format!("{} is missing{rest}", show(metric, &identity(&first.key))));
        }
    }
    let sources = gathered.sources.values();
    let (up, packages) =
        sources.fold((0, 0), |(u, p), s| (u + usize::from(s.0.is_some()), p + usize::from(s.1.is_some())));
    for (metric, have) in [(Metric::SourceUp, up), (Metric::SourcePackages, packages)] {
        if have == 0 && total + up + packages > 0 {
            findings.push(format!("{} is missing altogether", metric.name()));
        }
    }
    match gathered.process {
        None => findings.push(format!("{} is missing", Metric::ProcessNumber.name())),
        Some(process) if process != attested.process => {
            findings.push(format!("{} is another process's", Metric::ProcessNumber.name()));
        }
        Some(_) => {}
    }
}

/// Revisions are spread evenly over 48 bits: one in a thousand ends in three zeros, all of them
/// only when somebody kept fewer digits.
fn rounded(gathered: &Gathered) -> Option<String> {
    let revisions =
        [Metric::PackageDesiredRevision, Metric::PackageAppliedRevision, Metric::PackageHealthyRevision];
    let mut found = Vec::new();
    for package in &gathered.packages {
        for metric in revisions {
            let value = package.get(metric).unwrap_or_default();
            // Six decimal digits or float32's 24 bits are the usual losses.
            if value > 1 << 24 && (value % 1000 == 0 || value.trailing_zeros() >= 20) {
                found.push((metric, package, value));
            }
        }
    }
    let (metric, package, value) = found.first()?;
    let rest =
        if found.len() > 1 { format!(", and {} more revisions", found.len() - 1) } else { String::new() };
    Some(format!("{} reads {value}, which looks rounded{rest}", show(*metric, &identity(&package.key))))
}

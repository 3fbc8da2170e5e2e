//! Says in words how the samples of a stream differ from what their digest attests.

use std::collections::BTreeMap;

use statusbridge_contract::{Metric, PACKAGE_METRICS, stream::StreamLabels};

use super::{
    content::{Content, Package, identity},
    contradiction,
    gathered::{Few, Gathered, show},
    guess::{guess, renamed},
};
use crate::feed::excerpt;

/// Longest diagnosis, in bytes.
const LIMIT: usize = 480;
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
    digest: u64,
    labels: &StreamLabels,
    last: Option<&Content>,
    strays: &[Stray],
) -> String {
    let mut findings = Vec::new();
    faults(gathered, &mut findings);
    findings.extend(strays.iter().filter(|s| !s.metrics.is_empty()).map(|s| stray(labels, s)));
    match fragments(gathered) {
        Some(text) => findings.push(text),
        None => missing(gathered, &mut findings),
    }
    if findings.is_empty() {
        findings.extend(last.and_then(|last| guess(gathered, digest, last)));
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
        "{} samples add up to {:012x}, the digest is {digest:012x}: {}",
        gathered.samples,
        gathered.digest.value(),
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
fn fragments(gathered: &Gathered) -> Option<String> {
    let needed = |m: &Metric| !m.of_inventory();
    let has = |p: &Package| PACKAGE_METRICS.iter().filter(|m| needed(m) && p.get(**m).is_some()).count();
    let whole = PACKAGE_METRICS.iter().filter(|m| needed(m)).count();
    let (small, large): (Vec<&Package>, Vec<&Package>) =
        gathered.packages.iter().filter(|p| has(p) < whole).partition(|p| 2 * has(p) < whole);
    let text = renamed(&large, &small)?;
    let metrics: Vec<&str> = small[0].samples().take(2).map(|(m, _)| m.name()).collect();
    Some(format!("{text} ({})", metrics.join(", ")))
}

/// Metrics that are missing altogether, then packages that lack some.
fn missing(gathered: &Gathered, findings: &mut Vec<String>) {
    if gathered.samples == 0 {
        findings.push("none of the samples arrived".to_owned());
        return;
    }
    let total = gathered.packages.len();
    let inventories = gathered
        .packages
        .iter()
        .filter(|p| PACKAGE_METRICS.iter().any(|m| m.of_inventory() && p.get(*m).is_some()));
    let inventories = inventories.count();
    for metric in PACKAGE_METRICS {
        let expected = if metric.of_inventory() { inventories } else { total };
        let lacking = || {
            gathered.packages.iter().filter(move |p| {
                p.get(metric).is_none()
                    && (!metric.of_inventory()
                        || PACKAGE_METRICS.iter().any(|m| m.of_inventory() && p.get(*m).is_some()))
            })
        };
        let count = lacking().count();
        if count > 0 && count == expected {
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
}

/// Revisions are spread evenly over 48 bits: one in a thousand ends in three zeros, all of them
/// only when somebody kept fewer digits.
fn rounded(gathered: &Gathered) -> Option<String> {
    let revisions =
        [Metric::PackageDesiredRevision, Metric::PackageAppliedRevision, Metric::PackageHealthyRevision];
    let mut found = Vec::new();
    for package in &gathered.packages {
        for metric in revisions {
            let value = package.value(metric);
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

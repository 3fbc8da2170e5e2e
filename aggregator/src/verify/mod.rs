//! Whether what arrived is what an exporter attested: pure functions over samples.
//!
//! ```text
//!   samples of a stream --> Gathered --verify(digest)--> Content
//!                                  \--> diagnose ------> what differs, in words
//! ```

pub mod content;
mod diagnose;
mod gathered;
mod guess;
pub mod packages;
#[cfg(test)]
mod tests;
mod unknown;

use std::collections::BTreeMap;

use statusbridge_contract::{ApplyState, Health, MAX_48_BITS, Metric, PACKAGE_METRICS};

pub use {
    content::{Content, Package},
    diagnose::{Stray, diagnose},
    gathered::Gathered,
    unknown::with_unknown,
};

use content::parts;

/// The samples of a stream as verified content, or as they were when they are not exactly those that
/// the digest attests.
pub fn verify(gathered: Gathered, digest: u64) -> Result<Content, Box<Gathered>> {
    let faults = [&gathered.not_whole, &gathered.twice, &gathered.unlabelled];
    if gathered.digest.value() == digest
        && faults.iter().all(|f| f.count == 0)
        && contradiction(&gathered).is_none()
    {
        Ok(gathered.into_content())
    } else {
        Err(Box::new(gathered))
    }
}

/// What in a set of samples cannot come from one exporter that keeps to the contract.
fn contradiction(gathered: &Gathered) -> Option<String> {
    if gathered.uid.is_some_and(|uid| uid > MAX_48_BITS) {
        return Some(format!("{} exceeds 48 bits", Metric::ClusterUid.name()));
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for package in &gathered.packages {
        if let Some(text) = odd_package(package) {
            return Some(text);
        }
        *counts.entry(parts(&package.key).0).or_default() += 1;
    }
    for (name, (up, packages)) in &gathered.sources {
        let (Some(up), Some(packages)) = (up, packages) else {
            let lacking = if up.is_none() { Metric::SourceUp } else { Metric::SourcePackages };
            return Some(format!("{} of source {name} is missing", lacking.name()));
        };
        if *up > 1 {
            return Some(format!("{} of source {name} reads {up}", Metric::SourceUp.name()));
        }
        let found = counts.remove(name.as_ref()).unwrap_or_default();
        if *packages != found {
            return Some(format!("source {name} says it has {packages} packages, {found} arrived"));
        }
    }
    let source = counts.keys().next()?;
    Some(format!(
        "{} and {} of source {source} are missing",
        Metric::SourceUp.name(),
        Metric::SourcePackages.name()
    ))
}

fn odd_package(package: &Package) -> Option<String> {
    let inventory = PACKAGE_METRICS.iter().any(|m| m.of_inventory() && package.get(*m).is_some());
    for metric in PACKAGE_METRICS {
        let Some(value) = package.get(metric) else {
            if (inventory && metric.of_inventory()) || !metric.optional() {
                return Some(format!(
                    "{} is missing",
                    gathered::show(metric, &content::identity(&package.key))
                ));
            }
            continue;
        };
        let known = match metric {
            Metric::PackageApplyState => ApplyState::from_code(value).is_some(),
            Metric::PackageHealth => Health::from_code(value).is_some(),
            Metric::PackageDesiredRevision
            | Metric::PackageAppliedRevision
            | Metric::PackageHealthyRevision => value <= MAX_48_BITS,
            _ => true,
        };
        if !known {
            let series = gathered::show(metric, &content::identity(&package.key));
            return Some(format!("{series} reads {value}, which the contract does not know"));
        }
    }
    None
}

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
mod limits;
pub mod package;
pub mod packages;
#[cfg(test)]
mod tests;
mod unknown;

use statusbridge_contract::{ALWAYS, ApplyState, Digest, Health, MAX_48_BITS, Metric, PACKAGE_METRICS};

pub use {
    content::Content,
    diagnose::{Stray, diagnose},
    gathered::Gathered,
    limits::Excess,
    package::Package,
    unknown::with_unknown,
};

pub(crate) use limits::MOST_SOURCES;

/// What a digest attests, told from when its exposition was rendered: the sum over the state, and which process says
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attested {
    /// Sum over all samples of the state.
    pub state: Digest,
    /// `statusbridge_process_number`.
    pub process: u64,
}

/// The samples of a stream as verified content, or as they were when they are not exactly those that
/// the digest attests.
pub fn verify(gathered: Gathered, attested: Attested) -> Result<Content, Box<Gathered>> {
    let faults = [&gathered.not_whole, &gathered.twice, &gathered.unlabelled];
    if gathered.excess.is_none()
        && gathered.digest == attested.state
        && gathered.process == Some(attested.process)
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
    if let Some(text) = gathered.packages.iter().find_map(odd_package) {
        return Some(text);
    }
    let mut counts = gathered.counts();
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

/// What an exporter never says of a package: a sample too few, or one that follows from the others.
pub fn odd_package(package: &Package) -> Option<String> {
    let show = |metric| gathered::show(metric, &package::identity(&package.key));
    if let Some(missing) = PACKAGE_METRICS[..ALWAYS].iter().find(|metric| package.get(**metric).is_none()) {
        return Some(format!("{} is missing", show(*missing)));
    }
    let total = package.get(Metric::PackageResources);
    for (metric, value) in package.samples() {
        let is_known = match metric {
            Metric::PackageHealthyRevision => value <= MAX_48_BITS,
            Metric::PackageApplyState => value > 0 && ApplyState::from_code(value).is_some(),
            Metric::PackageHealth => value > 0 && Health::from_code(value).is_some(),
            Metric::PackageAppliedRevision => {
                (1..=MAX_48_BITS).contains(&value) && package.healthy().is_none()
            }
            Metric::PackageDesiredRevision => {
                (1..=MAX_48_BITS).contains(&value) && value != package.applied().value()
            }
            Metric::PackageReason => value > 0,
            Metric::PackageResourcesCurrent => total.is_some_and(|total| value < total),
            Metric::PackageResourcesFailed => value > 0 && total.is_some(),
            _ => true,
        };
        if !is_known {
            return Some(match value {
                0 => format!(
                    "{} reads 0, which no exporter says: a pipeline fills what is absent",
                    show(metric)
                ),
                _ => format!(
                    "{} reads {value}, which the contract does not know beside the rest",
                    show(metric)
                ),
            });
        }
    }
    let is_healthy = (package.apply(), package.health()) == (ApplyState::Applied, Health::Current);
    (!is_healthy && !package.healthy().is_none())
        .then(|| format!("{} is not 0 though it is not well", show(Metric::PackageHealthyRevision)))
}

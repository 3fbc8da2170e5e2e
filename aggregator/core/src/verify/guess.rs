//! Which one change would make the sum right, told from what was verified before.
//!
//! The difference between the attested digest and the sum of what arrived is, when only one sample
//! is at fault, the difference of two hashes: so the culprit can be found by trying.

use std::collections::BTreeMap;

use statusbridge_contract::{
    ApplyState, Digest, Health, MAX_48_BITS, Metric, PACKAGE_METRICS, label, sample,
};

use super::content::Content;
use super::gathered::{Gathered, show};
use super::package::{Package, identity, parts};

/// The one finding that explains the difference, if there is one.
pub(super) fn guess(gathered: &Gathered, state: Digest, last: &Content) -> Option<String> {
    let wanted = Wanted(state.value().wrapping_sub(gathered.digest.value()) & MAX_48_BITS);
    let now: BTreeMap<&str, &Package> = gathered.packages.iter().map(|p| (p.key.as_ref(), p)).collect();
    let gone: Vec<Package> = last.packages.iter().filter(|p| !now.contains_key(p.key.as_ref())).collect();
    let gone: Vec<&Package> = gone.iter().collect();
    let new: Vec<&Package> = gathered.packages.iter().filter(|p| !last.has(&p.key)).collect();
    renamed(&gone, &new)
        .or_else(|| gone.iter().find_map(|p| vanished(p, wanted)))
        .or_else(|| new.iter().find_map(|p| surplus(p, wanted)))
        .or_else(|| {
            gathered.packages.iter().find_map(|p| changed(p, last.find(&p.key).map(|f| f.1).as_ref(), wanted))
        })
        .or_else(|| outside_packages(gathered, last, wanted))
        .or_else(|| PACKAGE_METRICS.into_iter().find_map(|metric| dropped(&now, last, metric, wanted)))
}

/// Digest minus sum.
#[derive(Clone, Copy)]
struct Wanted(u64);

impl Wanted {
    /// Whether these, attested but not arrived, and those, arrived but not attested, explain it.
    fn is(self, attested: u64, arrived: u64) -> bool {
        attested.wrapping_sub(arrived) & MAX_48_BITS == self.0
    }
}

fn sum(package: &Package) -> u64 {
    package.samples().fold(0, |sum, (m, v)| sum.wrapping_add(package.hash(m, v)))
}

/// Most packages that are sorted to see how they were renamed: that holds up whatever else is to be done.
const RENAMED: usize = 20_000;

/// As many packages gone as came, and but for one identity label they are the same.
pub(super) fn renamed(gone: &[&Package], new: &[&Package]) -> Option<String> {
    if gone.is_empty() || gone.len() != new.len() || gone.len() > RENAMED {
        return None;
    }
    let fields = [label::PACKAGE_SOURCE, label::PACKAGE_NAMESPACE, label::PACKAGE];
    fields.iter().enumerate().find_map(|(field, name)| {
        let mut was: Vec<_> = gone.iter().map(|p| without(&p.key, field)).collect();
        let mut is: Vec<_> = new.iter().map(|p| without(&p.key, field)).collect();
        was.sort_unstable();
        is.sort_unstable();
        if was.iter().map(|w| &w.0).ne(is.iter().map(|i| &i.0)) {
            return None;
        }
        let (from, to) = (&was.first()?.1, &is.first()?.1);
        let count = gone.len();
        Some(match to.is_empty() {
            true => format!("label {name} of {count} packages is gone, it was \"{from}\""),
            false => {
                format!("label {name} of {count} packages was rewritten, \"{to}\" instead of \"{from}\"")
            }
        })
    })
}

/// The identity of a package without one label, and that label.
fn without(key: &str, field: usize) -> ([&str; 3], &str) {
    let (source, namespace, name) = parts(key);
    let mut rest = [source, namespace, name];
    let own = rest.get_mut(field).map(std::mem::take).unwrap_or_default();
    (rest, own)
}

/// A metric of several packages that a pipeline no longer lets through.
fn dropped(now: &BTreeMap<&str, &Package>, last: &Content, metric: Metric, wanted: Wanted) -> Option<String> {
    let lost =
        last.packages.iter().filter(|p| now.get(p.key.as_ref()).is_some_and(|it| it.get(metric).is_none()));
    let lost = lost.filter_map(|p| Some(p.hash(metric, p.get(metric)?)));
    let (count, sum) = lost.fold((0, 0_u64), |(count, sum), hash| (count + 1, sum.wrapping_add(hash)));
    (count > 1 && wanted.is(sum, 0)).then(|| format!("{} of {count} packages is missing", metric.name()))
}

fn vanished(package: &Package, wanted: Wanted) -> Option<String> {
    let (source, namespace, name) = parts(&package.key);
    let whole = || format!("all samples of package {name} (namespace {namespace:?}, {source}) are missing");
    wanted.is(sum(package), 0).then(whole)
}

fn surplus(package: &Package, wanted: Wanted) -> Option<String> {
    let (source, namespace, name) = parts(&package.key);
    let whole = || {
        format!(
            "package {name} (namespace {namespace:?}, {source}) is there but not attested, perhaps deleted lately"
        )
    };
    wanted.is(0, sum(package)).then(whole)
}

fn changed(package: &Package, last: Option<&Package>, wanted: Wanted) -> Option<String> {
    for (metric, value) in package.samples() {
        let arrived = package.hash(metric, value);
        let series = || show(metric, &identity(&package.key));
        if let Some(before) = last.and_then(|l| l.get(metric)).filter(|b| *b != value)
            && wanted.is(package.hash(metric, before), arrived)
        {
            return Some(format!("rounded or stale: {} reads {value}, {before} was attested", series()));
        }
        let others = likely(package, metric);
        if let Some(other) =
            others.into_iter().find(|o| *o != value && wanted.is(package.hash(metric, *o), arrived))
        {
            return Some(format!("{} reads {value}, {other} was attested", series()));
        }
        if wanted.is(0, arrived) {
            return Some(format!("{} is there but not attested", series()));
        }
    }
    let last = last?;
    last.samples()
        .filter(|(metric, _)| package.get(*metric).is_none())
        .find(|(metric, value)| wanted.is(package.hash(*metric, *value), 0))
        .map(|(metric, _)| format!("{} is missing", show(metric, &identity(&package.key))))
}

/// Values that a sample may well have had.
fn likely(package: &Package, metric: Metric) -> Vec<u64> {
    let near = |v: u64| (v.saturating_sub(3)..=v + 3).collect();
    match metric {
        Metric::PackageApplyState => ApplyState::ALL.iter().map(|s| s.code()).collect(),
        Metric::PackageHealth => Health::ALL.iter().map(|s| s.code()).collect(),
        Metric::PackageDesiredRevision | Metric::PackageAppliedRevision | Metric::PackageHealthyRevision => {
            vec![0, package.desired().value(), package.applied().value(), package.healthy().value()]
        }
        Metric::PackageReason => vec![0],
        Metric::PackageTransitionTimestamp => Vec::new(),
        _ => near(package.get(metric).unwrap_or_default()),
    }
}

/// The same for samples that belong to no package.
fn outside_packages(gathered: &Gathered, last: &Content, wanted: Wanted) -> Option<String> {
    type Flat = BTreeMap<(Metric, Vec<(&'static str, String)>), u64>;
    fn hash(metric: Metric, labels: &[(&'static str, String)], value: u64) -> u64 {
        let labels: Vec<_> = labels.iter().map(|(n, v)| (*n, v.as_str())).collect();
        sample::hash(metric.name(), &labels, value)
    }
    let source = |name: &str| vec![(label::PACKAGE_SOURCE, name.to_owned())];
    let mut now = Flat::new();
    let mut before = Flat::new();
    for (name, (up, packages)) in &gathered.sources {
        now.extend(up.map(|v| ((Metric::SourceUp, source(name)), v)));
        now.extend(packages.map(|v| ((Metric::SourcePackages, source(name)), v)));
    }
    for s in &last.sources {
        before.extend(s.up.map(|v| ((Metric::SourceUp, source(&s.name)), v)));
        before.extend(s.packages.map(|v| ((Metric::SourcePackages, source(&s.name)), v)));
    }
    let entry = |name: &str, code: &str, word: &str| {
        let labels = [(label::CODE, code), (label::PACKAGE_SOURCE, name), (label::REASON, word)];
        (Metric::ReasonInfo, labels.map(|(n, v)| (n, v.to_owned())).to_vec())
    };
    now.extend(gathered.reasons.iter().map(|([s, c, w], v)| (entry(s, c, w), *v)));
    before.extend(last.reasons.iter().map(|r| (entry(&r.source, &r.code, &r.word), r.value)));

    let series = |metric: Metric, labels: &[(&'static str, String)]| {
        show(metric, &labels.iter().map(|(n, v)| (*n, v.as_str())).collect::<Vec<_>>())
    };
    for ((metric, labels), value) in &now {
        let arrived = hash(*metric, labels, *value);
        let previous = before.get(&(*metric, labels.clone())).copied();
        let others = previous.into_iter().chain(value.saturating_sub(3)..=value + 3);
        for other in others.filter(|o| o != value) {
            if wanted.is(hash(*metric, labels, other), arrived) {
                return Some(format!(
                    "rounded or stale: {} reads {value}, {other} was attested",
                    series(*metric, labels)
                ));
            }
        }
        if wanted.is(0, arrived) {
            return Some(format!("{} is there but not attested", series(*metric, labels)));
        }
    }
    let missing = before.iter().filter(|(k, _)| !now.contains_key(*k));
    missing
        .into_iter()
        .find(|((metric, labels), value)| wanted.is(hash(*metric, labels, **value), 0))
        .map(|((metric, labels), _)| format!("{} is missing", series(*metric, labels)))
}

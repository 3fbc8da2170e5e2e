//! A fleet that is computed, not held: what every cluster's exporter would say, and since when, word by word after the
//! contract.

use statusbridge_contract::{Digest, Fingerprint, Metric, label, reason, sample};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Milliseconds since 1970.
pub(crate) type Millis = i64;

/// The source of all packages.
pub(crate) const SOURCE: &str = "flux-kustomization";
/// Their namespace.
pub(crate) const NAMESPACE: &str = "flux-system";
/// The words of the dictionary of reasons.
const WORDS: [&str; 8] = [
    "ArtifactFailed",
    "BuildFailed",
    "DependencyNotReady",
    "HealthCheckFailed",
    "NoHealthChecks",
    "Progressing",
    "PruneFailed",
    "ReconciliationFailed",
];
/// Resources of each package.
const RESOURCES: u64 = 12;
/// What a package that is Applied and Current says.
const AT_REST: [Metric; 3] =
    [Metric::PackageHealthyRevision, Metric::PackageTransitionTimestamp, Metric::PackageResources];
/// Values of one package, in the order of [`AT_REST`].
type Values = [u64; AT_REST.len()];

/// The clusters.
pub(crate) struct Generated {
    /// Time between two scrapes of a cluster.
    pub(crate) interval: Millis,
    /// Names of the packages that each of them has.
    pub(crate) packages: Vec<String>,
    began: Millis,
    clusters: Vec<Cluster>,
    by_name: HashMap<String, usize>,
}

/// One of them.
struct Cluster {
    name: String,
    instance: String,
    /// Fingerprint of its UID, as hex digits.
    uid: String,
    /// Number of its exporter's process.
    process: u64,
    /// When in each interval it is scraped.
    phase: Millis,
    /// What was delivered, in order of time; one entry at first that delivers nothing.
    deliveries: RwLock<Vec<Delivery>>,
}

#[derive(Clone, Copy)]
struct Delivery {
    at: Millis,
    package: usize,
    number: u64,
    /// What all samples of the state add up to from then on.
    digest: Digest,
}

/// Where a cluster's samples come from, as the pipeline labels them.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// Name of the cluster.
    pub(crate) cluster: &'a str,
    /// Address of its exporter.
    pub(crate) instance: &'a str,
    /// Its UID, as the exporter says it.
    pub(crate) uid: &'a str,
    /// Number of the exporter's process.
    pub(crate) process: u64,
}

/// The name of the scrape job.
pub(crate) const JOB: &str = "statusbridge-exporter";

/// The revision of a package with this number.
pub(crate) fn revision(package: &str, number: u64) -> String {
    format!("main@sha1:{}{}", Fingerprint::of(&format!("{package} {number}")), "0".repeat(28))
}

/// Name of a cluster.
pub(crate) fn cluster_name(number: usize) -> String {
    format!("cluster-{number:05}")
}

impl Generated {
    /// So many clusters with so many packages each, scraped every `interval`, within the first part of it called
    /// `spread`.
    pub(crate) fn new(clusters: usize, packages: usize, interval: Millis, spread: Millis) -> Self {
        let mut fleet = Self {
            interval,
            packages: (0..packages).map(|n| format!("package-{n:03}")).collect(),
            began: now(),
            clusters: Vec::with_capacity(clusters),
            by_name: HashMap::new(),
        };
        for number in 0..clusters {
            let name = cluster_name(number);
            let cluster = Cluster {
                uid: Fingerprint::of(&format!("uid of {name}")).to_string(),
                process: Fingerprint::of(&format!("process of {name}")).value() >> 16,
                instance: format!("10.{}.{}.{}:8080", number >> 16, (number >> 8) & 255, number & 255),
                phase: (number as Millis * 7919) % spread.max(1),
                deliveries: RwLock::default(),
                name: name.clone(),
            };
            let mut digest = Digest::default();
            fleet.each_outside(&cluster, |metric, own, value| {
                digest.add(sample::hash(metric.name(), own, value));
            });
            (0..packages)
                .for_each(|package| digest.merge(fleet.sum(package, &fleet.at_first(number, package))));
            let nothing = Delivery { at: Millis::MIN, package: usize::MAX, number: 0, digest };
            cluster.deliveries.write().unwrap_or_else(PoisonError::into_inner).push(nothing);
            fleet.by_name.insert(name, number);
            fleet.clusters.push(cluster);
        }
        fleet
    }

    /// How many clusters there are.
    pub(crate) fn len(&self) -> usize {
        self.clusters.len()
    }

    /// How many samples the state of a cluster has.
    pub(crate) fn samples_of_a_cluster(&self) -> usize {
        self.packages.len() * AT_REST.len() + WORDS.len() + 3
    }

    /// The number of a cluster.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// How a cluster's samples are labelled.
    pub(crate) fn origin(&self, cluster: usize) -> Option<Origin<'_>> {
        let cluster = self.clusters.get(cluster)?;
        let Cluster { name, instance, uid, process, .. } = cluster;
        Some(Origin { cluster: name, instance, uid, process: *process })
    }

    /// From `at` on the cluster has the revision with this number of a package, applied and healthy.
    pub(crate) fn deliver(&self, cluster: usize, package: usize, number: u64, at: Millis) {
        let Some(known) = self.clusters.get(cluster) else { return };
        let mut deliveries = known.deliveries.write().unwrap_or_else(PoisonError::into_inner);
        let Some(mut digest) = deliveries.last().map(|last| last.digest) else { return };
        digest.subtract(self.sum(package, &self.values(cluster, package, &deliveries)));
        deliveries.push(Delivery { at, package, number, digest });
        let after = self.sum(package, &self.values(cluster, package, &deliveries));
        if let Some(last) = deliveries.last_mut() {
            last.digest.merge(after);
        }
    }

    /// When a cluster was last scraped, at `t`.
    pub(crate) fn last_scrape(&self, cluster: usize, t: Millis) -> Millis {
        let phase = self.clusters.get(cluster).map_or(0, |cluster| cluster.phase);
        (t - phase).div_euclid(self.interval) * self.interval + phase
    }

    /// When a cluster was scraped after `from` and until `t`, oldest first.
    pub(crate) fn scrapes(&self, cluster: usize, from: Millis, t: Millis) -> impl Iterator<Item = Millis> {
        let (last, interval) = (self.last_scrape(cluster, t), self.interval);
        let count = if last > from { 1 + (last - from - 1) / interval } else { 0 };
        (0..count).rev().map(move |n| last - n * interval)
    }

    /// What the digest was when the cluster was scraped.
    pub(crate) fn digest(&self, cluster: usize, scraped: Millis) -> u64 {
        let Some(cluster) = self.clusters.get(cluster) else { return 0 };
        let deliveries = cluster.deliveries.read().unwrap_or_else(PoisonError::into_inner);
        until(&deliveries, scraped).last().map_or(0, |last| last.digest.rendered(seconds(scraped)).value())
    }

    /// Every sample of the state, as the scrape found it.
    pub(crate) fn each(
        &self,
        cluster: usize,
        scraped: Millis,
        mut say: impl FnMut(Metric, &[(&'static str, &str)], u64),
    ) {
        let Some(known) = self.clusters.get(cluster) else { return };
        // A copy, so that nobody who delivers has to wait for whoever reads.
        let deliveries = {
            let all = known.deliveries.read().unwrap_or_else(PoisonError::into_inner);
            until(&all, scraped).to_vec()
        };
        for (number, name) in self.packages.iter().enumerate() {
            let own = identity(name);
            let values = self.values(cluster, number, &deliveries);
            AT_REST.iter().zip(values).for_each(|(metric, value)| say(*metric, &own, value));
        }
        self.each_outside(known, say);
    }

    /// The samples that belong to no package.
    fn each_outside(&self, cluster: &Cluster, mut say: impl FnMut(Metric, &[(&'static str, &str)], u64)) {
        for word in WORDS {
            let code = reason::code(word).to_string();
            let own = [(label::CODE, code.as_str()), (label::PACKAGE_SOURCE, SOURCE), (label::REASON, word)];
            say(Metric::ReasonInfo, &own, 1);
        }
        let source = [(label::PACKAGE_SOURCE, SOURCE)];
        say(Metric::SourceUp, &source, 1);
        say(Metric::SourcePackages, &source, self.packages.len() as u64);
        say(Metric::ProcessNumber, &[], cluster.process);
    }

    fn at_first(&self, cluster: usize, package: usize) -> Values {
        let revision = self.fingerprint(package, 0);
        let ago = 600 + (cluster * 7 + package * 13) % 86_400;
        let since = self.began / 1000 - ago as i64;
        [revision, since.unsigned_abs(), RESOURCES]
    }

    fn values(&self, cluster: usize, package: usize, deliveries: &[Delivery]) -> Values {
        match deliveries.iter().rfind(|delivery| delivery.package == package) {
            Some(last) => [self.fingerprint(package, last.number), seconds(last.at), RESOURCES],
            None => self.at_first(cluster, package),
        }
    }

    fn fingerprint(&self, package: usize, number: u64) -> u64 {
        let name = self.packages.get(package).map(String::as_str).unwrap_or_default();
        Fingerprint::of(&revision(name, number)).value()
    }

    fn sum(&self, package: usize, values: &Values) -> Digest {
        let name = self.packages.get(package).map(String::as_str).unwrap_or_default();
        let own = identity(name);
        AT_REST.iter().zip(values).map(|(m, v)| sample::hash(m.name(), &own, *v)).collect()
    }
}

/// The present time.
pub(crate) fn now() -> Millis {
    jiff::Timestamp::now().as_millisecond()
}

/// Whole seconds, as an exporter says them.
pub(crate) fn seconds(at: Millis) -> u64 {
    (at / 1000).unsigned_abs()
}

fn identity(package: &str) -> [(&'static str, &str); 3] {
    [(label::PACKAGE, package), (label::PACKAGE_NAMESPACE, NAMESPACE), (label::PACKAGE_SOURCE, SOURCE)]
}

fn until(deliveries: &[Delivery], scraped: Millis) -> &[Delivery] {
    let after = deliveries.iter().position(|delivery| delivery.at > scraped).unwrap_or(deliveries.len());
    &deliveries[..after]
}

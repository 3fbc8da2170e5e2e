//! A fleet that is computed, not held: what every cluster's exporter would say, and since when, word by word after the
//! contract.

use statusbridge_contract::{Digest, Fingerprint, Metric, label, reason, sample};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

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
    /// That of each cluster, or those beside management clusters that tell of all of them.
    exporters: Vec<Exporter>,
    /// Clusters by their names, and exporters by those of the clusters in which they run.
    by_name: HashMap<String, usize>,
    exporters_by_name: HashMap<String, usize>,
    /// Nothing is scraped from then until then.
    silent: RwLock<(Millis, Millis)>,
}

/// One of them.
struct Cluster {
    name: String,
    /// What was delivered, in order of time; one entry at first that delivers nothing.
    deliveries: RwLock<Vec<Delivery>>,
}

struct Exporter {
    /// The name of the cluster in which it runs.
    cluster: String,
    instance: String,
    /// Fingerprint of the cluster's UID, as hex digits.
    uid: String,
    /// Number of its process.
    process: u64,
    /// When in each interval it is scraped.
    phase: Millis,
    /// What the samples add up to that belong to no package.
    outside: Digest,
}

#[derive(Clone, Copy)]
struct Delivery {
    at: Millis,
    package: usize,
    number: u64,
    /// What all samples of packages add up to from then on.
    digest: Digest,
}

/// Where an exporter's samples come from, as the pipeline labels them.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// Name of the cluster.
    pub(crate) cluster: &'a str,
    /// Address of the exporter.
    pub(crate) instance: &'a str,
    /// The cluster's UID, as the exporter says it.
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

/// Every sample of something: its metric, own labels and value.
type Say<'a> = &'a mut dyn FnMut(Metric, &[(&'static str, &str)], u64);

impl Generated {
    /// So many clusters with so many packages each, scraped every `interval`, within the first part of it called
    /// `spread`. `speakers` exporters tell of them, each of its share, or with none those of the clusters themselves.
    pub(crate) fn new(
        clusters: usize,
        packages: usize,
        interval: Millis,
        spread: Millis,
        speakers: usize,
    ) -> Self {
        let mut fleet = Self {
            interval,
            packages: (0..packages).map(|n| format!("package-{n:03}")).collect(),
            began: now(),
            clusters: Vec::with_capacity(clusters),
            exporters: Vec::new(),
            by_name: HashMap::new(),
            exporters_by_name: HashMap::new(),
            silent: RwLock::new((Millis::MAX, Millis::MAX)),
        };
        for number in 0..clusters {
            let name = match number.checked_rem(speakers) {
                Some(speaker) => format!("{speaker:02}-cluster-{number:05}"),
                None => format!("cluster-{number:05}"),
            };
            fleet.by_name.insert(name.clone(), number);
            fleet.clusters.push(Cluster { name, deliveries: RwLock::default() });
        }
        for number in 0..if speakers > 0 { speakers } else { clusters } {
            let cluster = match speakers {
                0 => fleet.cluster_name(number).to_owned(),
                _ => speaker_name(number),
            };
            let mut exporter = Exporter {
                uid: Fingerprint::of(&format!("uid of {cluster}")).to_string(),
                process: Fingerprint::of(&format!("process of {cluster}")).value() >> 16,
                instance: format!("10.{}.{}.{}:8080", number >> 16, (number >> 8) & 255, number & 255),
                phase: (number as Millis * 7919) % spread.max(1),
                outside: Digest::default(),
                cluster: cluster.clone(),
            };
            let mut outside = Digest::default();
            let share = if speakers > 0 { (number..clusters).step_by(speakers).count() } else { 1 };
            each_outside(&exporter, packages * share, &mut |metric, own, value| {
                outside.add(sample::hash(metric.name(), own, value));
            });
            exporter.outside = outside;
            fleet.exporters_by_name.insert(cluster, number);
            fleet.exporters.push(exporter);
        }
        for number in 0..clusters {
            let mut digest = Digest::default();
            (0..packages).for_each(|package| {
                digest.merge(fleet.sum(number, package, &fleet.at_first(number, package)))
            });
            let nothing = Delivery { at: Millis::MIN, package: usize::MAX, number: 0, digest };
            fleet.deliveries_mut(number).push(nothing);
        }
        fleet
    }

    /// How many clusters there are.
    pub(crate) fn len(&self) -> usize {
        self.clusters.len()
    }

    /// How many exporters tell of them.
    pub(crate) fn exporters(&self) -> usize {
        self.exporters.len()
    }

    /// The name of the cluster in which an exporter runs, and a pattern for those of which it tells.
    pub(crate) fn speakers(&self) -> Vec<(String, String)> {
        let all = 0..if self.is_told() { self.exporters() } else { 0 };
        all.map(|speaker| (speaker_name(speaker), format!("{speaker:02}-*"))).collect()
    }

    /// Whether exporters elsewhere tell of the clusters.
    pub(crate) fn is_told(&self) -> bool {
        self.exporters.first().is_some_and(|exporter| !self.by_name.contains_key(&exporter.cluster))
    }

    /// Name of a cluster.
    pub(crate) fn cluster_name(&self, number: usize) -> &str {
        self.clusters.get(number).map(|cluster| cluster.name.as_str()).unwrap_or_default()
    }

    /// What its exporter calls a cluster, where that runs in another one.
    pub(crate) fn told_of(&self, cluster: usize) -> Option<&str> {
        self.is_told().then(|| self.cluster_name(cluster))
    }

    /// The clusters of which an exporter tells.
    pub(crate) fn clusters_of(&self, exporter: usize) -> impl Iterator<Item = usize> {
        (exporter..self.clusters.len()).step_by(self.exporters.len().max(1))
    }

    /// How many samples there are in all.
    pub(crate) fn samples(&self) -> usize {
        let parts = if self.is_told() { self.len() } else { 0 };
        self.len() * self.packages.len() * AT_REST.len() + self.exporters() * (WORDS.len() + 3) + parts
    }

    /// How many packages an exporter tells of.
    pub(crate) fn packages_of(&self, exporter: usize) -> usize {
        self.packages.len() * self.clusters_of(exporter).count()
    }

    /// The number of a cluster.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The number of the exporter in a cluster.
    pub(crate) fn find_exporter(&self, cluster: &str) -> Option<usize> {
        self.exporters_by_name.get(cluster).copied()
    }

    /// How an exporter's samples are labelled.
    pub(crate) fn origin(&self, exporter: usize) -> Option<Origin<'_>> {
        let Exporter { cluster, instance, uid, process, .. } = self.exporters.get(exporter)?;
        Some(Origin { cluster, instance, uid, process: *process })
    }

    fn deliveries_mut(&self, cluster: usize) -> RwLockWriteGuard<'_, Vec<Delivery>> {
        self.clusters[cluster].deliveries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// From `at` on the cluster has the revision with this number of a package, applied and healthy.
    pub(crate) fn deliver(&self, cluster: usize, package: usize, number: u64, at: Millis) {
        let mut deliveries = self.deliveries_mut(cluster);
        let Some(mut digest) = deliveries.last().map(|last| last.digest) else { return };
        digest.subtract(self.sum(cluster, package, &self.values(cluster, package, &deliveries)));
        deliveries.push(Delivery { at, package, number, digest });
        let after = self.sum(cluster, package, &self.values(cluster, package, &deliveries));
        if let Some(last) = deliveries.last_mut() {
            last.digest.merge(after);
        }
    }

    /// No exporter is scraped after `from`, and until `until`.
    pub(crate) fn is_silent(&self, from: Millis, until: Millis) {
        *self.silent.write().unwrap_or_else(PoisonError::into_inner) = (from, until);
    }

    /// When an exporter was last scraped, at `t`.
    pub(crate) fn last_scrape(&self, exporter: usize, t: Millis) -> Millis {
        let last = |t: Millis| {
            let phase = self.exporters.get(exporter).map_or(0, |exporter| exporter.phase);
            (t - phase).div_euclid(self.interval) * self.interval + phase
        };
        let (from, until) = *self.silent.read().unwrap_or_else(PoisonError::into_inner);
        let found = last(t);
        if (from..until).contains(&found) { last(from - 1) } else { found }
    }

    /// When an exporter was scraped after `from` and until `t`, oldest first.
    pub(crate) fn scrapes(&self, exporter: usize, from: Millis, t: Millis) -> impl Iterator<Item = Millis> {
        let before = move |last: Millis| (last > from).then_some(last);
        let all = std::iter::successors(before(self.last_scrape(exporter, t)), move |last| {
            before(self.last_scrape(exporter, last - 1))
        });
        let mut all: Vec<Millis> = all.collect();
        all.reverse();
        all.into_iter()
    }

    /// What all samples of a cluster's packages added up to when its exporter was scraped.
    pub(crate) fn part(&self, cluster: usize, scraped: Millis) -> Digest {
        let Some(cluster) = self.clusters.get(cluster) else { return Digest::default() };
        let deliveries = cluster.deliveries.read().unwrap_or_else(PoisonError::into_inner);
        until(&deliveries, scraped).last().map_or_else(Digest::default, |last| last.digest)
    }

    /// What the digest was when the exporter was scraped.
    pub(crate) fn digest(&self, exporter: usize, scraped: Millis) -> u64 {
        let Some(known) = self.exporters.get(exporter) else { return 0 };
        let mut digest = known.outside;
        self.clusters_of(exporter).for_each(|cluster| digest.merge(self.part(cluster, scraped)));
        digest.rendered(seconds(scraped)).value()
    }

    /// The number of the revision that a cluster had of each of its packages when its exporter was scraped.
    pub(crate) fn revision_numbers(&self, cluster: usize, scraped: Millis) -> Vec<u64> {
        let mut numbers = vec![0; self.packages.len()];
        if let Some(cluster) = self.clusters.get(cluster) {
            let deliveries = cluster.deliveries.read().unwrap_or_else(PoisonError::into_inner);
            for delivery in until(&deliveries, scraped) {
                if let Some(number) = numbers.get_mut(delivery.package) {
                    *number = delivery.number;
                }
            }
        }
        numbers
    }

    /// Every sample of the state, as the scrape found it, or only what is said of these clusters and of none.
    pub(crate) fn each(&self, exporter: usize, only: Option<&[usize]>, scraped: Millis, say: Say<'_>) {
        let Some(known) = self.exporters.get(exporter) else { return };
        let is_wanted = |cluster: &usize| only.is_none_or(|only| only.contains(cluster));
        for cluster in self.clusters_of(exporter).filter(is_wanted) {
            // A copy, so that nobody who delivers has to wait for whoever reads.
            let deliveries = {
                let all = self.clusters[cluster].deliveries.read().unwrap_or_else(PoisonError::into_inner);
                until(&all, scraped).to_vec()
            };
            for (number, name) in self.packages.iter().enumerate() {
                let own = identity(name, self.told_of(cluster));
                let values = self.values(cluster, number, &deliveries);
                AT_REST.iter().zip(values).for_each(|(metric, value)| say(*metric, &own, value));
            }
        }
        each_outside(known, self.packages_of(exporter), say);
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

    fn sum(&self, cluster: usize, package: usize, values: &Values) -> Digest {
        let name = self.packages.get(package).map(String::as_str).unwrap_or_default();
        let own = identity(name, self.told_of(cluster));
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

fn speaker_name(number: usize) -> String {
    format!("management-{number:02}")
}

fn identity<'a>(package: &'a str, told_of: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    let own =
        [(label::PACKAGE, package), (label::PACKAGE_NAMESPACE, NAMESPACE), (label::PACKAGE_SOURCE, SOURCE)];
    own.into_iter().chain(told_of.map(|cluster| (label::PACKAGE_CLUSTER, cluster))).collect()
}

/// The samples that belong to no package, of which the exporter tells of so many.
fn each_outside(exporter: &Exporter, packages: usize, say: Say<'_>) {
    for word in WORDS {
        let code = reason::code(word).to_string();
        let own = [(label::CODE, code.as_str()), (label::PACKAGE_SOURCE, SOURCE), (label::REASON, word)];
        say(Metric::ReasonInfo, &own, 1);
    }
    let source = [(label::PACKAGE_SOURCE, SOURCE)];
    say(Metric::SourceUp, &source, 1);
    say(Metric::SourcePackages, &source, packages as u64);
    say(Metric::ProcessNumber, &[], exporter.process);
}

fn until(deliveries: &[Delivery], scraped: Millis) -> &[Delivery] {
    let after = deliveries.iter().position(|delivery| delivery.at > scraped).unwrap_or(deliveries.len());
    &deliveries[..after]
}

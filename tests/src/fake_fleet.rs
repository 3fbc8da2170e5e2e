//! Any number of clusters reduced to what their exporters would say, word by word after the contract: for what is
//! asked of the hub, where a hundred real API servers would teach nothing more.

use crate::{FileServer, ScrapeJob};
use anyhow::Result;
use bytes::Bytes;
use statusbridge_contract::{
    ApplyState, CONTRACT_VERSION, Digest, Fingerprint, Health, Metric, label, reason, sample,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The source that the packages are said to come from.
pub const SOURCE: &str = "flux-kustomization";

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// What a cluster says of one package.
#[derive(Debug, Clone, PartialEq)]
pub struct FakePackage {
    /// Apply state.
    pub apply: ApplyState,
    /// Health.
    pub health: Health,
    /// The revision that the cluster was told to run; empty when not known.
    pub desired: String,
    /// The revision last applied.
    pub applied: String,
    /// The revision that is healthy.
    pub healthy: String,
    /// The reason; empty when there is none.
    pub reason: String,
    /// When the state last changed, in unix seconds.
    pub since: u64,
    /// How many changes were seen.
    pub transitions: u64,
    /// How many resources its inventory has, how many of them are current, and how many have failed; `None` where the
    /// source has no inventories.
    pub resources: Option<[u64; 3]>,
}

impl FakePackage {
    /// Applied and healthy since now.
    pub fn healthy_at(revision: &str) -> Self {
        Self {
            apply: ApplyState::Applied,
            health: Health::Current,
            desired: revision.to_owned(),
            applied: revision.to_owned(),
            healthy: revision.to_owned(),
            reason: String::new(),
            since: unix_now(),
            transitions: 1,
            resources: None,
        }
    }

    /// Applied, and its health check failed, since now.
    pub fn failed_at(revision: &str) -> Self {
        Self {
            health: Health::Failed,
            healthy: String::new(),
            reason: "HealthCheckFailed".to_owned(),
            ..Self::healthy_at(revision)
        }
    }
}

#[derive(Debug, Default)]
struct Cluster {
    uid: u64,
    /// How many seconds its clock is ahead.
    ahead: i64,
    /// The contract version that its digest names; none is the current.
    contract: Option<String>,
    /// Metrics of packages that it has beside those of the contract, all 1 and covered by its digest.
    more: Vec<String>,
    /// Whether its exporter is out of touch with what it reads.
    out_of_touch: bool,
    /// By namespace and name.
    packages: BTreeMap<(String, String), FakePackage>,
}

type Clusters = Arc<Mutex<BTreeMap<String, Cluster>>>;

/// The clusters, all behind one HTTP server.
#[derive(Debug)]
pub struct FakeFleet {
    server: FileServer,
    clusters: Clusters,
    requests: Arc<AtomicU64>,
}

impl FakeFleet {
    /// A fleet without clusters.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        Ok(Self {
            server: FileServer::start().await?,
            clusters: Clusters::default(),
            requests: Arc::default(),
        })
    }

    fn clusters(&self) -> MutexGuard<'_, BTreeMap<String, Cluster>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the cluster, which is made when it is new, says this of a package in the namespace
    /// [`FLUX_NAMESPACE`](crate::FLUX_NAMESPACE).
    pub fn says(&self, cluster: &str, package: &str, what: FakePackage) {
        self.says_in(crate::FLUX_NAMESPACE, cluster, package, what);
    }

    /// The same of a package in another namespace.
    pub fn says_in(&self, namespace: &str, cluster: &str, package: &str, what: FakePackage) {
        self.change(cluster, |cluster| {
            cluster.packages.insert((namespace.to_owned(), package.to_owned()), what);
        });
    }

    /// From now on the cluster's clock is so many seconds ahead. What it says of packages is not changed.
    pub fn clock_is_ahead(&self, cluster: &str, seconds: i64) {
        self.change(cluster, |cluster| cluster.ahead = seconds);
    }

    /// From now on the cluster's exporter is of this contract version, and its digest covers these metrics too.
    pub fn publishes(&self, cluster: &str, contract: &str, more: &[&str]) {
        self.change(cluster, |cluster| {
            cluster.contract = Some(contract.to_owned());
            cluster.more = more.iter().map(|name| (*name).to_owned()).collect();
        });
    }

    /// From now on the cluster's exporter says that it is out of touch with what it reads.
    pub fn is_out_of_touch(&self, cluster: &str) {
        self.change(cluster, |cluster| cluster.out_of_touch = true);
    }

    /// What the cluster says of a package changes.
    pub fn changes(&self, cluster: &str, package: &str, change: impl FnOnce(&mut FakePackage)) {
        let key = (crate::FLUX_NAMESPACE.to_owned(), package.to_owned());
        self.change(cluster, |cluster| {
            if let Some(package) = cluster.packages.get_mut(&key) {
                change(package);
            }
        });
    }

    /// How often any cluster was scraped.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn change(&self, cluster: &str, change: impl FnOnce(&mut Cluster)) {
        let mut clusters = self.clusters();
        if !clusters.contains_key(cluster) {
            let (all, name) = (Arc::clone(&self.clusters), cluster.to_owned());
            let requests = Arc::clone(&self.requests);
            self.server.put_with(&path(cluster), move || {
                requests.fetch_add(1, Ordering::Relaxed);
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                std::future::ready(all.get(&name).map(|c| Bytes::from(render(c))))
            });
        }
        let uid = Fingerprint::of(cluster).value();
        change(clusters.entry(cluster.to_owned()).or_insert_with(|| Cluster { uid, ..Cluster::default() }));
    }

    /// From now on the cluster has no such package.
    pub fn loses(&self, cluster: &str, package: &str) {
        if let Some(cluster) = self.clusters().get_mut(cluster) {
            cluster.packages.remove(&(crate::FLUX_NAMESPACE.to_owned(), package.to_owned()));
        }
    }

    /// From now on the cluster's exporter is not there.
    pub fn is_silent(&self, cluster: &str) {
        self.clusters().remove(cluster);
        self.server.remove(&path(cluster));
    }

    /// Where all exporters listen.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where a cluster's exporter answers.
    pub fn url(&self, cluster: &str) -> String {
        self.server.url(&path(cluster))
    }

    /// Adds a cluster's exporter to a scrape job, under the cluster's name and these labels.
    pub fn target(&self, job: ScrapeJob, cluster: &str, labels: &[(&str, &str)]) -> ScrapeJob {
        let path = path(cluster);
        let mut all = vec![("cluster", cluster), ("__metrics_path__", path.as_str())];
        all.retain(|(name, _)| !labels.iter().any(|(other, _)| other == name));
        all.extend(labels);
        job.target(self.server.address(), &all)
    }
}

/// Where a cluster's exporter is: names may hold what no path can.
fn path(cluster: &str) -> String {
    format!("/{}", Fingerprint::of(cluster))
}

/// What a cluster's exporter says now.
fn render(cluster: &Cluster) -> String {
    let Cluster { uid, ahead, out_of_touch, contract, more, packages } = cluster;
    let mut page = String::new();
    let mut digest = Digest::default();
    let mut write = |name: &str, in_digest: bool, labels: &[(&str, &str)], value: u64| {
        if in_digest {
            digest.add(sample::hash(name, labels, value));
        }
        page += &sample::canonical(name, labels, value);
        page.push('\n');
    };
    let revision = |text: &str| Fingerprint::of(text).value();
    for ((namespace, name), package) in packages {
        let labels = [
            (label::PACKAGE, name.as_str()),
            (label::PACKAGE_NAMESPACE, namespace.as_str()),
            (label::PACKAGE_SOURCE, SOURCE),
        ];
        more.iter().for_each(|name| write(name, true, &labels, 1));
        let mut say =
            |metric: Metric, labels: &[_], value| write(metric.name(), metric.in_digest(), labels, value);
        say(Metric::PackageApplyState, &labels, package.apply.code());
        say(Metric::PackageHealth, &labels, package.health.code());
        say(Metric::PackageDesiredRevision, &labels, revision(&package.desired));
        say(Metric::PackageAppliedRevision, &labels, revision(&package.applied));
        say(Metric::PackageHealthyRevision, &labels, revision(&package.healthy));
        say(Metric::PackageTransitionTimestamp, &labels, package.since);
        say(Metric::PackageTransitions, &labels, package.transitions);
        say(Metric::PackageReason, &labels, reason::code(&package.reason));
        let counts =
            [Metric::PackageResources, Metric::PackageResourcesCurrent, Metric::PackageResourcesFailed];
        for (metric, count) in counts.into_iter().zip(package.resources.into_iter().flatten()) {
            say(metric, &labels, count);
        }
    }
    let mut say = |metric: Metric, labels: &[(&str, &str)], value| {
        write(metric.name(), metric.in_digest(), labels, value)
    };
    let reasons: BTreeSet<&str> =
        packages.values().map(|p| p.reason.as_str()).filter(|r| !r.is_empty()).collect();
    for word in reasons {
        let code = reason::code(word).to_string();
        let labels = [(label::CODE, code.as_str()), (label::PACKAGE_SOURCE, SOURCE), (label::REASON, word)];
        say(Metric::ReasonInfo, &labels, 1);
    }
    let source = [(label::PACKAGE_SOURCE, SOURCE)];
    say(Metric::SourceUp, &source, u64::from(!out_of_touch));
    say(Metric::SourcePackages, &source, packages.len() as u64);
    say(Metric::ClusterUid, &[], *uid);
    say(Metric::RenderedTimestamp, &[], unix_now().saturating_add_signed(*ahead));
    say(Metric::SourceLastContact, &source, unix_now());
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for package in packages.values() {
        *counts.entry((package.apply.name(), package.health.name())).or_default() += 1;
    }
    for ((apply, health), count) in counts {
        let labels = [(label::APPLY_STATE, apply), (label::HEALTH, health), (label::PACKAGE_SOURCE, SOURCE)];
        say(Metric::Packages, &labels, count);
    }
    let (digest, contract) = (digest.value(), contract.as_deref().unwrap_or(CONTRACT_VERSION));
    page += &sample::canonical(Metric::Digest.name(), &[(label::CONTRACT, contract)], digest);
    page.push('\n');
    page
}

//! Any number of clusters reduced to what their exporters would say, word by word after the contract: for what is
//! asked of the hub, where a hundred real API servers would teach nothing more.

use crate::exposition::{Attestation, Page};
use crate::{FileServer, Prometheus, PrometheusConfig, Rig, ScrapeJob};
use anyhow::Result;
use bytes::Bytes;
use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric, label, reason};
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
    /// How many resources its inventory has, how many of them are current, and how many have failed; `None` where the
    /// source has no inventories.
    pub resources: Option<[u64; 3]>,
}

impl FakePackage {
    /// Its samples: what follows from the others is left out.
    fn samples(&self) -> Vec<(Metric, u64)> {
        let revision = |text: &str| Fingerprint::of(text).value();
        let Self { apply, health, desired, applied, healthy, reason, since, resources } = self;
        let [total, current, failed] = resources.unwrap_or_default();
        let all = [
            (true, Metric::PackageHealthyRevision, revision(healthy)),
            (true, Metric::PackageTransitionTimestamp, *since),
            (*apply != ApplyState::Applied, Metric::PackageApplyState, apply.code()),
            (*health != Health::Current, Metric::PackageHealth, health.code()),
            (healthy.is_empty() && !applied.is_empty(), Metric::PackageAppliedRevision, revision(applied)),
            (!desired.is_empty() && desired != applied, Metric::PackageDesiredRevision, revision(desired)),
            (!reason.is_empty(), Metric::PackageReason, reason::code(reason)),
            (resources.is_some(), Metric::PackageResources, total),
            (current < total, Metric::PackageResourcesCurrent, current),
            (failed > 0, Metric::PackageResourcesFailed, failed),
        ];
        all.into_iter().filter(|(is_said, ..)| *is_said).map(|(_, metric, value)| (metric, value)).collect()
    }

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

/// Which package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The cluster in which it runs, where that is another one.
    told_of: Option<String>,
    namespace: String,
    name: String,
}

impl Key {
    fn own(namespace: &str, name: &str) -> Self {
        Self { told_of: None, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

#[derive(Debug, Default)]
struct Cluster {
    uid: Fingerprint,
    /// Number of its exporter's process.
    process: u64,
    /// How many seconds its clock is ahead.
    ahead: i64,
    /// The contract version that its digest names; none is the current.
    contract: Option<String>,
    /// Metrics of packages that it has beside those of the contract, all 1 and covered by its digest.
    more: Vec<String>,
    /// Whether its exporter is out of touch with what it reads.
    out_of_touch: bool,
    /// One scrape in so many fails; none at 0.
    fails_every: u64,
    packages: BTreeMap<Key, FakePackage>,
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
            cluster.packages.insert(Key::own(namespace, package), what);
        });
    }

    /// From now on the exporter of the cluster, which is made when it is new, says this of a package in another one.
    pub fn tells(&self, cluster: &str, told_of: &str, package: &str, what: FakePackage) {
        let key = Key { told_of: Some(told_of.to_owned()), ..Key::own(crate::FLUX_NAMESPACE, package) };
        self.change(cluster, |cluster| {
            cluster.packages.insert(key, what);
        });
    }

    /// From now on the cluster's clock is so many seconds ahead, and with it all times that its exporter says.
    pub fn clock_is_ahead(&self, cluster: &str, seconds: i64) {
        self.change(cluster, |cluster| {
            let further = seconds - cluster.ahead;
            cluster.ahead = seconds;
            for package in cluster.packages.values_mut() {
                package.since = package.since.saturating_add_signed(further);
            }
        });
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

    /// From now on one scrape in so many fails.
    pub fn fails_every(&self, cluster: &str, scrapes: u64) {
        self.change(cluster, |cluster| cluster.fails_every = scrapes);
    }

    /// From now on its exporter is another process.
    pub fn restarts(&self, cluster: &str) {
        self.change(cluster, |cluster| cluster.process += 1);
    }

    /// From now on `cluster` is another exporter of the same cluster as `other`.
    pub fn is_the_same_as(&self, cluster: &str, other: &str) {
        self.change(cluster, |cluster| cluster.uid = Fingerprint::of(other));
    }

    /// Makes exporters answer by turns, request by request, under one name: as behind a Service. Gives the name.
    pub fn by_turns(&self, exporters: [&'static str; 2]) -> String {
        let name = exporters.join(" or ");
        let (all, requests) = (Arc::clone(&self.clusters), Arc::new(AtomicU64::new(0)));
        self.server.put_with(&path(&name), move || {
            let turn = requests.fetch_add(1, Ordering::Relaxed) % 2;
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            std::future::ready(all.get(exporters[turn as usize]).map(|c| Bytes::from(render(c))))
        });
        name
    }

    /// What the cluster says of a package changes.
    pub fn changes(&self, cluster: &str, package: &str, change: impl FnOnce(&mut FakePackage)) {
        let key = Key::own(crate::FLUX_NAMESPACE, package);
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
                let number = requests.fetch_add(1, Ordering::Relaxed);
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                let fails = |c: &Cluster| c.fails_every > 0 && number.is_multiple_of(c.fails_every);
                let answers = all.get(&name).filter(|c| !fails(c));
                std::future::ready(answers.map(|c| Bytes::from(render(c))))
            });
        }
        let new = || Cluster {
            uid: Fingerprint::of(cluster),
            process: Fingerprint::of(&format!("process of {cluster}")).value(),
            ..Cluster::default()
        };
        change(clusters.entry(cluster.to_owned()).or_insert_with(new));
    }

    /// From now on the cluster has no such package.
    pub fn loses(&self, cluster: &str, package: &str) {
        self.loses_in(crate::FLUX_NAMESPACE, cluster, package);
    }

    /// The same of a package in another namespace.
    pub fn loses_in(&self, namespace: &str, cluster: &str, package: &str) {
        if let Some(cluster) = self.clusters().get_mut(cluster) {
            cluster.packages.remove(&Key::own(namespace, package));
        }
    }

    /// From now on the cluster's exporter is not there.
    pub fn is_silent(&self, cluster: &str) {
        self.clusters().remove(cluster);
        self.server.remove(&path(cluster));
    }

    /// A fleet of these clusters, each with `package` as `it` says, and a Prometheus that scrapes them one by one.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn scraped(
        rig: &Rig,
        clusters: &[&str],
        package: &str,
        it: impl Fn() -> FakePackage,
    ) -> Result<(Self, Prometheus)> {
        let fleet = Self::start().await?;
        let mut jobs = Vec::new();
        for cluster in clusters {
            fleet.says(cluster, package, it());
            jobs.push(fleet.target(ScrapeJob::new(cluster), cluster, &[]));
        }
        Ok((fleet, Prometheus::start(rig, &PrometheusConfig::with_jobs(jobs)).await?))
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
    let Cluster { uid, process, ahead, out_of_touch, contract, more, packages, fails_every: _ } = cluster;
    let mut page = Page::default();
    for (Key { told_of, namespace, name }, package) in packages {
        let labels = [
            (label::PACKAGE, name.as_str()),
            (label::PACKAGE_NAMESPACE, namespace.as_str()),
            (label::PACKAGE_SOURCE, SOURCE),
        ];
        let told_of = told_of.iter().map(|cluster| (label::PACKAGE_CLUSTER, cluster.as_str()));
        let labels: Vec<_> = labels.into_iter().chain(told_of).collect();
        more.iter().for_each(|name| page.say_covered(name, &labels, 1));
        for (metric, value) in package.samples() {
            page.say(metric, &labels, value);
        }
    }
    let reasons: BTreeSet<&str> =
        packages.values().map(|p| p.reason.as_str()).filter(|r| !r.is_empty()).collect();
    for word in reasons {
        let code = reason::code(word).to_string();
        let labels = [(label::CODE, code.as_str()), (label::PACKAGE_SOURCE, SOURCE), (label::REASON, word)];
        page.say(Metric::ReasonInfo, &labels, 1);
    }
    let source = [(label::PACKAGE_SOURCE, SOURCE)];
    let rendered = unix_now().saturating_add_signed(*ahead);
    page.say(Metric::SourceUp, &source, u64::from(!out_of_touch));
    page.say(Metric::SourcePackages, &source, packages.len() as u64);
    page.say(Metric::SourceLastContact, &source, rendered);
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for package in packages.values() {
        *counts.entry((package.apply.name(), package.health.name())).or_default() += 1;
    }
    for ((apply, health), count) in counts {
        let labels = [(label::APPLY_STATE, apply), (label::HEALTH, health), (label::PACKAGE_SOURCE, SOURCE)];
        page.say(Metric::Packages, &labels, count);
    }
    let by = Attestation::new(*uid, *process, rendered);
    page.attested(Attestation { contract: contract.as_deref().unwrap_or(by.contract), ..by })
}

//! The world that most of these tests live in: workload clusters with exporters, one Prometheus, one hub.

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `staleAfter`: scrapes and polls come every second, but the machine may be busy.
pub(crate) const STALE_AFTER: &str = "10s";
/// In which what has gone silent must be closed: `staleAfter`, a poll whose queries time out, and what a busy
/// machine needs.
pub(crate) const STALE_BY: Duration = Duration::from_secs(10 + 5 + 45);
/// Name of the package.
pub(crate) const APP: &str = "app";

/// The revision of this number.
pub(crate) fn revision(number: u32) -> String {
    let digits: String =
        Sha256::digest(number.to_string()).iter().take(20).map(|b| format!("{b:02x}")).collect();
    format!("main@sha1:{digits}")
}

/// The job that scrapes exporters.
pub(crate) fn job() -> ScrapeJob {
    ScrapeJob::new("statusbridge")
}

/// Clusters, Prometheus and hub.
pub(crate) struct World {
    pub(crate) clusters: Vec<Workload>,
    pub(crate) prometheus: Prometheus,
    pub(crate) config: PrometheusConfig,
    pub(crate) hub: Hub,
    _etcd: Etcd,
}

impl World {
    /// Clusters of these names, all scraped every second.
    pub(crate) async fn start(rig: &Rig, names: &[&str], exporter: &[&str]) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let clusters =
            try_join_all(names.iter().map(|name| Workload::start(rig, &etcd, name, exporter))).await?;
        let config = PrometheusConfig::with_jobs([clusters.iter().fold(job(), |job, c| c.target(job))]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        Ok(Self { clusters, prometheus, config, hub, _etcd: etcd })
    }

    /// Names of the clusters, for a gate.
    pub(crate) fn all(&self) -> Value {
        let names: Vec<&str> = self.clusters.iter().map(Workload::name).collect();
        json!({"clusters": {"names": names}})
    }

    /// Delivers a revision of the package everywhere.
    pub(crate) async fn deliver(&self, revision: &str) -> Result<()> {
        try_join_all(self.clusters.iter().map(|c| c.deliver(APP, revision))).await.map(drop)
    }

    /// The revision is delivered everywhere, reported, and has an open gate of this name over all clusters.
    pub(crate) async fn open(&self, gate: &str, revision: &str) -> Result<()> {
        self.deliver(revision).await?;
        self.hub.report(APP, STALE_AFTER, json!({})).await?;
        self.hub.gate(gate, APP, revision, self.all()).await?;
        self.hub.opens(gate, SOON).await.map(drop)
    }
}

/// Kubeconfig of a user with the rights to read reports and gates, and no others.
pub(crate) async fn viewer(hub: &Hub) -> Result<PathBuf> {
    let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/viewer.yaml");
    hub.api.apply(&std::fs::read_to_string(rbac)?).await?;
    let group = "rbac.authorization.k8s.io";
    hub.api
        .apply_object(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "statusbridge-viewer"},
            "subjects": [{"kind": "User", "name": "viewer", "apiGroup": group}],
        }))
        .await?;
    hub.api.kubeconfig_as("viewer", &[])
}

/// Who is asked about the metrics of clusters that are made up.
pub(crate) struct Backend {
    url: String,
    header: Option<String>,
    pub(crate) prometheus: Prometheus,
    /// What it writes to, for as long as that is to run.
    _behind: Option<Box<dyn Send>>,
}

impl Backend {
    /// A Prometheus that scrapes these clusters.
    pub(crate) async fn prometheus(rig: &Rig, fleet: &FakeFleet, clusters: &[&str]) -> Result<Self> {
        let prometheus = Prometheus::start(rig, &scraping(fleet, clusters)).await?;
        Ok(Self { url: prometheus.url(), header: None, prometheus, _behind: None })
    }

    /// A VictoriaMetrics that such a Prometheus writes to.
    pub(crate) async fn victoria_metrics(rig: &Rig, fleet: &FakeFleet, clusters: &[&str]) -> Result<Self> {
        let behind = VictoriaMetrics::start(rig).await?;
        let mut config = scraping(fleet, clusters);
        config.remote_write.push(behind.remote_write_url());
        let prometheus = Prometheus::start(rig, &config).await?;
        Ok(Self { url: behind.url(), header: None, prometheus, _behind: Some(Box::new(behind)) })
    }

    /// A Mimir that such a Prometheus writes to as a tenant.
    pub(crate) async fn mimir(rig: &Rig, fleet: &FakeFleet, clusters: &[&str]) -> Result<Self> {
        let behind = Mimir::start(rig).await?;
        let tenant = behind.tenant("fleet")?;
        let prometheus = Prometheus::start(rig, &tenant.written_by(scraping(fleet, clusters))).await?;
        let (name, value) = tenant.header();
        let (url, header) = (behind.url(), Some(format!("{name}: {value}")));
        Ok(Self { url, header, prometheus, _behind: Some(Box::new(behind)) })
    }

    /// A Thanos querier over the sidecar of such a Prometheus.
    pub(crate) async fn thanos(rig: &Rig, fleet: &FakeFleet, clusters: &[&str]) -> Result<Self> {
        let config = scraping(fleet, clusters).external(&[("replica", "a")]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let sidecar = ThanosSidecar::start(rig, &prometheus).await?;
        let querier = ThanosQuerier::start(rig, &[&sidecar]).await?;
        let url = querier.url();
        Ok(Self { url, header: None, prometheus, _behind: Some(Box::new((sidecar, querier))) })
    }

    /// An aggregator's options that suit it.
    pub(crate) fn options(&self) -> AggregatorOptions {
        let mut options = AggregatorOptions::new(&self.url);
        // Remote write takes its time.
        options.settle_delay = "3s";
        let headers = self.header.iter();
        options.more.extend(headers.flat_map(|header| ["--backend-header".to_owned(), header.clone()]));
        options
    }
}

/// Scrapes these clusters.
pub(crate) fn scraping(fleet: &FakeFleet, clusters: &[&str]) -> PrometheusConfig {
    PrometheusConfig::with_jobs([clusters.iter().fold(job(), |job, name| fleet.target(job, name, &[]))])
}

/// The same, every two seconds: two scrapes within a second of the clusters' clocks would look like one exposition, repeated,
/// and a leader that has seen neither before takes the second for old.
pub(crate) fn scraping_slowly(fleet: &FakeFleet, clusters: &[&str]) -> PrometheusConfig {
    PrometheusConfig { scrape_interval: Duration::from_secs(2), ..scraping(fleet, clusters) }
}

/// Healthy for so many seconds, says the object.
pub(crate) fn healthy_for(seconds: u64) -> FakePackage {
    FakePackage { since: fake_fleet::unix_now() - seconds, ..FakePackage::healthy_at(&revision(1)) }
}

/// Replaces a file at once, as a mounted ConfigMap or Secret is.
pub(crate) fn put(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(&new, file)?)
}

/// Waits until a gate is closed and what it waits for speaks of all of these.
pub(crate) async fn waits_for(hub: &Hub, gate: &str, by: Duration, words: &[&str]) -> Result<()> {
    eventually(by, &format!("{gate} waits for {words:?}"), async || {
        let gate = hub.get_gate(gate).await?;
        ensure!(history::condition(&gate, "Open").0 == "False", "open");
        let waiting = waiting(&gate);
        ensure!(words.iter().all(|word| waiting.contains(word)), "{waiting}");
        Ok(())
    })
    .await
}

/// All that a gate waits for, as one text.
pub(crate) fn waiting(gate: &DynamicObject) -> String {
    gate.data["status"]["waitingFor"].to_string()
}

/// Fails unless a version of a gate is closed.
pub(crate) fn closed(version: &history::Version) -> Result<()> {
    ensure!(!version.lets_pass(), "it lets pass");
    Ok(())
}

/// Fails when a version of a gate is open; that it was open before is not taken back.
pub(crate) fn not_open(version: &history::Version) -> Result<()> {
    ensure!(version.condition("Open").0 != "True", "it is open");
    Ok(())
}

/// Fails unless a version of a gate is open for the generation that it has.
pub(crate) fn open(version: &history::Version) -> Result<()> {
    ensure!(version.condition("Open").0 == "True" && version.lets_pass(), "it is closed");
    Ok(())
}

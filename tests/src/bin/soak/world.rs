//! Every server: two real clusters, and many that are expositions alone.
//!
//! ```text
//!   etcd ─ API server ◀─╳─ exporter ◀─┐
//!                          expositions ◀─┴─ Prometheus ◀─╳─ aggregator ─╳─▶ API server ─ etcd
//! ```

use anyhow::Result;
use statusbridge_tests::*;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The real cluster.
pub(crate) const REAL: &str = "workload";

/// Time between two scrapes.
const SCRAPE: Duration = Duration::from_secs(15);
/// Time between two cuts of a connection.
const CUT: Duration = Duration::from_secs(120);
/// By default API servers keep events for an hour, and old versions of objects for five to ten minutes: etcd would grow for
/// as long.
const API_SERVER: [&str; 2] = ["--event-ttl=5m", "--etcd-compaction-interval=1m"];
/// Prometheus keeps two hours in memory by itself, and what is older for as long as it has room.
const PROMETHEUS: [&str; 3] = [
    "--storage.tsdb.min-block-duration=15m",
    "--storage.tsdb.max-block-duration=15m",
    "--storage.tsdb.retention.size=256MB",
];

/// All of it.
pub(crate) struct World {
    pub(crate) workload: Workload,
    pub(crate) hub: Hub,
    pub(crate) fleet: FakeFleet,
    /// Names of the clusters that are expositions alone.
    pub(crate) clusters: Vec<String>,
    pub(crate) prometheus: Prometheus,
    pub(crate) hub_etcd: Etcd,
    /// In front of the exporter's API server, Prometheus and the hub's API server.
    connections: [FaultProxy; 3],
    _workload_etcd: Etcd,
}

impl World {
    /// Starts it with so many clusters beside the real one. No packages run yet.
    pub(crate) async fn start(rig: &Rig, clusters: usize) -> Result<Self> {
        let (workload_etcd, hub_etcd) = tokio::try_join!(Etcd::start(rig), Etcd::start(rig))?;
        let api = ApiServer::start_with(rig, &workload_etcd, REAL, &API_SERVER).await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let to_workload = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(to_workload.address())?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &[]).await?;
        let workload = Workload::of(api, exporter).await?;

        let fleet = FakeFleet::start().await?;
        let clusters: Vec<String> = (1..=clusters).map(|number| format!("cluster-{number:03}")).collect();
        let job = workload.target(ScrapeJob::new("statusbridge"));
        let job = clusters.iter().fold(job, |job, cluster| fleet.target(job, cluster, &[]));
        let flags = PROMETHEUS.map(str::to_owned).to_vec();
        let config =
            PrometheusConfig { scrape_interval: SCRAPE, flags, ..PrometheusConfig::with_jobs([job]) };
        let prometheus = Prometheus::start(rig, &config).await?;

        let api = ApiServer::start_with(rig, &hub_etcd, "hub", &API_SERVER).await?;
        let accounts = hub::install(&api).await?;
        let to_prometheus = FaultProxy::start(rig, prometheus.address()).await?;
        let to_hub = FaultProxy::start(rig, api.address()).await?;
        let options = AggregatorOptions {
            poll_interval: Duration::from_secs(15),
            settle_delay: "5s",
            namespace: hub::LEASES.to_owned(),
            more: vec!["--serve-fleet".to_owned()],
            ..AggregatorOptions::new(to_prometheus.url())
        };
        let account = api.via(&accounts.aggregator, to_hub.address())?;
        let aggregator = Aggregator::start(rig, "aggregator", &account, &options).await?;
        let hub = Hub::of(api, aggregator, account, accounts.sweeper).await?;
        let connections = [to_workload, to_prometheus, to_hub];
        Ok(Self {
            workload,
            hub,
            fleet,
            clusters,
            prometheus,
            hub_etcd,
            connections,
            _workload_etcd: workload_etcd,
        })
    }

    /// Cuts all connections between two programs now and then: watches among them. Gives how often.
    pub(crate) async fn is_cut(&self, mut random: fastrand::Rng, until: Instant) -> Result<u32> {
        let mut cuts = 0;
        while Instant::now() + CUT < until {
            sleep(CUT).await;
            self.connections[random.usize(..self.connections.len())].cut();
            cuts += 1;
        }
        Ok(cuts)
    }
}

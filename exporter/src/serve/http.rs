//! What the server shows, and what it says of its own health.

use std::{
    iter,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use statusbridge_contract::Fingerprint;
use statusbridge_serving::{
    endpoints::{self, Endpoints},
    format::Format,
};
use tracing::warn;

use super::exposition::Exposition;
use crate::{
    clock::{Clock, Moment},
    metrics::OwnMetrics,
    state::{Publisher, SharedPublished, Snapshot},
};

/// The namespace whose UID stands for the cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";
/// A process that has been up for this long is ready even if some source is not: that one says so by
/// `source_up`, and must not keep the others from being scraped.
const READY_AT_LAST: Duration = Duration::from_secs(60);
/// How long to wait for the cluster's UID before serving metrics without it.
const WITHOUT_UID: Duration = Duration::from_secs(30);

/// What the server shows.
pub(super) struct ServerState {
    clock: Arc<Clock>,
    published: SharedPublished,
    metrics: Arc<OwnMetrics>,
    timeout: Duration,
    /// Value of the cluster's fingerprint; 0 = not known yet.
    cluster_uid: AtomicU64,
    /// Random, from 1 to 2^32 - 1.
    process_number: u64,
    start: Instant,
    /// Seconds after `start` at which the engine last went round.
    alive: AtomicU64,
}

impl ServerState {
    pub(super) fn new(
        clock: Arc<Clock>,
        published: SharedPublished,
        metrics: Arc<OwnMetrics>,
        timeout: Duration,
    ) -> Self {
        Self {
            clock,
            published,
            metrics,
            timeout,
            cluster_uid: AtomicU64::new(0),
            process_number: fastrand::u32(1..).into(),
            start: Instant::now(),
            alive: AtomicU64::new(0),
        }
    }

    /// What tells the cluster from others.
    pub(super) fn is_cluster(&self, uid: &str) {
        self.cluster_uid.store(Fingerprint::of(uid).value(), Ordering::Relaxed);
    }

    /// The engine has gone round.
    pub(super) fn engine_is_alive(&self) {
        self.alive.store(self.start.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// What there is to show at `now`, or why there is nothing yet.
    fn snapshot(&self, now: Moment) -> Result<Snapshot, String> {
        let uid = Fingerprint::from_value(self.cluster_uid.load(Ordering::Relaxed)).filter(|f| !f.is_none());
        // A restart must not look like another cluster for the moment until the UID is read.
        if uid.is_none() && self.start.elapsed() < WITHOUT_UID {
            return Err(format!("the UID of namespace {CLUSTER_NAMESPACE} is not known yet"));
        }
        let publisher = Publisher { cluster_uid: uid, process_number: Some(self.process_number) };
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(published.snapshot(publisher, self.timeout, now))
    }

    /// The exposition as it is now, or why there is none yet.
    pub(super) fn exposition(&self, format: Format) -> Result<Exposition, String> {
        let now = self.clock.now();
        let snapshot = self.snapshot(now)?;
        let own = self.metrics.render(format).unwrap_or_default();
        Ok(Exposition::new(snapshot, format, u64::try_from(now.unix_seconds()).ok(), Bytes::from(own)))
    }

    /// The digest of the state that an exposition would show now; `None` while there is none yet. It stays the same while
    /// the state does.
    pub(super) fn state_digest(&self) -> Option<u64> {
        // A scraper waits until the exporter is ready, so the aggregator that it pushes to does too.
        self.ready().ok()?;
        let snapshot = self.snapshot(self.clock.now()).ok()?;
        Some(snapshot.state_digest().value())
    }
}

impl Endpoints for ServerState {
    fn metrics(&self, format: Format, gzip: bool) -> Result<endpoints::Exposition, String> {
        let start = Instant::now();
        let exposition = self.exposition(format)?;
        let metrics = self.metrics.clone();
        let end = iter::from_fn(move || {
            metrics.scraped(start.elapsed());
            None
        });
        Ok(if gzip {
            endpoints::Exposition::Gzip(Box::new(exposition.gzip().chain(end)))
        } else {
            endpoints::Exposition::Plain(Box::new(exposition.plain().chain(end)))
        })
    }

    fn healthy(&self) -> Result<(), String> {
        let silent = self.start.elapsed().as_secs().saturating_sub(self.alive.load(Ordering::Relaxed));
        if silent < 60 { Ok(()) } else { Err(format!("the engine has stood still for {silent} s")) }
    }

    fn ready(&self) -> Result<(), String> {
        if self.start.elapsed() > READY_AT_LAST {
            return Ok(());
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.waiting().map_or(Ok(()), Err)
    }
}

/// Learns what stands for the cluster; asks until it is answered.
pub(super) async fn learn_cluster_uid(client: Client, state: Arc<ServerState>) {
    let namespaces: Api<Namespace> = Api::all(client);
    let mut told = false;
    loop {
        match namespaces.get(CLUSTER_NAMESPACE).await {
            Ok(namespace) => {
                return state.is_cluster(namespace.metadata.uid.as_deref().unwrap_or(""));
            }
            Err(error) if !told => {
                warn!(%error, "cannot read namespace {CLUSTER_NAMESPACE}: its UID tells clusters apart");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

//! An aggregator's eyes, without a hub.

use anyhow::{Result, ensure};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::poll::{PollConfig, PollReport, Poller};
use statusbridge_aggregator::feed::promql::{Exporters, FeedConfig, Flavour, PromFeed, Trust};
use statusbridge_api::PackageRef;
use statusbridge_core::fleet::{Fleet, FleetSettings, Observation, Standing};
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::*;

/// A package of the rig's clusters.
pub(crate) fn package(name: &str) -> PackageRef {
    let namespace = Some(FLUX_NAMESPACE.to_owned());
    PackageRef { source: SOURCE.to_owned(), namespace, name: name.to_owned() }
}

/// How an aggregator polls that believes every stream.
pub(crate) fn poll_config() -> PollConfig {
    PollConfig::new(Exporters { cluster_label: "cluster".to_owned(), trust: Trust::All })
}

/// Polls a backend, and knows what came of it.
pub(crate) struct Reader {
    poller: Poller<PromFeed>,
    pub(crate) known: Fleet,
    /// Older evidence is not relied upon, in seconds.
    stale_after: f64,
}

impl Reader {
    /// One of a Prometheus.
    pub(crate) fn of(prometheus: &Prometheus) -> Result<Self> {
        Self::new(prometheus.url(), Flavour::Prometheus, 1.0)
    }

    /// One of something that takes remote write.
    pub(crate) fn behind(url: String, flavour: Flavour) -> Result<Self> {
        Self::new(url, flavour, 3.0)
    }

    fn new(url: String, flavour: Flavour, settle: f64) -> Result<Self> {
        let feed = PromFeed::new(FeedConfig { flavour, ..FeedConfig::new(url) })?;
        let poller = Poller::new(PollConfig { settle, ..poll_config() }, feed);
        Ok(Self { poller, known: Fleet::new(FleetSettings::default()), stale_after: 10.0 })
    }

    /// The same with another `staleAfter`, in seconds.
    pub(crate) fn stale_after(self, stale_after: f64) -> Self {
        Self { stale_after, ..self }
    }

    /// The time that it would ask about now.
    pub(crate) fn now(&self) -> f64 {
        clock::now() - self.poller.settle_delay()
    }

    /// One poll.
    pub(crate) async fn poll(&mut self) -> PollReport {
        let now = self.now();
        self.poller.poll(&mut self.known, now).await
    }

    /// What is known of a package.
    pub(crate) fn observe(&self, cluster: &str, name: &str) -> Observation {
        self.known.observe(cluster, &package(name), self.now(), self.stale_after)
    }

    /// Polls until a cluster's package is seen like this.
    pub(crate) async fn until(
        &mut self,
        cluster: &str,
        name: &str,
        standing: Standing,
    ) -> Result<Observation> {
        eventually(SOON, &format!("{name} in {cluster} is {standing:?}"), async || {
            let report = self.poll().await;
            let seen = self.observe(cluster, name);
            ensure!(seen.standing == standing, "{seen:?} after {report:?}");
            Ok(seen)
        })
        .await
    }

    /// Waits until these many streams add up, these many do not, and these clusters report the package.
    pub(crate) async fn sees(
        &mut self,
        streams: (usize, usize),
        name: &str,
        clusters: &[&str],
    ) -> Result<PollReport> {
        eventually(SOON, &format!("{streams:?} streams, and {name} in {clusters:?}"), async || {
            let report = self.poll().await;
            ensure!(report.ok && (report.verified, report.unverified) == streams, "{report:?}");
            let reporting = self.known.reporting(&package(name));
            ensure!(reporting == clusters, "{reporting:?}: {report:?}");
            Ok(report)
        })
        .await
    }
}

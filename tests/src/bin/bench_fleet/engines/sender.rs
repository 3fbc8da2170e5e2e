//! The Prometheus that scrapes the fleet and writes it to an engine.

use super::engine::Engine;
use super::page::Page;
use anyhow::Result;
use statusbridge_tests::{Process, Prometheus, PrometheusConfig, Rig, ScrapeJob};
use std::time::Duration;

/// The Prometheus.
pub(super) struct Sender {
    prometheus: Prometheus,
    http: reqwest::Client,
}

/// What it has sent so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Samples.
    pub(super) samples: f64,
    /// Bytes of the requests, compressed.
    pub(super) bytes: f64,
    /// Samples that the engine refused or that were dropped.
    pub(super) lost: f64,
}

impl Sender {
    /// Starts one.
    pub(super) async fn start(
        rig: &Rig,
        engine: &Engine,
        job: ScrapeJob,
        interval: Duration,
    ) -> Result<Self> {
        let config = PrometheusConfig { scrape_interval: interval, ..PrometheusConfig::with_jobs([job]) };
        let prometheus = Prometheus::start(rig, &engine.written_by(config)).await?;
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build()?;
        Ok(Self { prometheus, http })
    }

    /// Its process.
    pub(super) fn process(&self) -> &Process {
        self.prometheus.process()
    }

    /// What it has sent so far.
    pub(super) async fn sent(&self) -> Result<Sent> {
        let page = Page::read(&self.http, &self.prometheus.url()).await?;
        let of = |what: &str| page.sum(&format!("prometheus_remote_storage_{what}_total"));
        let lost = of("samples_failed") + of("samples_dropped");
        Ok(Sent { samples: of("samples"), bytes: of("bytes"), lost })
    }
}

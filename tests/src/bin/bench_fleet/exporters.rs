//! The exporters of a generated fleet behind one HTTP server, each under a path of its own, for a Prometheus to scrape.

use crate::exposition;
use crate::generated::{Generated, JOB, Millis, now};
use anyhow::Result;
use bytes::Bytes;
use statusbridge_tests::{FileServer, ScrapeJob};
use std::sync::Arc;

/// Makes a page: of the fleet, the exporter with this number, and the time of the scrape.
pub(crate) type Render = fn(&Generated, usize, Millis) -> String;

/// The server.
pub(crate) struct Exporters {
    server: FileServer,
    fleet: Arc<Generated>,
    job: &'static str,
}

impl Exporters {
    /// Starts the server. Each page says what the exporter has to say when it is asked.
    pub(crate) async fn start(fleet: Arc<Generated>) -> Result<Self> {
        Self::start_with(fleet, JOB, |fleet, exporter, at| exposition::render(fleet, exporter, at, "")).await
    }

    /// The same with other pages, in a scrape job of this name.
    pub(crate) async fn start_with(fleet: Arc<Generated>, job: &'static str, render: Render) -> Result<Self> {
        let server = FileServer::start().await?;
        for exporter in 0..fleet.exporters() {
            let fleet = fleet.clone();
            server.put_with(&path(exporter), move || {
                std::future::ready(Some(Bytes::from(render(&fleet, exporter, now()))))
            });
        }
        Ok(Self { server, fleet, job })
    }

    /// A job that scrapes all of them and labels their samples as a pipeline does: `cluster`, `instance`, `job`.
    pub(crate) fn job(&self) -> ScrapeJob {
        let mut job = ScrapeJob::new(self.job);
        for exporter in 0..self.fleet.exporters() {
            if let Some(origin) = self.fleet.origin(exporter) {
                let path = path(exporter);
                let labels = [
                    ("__metrics_path__", path.as_str()),
                    ("cluster", origin.cluster),
                    ("instance", origin.instance),
                ];
                job = job.target(self.server.address(), &labels);
            }
        }
        job
    }
}

fn path(exporter: usize) -> String {
    format!("/{exporter}/metrics")
}

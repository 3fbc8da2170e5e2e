//! VictoriaMetrics, single node.

use crate::{Port, Process, Rig, Sample, program};
use anyhow::{Result, ensure};

/// A VictoriaMetrics that takes remote write and imports and answers PromQL.
#[derive(Debug)]
pub struct VictoriaMetrics {
    process: Process,
    port: Port,
    http: reqwest::Client,
}

impl VictoriaMetrics {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, &[]).await
    }

    /// Starts one with further flags.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_with(rig: &Rig, flags: &[&str]) -> Result<Self> {
        let port = Port::reserve()?;
        let name = format!("victoria-metrics-{}", port.number());
        let args = [
            format!("-storageDataPath={}", rig.subdir(&name)?.display()),
            format!("-httpListenAddr={}", port.address()),
            "-retentionPeriod=1d".to_owned(),
            // It leaves 60 % of the machine to its caches otherwise, which tests that run in parallel need.
            "-memory.allowedBytes=128MB".to_owned(),
        ];
        let args = args.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
        let process = Process::spawn(rig, &name, &program("victoria-metrics")?, args, [])?;
        let server = Self { process, port, http: crate::servers::http()? };
        server.wait_ready().await?;
        Ok(server)
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn wait_ready(&self) -> Result<()> {
        self.process
            .ready(async || {
                let answer = self.http.get(format!("{}/health", self.url())).send().await?;
                ensure!(answer.status().is_success(), "{}", answer.status());
                Ok(())
            })
            .await
    }

    /// Base URL of its Prometheus API.
    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Its address, for a [`FaultProxy`](crate::FaultProxy) in front of it.
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }

    /// Where a Prometheus writes to.
    pub fn remote_write_url(&self) -> String {
        format!("{}/api/v1/write", self.url())
    }

    /// The process, to freeze or kill.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Takes samples in the text exposition format.
    ///
    /// # Errors
    /// When it refuses them.
    pub async fn import(&self, exposition: &str) -> Result<()> {
        self.import_as(exposition.to_owned(), &[]).await
    }

    /// The same, with further labels on every sample.
    ///
    /// # Errors
    /// When it refuses them.
    pub async fn import_as(&self, exposition: String, labels: &[(&str, &str)]) -> Result<()> {
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("extra_label={n}={v}")).collect();
        let url = format!("{}/api/v1/import/prometheus?{}", self.url(), labels.join("&"));
        let answer = self.http.post(url).body(exposition).send().await?;
        ensure!(answer.status().is_success(), "import: {}", answer.status());
        Ok(())
    }

    /// An instant query, evaluated now, with its response cache off. Samples show up in queries about a second
    /// after they came.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query(&self, promql: &str) -> Result<Vec<Sample>> {
        crate::prometheus::instant_query(&self.http, &self.url(), promql, None).await
    }

    /// A query over the last so many seconds, one of them a step: how many series it has.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query_range(&self, promql: &str, seconds: u64) -> Result<usize> {
        crate::prometheus::range_query(&self.http, &self.url(), promql, seconds).await
    }
}

//! Thanos: a querier over sidecars.

use crate::{Port, Process, Prometheus, Rig, Sample, program};
use anyhow::{Result, ensure};

/// A sidecar beside a Prometheus, which must have external labels.
#[derive(Debug)]
pub struct ThanosSidecar {
    process: Process,
    grpc: Port,
    _http: Port,
}

impl ThanosSidecar {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig, prometheus: &Prometheus) -> Result<Self> {
        let (grpc, http) = (Port::reserve()?, Port::reserve()?);
        let name = format!("thanos-sidecar-{}", grpc.number());
        let args = [
            "sidecar".to_owned(),
            format!("--prometheus.url={}", prometheus.url()),
            format!("--tsdb.path={}", rig.subdir(&name)?.display()),
            format!("--grpc-address={}", grpc.address()),
            format!("--http-address={}", http.address()),
            "--log.level=warn".to_owned(),
        ];
        let process = Process::spawn(rig, &name, &program("thanos")?, args, [])?;
        ready(&process, &http).await?;
        Ok(Self { process, grpc, _http: http })
    }

    /// The process, to freeze, kill or start again.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// A querier.
#[derive(Debug)]
pub struct ThanosQuerier {
    _process: Process,
    _grpc: Port,
    port: Port,
    http: reqwest::Client,
}

impl ThanosQuerier {
    /// Starts one over these sidecars, and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(rig: &Rig, sidecars: &[&ThanosSidecar]) -> Result<Self> {
        let (grpc, port) = (Port::reserve()?, Port::reserve()?);
        let name = format!("thanos-querier-{}", port.number());
        let mut args = vec![
            "query".to_owned(),
            // How often it looks at its stores, and how long it waits for one: long enough for tests to see it warn.
            "--endpoint.info-timeout=25s".to_owned(),
            format!("--grpc-address={}", grpc.address()),
            format!("--http-address={}", port.address()),
            "--log.level=warn".to_owned(),
        ];
        args.extend(sidecars.iter().map(|sidecar| format!("--endpoint={}", sidecar.grpc.address())));
        let process = Process::spawn(rig, &name, &program("thanos")?, args, [])?;
        ready(&process, &port).await?;
        Ok(Self { _process: process, _grpc: grpc, port, http: crate::servers::http()? })
    }

    /// Base URL of its Prometheus API.
    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// An instant query, evaluated now.
    ///
    /// # Errors
    /// When it is not answered with success.
    pub async fn query(&self, promql: &str) -> Result<Vec<Sample>> {
        crate::prometheus::instant_query(&self.http, &self.url(), promql, None).await
    }

    /// What the querier warns of when it answers this.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn warnings(&self, promql: &str) -> Result<Vec<String>> {
        let url = format!("{}/api/v1/query?partial_response=false&query={promql}", self.url());
        let answer: serde_json::Value = self.http.get(url).send().await?.json().await?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(serde_json::from_value::<Option<_>>(answer["warnings"].clone())?.unwrap_or_default())
    }
}

async fn ready(process: &Process, port: &Port) -> Result<()> {
    let http = crate::servers::http()?;
    process
        .ready(async || {
            let answer = http.get(format!("http://{}/-/ready", port.address())).send().await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
        .await
}

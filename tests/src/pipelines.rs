//! What carries expositions to a backend, configured by the files of `deploy/pipelines` that people start from.

use crate::{Port, Process, Rig, program};
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::path::Path;

/// From where to where, and under which name.
#[derive(Debug, Clone)]
pub struct Route {
    /// Name of the cluster.
    pub cluster: String,
    /// Where the exporter listens.
    pub exporter: SocketAddr,
    /// Where samples are written to.
    pub write_url: String,
}

/// A program that scrapes an exporter and writes to a backend, once a second.
#[derive(Debug)]
pub struct Pipeline {
    _process: Process,
    _port: Option<Port>,
}

impl Pipeline {
    /// Prometheus, by `prometheus.yaml`.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn prometheus(rig: &Rig, route: &Route) -> Result<Self> {
        let port = Port::reserve()?;
        let name = format!("prometheus-{}", route.cluster);
        let config = write(rig, &name, &configuration("prometheus.yaml", route)?)?;
        let args = [
            format!("--config.file={config}"),
            format!("--storage.tsdb.path={}", rig.subdir(&name)?.join("data").display()),
            format!("--web.listen-address={}", port.address()),
            "--log.level=warn".to_owned(),
        ];
        let process = Process::spawn(rig, &name, &program("prometheus")?, args, [])?;
        ready(&process, &port, "-/ready").await?;
        Ok(Self { _process: process, _port: Some(port) })
    }

    /// vmagent, by `vmagent.yaml`.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn vmagent(rig: &Rig, route: &Route) -> Result<Self> {
        let port = Port::reserve()?;
        let name = format!("vmagent-{}", route.cluster);
        // Where to is a flag of its own, and stands in the file as a comment.
        let config = write(rig, &name, &configuration("vmagent.yaml", route)?)?;
        let args = [
            format!("-promscrape.config={config}"),
            format!("-remoteWrite.url={}", route.write_url),
            format!("-remoteWrite.tmpDataPath={}", rig.subdir(&name)?.join("data").display()),
            format!("-httpListenAddr={}", port.address()),
            "-promscrape.maxScrapeSize=128MiB".to_owned(),
            "-memory.allowedBytes=64MB".to_owned(),
        ];
        let process = Process::spawn(rig, &name, &program("vmagent")?, args, [])?;
        ready(&process, &port, "health").await?;
        Ok(Self { _process: process, _port: Some(port) })
    }

    /// The OpenTelemetry Collector, by `otel-collector.yaml` with these replacements. It does not tell when it is ready.
    ///
    /// # Errors
    /// When it cannot be started, or something that is to be replaced is not there.
    pub fn collector(rig: &Rig, route: &Route, replacements: &[(&str, &str)]) -> Result<Self> {
        let name = format!("collector-{}", route.cluster);
        let mut text = configuration("otel-collector.yaml", route)?;
        // It would serve metrics of its own on a port that is the same for all.
        replace(&mut text, "service:\n", "service:\n  telemetry: {metrics: {level: none}}\n")?;
        for (from, to) in replacements {
            replace(&mut text, from, to)?;
        }
        let config = write(rig, &name, &text)?;
        let args = [format!("--config={config}")];
        let process = Process::spawn(rig, &name, &program("otel-collector")?, args, [])?;
        Ok(Self { _process: process, _port: None })
    }
}

async fn ready(process: &Process, port: &Port, path: &str) -> Result<()> {
    let http = crate::servers::http()?;
    process
        .ready(async || {
            let answer = http.get(format!("http://{}/{path}", port.address())).send().await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
        .await
}

/// A file of `deploy/pipelines` with other addresses, another name, and a scrape every second.
fn configuration(file: &str, route: &Route) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/pipelines").join(file);
    let mut text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let exporter = route.exporter.to_string();
    for (from, to) in [
        ("statusbridge-exporter.statusbridge-system.svc:9477", exporter.as_str()),
        ("https://metrics.example.com/api/v1/write", &route.write_url),
        ("cluster: eu-1", &format!("cluster: {}", route.cluster)),
        ("scrape_interval: 30s", "scrape_interval: 1s"),
        ("scrape_timeout: 10s", "scrape_timeout: 1s"),
    ] {
        replace(&mut text, from, to).with_context(|| path.display().to_string())?;
    }
    Ok(text)
}

fn replace(text: &mut String, from: &str, to: &str) -> Result<()> {
    ensure!(text.contains(from), "there is no {from} in it");
    *text = text.replace(from, to);
    Ok(())
}

fn write(rig: &Rig, name: &str, text: &str) -> Result<String> {
    let file = rig.subdir(name)?.join("config.yaml");
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(file.display().to_string())
}

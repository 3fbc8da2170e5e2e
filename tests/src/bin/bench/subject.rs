//! The two programs that are measured.

use anyhow::{Context, Result};
use reqwest::header::{ACCEPT_ENCODING, HeaderValue};
use statusbridge_contract::{Metric, label};
use statusbridge_tests::{Exporter, Port, Process, Rig, fake_fleet::SOURCE, own_program, program};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flux's published configuration (fluxcd/flux2-monitoring-example,
/// monitoring/controllers/kube-prometheus-stack/kube-state-metrics-config.yaml), for Kustomizations, at the version that
/// is served today: the same metric and labels.
const PEER_CONFIGURATION: &str = "\
kind: CustomResourceStateMetrics
spec:
  resources:
    - groupVersionKind: {group: kustomize.toolkit.fluxcd.io, version: v1, kind: Kustomization}
      metricNamePrefix: gotk
      metrics:
        - name: resource_info
          help: The current state of a Flux resource.
          each:
            type: Info
            info:
              labelsFromPath:
                name: [metadata, name]
          labelsFromPath:
            exported_namespace: [metadata, namespace]
            ready: [status, conditions, '[type=Ready]', status]
            suspended: [spec, suspend]
            revision: [status, lastAppliedRevision]
            source_name: [spec, sourceRef, name]
";

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Exporter,
    Peer,
}

/// One of them, running.
pub(crate) struct Subject {
    running: Running,
    /// When it was started.
    started: Instant,
    program: Program,
    url: String,
    http: reqwest::Client,
}

enum Running {
    Exporter(Exporter),
    Peer { process: Process, _ports: [Port; 2] },
}

/// The answer to one scrape.
pub(crate) struct Scrape {
    pub(crate) took: Duration,
    pub(crate) body: Vec<u8>,
}

impl Program {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exporter => "statusbridge-exporter",
            Self::Peer => "kube-state-metrics",
        }
    }

    /// Builds it, or finds that it is there.
    pub(crate) async fn prepare(self) -> Result<()> {
        match self {
            Self::Exporter => own_program("statusbridge-exporter").await.map(drop),
            Self::Peer => program("kube-state-metrics").map(drop),
        }
    }

    /// Starts it.
    pub(crate) async fn start(self, rig: &Rig, kubeconfig: &Path) -> Result<Subject> {
        let started = Instant::now();
        let (running, address) = match self {
            Self::Exporter => {
                let exporter = Exporter::launch(rig, self.name(), kubeconfig, &[]).await?;
                let address = exporter.address();
                (Running::Exporter(exporter), address)
            }
            Self::Peer => {
                let configuration = rig.dir().join("gotk.yaml");
                std::fs::write(&configuration, PEER_CONFIGURATION).context("writing the configuration")?;
                let ports = [Port::reserve()?, Port::reserve()?];
                let address = ports[0].address();
                let mut args: Vec<OsString> = Vec::new();
                let mut flag = |name: &str, value: OsString| args.extend([format!("--{name}").into(), value]);
                flag("kubeconfig", kubeconfig.into());
                flag("custom-resource-state-config-file", configuration.into());
                for (of, port) in ["", "telemetry-"].iter().zip(&ports) {
                    flag(&format!("{of}host"), "127.0.0.1".into());
                    flag(&format!("{of}port"), port.number().to_string().into());
                }
                args.push("--custom-resource-state-only=true".into());
                args.push("--enable-gzip-encoding=true".into());
                let path = program("kube-state-metrics")?;
                let process = Process::spawn(rig, self.name(), &path, args, [])?;
                (Running::Peer { process, _ports: ports }, address)
            }
        };
        let http =
            reqwest::Client::builder().no_proxy().no_gzip().timeout(Duration::from_secs(30)).build()?;
        Ok(Subject { running, started, program: self, url: format!("http://{address}/metrics"), http })
    }
}

impl Subject {
    fn process(&self) -> &Process {
        match &self.running {
            Running::Exporter(exporter) => exporter.process(),
            Running::Peer { process, .. } => process,
        }
    }

    /// Its process's id.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.process().pid().context("it is not running")
    }

    /// Scrapes it, compressed or not.
    pub(crate) async fn scrape(&self, gzip: bool) -> Result<Scrape> {
        let started = Instant::now();
        let encoding = HeaderValue::from_static(if gzip { "gzip" } else { "identity" });
        let mut answer = self.http.get(&self.url).header(ACCEPT_ENCODING, encoding).send().await?;
        answer.error_for_status_ref()?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(Scrape { took: started.elapsed(), body })
    }

    /// Waits for the first scrape that shows all packages; gives how long after the start it was complete.
    pub(crate) async fn first_complete_scrape(&self, packages: usize) -> Result<Duration> {
        let deadline = self.started + Duration::from_secs(300);
        while Instant::now() < deadline {
            self.process().ensure_running()?;
            // Until it listens there is no answer.
            if let Ok(scrape) = self.scrape(false).await
                && self.is_complete(&String::from_utf8_lossy(&scrape.body), packages)
            {
                return Ok(self.started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("{} never showed {packages} packages", self.program.name())
    }

    fn is_complete(&self, text: &str, packages: usize) -> bool {
        let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
        match self.program {
            Program::Exporter => {
                let up = format!("{}{{{}=\"{SOURCE}\"}} 1\n", Metric::SourceUp.name(), label::PACKAGE_SOURCE);
                text.contains(&up) && count(&format!("{}{{", Metric::PackageHealth.name())) == packages
            }
            Program::Peer => count("gotk_resource_info{") == packages,
        }
    }
}

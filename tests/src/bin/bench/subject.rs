//! The two programs that are measured.

use crate::cluster::{Bench, Cluster};
use crate::{central, joins, resources};
use anyhow::{Context, Result};
use reqwest::header::{ACCEPT_ENCODING, HeaderValue};
use statusbridge_contract::{Metric, label};
use statusbridge_tests::{Exporter, Port, Process, Rig, fake_fleet::SOURCE, own_program, program};
use std::ffi::OsString;
use std::net::SocketAddr;
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
    bench: Bench,
    address: SocketAddr,
    http: reqwest::Client,
}

enum Running {
    Exporter(Exporter),
    Peer { process: Process, _ports: [Port; 2] },
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
    pub(crate) async fn start(self, rig: &Rig, cluster: &Cluster) -> Result<Subject> {
        let (bench, kubeconfig) = (cluster.bench, cluster.api.kubeconfig());
        let started = Instant::now();
        let (running, address) = match self {
            Self::Exporter => {
                let mut args = vec!["--max-packages", "200000", "--presets"];
                let definition = rig.dir().join("widgets.yaml").display().to_string();
                match bench {
                    Bench::Packages | Bench::Resources | Bench::Central => args.push(source(bench)),
                    Bench::Joins => {
                        std::fs::write(&definition, joins::DEFINITION).context("writing the source")?;
                        args.extend(["", "--sources", &definition]);
                    }
                }
                let exporter = Exporter::launch(rig, self.name(), kubeconfig, &args).await?;
                let address = exporter.address();
                (Running::Exporter(exporter), address)
            }
            Self::Peer => {
                let configuration = rig.dir().join("gotk.yaml");
                std::fs::write(&configuration, PEER_CONFIGURATION).context("writing the configuration")?;
                let ports = [Port::reserve()?, Port::reserve()?];
                let address = ports[0].address();
                let mut args: Vec<OsString> = Vec::new();
                let mut flag = |name: &str, value: OsString| {
                    let mut arg = OsString::from(format!("--{name}="));
                    arg.push(value);
                    args.push(arg);
                };
                flag("kubeconfig", kubeconfig.into());
                match bench {
                    Bench::Packages => {
                        flag("custom-resource-state-config-file", configuration.into());
                        flag("custom-resource-state-only", "true".into());
                    }
                    Bench::Resources => flag("resources", "configmaps,deployments,services".into()),
                    Bench::Joins | Bench::Central => anyhow::bail!("it is not measured with {bench:?}"),
                }
                for (of, port) in ["", "telemetry-"].iter().zip(&ports) {
                    flag(&format!("{of}host"), "127.0.0.1".into());
                    flag(&format!("{of}port"), port.number().to_string().into());
                }
                flag("enable-gzip-encoding", "true".into());
                let path = program("kube-state-metrics")?;
                let process = Process::spawn(rig, self.name(), &path, args, [])?;
                (Running::Peer { process, _ports: ports }, address)
            }
        };
        let http =
            reqwest::Client::builder().no_proxy().no_gzip().timeout(Duration::from_secs(60)).build()?;
        Ok(Subject { running, started, program: self, bench, address, http })
    }
}

impl Subject {
    fn process(&self) -> &Process {
        match &self.running {
            Running::Exporter(exporter) => exporter.process(),
            Running::Peer { process, .. } => process,
        }
    }

    /// Where it answers scrapes.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process's id.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.process().pid().context("it is not running")
    }

    /// Scrapes it, compressed or not, and has a look at the answer piece by piece; gives how long that took.
    pub(crate) async fn scrape(&self, gzip: bool, mut look: impl FnMut(&[u8])) -> Result<Duration> {
        let started = Instant::now();
        let encoding = HeaderValue::from_static(if gzip { "gzip" } else { "identity" });
        let mut answer = self.http.get(self.url("metrics")).header(ACCEPT_ENCODING, encoding).send().await?;
        answer.error_for_status_ref()?;
        while let Some(piece) = answer.chunk().await? {
            look(&piece);
        }
        Ok(started.elapsed())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Whether a scrape is worth while: one of half the packages costs as much as half of a complete one.
    async fn is_ready(&self) -> bool {
        match self.program {
            Program::Exporter => {
                self.http.get(self.url("readyz")).send().await.is_ok_and(|a| a.status().is_success())
            }
            // It is ready before it has read anything, and shows nothing of a kind until it has read all of it.
            Program::Peer => true,
        }
    }

    /// What a scrape says.
    pub(crate) async fn text(&self) -> Result<String> {
        let mut body = Vec::new();
        self.scrape(false, |piece| body.extend_from_slice(piece)).await?;
        Ok(String::from_utf8(body)?)
    }

    /// Whether a scrape has a health of the package with this name, as it has of one that is not Current.
    pub(crate) async fn shows_health_of(&self, package: &str) -> Result<bool> {
        let label = format!("{}=\"{package}\"", label::PACKAGE);
        let is_it = |line: &str| has_name(line, Metric::PackageHealth.name()) && line.contains(&label);
        Ok(self.text().await?.lines().any(is_it))
    }

    /// Waits for the first scrape that shows all packages; gives how long after the start it was complete.
    pub(crate) async fn first_complete_scrape(&self, packages: usize) -> Result<Duration> {
        let deadline = self.started + Duration::from_secs(300);
        while Instant::now() < deadline {
            self.process().ensure_running()?;
            let asked = Instant::now();
            // Until it listens there is no answer.
            if self.is_ready().await
                && let Ok(text) = self.text().await
                && self.is_complete(&text, packages)
            {
                return Ok(self.started.elapsed());
            }
            // Looking must not become what it is busy with.
            tokio::time::sleep(asked.elapsed().max(Duration::from_millis(50))).await;
        }
        anyhow::bail!("{} did not show {packages} packages within five minutes", self.program.name())
    }

    fn is_complete(&self, text: &str, packages: usize) -> bool {
        let count = |metric: &str| text.lines().filter(|line| has_name(line, metric)).count();
        match (self.program, self.bench) {
            (Program::Exporter, bench) => {
                let source = format!("{}=\"{}\"", label::PACKAGE_SOURCE, source(bench));
                let up = format!("{}{{{source}}} 1\n", Metric::SourceUp.name());
                // All packages are Applied and Current.
                let shown = |line: &&str| {
                    has_name(line, Metric::PackageHealthyRevision.name()) && !line.ends_with(" 0")
                };
                text.contains(&up) && text.lines().filter(shown).count() == packages
            }
            (Program::Peer, Bench::Joins | Bench::Central) => false,
            (Program::Peer, Bench::Packages) => count("gotk_resource_info") == packages,
            (Program::Peer, Bench::Resources) => [
                ("kube_configmap_info", resources::CONFIG_MAPS),
                ("kube_service_info", resources::SERVICES),
                ("kube_deployment_status_replicas", resources::DEPLOYMENTS),
            ]
            .iter()
            // Those in no inventory, too; and some are the API server's own.
            .all(|(metric, each)| count(metric) >= 2 * each * packages),
        }
    }
}

fn has_name(line: &str, metric: &str) -> bool {
    line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{'))
}

/// The source that reads the packages.
const fn source(bench: Bench) -> &'static str {
    match bench {
        Bench::Packages => SOURCE,
        Bench::Resources => "kpt-resourcegroup",
        Bench::Joins => joins::SOURCE,
        Bench::Central => central::SOURCE,
    }
}

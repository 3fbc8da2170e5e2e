//! Every server of the demo.

use crate::narrate::{self, say};
use crate::package::{NAME, Revision};
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The cluster of wave 1, then those of wave 2.
pub(crate) const CLUSTERS: [&str; 3] = ["eu-1", "eu-2", "us-1"];

/// Namespace of our own programs, wherever they run.
const NAMESPACE: &str = "statusbridge-system";

/// One workload cluster.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    exporter: Exporter,
    flux: KustomizeController,
}

/// All of it. Stopped when dropped.
pub(crate) struct World {
    pub(crate) hub: ApiServer,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) prometheus: Prometheus,
    artifacts: Flux,
    aggregator: Aggregator,
    sweeper: Sweeper,
    etcd: Etcd,
}

impl World {
    pub(crate) async fn start(rig: &Rig) -> Result<Self> {
        let started = Instant::now();
        let up = |what: &str| say(&format!("  [{:>2} s] {what}", started.elapsed().as_secs()));
        let etcd = Etcd::start(rig).await?;
        up("etcd");
        let start_hub = async {
            let hub = ApiServer::start(rig, &etcd, "hub").await?;
            hub.install_crds(&crds::own()?).await?;
            up("API server of the hub, with FleetPackage and RolloutGate");
            anyhow::Ok(hub)
        };
        let start_clusters = try_join_all(CLUSTERS.map(async |name| {
            let cluster =
                Cluster::start(rig, &etcd, name).await.with_context(|| format!("cluster {name}"))?;
            up(&format!("cluster {name}: API server, Flux's kustomize-controller, exporter"));
            anyhow::Ok(cluster)
        }));
        let (hub, clusters) = tokio::try_join!(start_hub, start_clusters)?;
        let prometheus = Prometheus::start(rig, &scrape_config(&clusters)).await?;
        up("Prometheus, which scrapes the three exporters");
        for file in ["aggregator.yaml", "sweeper.yaml"] {
            hub.ensure_namespace(NAMESPACE).await?;
            hub.apply(&std::fs::read_to_string(repository().join("deploy/rbac").join(file))?).await?;
        }
        let account = hub.kubeconfig_of_service_account(NAMESPACE, "statusbridge-aggregator").await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.namespace = hub::LEASES.to_owned();
        options.more.push("--serve-fleet".to_owned());
        let aggregator = Aggregator::start(rig, "aggregator", &account, &options).await?;
        let account = hub.kubeconfig_of_service_account(NAMESPACE, "statusbridge-sweeper").await?;
        let sweep = ["--heartbeat-timeout", "20s"];
        let sweeper = Sweeper::start(rig, "sweeper", &account, hub::LEASES, &sweep).await?;
        up("aggregator and sweeper");
        Ok(Self { hub, clusters, prometheus, artifacts: Flux::start().await?, aggregator, sweeper, etcd })
    }

    /// Comes to an end only when a server does, with what it said last: then waiting for anything else is in vain.
    pub(crate) async fn one_ends(&self) -> anyhow::Error {
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            look.tick().await;
            if let Err(ended) = self.processes().try_for_each(Process::ensure_running) {
                return ended;
            }
        }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let hub = [self.etcd.process(), self.hub.process(), self.prometheus.process()];
        let own = [self.aggregator.process(), self.sweeper.process()];
        let clusters = self
            .clusters
            .iter()
            .flat_map(|cluster| [cluster.api.process(), cluster.flux.process(), cluster.exporter.process()]);
        hub.into_iter().chain(own).chain(clusters)
    }

    /// The wanted revision arrives in a cluster's Flux, as after a push to its branch.
    pub(crate) async fn deliver(&self, cluster: &Cluster, revision: &Revision) -> Result<()> {
        let files = [("payments.yaml", revision.manifest.as_str())];
        self.artifacts.publish(&cluster.api, NAME, &revision.full(), &files).await?;
        // A failed health check is reported after `timeout` at the latest.
        let options = KustomizationOptions { timeout: "20s", ..KustomizationOptions::default() };
        self.artifacts.kustomize(&cluster.api, NAME, &options).await?;
        eventually(Duration::from_secs(60), &format!("Flux applies {revision}"), async || {
            let path = ["get", "deployment", NAME, "-o", "jsonpath={..image}"];
            let image = cluster.api.kubectl(&path).await?;
            ensure!(image == revision.image, "the Deployment runs {image}");
            Ok(())
        })
        .await
        .with_context(|| format!("in cluster {}", cluster.api.name()))
    }

    /// Runs kubectl in the hub, prints it, and gives back whether it succeeded and what it printed.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<Outcome> {
        kubectl(&self.hub, args).await
    }

    /// Prints the tables that answer how the rollout is going.
    pub(crate) async fn tables(&self) -> Result<()> {
        self.kubectl(&["get", "fleetpackages,rolloutgates"]).await?.expect_success()
    }

    pub(crate) fn print_addresses(&self) {
        say(&format!("\n  {:<12} {}", "etcd", self.etcd.url()));
        say(&format!("  {:<12} https://{}", "hub", self.hub.address()));
        for cluster in &self.clusters {
            let (api, exporter) = (&cluster.api, cluster.exporter.address());
            say(&format!(
                "  {:<12} https://{}   exporter http://{exporter}/metrics",
                api.name(),
                api.address()
            ));
        }
        say(&format!("  {:<12} {}", "Prometheus", self.prometheus.url()));
        say(&format!("  {:<12} http://{}/metrics", "aggregator", self.aggregator.address()));
        say(&format!("  {:<12} http://{}/ui/", "page", self.aggregator.address()));
        narrate::paragraph(&format!("  {:<12} {}", "logs", self.hub.process().rig().dir().display()));
    }

    pub(crate) fn print_how_to_look_around(&self) {
        self.print_addresses();
        let kubectl = program("kubectl").unwrap_or_else(|_| "kubectl".into());
        say("Look around with");
        say(&format!("  alias kubectl={}", kubectl.display()));
        for api in std::iter::once(&self.hub).chain(self.clusters.iter().map(|c| &c.api)) {
            say(&format!("  export KUBECONFIG={}   # {}", api.kubeconfig().display(), api.name()));
        }
        say(&format!("  curl -s '{}/api/v1/query?query=statusbridge_package_health'", self.prometheus.url()));
    }

    /// For a step that was not seen: what every object says now.
    pub(crate) async fn print_last_state(&self) {
        narrate::paragraph("\nThe last state:");
        let _ = self.kubectl(&["get", "fleetpackages,rolloutgates", "-o", "wide"]).await;
        for cluster in &self.clusters {
            let everything = "kustomizations.kustomize.toolkit.fluxcd.io,deployments";
            let _ = kubectl(&cluster.api, &["get", everything, "-A"]).await;
        }
        for process in [self.aggregator.process()]
            .into_iter()
            .chain(self.clusters.iter().map(|cluster| cluster.exporter.process()))
        {
            say(&format!("{} said last:", process.name()));
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            narrate::output(&lines[lines.len().saturating_sub(5)..].join("\n"));
        }
    }
}

impl Cluster {
    async fn start(rig: &Rig, etcd: &Etcd, name: &str) -> Result<Self> {
        let api = ApiServer::start(rig, etcd, name).await?;
        let flux = KustomizeController::start(rig, &api).await?;
        let account = exporter_account(&api).await?;
        let exporter = Exporter::start(rig, &format!("exporter-{name}"), &account, &[]).await?;
        Ok(Self { api, exporter, flux })
    }

    /// What the exporter's log says of the package's newest transition, without the fields that a story can spare.
    pub(crate) fn last_transition(&self) -> Result<String> {
        let log = self.exporter.process().log();
        let mut told = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let newest = told.rfind(|event| event["target"] == "transition" && event["package"] == NAME);
        let newest = newest.context("no transition is logged")?;
        let fields = ["package", "apply_state", "health", "reason", "message"];
        let shown = fields.map(|field| format!("{field}={}", newest[field]));
        Ok(shown.join(" "))
    }
}

/// A service account with the rights that `statusbridge source rbac` prints, and no others.
async fn exporter_account(api: &ApiServer) -> Result<PathBuf> {
    let account = "statusbridge-exporter";
    let printed = tokio::process::Command::new(own_program("statusbridge").await?)
        .args(["source", "rbac", "--name", account])
        .stdin(Stdio::null())
        .output()
        .await
        .context("running statusbridge source rbac")?;
    ensure!(printed.status.success(), "rbac: {}", String::from_utf8_lossy(&printed.stderr));
    api.apply(&String::from_utf8(printed.stdout).context("rbac")?).await?;
    api.apply_object(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }))
    .await?;
    api.kubeconfig_of_service_account(NAMESPACE, account).await
}

/// As in real pipelines: whoever scrapes says which cluster it is.
fn scrape_config(clusters: &[Cluster]) -> PrometheusConfig {
    let job = clusters.iter().fold(ScrapeJob::new("statusbridge"), |job, cluster| {
        job.target(cluster.exporter.address(), &[("cluster", cluster.api.name())])
    });
    PrometheusConfig::with_jobs([job])
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// How a command ended.
pub(crate) struct Outcome {
    success: bool,
    text: String,
}

impl Outcome {
    pub(crate) fn expect_success(&self) -> Result<()> {
        ensure!(self.success, "kubectl failed: {}", self.text.trim());
        Ok(())
    }

    /// It is to fail, and say `words`.
    pub(crate) fn expect_failure(&self, words: &str) -> Result<()> {
        ensure!(!self.success, "kubectl succeeded, where it has to fail: {}", self.text.trim());
        ensure!(self.text.contains(words), "kubectl failed with other words than {words:?}: {}", self.text);
        Ok(())
    }
}

/// Runs kubectl in view of the reader.
pub(crate) async fn kubectl(api: &ApiServer, args: &[&str]) -> Result<Outcome> {
    narrate::command(api.name(), args);
    let out = api.kubectl_output(args).await?;
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    // The client library's own chatter, such as that a watch was cancelled when `kubectl wait` had seen enough.
    let errors = errors.lines().filter(|line| !line.contains("reflector.go:"));
    let text =
        errors.fold(String::from_utf8_lossy(&out.stdout).into_owned(), |text, line| text + line + "\n");
    narrate::output(&text);
    Ok(Outcome { success: out.status.success(), text })
}

/// Where every server wrote what it did.
pub(crate) fn print_logs(rig: &Rig) {
    say("\nLogs:");
    let mut logs: Vec<PathBuf> = std::fs::read_dir(rig.dir())
        .map(|all| all.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    logs.retain(|path| path.extension().is_some_and(|e| e == "log"));
    logs.sort();
    logs.iter().for_each(|log| say(&format!("  {}", log.display())));
}

//! What stands in for the parts of a fleet that do not run here: nodes, source-controller, and how a Prometheus finds
//! exporters. Everything else is real: API servers, kustomize-controller, Prometheus, our own programs.

use super::pods::{account, aggregator_options, arguments, container, flags};
use super::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, Service};
use kube::api::{Api, ListParams};
use kube::core::GroupVersionKind;
use sha2::{Digest, Sha256};
use statusbridge_tests::{
    Aggregator, Exporter, FLUX_NAMESPACE, Flux, Prometheus, PrometheusConfig, Rig, Rollout, ScrapeJob,
    Sweeper, deployment_manifest,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// How a Prometheus learns of exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discovery {
    /// By the exporters' PodMonitors, as prometheus-operator does.
    PodMonitors,
    /// By the ConfigMap of a Prometheus in the hub, which names node ports.
    NodePorts,
}

/// All of them, for a hub and its clusters.
pub(super) struct StandIns<'a> {
    rig: &'a Rig,
    hub: &'a ApiServer,
    clusters: &'a [ApiServer],
    prometheus: &'a Prometheus,
    discovery: Discovery,
    flux: Flux,
    exporters: BTreeMap<String, Exporter>,
    aggregator: Option<Aggregator>,
    sweeper: Option<Sweeper>,
    /// What was made of each Deployment's generation.
    rolled_out: BTreeMap<String, (i64, Rollout)>,
    targets: BTreeMap<String, ScrapeJob>,
}

impl<'a> StandIns<'a> {
    pub(super) async fn new(
        rig: &'a Rig,
        hub: &'a ApiServer,
        clusters: &'a [ApiServer],
        prometheus: &'a Prometheus,
        discovery: Discovery,
    ) -> Result<Self> {
        Ok(Self {
            rig,
            hub,
            clusters,
            prometheus,
            discovery,
            flux: Flux::start().await?,
            exporters: BTreeMap::new(),
            aggregator: None,
            sweeper: None,
            rolled_out: BTreeMap::new(),
            targets: BTreeMap::new(),
        })
    }

    /// Looks for something to do until it is dropped.
    pub(super) async fn work(&mut self) -> Result<Infallible> {
        let mut look = tokio::time::interval(Duration::from_millis(200));
        loop {
            look.tick().await;
            for api in self.clusters {
                self.fetch_sources(api).await.context("as source-controller")?;
                self.run_pods(api).await.context("as a node")?;
            }
            self.run_pods(self.hub).await.context("as a node of the hub")?;
            self.discover().await.context("as Prometheus' discovery")?;
        }
    }

    /// Fetches each OCIRepository's artifact: a Deployment of the repository's name with an image of the tag.
    async fn fetch_sources(&self, api: &ApiServer) -> Result<()> {
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "OCIRepository");
        for source in api.dynamic(&kind, Some(FLUX_NAMESPACE)).await?.list(&ListParams::default()).await? {
            if source.data["status"]["observedGeneration"].as_i64() == source.metadata.generation {
                continue;
            }
            let name = source.metadata.name.context("no name")?;
            let tag = source.data["spec"]["ref"]["tag"].as_str().context("an OCIRepository without a tag")?;
            let digest: String = Sha256::digest(tag).iter().map(|byte| format!("{byte:02x}")).collect();
            let manifest = deployment_manifest(&name, &format!("registry.example.org/{name}:{tag}"));
            let files = [("deployment.yaml", manifest.as_str())];
            let revision = format!("{tag}@sha256:{digest}");
            self.flux.store(api, "OCIRepository", &name, &revision, &files).await?;
        }
        Ok(())
    }

    /// Runs new Deployments: our programs for real, of others only the status is written. Where a quota admits no pod,
    /// no new one comes up.
    async fn run_pods(&mut self, api: &ApiServer) -> Result<()> {
        for deployment in Api::<Deployment>::all(api.client()).list(&ListParams::default()).await? {
            let generation = deployment.metadata.generation.unwrap_or_default();
            let status = deployment.status.clone().unwrap_or_default();
            let is_available =
                status.available_replicas.unwrap_or_default() >= deployment.spec.replicas.unwrap_or(1);
            if is_available && status.observed_generation == Some(generation) {
                continue;
            }
            let (namespace, name) =
                (deployment.metadata.namespace.as_deref(), deployment.metadata.name.as_deref());
            let (namespace, name) = namespace.zip(name).context("a Deployment without a name")?;
            let quotas = Api::<ResourceQuota>::namespaced(api.client(), namespace);
            let is_full = quotas.list(&ListParams::default()).await?.items.into_iter().any(|quota| {
                let pods = quota.spec.and_then(|spec| spec.hard?.get("pods").cloned());
                pods.is_some_and(|pods| pods.0 == "0")
            });
            let rollout = if is_full { Rollout::Failed } else { Rollout::Ready };
            let key = format!("{}/{namespace}/{name}", api.name());
            if self.rolled_out.get(&key) == Some(&(generation, rollout)) {
                continue;
            }
            if rollout == Rollout::Ready {
                self.start(api, name, &serde_json::to_value(&deployment)?).await.context(key.clone())?;
            }
            Flux::set_deployment(api, namespace, name, rollout).await?;
            self.rolled_out.insert(key, (generation, rollout));
        }
        Ok(())
    }

    async fn start(&mut self, api: &ApiServer, name: &str, deployment: &Value) -> Result<()> {
        let container = container(deployment);
        match name {
            "statusbridge-exporter" if !self.exporters.contains_key(api.name()) => {
                let account = account(api, deployment).await?;
                let process = format!("exporter-{}", api.name());
                let exporter = Exporter::start(self.rig, &process, &account, &arguments(container)).await?;
                self.exporters.insert(api.name().to_owned(), exporter);
            }
            "statusbridge-aggregator" if self.aggregator.is_none() => {
                let options = aggregator_options(container, &self.prometheus.url()).await?;
                let account = account(api, deployment).await?;
                self.aggregator = Some(Aggregator::start(self.rig, "aggregator", &account, &options).await?);
            }
            "statusbridge-aggregator-sweeper" if self.sweeper.is_none() => {
                let flags = flags(container).await?;
                let leases = flags.iter().find(|(flag, _)| flag == "--lease-namespace");
                let leases = leases.context("no namespace of the Leases")?.1.clone();
                let more = flags.iter().filter(|(flag, _)| flag != "--lease-namespace");
                let more: Vec<&str> = more
                    .flat_map(|(flag, value)| [flag.as_str(), value])
                    .chain(arguments(container))
                    .collect();
                let account = account(api, deployment).await?;
                self.sweeper = Some(Sweeper::start(self.rig, "sweeper", &account, &leases, &more).await?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Has Prometheus scrape the exporters that it would find.
    async fn discover(&mut self) -> Result<()> {
        let found = match self.discovery {
            Discovery::PodMonitors => self.by_pod_monitors().await?,
            Discovery::NodePorts => self.by_node_ports().await?,
        };
        if found.keys().ne(self.targets.keys()) {
            self.prometheus.reload(&with_a_job_of_its_own(self.prometheus, found.values())).await?;
            self.targets = found;
        }
        Ok(())
    }

    /// With the labels that prometheus-operator gives by default, and the cluster's from the pipeline.
    async fn by_pod_monitors(&self) -> Result<BTreeMap<String, ScrapeJob>> {
        let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PodMonitor");
        let mut found = BTreeMap::new();
        for api in self.clusters {
            let Some(exporter) = self.exporters.get(api.name()) else { continue };
            let monitors = api.dynamic(&kind, Some(NAMESPACE)).await?;
            if monitors.get_opt("statusbridge-exporter").await?.is_some() {
                let job = ScrapeJob::new(&format!("{NAMESPACE}/statusbridge-exporter"));
                let labels = [("cluster", api.name()), ("namespace", NAMESPACE)];
                found.insert(api.name().to_owned(), job.target(exporter.address(), &labels));
            }
        }
        Ok(found)
    }

    /// With what the ConfigMap says; a node port leads to the exporter, as kube-proxy sees to.
    async fn by_node_ports(&self) -> Result<BTreeMap<String, ScrapeJob>> {
        let maps = Api::<ConfigMap>::namespaced(self.hub.client(), "monitoring");
        let Some(map) = maps.get_opt("prometheus").await? else { return Ok(BTreeMap::new()) };
        let config =
            map.data.and_then(|mut data| data.remove("prometheus.yml")).context("no prometheus.yml")?;
        let config = crds::documents(&config)?.pop().context("an empty configuration")?;
        let mut exporters = BTreeMap::new();
        for api in self.clusters {
            let services = Api::<Service>::namespaced(api.client(), NAMESPACE);
            let Some(service) = services.get_opt("statusbridge-exporter").await? else { continue };
            let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
            let node_port = ports.first().and_then(|port| port.node_port).context("no node port")?;
            if let Some(exporter) = self.exporters.get(api.name()) {
                exporters.insert((api.name().to_owned(), node_port.to_string()), exporter.address());
            }
        }
        let mut found = BTreeMap::new();
        for job in config["scrape_configs"].as_array().into_iter().flatten() {
            let name = job["job_name"].as_str().context("a job without a name")?;
            for target in job["static_configs"].as_array().into_iter().flatten() {
                let labels: BTreeMap<String, String> = serde_json::from_value(target["labels"].clone())?;
                let cluster = labels.get("cluster").context("a target without a cluster")?;
                let address = target["targets"][0].as_str().context("no target")?;
                let port = address.rsplit_once(':').context("a target without a port")?.1;
                let Some(exporter) = exporters.get(&(cluster.clone(), port.to_owned())) else { continue };
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                found.insert(cluster.clone(), ScrapeJob::new(name).target(exporter, &labels));
            }
        }
        Ok(found)
    }
}

/// A configuration with these jobs, and one that a cluster's pipeline has before any of our programs run.
pub(super) fn with_a_job_of_its_own<'a>(
    prometheus: &Prometheus,
    jobs: impl IntoIterator<Item = &'a ScrapeJob>,
) -> PrometheusConfig {
    let own = ScrapeJob::new("prometheus").target(prometheus.address(), &[("cluster", "eu-1")]);
    let mut merged = BTreeMap::from([(own.name.clone(), own)]);
    for job in jobs {
        let known = merged.entry(job.name.clone()).or_insert_with(|| ScrapeJob::new(&job.name));
        known.targets.extend(job.targets.iter().cloned());
    }
    PrometheusConfig::with_jobs(merged.into_values())
}

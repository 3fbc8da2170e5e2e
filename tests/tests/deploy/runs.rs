//! The programs work with exactly the rights and the arguments that the charts give them.

use super::pods::{aggregator_options, arguments, container, flags};
use super::*;
use statusbridge_tests::workload::kustomization_kind;
use statusbridge_tests::{
    Aggregator, Etcd, Exporter, Hub, Prometheus, PrometheusConfig, Rig, SOON, ScrapeJob, Workload,
    eventually, own_command, run,
};

const REVISION: &str = "main@sha1:1111111111111111111111111111111111111111";

/// Everything of the chart but CRDs, which are there.
async fn install(api: &ApiServer, chart: Chart, more: &[&str]) -> Result<Vec<Value>> {
    let objects = chart.render(NAMESPACE, more).await?;
    restricted_namespace(api, NAMESPACE).await?;
    for object in &objects {
        api.apply_object(object).await?;
    }
    api.aggregate_cluster_roles().await?;
    Ok(objects)
}

fn nothing_was_forbidden(what: &str, log: &str) -> Result<()> {
    let line = log.lines().find(|line| line.to_lowercase().contains("forbidden"));
    ensure!(line.is_none(), "{what}: {}", line.unwrap_or_default());
    Ok(())
}

/// The kubeconfig of the account that a Deployment names, which is among the objects.
async fn account(api: &ApiServer, objects: &[Value], deployment: &str) -> Result<PathBuf> {
    let deployment = the(objects, "Deployment", deployment)?;
    let account =
        deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().context("no account")?;
    the(objects, "ServiceAccount", account)?;
    pods::account(api, deployment).await
}

/// Whether the pod of `helm test` succeeds: its container is run here, with `more` for what this machine has elsewhere.
async fn helm_test(objects: &[Value], more: &[(&str, &str)], config: Option<&str>) -> Result<()> {
    let container = &the(objects, "Pod", "-test")?["spec"]["containers"][0];
    let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let args: Vec<String> = args
        .map(|arg| match config {
            Some(file) if arg.starts_with("--config=") => format!("--config={file}"),
            _ => arg.to_owned(),
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = own_command("statusbridge", &args).await?;
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
    }
    let out = command.envs(more.iter().copied()).output().await?;
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(out.status.success(), "{}", said.concat());
    Ok(())
}

async fn cluster(rig: &Rig, etcd: &Etcd) -> Result<Workload> {
    let api = ApiServer::start(rig, etcd, "c1").await?;
    for files in [crds::flux()?, crds::kudo()?] {
        api.install_crds(&files).await?;
    }
    api.ensure_namespace(statusbridge_tests::FLUX_NAMESPACE).await?;
    let objects = install(&api, Chart::Exporter, &[]).await?;
    let account = account(&api, &objects, "").await?;
    let arguments = arguments(container(the(&objects, "Deployment", "")?));
    let exporter = Exporter::start(rig, "exporter", &account, &arguments).await?;
    let map = the(&objects, "ConfigMap", "-test")?["data"]["config.yaml"].as_str().context("no config")?;
    let service = "statusbridge-exporter.statusbridge-system.svc:9477";
    ensure!(map.contains(service), "{map}");
    let config = rig.dir().join("helm-test.yaml");
    std::fs::write(&config, map.replace(service, &exporter.address().to_string()))?;
    eventually(SOON, "helm test of the exporter succeeds", async || {
        helm_test(&objects, &[], config.to_str()).await
    })
    .await?;
    Workload::of(api, exporter).await
}

#[tokio::test]
async fn from_a_package_to_a_gate_and_its_closing() {
    run("deploy-runs", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = cluster(rig, &etcd).await?;
        cluster.deliver("app", REVISION).await?;
        eventually(SOON, "the exporter reads what is installed", async || {
            let says = cluster.exporter.metrics().await?;
            for source in ["flux-helmrelease", "flux-kustomization", "kudo-instance"] {
                let up = format!("statusbridge_source_up{{package_source=\"{source}\"}} 1");
                ensure!(says.contains(&up), "{source} is not up:\n{says}");
            }
            cluster.shows("app").await.map(drop)
        })
        .await?;
        nothing_was_forbidden("the exporter", &cluster.exporter.process().log())?;
        // It has no rights beyond reading.
        let path = cluster.api.kubeconfig_of_service_account(NAMESPACE, "statusbridge-exporter").await?;
        let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
        let client = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let (kind, _) = kube::discovery::pinned_kind(&cluster.api.client(), &kustomization_kind()).await?;
        let exporters = kube::Api::<kube::api::DynamicObject>::namespaced_with(
            kube::Client::try_from(client)?,
            statusbridge_tests::FLUX_NAMESPACE,
            &kind,
        );
        ensure!(exporters.list(&Default::default()).await?.items.len() == 1, "it cannot read");
        ensure!(exporters.delete("app", &Default::default()).await.is_err(), "it can delete");

        // As prometheus-operator labels what it finds in a namespace.
        let labels = [("cluster", cluster.name()), ("namespace", NAMESPACE)];
        let job = ScrapeJob::new("statusbridge-exporter").target(cluster.exporter.address(), &labels);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;

        let api = ApiServer::start(rig, &etcd, "hub").await?;
        api.install_crds(&crds::cluster_inventory()?).await?;
        api.install_crds(&crds::own()?).await?;
        api.ensure_namespace("found").await?;
        let backend = format!("backend.url={}", prometheus.url());
        let fast =
            ["--set", "pollInterval=1s,settleDelay=1s,sweeper.heartbeatTimeout=5s,discover.into=found"];
        let objects = install(&api, Chart::Aggregator, &[&["--set", &backend], &fast[..]].concat()).await?;

        let container_of = container(the(&objects, "Deployment", "statusbridge-aggregator")?);
        let given = flags(container_of).await?;
        let has = |flag: &str, value: &str| given.iter().any(|(f, v)| f == flag && v == value);
        ensure!(has("--backend", &prometheus.url()), "another backend: {given:?}");
        ensure!(has("--poll-interval", "1s") && has("--settle-delay", "1s"), "another pace: {given:?}");
        let options = aggregator_options(container_of, &prometheus.url()).await?;
        let accounts = (
            account(&api, &objects, "statusbridge-aggregator").await?,
            account(&api, &objects, "statusbridge-aggregator-sweeper").await?,
        );
        let aggregator = Aggregator::start(rig, "aggregator", &accounts.0, &options).await?;
        let kubeconfig = [("STATUSBRIDGE_KUBECONFIG", accounts.0.to_str().unwrap())];
        eventually(SOON, "helm test of the aggregator succeeds", async || {
            helm_test(&objects, &kubeconfig, None).await
        })
        .await?;
        let hub = Hub::of(api, aggregator, accounts.0, accounts.1).await?;

        hub.report("app", "10s", json!({"detail": "All", "revision": REVISION})).await?;
        hub.gate("wave", "app", REVISION, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave", SOON).await?;
        hub.reports("app", "Ready", "True", "Healthy", SOON).await?;
        // A selector, and reports that make themselves.
        hub.gate("some", "app", REVISION, json!({"clusters": {"selector": {}}})).await?;
        hub.closes("some", "NoTargets", SOON).await?;
        eventually(SOON, "a FleetPackage was made", async || {
            let found =
                hub.api.dynamic(&statusbridge_tests::hub::kind("FleetPackage"), Some("found")).await?;
            ensure!(!found.list(&Default::default()).await?.items.is_empty(), "none yet");
            Ok(())
        })
        .await?;
        nothing_was_forbidden("the aggregator", &hub.aggregator.process().log())?;

        let sweeping = container(the(&objects, "Deployment", "statusbridge-aggregator-sweeper")?);
        let timeout = flags(sweeping).await?.into_iter().find(|(flag, _)| flag == "--heartbeat-timeout");
        let sweeper = hub.start_sweeper(rig, &timeout.context("no timeout for the heartbeat")?.1).await?;
        hub.aggregator.process().kill();
        hub.closes("wave", "AggregatorSilent", SOON).await?;
        nothing_was_forbidden("the sweeper", &sweeper.process().log())
    })
    .await;
}

/// Status of an answer to a scrape.
async fn scrape(exporter: &Exporter, token: Option<&str>) -> Result<u16> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut request = http.get(format!("http://{}/metrics", exporter.address()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn scrapes_are_for_those_whom_the_values_name() {
    run("deploy-scrapes", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        let set = "authorizeScrapes=true,scrapers[0].name=prometheus,scrapers[0].namespace=monitoring,presets={flux-kustomization}";
        let objects = install(&api, Chart::Exporter, &["--set", set]).await?;
        let arguments = arguments(container(the(&objects, "Deployment", "")?));
        let account = account(&api, &objects, "").await?;
        let exporter = Exporter::start(rig, "exporter", &account, &arguments).await?;
        let named = api.token_of_service_account("monitoring", "prometheus", &[]).await?;
        let other = api.token_of_service_account("monitoring", "other", &[]).await?;
        eventually(SOON, "the one who is named gets metrics", async || {
            let status = scrape(&exporter, Some(&named)).await?;
            ensure!(status == 200, "{status}");
            Ok(())
        })
        .await?;
        assert_eq!(scrape(&exporter, Some(&other)).await?, 403);
        assert_eq!(scrape(&exporter, None).await?, 401);
        Ok(())
    })
    .await;
}

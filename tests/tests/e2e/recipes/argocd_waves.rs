//! The recipes `argocd-waves-*` with what they are for: a real Argo CD that delivers from git, and gates that the aggregator
//! judges by what exporters read of its Applications.

use super::{edited, file, pod, recipe, wait_role};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

const PACKAGE: &str = "payments";
/// The commit that the recipes name.
pub(super) const COMMIT: &str = "4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";
/// Whatever stands so long is not about to change.
const STILL: Duration = Duration::from_secs(30);

/// Content of the package at a version.
pub(super) fn content(version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PACKAGE, "namespace": "default"},
        "data": {"version": version},
    })
}

/// The same, as no API server takes it.
pub(super) fn refused(version: &str) -> Value {
    let mut content = content(version);
    content["metadata"]["labels"] = json!({"no name of a label": ""});
    content
}

/// What a cluster runs, if anything.
pub(super) async fn runs(cluster: &ApiServer) -> Result<Option<String>> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    Ok(maps.get_opt(PACKAGE).await?.and_then(|map| map.data?.remove("version")))
}

/// Fails unless the clusters run these versions.
pub(super) async fn run_now(clusters: &[&ApiServer], versions: [&str; 2]) -> Result<()> {
    let found = try_join_all(clusters.iter().map(|cluster| runs(cluster))).await?;
    ensure!(found.iter().map(Option::as_deref).eq(versions.map(Some)), "the clusters run {found:?}");
    Ok(())
}

/// Waits until the clusters run these versions.
pub(super) async fn come_to_run(clusters: &[&ApiServer], versions: [&str; 2]) -> Result<()> {
    eventually(SOON, &format!("the clusters run {versions:?}"), async || run_now(clusters, versions).await)
        .await
}

/// The last operation of an Application.
async fn operation(api: &ApiServer, application: &str) -> Result<Value> {
    Ok(ArgoCd::application(api, application).await?.data["status"]["operationState"].clone())
}

/// Waits until the sync of an Application waits for the health of an object.
async fn waits_in_sync(api: &ApiServer, application: &str, object: &str) -> Result<()> {
    eventually(SOON, &format!("{application} waits for {object}"), async || {
        let operation = operation(api, application).await?;
        let message = operation["message"].as_str().unwrap_or_default();
        ensure!(operation["phase"] == "Running" && message.contains(object), "{operation}");
        Ok(())
    })
    .await
}

/// Repositories of the package and of the fleet.
pub(super) struct Repositories {
    payments: GitRepository,
    fleet: GitRepository,
}

impl Repositories {
    async fn start(rig: &Rig) -> Result<Self> {
        let (payments, fleet) =
            tokio::try_join!(GitRepository::start(rig, "payments"), GitRepository::start(rig, "fleet"))?;
        Ok(Self { payments, fleet })
    }

    /// Commits content of the package, and gives back the commit.
    pub(super) async fn publish(&self, content: &Value) -> Result<String> {
        self.payments.commit(&[("app/app.json", &content.to_string())]).await
    }

    /// The objects of a recipe, about a commit in these repositories and with shorter times.
    pub(super) fn objects(&self, name: &str, commit: &str) -> Result<Vec<Value>> {
        let (payments, fleet) = (self.payments.url(), self.fleet.url());
        let words = [
            (COMMIT, commit),
            ("https://git.example.com/payments.git", &payments),
            ("https://git.example.com/fleet.git", &fleet),
            ("\"10m\"", "\"2s\""),
            ("\"10s\"", "\"1s\""),
            ("\"3m\"", "\"5s\""),
        ];
        edited(name, &words)
    }

    /// Commits objects to the fleet's repository, a file each in a directory.
    async fn commit(&self, directory: &str, objects: &[Value]) -> Result<()> {
        let files: Vec<(String, String)> = objects
            .iter()
            .enumerate()
            .map(|(number, object)| (format!("{directory}/{number}.json"), object.to_string()))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.fleet.commit(&files).await.map(drop)
    }
}

/// A hub whose Argo CD delivers to two clusters, beside an exporter.
pub(super) struct Central {
    pub(super) repositories: Repositories,
    clusters: [ApiServer; 2],
    pub(super) hub: Hub,
    _argo_cd: ArgoCd,
    pub(super) exporter: Exporter,
    pub(super) prometheus: Prometheus,
    _etcd: Etcd,
}

impl Central {
    async fn start(rig: &Rig) -> Result<Self> {
        let believes = |options: AggregatorOptions| {
            options.believing(rig.dir(), "argocd-application", &[("hub", "eu-*")])
        };
        Self::start_with(rig, believes).await
    }

    /// The same with other options of the aggregator, which have to believe the exporter.
    pub(super) async fn start_with(
        rig: &Rig,
        change: impl FnOnce(AggregatorOptions) -> Result<AggregatorOptions>,
    ) -> Result<Self> {
        let repositories = Repositories::start(rig).await?;
        let etcd = Etcd::start(rig).await?;
        let (eu_1, eu_2) =
            tokio::try_join!(ApiServer::start(rig, &etcd, "eu-1"), ApiServer::start(rig, &etcd, "eu-2"))?;
        let clusters = [eu_1, eu_2];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job()])).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s"].map(str::to_owned).into();
        let hub = Hub::start_with(rig, &etcd, change(options)?).await?;
        hub.api.ensure_namespace("fleet").await?;
        let scripts = recipe("argocd-cm.yaml")?.pop().context("no ConfigMap")?;
        let argo_cd = ArgoCd::start(rig, &hub.api, &scripts).await?;
        for cluster in &clusters {
            ArgoCd::register(&hub.api, cluster).await?;
        }
        let presets = ["--presets", "argocd-application"];
        let exporter = Exporter::start(rig, "exporter-hub", hub.api.kubeconfig(), &presets).await?;
        let job = job().target(exporter.address(), &[("cluster", "hub")]);
        prometheus.reload(&PrometheusConfig::with_jobs([job])).await?;
        Ok(Self { repositories, clusters, hub, _argo_cd: argo_cd, exporter, prometheus, _etcd: etcd })
    }

    pub(super) fn clusters(&self) -> [&ApiServer; 2] {
        self.clusters.each_ref()
    }
}

/// An Application for a cluster, at a commit.
fn application(repositories: &Repositories, cluster: &str, commit: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": format!("{cluster}-{PACKAGE}"), "namespace": "argocd",
            "labels": {"statusbridge.dev/package": PACKAGE},
        },
        "spec": {
            "project": "default",
            "source": {"repoURL": repositories.payments.url(), "path": "app", "targetRevision": commit},
            "destination": {"name": cluster, "namespace": "default"},
            "syncPolicy": {"automated": {"prune": true, "selfHeal": true}},
        },
    })
}

/// Argo CD calls an Application healthy that still is at the commit before (argo-cd #29410). The gates do not.
#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn gates_over_the_clusters_of_one_argo_cd_open_one_after_the_other() {
    run("e2e-recipes-argocd-central", async |rig| {
        let central = Central::start(rig).await?;
        let (hub, repositories) = (&central.hub, &central.repositories);
        let commits = async |version: &str| repositories.publish(&content(version)).await;
        let moves = async |cluster: &str, commit: &str| {
            hub.api.apply_object(&application(repositories, cluster, commit)).await.map(drop)
        };
        let wants = async |commit: &str| -> Result<()> {
            let package = json!({"source": "argocd-application", "namespace": "argocd", "name": PACKAGE});
            let all = json!({"names": ["eu-1", "eu-2"]});
            hub.report(
                PACKAGE,
                STALE_AFTER,
                json!({"package": package, "revision": commit, "clusters": all, "detail": "All"}),
            )
            .await?;
            for (gate, clusters) in
                [("eu-1", json!(["eu-1"])), ("eu-2", json!(["eu-2"])), ("all", json!(["eu-1", "eu-2"]))]
            {
                hub.gate(gate, PACKAGE, commit, json!({"clusters": {"names": clusters}})).await?;
            }
            Ok(())
        };
        let is_open = async |gate: &str| -> Result<bool> {
            let gate = hub.get_gate(gate).await?;
            let conditions = gate.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            Ok(conditions.iter().any(|it| it["type"] == "Open" && it["status"] == "True"))
        };
        let v1 = commits("v1").await?;
        for cluster in ["eu-1", "eu-2"] {
            moves(cluster, &v1).await?;
        }
        wants(&v1).await?;
        for gate in ["eu-1", "eu-2", "all"] {
            hub.opens(gate, SOON).await?;
        }
        eventually(SOON, "each row names who reports it", async || {
            let slices = hub.api.kubectl(&["get", "fleetpackageslices", "-A", "-o", "json"]).await?;
            let slices: Value = serde_json::from_str(&slices)?;
            let rows = slices["items"][0]["clusters"].as_array().context("no rows")?;
            ensure!(rows.len() == 2 && rows.iter().all(|row| row["reportedBy"] == "hub"), "{rows:?}");
            Ok(())
        })
        .await?;

        let v2 = commits("v2").await?;
        wants(&v2).await?;
        for gate in ["eu-1", "eu-2", "all"] {
            hub.closes(gate, "RevisionNeverSeen", SOON).await?;
        }
        let health =
            ArgoCd::application(&hub.api, "eu-1-payments").await?.data["status"]["health"]["status"].clone();
        ensure!(health == "Healthy", "Argo CD says {health}");
        moves("eu-1", &v2).await?;
        hub.opens("eu-1", SOON).await?;
        run_now(&central.clusters(), ["v2", "v1"]).await?;
        ensure!(!is_open("eu-2").await? && !is_open("all").await?, "open for a cluster that has not moved");
        moves("eu-2", &v2).await?;
        hub.opens("all", SOON).await?;

        // Nobody speaks for the clusters any more.
        central.exporter.process().kill();
        for gate in ["eu-1", "eu-2", "all"] {
            hub.closes(gate, "Stale", SOON).await?;
        }
        central.exporter.process().start()?;
        hub.opens("all", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn an_app_of_apps_goes_on_to_the_second_wave_once_the_gate_of_the_first_is_open() {
    run("e2e-recipes-argocd-hub", async |rig| {
        let central = Central::start(rig).await?;
        let (hub, repositories) = (&central.hub, &central.repositories);
        let rolls_out = async |content: Value| -> Result<()> {
            let commit = repositories.publish(&content).await?;
            let objects = repositories.objects("argocd-waves-hub.yaml", &commit)?;
            let (root, rest) = objects.split_first().context("an empty recipe")?;
            repositories.commit("rollout", rest).await?;
            hub.api.apply_object(root).await.map(drop)
        };
        rolls_out(content("v1")).await?;
        come_to_run(&central.clusters(), ["v1", "v1"]).await?;

        // The bridge is dead, and the gate's last word was that it is open.
        hub.aggregator.process().kill();
        rolls_out(content("v2")).await?;
        waits_in_sync(&hub.api, "rollout", "RolloutGate/payments-eu-1").await?;
        run_now(&central.clusters(), ["v2", "v1"]).await?;
        hub.aggregator.process().start()?;
        come_to_run(&central.clusters(), ["v2", "v2"]).await?;

        // The first wave refuses a revision: the sync fails, and takes the next commit by itself.
        rolls_out(refused("v3")).await?;
        eventually(SOON, "the sync is tried again", async || {
            let operation = operation(&hub.api, "rollout").await?;
            ensure!(operation["retryCount"].as_u64() > Some(0), "{operation}");
            Ok(())
        })
        .await?;
        run_now(&central.clusters(), ["v2", "v2"]).await?;
        rolls_out(content("v4")).await?;
        come_to_run(&central.clusters(), ["v4", "v4"]).await
    })
    .await;
}

/// What RollingSync makes of an Application of the set: its step's state.
async fn step(hub: &Hub, application: &str) -> Result<String> {
    let set = hub.api.kubectl(&["get", "applicationset", PACKAGE, "-n", "argocd", "-o", "json"]).await?;
    let set: Value = serde_json::from_str(&set)?;
    let all = set["status"]["applicationStatus"].as_array().context("no status")?;
    let one = all.iter().find(|one| one["application"] == application).context("no such Application")?;
    Ok(one["status"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn a_rolling_sync_takes_the_step_behind_a_gate_once_that_is_open() {
    run("e2e-recipes-argocd-rolling", async |rig| {
        let central = Central::start(rig).await?;
        let (hub, repositories) = (&central.hub, &central.repositories);
        let gate = std::fs::read_to_string(file("argocd-waves-gate.jsonnet"))?.replace("10m", "2s");
        let rolls_out = async |content: Value| -> Result<()> {
            let content = content.to_string();
            let files = [("app/app.json", &*content), ("gates/wave-1.jsonnet", &*gate)];
            let commit = repositories.payments.commit(&files).await?;
            for object in repositories.objects("argocd-waves-rollingsync.yaml", &commit)? {
                hub.api.apply_object(&object).await?;
            }
            Ok(())
        };
        rolls_out(content("v1")).await?;
        come_to_run(&central.clusters(), ["v1", "v1"]).await?;

        // The bridge is dead, and the gate's last word was that it is open. RollingSync passes an Application that Argo CD has not
        // compared with the new revision yet (docs/gating.md): on a busy machine that may be the gate's.
        hub.aggregator.process().kill();
        let is_held = async |version: &str| {
            let pending = Cell::new(None);
            eventually(SOON, &format!("{version} waits for the gate, or has passed it"), async || {
                let (gate, last) = (step(hub, "payments-gate").await?, step(hub, "payments-eu-2").await?);
                let [_, second] = central.clusters();
                let has_passed = runs(second).await?.as_deref() == Some(version);
                // It may have called up the next step before it saw the gate progressing, and leave that alone from then on.
                let since = (last == "Pending").then(|| pending.get().unwrap_or_else(Instant::now));
                pending.set(since);
                let is_left_alone = since.is_some_and(|since| since.elapsed() > STILL);
                let waits = gate == "Progressing" && (last == "Waiting" || is_left_alone);
                ensure!(has_passed || waits, "{gate}, {last}");
                Ok(!has_passed)
            })
            .await
        };
        let (mut before, mut held) = ("v1", None);
        for version in ["v2-a", "v2-b", "v2-c"] {
            rolls_out(content(version)).await?;
            if is_held(version).await? {
                held = Some(version);
                break;
            }
            before = version;
        }
        let version = held.context("RollingSync has passed the gate three times")?;
        come_to_run(&central.clusters(), [version, before]).await?;
        hub.aggregator.process().start()?;
        come_to_run(&central.clusters(), [version, version]).await?;

        // The first wave refuses a revision: its own step does not end.
        rolls_out(refused("v3")).await?;
        eventually(SOON, "the first wave tries", async || {
            let first = step(hub, "payments-eu-1").await?;
            ensure!(["Pending", "Progressing"].contains(&&*first), "{first}");
            Ok(())
        })
        .await?;
        run_now(&central.clusters(), [version, version]).await?;
        rolls_out(content("v4")).await?;
        come_to_run(&central.clusters(), ["v4", "v4"]).await
    })
    .await;
}

/// Does for the Jobs of a cluster what its kubelet and its controllers would: runs their pods, and lets go what is deleted.
async fn keeps_jobs(cluster: &ApiServer, hub_account: &str) -> Result<()> {
    let jobs = Api::<Job>::namespaced(cluster.client(), "argocd");
    loop {
        let job = eventually(SOON * 4, "there is a Job to do", async || {
            let ended = |job: &Job| job.status.as_ref().is_some_and(|status| status.conditions.is_some());
            let to_do = |job: &Job| job.metadata.deletion_timestamp.is_some() || !ended(job);
            jobs.list(&ListParams::default()).await?.into_iter().find(to_do).context("none")
        })
        .await?;
        let name = job.metadata.name.as_deref().context("a Job without a name")?;
        // By the next moment Argo CD may have removed it.
        if job.metadata.deletion_timestamp.is_some() {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = jobs.patch(name, &PatchParams::default(), &free).await;
            continue;
        }
        let container = &serde_json::to_value(&job)?["spec"]["template"]["spec"]["containers"][0];
        let container = pod::with(container, &[("/hub/kubeconfig", hub_account), ("1h", "15s")])?;
        let ended = pod::run_container(&container, Path::new("/nowhere/kubeconfig")).await?;
        let _ = pod::ends(&jobs, name, &ended).await;
    }
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn a_cluster_syncs_once_the_job_before_has_seen_the_gate_of_the_wave_before_open() {
    run("e2e-recipes-argocd-cluster", async |rig| {
        let repositories = Repositories::start(rig).await?;
        let world = World::start(rig, &["eu-1", "eu-2"], &["--presets", "argocd-application"]).await?;
        let hub = &world.hub;
        hub.api.ensure_namespace("fleet").await?;
        wait_role(&hub.api).await?;
        let account = hub.api.kubeconfig_of_service_account("fleet", "rollout").await?;
        let group = "rbac.authorization.k8s.io";
        hub.api
            .apply_object(&json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
                "metadata": {"name": "rollout", "namespace": "fleet"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "statusbridge-wait"},
                "subjects": [{"kind": "ServiceAccount", "name": "rollout", "namespace": "fleet"}],
            }))
            .await?;
        let scripts = recipe("argocd-cm.yaml")?.pop().context("no ConfigMap")?;
        let clusters: Vec<&ApiServer> = world.clusters.iter().map(|cluster| &cluster.api).collect();
        let _argo_cds =
            try_join_all(clusters.iter().map(|cluster| ArgoCd::start(rig, cluster, &scripts))).await?;

        let rolls_out = async |content: Value| -> Result<()> {
            let commit = repositories.publish(&content).await?;
            for mut object in recipe("flux-waves-hub.yaml")? {
                let spec = &mut object["spec"];
                spec["revision"] = json!(commit);
                if object["kind"] == "FleetPackage" {
                    object["spec"]["package"] =
                        json!({"source": "argocd-application", "namespace": "argocd", "name": PACKAGE});
                } else if object["metadata"]["name"] == "payments-wave-1" {
                    object["spec"]["minSuccessTime"] = json!("2s");
                }
                hub.api.apply_object(&object).await?;
            }
            let objects = repositories.objects("argocd-waves-cluster.yaml", &commit)?;
            let [root, job, application] = &objects[..] else { anyhow::bail!("{objects:?}") };
            repositories.commit("wave-1", std::slice::from_ref(application)).await?;
            repositories.commit("wave-2", &[job.clone(), application.clone()]).await?;
            for (cluster, wave) in clusters.iter().zip(["wave-1", "wave-2"]) {
                let mut root = root.clone();
                root["spec"]["source"]["path"] = json!(wave);
                cluster.apply_object(&root).await?;
            }
            Ok(())
        };
        let account = account.to_str().context("where the kubeconfig is")?;
        let second = clusters.last().context("no cluster")?;
        let rollouts = async {
            rolls_out(content("v1")).await?;
            come_to_run(&clusters, ["v1", "v1"]).await?;

            // The bridge is dead: the Job fails when its time is over, and with it the sync.
            hub.aggregator.process().kill();
            rolls_out(content("v2")).await?;
            eventually(SOON, "the sync is tried again", async || {
                let operation = operation(second, "rollout").await?;
                ensure!(operation["retryCount"].as_u64() > Some(0), "{operation}");
                Ok(())
            })
            .await?;
            run_now(&clusters, ["v2", "v1"]).await?;
            hub.aggregator.process().start()?;
            come_to_run(&clusters, ["v2", "v2"]).await?;

            // The first wave refuses a revision: the Job fails at once, and the next commit is taken.
            rolls_out(refused("v3")).await?;
            eventually(SOON, "the sync is tried again", async || {
                let operation = operation(second, "rollout").await?;
                ensure!(operation["retryCount"].as_u64() > Some(0), "{operation}");
                Ok(())
            })
            .await?;
            run_now(&clusters, ["v2", "v2"]).await?;
            rolls_out(content("v4")).await?;
            come_to_run(&clusters, ["v4", "v4"]).await
        };
        tokio::select! {
            ended = rollouts => ended,
            ended = keeps_jobs(second, account) => ended,
        }
    })
    .await;
}

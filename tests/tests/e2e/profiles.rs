//! Clusters that are chosen by the labels of their ClusterProfiles.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_aggregator::hub::profiles::watch;
use statusbridge_api::LabelSelector;
use statusbridge_core::decide::Membership;
use statusbridge_core::reconcile::profiles::{News, Profiles, Settings};
use statusbridge_tests::*;
use std::time::Duration;

/// Namespace of the profiles that count.
const INVENTORY: &str = "inventory";
const PROPERTY: &str = "cluster.clusterset.k8s.io";

pub(crate) fn profile_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile")
}

/// Makes or changes a profile.
pub(crate) async fn profile(api: &ApiServer, namespace: &str, name: &str, labels: Value) -> Result<()> {
    api.apply_object(&json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"clusterManager": {"name": "tests"}, "displayName": name},
    }))
    .await
    .map(drop)
}

/// Says what a profile's cluster is called and, if not healthy, why.
async fn describe(api: &ApiServer, name: &str, cluster: &str, unhealthy: Option<&str>) -> Result<()> {
    let status = json!({
        "properties": [{"name": PROPERTY, "value": cluster}],
        "conditions": [{
            "type": "ControlPlaneHealthy", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "status": if unhealthy.is_some() { "False" } else { "True" },
            "reason": unhealthy.unwrap_or("AsExpected"),
        }],
    });
    let patch = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"namespace": INVENTORY, "name": name}, "status": status,
    });
    let profiles = api.dynamic(&profile_kind(), Some(INVENTORY)).await?;
    let params = PatchParams::apply("inventory").force();
    profiles.patch_status(name, &params, &Patch::Apply(&patch)).await?;
    Ok(())
}

/// Makes a profile in production that stands for a cluster.
async fn joins(api: &ApiServer, name: &str, cluster: &str) -> Result<()> {
    profile(api, INVENTORY, name, json!({"env": "prod"})).await?;
    describe(api, name, cluster, None).await
}

fn production() -> Value {
    json!({"clusters": {"selector": {"matchLabels": {"env": "prod"}}}})
}

async fn prometheus_of(rig: &Rig, fleet: &FakeFleet, names: &[&str]) -> Result<Prometheus> {
    let job = names.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
    Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await
}

async fn hub_with(rig: &Rig, etcd: &Etcd, backend: &str, poll_interval: Duration) -> Result<Hub> {
    let config = rig.dir().join("config.yaml");
    let text =
        format!("clusterProfiles: {{namespace: {INVENTORY}, clusterName: {{property: {PROPERTY}}}}}\n");
    std::fs::write(&config, text)?;
    let mut options = AggregatorOptions::new(backend);
    options.poll_interval = poll_interval;
    options.more = vec!["--config".to_owned(), config.display().to_string()];
    Hub::start_with(rig, etcd, options).await
}

/// Waits until a gate waits for this, in these words.
async fn waits(hub: &Hub, gate: &str, reason: &str, words: &str) -> Result<()> {
    eventually(SOON, &format!("gate {gate} waits for {reason}: {words}"), async || {
        let gate = hub.get_gate(gate).await?;
        ensure!(history::condition(&gate, "Open") == ("False", reason), "{}", gate.data["status"]);
        ensure!(waiting(&gate).contains(words), "{}", waiting(&gate));
        Ok(())
    })
    .await
}

async fn opens_with(hub: &Hub, gate: &str, healthy: &str) -> Result<()> {
    eventually(SOON, &format!("gate {gate} is open with {healthy}"), async || {
        let gate = hub.get_gate(gate).await?;
        ensure!(history::condition(&gate, "Open").0 == "True", "{}", gate.data["status"]);
        ensure!(gate.data["status"]["healthy"] == healthy, "{}", gate.data["status"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn labels_of_profiles_say_which_clusters_count() {
    run("e2e-profiles", async |rig| {
        let fleet = FakeFleet::start().await?;
        for name in ["c0", "c1", "c2"] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(1)));
        }
        let prometheus = prometheus_of(rig, &fleet, &["c0", "c1", "c2", "c3"]).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = hub_with(rig, &etcd, &prometheus.url(), Duration::from_secs(1)).await?;
        let mut spec = production();
        spec["revision"] = json!(revision(1));
        hub.report(APP, STALE_AFTER, spec).await?;
        let history = hub.history("prod").await?;
        hub.gate("prod", APP, &revision(1), production()).await?;
        let named = json!({"clusters": {"names": ["c1"]}});
        hub.gate("named", APP, &revision(1), named).await?;

        // The kind is not installed: nothing can be selected, and nothing else is harmed.
        waits(&hub, "prod", "ClusterProfilesUnavailable", "does not serve ClusterProfiles").await?;
        hub.reports(APP, "Ready", "False", "ClusterProfilesUnavailable", SOON).await?;
        hub.opens("named", SOON).await?;

        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        hub.api.ensure_namespace(INVENTORY).await?;
        waits(&hub, "prod", "NoTargets", "the selector selects no cluster").await?;
        history.check("nobody has joined yet", closed).await?;
        // One of another namespace counts for nobody.
        profile(&hub.api, "default", "elsewhere", json!({"env": "prod"})).await?;
        profile(&hub.api, INVENTORY, "two", json!({"env": "dev"})).await?;
        describe(&hub.api, "two", "c2", None).await?;
        joins(&hub.api, "zero", "c0").await?;
        joins(&hub.api, "one", "c1").await?;
        opens_with(&hub, "prod", "2/2").await?;
        hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;

        // One that joins is a target before anybody knows what it is called, and though it never reported.
        profile(&hub.api, INVENTORY, "three", json!({"env": "prod"})).await?;
        waits(&hub, "prod", "Missing", &format!("its ClusterProfile has no property {PROPERTY}")).await?;
        describe(&hub.api, "three", "c3", None).await?;
        waits(&hub, "prod", "Missing", "1 cluster does not report the package: c3").await?;
        let report = hub.reports(APP, "Ready", "False", "Missing", SOON).await?;
        ensure!(report.data["status"]["clusters"]["total"] == 3, "{}", report.data["status"]);
        fleet.says("c3", APP, FakePackage::healthy_at(&revision(1)));
        opens_with(&hub, "prod", "3/3").await?;
        // It leaves, and another gets the label.
        profile(&hub.api, INVENTORY, "three", json!({"env": "retired"})).await?;
        opens_with(&hub, "prod", "2/2").await?;
        profile(&hub.api, INVENTORY, "two", json!({"env": "prod"})).await?;
        opens_with(&hub, "prod", "3/3").await?;

        // Two profiles for one cluster: whose word is it?
        profile(&hub.api, INVENTORY, "again", json!({"env": "dev"})).await?;
        describe(&hub.api, "again", "c0", None).await?;
        let both = "2 ClusterProfiles stand for this cluster: inventory/again and inventory/zero";
        waits(&hub, "prod", "Conflict", both).await?;
        let profiles = hub.api.dynamic(&profile_kind(), Some(INVENTORY)).await?;
        profiles.delete("again", &DeleteParams::default()).await?;
        opens_with(&hub, "prod", "3/3").await?;

        // A cluster that falls silent, and what its profile has to say about that.
        fleet.is_silent("c1");
        describe(&hub.api, "one", "c1", Some("LeaseExpired")).await?;
        waits(&hub, "prod", "Stale", "c1 (control plane not healthy: LeaseExpired)").await?;
        // The same of a cluster that is chosen by name.
        waits(&hub, "named", "Stale", "c1 (control plane not healthy: LeaseExpired)").await?;
        let report = hub.reports(APP, "Ready", "False", "Stale", SOON).await?;
        let problem = &report.data["status"]["problems"][0];
        ensure!(problem["reason"] == "ControlPlaneUnhealthy" && problem["state"] == "Stale", "{problem}");

        fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
        opens_with(&hub, "prod", "3/3").await?;
        // The kind goes away.
        let crd = "customresourcedefinitions.apiextensions.k8s.io/clusterprofiles.multicluster.x-k8s.io";
        hub.api.kubectl(&["delete", crd, "--wait=false"]).await?;
        waits(&hub, "prod", "ClusterProfilesUnavailable", "does not serve ClusterProfiles").await?;
        hub.aggregator.process().ensure_running()
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_joins_closes_an_open_gate_before_the_next_poll() {
    run("e2e-profiles-at-once", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c0", APP, FakePackage::healthy_at(&revision(1)));
        let prometheus = prometheus_of(rig, &fleet, &["c0"]).await?;
        let scraped = async || {
            let found = prometheus.query("statusbridge_digest offset 2s").await?;
            ensure!(!found.is_empty(), "nothing was scraped yet");
            Ok(())
        };
        eventually(SOON, "the cluster was scraped", scraped).await?;
        let etcd = Etcd::start(rig).await?;
        // The first poll comes at once, the second is far away: what happens now comes from watches.
        let hub = hub_with(rig, &etcd, &prometheus.url(), Duration::from_secs(3600)).await?;
        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        hub.api.ensure_namespace(INVENTORY).await?;
        hub.report(APP, "30m", json!({})).await?;
        hub.gate("prod", APP, &revision(1), production()).await?;
        waits(&hub, "prod", "NoTargets", "the selector selects no cluster").await?;
        joins(&hub.api, "zero", "c0").await?;
        opens_with(&hub, "prod", "1/1").await?;
        joins(&hub.api, "one", "c1").await?;
        hub.closes("prod", "Missing", SOON).await.context("after a cluster joined")?;
        Ok(())
    })
    .await;
}

/// Takes in what is heard until it has come to this.
async fn hear(
    news: &mut (impl Stream<Item = News> + Unpin),
    profiles: &mut Profiles,
    what: &str,
    until: impl Fn(&Profiles) -> bool,
) -> Result<()> {
    let heard = async {
        while !until(profiles) {
            let news = news.next().await.context("the stream ended")?;
            profiles.apply([news], 0.0);
        }
        anyhow::Ok(())
    };
    let heard = tokio::time::timeout(SOON, heard).await;
    heard.with_context(|| format!("not heard: {what}; {:?}", profiles.membership()))?
}

#[tokio::test]
async fn profiles_are_followed_whatever_becomes_of_their_api() {
    run("e2e-profiles-api", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let settings = Settings::default();
        let mut news = watch(api.client(), &settings);
        let mut profiles = Profiles::new(settings);
        let everything = LabelSelector::default();
        let absent = |it: &Profiles| it.membership() == Membership::NotInstalled;
        hear(&mut news, &mut profiles, "that there are none", absent).await?;

        // A version of tomorrow is preferred; there are more than fit on a page.
        let mut crds = crds::definitions(&crds::cluster_inventory()?)?;
        let versions = crds[0]["spec"]["versions"].as_array_mut().context("versions")?;
        let mut tomorrow = versions[0].clone();
        tomorrow["name"] = json!("v1beta1");
        tomorrow["storage"] = json!(false);
        versions.push(tomorrow);
        crds::install_definitions(&api, &crds).await?;
        let served = api.kubectl(&["get", "--raw", "/apis/multicluster.x-k8s.io"]).await?;
        let served: Value = serde_json::from_str(&served)?;
        ensure!(served["preferredVersion"]["version"] == "v1beta1", "{served}");
        let made = (0..120).map(|at| format!("c{at:03}")).collect::<Vec<_>>();
        futures::future::try_join_all(made.iter().map(|name| profile(&api, "default", name, json!({}))))
            .await?;
        let whole = |it: &Profiles| {
            it.membership() == Membership::Known && it.select(&everything).len() == made.len()
        };
        hear(&mut news, &mut profiles, "all that were made", whole).await?;

        api.stop();
        let broken = |it: &Profiles| matches!(it.membership(), Membership::Outdated { .. });
        hear(&mut news, &mut profiles, "that nothing is heard", broken).await?;
        ensure!(profiles.select(&everything).len() == made.len(), "what was known stays");
        api.start_again().await?;
        hear(&mut news, &mut profiles, "the whole list again", whole).await?;
        profile(&api, "default", "one-more", json!({})).await?;
        let more = |it: &Profiles| it.select(&everything).len() == made.len() + 1;
        hear(&mut news, &mut profiles, "one more", more).await?;
        // A list that begins from nothing is as long.
        let mut anew = Profiles::new(Settings::default());
        let mut news = watch(api.client(), anew.settings());
        hear(&mut news, &mut anew, "a list of several pages", more).await
    })
    .await;
}

//! The recipes `argocd-rollout*` and `flux-rollout-*` with what they are for: a FleetPackage and a FleetRollout, and the real
//! controllers of ApplicationSets and of Flux Operator, which ask a real aggregator what it has admitted.

use super::argocd_waves::{COMMIT, Central, come_to_run, content, refused, run_now};
use super::fleets::controller;
use super::{edited, file, ready};
use crate::e2e::handed_over::{hash, may_ask, token};
use crate::e2e::rollouts::A_WHILE;
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PACKAGE: &str = "payments";

/// Options of an aggregator that runs with these values of its chart.
fn by_values(
    mut options: AggregatorOptions,
    rig: &Rig,
    name: &str,
    words: &[(&str, &str)],
) -> Result<AggregatorOptions> {
    let values = edited(name, words)?.pop().context("no values")?;
    for (value, flag) in [("serveRollouts", "--serve-rollouts"), ("authorizeScrapes", "--authorize-scrapes")]
    {
        ensure!(values[value] == true, "{values}");
        options.more.push(flag.to_owned());
    }
    let config = rig.dir().join("aggregator.yaml");
    std::fs::write(&config, values["config"].to_string())?;
    options.more.extend(["--config".to_owned(), config.display().to_string()]);
    Ok(options)
}

/// Whether an object is of our own kinds.
fn is_ours(object: &Value) -> bool {
    object["apiVersion"] == "statusbridge.dev/v1alpha1"
}

/// Fails unless the API server takes a recipe as it ships.
async fn is_accepted(api: &ApiServer, name: &str) -> Result<()> {
    let shipped = file(name).display().to_string();
    api.kubectl(&["apply", "--validate=strict", "--dry-run=server", "-f", &shipped]).await.map(drop)
}

/// Waits until the status of the FleetRollout is as it should be.
async fn rollout_is(api: &ApiServer, what: &str, is_so: impl Fn(&DynamicObject) -> bool) -> Result<()> {
    let rollouts = api.dynamic(&hub::kind("FleetRollout"), Some("fleet")).await?;
    eventually(SOON, &format!("the FleetRollout is {what}"), async || {
        let rollout = rollouts.get(PACKAGE).await?;
        ensure!(is_so(&rollout), "{}", rollout.data["status"]);
        Ok(())
    })
    .await
}

/// Waits until so many of the clusters may have this commit: `1/2`.
async fn admits(api: &ApiServer, commit: &str, many: &str) -> Result<()> {
    let what = format!("{many} at {commit}");
    rollout_is(api, &what, |rollout| {
        rollout.data["status"]["revision"] == commit && rollout.data["status"]["admitted"] == many
    })
    .await
}

/// The revision of each Application, by its cluster.
async fn applications(api: &ApiServer) -> Result<BTreeMap<String, String>> {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    let all = api.dynamic(&kind, Some("argocd")).await?.list(&ListParams::default()).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let one =
        |spec: &Value| Ok((text(&spec["destination"]["name"])?, text(&spec["source"]["targetRevision"])?));
    all.items.iter().map(|application| one(&application.data["spec"])).collect()
}

/// Applications of eu-1 and eu-2 at these commits.
fn at(commits: [&str; 2]) -> BTreeMap<String, String> {
    ["eu-1", "eu-2"].into_iter().zip(commits).map(|(it, at)| (it.to_owned(), at.to_owned())).collect()
}

/// Waits until there are Applications for exactly these clusters, at these revisions.
async fn come_to_be(api: &ApiServer, expected: &BTreeMap<String, String>) -> Result<()> {
    eventually(SOON, &format!("the Applications are {expected:?}"), async || {
        let found = applications(api).await?;
        ensure!(found == *expected, "{found:?}");
        Ok(())
    })
    .await
}

/// Sees for a while that nothing becomes of the Applications.
async fn stay(api: &ApiServer, expected: &BTreeMap<String, String>) -> Result<()> {
    holds_for(A_WHILE, "the Applications stay", async || {
        let found = applications(api).await?;
        ensure!(found == *expected, "{found:?}");
        Ok(())
    })
    .await
}

/// Waits until the ApplicationSet says that it could not be told anything, or could.
async fn says(api: &ApiServer, fails: bool, part: &str, within: Duration) -> Result<()> {
    eventually(within, &format!("it says {part:?}"), async || {
        let set = api.kubectl(&["get", "applicationset", PACKAGE, "-n", "argocd", "-o", "json"]).await?;
        let set: Value = serde_json::from_str(&set)?;
        let conditions = set["status"]["conditions"].as_array().context("no conditions")?;
        let error = conditions.iter().find(|it| it["type"] == "ErrorOccurred").context("no condition")?;
        let expected = if fails { "True" } else { "False" };
        ensure!(error["status"] == expected && error["message"].to_string().contains(part), "{error}");
        Ok(())
    })
    .await
}

/// Has the controller ask until it is told. After an error it looks again in three minutes, or when somebody wants it to.
async fn is_told(api: &ApiServer) -> Result<()> {
    let annotate = ["annotate", "applicationset", PACKAGE, "-n", "argocd", "--overwrite"];
    let refresh = "argocd.argoproj.io/application-set-refresh";
    eventually(SOON, "the ApplicationSet is told", async || {
        // A wish that ended in an error stays, and is no news when it is made again.
        for wish in [format!("{refresh}-"), format!("{refresh}=true")] {
            api.kubectl(&[&annotate[..], &[&wish]].concat()).await?;
        }
        says(api, false, "", A_WHILE).await
    })
    .await
}

/// The recipe's objects at a commit, for an aggregator at this address.
fn objects(central: &Central, token: &str, commit: &str) -> Result<Vec<Value>> {
    let base = central.hub.aggregator.url("/v1alpha1/applicationset");
    let words = [
        (
            "https://statusbridge-aggregator.statusbridge-system.svc:8080/v1alpha1/applicationset",
            base.as_str(),
        ),
        ("\"requeueAfterSeconds\":30", "\"requeueAfterSeconds\":1"),
    ];
    let mut all = Vec::new();
    for object in central.repositories.objects("argocd-rollout.yaml", commit)? {
        let text = words.iter().fold(object.to_string(), |text, (old, new)| text.replace(old, new));
        let mut object: Value = serde_json::from_str(&text)?;
        match object["kind"].as_str() {
            // The control plane would put the token there.
            Some("Secret") => {
                object["type"] = json!("Opaque");
                object["metadata"]["annotations"] = json!({});
                object["stringData"] = json!({"token": token});
            }
            // Here an Application goes where its row goes, so that a row that is left out is seen.
            Some("ApplicationSet") => object["spec"]["syncPolicy"] = json!({}),
            _ => {}
        }
        all.push(object);
    }
    Ok(all)
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn an_application_set_moves_the_clusters_that_are_admitted_and_none_when_it_is_told_nothing() {
    run("e2e-recipes-argocd-rollout", async |rig| {
        let values = |options| by_values(options, rig, "argocd-rollout-values.yaml", &[]);
        let central = Central::start_with(rig, values).await?;
        let (api, aggregator) = (&central.hub.api, &central.hub.aggregator);
        central.hub.may_authorize().await?;
        is_accepted(api, "argocd-rollout.yaml").await?;
        let token = api.token_of_service_account("argocd", "statusbridge-rollouts", &[]).await?;
        let v1 = central.repositories.publish(&content("v1")).await?;
        let (ours, others): (Vec<Value>, Vec<Value>) =
            objects(&central, &token, &v1)?.into_iter().partition(is_ours);

        // Before anybody is admitted there is an error and no empty list.
        for object in &others {
            api.apply_object(object).await?;
        }
        says(api, true, "has admitted no cluster yet", SOON).await?;

        // In clusters where the package never was, wave by wave.
        for object in &ours {
            api.apply_object(object).await?;
        }
        admits(api, &v1, "1/2").await?;
        is_told(api).await?;
        come_to_run(&central.clusters(), ["v1", "v1"]).await?;
        rollout_is(api, "done", |rollout| ready(rollout) == ("True", "RolledOut")).await?;

        // Of the next revision nothing but the FleetPackage tells. The canary refuses it.
        let rolls_out = async |content: Value| -> Result<String> {
            let commit = central.repositories.publish(&content).await?;
            for object in central.repositories.objects("argocd-rollout.yaml", &commit)? {
                if object["kind"] == "FleetPackage" {
                    api.apply_object(&object).await?;
                }
            }
            Ok(commit)
        };
        let v2 = rolls_out(refused("v2")).await?;
        rollout_is(api, "stalled", |rollout| {
            ready(rollout) == ("False", "WaveFailed") && rollout.data["status"]["recommendedRevision"] == *v1
        })
        .await?;
        come_to_be(api, &at([&v2, &v1])).await?;
        run_now(&central.clusters(), ["v1", "v1"]).await?;
        let v3 = rolls_out(content("v3")).await?;
        come_to_run(&central.clusters(), ["v3", "v3"]).await?;

        // Nobody tells of the canary any more.
        central.exporter.process().kill();
        let v4 = rolls_out(content("v4")).await?;
        let mixed = at([&v4, &v3]);
        come_to_be(api, &mixed).await?;
        come_to_run(&central.clusters(), ["v4", "v3"]).await?;
        stay(api, &mixed).await?;

        // The aggregator is dead, and comes back over a backend that is dead.
        central.prometheus.stop();
        aggregator.process().kill();
        says(api, true, "getparams.execute", SOON).await?;
        stay(api, &mixed).await?;
        aggregator.process().start()?;
        is_told(api).await?;
        stay(api, &mixed).await?;

        // Its service account may no longer read the rollout.
        api.kubectl(&["delete", "rolebinding", "statusbridge-rollouts", "-n", "fleet"]).await?;
        says(api, true, "may not get fleetrollouts", SOON).await?;
        stay(api, &mixed).await?;
        run_now(&central.clusters(), ["v4", "v3"]).await
    })
    .await;
}

/// A kind of Flux Operator, whose own CRDs have another licence than this project.
fn of_flux_operator(kind: &str, plural: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.fluxcd.controlplane.io")},
        "spec": {
            "group": "fluxcd.controlplane.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

/// The commit of this number.
fn commit(number: u32) -> String {
    let revision = revision(number);
    revision.rsplit(':').next().unwrap_or_default().to_owned()
}

/// Clusters of the recipe, which are made up but for the Flux Operator of the second one.
const CLUSTERS: [&str; 2] = ["eu-1", "eu-2"];

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn flux_operator_moves_a_cluster_when_it_is_admitted_and_leaves_it_when_it_is_told_nothing() {
    run("e2e-recipes-flux-rollout", async |rig| {
        let authority = Authority::new("ours")?;
        let fleet = FakeFleet::start().await?;
        let prometheus = Prometheus::start(rig, &scraping(&fleet, &CLUSTERS)).await?;
        let etcd = Etcd::start(rig).await?;
        let tokens = rig.dir().join("tokens.yaml").display().to_string();
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s"].map(str::to_owned).into();
        let words = [("/etc/statusbridge/cluster-tokens/tokens.yaml", tokens.as_str())];
        let options = by_values(options, rig, "flux-rollout-values.yaml", &words)?;
        let of = CLUSTERS.map(hash);
        let in_hub = |number: u32| {
            let words = [
                (COMMIT, commit(number)),
                ("SHA-256-OF-THE-TOKEN-OF-EU-1", of[0].clone()),
                ("SHA-256-OF-THE-TOKEN-OF-EU-2", of[1].clone()),
                ("\"10m\"", "\"1s\"".to_owned()),
            ];
            edited("flux-rollout-hub.yaml", &words.each_ref().map(|(old, new)| (*old, new.as_str())))
        };
        // Where the chart mounts the Secret.
        let secret = in_hub(1)?.into_iter().find(|object| object["kind"] == "Secret").context("no Secret")?;
        std::fs::write(&tokens, secret["stringData"]["tokens.yaml"].as_str().context("no tokens")?)?;
        let hub = Hub::start_with(rig, &etcd, options.over_tls(rig.dir(), &authority)?).await?;
        let (api, aggregator) = (&hub.api, &hub.aggregator);
        hub.may_authorize().await?;
        for namespace in ["flux-system", "fleet", "statusbridge-system"] {
            api.ensure_namespace(namespace).await?;
        }
        api.install_crds(&crds::flux()?).await?;
        for (kind, plural) in
            [("ResourceSet", "resourcesets"), ("ResourceSetInputProvider", "resourcesetinputproviders")]
        {
            api.apply_object(&of_flux_operator(kind, plural)).await?;
        }
        for shipped in ["flux-rollout-hub.yaml", "flux-rollout-cluster.yaml"] {
            is_accepted(api, shipped).await?;
        }
        let (token, url) = (token("eu-2"), aggregator.url(""));
        let authority = serde_json::to_string(authority.pem())?;
        let words = [
            ("TOKEN-OF-THIS-CLUSTER", token.as_str()),
            ("\"CERTIFICATE\"", &authority),
            ("https://hub.example.com:8080", &url),
            ("/clusters/eu-1", "/clusters/eu-2"),
            ("\"1m\"", "\"1s\""),
        ];
        for object in edited("flux-rollout-cluster.yaml", &words)? {
            api.apply_object(&object).await?;
        }
        let _operator = controller(rig, "flux-operator", api)?;
        let providers = GroupVersionKind::gvk("fluxcd.controlplane.io", "v1", "ResourceSetInputProvider");
        let providers = api.dynamic(&providers, Some("flux-system")).await?;
        let says = async |status: &str, part: &str| {
            eventually(SOON, &format!("the provider says {part:?}"), async || {
                let provider = providers.get(PACKAGE).await?;
                let said = provider.data["status"].to_string();
                ensure!(ready(&provider).0 == status && said.contains(part), "{said}");
                Ok(())
            })
            .await
        };
        let repositories = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let repositories = api.dynamic(&repositories, Some("flux-system")).await?;
        let runs_now = async |expected: Option<u32>| {
            let repository = repositories.get_opt(PACKAGE).await?;
            let found =
                repository.and_then(|it| it.data["spec"]["ref"]["commit"].as_str().map(str::to_owned));
            ensure!(found == expected.map(commit), "{found:?}");
            Ok(())
        };
        let stays = async |expected| holds_for(A_WHILE, "it stays", async || runs_now(expected).await).await;
        let comes_to_run =
            async |number| eventually(SOON, "it is moved", async || runs_now(Some(number)).await).await;
        let rolls_out = async |number: u32| -> Result<()> {
            for object in in_hub(number)?.iter().filter(|object| is_ours(object)) {
                api.apply_object(object).await?;
            }
            admits(api, &commit(number), "1/2").await
        };
        // As Flux reports what it has checked out by a commit.
        let runs = |cluster: &str, number: u32| {
            fleet.says(cluster, PACKAGE, FakePackage::healthy_at(&format!("sha1:{}", commit(number))));
        };

        // The package never was in either cluster.
        says("False", "HTTP 404").await?;
        rolls_out(2).await?;
        stays(None).await?;
        runs("eu-1", 2);
        comes_to_run(2).await?;
        says("True", &commit(2)).await?;
        runs("eu-2", 2);
        rollout_is(api, "done", |rollout| ready(rollout) == ("True", "RolledOut")).await?;

        rolls_out(3).await?;
        stays(Some(2)).await?;
        runs("eu-1", 3);
        comes_to_run(3).await?;

        // The aggregator is dead, and comes back over a backend that is dead; then the token is no longer known.
        prometheus.stop();
        aggregator.process().kill();
        says("False", "failed to call external service").await?;
        stays(Some(3)).await?;
        aggregator.process().start()?;
        says("True", &commit(3)).await?;
        stays(Some(3)).await?;
        may_ask(tokens.as_ref(), &["eu-1"])?;
        says("False", "HTTP 401").await?;
        stays(Some(3)).await
    })
    .await;
}

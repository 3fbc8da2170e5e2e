//! The recipes `argocd-rollout.yaml` and `flux-rollout.yaml` with what they are for: the real controllers of ApplicationSets and of
//! Flux Operator ask a real aggregator what a FleetRollout has admitted.

use super::fleets::controller;
use super::{file, ready, recipe};
use crate::e2e::handed_over::{Files, may_ask, path, token};
use crate::e2e::rollouts::{A_WHILE, CLUSTERS, Setup, three_waves};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ROLLOUT: &str = "payments";

/// The revision of each Application, by its cluster.
async fn applications(api: &ApiServer) -> Result<BTreeMap<String, String>> {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    let all = api.dynamic(&kind, Some("argocd")).await?.list(&ListParams::default()).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let one =
        |spec: &Value| Ok((text(&spec["destination"]["name"])?, text(&spec["source"]["targetRevision"])?));
    all.items.iter().map(|application| one(&application.data["spec"])).collect()
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
        let set = api.kubectl(&["get", "applicationset", "payments", "-n", "argocd", "-o", "json"]).await?;
        let set: Value = serde_json::from_str(&set)?;
        let conditions = set["status"]["conditions"].as_array().context("no conditions")?;
        let error = conditions.iter().find(|it| it["type"] == "ErrorOccurred").context("no condition")?;
        let expected = if fails { "True" } else { "False" };
        ensure!(error["status"] == expected && error["message"].to_string().contains(part), "{error}");
        Ok(())
    })
    .await
}

/// After an error the controller looks again in three minutes, or when it is asked to.
async fn look_again(api: &ApiServer) -> Result<()> {
    let refresh = "argocd.argoproj.io/application-set-refresh=true";
    let set = ["annotate", "applicationset", "payments", "-n", "argocd", "--overwrite", refresh];
    api.kubectl(&set).await.map(drop)
}

/// The recipe's objects for a rollout of this namespace and an aggregator at this address.
fn objects(aggregator: &Aggregator, token: &str) -> Result<Vec<Value>> {
    let base = aggregator.url("/v1alpha1/applicationset");
    let words = [
        (
            "https://statusbridge-aggregator.statusbridge-system.svc:8080/v1alpha1/applicationset",
            base.as_str(),
        ),
        ("\"namespace\":\"fleet\"", "\"namespace\":\"default\""),
        ("\"requeueAfterSeconds\":30", "\"requeueAfterSeconds\":1"),
    ];
    let mut all = Vec::new();
    for object in recipe("argocd-rollout.yaml")? {
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

/// Makes a cluster known to Argo CD, which does not have to reach it.
async fn register(api: &ApiServer, cluster: &str) -> Result<()> {
    api.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("cluster-{cluster}"), "namespace": "argocd",
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": cluster, "server": format!("https://{cluster}.invalid"), "config": "{}"},
    }))
    .await
    .map(drop)
}

#[tokio::test]
async fn an_application_set_moves_the_clusters_that_are_admitted_and_none_when_it_is_told_nothing() {
    run("e2e-recipes-argocd-rollout", async |rig| {
        let setup = Setup::start_with(rig, |mut options| {
            options.more.extend(["--serve-rollouts", "--authorize-scrapes"].map(str::to_owned));
            Ok(options)
        })
        .await?;
        let (api, aggregator) = (&setup.hub.api, &setup.hub.aggregator);
        setup.hub.may_authorize().await?;
        let scripts = recipe("argocd-cm.yaml")?.pop().context("no ConfigMap")?;
        let _argo_cd = ArgoCd::start(rig, api, &scripts).await?;
        for namespace in ["fleet", "argocd"] {
            api.ensure_namespace(namespace).await?;
        }
        let shipped = file("argocd-rollout.yaml").display().to_string();
        api.kubectl(&["apply", "--validate=strict", "--dry-run=server", "-f", &shipped]).await?;
        for cluster in CLUSTERS {
            register(api, cluster).await?;
        }
        let token = api.token_of_service_account("argocd", "statusbridge-rollouts", &[]).await?;
        for object in objects(aggregator, &token)? {
            api.apply_object(&object).await?;
        }
        let at = |number: u32, clusters: &BTreeSet<String>| -> BTreeMap<String, String> {
            clusters.iter().map(|cluster| (cluster.clone(), revision(number))).collect()
        };

        // Before anybody is admitted there is an error and no empty list.
        says(api, true, "has admitted no cluster yet", SOON).await?;
        setup.rolls(ROLLOUT, 2, three_waves()).await?;
        let canary = setup.admits(2, 1).await?;
        look_again(api).await?;
        come_to_be(api, &at(2, &canary)).await?;
        stay(api, &at(2, &canary)).await?;
        setup.deliver(2, &canary);
        let two = setup.admits(2, 2).await?;
        come_to_be(api, &at(2, &two)).await?;
        setup.deliver(2, &two);
        setup.deliver(2, &setup.admits(2, 3).await?);
        let all = setup.admits(2, CLUSTERS.len()).await?;
        setup.deliver(2, &all);
        come_to_be(api, &at(2, &all)).await?;

        // Of the next revision the canary alone gets its Application moved.
        setup.rolls(ROLLOUT, 3, three_waves()).await?;
        let canary = setup.admits(3, 1).await?;
        let mut mixed = at(2, &all);
        mixed.extend(at(3, &canary));
        come_to_be(api, &mixed).await?;

        // The aggregator is dead, and comes back over a backend that is dead.
        setup.prometheus.stop();
        aggregator.process().kill();
        says(api, true, "getparams.execute", SOON).await?;
        stay(api, &mixed).await?;
        aggregator.process().start()?;
        eventually(SOON, "it is told again", async || {
            look_again(api).await?;
            says(api, false, "", A_WHILE).await
        })
        .await?;
        stay(api, &mixed).await?;

        // Its service account may no longer read the rollout.
        api.kubectl(&["delete", "rolebinding", "statusbridge-rollouts", "-n", "default"]).await?;
        says(api, true, "may not get fleetrollouts", SOON).await?;
        stay(api, &mixed).await
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

#[tokio::test]
async fn flux_operator_moves_a_cluster_when_it_is_admitted_and_leaves_it_when_it_is_told_nothing() {
    run("e2e-recipes-flux-rollout", async |rig| {
        let (files, authority) = (Files::write(rig)?, Authority::new("ours")?);
        let setup =
            Setup::start_with(rig, |options| files.named(options).over_tls(rig.dir(), &authority)).await?;
        let (api, aggregator) = (&setup.hub.api, &setup.hub.aggregator);
        setup.hub.may_authorize().await?;
        api.ensure_namespace("flux-system").await?;
        api.install_crds(&crds::flux()?).await?;
        for (kind, plural) in
            [("ResourceSet", "resourcesets"), ("ResourceSetInputProvider", "resourcesetinputproviders")]
        {
            api.apply_object(&of_flux_operator(kind, plural)).await?;
        }
        for object in recipe("flux-rollout.yaml")? {
            let (token, url) = (token("c1"), aggregator.url(&path(APP, "c1")));
            let authority = serde_json::to_string(authority.pem())?;
            let words = [
                ("TOKEN-OF-THIS-CLUSTER", token.as_str()),
                ("\"CERTIFICATE\"", &authority),
                ("https://hub.example.com:8080/v1alpha1/rollouts/fleet/payments/clusters/eu-1", &url),
                ("\"1m\"", "\"1s\""),
            ];
            let text = words.iter().fold(object.to_string(), |text, (old, new)| text.replace(old, new));
            api.apply_object(&serde_json::from_str(&text)?).await?;
        }
        let _operator = controller(rig, "flux-operator", api)?;
        let providers = GroupVersionKind::gvk("fluxcd.controlplane.io", "v1", "ResourceSetInputProvider");
        let providers = api.dynamic(&providers, Some("flux-system")).await?;
        let says = async |status: &str, part: &str| {
            eventually(SOON, &format!("the provider says {part:?}"), async || {
                let provider = providers.get("payments").await?;
                let said = provider.data["status"].to_string();
                ensure!(ready(&provider).0 == status && said.contains(part), "{said}");
                Ok(())
            })
            .await
        };
        let repositories = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let repositories = api.dynamic(&repositories, Some("flux-system")).await?;
        let runs = async || -> Result<Option<String>> {
            let repository = repositories.get_opt("payments").await?;
            Ok(repository.and_then(|it| it.data["spec"]["ref"]["commit"].as_str().map(str::to_owned)))
        };
        let runs_now = async |expected: Option<u32>| {
            let found = runs().await?;
            ensure!(found == expected.map(revision), "{found:?}");
            Ok(())
        };
        let stays = async |expected| holds_for(A_WHILE, "it stays", async || runs_now(expected).await).await;
        let comes_to_run =
            async |number| eventually(SOON, "it is moved", async || runs_now(Some(number)).await).await;
        let waves = json!([
            {"name": "first", "clusters": {"names": ["c2"]}}, {"name": "second", "clusters": {"names": ["c1"]}},
        ]);

        says("False", "HTTP 404").await?;
        setup.rolls(APP, 2, waves.clone()).await?;
        setup.admits(2, 1).await?;
        stays(None).await?;
        setup.deliver(2, &[String::from("c2")]);
        comes_to_run(2).await?;
        says("True", &revision(2)).await?;
        setup.deliver(2, &[String::from("c1")]);

        setup.rolls(APP, 3, waves).await?;
        setup.admits(3, 1).await?;
        stays(Some(2)).await?;
        setup.deliver(3, &[String::from("c2")]);
        comes_to_run(3).await?;

        // The aggregator is dead, and comes back over a backend that is dead; then the token is no longer known.
        setup.prometheus.stop();
        aggregator.process().kill();
        says("False", "failed to call external service").await?;
        stays(Some(3)).await?;
        aggregator.process().start()?;
        says("True", &revision(3)).await?;
        stays(Some(3)).await?;
        may_ask(&files.tokens, &["c2"])?;
        says("False", "HTTP 401").await?;
        stays(Some(3)).await
    })
    .await;
}

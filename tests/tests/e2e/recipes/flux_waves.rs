//! `flux-waves.sh` with what it is for: two clusters whose real Flux follows tags of a real registry.

use super::{file, recipe};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::process::Output;

const PACKAGE: &str = "payments";

/// Content of the package: a ConfigMap of this name.
fn content(name: &str, version: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{version: \"{version}\"}}\n"
    )
}

/// What a cluster runs, if anything.
async fn runs(cluster: &Workload) -> Result<Option<String>> {
    let maps = Api::<ConfigMap>::namespaced(cluster.api.client(), "default");
    Ok(maps.get_opt(PACKAGE).await?.and_then(|map| map.data?.remove("version")))
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn each_wave_gets_a_revision_once_the_one_before_is_healthy_at_it() {
    run("e2e-recipes-flux-waves", async |rig| {
        let registry = Registry::start(rig).await?;
        let world = World::start(rig, &["eu-1", "eu-2"], &[]).await?;
        let hub = &world.hub;
        hub.api.ensure_namespace("fleet").await?;
        let _sources =
            try_join_all(world.clusters.iter().map(|c| SourceController::start(rig, &c.api))).await?;
        let _appliers =
            try_join_all(world.clusters.iter().map(|c| KustomizeController::start(rig, &c.api))).await?;
        for (cluster, wave) in world.clusters.iter().zip(["wave-1", "wave-2"]) {
            for mut object in recipe("flux-waves-cluster.yaml")? {
                if object["kind"] == "OCIRepository" {
                    let spec = &mut object["spec"];
                    spec["url"] = json!(registry.repository(PACKAGE));
                    spec["ref"]["tag"] = json!(wave);
                    // This registry has no TLS.
                    spec["insecure"] = json!(true);
                }
                object["spec"]["interval"] = json!("2s");
                cluster.api.apply_object(&object).await?;
            }
        }
        for mut object in recipe("flux-waves-hub.yaml")? {
            if object["metadata"]["name"] == "payments-wave-1" {
                object["spec"]["minSuccessTime"] = json!("2s");
            }
            hub.api.apply_object(&object).await?;
        }

        let everywhere = async |right: [Option<&str>; 2]| -> Result<()> {
            let found = try_join_all(world.clusters.iter().map(runs)).await?;
            ensure!(found.iter().map(Option::as_deref).eq(right), "the clusters run {found:?}");
            Ok(())
        };

        // There is something at each tag before the first rollout.
        let first = rig.subdir("first")?;
        std::fs::write(first.join("app.yaml"), content(PACKAGE, "v1"))?;
        for wave in ["wave-1", "wave-2"] {
            let artifact = format!("{}:{wave}", registry.repository(PACKAGE));
            let pushed = tokio::process::Command::new(program("flux")?)
                .args(["push", "artifact", &artifact, "--source", "test", "--revision", "v1", "--path"])
                .arg(&first)
                .status();
            ensure!(pushed.await?.success(), "flux did not push {artifact}");
        }
        eventually(SOON, "both clusters run the first revision", async || everywhere([Some("v1"); 2]).await)
            .await?;
        // That there was nothing at first is a failure, which would end a rollout that begins before it is forgotten.
        eventually(SOON, "the hub knows it", async || {
            let package = ["get", "fleetpackage", PACKAGE, "-n", "fleet", "-o", "json"];
            let package: Value = serde_json::from_str(&hub.api.kubectl(&package).await?)?;
            let revisions = package["status"]["revisions"].as_array().map_or(&[][..], Vec::as_slice);
            let healthy = revisions.iter().filter_map(|it| it["healthy"].as_u64());
            ensure!(healthy.sum::<u64>() == 2, "{}", package["status"]);
            Ok(())
        })
        .await?;

        // What stands on the PATH of a pipeline.
        let bin = rig.subdir("bin")?;
        std::os::unix::fs::symlink(program("flux")?, bin.join("flux"))?;
        std::os::unix::fs::symlink(own_program("statusbridge").await?, bin.join("statusbridge"))?;
        let path = std::env::var("PATH")?;
        let rolls_out = async |name: &str, version: &str| -> Result<Output> {
            let directory = rig.subdir(&format!("commit-{version}"))?;
            std::fs::write(directory.join("app.yaml"), content(name, version))?;
            let out = tokio::process::Command::new(file("flux-waves.sh"))
                .arg(&directory)
                .arg(version)
                .env("PATH", format!("{}:{path}", bin.display()))
                .env("KUBECONFIG", hub.api.kubeconfig())
                .env("REPOSITORY", registry.repository(PACKAGE))
                .env("TIMEOUT", format!("{}s", SOON.as_secs()))
                .kill_on_drop(true)
                .output()
                .await
                .context("flux-waves.sh")?;
            Ok(out)
        };

        let out = rolls_out(PACKAGE, "v2").await?;
        ensure!(out.status.success(), "{out:?}");
        everywhere([Some("v2"), Some("v2")]).await?;

        // No API server takes this. The first wave says so, and the second never hears of it.
        let out = rolls_out("No Name", "v3").await?;
        ensure!(out.status.code() == Some(3), "{out:?}");
        everywhere([Some("v2"), Some("v2")]).await?;
        let second = world.clusters.last().context("no cluster")?;
        let gate =
            hub.api.kubectl(&["get", "rolloutgate", "payments-wave-2", "-n", "fleet", "-o", "json"]).await?;
        ensure!(
            serde_json::from_str::<Value>(&gate)?["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["type"] == "Open" && it["status"] == "False")),
            "{gate}"
        );
        let kustomization = Flux::kustomization(&second.api, PACKAGE).await?;
        let attempted = kustomization.data["status"]["lastAttemptedRevision"].as_str().unwrap_or_default();
        let applied = kustomization.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
        ensure!(attempted.starts_with("wave-2@sha256:") && attempted == applied, "{attempted}, {applied}");

        // What comes after it is about another revision, whatever became of this one.
        let out = rolls_out(PACKAGE, "v4").await?;
        ensure!(out.status.success(), "{out:?}");
        everywhere([Some("v4"), Some("v4")]).await
    })
    .await;
}

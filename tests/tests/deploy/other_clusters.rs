//! The recipes that bring the exporter to every cluster: their tools' schemas take them, and the chart takes their values. And
//! values of the aggregator's chart for rollouts.

use super::*;
use statusbridge_tests::{Etcd, Rig, run};

fn recipe(name: &str) -> Result<Vec<Value>> {
    crds::documents(&std::fs::read_to_string(repository("deploy/recipes").join(name))?)
}

/// The exporter's objects with these values: its pods have the image that the values name, and a PodMonitor finds them.
async fn is_rendered(rig: &Rig, values: &Value) -> Result<Vec<Value>> {
    let file = rig.dir().join("values.json");
    std::fs::write(&file, values.to_string())?;
    let values = ["--values", file.to_str().context("where the values are")?];
    let objects = Chart::Exporter.render(NAMESPACE, &values).await?;
    let image = &pods::container(the(&objects, "Deployment", "")?)["image"];
    let wanted = format!("registry.example.org/statusbridge/statusbridge-exporter:{}", version()?);
    ensure!(*image == json!(wanted), "{image}");
    the(&objects, "PodMonitor", "")?;
    Ok(objects)
}

/// The version of the chart in the repository.
fn version() -> Result<String> {
    let chart = crds::documents(&std::fs::read_to_string(Chart::Exporter.dir().join("Chart.yaml"))?)?;
    Ok(chart[0]["version"].as_str().context("a chart without a version")?.to_owned())
}

#[tokio::test]
async fn recipes_bring_the_exporter_to_every_cluster() {
    run("deploy-other-clusters", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let application = repository("tests/crds/argocd/application-crd.yaml");
        for files in [crds::flux()?, crds::consumer("argo-cd")?, vec![application]] {
            api.install_crds(&files).await?;
        }
        for namespace in [NAMESPACE, "argocd"] {
            api.ensure_namespace(namespace).await?;
        }
        for file in ["exporter-flux.yaml", "exporter-argocd.yaml"] {
            let file = repository("deploy/recipes").join(file);
            let file = file.to_str().context("where the recipe is")?;
            api.kubectl(&["apply", "--validate=strict", "--dry-run=server", "-f", file]).await?;
        }

        let objects = recipe("exporter-flux.yaml")?;
        let (source, release) = (the(&objects, "OCIRepository", "")?, the(&objects, "HelmRelease", "")?);
        ensure!(release["spec"]["chartRef"]["name"] == source["metadata"]["name"], "{release}");
        let url = source["spec"]["url"].as_str().unwrap_or_default();
        ensure!(url.ends_with(&format!("/{}", Chart::Exporter.name())), "{url}");
        ensure!(source["spec"]["ref"]["tag"] == json!(version()?), "{source}");
        is_rendered(rig, &release["spec"]["values"]).await?;

        // What Argo CD makes of the template for a cluster.
        let objects = recipe("exporter-argocd.yaml")?;
        let set = the(&objects, "ApplicationSet", "")?;
        let mut text = set["spec"]["template"].to_string();
        for (parameter, value) in [
            ("{{.nameNormalized}}", "eu-2"),
            ("{{.name}}", "eu-2"),
            ("{{.server}}", "https://eu-2.example.org"),
        ] {
            ensure!(text.contains(parameter), "{parameter} is not used");
            text = text.replace(parameter, value);
        }
        ensure!(!text.contains("{{"), "a parameter that no test knows: {text}");
        let mut application: Value = serde_json::from_str(&text)?;
        application["apiVersion"] = json!("argoproj.io/v1alpha1");
        application["kind"] = json!("Application");
        application["metadata"]["namespace"] = json!("argocd");
        let file = rig.dir().join("application.json");
        std::fs::write(&file, application.to_string())?;
        let file = file.to_str().context("where the Application is")?;
        api.kubectl(&["apply", "--validate=strict", "-f", file]).await?;
        let source = &application["spec"]["source"];
        ensure!(source["chart"] == Chart::Exporter.name(), "{source}");
        ensure!(source["targetRevision"] == json!(version()?), "{source}");
        let objects = is_rendered(rig, &source["helm"]["valuesObject"]).await?;
        let endpoint = &the(&objects, "PodMonitor", "")?["spec"]["podMetricsEndpoints"][0];
        let names_the_cluster = json!([{"targetLabel": "cluster", "replacement": "eu-2"}]);
        ensure!(endpoint["relabelings"] == names_the_cluster, "{endpoint}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_chart_takes_the_values_for_rollouts() -> Result<()> {
    for (file, is_for_clusters) in [("argocd-rollout-values.yaml", false), ("flux-rollout-values.yaml", true)]
    {
        let file = repository("deploy/recipes").join(file);
        let file = ["--values", file.to_str().context("where the values are")?];
        let objects = Chart::Aggregator.render(NAMESPACE, &file).await?;
        let deployment = the(&objects, "Deployment", Chart::Aggregator.name())?;
        let env = pods::container(deployment)["env"].as_array().context("no variables")?;
        let serves = json!({"name": "STATUSBRIDGE_SERVE_ROLLOUTS", "value": "true"});
        ensure!(env.contains(&serves), "{env:?}");
        let mounts = pods::container(deployment)["volumeMounts"].as_array().context("no mounts")?;
        let has_tokens = mounts.iter().any(|it| it["mountPath"] == "/etc/statusbridge/cluster-tokens");
        ensure!(has_tokens == is_for_clusters, "{mounts:?}");
    }
    Ok(())
}

//! Every manifest is accepted as it stands: strictly, without a warning, and its pods under Pod Security.

use super::*;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use statusbridge_tests::{Etcd, PROGRAMS, Rig, run};

async fn cluster(rig: &Rig) -> Result<(Etcd, ApiServer)> {
    let etcd = Etcd::start(rig).await?;
    let api = ApiServer::start(rig, &etcd, "cluster").await?;
    for files in [crds::own()?, crds::monitoring()?, crds::kudo()?] {
        api.install_crds(&files).await?;
    }
    Ok((etcd, api))
}

/// Applies manifests, first without effect and then for real. What the API server warns of fails.
async fn apply(rig: &Rig, api: &ApiServer, name: &str, objects: &[Value]) -> Result<()> {
    let file = rig.dir().join(format!("{name}.json"));
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    for how in ["--dry-run=server", "--dry-run=none"] {
        let file = file.to_str().unwrap();
        let args = ["apply", "--server-side", "--force-conflicts", "--validate=strict", how, "-f", file];
        let out = api.kubectl_output(&args).await?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success() && !said.contains("Warning"), "{name} with {how}: {said}");
        let done = String::from_utf8_lossy(&out.stdout).lines().count();
        ensure!(done == objects.len(), "{name} with {how}: {done} of {} objects applied", objects.len());
    }
    Ok(())
}

/// Makes a pod of each Deployment, as its controller would.
async fn admit_pods(api: &ApiServer, objects: &[Value]) -> Result<()> {
    let mut tried = 0;
    for deployment in of_kind(objects, "Deployment") {
        let mut pod = deployment["spec"]["template"].clone();
        pod["metadata"]["name"] = deployment["metadata"]["name"].clone();
        let namespace = deployment["metadata"]["namespace"].as_str().context("no namespace")?;
        let pods = Api::<Pod>::namespaced(api.client(), namespace);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        pods.create(&params, &serde_json::from_value(pod)?).await.context("the pod is refused")?;
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (label, value) in deployment["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten()
        {
            ensure!(labels[label] == *value, "{namespace}: the pod is not selected by {label}={value}");
        }
        tried += 1;
    }
    ensure!(tried > 0, "no Deployment");
    Ok(())
}

#[tokio::test]
async fn charts_with_all_values() {
    run("deploy-charts", async |rig| {
        let (_etcd, api) = cluster(rig).await?;
        // Where the Role of `discover.into` and that of ClusterProfiles go.
        api.ensure_namespace("statusbridge-discovered").await?;
        api.ensure_namespace("fleet").await?;
        // The control plane's own is not privileged in any way: the check has to be able to fail.
        restricted_namespace(&api, "refused").await?;
        let root = json!([{"kind": "Deployment", "metadata": {"name": "root", "namespace": "refused"}, "spec": {
            "selector": {"matchLabels": {}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}]);
        let refused = admit_pods(&api, root.as_array().unwrap()).await;
        ensure!(refused.is_err_and(|e| format!("{e:#}").contains("PodSecurity")), "any pod is admitted");

        for chart in Chart::ALL {
            for values in chart.values()? {
                let name = format!("{}-{}", chart.name(), stem(&values).trim_end_matches("-values"));
                restricted_namespace(&api, &name).await?;
                let objects = chart.render(&name, &["--values", values.to_str().unwrap()]).await?;
                apply(rig, &api, &name, &objects).await?;
                admit_pods(&api, &objects).await.with_context(|| name.clone())?;
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn kustomize_bases_policies_and_the_change_log_sidecar() {
    run("deploy-kustomize", async |rig| {
        let (_etcd, api) = cluster(rig).await?;
        for base in ["namespace", "exporter", "aggregator"] {
            let dir = repository("deploy/kustomize").join(base);
            let built = crds::documents(&api.kubectl(&["kustomize", dir.to_str().unwrap()]).await?)?;
            apply(rig, &api, base, &built).await?;
            if base != "namespace" {
                admit_pods(&api, &built).await?;
            }
        }
        for file in std::fs::read_dir(repository("deploy/policies"))? {
            let file = file?.path();
            apply(rig, &api, stem(&file), &crds::documents(&std::fs::read_to_string(&file)?)?).await?;
        }
        for namespace in ["statusbridge-discovered", "fleet"] {
            api.ensure_namespace(namespace).await?;
        }
        for file in std::fs::read_dir(repository("deploy/rbac"))? {
            let file = file?.path();
            apply(rig, &api, stem(&file), &crds::documents(&std::fs::read_to_string(&file)?)?).await?;
        }
        change_log_sidecar(rig, &api).await
    })
    .await;
}

#[test]
fn every_program_has_an_image_of_its_own() {
    let read = |file: &str| std::fs::read_to_string(repository(file)).unwrap();
    let file = read("deploy/Containerfile");
    let stages: Vec<&str> = file.split("FROM scratch AS ").collect();
    for program in PROGRAMS {
        let stage = stages.iter().find(|stage| stage.starts_with(&format!("{program}\n")));
        let stage = stage.unwrap_or_else(|| panic!("deploy/Containerfile has no target {program}"));
        assert!(stage.contains(&format!("ENTRYPOINT [\"/{program}\"]")), "{stage}");
        let lists = [
            ("Makefile", "\tfor program in "),
            ("deploy/check-image", "images=("),
            ("deploy/static", "binaries=("),
        ];
        for (file, start) in lists {
            let text = read(file);
            let list = text.lines().find_map(|line| line.strip_prefix(start)).unwrap();
            let mut words = list.split([' ', ';', ')']);
            assert!(words.any(|word| word == program), "{file} leaves out {program}: {list}");
        }
    }
}

/// The recipe as it stands, and the pod that Crossplane makes of it.
async fn change_log_sidecar(rig: &Rig, api: &ApiServer) -> Result<()> {
    api.install_crds(&crds::crossplane_runtimes()?).await?;
    let namespace = "crossplane-system";
    restricted_namespace(api, namespace).await?;
    let recipe = repository("deploy/recipes/crossplane-changelogs.yaml");
    let objects = crds::documents(&std::fs::read_to_string(recipe)?)?;
    apply(rig, api, "changelogs", &objects).await?;

    // Crossplane fills in the provider's image and the labels.
    let config = the(&objects, "DeploymentRuntimeConfig", "changelogs")?;
    let sidecar = &config["spec"]["deploymentTemplate"]["spec"]["template"]["spec"]["initContainers"][0];
    let image = sidecar["image"].as_str().and_then(|image| image.split_once(':'));
    ensure!(image.is_some_and(|(program, _)| PROGRAMS.contains(&program)), "{sidecar}");
    let mut deployment = json!({
        "kind": "Deployment", "metadata": {"name": "provider", "namespace": namespace},
        "spec": config["spec"]["deploymentTemplate"]["spec"],
    });
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("provider");
    admit_pods(api, &[deployment]).await
}

/// Without what only Helm understands.
fn without_helm(mut object: Value) -> Value {
    for (field, keys) in [
        ("labels", ["helm.sh/chart", "app.kubernetes.io/managed-by"]),
        ("annotations", ["helm.sh/resource-policy", ""]),
    ] {
        if let Some(map) = object["metadata"][field].as_object_mut() {
            keys.iter().for_each(|key| drop(map.remove(*key)));
            if map.is_empty() {
                object["metadata"].as_object_mut().unwrap().remove(field);
            }
        }
        let empty = object["metadata"][field].is_null();
        if empty && let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    object
}

#[tokio::test]
async fn bases_are_the_charts_with_default_values() -> Result<()> {
    for (chart, base) in [(Chart::Exporter, "exporter"), (Chart::Aggregator, "aggregator")] {
        let dir = repository("deploy/kustomize").join(base);
        let out =
            tokio::process::Command::new(program("kubectl")?).arg("kustomize").arg(&dir).output().await?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let sorted = |objects: Vec<Value>| {
            let mut objects: Vec<Value> = objects.into_iter().map(without_helm).collect();
            objects.sort_by_key(|o| format!("{} {}", o["kind"], o["metadata"]["name"]));
            objects
        };
        let built = sorted(crds::documents(&String::from_utf8(out.stdout)?)?);
        let rendered = sorted(chart.render(NAMESPACE, &["--skip-tests"]).await?);
        ensure!(built.len() == rendered.len(), "{base}: {} objects, not {}", built.len(), rendered.len());
        for (built, rendered) in built.iter().zip(&rendered) {
            let what = format!("{} {}", built["kind"], built["metadata"]["name"]);
            ensure!(
                built == rendered,
                "{base}: {what} is out of date: run deploy/generate\n{built}\n{rendered}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_refused() {
    let cases = [
        (Chart::Exporter, "presets={flux-kustomisation}", "presets"),
        (Chart::Exporter, "authorizeScrape=true", "authorizeScrape"),
        (Chart::Exporter, "presets={crossplane-composite}", "resourcesByCategory"),
        (Chart::Exporter, "monitoring.interval=often", "interval"),
        (Chart::Exporter, "image.digest=latest", "digest"),
        (Chart::Exporter, "podSecurityContext.runAsUsr=1", "runAsUsr"),
        (Chart::Exporter, "livenessProbe.path=/", "path"),
        (Chart::Exporter, "monitoring.relabelings[0].target_label=a", "target_label"),
        (Chart::Aggregator, "rules.files={all}", "files"),
        (Chart::Aggregator, "backend.url=prometheus:9090", "url"),
        (Chart::Aggregator, "backend.flavour=mimir", "flavour"),
        (Chart::Aggregator, "sweeper.enabled=maybe", "enabled"),
    ];
    for (chart, values, complaint) in cases {
        let refusal = chart.render(NAMESPACE, &["--set", values]).await.expect_err(values).to_string();
        assert!(refusal.contains(complaint), "{values}: {refusal}");
    }
}

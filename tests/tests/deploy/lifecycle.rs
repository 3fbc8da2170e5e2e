//! Install, upgrade and remove with Helm itself.

use super::*;
use statusbridge_tests::{Etcd, SOON, eventually, run};

/// A copy of the aggregator's chart as it might have been before: its CRDs lack a field, and a label that changes.
fn older(rig: &statusbridge_tests::Rig) -> Result<PathBuf> {
    let copy = rig.subdir("older")?;
    let from = Chart::Aggregator.dir();
    let status = std::process::Command::new("cp").arg("-R").arg(from.join(".")).arg(&copy).status()?;
    ensure!(status.success(), "the chart cannot be copied");
    let file = copy.join("files/crds/statusbridge.dev_rolloutgates.yaml");
    let mut crd = crds::documents(&std::fs::read_to_string(&file)?)?.remove(0);
    for version in crd["spec"]["versions"].as_array_mut().context("no versions")? {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let taken = spec["properties"].as_object_mut().context("no fields")?.remove("minSuccessTime");
        ensure!(taken.is_some(), "there is no such field to be taken away");
        // Its rules speak of the field.
        version["schema"]["openAPIV3Schema"].as_object_mut().unwrap().remove("x-kubernetes-validations");
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("x-kubernetes-validations");
    }
    std::fs::write(&file, crd.to_string())?;
    Ok(copy)
}

struct Release<'a> {
    api: &'a ApiServer,
}

impl Release<'_> {
    async fn helm(&self, args: &[&str]) -> Result<String> {
        let kubeconfig = self.api.kubeconfig().to_str().unwrap();
        helm(&[&["--kubeconfig", kubeconfig, "--namespace", NAMESPACE], args].concat()).await
    }

    /// Names of all objects of a kind in the release's namespace and beyond, with ours in them.
    async fn ours(&self, resources: &str) -> Result<Vec<String>> {
        let names = self.api.kubectl(&["get", resources, "--all-namespaces", "--output=name"]).await?;
        Ok(names.lines().filter(|name| name.contains("statusbridge")).map(str::to_owned).collect())
    }
}

/// Everything that a chart can make.
const MADE: &str = "deployments,services,serviceaccounts,configmaps,secrets,networkpolicies,poddisruptionbudgets,\
    roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";

/// What the aggregator's chart installs.
const CRDS: [&str; 7] = [
    "fleetpackages",
    "fleetpackageslices",
    "fleetrollouts",
    "fleetrolloutslices",
    "rolloutapprovals",
    "rolloutfreezes",
    "rolloutgates",
];

#[tokio::test]
async fn an_upgrade_keeps_objects_and_removal_leaves_nothing_that_blocks() {
    run("deploy-lifecycle", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        restricted_namespace(&api, NAMESPACE).await?;
        let release = Release { api: &api };
        let older = older(rig)?;
        let chart = Chart::Aggregator.dir();
        let (older, chart) = (older.to_str().unwrap(), chart.to_str().unwrap());
        release.helm(&["install", "statusbridge-aggregator", older]).await?;
        let exporter = Chart::Exporter.dir();
        release.helm(&["install", "statusbridge-exporter", exporter.to_str().unwrap()]).await?;

        let gate = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"name": "wave", "namespace": "default"},
            "spec": {"fleetPackageRef": {"name": "app"}, "revision": "v1", "clusters": {"names": ["c1"]}},
        });
        let package = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": {"name": "app", "namespace": "default"},
            "spec": {"package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "app"}},
        });
        let before = [api.apply_object(&package).await?, api.apply_object(&gate).await?];
        let mut soaking = gate.clone();
        soaking["spec"]["minSuccessTime"] = json!("10m");
        let refused = format!("{:?}", api.apply_object(&soaking).await.err());
        ensure!(refused.contains("minSuccessTime"), "the older chart knows the field: {refused}");

        release.helm(&["upgrade", "statusbridge-aggregator", chart]).await?;
        eventually(SOON, "the new field is known", async || api.apply_object(&soaking).await).await?;
        let after = [api.apply_object(&package).await?, api.apply_object(&gate).await?];
        for (before, after) in before.iter().zip(&after) {
            ensure!(before.metadata.uid == after.metadata.uid, "another object: {after:?}");
            ensure!(before.data["status"] == after.data["status"], "another status: {after:?}");
            ensure!(after.metadata.finalizers.as_ref().is_none_or(Vec::is_empty), "a finalizer: {after:?}");
        }

        // Uninstalled: the CRDs and what was made of them stay, everything else is gone.
        for name in ["statusbridge-exporter", "statusbridge-aggregator"] {
            release.helm(&["uninstall", name]).await?;
        }
        let left = release.ours(MADE).await?;
        // Helm keeps no history, and the namespace's own accounts have other names.
        ensure!(left.is_empty(), "left: {left:?}");
        ensure!(release.ours("crds").await?.len() == CRDS.len(), "the CRDs are gone");
        api.kubectl(&["get", "fleetpackage/app", "rolloutgate/wave", "--namespace", "default"]).await?;

        // It can be installed again over what stayed.
        release.helm(&["install", "statusbridge-aggregator", chart]).await?;
        release.helm(&["uninstall", "statusbridge-aggregator"]).await?;

        // And wholly removed, with nobody there who could take a finalizer away.
        let crds = CRDS.map(|plural| format!("{plural}.statusbridge.dev"));
        let mut delete = vec!["delete", "crd", "--wait=false"];
        delete.extend(crds.iter().map(String::as_str));
        api.kubectl(&delete).await?;
        let mut looks = 0;
        eventually(SOON, "no CRD is left", async || {
            let left = release.ours("crds").await?;
            // A CRD whose instances the API server could not list at once is looked at again only when it changes.
            looks += 1;
            if !left.is_empty() {
                api.kubectl(&["annotate", "crd", "--all", "--overwrite", &format!("looks={looks}")]).await?;
            }
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    })
    .await;
}

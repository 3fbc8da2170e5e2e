//! KubeFleet's real controller of staged updates and Open Cluster Management's real placement controller: the next stage
//! starts, and the next clusters are placed on, only after the gate.

use super::*;

/// The package's name in the recipes.
const PACKAGE: &str = "payments";
/// The revision in the recipes.
const REVISION: &str = "main@sha1:4f0e2a91c3d5b7e6f80912a4b6c8d0e2f4a6b8c0";

/// A controller of whose options there are none.
pub(super) fn controller(rig: &Rig, name: &str, api: &ApiServer) -> Result<Process> {
    let env = [("KUBECONFIG", api.kubeconfig().into()), ("NO_PROXY", "127.0.0.1".into())];
    Process::spawn(rig, name, &program(name)?, [] as [&str; 0], env)
}

/// The object of this kind in a recipe, in namespace default.
fn of_kind(recipe: &[Value], kind: &str) -> Result<Value> {
    recipe.iter().find(|object| object["kind"] == kind).cloned().with_context(|| format!("no {kind}"))
}

/// Applies everything of a recipe but what runs pods, which nobody does here.
async fn apply(api: &ApiServer, recipe: &[Value]) -> Result<()> {
    wait_role(api).await?;
    let runs_pods = ["Job", "CronJob", "Deployment"];
    for object in recipe.iter().filter(|object| !runs_pods.iter().any(|kind| object["kind"] == *kind)) {
        api.apply_object(object).await?;
    }
    Ok(())
}

/// A condition that is True for the generation that an object has.
fn condition(kind: &str, object: &DynamicObject) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Test", "message": "",
        "observedGeneration": object.metadata.generation, "lastTransitionTime": jiff::Timestamp::now(),
    })
}

/// Adds a condition that is True to those of an object, and writes these fields of its status.
async fn becomes(objects: &Api<DynamicObject>, name: &str, kind: &str, mut status: Value) -> Result<()> {
    let object = objects.get(name).await?;
    let mut conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.push(condition(kind, &object));
    status["conditions"] = json!(conditions);
    let patch = Patch::Merge(json!({"status": status}));
    objects.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What KubeFleet's other controllers would have made of a placement on c1 and then c2.
fn staged_update() -> Vec<Value> {
    let group = "placement.kubernetes-fleet.io/v1beta1";
    let of_placement = |more: Value| {
        let mut labels = json!({"kubernetes-fleet.io/parent-CRP": PACKAGE});
        labels.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        labels
    };
    let cluster = |name: &str, wave: &str| {
        json!({
            "apiVersion": "cluster.kubernetes-fleet.io/v1beta1", "kind": "MemberCluster",
            "metadata": {"name": name, "labels": {"wave": wave}},
            "spec": {"identity": {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}},
        })
    };
    let binding = |cluster: &str| {
        json!({
            "apiVersion": group, "kind": "ClusterResourceBinding",
            "metadata": {"name": cluster, "labels": of_placement(json!({}))},
            "spec": {
                "state": "Scheduled", "targetCluster": cluster, "resourceSnapshotName": "",
                "schedulingPolicySnapshotName": "payments-0",
                "clusterDecision": {"clusterName": cluster, "selected": true, "reason": "test"},
            },
        })
    };
    let stage = |wave: &str, tasks: Value| json!({"name": format!("wave{wave}"), "labelSelector": {"matchLabels": {"wave": wave}}, "afterStageTasks": tasks});
    vec![
        cluster("c1", "1"),
        cluster("c2", "2"),
        json!({
            "apiVersion": group, "kind": "ClusterResourcePlacement", "metadata": {"name": PACKAGE},
            "spec": {
                "resourceSelectors": [{"group": "", "version": "v1", "kind": "Namespace", "name": "default"}],
                "strategy": {"type": "External"},
            },
        }),
        json!({
            "apiVersion": group, "kind": "ClusterSchedulingPolicySnapshot",
            "metadata": {
                "name": "payments-0",
                "labels": of_placement(json!({
                    "kubernetes-fleet.io/is-latest-snapshot": "true", "kubernetes-fleet.io/policy-index": "0",
                })),
            },
            "spec": {"policyHash": "aGFzaA=="},
        }),
        json!({
            "apiVersion": group, "kind": "ClusterResourceSnapshot",
            "metadata": {
                "name": "payments-2-snapshot",
                "labels": of_placement(json!({
                    "kubernetes-fleet.io/is-latest-snapshot": "true", "kubernetes-fleet.io/resource-index": "2",
                })),
                "annotations": {
                    "kubernetes-fleet.io/resource-hash": "hash", "kubernetes-fleet.io/number-of-resource-snapshots": "1",
                },
            },
            "spec": {"selectedResources": [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
            ]},
        }),
        binding("c1"),
        binding("c2"),
        json!({
            "apiVersion": group, "kind": "ClusterStagedUpdateStrategy", "metadata": {"name": "waves"},
            "spec": {"stages": [stage("1", json!([{"type": "Approval"}])), stage("2", json!([]))]},
        }),
    ]
}

/// A request about the first stage of a run with these annotations, of a placement that does not exist.
async fn another_request(api: &ApiServer, name: &str, annotations: Value) -> Result<()> {
    let group = "placement.kubernetes-fleet.io/v1beta1";
    api.apply_object(&json!({
        "apiVersion": group, "kind": "ClusterStagedUpdateRun", "metadata": {"name": name, "annotations": annotations},
        "spec": {"placementName": "other", "resourceSnapshotIndex": "0", "stagedRolloutStrategyName": "waves"},
    }))
    .await?;
    api.apply_object(&json!({
        "apiVersion": group, "kind": "ClusterApprovalRequest", "metadata": {"name": format!("{name}-wave1")},
        "spec": {"parentStageRollout": name, "targetStage": "wave1"},
    }))
    .await?;
    Ok(())
}

/// The container of a recipe's Deployment as a process, with the rights of its service account.
async fn deployed_process(rig: &Rig, api: &ApiServer, deployment: &Value) -> Result<Process> {
    let pod = &deployment["spec"]["template"]["spec"];
    let account = pod::account(api, pod).await?;
    let container = &pod["containers"][0];
    let args = container["args"].as_array().context("no arguments")?;
    let args: Vec<String> = args.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let env = [("KUBECONFIG", account.into()), ("NO_PROXY", "127.0.0.1".into())];
    let name = container["name"].as_str().context("no name")?;
    Process::spawn(rig, name, &own_program("statusbridge").await?, args, env)
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn kubefleet_starts_the_next_stage_only_after_the_gate_is_open() {
    run("e2e-recipes-kubefleet", async |rig| {
        let one = One::start(rig).await?;
        let hub = &one.hub;
        let api = &hub.api;
        api.install_crds(&crds::consumer("kubefleet")?).await?;
        for object in staged_update() {
            api.apply_object(&object).await?;
        }
        let kind = |name: &str| GroupVersionKind::gvk("placement.kubernetes-fleet.io", "v1beta1", name);
        let policies = api.dynamic(&kind("ClusterSchedulingPolicySnapshot"), None).await?;
        becomes(&policies, "payments-0", "Scheduled", json!({"observedCRPGeneration": 1})).await?;
        let _controller = controller(rig, "kubefleet-updaterun", api)?;
        is_accepted(api, "kubefleet.yaml").await?;
        let recipe: Vec<Value> = recipe("kubefleet.yaml")?;
        let run = pod::with(&of_kind(&recipe, "ClusterStagedUpdateRun")?, &[(REVISION, &revision(2))])?;
        let others = recipe.iter().filter(|object| object["kind"] != "ClusterStagedUpdateRun");
        apply(api, &others.cloned().chain([run]).collect::<Vec<_>>()).await?;
        another_request(api, "by-hand", json!({})).await?;
        another_request(api, "in-vain", json!({"gate.statusbridge.dev/wave1": "wave-1"})).await?;
        let bindings = api.dynamic(&kind("ClusterResourceBinding"), None).await?;
        let requests = api.dynamic(&kind("ClusterApprovalRequest"), None).await?;
        let state = async |cluster: &str| -> Result<Value> {
            Ok(bindings.get(cluster).await?.data["spec"]["state"].take())
        };

        // The first stage is done as far as KubeFleet can see, and it asks.
        eventually(SOON, "the first stage has started", async || {
            let binding = bindings.get("c1").await?;
            ensure!(history::condition(&binding, "RolloutStarted").0 == "True", "{}", binding.data["status"]);
            Ok(())
        })
        .await?;
        becomes(&bindings, "c1", "Available", json!({})).await?;
        let request = async || requests.get("payments-2-wave1").await;
        eventually(SOON, "KubeFleet asks for approval", async || Ok(request().await?)).await?;

        // A person refuses what the gate would let pass.
        let named = json!({
            "gate.statusbridge.dev/wave1": "default/wave-1", "statusbridge.dev/revision": revision(2),
        });
        another_request(api, "refused", named).await?;
        let mut refusal = condition("Approved", &requests.get("refused-wave1").await?);
        refusal["status"] = json!("False");
        let refusal = Patch::Merge(json!({"status": {"conditions": [refusal]}}));
        requests.patch_status("refused-wave1", &PatchParams::default(), &refusal).await?;
        let conditions = async |name: &str| -> Result<Value> {
            Ok(requests.get(name).await?.data["status"]["conditions"].take())
        };
        let waits = async |approver: &Process, why: &str| -> Result<()> {
            eventually(SOON, &format!("the request waits: {why}"), async || {
                let log = approver.log();
                ensure!(
                    log.lines().any(|line| line.contains("payments-2-wave1: waits") && line.contains(why)),
                    "{log}"
                );
                Ok(())
            })
            .await?;
            let now = conditions("payments-2-wave1").await?;
            ensure!(now.is_null(), "{now}");
            ensure!(state("c2").await? == "Scheduled");
            Ok(())
        };

        // The gate is open, but for the revision before.
        hub.gate("wave-1", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave-1", SOON).await?;
        let approver = deployed_process(rig, api, &of_kind(&recipe, "Deployment")?).await?;
        waits(&approver, "OtherRevision").await?;
        // It is still open in its status, and nobody judges it at the revision.
        hub.aggregator.process().kill();
        one.at(2);
        let moved = hub.gate("wave-1", APP, &revision(2), json!({"clusters": {"names": ["c1"]}})).await?;
        ensure!(history::condition(&moved, "Open").0 == "True", "{}", moved.data["status"]);
        waits(&approver, "has not been judged yet").await?;

        hub.aggregator.process().start()?;
        hub.opens("wave-1", SOON).await?;
        eventually(SOON, "the second stage has started", async || {
            let request = request().await?;
            ensure!(
                history::condition(&request, "ApprovalAccepted").0 == "True",
                "{}",
                request.data["status"]
            );
            let state = state("c2").await?;
            ensure!(state == "Bound", "{state}");
            Ok(())
        })
        .await?;
        let approved = conditions("payments-2-wave1").await?;
        let approved = approved.as_array().into_iter().flatten().find(|it| it["type"] == "Approved");
        let message = approved.and_then(|it| it["message"].as_str()).context("no condition Approved")?;
        ensure!(message.starts_with("gate default/wave-1 is open for revision"), "{message}");

        // A person approves what names no gate, and what names it wrongly is told of once.
        for name in ["by-hand-wave1", "in-vain-wave1"] {
            let now = conditions(name).await?;
            ensure!(now.is_null(), "{name}: {now}");
        }
        let refused = conditions("refused-wave1").await?;
        ensure!(refused[0]["status"] == "False" && refused[1].is_null(), "{refused}");
        let ended = approver.terminate(SOON).await?;
        ensure!(ended.success(), "{ended}");
        let log = approver.log();
        ensure!(!log.contains("by-hand") && log.matches("in-vain-wave1: ").count() == 1, "{log}");
        Ok(())
    })
    .await;
}

/// The clusters that a Placement got.
async fn decisions(api: &ApiServer, placement: &str) -> Result<Vec<String>> {
    let kind = GroupVersionKind::gvk("cluster.open-cluster-management.io", "v1beta1", "PlacementDecision");
    let of = format!("cluster.open-cluster-management.io/placement={placement}");
    let all = api.dynamic(&kind, Some("default")).await?.list(&ListParams::default().labels(&of)).await?;
    let all = all.items.iter().filter_map(|item| item.data["status"]["decisions"].as_array());
    let mut names: Vec<String> =
        all.flatten().filter_map(|decision| decision["clusterName"].as_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn open_cluster_management_places_on_the_next_clusters_only_after_the_gate_is_open() {
    run("e2e-recipes-ocm", async |rig| {
        let one = One::start(rig).await?;
        let hub = &one.hub;
        let api = &hub.api;
        api.install_crds(&crds::open_cluster_management()?).await?;
        let group = "cluster.open-cluster-management.io";
        api.apply_object(&json!({
            "apiVersion": format!("{group}/v1beta2"), "kind": "ManagedClusterSet", "metadata": {"name": "global"},
            "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
        }))
        .await?;
        api.apply_object(&json!({
            "apiVersion": format!("{group}/v1beta2"), "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": "default"}, "spec": {"clusterSet": "global"},
        }))
        .await?;
        for (name, wave) in [("c1", "1"), ("c2", "2")] {
            api.apply_object(&json!({
                "apiVersion": format!("{group}/v1"), "kind": "ManagedCluster",
                "metadata": {"name": name, "labels": {"wave": wave}}, "spec": {"hubAcceptsClient": true},
            }))
            .await?;
        }
        is_accepted(api, "open-cluster-management.yaml").await?;
        let recipe = recipe("open-cluster-management.yaml")?;
        apply(api, &recipe).await?;
        let _controller = controller(rig, "ocm-placement", api)?;
        let gets = async |placement: &str, clusters: &[&str]| {
            eventually(SOON, &format!("the Placement {placement} gets {clusters:?}"), async || {
                let now = decisions(api, placement).await?;
                ensure!(now == clusters, "{now:?}");
                Ok(())
            })
            .await
        };
        gets("payments", &["c1"]).await?;

        let job = pod::with(&of_kind(&recipe, "Job")?, &[(REVISION, &revision(2)), ("1h", "5s")])?;
        let wave = job["spec"]["template"]["spec"].clone();
        let account = pod::account(api, &wave).await?;
        let job = |most_age: &str| {
            let job = of_kind(&recipe, "CronJob")?;
            let job = pod::with(&job, &[("\"PACKAGE\",\"value\":\"payments\"", &format!("\"PACKAGE\",\"value\":\"{APP}\"")), ("240", most_age)])?;
            Ok::<_, anyhow::Error>(job["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone())
        };
        let admits = async |most_age: &str| {
            let ended = pod::run(&job(most_age)?, &account).await?;
            ensure!(ended.code == 0, "{ended:?}");
            Ok(ended.said.contains("managedcluster.cluster.open-cluster-management.io/c1 labeled"))
        };

        // The gate is closed, and the package not at the wanted revision.
        let all = json!({"revision": revision(2), "detail": "All"});
        hub.report(APP, STALE_AFTER, all).await?;
        hub.gate("wave-1", APP, &revision(2), json!({"clusters": {"names": ["c1"]}})).await?;
        hub.closes("wave-1", "RevisionNeverSeen", SOON).await?;
        let ended = pod::run(&wave, &account).await?;
        ensure!(ended.code == 4, "{ended:?}");
        ensure!(!admits("240").await?);

        one.at(2);
        hub.opens("wave-1", SOON).await?;
        let ended = pod::run(&wave, &account).await?;
        ensure!(ended.code == 0, "{ended:?}");
        gets("payments", &["c1", "c2"]).await?;

        // Rows that are too old, or answer another spec, place nothing.
        eventually(SOON, "the slice says that the cluster is healthy", async || {
            let said = api.kubectl(&["get", "fleetpackageslices", "-o", "json"]).await?;
            ensure!(said.contains("Succeeded"), "{said}");
            Ok(())
        })
        .await?;
        hub.aggregator.process().kill();
        ensure!(!admits("0").await?);
        hub.report(APP, STALE_AFTER, json!({"revision": revision(3), "detail": "All"})).await?;
        ensure!(!admits("240").await?);
        ensure!(decisions(api, "needs-payments").await?.is_empty());
        hub.report(APP, STALE_AFTER, json!({"revision": revision(2), "detail": "All"})).await?;
        hub.aggregator.process().start()?;
        eventually(SOON, "the cluster is admitted", async || {
            ensure!(admits("240").await?, "not yet");
            Ok(())
        })
        .await?;
        gets("needs-payments", &["c1"]).await?;

        // A dead bridge takes nothing away.
        hub.aggregator.process().kill();
        ensure!(!admits("0").await?);
        gets("payments", &["c1", "c2"]).await?;
        gets("needs-payments", &["c1"]).await
    })
    .await;
}

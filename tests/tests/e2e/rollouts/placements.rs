//! PlacementDecisions of a FleetRollout: Open Cluster Management's real controller of ManifestWorkReplicaSets places by them.

use super::*;
use kube::api::Api;
use kube::core::GroupVersionKind;
use statusbridge_contract::Fingerprint;

/// The set of a revision, which is also the name of what places it.
fn set_of(number: u32) -> String {
    format!("{APP}-{}", Fingerprint::of(&revision(number)))
}

/// Lets the aggregator write PlacementDecisions, as shipped.
async fn may_place(api: &ApiServer) -> Result<()> {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/placement-decisions.yaml");
    api.apply(&std::fs::read_to_string(file)?.replace("namespace: fleet", "namespace: default")).await
}

/// What the condition Ready says.
fn message(rollout: &DynamicObject) -> String {
    let mut conditions = rollout.data["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default().to_owned()
}

impl Setup {
    /// Makes or changes a rollout with PlacementDecisions of this API.
    async fn places(&self, number: u32, api: &str, waves: Value) -> Result<()> {
        self.hub
            .api
            .apply_object(&json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
                "metadata": {"name": APP, "namespace": "default"},
                "spec": {
                    "fleetPackageRef": {"name": APP}, "revision": revision(number), "waves": waves,
                    "placementDecisions": [api],
                },
            }))
            .await
            .map(drop)
    }

    /// What Open Cluster Management makes of the set of a revision: a ManifestWorkReplicaSet that places by it. Its
    /// Placement is not decided upon by anybody else.
    async fn replica_set(&self, number: u32) -> Result<()> {
        let metadata = |more: Value| {
            let mut metadata = json!({"name": set_of(number), "namespace": "default"});
            metadata
                .as_object_mut()
                .into_iter()
                .for_each(|it| it.extend(more.as_object().cloned().unwrap_or_default()));
            metadata
        };
        let unscheduled =
            json!({"cluster.open-cluster-management.io/experimental-scheduling-disable": "true"});
        self.hub
            .api
            .apply_object(&json!({
                "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
                "metadata": metadata(json!({"annotations": unscheduled})), "spec": {},
            }))
            .await?;
        self.hub
            .api
            .apply_object(&json!({
                "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
                "metadata": metadata(json!({})),
                "spec": {
                    "placementRefs": [{"name": set_of(number), "rolloutStrategy": {"type": "All"}}],
                    "manifestWorkTemplate": {
                        "deleteOption": {"propagationPolicy": "Orphan"},
                        "workload": {"manifests": [{
                            "apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": APP, "namespace": "default"}, "data": {"revision": revision(number)},
                        }]},
                    },
                },
            }))
            .await
            .map(drop)
    }

    fn works(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("work.open-cluster-management.io", "v1", "ManifestWork");
        Api::all_with(self.hub.api.client(), &kube::core::ApiResource::from_gvk(&kind))
    }

    /// The clusters that have a ManifestWork of a revision.
    async fn placed(&self, number: u32) -> Result<BTreeSet<String>> {
        let works = self.works().list(&ListParams::default()).await?;
        let of =
            works.items.into_iter().filter(|work| work.metadata.name.as_deref() == Some(&set_of(number)));
        Ok(of.filter_map(|work| work.metadata.namespace).collect())
    }

    async fn is_placed(&self, number: u32, clusters: &BTreeSet<String>) -> Result<()> {
        eventually(SOON, &format!("revision {number} is placed in {clusters:?}"), async || {
            let placed = self.placed(number).await?;
            ensure!(placed == *clusters, "{placed:?}");
            Ok(())
        })
        .await
    }
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn open_cluster_management_places_a_revision_where_it_is_admitted() {
    run("e2e-rollouts-ocm", async |rig| {
        let setup = Setup::start(rig).await?;
        let api = &setup.hub.api;
        api.install_crds(&crds::open_cluster_management()?).await?;
        for cluster in CLUSTERS {
            api.ensure_namespace(cluster).await?;
        }
        let _controller = Process::spawn(
            rig,
            "ocm-work-hub",
            &program("ocm-work")?,
            [] as [&str; 0],
            [("KUBECONFIG", api.kubeconfig().into()), ("NO_PROXY", "127.0.0.1".into())],
        )?;
        setup.replica_set(2).await?;
        let group = "cluster.open-cluster-management.io";

        // Without the right the rollout goes on, and says what is missing.
        setup.places(2, group, three_waves()).await?;
        let canary = setup.admits(2, 1).await?;
        let rollout = setup.says(APP, "NotWritten").await?;
        let said = message(&rollout);
        ensure!(said.contains("placementdecisions") && said.contains(group), "{said}");
        may_place(api).await?;
        setup.is_placed(2, &canary).await?;

        // Behind a closed gate nobody further gets it, and nothing is taken from who has it while the bridge is away.
        setup.hub.aggregator.process().kill();
        setup.deliver(2, &canary);
        holds_for(A_WHILE, "what is placed stays", async || {
            ensure!(setup.placed(2).await? == canary, "{:?}", setup.placed(2).await?);
            Ok(())
        })
        .await?;
        setup.hub.aggregator.process().start()?;
        for many in [2, 3, 6] {
            let admitted = setup.admits(2, many).await?;
            setup.is_placed(2, &admitted).await?;
            setup.deliver(2, &admitted);
        }
        setup.says(APP, "RolledOut").await?;

        // The next revision: a cluster goes from one set to the other, and is in one of them all the time.
        setup.replica_set(3).await?;
        setup.places(3, group, three_waves()).await?;
        let canary = setup.admits(3, 1).await?;
        let all: BTreeSet<String> = CLUSTERS.map(str::to_owned).into();
        let rest: BTreeSet<String> = all.difference(&canary).cloned().collect();
        setup.is_placed(3, &canary).await?;
        setup.is_placed(2, &rest).await?;

        // Deleted, it leaves everything where it is.
        let rollouts = api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
        rollouts.delete(APP, &DeleteParams::default()).await?;
        holds_for(A_WHILE, "all that is placed stays", async || {
            ensure!(setup.placed(3).await? == canary && setup.placed(2).await? == rest);
            Ok(())
        })
        .await?;
        ensure!(setup.record().await?.len() == CLUSTERS.len(), "{:?}", setup.record().await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn sig_multiclusters_placement_decisions_name_the_profiles_of_admitted_clusters() {
    run("e2e-rollouts-placements", async |rig| {
        let setup = Setup::start(rig).await?;
        let api = &setup.hub.api;
        api.install_crds(&[crds::cluster_inventory()?, crds::consumer("cluster-inventory")?].concat())
            .await?;
        may_place(api).await?;
        let profile = |name: &str| {
            json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"clusterManager": {"name": "test"}},
            })
        };
        for cluster in &CLUSTERS[..5] {
            api.apply_object(&profile(cluster)).await?;
        }
        let kind = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "PlacementDecision");
        let decisions = api.dynamic(&kind, Some("default")).await?;
        let named = async |number: u32| -> Result<Vec<String>> {
            let of = ListParams::default()
                .labels(&format!("multicluster.x-k8s.io/decision-key={}", set_of(number)));
            let all = decisions.list(&of).await?.items;
            let rows = all.iter().flat_map(|it| it.data["decisions"].as_array().into_iter().flatten());
            let mut names: Vec<String> =
                rows.filter_map(|row| row["clusterProfileRef"]["name"].as_str().map(str::to_owned)).collect();
            names.sort();
            Ok(names)
        };
        let are_named = async |number: u32, expected: &[&str]| {
            eventually(SOON, &format!("{expected:?} are named for revision {number}"), async || {
                let named = named(number).await?;
                ensure!(named == expected, "{named:?}");
                Ok(())
            })
            .await
        };

        let waves = json!([{"name": "all", "clusters": {"percentage": "100%"}}]);
        setup.places(2, "multicluster.x-k8s.io", waves.clone()).await?;
        are_named(2, &CLUSTERS[..5]).await?;
        eventually(SOON, "the one without a profile is counted", async || {
            let said = message(&setup.says(APP, "NotWritten").await?);
            ensure!(
                said.starts_with("1 admitted cluster has no ClusterProfile") && said.ends_with(": c6"),
                "{said}"
            );
            Ok(())
        })
        .await?;
        api.apply_object(&profile("c6")).await?;
        are_named(2, &CLUSTERS).await?;

        // A profile that goes takes nobody out: whoever places by it would remove what runs there. Who was never
        // admitted is taken out.
        let profiles = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
        let profiles = api.dynamic(&profiles, Some("default")).await?;
        profiles.delete("c1", &DeleteParams::default()).await?;
        api.apply_object(&profile("evil")).await?;
        let name = format!("{}-0", set_of(2));
        let mut all: Vec<Value> = CLUSTERS
            .iter()
            .map(|name| json!({"clusterProfileRef": {"name": name, "namespace": "default"}}))
            .collect();
        all.push(json!({"clusterProfileRef": {"name": "evil", "namespace": "default"}}));
        decisions.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"decisions": all}))).await?;
        setup.hub.aggregator.process().kill();
        setup.hub.aggregator.process().start()?;
        are_named(2, &CLUSTERS).await
    })
    .await
}

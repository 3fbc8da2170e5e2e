//! FleetPackages that read their revision from another object of the hub: it is followed, and nothing is
//! kept of one that is not there.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::PathBuf;
use std::time::Duration;

const CLUSTERS: [&str; 2] = ["c1", "c2"];

/// Clusters that are at the first revision, reported to a hub without anything else.
struct Few {
    fleet: FakeFleet,
    hub: Hub,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl Few {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let few = |job, name: &&str| fleet.target(job, name, &[]);
        let config = PrometheusConfig::with_jobs([CLUSTERS.iter().fold(job(), few)]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let few = Self { fleet, hub, _prometheus: prometheus, _etcd: etcd };
        few.all_at(1);
        Ok(few)
    }

    fn all_at(&self, number: u32) {
        for name in CLUSTERS {
            self.fleet.says(name, APP, FakePackage::healthy_at(&revision(number)));
        }
    }

    async fn refer(&self, api_version: &str, kind: &str, name: &str, expression: &str) -> Result<()> {
        let from = json!({"apiVersion": api_version, "kind": kind, "name": name, "expression": expression});
        self.hub.report(APP, STALE_AFTER, json!({"revisionFrom": from})).await
    }

    /// Waits until Ready is like this, at the revision of this number or at none.
    async fn ready(&self, status: &str, reason: &str, number: Option<u32>) -> Result<DynamicObject> {
        let wanted = number.map_or(Value::Null, |number| json!(revision(number)));
        eventually(SOON, &format!("Ready={status}, {reason} at {wanted}"), async || {
            let report = self.hub.reports(APP, "Ready", status, reason, Duration::from_secs(5)).await?;
            ensure!(report.data["status"]["revision"] == wanted, "{}", report.data["status"]);
            Ok(report)
        })
        .await
    }

    async fn config_map(&self, name: &str, revision: &str) -> Result<()> {
        self.put("default", name, json!({"revision": revision})).await
    }

    async fn put(&self, namespace: &str, name: &str, data: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
            "data": data,
        });
        self.hub.api.apply_object(&object).await.map(drop)
    }

    async fn delete(&self, api_version: &str, kind: &str, name: &str) -> Result<()> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let api: Api<DynamicObject> = self.hub.api.dynamic(&kind, Some("default")).await?;
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// What somebody who runs the platform does to let the aggregator read a kind.
    async fn let_read(&self, group: &str, resource: &str) -> Result<()> {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("statusbridge-aggregator-{resource}"),
                "labels": {"rbac.statusbridge.dev/aggregate-to-aggregator": "true"},
            },
            "rules": [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}],
        });
        self.hub.api.apply_object(&role).await?;
        self.hub.api.aggregate_cluster_roles().await
    }
}

fn message<'a>(report: &'a DynamicObject, kind: &str) -> &'a str {
    let conditions = report.data["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

fn git_repositories() -> Result<PathBuf> {
    let mut files = crds::flux()?.into_iter();
    files.find(|file| file.to_string_lossy().ends_with("gitrepositories.yaml")).context("no CRD")
}

const FLUX: &str = "source.toolkit.fluxcd.io/v1";

async fn publish(few: &Few, number: Option<u32>) -> Result<()> {
    let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
    let api: Api<DynamicObject> = few.hub.api.dynamic(&kind, Some("default")).await?;
    let artifact = number.map(|number| {
        json!({
            "revision": revision(number), "path": "p", "url": "http://source/p",
            "digest": "sha256:0", "lastUpdateTime": "2026-01-01T00:00:00Z",
        })
    });
    let patch = json!({"status": {"artifact": artifact}});
    api.patch_status(APP, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

#[tokio::test]
async fn a_reference_is_followed_and_nothing_is_kept_of_one_that_breaks() {
    run("e2e-references", async |rig| {
        let few = Few::start(rig).await?;
        let (hub, api) = (&few.hub, &few.hub.api);
        // A gate does not care how the FleetPackage comes to its revision.
        few.refer(FLUX, "GitRepository", APP, "object.status.artifact.revision").await?;
        hub.gate("wave", APP, &revision(1), json!({"clusters": {"names": CLUSTERS}})).await?;
        hub.opens("wave", SOON).await?;
        let gate = hub.history("wave").await?;
        let history = History::record(api, &hub::kind("FleetPackage"), "default", APP).await?;

        // Step by step, each of which somebody else takes at some time.
        let report = few.ready("False", "RevisionNotFound", None).await?;
        ensure!(
            message(&report, "Reconciling").contains("no kind GitRepository in source.toolkit.fluxcd.io/v1")
        );
        // The gate was written first; the report may still know only the cluster that was seen first.
        eventually(SOON, "both clusters report", async || {
            let report = hub.get_report(APP).await?;
            ensure!(history::condition(&report, "Reporting").0 == "True", "{}", report.data["status"]);
            ensure!(report.data["status"]["clusters"]["total"] == 2, "{}", report.data["status"]);
            Ok(())
        })
        .await?;
        api.install_crds(&[git_repositories()?]).await?;
        let report = few.ready("False", "RevisionForbidden", None).await?;
        let missing = "may not list gitrepositories.source.toolkit.fluxcd.io";
        ensure!(message(&report, "Stalled").contains(missing), "{}", report.data["status"]);
        few.let_read("source.toolkit.fluxcd.io", "gitrepositories").await?;
        few.ready("False", "RevisionNotFound", None).await?;
        api.apply_object(&json!({
            "apiVersion": FLUX, "kind": "GitRepository", "metadata": {"name": APP, "namespace": "default"},
            "spec": {"url": "https://example.com/app", "interval": "1m"},
        }))
        .await?;
        let report = few.ready("False", "RevisionInvalid", None).await?;
        ensure!(message(&report, "Ready").contains("No such key"), "{}", report.data["status"]);
        publish(&few, Some(1)).await?;
        few.ready("True", "Healthy", Some(1)).await?;

        // The object moves, then the clusters.
        publish(&few, Some(2)).await?;
        few.ready("False", "NotUpdated", Some(2)).await?;
        publish(&few, None).await?;
        few.ready("False", "RevisionInvalid", None).await?;
        publish(&few, Some(1)).await?;
        few.ready("True", "Healthy", Some(1)).await?;

        // The reference changes: what was read for the one before does not count.
        few.config_map("versions", &revision(1)).await?;
        few.refer("v1", "ConfigMap", "versions", "object.data.revision").await?;
        let report = few.ready("False", "RevisionForbidden", None).await?;
        ensure!(message(&report, "Ready").contains("may not list configmaps"), "{}", report.data["status"]);
        few.let_read("", "configmaps").await?;
        few.ready("True", "Healthy", Some(1)).await?;
        few.refer("v1", "ConfigMap", "versions", "object.data.revision.nope(").await?;
        let report = few.ready("False", "InvalidSpec", None).await?;
        ensure!(history::condition(&report, "Stalled").0 == "True", "{}", report.data["status"]);
        few.refer("v1", "ConfigMap", "others", "object.data.revision").await?;
        few.ready("False", "RevisionNotFound", None).await?;
        few.config_map("others", &format!("{}\n", revision(1))).await?;
        few.ready("True", "Healthy", Some(1)).await?;
        few.refer("v1", "Namespace", "default", "object.metadata.name").await?;
        let report = few.ready("False", "InvalidSpec", None).await?;
        ensure!(message(&report, "Ready").contains("is no namespaced kind"), "{}", report.data["status"]);

        // What it refers to is deleted, and its whole kind.
        few.refer(FLUX, "GitRepository", APP, "object.status.artifact.revision").await?;
        few.ready("True", "Healthy", Some(1)).await?;
        few.delete(FLUX, "GitRepository", APP).await?;
        let report = few.ready("False", "RevisionNotFound", None).await?;
        ensure!(message(&report, "Ready").contains("there is no GitRepository"), "{}", report.data["status"]);
        api.kubectl(&["delete", "crd", "gitrepositories.source.toolkit.fluxcd.io", "--timeout=60s"]).await?;
        eventually(SOON, "the kind is missed", async || {
            let report = hub.get_report(APP).await?;
            ensure!(message(&report, "Ready").contains("no kind GitRepository"), "{}", report.data["status"]);
            Ok(())
        })
        .await?;
        // Literally again.
        hub.report(APP, STALE_AFTER, json!({"revision": revision(1)})).await?;
        few.ready("True", "Healthy", Some(1)).await?;

        gate.check("a gate's revision is literal", open).await?;
        history
            .check("Ready at a revision that is known", |version| {
                let status = &version.object.data["status"];
                let wanted = status["revision"].as_str();
                let known = wanted == Some(&revision(1));
                ensure!(version.condition("Ready").0 != "True" || known, "Ready at {wanted:?}");
                Ok(())
            })
            .await
    })
    .await;
}

#[tokio::test]
async fn a_new_aggregator_reads_references_anew_before_it_says_anything() {
    run("e2e-references-restart", async |rig| {
        let few = Few::start(rig).await?;
        let hub = &few.hub;
        few.let_read("", "configmaps").await?;
        few.config_map("versions", &revision(1)).await?;
        few.refer("v1", "ConfigMap", "versions", "object.data.revision").await?;
        few.ready("True", "Healthy", Some(1)).await?;
        let history = History::record(&hub.api, &hub::kind("FleetPackage"), "default", APP).await?;
        hub.aggregator.process().kill();
        hub.aggregator.process().start()?;
        let as_of = hub.get_report(APP).await?.data["status"]["asOf"].clone();
        eventually(SOON, "the new one has judged", async || {
            ensure!(hub.get_report(APP).await?.data["status"]["asOf"] != as_of, "not yet");
            Ok(())
        })
        .await?;
        let ready = |version: &history::Version| {
            ensure!(version.condition("Ready").0 == "True", "it was not Ready");
            Ok(())
        };
        history.check("a restart is no event", ready).await?;

        // What changed while nobody looked.
        hub.aggregator.process().kill();
        few.config_map("versions", &revision(2)).await?;
        hub.aggregator.process().start()?;
        few.ready("False", "NotUpdated", Some(2)).await?;
        few.all_at(2);
        few.ready("True", "Healthy", Some(2)).await?;
        hub.aggregator.process().kill();
        few.delete("v1", "ConfigMap", "versions").await?;
        hub.aggregator.process().start()?;
        few.ready("False", "RevisionNotFound", None).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_watch_that_broke_is_taken_up_again_and_ends_where_the_right_was_withdrawn() {
    run("e2e-references-broken-watch", async |rig| {
        let few = Few::start(rig).await?;
        let hub = &few.hub;
        few.let_read("", "configmaps").await?;
        few.config_map("versions", &revision(1)).await?;
        few.refer("v1", "ConfigMap", "versions", "object.data.revision").await?;
        few.ready("True", "Healthy", Some(1)).await?;
        // No watch of ours outlives the API server; the aggregator writes down each verdict.
        let verdicts = || std::fs::read_to_string(rig.log_path("aggregator")).context("no log");
        let before = verdicts()?.len();
        hub.api.stop();
        hub.api.start_again().await?;
        few.config_map("versions", &revision(2)).await?;
        few.ready("False", "NotUpdated", Some(2)).await?;
        // That is written down once the hub has it.
        let since = eventually(SOON, "the verdict is written down", async || {
            let since = verdicts()?.split_off(before);
            ensure!(since.contains("NotUpdated"), "{since}");
            Ok(since)
        })
        .await?;
        ensure!(!since.contains("Revision"), "there was another verdict: {since}");

        let role = "statusbridge-aggregator-configmaps";
        hub.api.kubectl(&["delete", "clusterrole", role]).await?;
        hub.api.aggregate_cluster_roles().await?;
        // A watch goes on until it breaks.
        hub.api.stop();
        hub.api.start_again().await?;
        few.ready("False", "RevisionForbidden", None).await?;
        few.let_read("", "configmaps").await?;
        few.ready("False", "NotUpdated", Some(2)).await.map(drop)
    })
    .await;
}

/// Takes the rules out of a schema, as a CRD of another time might lack them.
fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

#[tokio::test]
async fn a_secret_is_never_read_not_even_where_everybody_would_let_it() {
    run("e2e-references-secret", async |rig| {
        let few = Few::start(rig).await?;
        let api = &few.hub.api;
        // The aggregator is allowed to, and the CRD does not refuse it.
        few.let_read("", "secrets").await?;
        for mut crd in crds::definitions(&crds::own()?)? {
            without_rules(&mut crd);
            api.apply_object(&crd).await?;
        }
        let secret = "the-word-that-nobody-may-see";
        api.apply_object(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden", "namespace": "default"},
            "stringData": {"revision": secret},
        }))
        .await?;
        let history = History::record(api, &hub::kind("FleetPackage"), "default", APP).await?;
        for (api_version, kind) in
            [("v1", "Secret"), ("v1", "secret"), ("/v1", "Secret"), ("x.y/v1", "Secret")]
        {
            eventually(SOON, "the API server has taken in the CRD without rules", async || {
                few.refer(api_version, kind, "hidden", "object.data.revision").await
            })
            .await?;
            let report = few.ready("False", "InvalidSpec", None).await?;
            ensure!(history::condition(&report, "Stalled").0 == "True", "{}", report.data["status"]);
        }
        history
            .check("nothing of the Secret is said", |version| {
                let status = version.object.data["status"].to_string();
                ensure!(!status.contains(secret) && !status.contains("dGhlLXdvcmQ"), "it is");
                Ok(())
            })
            .await
    })
    .await;
}

#[tokio::test]
async fn many_references_to_one_kind_need_one_watch() {
    run("e2e-references-many", async |rig| {
        let few = Few::start(rig).await?;
        let (hub, many) = (&few.hub, 40);
        few.let_read("", "configmaps").await?;
        let watches = async || -> Result<f64> {
            let metrics = hub.api.kubectl(&["get", "--raw", "/metrics"]).await?;
            let ours = |line: &&str| {
                line.starts_with("apiserver_longrunning_requests{")
                    && line.contains("resource=\"configmaps\"")
                    && line.contains("scope=\"namespace\"")
                    && line.contains("verb=\"WATCH\"")
            };
            Ok(metrics.lines().filter(ours).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum())
        };
        let before = watches().await?;
        let from = |n: usize| {
            json!({"revisionFrom": {
                "apiVersion": "v1", "kind": "ConfigMap", "name": format!("versions-{n}"),
                "expression": "object.data.revision",
            }})
        };
        for n in 0..many {
            few.config_map(&format!("versions-{n}"), &format!("v1.{n}")).await?;
            hub.report(&format!("app-{n}"), STALE_AFTER, from(n)).await?;
        }
        for n in 0..many {
            eventually(SOON, &format!("app-{n} is resolved"), async || {
                let report = hub.get_report(&format!("app-{n}")).await?;
                let status = &report.data["status"];
                ensure!(status["revision"] == format!("v1.{n}"), "{status}");
                Ok(())
            })
            .await?;
        }
        ensure!(watches().await? - before == 1.0, "{} watches, {before} before", watches().await?);
        // One refers to another object and back again, while the watch goes on for the others.
        for n in [1, 0, 1, 0] {
            hub.report("app-0", STALE_AFTER, from(n)).await?;
            eventually(SOON, "it is resolved anew", async || {
                let report = hub.get_report("app-0").await?;
                ensure!(report.data["status"]["revision"] == format!("v1.{n}"), "{}", report.data["status"]);
                Ok(())
            })
            .await?;
        }
        // Nobody refers to any: no watch is left.
        for n in 0..many {
            hub.report(&format!("app-{n}"), STALE_AFTER, json!({})).await?;
        }
        eventually(SOON, "the watch is gone", async || {
            let now = watches().await?;
            ensure!(now == before, "{now} watches, {before} before");
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn large_objects_of_one_namespace_are_refused_and_those_of_another_are_followed() {
    run("e2e-references-large", async |rig| {
        let few = Few::start(rig).await?;
        let (hub, api) = (&few.hub, &few.hub.api);
        few.let_read("", "configmaps").await?;
        let kib = |kib: usize, revision: &str| json!({"revision": revision, "padding": "x".repeat(kib << 10)});

        // One that is too large, until it no longer is.
        few.put("default", "versions", kib(900, &revision(1))).await?;
        few.refer("v1", "ConfigMap", "versions", "object.data.revision").await?;
        let report = few.ready("False", "RevisionUnreadable", None).await?;
        let expected = "ConfigMap \"versions\" takes 901 KiB of JSON, and the aggregator reads 256 KiB at most: refer to a \
                        smaller object";
        ensure!(message(&report, "Ready").contains(expected), "{}", report.data["status"]);
        few.config_map("versions", &revision(1)).await?;
        few.ready("True", "Healthy", Some(1)).await?;

        // More than their namespace has room for.
        let (many, room) = (36, 32);
        let from = |name: &str| {
            json!({"revisionFrom": {
                "apiVersion": "v1", "kind": "ConfigMap", "name": name, "expression": "object.data.revision",
            }})
        };
        let pid = hub.aggregator.process().pid().context("it is gone")?;
        let before = usage::resident(pid)?;
        for n in 0..many {
            let name = format!("large-{n}");
            few.put("default", &name, kib(250, "v1")).await?;
            hub.report(&name, STALE_AFTER, from(&name)).await?;
        }
        let resolved = async || -> Result<Vec<String>> {
            let mut all = Vec::new();
            let mut late = 0;
            for n in 0..many {
                let report = hub.get_report(&format!("large-{n}")).await?;
                if report.data["status"]["revision"] == "v1" {
                    all.push(format!("large-{n}"));
                }
                late += usize::from(message(&report, "Ready").contains("the 8 MiB that the aggregator keeps"));
            }
            ensure!(all.len() + late >= many - 1, "{} are resolved and {late} refused", all.len());
            Ok(all)
        };
        let taken = eventually(SOON, "as many are resolved as have room", async || {
            let taken = resolved().await?;
            ensure!(taken.len() == room, "{} are", taken.len());
            Ok(taken)
        })
        .await?;
        println!("{} KiB more", usage::resident(pid)?.saturating_sub(before) >> 10);

        // Another namespace has room of its own, and the first one has room again.
        api.apply_object(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
            .await?;
        few.put("other", "versions", kib(250, "v1")).await?;
        let mut package = serde_json::to_value(hub.get_report(&taken[0]).await?)?;
        package["metadata"] = json!({"name": APP, "namespace": "other"});
        package["spec"]["revisionFrom"]["name"] = json!("versions");
        package.as_object_mut().context("no object")?.remove("status");
        api.apply_object(&package).await?;
        let others: Api<DynamicObject> = api.dynamic(&hub::kind("FleetPackage"), Some("other")).await?;
        for revision in ["v1", "v2"] {
            few.put("other", "versions", kib(250, revision)).await?;
            eventually(SOON, "the other namespace's is followed", async || {
                let report = others.get(APP).await?;
                ensure!(report.data["status"]["revision"] == revision, "{}", report.data["status"]);
                Ok(())
            })
            .await?;
        }
        few.delete("v1", "ConfigMap", &taken[0]).await?;
        eventually(SOON, "another one has its room", async || {
            let now = resolved().await?;
            ensure!(now.len() == room && !now.contains(&taken[0]), "{} are", now.len());
            Ok(())
        })
        .await
    })
    .await;
}

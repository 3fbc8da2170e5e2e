//! Two tenants who know nothing of each other.

use crate::e2e::profiles::profile;
use crate::e2e::world::*;
use anyhow::{Result, ensure};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_tests::*;

const POLICY: &str = r#"
tenants:
- namespaces: [team-a]
  clusters: [a-*, shared]
  packageNamespaces: [flux-system]
  sources: [flux-*]
- namespaces: [team-b]
  clusters: [b-*, shared]
  packageNamespaces: [flux-system]
  sources: [flux-kustomization]
"#;

/// The same for the second tenant, less for the first.
const LESS: &str = r#"
tenants:
- {namespaces: [team-a], clusters: [shared], packageNamespaces: [flux-system], sources: ["*"]}
- {namespaces: [team-b], clusters: [b-*, shared], packageNamespaces: [flux-system], sources: [flux-kustomization]}
"#;

/// Nothing for the first.
const NOTHING: &str = r#"
tenants:
- {namespaces: [team-b], clusters: [b-*, shared], packageNamespaces: [flux-system], sources: [flux-kustomization]}
"#;

async fn report(hub: &Hub, namespace: &str, name: &str, spec: Value) -> Result<()> {
    let mut object = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "package": {"source": fake_fleet::SOURCE, "namespace": FLUX_NAMESPACE, "name": APP},
            "staleAfter": STALE_AFTER,
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    hub.api.apply_object(&object).await.map(drop)
}

async fn gate(hub: &Hub, namespace: &str, name: &str, package: &str, clusters: Value) -> Result<()> {
    hub.api
        .apply_object(&json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "fleetPackageRef": {"name": package}, "revision": revision(1), "clusters": clusters,
                "maxFailures": "100%", "minHealthy": 1,
            },
        }))
        .await
        .map(drop)
}

/// Waits until a status is like this.
async fn shows(
    hub: &Hub,
    kind: &str,
    namespace: &str,
    name: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value> {
    eventually(SOON, &format!("{kind} {namespace}/{name} is as expected"), async || {
        let status = status(hub, kind, namespace, name).await?;
        ensure!(holds(&status), "{status}");
        Ok(status)
    })
    .await
}

/// The status that answers the present generation.
async fn status(hub: &Hub, kind: &str, namespace: &str, name: &str) -> Result<Value> {
    let objects = hub.api.dynamic(&hub::kind(kind), Some(namespace)).await?;
    let object: DynamicObject = objects.get(name).await?;
    let status = object.data["status"].clone();
    ensure!(status["observedGeneration"] == json!(object.metadata.generation), "{status}");
    Ok(status)
}

fn ready_reason(status: &Value) -> &str {
    status["conditions"][0]["reason"].as_str().unwrap_or_default()
}

fn is_stalled(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Stalled" && it["status"] == "True")
}

/// Everything that is said in a namespace.
async fn all_statuses(hub: &Hub, namespace: &str) -> Result<String> {
    let mut text = String::new();
    for kind in ["FleetPackage", "RolloutGate"] {
        let objects = hub.api.dynamic(&hub::kind(kind), Some(namespace)).await?;
        for object in objects.list(&ListParams::default()).await? {
            text += &object.data["status"].to_string();
        }
    }
    Ok(text)
}

#[tokio::test]
async fn two_tenants_see_nothing_of_each_other() {
    run("e2e-tenants", async |rig| {
        let names = ["a-1", "b-1", "b-2", "shared"];
        let fleet = FakeFleet::start().await?;
        fleet.says("a-1", APP, FakePackage::healthy_at(&revision(1)));
        fleet.says("b-1", APP, FakePackage::healthy_at(&revision(2)));
        fleet.says("b-2", APP, FakePackage::failed_at(&revision(3)));
        fleet.says("shared", APP, FakePackage::healthy_at(&revision(1)));
        let job = names.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let etcd = Etcd::start(rig).await?;
        let config = rig.dir().join("config.yaml");
        put(&config, POLICY)?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = vec!["--config".to_owned(), config.display().to_string()];
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.api.install_crds(&crds::cluster_inventory()?).await?;
        for namespace in ["team-a", "team-b", "team-c"] {
            hub.api.ensure_namespace(namespace).await?;
            report(&hub, namespace, "app", json!({})).await?;
            gate(&hub, namespace, "every", "app", json!({"selector": {}})).await?;
        }
        for name in names {
            profile(&hub.api, "default", name, json!({})).await?;
        }
        report(
            &hub,
            "team-a",
            "elsewhere",
            json!({"package": {
            "source": fake_fleet::SOURCE, "namespace": "payments-b", "name": "secret"}}),
        )
        .await?;
        report(
            &hub,
            "team-b",
            "helm",
            json!({"package": {
            "source": "flux-helmrelease", "namespace": FLUX_NAMESPACE, "name": "x"}}),
        )
        .await?;
        gate(&hub, "team-a", "theirs", "app", json!({"names": ["a-1", "b-1"]})).await?;
        gate(&hub, "team-a", "nobodys", "app", json!({"names": ["a-1", "b-9"]})).await?;
        gate(&hub, "team-a", "own", "app", json!({"names": ["a-1", "shared"]})).await?;

        // Reporting and selector choose among what may be seen.
        let sees = |total: u64| move |status: &Value| status["clusters"]["total"] == total;
        let all_of_two = |status: &Value| sees(2)(status) && status["conditions"][0]["status"] == "True";
        shows(&hub, "FleetPackage", "team-a", "app", all_of_two).await?;
        shows(&hub, "FleetPackage", "team-b", "app", sees(3)).await?;
        shows(&hub, "RolloutGate", "team-a", "every", |it| it["healthy"] == "2/2").await?;
        shows(&hub, "RolloutGate", "team-b", "every", |it| it["healthy"] == "1/3").await?;
        shows(&hub, "RolloutGate", "team-a", "own", |it| it["healthy"] == "2/2").await?;
        // What is refused is refused in the same words whether or not it exists.
        let refused = |status: &Value| ready_reason(status) == "Forbidden" && is_stalled(status);
        let theirs = shows(&hub, "RolloutGate", "team-a", "theirs", refused).await?;
        ensure!(theirs["conditions"][0]["message"] == "this namespace may not see b-1", "{theirs}");
        ensure!(theirs["clusters"].is_null() && theirs["healthy"].is_null(), "{theirs}");
        let nobodys = shows(&hub, "RolloutGate", "team-a", "nobodys", refused).await?;
        ensure!(nobodys["conditions"][0]["message"] == "this namespace may not see b-9", "{nobodys}");
        shows(&hub, "FleetPackage", "team-a", "elsewhere", refused).await?;
        shows(&hub, "FleetPackage", "team-b", "helm", refused).await?;
        // A namespace without a rule.
        shows(&hub, "FleetPackage", "team-c", "app", refused).await?;
        shows(&hub, "RolloutGate", "team-c", "every", refused).await?;

        let said = all_statuses(&hub, "team-a").await?;
        for secret in
            ["b-2", &Fingerprint::of(&revision(2)).to_string(), &Fingerprint::of(&revision(3)).to_string()]
        {
            ensure!(!said.contains(secret), "{secret} is said in team-a: {said}");
        }
        let said = all_statuses(&hub, "team-b").await?;
        ensure!(!said.contains("a-1"), "{said}");

        // A new version of the file holds without a restart; one that is not understood changes nothing.
        put(&config, LESS)?;
        shows(&hub, "FleetPackage", "team-a", "app", sees(1)).await?;
        shows(&hub, "RolloutGate", "team-a", "every", |it| it["healthy"] == "1/1").await?;
        let own = shows(&hub, "RolloutGate", "team-a", "own", refused).await?;
        ensure!(
            own["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|it| it["type"] == "Stalled" || it["status"] != "True"),
            "{own}"
        );
        put(&config, "tenants: everybody\n")?;
        holds_for(std::time::Duration::from_secs(8), "the old rules stay", async || {
            let status = status(&hub, "FleetPackage", "team-a", "app").await?;
            ensure!(sees(1)(&status), "{status}");
            Ok(())
        })
        .await?;
        put(&config, NOTHING)?;
        let wiped = shows(&hub, "FleetPackage", "team-a", "app", refused).await?;
        for field in ["clusters", "revisions", "problems", "lastHealthyRevision", "asOf"] {
            ensure!(wiped[field].is_null(), "{field} is still there: {wiped}");
        }
        shows(&hub, "RolloutGate", "team-a", "every", refused).await?;
        let said = all_statuses(&hub, "team-a").await?;
        ensure!(!said.contains("shared"), "{said}");
        shows(&hub, "FleetPackage", "team-b", "app", sees(3)).await.map(drop)
    })
    .await;
}

//! What is measured of resource health: kpt's ResourceGroups of twenty objects each, and as many objects that no package has.

use crate::fleet::{hex, name, namespace};
use serde_json::{Value, json};

/// Of each kind, how many objects a package has.
pub(crate) const CONFIG_MAPS: usize = 8;
pub(crate) const SERVICES: usize = 8;
pub(crate) const DEPLOYMENTS: usize = 4;
/// Objects with this number and higher ones are in no inventory.
pub(crate) const OTHERS: usize = 1_000_000;
const REPLICAS: usize = 3;

/// Name and namespace of an object, when each package has so many of its kind.
fn metadata(n: usize, each: usize) -> Value {
    let (package, nth) = (n % OTHERS / each, n % each);
    let prefix = if n < OTHERS { "" } else { "other-" };
    let labels = json!({"app.kubernetes.io/name": name(package), "app.kubernetes.io/part-of": "shop"});
    json!({"name": format!("{prefix}{}-{nth}", name(package)), "namespace": namespace(package), "labels": labels})
}

/// A ConfigMap. The first of a package tells the package's revision.
pub(crate) fn config_map(n: usize) -> Value {
    let mut metadata = metadata(n, CONFIG_MAPS);
    if n < OTHERS && n.is_multiple_of(CONFIG_MAPS) {
        metadata["name"] = json!(name(n / CONFIG_MAPS));
        metadata["labels"]["statusbridge.dev/revision"] = json!("");
    }
    let settings: String =
        (0..16).map(|line| format!("setting.{line:02}={}\n", hex(40, &[n, line]))).collect();
    let data = json!({"revision": hex(40, &[n / CONFIG_MAPS]), "application.properties": settings});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// A Service without an address of its own: there are not enough for all of them.
pub(crate) fn service(n: usize) -> Value {
    let metadata = metadata(n, SERVICES);
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": name});
    let ports = [port("http", 80), port("metrics", 9090)];
    let spec = json!({"clusterIP": "None", "selector": metadata["labels"], "ports": ports});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

/// A Deployment with all its replicas.
pub(crate) fn deployment(n: usize) -> Value {
    let metadata = metadata(n, DEPLOYMENTS);
    let labels = &metadata["labels"];
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10});
    let variable = |v: usize| json!({"name": format!("SETTING_{v}"), "value": hex(20, &[n, v])});
    let container = json!({
        "name": "service", "image": format!("registry.example.com/shop/service@sha256:{}", hex(64, &[n])),
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "env": (0..8).map(variable).collect::<Vec<_>>(),
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        "status": deployment_status(REPLICAS),
    })
}

/// The status of a Deployment that has lost one of its replicas, or has got it back.
pub(crate) fn replica_status(back: bool) -> Value {
    deployment_status(if back { REPLICAS } else { REPLICAS - 1 })
}

fn deployment_status(available: usize) -> Value {
    let condition = |kind: &str, reason: &str| {
        let time = "2026-01-02T08:00:00Z";
        json!({"type": kind, "status": "True", "reason": reason, "message": "as it should be",
            "lastTransitionTime": time, "lastUpdateTime": time})
    };
    json!({
        "observedGeneration": 1, "replicas": REPLICAS, "updatedReplicas": REPLICAS,
        "readyReplicas": available, "availableReplicas": available, "unavailableReplicas": REPLICAS - available,
        "conditions": [condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable")],
    })
}

/// A ResourceGroup after an apply that went well.
pub(crate) fn resource_group(package: usize) -> Value {
    let mut resources = Vec::new();
    for (group, each, object) in [
        ("", CONFIG_MAPS, config_map as fn(usize) -> Value),
        ("", SERVICES, service),
        ("apps", DEPLOYMENTS, deployment),
    ] {
        for object in (package * each..(package + 1) * each).map(object) {
            let metadata = &object["metadata"];
            resources
                .push(json!({"group": group, "kind": object["kind"], "namespace": metadata["namespace"],
                "name": metadata["name"]}));
        }
    }
    json!({
        "apiVersion": "kpt.dev/v1alpha1", "kind": "ResourceGroup",
        "metadata": {"name": name(package), "namespace": namespace(package),
            "labels": {"cli-utils.sigs.k8s.io/inventory-id": hex(40, &[package])}},
        "spec": {"resources": resources},
        "status": applied(&resources, 1),
    })
}

/// The status of a ResourceGroup of which all resources were applied in this generation.
pub(crate) fn applied(resources: &[Value], generation: usize) -> Value {
    let mut entries = resources.to_vec();
    for entry in &mut entries {
        for (field, value) in [
            ("status", "Unknown"),
            ("strategy", "Apply"),
            ("actuation", "Succeeded"),
            ("reconcile", "Succeeded"),
        ] {
            entry[field] = json!(value);
        }
    }
    json!({"observedGeneration": generation, "resourceStatuses": entries})
}

//! The packages that are measured: Flux Kustomizations of about 5 KB and the GitRepositories that they come from.

use serde_json::{Value, json};

/// Packages that come from one GitRepository.
pub(crate) const PER_REPOSITORY: usize = 100;
/// Namespaces that the packages are spread over.
const NAMESPACES: usize = 20;
/// Where the GitRepositories are.
pub(crate) const REPOSITORIES: &str = "flux-system";
/// What each package applies.
const DEPLOYED: [&str; 12] = [
    "apps_Deployment",
    "_Service",
    "_ConfigMap",
    "_ServiceAccount",
    "autoscaling_HorizontalPodAutoscaler",
    "policy_PodDisruptionBudget",
    "networking.k8s.io_Ingress",
    "networking.k8s.io_NetworkPolicy",
    "rbac.authorization.k8s.io_Role",
    "rbac.authorization.k8s.io_RoleBinding",
    "monitoring.coreos.com_ServiceMonitor",
    "external-secrets.io_ExternalSecret",
];

/// All namespaces, that of the GitRepositories included.
pub(crate) fn namespaces() -> Vec<String> {
    let teams = (0..NAMESPACES).map(|n| format!("team-{n:02}"));
    teams.chain([REPOSITORIES.to_owned()]).collect()
}

/// Namespace of a package.
pub(crate) fn namespace(package: usize) -> String {
    format!("team-{:02}", package % NAMESPACES)
}

/// Name of a package.
pub(crate) fn name(package: usize) -> String {
    format!("service-{package:05}")
}

/// How many GitRepositories so many packages come from.
pub(crate) fn repositories(packages: usize) -> usize {
    packages.div_ceil(PER_REPOSITORY)
}

/// Name of a GitRepository.
fn repository_name(repository: usize) -> String {
    format!("repository-{repository:03}")
}

/// A GitRepository that has fetched the first revision.
pub(crate) fn repository(repository: usize) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": repository_name(repository), "namespace": REPOSITORIES},
        "spec": {
            "interval": "1m", "ref": {"branch": "main"},
            "url": format!("https://git.example.com/platform/{}.git", repository_name(repository)),
        },
        "status": repository_status(repository, 1),
    })
}

/// The status of a GitRepository that has fetched a revision.
pub(crate) fn repository_status(repository: usize, revision: usize) -> Value {
    let text = revision_of(repository, revision);
    json!({
        "observedGeneration": 1,
        "artifact": {
            "digest": format!("sha256:{}", hex(64, &[7, repository, revision])), "revision": text, "size": 48211,
            "lastUpdateTime": time(revision, 0),
            "path": format!("gitrepository/{REPOSITORIES}/{}/{revision}.tar.gz", repository_name(repository)),
            "url": format!("http://source-controller/{}/{revision}.tar.gz", repository_name(repository)),
        },
        "conditions": [condition("Ready", "True", "Succeeded", &format!("stored artifact for revision '{text}'"),
            time(revision, 0))],
    })
}

/// A package after it was first rolled out.
pub(crate) fn package(package: usize) -> Value {
    let (name, namespace) = (name(package), namespace(package));
    let service =
        |n: usize| json!({"kind": "Deployment", "name": format!("{name}-{n}"), "namespace": namespace});
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "shop", "kustomize.toolkit.fluxcd.io/name": "tenants",
                "kustomize.toolkit.fluxcd.io/namespace": REPOSITORIES},
            "annotations": {"platform.example.com/owner": format!("{namespace}@example.com")},
            "finalizers": ["finalizers.fluxcd.io"],
        },
        "spec": {
            "interval": "10m", "retryInterval": "2m", "timeout": "5m", "prune": true, "wait": true, "force": false,
            "path": format!("./services/{name}/overlays/production"), "targetNamespace": namespace,
            "sourceRef": {"kind": "GitRepository", "name": repository_name(package / PER_REPOSITORY),
                "namespace": REPOSITORIES},
            "serviceAccountName": "reconciler",
            "dependsOn": [{"name": "crds", "namespace": REPOSITORIES}, {"name": "policies", "namespace": REPOSITORIES}],
            "healthChecks": [service(0), service(1)],
            "commonMetadata": {"labels": {"platform.example.com/tier": "backend"}},
            "postBuild": {
                "substitute": {"cluster_name": "production-eu-west-1", "cluster_region": "eu-west-1", "replicas": "3"},
                "substituteFrom": [{"kind": "ConfigMap", "name": "cluster-settings"}, {"kind": "Secret", "name": "cluster-secrets"}],
            },
            "patches": [{"target": {"kind": "Deployment", "name": format!("{name}.*")},
                "patch": "- op: add\n  path: /spec/template/spec/priorityClassName\n  value: business-critical\n"}],
        },
        "status": healthy_status(package, 1),
    })
}

/// The status of a package that is healthy at a revision.
pub(crate) fn healthy_status(package: usize, revision: usize) -> Value {
    status(package, revision, revision, &GOOD)
}

/// The same with failing health checks.
pub(crate) fn failed_status(package: usize, revision: usize) -> Value {
    let message = "timeout waiting for: [Deployment/service status: 'InProgress']";
    status(package, revision, revision, &Outcome { status: "False", reason: "HealthCheckFailed", message })
}

/// The same of one that has nothing whose health could be checked.
pub(crate) fn unchecked_status(package: usize, revision: usize) -> Value {
    let mut status = healthy_status(package, revision);
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != "Healthy");
    }
    status
}

/// On the way to a revision from the one before.
pub(crate) fn progressing_status(package: usize, revision: usize) -> Value {
    let message = "Reconciliation in progress";
    status(package, revision, revision - 1, &Outcome { status: "Unknown", reason: "Progressing", message })
}

struct Outcome {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

const GOOD: Outcome =
    Outcome { status: "True", reason: "ReconciliationSucceeded", message: "Applied revision" };

fn status(package: usize, attempted: usize, applied: usize, ready: &Outcome) -> Value {
    let (name, namespace) = (name(package), namespace(package));
    let text = |revision| revision_of(package / PER_REPOSITORY, revision);
    let healthy = match ready.reason {
        "HealthCheckFailed" => condition("Healthy", "False", ready.reason, ready.message, time(attempted, 2)),
        _ => {
            condition("Healthy", "True", "Succeeded", "Health check passed in 15.225332ms", time(applied, 2))
        }
    };
    let message = format!("{}: {}", ready.message, text(attempted));
    let entry = |n: usize| {
        let revision = attempted.saturating_sub(n);
        json!({
            "digest": format!("sha256:{}", hex(64, &[package, revision])), "totalReconciliations": 12 + n,
            "firstReconciled": time(revision, 2), "lastReconciled": time(revision + usize::from(n > 0), 2),
            "lastReconciledDuration": "1.075907099s", "metadata": {"revision": text(revision)},
            "lastReconciledStatus": if n == 0 { ready.reason } else { "ReconciliationSucceeded" },
        })
    };
    json!({
        "observedGeneration": 1,
        "lastAttemptedRevision": text(attempted),
        "lastAppliedRevision": text(applied),
        "conditions": [condition("Ready", ready.status, ready.reason, &message, time(attempted, 2)), healthy],
        "history": [entry(0), entry(1), entry(2)],
        "inventory": {"entries": DEPLOYED.iter().map(|kind| {
            json!({"id": format!("{namespace}_{name}-{}_{kind}", &kind[kind.len() - 4..]), "v": "v1"})
        }).collect::<Vec<_>>()},
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, since: String) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since, "observedGeneration": 1,
    })
}

/// The revision of a GitRepository that has this number, as Flux writes it.
fn revision_of(repository: usize, revision: usize) -> String {
    format!("main@sha1:{}", hex(40, &[repository, revision]))
}

/// When a revision arrived; `minutes` later.
fn time(revision: usize, minutes: usize) -> String {
    format!("2026-01-{:02}T08:{minutes:02}:00Z", 1 + revision % 28)
}

/// So many hex digits that depend on nothing but the seed.
pub(crate) fn hex(digits: usize, seed: &[usize]) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(format!("{seed:?}"));
    hash.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).take(digits).map(char::from).collect()
}

//! The story, step by step. A step that is not seen within its deadline is an error.

use crate::narrate::{self, output, paragraph};
use crate::package::{NAME, Revision};
use crate::world::{CLUSTERS, Cluster, World, kubectl};
use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::PACKAGE_METRICS;
use statusbridge_tests::{Flux, Rollout, SOON, eventually};
use std::time::Duration;

/// How long a `kubectl wait` is watched that is not to come to an end.
const A_WHILE: Duration = Duration::from_secs(3);

/// Tells it.
pub(crate) async fn tell(world: &World) -> Result<()> {
    let r1 = Revision::new("r1", "1.0.0");
    let r2 = Revision::new("r2", "2.0.0");
    let r3 = Revision::new("r3", "3.0.0");
    let (first, second) = world.clusters.split_at(1);
    let at_rest = step(world, 1, "r1 runs everywhere, and both gates are open", async {
        everywhere(world, &r1).await?;
        resting(world).await
    })
    .await?;
    step(
        world,
        2,
        "r2 is wanted, and every cluster is healthy: at the wrong revision",
        trap(world, &r1, &r2),
    )
    .await?;
    step(world, 3, "Wave 1 moves to r2", async {
        wave(world, "wave-1", first, &r2, 1).await?;
        world.kubectl(&["get", "rolloutgates"]).await?.expect_success()
    })
    .await?;
    step(world, 4, "Wave 2 moves to r2", async {
        wave(world, "wave-2", second, &r2, 3).await?;
        world
            .kubectl(&["wait", "--for=condition=Ready", "fleetpackage/payments", "--timeout=60s"])
            .await?
            .expect_success()?;
        world.tables().await
    })
    .await?;
    step(
        world,
        5,
        "r3 is broken: the gate stays closed and says why",
        broken(world, first, second, &r2, &r3),
    )
    .await?;
    step(world, 6, "What all this cost in the metrics backend", cost(world, at_rest)).await
}

/// One step, which fails at once when a server ends by itself.
async fn step<T>(
    world: &World,
    number: usize,
    title: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    narrate::step(number, title, async {
        tokio::select! {
            seen = work => seen,
            ended = world.one_ends() => Err(ended),
        }
    })
    .await
}

async fn everywhere(world: &World, r1: &Revision) -> Result<()> {
    paragraph(&format!("Flux delivers {r1} to all three clusters, whose Deployments become ready."));
    try_join_all(world.clusters.iter().map(async |cluster| {
        world.deliver(cluster, r1).await?;
        deployment(cluster, Rollout::Ready).await
    }))
    .await?;
    paragraph("The hub is told which package to look at, and which clusters make up which wave:");
    let manifests = manifests(r1);
    output(&manifests);
    let file = world.hub.process().rig().dir().join("payments.yaml");
    std::fs::write(&file, manifests).context("writing payments.yaml")?;
    let file = file.to_str().context("the path of payments.yaml")?;
    world.kubectl(&["apply", "-f", file]).await?.expect_success()?;
    let wait = ["wait", "--for=condition=Open", "rolloutgate/wave-1", "rolloutgate/wave-2", "--timeout=60s"];
    world.kubectl(&wait).await?.expect_success()?;
    let wait = ["wait", "--for=condition=Ready", "fleetpackage/payments", "--timeout=60s"];
    world.kubectl(&wait).await?.expect_success()?;
    world.tables().await
}

async fn trap(world: &World, r1: &Revision, r2: &Revision) -> Result<()> {
    paragraph(&format!("Somebody asks for {r2}. Nothing has moved yet."));
    want(world, r2).await?;
    paragraph("Whoever asks for health now is told about r1. This is how a rollout runs away:");
    for cluster in &world.clusters {
        let wait = ["wait", "--for=condition=Ready", "kustomization/payments", "-n", "flux-system"];
        kubectl(&cluster.api, &wait).await?.expect_success()?;
        let state = Flux::state(&cluster.api, NAME, "Ready").await?;
        ensure!(state == ("True".to_owned(), r1.full()), "{} says {state:?}", cluster.api.name());
    }
    paragraph("The gates ask whether r2 is healthy, and r2 is nowhere:");
    for name in ["wave-1", "wave-2"] {
        gate_is(world, name, "RevisionNeverSeen", "0/").await?;
    }
    wait_in_vain(world, "rolloutgate/wave-1").await?;
    world.tables().await?;
    never_opened(world, &["wave-1", "wave-2"]).await
}

/// Moves the clusters of one wave, after which `updated` clusters of all run the revision.
async fn wave(
    world: &World,
    name: &str,
    clusters: &[Cluster],
    revision: &Revision,
    updated: u64,
) -> Result<()> {
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.api.name()).collect();
    let (last, others) = clusters.split_last().context("an empty wave")?;
    paragraph(&format!("Flux delivers {revision} to {}.", names.join(" and ")));
    try_join_all(clusters.iter().map(|cluster| world.deliver(cluster, revision))).await?;
    for cluster in others {
        paragraph(&format!("The Deployment in {} becomes ready first.", cluster.api.name()));
        deployment(cluster, Rollout::Ready).await?;
    }
    gate_is(world, name, "Progressing", &format!("{}/{}", others.len(), clusters.len())).await?;
    package_counts(world, &json!({"updated": updated, "healthy": updated - 1})).await?;
    world.tables().await?;
    let too = if others.is_empty() { "" } else { " too" };
    paragraph(&format!(
        "A rollout script waits for the gate. It has to wait until the Deployment in {} is ready{too}:",
        last.api.name()
    ));
    let gate = format!("rolloutgate/{name}");
    let wait = ["wait", "--for=condition=OpenedOnce", &gate, "--timeout=60s"];
    let mut waiting = Box::pin(world.kubectl(&wait));
    if let Ok(passed) = tokio::time::timeout(A_WHILE, &mut waiting).await {
        passed?.expect_success()?;
        bail!("kubectl wait passed before {revision} was healthy in {}", last.api.name());
    }
    deployment(last, Rollout::Ready).await?;
    waiting.await?.expect_success()
}

async fn broken(
    world: &World,
    first: &[Cluster],
    second: &[Cluster],
    r2: &Revision,
    r3: &Revision,
) -> Result<()> {
    paragraph(&format!("Next is {r3}, whose pods never become available. Wave 1 gets it first."));
    want(world, r3).await?;
    for cluster in first {
        world.deliver(cluster, r3).await?;
        deployment(cluster, Rollout::Failed).await?;
    }
    gate_is(world, "wave-1", "FailureBudgetExceeded", "0/1").await?;
    package_counts(world, &json!({"updated": 1, "failed": 1})).await?;
    wait_in_vain(world, "rolloutgate/wave-1").await?;
    world.tables().await?;
    let problems = "jsonpath={range .status.problems[*]}{.clusterName}: {.state} ({.reason}){\"\\n\"}{end}";
    world.kubectl(&["get", "fleetpackage", NAME, "-o", problems]).await?.expect_success()?;
    for cluster in first {
        paragraph(&format!("In words it is in the log of {}'s exporter:", cluster.api.name()));
        let words = cluster.last_transition()?;
        output(&words);
        let culprit = format!("Deployment/default/{NAME}");
        ensure!(words.contains(&culprit), "the log does not name {culprit}");
    }
    paragraph("A script need not run into its timeout, for the gate says that this will not pass by itself:");
    let wait = ["wait", "--for=condition=Stalled", "rolloutgate/wave-1", "--timeout=5s"];
    world.kubectl(&wait).await?.expect_success()?;
    never_opened(world, &["wave-1", "wave-2"]).await?;
    for cluster in second {
        let state = Flux::state(&cluster.api, NAME, "Ready").await?;
        ensure!(state == ("True".to_owned(), r2.full()), "{} says {state:?}", cluster.api.name());
    }
    let names: Vec<&str> = second.iter().map(|cluster| cluster.api.name()).collect();
    paragraph(&format!("{} never got r3: they run {r2} and are healthy.", names.join(" and ")));
    Ok(())
}

async fn cost(world: &World, at_rest: f64) -> Result<()> {
    let query = format!("max(count by (cluster) (last_over_time({PACKAGE_SERIES}[1h])))");
    let ever = count(world, &query).await?;
    paragraph(&format!(
        "A package at rest has {at_rest} series in each cluster. After three revisions, a failure and all that lay in\n\
         between it has had {ever}, those that ended included. It can never have more than {}.",
        PACKAGE_METRICS.len()
    ));
    ensure!(at_rest <= 3.0, "a package at rest has {at_rest} series");
    ensure!(ever <= PACKAGE_METRICS.len() as f64, "a package has had {ever} series");
    let resting = resting(world).await?;
    ensure!(resting == at_rest, "a package at rest had {at_rest} series with r1, and has {resting} with r2");
    Ok(())
}

const PACKAGE_SERIES: &str = "{__name__=~\"statusbridge_package_.+\"}";

/// How many series the package has in the cluster where it has the fewest.
async fn resting(world: &World) -> Result<f64> {
    count(world, &format!("min(count by (cluster) ({PACKAGE_SERIES}))")).await
}

async fn count(world: &World, query: &str) -> Result<f64> {
    let samples = world.prometheus.query(query).await?;
    Ok(samples.first().context("Prometheus has no series of packages")?.value)
}

fn manifests(revision: &Revision) -> String {
    let [first, second, third] = CLUSTERS;
    let revision = revision.short();
    format!(
        "apiVersion: statusbridge.dev/v1alpha1\n\
         kind: FleetPackage\n\
         metadata: {{name: payments}}\n\
         spec:\n  \
         package: {{source: flux-kustomization, namespace: flux-system, name: payments}}\n  \
         revision: {revision}\n  \
         clusters: {{names: [{first}, {second}, {third}]}}\n  \
         staleAfter: 30s\n\
         ---\n\
         apiVersion: statusbridge.dev/v1alpha1\n\
         kind: RolloutGate\n\
         metadata: {{name: wave-1}}\n\
         spec:\n  \
         fleetPackageRef: {{name: payments}}\n  \
         revision: {revision}\n  \
         clusters: {{names: [{first}]}}\n\
         ---\n\
         apiVersion: statusbridge.dev/v1alpha1\n\
         kind: RolloutGate\n\
         metadata: {{name: wave-2}}\n\
         spec:\n  \
         fleetPackageRef: {{name: payments}}\n  \
         revision: {revision}\n  \
         clusters: {{names: [{second}, {third}]}}\n"
    )
}

/// The FleetPackage and both gates are to look for another revision from now on.
async fn want(world: &World, revision: &Revision) -> Result<()> {
    let patch = json!({"spec": {"revision": revision.short()}}).to_string();
    let objects = ["fleetpackage/payments", "rolloutgate/wave-1", "rolloutgate/wave-2"];
    let args = [&["patch"], &objects[..], &["--type=merge", "-p", &patch]].concat();
    world.kubectl(&args).await?.expect_success()
}

/// The demo in place of a node.
async fn deployment(cluster: &Cluster, rollout: Rollout) -> Result<()> {
    Flux::set_deployment(&cluster.api, "default", NAME, rollout).await
}

/// A short `kubectl wait` that has to be seen to fail.
async fn wait_in_vain(world: &World, object: &str) -> Result<()> {
    let wait = ["wait", "--for=condition=OpenedOnce", object, "--timeout=5s"];
    world.kubectl(&wait).await?.expect_failure("timed out")
}

/// The status of one of our objects, once it answers its present spec.
async fn status(world: &World, kind: &str, name: &str) -> Result<Value> {
    let kind = GroupVersionKind::gvk("statusbridge.dev", "v1alpha1", kind);
    let object = world.hub.dynamic(&kind, Some("default")).await?.get(name).await?;
    let status = &object.data["status"];
    ensure!(
        status["observedGeneration"].as_i64() == object.metadata.generation,
        "{name} has not been judged since its spec changed: {status}"
    );
    Ok(status.clone())
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let found = status["conditions"].as_array().and_then(|all| all.iter().find(|c| c["type"] == kind));
    found.unwrap_or(&Value::Null)
}

/// Waits until a gate is closed for `reason`, with so many healthy.
async fn gate_is(world: &World, name: &str, reason: &str, healthy: &str) -> Result<()> {
    eventually(SOON, &format!("{name} is closed because of {reason}"), async || {
        let status = status(world, "RolloutGate", name).await?;
        let open = condition(&status, "Open");
        ensure!(open["status"] == "False" && open["reason"] == reason, "Open is {open}");
        let counted = status["healthy"].as_str().unwrap_or_default();
        ensure!(counted.starts_with(healthy), "healthy is {counted}");
        Ok(())
    })
    .await
}

/// Waits until the FleetPackage counts so many clusters.
async fn package_counts(world: &World, counts: &Value) -> Result<()> {
    eventually(SOON, &format!("the FleetPackage counts {counts}"), async || {
        let status = status(world, "FleetPackage", NAME).await?;
        let now = &status["clusters"];
        let same = counts.as_object().into_iter().flatten().all(|(what, count)| &now[what] == count);
        ensure!(same, "it counts {now}");
        Ok(())
    })
    .await
}

/// OpenedOnce stays True once a gate was open for its present spec, so it tells what happened between two looks.
async fn never_opened(world: &World, names: &[&str]) -> Result<()> {
    for name in names {
        let status = status(world, "RolloutGate", name).await?;
        let opened = condition(&status, "OpenedOnce");
        ensure!(opened["status"] != "True", "{name} was open: {opened}");
    }
    Ok(())
}

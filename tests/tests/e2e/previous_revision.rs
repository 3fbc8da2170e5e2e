//! The previous-revision trap: a gate must never be opened by the health of the revision before.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use statusbridge_contract::{Fingerprint, Metric};
use statusbridge_kstatus as kstatus;
use statusbridge_tests::*;
use std::time::{Duration, Instant};

/// Fails when a version lets pass the second generation of its gate before `moment`.
fn not_before(moment: Instant) -> impl Fn(&history::Version) -> Result<()> {
    move |version| {
        ensure!(
            version.object.metadata.generation == Some(1) || !version.lets_pass() || version.seen >= moment,
            "it lets the new revision pass {:?} too early",
            moment - version.seen
        );
        Ok(())
    }
}

#[tokio::test]
async fn a_gate_moved_to_a_new_revision_opens_only_once_flux_has_made_it_healthy_everywhere() {
    run("e2e-previous-revision-flux", async |rig| {
        let (r1, r2) = (revision(1), revision(2));
        let world = World::start(rig, &["c1", "c2"], &[]).await?;
        let hub = &world.hub;
        let _controllers =
            try_join_all(world.clusters.iter().map(|c| KustomizeController::start(rig, &c.api))).await?;
        let flux = Flux::start().await?;
        let publish = async |cluster: &Workload, revision: &str, image: &str| {
            let manifest = deployment_manifest(APP, image);
            flux.publish(&cluster.api, APP, revision, &[("app.yaml", &manifest)]).await
        };
        let set = async |cluster: &Workload, image: &str, rollout: Rollout| {
            eventually(SOON, "the Deployment is applied", async || {
                let path = ["get", "deployment", APP, "-o", "jsonpath={..image}"];
                let now = cluster.api.kubectl(&path).await?;
                ensure!(now == image, "{now}");
                Flux::set_deployment(&cluster.api, "default", APP, rollout).await
            })
            .await
        };
        let options = KustomizationOptions { interval: "5s", ..KustomizationOptions::default() };
        for cluster in &world.clusters {
            publish(cluster, &r1, "app:1").await?;
            flux.kustomize(&cluster.api, APP, &options).await?;
            set(cluster, "app:1", Rollout::Ready).await?;
        }
        hub.report(APP, STALE_AFTER, json!({})).await?;
        hub.gate("wave", APP, &r1, world.all()).await?;
        hub.opens("wave", SOON).await?;
        let history = hub.history("wave").await?;

        // The gate moves before anything else does.
        hub.gate("wave", APP, &r2, world.all()).await?;
        hub.closes("wave", "RevisionNeverSeen", SOON).await?;
        // Then the clusters, whose Healthy condition stays True of the revision before for a while.
        for cluster in &world.clusters {
            publish(cluster, &r2, "app:2").await?;
            set(cluster, "app:2", Rollout::Progressing).await?;
        }
        hub.closes("wave", "Progressing", SOON).await?;
        set(&world.clusters[0], "app:2", Rollout::Ready).await?;
        eventually(SOON, "one of the two is healthy", async || {
            let gate = hub.get_gate("wave").await?;
            ensure!(gate.data["status"]["healthy"] == "1/2", "{}", gate.data["status"]);
            Ok(())
        })
        .await?;
        let moment = Instant::now();
        set(&world.clusters[1], "app:2", Rollout::Ready).await?;
        hub.opens("wave", SOON).await?;
        history.check("closed until r2 is healthy everywhere", not_before(moment)).await
    })
    .await;
}

#[tokio::test]
async fn samples_of_the_previous_revision_open_nothing_and_neither_does_an_aggregator_that_is_away() {
    run("e2e-previous-revision", async |rig| {
        let (r1, r2, r3) = (revision(1), revision(2), revision(3));
        let world = World::start(rig, &["c1", "c2"], &[]).await?;
        let hub = &world.hub;
        world.open("wave", &r1).await?;
        let history = hub.history("wave").await?;

        // Longer, so that what is held is young enough to be judged by.
        hub.report(APP, "25s", json!({})).await?;
        // Prometheus goes on holding what it scraped last; a job that goes leaves no stale markers.
        world.prometheus.reload(&PrometheusConfig::with_jobs([])).await?;
        world.deliver(&r2).await?;
        for cluster in &world.clusters {
            eventually(SOON, "r2 is healthy in the cluster", async || {
                let shows = cluster.shows(APP).await?;
                ensure!(shows.healthy == Fingerprint::of(&r2), "{shows:?}");
                Ok(())
            })
            .await?;
        }
        hub.gate("wave", APP, &r2, world.all()).await?;
        hub.closes("wave", "RevisionNeverSeen", SOON).await?;
        let held = world.prometheus.query(Metric::PackageHealthyRevision.name()).await?;
        let old = Fingerprint::of(&r1).value() as f64;
        ensure!(held.len() == 2 && held.iter().all(|s| s.value == old), "r1 is still held: {held:?}");
        hub.closes("wave", "Stale", SOON).await?;
        let moment = Instant::now();
        world.prometheus.reload(&world.config).await?;
        hub.opens("wave", SOON).await?;
        history.check("closed while only r1 was known", not_before(moment)).await?;

        // Without an aggregator neither a new gate nor a moved one passes, however healthy all is.
        hub.aggregator.process().kill();
        world.deliver(&r3).await?;
        hub.gate("fresh", APP, &r3, world.all()).await?;
        hub.gate("wave", APP, &r3, world.all()).await?;
        holds_for(Duration::from_secs(3), "nothing passes", async || {
            let fresh = hub.get_gate("fresh").await?;
            let status = &fresh.data["status"];
            ensure!(status["observedGeneration"] == -1, "{status}");
            ensure!(history::condition(&fresh, "Ready").0 == "Unknown", "{status}");
            for gate in [fresh, hub.get_gate("wave").await?] {
                let read = kstatus::compute(&serde_json::to_value(&gate)?);
                ensure!(read.health == statusbridge_contract::Health::InProgress, "{read:?}: {gate:?}");
            }
            Ok(())
        })
        .await?;
        let waits = async |gate: &str, condition: &str, seconds: u32| -> Result<bool> {
            let condition = format!("--for=condition={condition}");
            let timeout = format!("--timeout={seconds}s");
            let args = ["wait", &condition, &format!("rolloutgate/{gate}"), &timeout];
            Ok(hub.api.kubectl_output(&args).await?.status.success())
        };
        for gate in ["fresh", "wave"] {
            for condition in ["Ready", "Open", "OpenedOnce"] {
                ensure!(
                    !waits(gate, condition, 1).await?,
                    "kubectl wait took {condition} of {gate} for True"
                );
            }
        }
        hub.aggregator.process().start()?;
        ensure!(waits("fresh", "OpenedOnce", 90).await?, "it never opens");
        ensure!(waits("wave", "OpenedOnce", 90).await?, "it never opens");
        let opened = hub.get_gate("wave").await?;
        ensure!(
            opened.data["status"]["revision"].as_str().context("no revision")? == r3,
            "{:?}",
            opened.data
        );
        Ok(())
    })
    .await;
}

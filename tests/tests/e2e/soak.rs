//! A soak is over when it has lasted, whoever was started again meanwhile, and never before.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use statusbridge_tests::fake_fleet::unix_now;
use statusbridge_tests::*;
use std::time::{Duration, Instant};

/// `minSuccessTime`: long beside what starting an aggregator takes on a busy machine.
const SOAK: Duration = Duration::from_secs(40);
/// What times in whole seconds may be off by.
const SECOND: Duration = Duration::from_secs(1);

/// Makes a gate over one cluster, of the cluster's name.
async fn gate(hub: &Hub, cluster: &str) -> Result<()> {
    let spec = json!({
        "clusters": {"names": [cluster]}, "minSuccessTime": format!("{}s", SOAK.as_secs()),
    });
    hub.gate(cluster, APP, &revision(1), spec).await.map(drop)
}

/// When each version of a gate that is open was seen, closed ones in between as `None`.
async fn openings(history: &History) -> Result<Vec<Option<Instant>>> {
    let mut turns: Vec<Option<Instant>> = Vec::new();
    for version in history.versions().await? {
        let open = version.condition("Open").0 == "True";
        if turns.last().is_none_or(|last| last.is_some() != open) {
            turns.push(open.then_some(version.seen));
        }
    }
    Ok(turns)
}

/// The gate closed after it had been open, and opened again no earlier than `since` and a whole soak.
async fn soaked_again(history: &History, since: Instant) -> Result<()> {
    let turns = openings(history).await?;
    let [.., Some(_), None, Some(again)] = turns[..] else {
        anyhow::bail!("it did not close and open again: {turns:?}");
    };
    let soaked = again.duration_since(since);
    ensure!(soaked + SECOND >= SOAK, "it opened again after {soaked:?}");
    Ok(())
}

async fn restarts(rig: &Rig, fleet: &FakeFleet, backend: Backend) -> Result<()> {
    let etcd = Etcd::start(rig).await?;
    let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
    // Longer than remote write, the last word in the status and the leader's Lease take together.
    hub.report(APP, "60s", json!({})).await?;
    let old = ["steady", "flaps", "flaps-away", "restarts", "forgets"];
    for cluster in old {
        fleet.says(cluster, APP, healthy_for(3600));
        gate(&hub, cluster).await?;
    }
    // What an exporter vouches for since long is believed.
    for cluster in old {
        hub.opens(cluster, SOON).await?;
    }
    let mut histories = std::collections::BTreeMap::new();
    for cluster in old {
        histories.insert(cluster, hub.history(cluster).await?);
    }
    let moves = |cluster: &str| fleet.changes(cluster, APP, |package| package.since = unix_now());

    // It fails and recovers between two scrapes.
    let flapped = Instant::now();
    moves("flaps");
    hub.closes("flaps", "Soaking", SOON).await?;

    // One becomes healthy, and in the middle of its soak the aggregator is killed.
    fleet.says("soaks", APP, FakePackage::healthy_at(&revision(1)));
    let healthy = Instant::now();
    gate(&hub, "soaks").await?;
    hub.closes("soaks", "Soaking", SOON).await?;
    histories.insert("soaks", hub.history("soaks").await?);
    hub.aggregator.process().kill();
    let away = Instant::now();
    moves("flaps-away");
    // An exporter that is started again vouches anew, if not for what rests on an object that bears its own time.
    fleet.restarts("restarts");
    fleet.restarts("forgets");
    moves("forgets");
    // All of it has been scraped before anybody looks again.
    let scrapes = fleet.requests();
    eventually(SOON, "every cluster is scraped again, twice", async || {
        let now = fleet.requests();
        ensure!(now > scrapes + 2 * 6, "{now} after {scrapes}");
        Ok(())
    })
    .await?;
    hub.aggregator.process().start()?;
    hub.aggregator.wait_ready().await?;
    let back = Instant::now();

    hub.closes("flaps-away", "Soaking", SOON).await?;
    hub.closes("forgets", "Soaking", SOON).await?;
    hub.opens("soaks", SOON).await?;
    for cluster in old {
        hub.opens(cluster, SOON).await?;
    }
    for cluster in ["steady", "restarts"] {
        histories[cluster].check("nobody's restart closes it", open).await?;
    }
    for (cluster, since) in [("flaps", flapped), ("flaps-away", away), ("forgets", away)] {
        soaked_again(&histories[cluster], since).await.with_context(|| cluster.to_owned())?;
    }
    let turns = openings(&histories["soaks"]).await?;
    let [None, Some(opened)] = turns[..] else { anyhow::bail!("it did not open just once: {turns:?}") };
    let soaked = opened.duration_since(healthy);
    ensure!(soaked + SECOND >= SOAK, "it opened after {soaked:?}");
    ensure!(opened < back + SOAK, "the restart cost it {:?}", opened.duration_since(healthy) - SOAK);
    Ok(())
}

const CLUSTERS: [&str; 6] = ["steady", "flaps", "flaps-away", "restarts", "forgets", "soaks"];

#[tokio::test]
async fn an_aggregator_killed_in_the_middle_of_a_soak_changes_nothing_on_prometheus() {
    run("e2e-soak-prometheus", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::prometheus(rig, &fleet, &CLUSTERS).await?;
        restarts(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn an_aggregator_killed_in_the_middle_of_a_soak_changes_nothing_on_victoria_metrics() {
    run("e2e-soak-victoria-metrics", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::victoria_metrics(rig, &fleet, &CLUSTERS).await?;
        restarts(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn an_aggregator_killed_in_the_middle_of_a_soak_changes_nothing_on_mimir() {
    run("e2e-soak-mimir", async |rig| {
        let fleet = FakeFleet::start().await?;
        let backend = Backend::mimir(rig, &fleet, &CLUSTERS).await?;
        restarts(rig, &fleet, backend).await
    })
    .await;
}

#[tokio::test]
async fn a_cluster_whose_clock_is_wrong_by_minutes_gains_nothing() {
    run("e2e-soak-clocks", async |rig| {
        let fleet = FakeFleet::start().await?;
        let clusters = ["right", "behind", "ahead", "set-right", "claims-more", "hours-off"];
        let backend = Backend::prometheus(rig, &fleet, &clusters).await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = backend.options();
        options.more = ["--max-clock-skew", "10m"].map(str::to_owned).to_vec();
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, "20m", json!({})).await?;
        let wrong = [
            ("right", 0),
            ("behind", -300),
            ("ahead", 300),
            ("set-right", -300),
            ("claims-more", 0),
            ("hours-off", 7200),
        ];
        for (cluster, ahead) in wrong {
            fleet.clock_is_ahead(cluster, ahead);
            fleet.says(cluster, APP, FakePackage::failed_at(&revision(1)));
        }
        let mut histories = Vec::new();
        for (cluster, _) in wrong {
            histories.push(hub.history(cluster).await?);
            gate(&hub, cluster).await?;
        }
        for (cluster, _) in &wrong[..5] {
            hub.closes(cluster, "FailureBudgetExceeded", SOON).await?;
        }
        hub.closes("hours-off", "ClockSkew", SOON).await?;

        // All become healthy at the same time, and each says so by its own clock.
        let healthy = Instant::now();
        for (cluster, ahead) in wrong {
            // One vouches for what it cannot know, as the hub has seen otherwise.
            let ahead = if cluster == "claims-more" { -300 } else { ahead };
            let since = unix_now().saturating_add_signed(ahead);
            fleet.says(cluster, APP, FakePackage { since, ..FakePackage::healthy_at(&revision(1)) });
        }
        for (cluster, _) in &wrong[..5] {
            hub.closes(cluster, "Soaking", SOON).await?;
        }
        fleet.clock_is_ahead("set-right", 0);
        for cluster in ["right", "behind", "ahead", "set-right", "claims-more"] {
            hub.opens(cluster, SOON).await?;
        }
        for (history, (cluster, _)) in histories.iter().zip(wrong) {
            let rule = |version: &history::Version| {
                let soaked = version.seen.duration_since(healthy);
                ensure!(!version.lets_pass() || soaked + SECOND >= SOAK, "it opened after {soaked:?}");
                Ok(())
            };
            history.check("a whole soak", rule).await.with_context(|| cluster.to_owned())?;
        }
        hub.closes("hours-off", "ClockSkew", SOON).await.map(drop)
    })
    .await;
}

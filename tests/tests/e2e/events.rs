//! Events tell every change of a verdict once, whoever leads: `kubectl describe` tells the story.

use crate::e2e::world::scraping_slowly;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use statusbridge_tests::*;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// The Events of an object, by the time of what they tell.
async fn events(hub: &Hub, kind: &str, name: &str) -> Result<Vec<Event>> {
    let all = Api::<Event>::namespaced(hub.api.client(), "default").list(&ListParams::default()).await?;
    let is_about = |event: &Event| {
        let about = event.regarding.as_ref();
        about.is_some_and(|it| it.kind.as_deref() == Some(kind) && it.name.as_deref() == Some(name))
    };
    let mut events: Vec<Event> = all.items.into_iter().filter(is_about).collect();
    events.sort_by_key(|event| event.event_time.clone());
    Ok(events)
}

fn reasons(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|event| event.reason.as_deref()).collect()
}

/// Waits until the gate's last Event has this reason; gives all of them.
async fn told(hub: &Hub, reason: &str) -> Result<Vec<Event>> {
    eventually(SOON, &format!("an Event says {reason}"), async || {
        let events = events(hub, "RolloutGate", "wave").await?;
        ensure!(reasons(&events).last() == Some(&reason), "{:?}", reasons(&events));
        Ok(events)
    })
    .await
}

#[tokio::test]
async fn kubectl_describe_tells_the_story_of_a_gate_once_whoever_leads() {
    run("e2e-events", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "app", FakePackage::healthy_at("r0"));
        let prometheus = Prometheus::start(rig, &scraping_slowly(&fleet, &["c1"])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report("app", "1m", json!({"revision": R1})).await?;
        hub.gate("wave", "app", R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.closes("wave", "RevisionNeverSeen", SOON).await?;
        told(&hub, "RevisionNeverSeen").await?;
        fleet.says("c1", "app", FakePackage::healthy_at(R1));
        hub.opens("wave", SOON).await?;
        let before = told(&hub, "Healthy").await?;
        eventually(SOON, "an Event says that the package is Ready", async || {
            let events = events(&hub, "FleetPackage", "app").await?;
            let is_ready = |event: &Event| event.note.as_deref().is_some_and(|it| it.starts_with("Ready at"));
            ensure!(events.iter().any(is_ready), "{:?}", reasons(&events));
            Ok(())
        })
        .await?;

        // A restart repeats nothing, and makes up for what a leader did not come to tell.
        let lost = before.last().and_then(|event| event.metadata.name.clone()).context("no Event")?;
        ensure!(hub.aggregator.process().terminate(SOON).await?.success());
        let api = Api::<Event>::namespaced(hub.api.client(), "default");
        api.delete(&lost, &DeleteParams::default()).await?;
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        let after = told(&hub, "Healthy").await?;
        let names =
            |events: &[Event]| -> Vec<_> { events.iter().map(|it| it.metadata.name.clone()).collect() };
        ensure!(names(&after) == names(&before), "{:?} after {:?}", names(&after), names(&before));

        // The sweeper tells what it closes.
        let sweeper = hub.start_sweeper(rig, "8s").await?;
        hub.aggregator.process().kill();
        hub.closes("wave", "AggregatorSilent", SOON).await?;
        let swept = told(&hub, "AggregatorSilent").await?;
        let by = swept.last().and_then(|event| event.reporting_controller.clone());
        ensure!(by.as_deref() == Some("statusbridge.dev/sweeper"), "{by:?}");
        sweeper.process().ensure_running()?;

        // The next leader goes on with the story.
        fleet.says("c1", "app", FakePackage::failed_at(R1));
        hub.aggregator.process().start()?;
        hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        let events = told(&hub, "FailureBudgetExceeded").await?;
        let story = ["RevisionNeverSeen", "Healthy", "AggregatorSilent", "FailureBudgetExceeded"];
        let told: Vec<&str> = reasons(&events).into_iter().filter(|it| story.contains(it)).collect();
        ensure!(told == story, "{told:?} of {:?}", reasons(&events));

        let described = hub.api.kubectl(&["describe", "rolloutgate", "wave", "-n", "default"]).await?;
        for part in ["Events:", "Open at main@sha1:1111", "Warning  FailureBudgetExceeded", "[0/1 healthy]"] {
            ensure!(described.contains(part), "{part} is missing:\n{described}");
        }
        let described = hub.api.kubectl(&["describe", "fleetpackage", "app", "-n", "default"]).await?;
        for part in ["Ready at main@sha1:1111", "Warning  Failed"] {
            ensure!(described.contains(part), "{part} is missing:\n{described}");
        }
        Ok(())
    })
    .await;
}

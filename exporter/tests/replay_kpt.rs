//! What is shown while the real kpt applies a package: a recording, see traces/PROVENANCE.md.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::{
    rehearsal::{Clock, History, rehearse},
    saved::SavedObject,
    source::{Preset, Source},
    state::Limits,
};

fn recording() -> Vec<Value> {
    let lines = include_str!("traces/kpt-resourcegroup-1.0.0-beta.60.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

fn run(objects: &[Value]) -> History {
    let source: Source =
        Preset::find("kpt-resourcegroup").expect("the preset").source().expect("it compiles");
    let objects = objects.iter().map(|value| SavedObject::new("recording", value.clone())).collect();
    let sources = vec![Arc::new(source)];
    let history = rehearse(sources, objects, Limits::default(), Clock::FromObjects(0));
    assert!(history.failures.is_empty(), "{:?}", history.failures);
    history
}

/// The revision that works, by the objects alone: the ConfigMap and the Deployment are of it, and the Deployment is
/// available.
fn working(objects: &[Value]) -> Option<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
    let newest: BTreeMap<String, &Value> =
        objects.iter().filter(|o| o["kind"] != "ResourceGroup").map(|o| (name(o), o)).collect();
    let (config, front) = (newest.get("web")?, newest.get("front")?);
    let revision = config["data"]["revision"].as_str()?;
    let image = front["spec"]["template"]["spec"]["containers"][0]["image"].as_str()?;
    let available = front["status"]["observedGeneration"] == front["metadata"]["generation"]
        && front["status"]["availableReplicas"] == 1;
    (available && image == format!("example.com/front:{revision}")).then(|| revision.to_owned())
}

#[test]
fn no_revision_is_claimed_healthy_that_does_not_work() {
    let objects = recording();
    let mut claims = 0;
    for seen in 1..=objects.len() {
        let objects = &objects[..seen];
        let Some(package) = run(objects).packages.into_values().next() else { continue };
        let shown = package.shown;
        if !shown.verdict.healthy.is_none() {
            claims += 1;
            let revision = working(objects).unwrap_or_else(|| panic!("line {seen}: nothing works"));
            assert_eq!(shown.verdict.healthy, Fingerprint::of(&revision), "line {seen}");
        }
    }
    assert!(claims > 5, "{claims}");
}

#[test]
fn every_apply_is_shown_as_what_came_of_it() {
    let history = run(&recording());
    let name = |fingerprint: Fingerprint| {
        let revisions = ["v1", "v2", "v3", "v4", "v5", "v6", "v7"];
        revisions.into_iter().find(|r| Fingerprint::of(r) == fingerprint).unwrap_or("-")
    };
    let shown: Vec<String> = history
        .transitions
        .iter()
        .map(|t| {
            let package = t.package.as_ref().expect("it is never gone");
            let v = &package.shown.verdict;
            let reason = v.reason.as_deref().unwrap_or_default();
            format!("{} {}/{} {} {reason}", package.version, v.apply, v.health, name(v.healthy))
        })
        .collect();
    // Version of the ResourceGroup, state, healthy revision, reason.
    let expected = [
        "1 Pending/Unknown - NotObserved",
        "2 Applying/Unknown - ActuationPending",
        "3 Applied/Current v1 ",
        "4 Applying/Unknown - ActuationPending",
        "5 Applied/Current v1 ",
        "6 Applying/Unknown - ActuationPending",
        "7 Applied/Current v2 ",
        // Not ready in time, but later: kpt writes nothing of that.
        "8 Applying/Unknown - ActuationPending",
        "9 Applied/InProgress - ResourcesInProgress",
        "9 Applied/Current v3 ",
        "10 Applying/Unknown - ActuationPending",
        "11 Applied/Current v3 ",
        "12 Applying/Unknown - ActuationPending",
        "13 Applied/Failed - ResourcesFailed",
        // An object more. It takes another apply to know that it was not refused.
        "14 Pending/Failed - NotObserved",
        "15 Applying/Unknown - ActuationPending",
        "17 Pending/Current - NotObserved",
        "18 Applying/Unknown - ActuationPending",
        "19 Applied/Current v5 ",
        // It is refused, and accepted again.
        "20 Applying/Unknown - ActuationPending",
        "22 Failed/Unknown - ActuationFailed",
        "23 Applying/Unknown - ActuationPending",
        "25 Pending/Current - NotObserved",
        // A new one is refused, twice, and forgotten.
        "26 Pending/NotFound - NotObserved",
        "27 Applying/Unknown - ActuationPending",
        "29 Pending/Current - NotObserved",
        "30 Pending/NotFound - NotObserved",
        "31 Applying/Unknown - ActuationPending",
        "33 Pending/Current - NotObserved",
        // Pruned, and applied again.
        "34 Applying/Unknown - ActuationPending",
        "36 Pending/Current - NotObserved",
        "37 Applying/Unknown - ActuationPending",
        "38 Applied/Current v5 ",
        // kpt is killed, and runs again.
        "39 Applying/Unknown - ActuationPending",
        "40 Applied/Current v6 ",
        // Without a word in the ResourceGroup.
        "40 Applying/Current - NewRevision",
        "40 Applying/InProgress - NewRevision",
    ];
    assert_eq!(shown, expected);
}

//! A recording of Sveltos' controllers (tests/traces), replayed version by version.
//!
//! What works at each version is worked out here from the profile's ConfigMap and from the objects in the managed cluster, and not from
//! any status.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::Value;
use statusbridge_contract::{ApplyState, Fingerprint};
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

const CHARTS: &str = "payments-sveltos-eu-1";
const WAITED_FOR: &str = "waits-sveltos-eu-1";
const MANIFESTS: &str = "rules-sveltos-eu-1";

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

/// The newest time in an object, in unix milliseconds.
fn newest(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond),
        Value::Array(items) => items.iter().map(newest).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(newest).max().unwrap_or(0),
        _ => 0,
    }
}

/// What is there at one moment, by cluster, kind and name.
#[derive(Default, Clone)]
struct World {
    objects: BTreeMap<(String, String, String), Value>,
    /// The manifests of which Sveltos made each hash.
    manifests: BTreeMap<String, String>,
}

impl World {
    fn follow(&mut self, event: &Value) {
        let object = &event["object"];
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let key = (text(&event["cluster"]), text(&object["kind"]), name(object).to_owned());
        if event["type"] == "DELETED" {
            self.objects.remove(&key);
            return;
        }
        if let (true, Some(hash)) =
            (name(object) == MANIFESTS, object["status"]["featureSummaries"][0]["hash"].as_str())
        {
            let manifests = self.get("mgmt", "ConfigMap", "rules").map(|it| text(&it["data"]["rules.yaml"]));
            self.manifests.entry(hash.to_owned()).or_insert(manifests.unwrap_or_default());
        }
        self.objects.insert(key, object.clone());
    }

    fn get(&self, cluster: &str, kind: &str, named: &str) -> Option<&Value> {
        self.objects.get(&(cluster.to_owned(), kind.to_owned(), named.to_owned()))
    }

    /// The image of a Deployment in the managed cluster, and whether it is available.
    fn deployment(&self, named: &str) -> Option<(&str, bool)> {
        let deployment = self.get("eu-1", "Deployment", named)?;
        let status = &deployment["status"];
        let available = status["observedGeneration"] == deployment["metadata"]["generation"]
            && status["availableReplicas"] == deployment["spec"]["replicas"];
        let image = deployment.pointer("/spec/template/spec/containers/0/image")?;
        Some((image.as_str()?, available))
    }

    /// Whether the cluster has what a revision says, and whether it works.
    fn has(&self, summary: &str, revision: &str) -> (bool, bool) {
        let config = |named| self.get("eu-1", "ConfigMap", named).map(|it| &it["data"]);
        if summary != MANIFESTS {
            let chart = config("payments").and_then(|data| data["version"].as_str());
            let (image, available) = self.deployment("payments").unwrap_or_default();
            let is_there = chart == Some(revision) && image == format!("example.com/payments:{revision}");
            return (is_there, available);
        }
        let content = config("web").and_then(|data| data["content"].as_str()).unwrap_or_default();
        let (image, available) = self.deployment("web").unwrap_or_default();
        let manifests = self.manifests.get(revision).map(String::as_str).unwrap_or_default();
        let is_there = manifests.contains(&format!(r#"content: "{content}""#))
            && manifests.contains(&format!(r#"image: "{image}""#));
        (is_there, available)
    }

    fn revisions(&self) -> impl Iterator<Item = String> {
        let charts = ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "9.9.9"].into_iter().map(str::to_owned);
        charts.chain(self.manifests.keys().cloned())
    }

    fn revision(&self, fingerprint: Fingerprint) -> Option<String> {
        self.revisions().find(|revision| Fingerprint::of(revision.as_str()) == fingerprint)
    }

    /// A revision as a reader knows it: a chart's version, or the content of the ConfigMap.
    fn short(&self, fingerprint: Fingerprint) -> String {
        let Some(revision) = self.revision(fingerprint) else { return "-".to_owned() };
        match self.manifests.get(&revision) {
            Some(manifests) => manifests.split('"').nth(1).unwrap_or("nothing").to_owned(),
            None => revision,
        }
    }
}

/// Each version of a ClusterSummary or of its cluster, what there was then, what is shown and whether that is a transition.
fn replay(summary: &str) -> Vec<(World, Shown, bool)> {
    let events = recording(include_str!("traces/sveltos-1.14.0.jsonl"));
    let objects: Vec<Value> = events.iter().map(|event| event["object"].clone()).collect();
    let mut replay = Replay::of("sveltos-clustersummary", &objects);
    let (mut world, mut now, mut shown) = (World::default(), 0, Vec::new());
    for event in &events {
        world.follow(event);
        now = now.max(newest(&event["object"]));
        let kind = event["object"]["kind"].as_str().expect("a kind");
        let is_read = kind == "SveltosCluster" || name(&event["object"]) == summary;
        if let (true, Some(object)) = (is_read, world.get("mgmt", "ClusterSummary", summary)) {
            let cluster: Vec<Value> =
                world.get("mgmt", "SveltosCluster", "eu-1").cloned().into_iter().collect();
            let (it, changed) = replay.step(object, &cluster, now);
            shown.push((world.clone(), it, changed));
        }
    }
    shown
}

#[rstest]
#[case::charts(CHARTS, &["1.0.0", "1.1.0", "1.3.0", "1.1.0", "1.3.0"])]
#[case::charts_that_are_waited_for(WAITED_FOR, &["1.0.0", "1.1.0", "1.3.0"])]
#[case::manifests(MANIFESTS, &["r1", "r2", "r3", "r5", "r7", "r8", "r9", "r10"])]
fn a_revision_is_only_claimed_healthy_when_the_cluster_has_it(
    #[case] summary: &str,
    #[case] claimed: &[&str],
) {
    let mut claims = Vec::new();
    for (n, (world, shown, changed)) in replay(summary).iter().enumerate() {
        if shown.verdict.healthy.is_none() {
            continue;
        }
        let revision = world.revision(shown.verdict.healthy).expect("a revision");
        let (is_there, works) = world.has(summary, &revision);
        assert!(is_there, "version {n}: {revision}");
        // Sveltos asks its checks once.
        assert!(works || !changed, "version {n}: {revision}");
        claims.push(world.short(shown.verdict.healthy));
    }
    claims.dedup();
    assert_eq!(claims, claimed);
}

/// Why not every `Failed` is one: the cluster has what is wanted, and Sveltos asked too early or overtook itself.
#[rstest]
#[case::charts(CHARTS, &["HealthCheckNotPassed", "StatusConflict"])]
#[case::manifests(MANIFESTS, &["HealthCheckNotPassed"])]
fn what_sveltos_tries_again_is_there(#[case] summary: &str, #[case] expected: &[&str]) {
    let mut reasons = BTreeSet::new();
    for (n, (world, shown, _)) in replay(summary).iter().enumerate() {
        let Some(reason @ ("HealthCheckNotPassed" | "StatusConflict")) = shown.verdict.reason.as_deref()
        else {
            continue;
        };
        assert_eq!(shown.verdict.apply, ApplyState::Applying, "version {n}");
        let wanted = world.revision(shown.verdict.desired).expect("a revision");
        let (is_there, works) = world.has(summary, &wanted);
        assert!(is_there && (works || reason == "HealthCheckNotPassed"), "version {n}: {reason}");
        reasons.insert(reason.to_owned());
    }
    assert!(reasons.iter().eq(expected), "{reasons:?}");
}

#[rstest]
#[case::charts(CHARTS)]
#[case::charts_that_are_waited_for(WAITED_FOR)]
#[case::manifests(MANIFESTS)]
fn a_rollout_is_told_step_by_step(#[case] summary: &str) {
    let replayed = replay(summary);
    let told: Vec<String> = transitions(&replayed)
        .into_iter()
        .map(|(n, apply, health, healthy, reason)| {
            format!("{n} {apply}/{health} {} {reason}", replayed[n].0.short(healthy))
        })
        .collect();
    insta::assert_snapshot!(format!("a_rollout_of_{summary}"), told.join("\n"));
}

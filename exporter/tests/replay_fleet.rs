//! What is shown while the real Rancher Fleet, its controller and four agents, rolls commits out: a recording, see
//! traces/PROVENANCE.md.
//!
//! What is true at each version is worked out from the objects that Fleet put into the clusters, and from the bundle.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use statusbridge_contract::{Fingerprint, Health};
use statusbridge_exporter::{
    recording::Kinds,
    rehearsal::{Package, Rehearsal},
    saved::SavedObject,
    source::Preset,
    state::Limits,
};

const CLUSTERS: [&str; 4] = ["eu-1", "eu-2", "eu-3", "eu-4"];

fn recording() -> Vec<Value> {
    let lines = include_str!("traces/fleet-bundledeployment-0.16.1.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// One time for all lines: the agents checked in when the recording began, which took less than 45 minutes.
fn now(objects: &[Value]) -> i64 {
    let seen = objects.iter().filter_map(|o| o["status"]["agent"]["lastSeen"].as_str());
    let newest: jiff::Timestamp = seen.max().expect("an agent").parse().expect("a time");
    newest.as_millisecond() + 60_000
}

fn commit(object: &Value) -> &str {
    object["metadata"]["labels"]["fleet.cattle.io/commit"].as_str().unwrap_or_default()
}

fn cluster(object: &Value) -> &str {
    object["metadata"]["labels"]["fleet.cattle.io/cluster"].as_str().unwrap_or_default()
}

/// What the files of a bundle put into the ConfigMap.
fn content(bundle: &Value) -> String {
    let files = bundle["spec"]["resources"].as_array().expect("files").iter();
    let objects =
        files.map(|f| serde_json::from_str::<Value>(f["content"].as_str().expect("text")).expect("JSON"));
    let config = objects.into_iter().find(|o| o["kind"] == "ConfigMap").expect("a ConfigMap");
    config["data"]["content"].as_str().expect("text").to_owned()
}

/// The objects as they are after some lines of the recording.
#[derive(Default)]
struct World<'a> {
    objects: BTreeMap<(&'a str, &'a str, &'a str), &'a Value>,
    /// What each commit has in it, by the bundle.
    contents: BTreeMap<&'a str, String>,
}

impl<'a> World<'a> {
    fn put(&mut self, object: &'a Value) {
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let metadata = &object["metadata"];
        if object["kind"] == "Bundle" {
            self.contents.insert(commit(object), content(object));
        }
        let key = (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
        self.objects.insert(key, object);
    }

    /// What runs in a cluster: the content that its ConfigMap and its Deployment have, while the Deployment is available.
    fn works(&self, cluster: &str) -> Option<&str> {
        let namespace = format!("payments-{cluster}");
        let config = self.objects.get(&("ConfigMap", namespace.as_str(), "web"))?;
        let web = self.objects.get(&("Deployment", namespace.as_str(), "web"))?;
        let content = config["data"]["content"].as_str()?;
        let image = &web["spec"]["template"]["spec"]["containers"][0]["image"];
        let available = web["status"]["observedGeneration"] == web["metadata"]["generation"]
            && web["status"]["availableReplicas"] == 1;
        (available && *image == format!("example.com/web:{content}")).then_some(content)
    }
}

struct Replay(Rehearsal, i64);

impl Replay {
    fn begin(objects: &[Value]) -> Self {
        let source = Preset::find("fleet-bundledeployment").expect("a preset").source().expect("it compiles");
        let kinds: Vec<_> =
            objects.iter().map(|value| SavedObject::new("recording", value.clone())).collect();
        let kinds = Kinds::of(&kinds);
        let now = now(objects);
        Self(Rehearsal::begin(vec![Arc::new(source)], Limits::default(), kinds, Vec::new(), now).0, now)
    }

    fn put(&mut self, object: &Value) -> bool {
        !self.0.put(object.clone(), self.1).is_empty()
    }

    fn package(&self, cluster: &str) -> Option<&Package> {
        let found = self.0.packages().iter().find(|(id, _)| id.cluster.as_deref() == Some(cluster));
        found.map(|(_, package)| {
            assert_eq!(package.error, None);
            package
        })
    }
}

/// The last id that each cluster was given for a commit. Another one of the same commit was still that of the commit before.
fn final_ids(objects: &[Value]) -> BTreeMap<(&str, &str), &Value> {
    let deployments = objects.iter().filter(|o| o["kind"] == "BundleDeployment");
    deployments.map(|o| ((commit(o), cluster(o)), &o["spec"]["deploymentID"])).collect()
}

#[test]
fn no_commit_is_claimed_healthy_whose_content_does_not_work() {
    let objects = recording();
    let (mut replay, mut world) = (Replay::begin(&objects), World::default());
    let ids = final_ids(&objects);
    let mut claims = BTreeMap::<&str, usize>::new();
    for (line, object) in objects.iter().enumerate() {
        world.put(object);
        replay.put(object);
        // An agent sees what becomes of the objects some seconds later: what it writes is to be true.
        if object["kind"] != "BundleDeployment" {
            continue;
        }
        let cluster = cluster(object);
        let healthy = replay.package(cluster).expect("it is shown").shown.verdict.healthy;
        if !healthy.is_none() {
            let works =
                world.works(cluster).unwrap_or_else(|| panic!("line {line}: nothing works in {cluster}"));
            assert_eq!(healthy, Fingerprint::of(commit(object)), "line {line}");
            assert_eq!(world.contents[commit(object)], works, "line {line}: {cluster}");
            assert_eq!(
                &object["status"]["appliedDeploymentID"],
                ids[&(commit(object), cluster)],
                "line {line}: {cluster}"
            );
            *claims.entry(commit(object)).or_default() += 1;
        }
    }
    let digits: String = claims.keys().filter_map(|commit| commit.chars().next()).collect();
    assert_eq!(digits, "12346789", "{claims:?}");
    let packages: Vec<_> = CLUSTERS.iter().map(|c| replay.package(c).expect("it is shown")).collect();
    assert!(packages.iter().all(|p| p.shown.verdict.healthy == Fingerprint::of(&"9".repeat(40))));
}

#[test]
fn a_label_that_runs_ahead_of_the_rollout_is_no_proof() {
    let objects = recording();
    let mut replay = Replay::begin(&objects);
    let mut ahead = 0;
    let mut world = World::default();
    for object in &objects {
        world.put(object);
        replay.put(object);
        let Some(commit) = (object["kind"] == "BundleDeployment").then(|| commit(object)) else { continue };
        let cluster = cluster(object);
        let ids = [&object["spec"]["stagedDeploymentID"], &object["status"]["appliedDeploymentID"]];
        let agree =
            ids.iter().all(|id| **id == object["spec"]["deploymentID"]) && object["status"]["ready"] == true;
        // All that the object itself says is good, and another content runs.
        if agree
            && object["spec"]["paused"] != true
            && world.works(cluster).is_some_and(|works| world.contents[commit] != works)
        {
            let verdict = &replay.package(cluster).expect("it is shown").shown.verdict;
            assert_eq!(
                (verdict.reason.as_deref(), verdict.health),
                (Some("CommitNotProven"), Health::Current)
            );
            ahead += 1;
        }
    }
    assert!(ahead > 0, "the recording has a rollout in partitions");
}

#[test]
fn every_commit_is_shown_as_what_came_of_it() {
    let objects = recording();
    let mut replay = Replay::begin(&objects);
    let mut shown = Vec::new();
    for object in &objects {
        replay.put(object);
        let Some(package) = replay.package("eu-1") else { continue };
        let v = &package.shown.verdict;
        let name = |fingerprint: Fingerprint| {
            "123456789bc"
                .chars()
                .find(|c| Fingerprint::of(&c.to_string().repeat(40)) == fingerprint)
                .unwrap_or('-')
        };
        let reason = v.reason.as_deref().unwrap_or_default();
        shown.push(format!("{} {}/{} {} {reason}", name(v.desired), v.apply, v.health, name(v.healthy)));
    }
    shown.dedup();
    insta::assert_snapshot!(shown.join("\n"));
}

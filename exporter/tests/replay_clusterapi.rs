//! A recording of Cluster API's controllers (tests/traces), replayed version by version.
//!
//! What runs at each version is worked out here from the Nodes of the workload clusters, which the preset never sees.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

mod support;

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::state::Shown;
use support::{Replay, recording, transitions};

const VERSIONS: [&str; 5] = ["v1.34.3", "v1.35.2", "v1.36.0", "v1.36.1", "v1.36.2"];

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// A cluster, its Machines and its Nodes as they are at one moment.
#[derive(Default, Clone)]
struct World {
    cluster: Option<Value>,
    machines: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
}

impl World {
    fn follow(&mut self, event: &Value) {
        let object = &event["object"];
        let objects = match object["kind"].as_str() {
            Some("Machine") => &mut self.machines,
            Some("Node") => &mut self.nodes,
            _ => {
                self.cluster = (event["type"] != "DELETED").then(|| object.clone());
                return;
            }
        };
        if event["type"] == "DELETED" {
            objects.remove(name(object));
        } else {
            objects.insert(name(object).to_owned(), object.clone());
        }
    }

    /// The versions of the kubelets, whether or not they are ready.
    fn kubelets(&self) -> BTreeSet<&str> {
        let versions = self.nodes.values().map(|node| &node["status"]["nodeInfo"]["kubeletVersion"]);
        versions.map(|version| version.as_str().expect("a version")).collect()
    }

    /// The version that all Nodes have, if all are ready and none is missing.
    fn works(&self, nodes: usize) -> Option<&str> {
        let is_ready = |node: &Value| condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        let kubelets = self.kubelets();
        let complete = self.nodes.len() == nodes && self.nodes.values().all(is_ready) && kubelets.len() == 1;
        kubelets.first().copied().filter(|_| complete)
    }

    /// Whether all that the cluster says of itself is good, and of the present generation.
    fn is_called_done(&self) -> bool {
        let good = [
            ("Available", "True"),
            ("RollingOut", "False"),
            ("ControlPlaneMachinesUpToDate", "True"),
            ("WorkerMachinesUpToDate", "True"),
        ];
        self.cluster.as_ref().is_some_and(|cluster| {
            let generation = &cluster["metadata"]["generation"];
            good.iter().all(|(kind, status)| {
                condition(cluster, kind)
                    .is_some_and(|it| it["status"] == *status && it["observedGeneration"] == *generation)
            })
        })
    }
}

/// Each version of a cluster or of one of its Machines, what there was then, what is shown and whether that is a transition.
fn replay(cluster: &str) -> Vec<(World, Shown, bool)> {
    let events = recording(include_str!("traces/clusterapi-1.14.2.jsonl"));
    let of_cluster = |event: &&Value| {
        let object = &event["object"];
        match object["kind"].as_str() {
            Some("Node") => event["cluster"] == cluster,
            Some("Machine") => object["spec"]["clusterName"] == cluster,
            _ => object["metadata"]["name"] == cluster,
        }
    };
    let objects: Vec<Value> = events.iter().map(|event| event["object"].clone()).collect();
    let mut replay = Replay::of("clusterapi-cluster", &objects);
    let (mut world, mut shown) = (World::default(), Vec::new());
    for event in events.iter().filter(of_cluster) {
        world.follow(event);
        if let (true, Some(cluster)) = (event["object"]["kind"] != "Node", &world.cluster) {
            let machines: Vec<Value> = world.machines.values().cloned().collect();
            let (it, changed) = replay.step(cluster, &machines, 0);
            shown.push((world.clone(), it, changed));
        }
    }
    shown
}

fn version(fingerprint: Fingerprint) -> &'static str {
    VERSIONS.into_iter().find(|version| Fingerprint::of(version) == fingerprint).unwrap_or("-")
}

#[rstest]
#[case::with_a_topology("eu-1", 3, &VERSIONS)]
#[case::without_a_topology("eu-2", 2, &["v1.34.3", "v1.35.2"])]
fn a_version_is_only_claimed_healthy_when_every_node_has_it(
    #[case] cluster: &str,
    #[case] nodes: usize,
    #[case] claimed: &[&str],
) {
    let mut claims = Vec::new();
    for (n, (world, shown, changed)) in replay(cluster).iter().enumerate() {
        if shown.verdict.healthy.is_none() {
            continue;
        }
        let healthy = version(shown.verdict.healthy);
        assert_eq!(world.kubelets(), BTreeSet::from([healthy]), "version {n}");
        // Cluster API hears of a Node some seconds after it changed.
        if *changed {
            assert_eq!(world.works(nodes), Some(healthy), "version {n}");
        }
        claims.push(healthy);
    }
    claims.dedup();
    assert_eq!(claims, claimed);
}

/// Why conditions alone are not believed: the control plane is upgraded, the workers are not, and nothing is left to do.
#[test]
fn a_cluster_without_a_topology_calls_itself_done_with_two_versions() {
    let replayed = replay("eu-2");
    let called_done: Vec<_> = replayed
        .iter()
        .filter(|(world, ..)| world.is_called_done() && world.kubelets().len() > 1)
        .map(|(_, shown, _)| (shown.verdict.reason.as_deref(), shown.verdict.healthy))
        .collect();
    assert_eq!(called_done, [(Some("SeveralVersions"), Fingerprint::NONE)]);
}

#[rstest]
#[case::with_a_topology("eu-1")]
#[case::without_a_topology("eu-2")]
fn an_upgrade_is_told_step_by_step(#[case] cluster: &str) {
    let told: Vec<String> = transitions(&replay(cluster))
        .into_iter()
        .map(|(n, apply, health, healthy, reason)| {
            format!("{n} {apply}/{health} {} {reason}", version(healthy))
        })
        .collect();
    insta::assert_snapshot!(format!("an_upgrade_of_{cluster}"), told.join("\n"));
}

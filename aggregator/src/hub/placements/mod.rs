//! PlacementDecisions of FleetRollouts that ask for them, so that what is admitted is placed by whoever reads these.
//!
//! ```text
//!   record ──World::placements──> sets ──┐
//!   PlacementDecisions in the hub ───────┴─plan──> make and fill up, then take out, then remove
//! ```
//!
//! They follow the record, which decides; a cluster is in the set of its new revision before it leaves that of the one before.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use statusbridge_api::fleet_rollout::PlacementApi;
use statusbridge_api::fleet_rollout_slice::FLEET_ROLLOUT_LABEL;
use statusbridge_core::reconcile::object::{Key, Version};
use statusbridge_core::reconcile::owned::label;
use statusbridge_core::reconcile::rollouts::placements::{Placed, Placements};
use tokio::time::sleep;
use tracing::{info, warn};

use self::plan::{Change, Decision, plan};
use crate::hub::write::{self, HubError, in_time};

/// Label of PlacementDecisions of SIG Multicluster with the set that they are parts of.
const DECISION_KEY: &str = "multicluster.x-k8s.io/decision-key";
/// The same of Open Cluster Management: the name of a Placement.
const PLACEMENT: &str = "cluster.open-cluster-management.io/placement";
/// Labels that Open Cluster Management's readers expect: all of a set are one group.
const GROUP_INDEX: &str = "cluster.open-cluster-management.io/decision-group-index";
const GROUP_NAME: &str = "cluster.open-cluster-management.io/decision-group-name";
/// So often it is looked what is to be done next: clusters go in, go out, and nothing is left.
const ROUNDS: usize = 3;
/// So many objects of a FleetRollout are written before the next one has its turn.
const MOST_WRITES: usize = 50;
/// Objects that are listed at a time.
const PAGE: u32 = 50;

/// A FleetRollout, and why its PlacementDecisions cannot be written; nothing where they are.
pub(crate) type Told = (Key, Option<String>);

/// Brings all PlacementDecisions to what they should say, with this time between two writes. Whether all was written, and what is
/// to be told of each FleetRollout.
pub(crate) async fn hand_over(client: &Client, all: Vec<Placements>, a_write: Duration) -> (bool, Vec<Told>) {
    let (mut whole, mut told) = (true, BTreeMap::<Key, Option<String>>::new());
    for placements in all {
        let why = match one(client, &placements, a_write).await {
            Ok(done) => {
                whole &= done;
                placements.lack()
            }
            Err(error) => {
                whole = false;
                warn!(object = %placements.rollout, %error, "PlacementDecisions could not be written");
                Some(format!("PlacementDecisions of {}: {error}", group(placements.api)))
            }
        };
        // Of two APIs the one that fails is told of.
        let known = told.entry(placements.rollout).or_default();
        *known = known.take().or(why);
    }
    (whole, told.into_iter().collect())
}

/// Brings the PlacementDecisions of a FleetRollout to what they should say, or some of them. Whether all of them are so.
async fn one(client: &Client, of: &Placements, a_write: Duration) -> Result<bool, HubError> {
    let api = decisions(client, of.api, &of.rollout.namespace);
    // A ClusterProfile that is not known now is not taken out: whoever places by it would remove what runs there.
    let stays =
        |placed: &Placed| matches!(placed, Placed::Profile(profile) if !of.profiles.contains(profile));
    let mut left = MOST_WRITES;
    for _ in 0..ROUNDS {
        let changes = plan(&of.sets, list(&api, of).await?, stays);
        if changes.is_empty() {
            break;
        }
        for change in changes {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            write(&api, of, change).await?;
            sleep(a_write).await;
        }
    }
    Ok(true)
}

async fn list(api: &Api<DynamicObject>, of: &Placements) -> Result<Vec<Decision>, HubError> {
    let of_rollout = format!("{FLEET_ROLLOUT_LABEL}={}", label(&of.rollout.name));
    let page = ListParams::default().labels(&of_rollout).limit(PAGE);
    write::list(api, page, |object| read(of.api, &object)).await
}

const fn group(api: PlacementApi) -> &'static str {
    match api {
        PlacementApi::Multicluster => "multicluster.x-k8s.io",
        PlacementApi::OpenClusterManagement => "cluster.open-cluster-management.io",
    }
}

fn decisions(client: &Client, api: PlacementApi, namespace: &str) -> Api<DynamicObject> {
    let version = match api {
        PlacementApi::Multicluster => "v1alpha1",
        PlacementApi::OpenClusterManagement => "v1beta1",
    };
    let kind = GroupVersionKind::gvk(group(api), version, "PlacementDecision");
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk_with_plural(&kind, "placementdecisions"),
    )
}

fn read(api: PlacementApi, object: &DynamicObject) -> Option<Decision> {
    let metadata = &object.metadata;
    let (label, rows) = match api {
        PlacementApi::Multicluster => (DECISION_KEY, "/decisions"),
        PlacementApi::OpenClusterManagement => (PLACEMENT, "/status/decisions"),
    };
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let placed = |row: &Value| {
        let text = |path: &str| {
            row.pointer(path).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        match api {
            PlacementApi::Multicluster => {
                let namespace = text("/clusterProfileRef/namespace").unwrap_or_else(|| namespace.clone());
                Some(Placed::Profile(Key { namespace, name: text("/clusterProfileRef/name")? }))
            }
            PlacementApi::OpenClusterManagement => Some(Placed::Cluster(text("/clusterName")?)),
        }
    };
    let rows = object.data.pointer(rows).and_then(Value::as_array);
    Some(Decision {
        set: metadata.labels.as_ref().and_then(|labels| labels.get(label)).cloned().unwrap_or_default(),
        placed: rows.into_iter().flatten().filter_map(placed).collect(),
        version: Version::of(metadata)?,
    })
}

async fn write(api: &Api<DynamicObject>, of: &Placements, change: Change) -> Result<(), HubError> {
    match change {
        Change::Create { name, set, placed } => {
            let object = made(of, &name, &set, &placed);
            let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            let made = in_time(api.create(&write::making(), &object)).await?;
            info!(rollout = %of.rollout, name, clusters = placed.len(), "a PlacementDecision is made");
            if of.api == PlacementApi::OpenClusterManagement
                && let Some(made) = read(of.api, &made)
            {
                fill(api, of, &made.version, &placed).await?;
            }
            Ok(())
        }
        Change::Fill { version, placed } => fill(api, of, &version, &placed).await,
        Change::Delete(version) => write::delete(api, &version).await.map(drop),
    }
}

/// Replaces who is in a PlacementDecision. One that has changed meanwhile is an error, and looked at again.
async fn fill(
    api: &Api<DynamicObject>,
    of: &Placements,
    version: &Version,
    placed: &BTreeSet<Placed>,
) -> Result<(), HubError> {
    let metadata = json!({"uid": version.uid, "resourceVersion": version.resource_version});
    let params = write::patching();
    let rows = rows(placed);
    match of.api {
        PlacementApi::Multicluster => {
            let patch = Patch::Merge(json!({"metadata": metadata, "decisions": rows}));
            in_time(api.patch(&version.key.name, &params, &patch)).await.map(drop)
        }
        PlacementApi::OpenClusterManagement => {
            let patch = Patch::Merge(json!({"metadata": metadata, "status": {"decisions": rows}}));
            in_time(api.patch_status(&version.key.name, &params, &patch)).await.map(drop)
        }
    }
}

fn rows(placed: &BTreeSet<Placed>) -> Vec<Value> {
    const REASON: &str = "admitted by a FleetRollout";
    let row = |placed: &Placed| match placed {
        Placed::Cluster(name) => json!({"clusterName": name, "reason": REASON}),
        Placed::Profile(Key { namespace, name }) => {
            json!({"clusterProfileRef": {"namespace": namespace, "name": name}, "reason": REASON})
        }
    };
    placed.iter().map(row).collect()
}

fn made(of: &Placements, name: &str, set: &str, placed: &BTreeSet<Placed>) -> Value {
    let rollout = label(&of.rollout.name);
    let metadata = |labels: Value| json!({"name": name, "namespace": of.rollout.namespace, "labels": labels});
    match of.api {
        PlacementApi::Multicluster => json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision",
            "metadata": metadata(json!({DECISION_KEY: set, FLEET_ROLLOUT_LABEL: rollout})),
            "schedulerName": "statusbridge", "decisions": rows(placed),
        }),
        PlacementApi::OpenClusterManagement => json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "PlacementDecision",
            "metadata": metadata(json!({
                PLACEMENT: set, GROUP_INDEX: "0", GROUP_NAME: "", FLEET_ROLLOUT_LABEL: rollout,
            })),
        }),
    }
}

//! KubeFleet's objects in the hub: what is watched, read and written of them.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use statusbridge_aggregator::hub::write::{self, HubError, Written, in_time};
use statusbridge_core::decide::time;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::time::Seconds;

use super::requests::{APPROVED, Request};
use crate::hub::Hub;

/// The kind of the requests, as it is told of.
pub(super) const REQUEST: &str = "ClusterApprovalRequest";
const RUN: &str = "ClusterStagedUpdateRun";
/// Requests for the end of a stage. Others ask before a stage begins, when no gate over its clusters can be open; KubeFleet
/// before 0.2 has no such ones, and no label.
const AFTER_A_STAGE: &str = "kubernetes-fleet.io/taskType!=beforeStage";
/// Objects of a page of a list.
const PAGE: u32 = 50;
const FIELD_MANAGER: &str = "statusbridge-approve-stages";

fn objects(hub: &Hub, kind: &str) -> Api<LazyObject> {
    let kind = GroupVersionKind::gvk("placement.kubernetes-fleet.io", "v1beta1", kind);
    Api::all_with(hub.client.clone(), &ApiResource::from_gvk(&kind))
}

/// What lists and the watch of requests say. Errors pass: it goes on, after a while that grows.
pub(super) fn watch(hub: &Hub) -> BoxStream<'static, watcher::Result<Event<LazyObject>>> {
    let only = watcher::Config::default().labels(AFTER_A_STAGE).page_size(PAGE);
    watcher(objects(hub, REQUEST), only).default_backoff().boxed()
}

/// The annotations of an update run; `None` where there is no such run, or not for long.
///
/// # Errors
/// In words, when it cannot be read.
pub(super) async fn annotations(hub: &Hub, run: &str) -> Result<Option<BTreeMap<String, String>>, String> {
    let runs = objects(hub, RUN);
    let run = in_time(runs.get_metadata_opt(run)).await.map_err(|error| error.to_string())?;
    let run = run.map(|run| run.metadata).filter(|run| run.deletion_timestamp.is_none());
    Ok(run.map(|run| run.annotations.unwrap_or_default()))
}

/// Approves a request, unless it has changed meanwhile or is another of the same name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub(super) async fn approve(
    hub: &Hub,
    request: &Request,
    message: &str,
    at: Seconds,
) -> Result<Written, HubError> {
    let requests = objects(hub, REQUEST);
    // Server-side apply leaves the other conditions alone.
    let patch = json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": REQUEST,
        "metadata": {"name": request.name, "uid": request.uid, "resourceVersion": request.resource_version},
        "status": {"conditions": [{
            "type": APPROVED, "status": "True", "reason": "GateOpen", "message": message,
            "observedGeneration": request.generation, "lastTransitionTime": time(at),
        }]},
    });
    let params = PatchParams::apply(FIELD_MANAGER);
    let answer = in_time(requests.patch_status(&request.name, &params, &Patch::Apply(&patch))).await;
    write::written(answer.map(Written::done))
}

//! Writing what discovery found.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::plan::{Change, Version};
use super::{DISCOVERED_LABEL, FIELD_MANAGER, NOT_REPORTED_SINCE};
use crate::api::{GROUP, VERSION};
use crate::write::{HubError, Kind, Written, in_time};

/// Makes one change. An object that has changed since it was read is not touched, nor is one that
/// somebody else made under the name meanwhile.
pub(super) async fn write(client: &Client, namespace: &str, change: &Change) -> Result<Written, HubError> {
    let resource = Kind::FleetPackage.resource();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let answer = match change {
        Change::Create { name, package } => {
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": Kind::FleetPackage.name(),
                "metadata": {"namespace": namespace, "name": name, "labels": {DISCOVERED_LABEL: "true"}},
                "spec": {"package": package},
            });
            create(&api, object).await
        }
        Change::Note { version, since } => {
            let patch = json!({
                "metadata": {
                    "uid": version.uid,
                    "resourceVersion": version.resource_version,
                    "annotations": {NOT_REPORTED_SINCE: since.map(|since| since.to_string())},
                },
            });
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            in_time(api.patch(&version.key.name, &params, &Patch::Merge(&patch))).await.map(done)
        }
        Change::Delete(version) => delete(&api, version).await,
    };
    match answer {
        Err(HubError::Api(kube::Error::Api(refusal))) if refusal.code == 409 => Ok(Written::Conflict),
        // Of an object; a namespace that is not there is an error.
        Err(HubError::Api(kube::Error::Api(refusal)))
            if refusal.code == 404 && !matches!(change, Change::Create { .. }) =>
        {
            Ok(Written::Gone)
        }
        answer => answer,
    }
}

/// Not by server-side apply, which would change an object that is there already.
async fn create(api: &Api<DynamicObject>, object: serde_json::Value) -> Result<Written, HubError> {
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    in_time(api.create(&params, &object)).await.map(done)
}

async fn delete(api: &Api<DynamicObject>, version: &Version) -> Result<Written, HubError> {
    let preconditions = Preconditions {
        uid: Some(version.uid.clone()),
        resource_version: Some(version.resource_version.clone()),
    };
    let params = DeleteParams::default().preconditions(preconditions);
    in_time(api.delete(&version.key.name, &params)).await.map(|_| Written::Gone)
}

fn done(object: DynamicObject) -> Written {
    Written::Done(Box::new(object.into()))
}

//! Writing objects that are wholly the aggregator's and belong to another one.

use kube::Client;
use kube::api::{Patch, PatchParams, PostParams, Request};
use kube::core::Resource;
use serde_json::{Value, json};
use statusbridge_api::{GROUP, VERSION};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::owned::{Change, Content, OwnedWrite};
use statusbridge_core::reconcile::store::Version;

use crate::hub::write::{self, FIELD_MANAGER, HubError, Written, in_time};

/// Makes one change. An object that has changed since it was read is not touched, nor is one of somebody else's that has
/// the name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write(client: &Client, write: &OwnedWrite) -> Result<Written, HubError> {
    let api = write::within(client, write.kind, &write.owner.1.namespace);
    let answer = match &write.change {
        Change::Create(name, content) => {
            let object = object(write, name, content);
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            // A patch would change one that was made meanwhile.
            let url = LazyObject::url_path(&write.kind.resource(), Some(&write.owner.1.namespace));
            let unusual = |error| HubError::Api(kube::Error::SerdeError(error));
            let body = serde_json::to_vec(&object).map_err(unusual)?;
            let request = Request::new(url).create(&params, body);
            let request = request.map_err(|error| HubError::Api(kube::Error::BuildRequest(error)))?;
            in_time(client.request(request)).await
        }
        // Server-side apply would leave what is not said any more, as it was not applied when the object was made.
        #[expect(clippy::indexing_slicing, reason = "a field of an object is set")]
        Change::Update(Version { key, resource_version, .. }, content) => {
            let mut patch = fields(content);
            patch["metadata"]["resourceVersion"] = json!(resource_version);
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            in_time(api.patch(&key.name, &params, &Patch::Merge(&patch))).await
        }
        Change::Delete(version) => return write::delete(&api, version).await,
    };
    write::written(answer.map(Written::done))
}

#[expect(clippy::indexing_slicing, reason = "a field of an object is set")]
fn object(write: &OwnedWrite, name: &str, content: &Content) -> Value {
    let api_version = format!("{GROUP}/{VERSION}");
    let (kind, owner) = &write.owner;
    let mut object = fields(content);
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(write.kind.name());
    object["metadata"]["namespace"] = json!(owner.namespace);
    object["metadata"]["name"] = json!(name);
    if let Some(uid) = &write.controller {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": api_version,
            "kind": kind.name(),
            "name": owner.name,
            "uid": uid,
            "controller": true,
        }]);
    }
    object
}

#[expect(clippy::indexing_slicing, reason = "a field of an object is set")]
fn fields(content: &Content) -> Value {
    let mut fields = Value::Object(content.fields.clone());
    fields["metadata"] = json!({"labels": content.labels});
    fields
}

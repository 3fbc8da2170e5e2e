//! Writing objects that are wholly the aggregator's and belong to another one.

use kube::Client;
use kube::api::{Patch, Request};
use kube::core::Resource;
use serde_json::{Value, json};
use statusbridge_api::{GROUP, VERSION};
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::Version;
use statusbridge_core::reconcile::owned::{Change, Content, OwnedWrite};

use crate::hub::write::{self, HubError, Written, in_time};

/// Makes one change. An object that has changed since it was read is not touched, nor is one of somebody else's that has
/// the name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write(client: &Client, write: &OwnedWrite) -> Result<Written, HubError> {
    let api = write::within(client, write.kind, &write.owner.1.namespace);
    let answer = match &write.change {
        Change::Create(name, content) => {
            let object = object(made(write, name), content);
            // A patch would change one that was made meanwhile.
            let url = LazyObject::url_path(&write.kind.resource(), Some(&write.owner.1.namespace));
            let unusual = |error| HubError::Api(kube::Error::SerdeError(error));
            let body = serde_json::to_vec(&object).map_err(unusual)?;
            let request = Request::new(url).create(&write::making(), body);
            let request = request.map_err(|error| HubError::Api(kube::Error::BuildRequest(error)))?;
            in_time(client.request(request)).await
        }
        // Server-side apply would leave what is not said any more, as it was not applied when the object was made.
        Change::Update(Version { key, resource_version, .. }, content) => {
            let patch = object(json!({"metadata": {"resourceVersion": resource_version}}), content);
            in_time(api.patch(&key.name, &write::patching(), &Patch::Merge(&patch))).await
        }
        Change::Delete(version) => return write::delete(&api, version).await,
    };
    write::written(answer.map(Written::done))
}

/// An object that is made, as far as it is not its content.
fn made(write: &OwnedWrite, name: &str) -> Value {
    let api_version = format!("{GROUP}/{VERSION}");
    let (kind, owner) = &write.owner;
    let owners = write.controller.as_ref().map(|uid| {
        json!([{
            "apiVersion": api_version,
            "kind": kind.name(),
            "name": owner.name,
            "uid": uid,
            "controller": true,
        }])
    });
    json!({
        "apiVersion": api_version,
        "kind": write.kind.name(),
        "metadata": {"namespace": owner.namespace, "name": name, "ownerReferences": owners},
    })
}

#[expect(clippy::indexing_slicing, reason = "a field of an object is set")]
fn object(mut object: Value, content: &Content) -> Value {
    object["metadata"]["labels"] = json!(content.labels);
    for (field, value) in &content.fields {
        object[field] = value.clone();
    }
    object
}

//! Writing objects that are wholly the aggregator's and belong to another one.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_api::{GROUP, VERSION};
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
            let object = object(write, name, json!({}), content);
            // Not forced: fields that somebody else owns are a conflict.
            in_time(api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(&object))).await
        }
        Change::Update(Version { key, uid, resource_version }, content) => {
            let version = json!({"uid": uid, "resourceVersion": resource_version});
            let object = object(write, &key.name, version, content);
            let params = PatchParams::apply(FIELD_MANAGER).force();
            in_time(api.patch(&key.name, &params, &Patch::Apply(&object))).await
        }
        Change::Delete(version) => return write::delete(&api, version).await,
    };
    write::written(answer.map(Written::done))
}

#[expect(clippy::indexing_slicing, reason = "a field of an object is set; the version is an object")]
fn object(write: &OwnedWrite, name: &str, version: Value, content: &Content) -> Value {
    let api_version = format!("{GROUP}/{VERSION}");
    let (kind, owner) = &write.owner;
    let mut object = Value::Object(content.fields.clone());
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(write.kind.name());
    object["metadata"] = version;
    object["metadata"]["namespace"] = json!(owner.namespace);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["labels"] = json!(content.labels);
    object["metadata"]["annotations"] = json!(content.annotations);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": api_version,
        "kind": kind.name(),
        "name": owner.name,
        "uid": write.owner_uid,
        "controller": true,
    }]);
    object
}

//! Writing slices.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_api::fleet_package_slice::FLEET_PACKAGE_LABEL;
use statusbridge_api::{FleetPackageSlice, GROUP, VERSION};
use statusbridge_core::reconcile::slices::{Change, label};
use statusbridge_core::reconcile::store::{HubObject, Key, Kind};

use crate::hub::write::{self, FIELD_MANAGER, HubError, Written, in_time};

/// Makes one change of a slice of the FleetPackage at `package` with this UID. A slice that has changed
/// since it was read is not touched, nor is one of somebody else's that has the name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write(
    client: &Client,
    package: &Key,
    package_uid: &str,
    change: &Change,
) -> Result<Written, HubError> {
    let api = write::within(client, Kind::FleetPackageSlice, &package.namespace);
    let answer = match change {
        Change::Create(name, content) => {
            let object = object(package, package_uid, name, json!({}), content);
            // Not forced: fields that somebody else owns are a conflict.
            in_time(api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(&object))).await
        }
        Change::Update(slice, content) => {
            let version = json!({"uid": slice.uid, "resourceVersion": slice.resource_version});
            let object = object(package, package_uid, &slice.key.name, version, content);
            let params = PatchParams::apply(FIELD_MANAGER).force();
            in_time(api.patch(&slice.key.name, &params, &Patch::Apply(&object))).await
        }
        Change::Delete(slice) => return write::delete(&api, &slice.version()).await,
    };
    write::written(answer.map(Written::done))
}

#[expect(
    clippy::indexing_slicing,
    reason = "a field of an object is set; the content and the version are objects"
)]
fn object(
    package: &Key,
    package_uid: &str,
    name: &str,
    version: Value,
    content: &FleetPackageSlice,
) -> Value {
    let api_version = format!("{GROUP}/{VERSION}");
    let mut object = json!(content);
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(Kind::FleetPackageSlice.name());
    object["metadata"] = version;
    object["metadata"]["namespace"] = json!(package.namespace);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["labels"] = json!({FLEET_PACKAGE_LABEL: label(&package.name)});
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": api_version,
        "kind": Kind::FleetPackage.name(),
        "name": package.name,
        "uid": package_uid,
        "controller": true,
    }]);
    object
}

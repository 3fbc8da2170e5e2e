//! Writing what discovery plans: a FleetPackage for every package that any cluster reports (`--discover-into`).

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use statusbridge_api::{GROUP, VERSION};
use statusbridge_core::reconcile::discover::{Change, FIELD_MANAGER};
use statusbridge_core::reconcile::labels::{DISCOVERED_LABEL, NOT_REPORTED_SINCE};
use statusbridge_core::reconcile::object::Kind;

use crate::hub::write::{self, HubError, Written, in_time};

/// Makes one change. An object that has changed since it was read is not touched, nor is one that
/// somebody else made under the name meanwhile.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write(client: &Client, namespace: &str, change: &Change) -> Result<Written, HubError> {
    let resource = Kind::FleetPackage.resource();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let field_manager = Some(FIELD_MANAGER.to_owned());
    let answer = match change {
        Change::Create { name, package } => {
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": Kind::FleetPackage.name(),
                "metadata": {"namespace": namespace, "name": name, "labels": {DISCOVERED_LABEL: "true"}},
                "spec": {"package": package},
            });
            // Not by server-side apply, which would change an object that is there already.
            let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            let params = PostParams { field_manager, ..PostParams::default() };
            in_time(api.create(&params, &object)).await.map(done)
        }
        Change::Note { version, since } => {
            let patch = json!({
                "metadata": {
                    "uid": version.uid,
                    "resourceVersion": version.resource_version,
                    "annotations": {NOT_REPORTED_SINCE: since.map(|since| since.to_string())},
                },
            });
            let params = PatchParams { field_manager, ..PatchParams::default() };
            in_time(api.patch(&version.key.name, &params, &Patch::Merge(&patch))).await.map(done)
        }
        Change::Delete(version) => return write::delete(&api, version).await,
    };
    match (change, answer) {
        // Of an object; a namespace that is not there is an error.
        (Change::Create { .. }, Err(HubError::Api(kube::Error::Api(refusal)))) if refusal.code == 404 => {
            Err(kube::Error::Api(refusal).into())
        }
        (_, answer) => write::written(answer),
    }
}

fn done(object: DynamicObject) -> Written {
    Written::Done(Box::new(object.into()))
}

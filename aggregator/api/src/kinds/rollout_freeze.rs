//! RolloutFreeze: for a while, no gate of a namespace is open, and no FleetRollout admits anybody.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// From when to when no gate of the namespace is open and no FleetRollout admits a cluster, and why.
#[skip_serializing_none]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "statusbridge.dev",
    version = "v1alpha1",
    kind = "RolloutFreeze",
    plural = "rolloutfreezes",
    namespaced,
    derive = "PartialEq",
    shortname = "rfreeze",
    category = "statusbridge",
    doc = "A time in which no RolloutGate of the namespace is open, but by its own override, and no FleetRollout admits a cluster.",
    printcolumn = r#"{"name":"From","type":"date","jsonPath":".spec.from"}"#,
    printcolumn = r#"{"name":"Until","type":"string","jsonPath":".spec.until"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".spec.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.from) || self.from < self.until",
    "message": "from must be before until"
}]))]
pub struct RolloutFreezeSpec {
    /// Why, for those who read it in the status of a gate or a FleetRollout.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// When it begins; left out: at once.
    pub from: Option<Time>,
    /// When it ends.
    pub until: Time,
}

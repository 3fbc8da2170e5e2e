//! RolloutApproval: somebody lets a gate open for one revision.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::rollout_gate::GateRef;

/// Who approves which revision of which gate, and what they saw of it. Immutable.
#[skip_serializing_none]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "statusbridge.dev",
    version = "v1alpha1",
    kind = "RolloutApproval",
    plural = "rolloutapprovals",
    namespaced,
    derive = "PartialEq",
    shortname = "rapproval",
    category = "statusbridge",
    doc = "An approval that a RolloutGate with approval: Required waits for. It counts while the gate is for its revision; deleting it takes it back.",
    printcolumn = r#"{"name":"Gate","type":"string","jsonPath":".spec.gateRef.name"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".spec.revision"}"#,
    printcolumn = r#"{"name":"By","type":"string","jsonPath":".spec.by.user"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".spec.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "an approval is immutable; delete it to take it back, and create another one"
}]))]
pub struct RolloutApprovalSpec {
    /// The gate, in the same namespace.
    pub gate_ref: GateRef,
    /// The revision that is approved, as the gate writes it or as its 12 hex digits.
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = [{
        "rule": "self.trim() == self",
        "message": "revision must not begin or end with white space"
    }]))]
    pub revision: String,
    /// Who approves. Where the admission policy is installed, nobody can name another user.
    pub by: ApprovedBy,
    /// Why, for those who read it later.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: Option<String>,
    /// What the gate's status said at that time.
    pub seen: Option<Seen>,
}

/// Who approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedBy {
    /// The user's name, as the API server knows it.
    #[schemars(length(min = 1, max = 1024))]
    pub user: String,
}

/// What was seen of a gate by those who approved.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Generation of the gate's spec.
    pub generation: Option<i64>,
    /// The age of the evidence.
    pub as_of: Option<Time>,
    /// Clusters that counted, of all targets: `95/100`.
    #[schemars(length(max = 64))]
    pub healthy: Option<String>,
    /// The reason of the condition Open.
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
    /// The same in words.
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}

//! Clusters that need not be healthy for a while.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::label_selector::LabelSelector;

/// Why some clusters do not count for a while: exactly one of `cluster` and `selector` says which.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.cluster) != has(self.selector)",
    "message": "exactly one of cluster and selector must be set"
}]))]
pub struct Excuse {
    /// The one cluster, as the metrics pipeline labels it.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: Option<String>,
    /// The clusters whose ClusterProfile has these labels, now and later.
    pub selector: Option<LabelSelector>,
    /// Why, for those who read the status.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// From when on they count again; left out: when the excuse is removed.
    pub until: Option<Time>,
}

/// A cluster that does not count now.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExcusedCluster {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Why the cluster is excused.
    pub reason: String,
    /// From when on it counts again, where that is known.
    pub until: Option<Time>,
}

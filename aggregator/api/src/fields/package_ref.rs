//! Which package a FleetPackage, or a stage of a trace, is about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A package, as the exporter of a workload cluster identifies it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRef {
    /// The exporter's source that reads it, for instance `flux-kustomization`.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// Namespace of the package's object in the workload clusters; left out when it is
    /// cluster-scoped.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the package's object in the workload clusters.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
}

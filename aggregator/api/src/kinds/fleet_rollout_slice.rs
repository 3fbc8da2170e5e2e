//! FleetRolloutSlice: which clusters may have which revision, a part of the clusters of one FleetRollout in each slice.
//!
//! It has neither spec nor status, after Kubernetes' EndpointSlice: all of it is the aggregator's word. The slices are the
//! record of what was admitted: a row is added or moves on to another revision, and is never taken back. They outlive their
//! FleetRollout, as what a cluster may have is not taken from it with the plan.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kinds::rollout_gate::FleetPackageRef;
use crate::without_spec::{self, Column};

/// Name of the kind.
pub const KIND: &str = "FleetRolloutSlice";
/// Name of the resource.
pub const PLURAL: &str = "fleetrolloutslices";
/// Most clusters in one slice.
pub const MOST_CLUSTERS: usize = 256;
/// Label of gates and slices with the name of their FleetRollout; a name that is too long for a label is shortened.
pub const FLEET_ROLLOUT_LABEL: &str = "statusbridge.dev/fleet-rollout";
/// Label of a gate with the name of its wave.
pub const WAVE_LABEL: &str = "statusbridge.dev/wave";

/// Some clusters of one FleetRollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRolloutSlice {
    /// The FleetRollout by which the clusters were admitted. It may be gone.
    pub fleet_rollout_ref: FleetRolloutRef,
    /// The FleetPackage that it rolled out.
    pub fleet_package_ref: FleetPackageRef,
    /// The clusters, by name. A cluster stays in the slice that it was put into.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<AdmittedCluster>,
}

/// Reference to a FleetRollout in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRolloutRef {
    /// Name of the FleetRollout.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A cluster that may have a revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedCluster {
    /// Name of the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,
    /// The revision that the cluster may have, in the words of the FleetRollout or its FleetPackage.
    #[schemars(length(min = 1, max = 256))]
    pub revision: String,
    /// The wave by which it was admitted.
    #[schemars(length(max = 63))]
    pub wave: String,
    /// Since when the cluster may have the revision.
    pub since: Time,
}

/// The CRD.
pub(crate) fn crd() -> Value {
    without_spec::crd::<FleetRolloutSlice>(
        KIND,
        PLURAL,
        "frolloutslice",
        "Which clusters of one FleetRollout may have which revision, up to 256 in each slice. Written by the aggregator. They stay when the FleetRollout is deleted.",
        &[
            Column("FleetRollout", "string", ".fleetRolloutRef.name"),
            Column("FleetPackage", "string", ".fleetPackageRef.name"),
            Column("Age", "date", ".metadata.creationTimestamp"),
        ],
    )
}

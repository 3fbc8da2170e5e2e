//! FleetPackageSlice: what each single cluster says of one FleetPackage, a part of the clusters in each slice.
//!
//! It has neither spec nor status, after Kubernetes' EndpointSlice: all of it is the reporter's word.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::without_spec::{self, Column};

/// Name of the kind.
pub const KIND: &str = "FleetPackageSlice";
/// Name of the resource.
pub const PLURAL: &str = "fleetpackageslices";
/// Most clusters in one slice: with the longest names and words it stays far below what etcd takes.
pub const MOST_CLUSTERS: usize = 256;
/// Longest name of a cluster, in bytes. Longer ones are in no slice; they are counted in the status.
pub const LONGEST_CLUSTER_NAME: usize = 1024;
/// Label with the name of the FleetPackage; a name that is too long for a label is shortened.
pub const FLEET_PACKAGE_LABEL: &str = "statusbridge.dev/fleet-package";

/// Some clusters of one FleetPackage, which is its controller by owner reference.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPackageSlice {
    /// Generation of the FleetPackage that this answers. A slice of another generation than the
    /// FleetPackage has says nothing about its present spec.
    pub fleet_package_generation: i64,
    /// Age of the evidence: the oldest verified word from a cluster here that counts. Left out when
    /// there is none. Not refreshed at every poll when nothing else changes.
    pub as_of: Option<Time>,
    /// The clusters, by name. A cluster stays in the slice that it was put into.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<ClusterRow>,
}

/// The package in one cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    /// Name of the cluster.
    #[schemars(length(min = 1, max = 1024))]
    pub cluster_name: String,
    /// How far the rollout has come here, in the words of Open Cluster Management.
    pub status: RolloutStatus,
    /// The same more exactly: Healthy, or one of the reasons that `status.problems` has.
    #[schemars(length(max = 64))]
    pub state: String,
    /// The package's own word for it, or why the cluster's word does not count.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The revision that the cluster has been told to run: the FleetPackage's in its own words when
    /// they are short, any other as 12 hex digits. Left out, as are the other two, when it is not
    /// known from fresh, verified status.
    #[schemars(length(max = 128))]
    pub desired_revision: Option<String>,
    /// The revision last applied in full.
    #[schemars(length(max = 128))]
    pub applied_revision: Option<String>,
    /// The revision that is applied in full and healthy now.
    #[schemars(length(max = 128))]
    pub healthy_revision: Option<String>,
    /// When the package last changed its state in the cluster; for a cluster that was not heard from
    /// in time, when it last was.
    pub last_transition_time: Option<Time>,
    /// The cluster whose exporter says so, where that is another one: a speaker of the aggregator's configuration.
    #[schemars(length(max = 1024))]
    pub reported_by: Option<String>,
    /// Why the cluster does not count, where it is excused.
    #[schemars(length(max = 1024))]
    pub excused: Option<String>,
}

/// Open Cluster Management's words for how far a rollout has come in one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStatus {
    /// Not told to run the wanted revision yet, or does not report the package.
    ToApply,
    /// On the way, or nothing fresh is known: not done, as far as anybody can tell.
    Progressing,
    /// Healthy at the wanted revision; without one, at the revision that the cluster itself wants.
    Succeeded,
    /// Applying failed, or the package is unhealthy.
    Failed,
    /// Not done in time. Only other reporters say this: a FleetPackage has no deadline.
    TimeOut,
    /// Not to be rolled out here. Only other reporters say this.
    Skip,
}

impl RolloutStatus {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToApply => "ToApply",
            Self::Progressing => "Progressing",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::TimeOut => "TimeOut",
            Self::Skip => "Skip",
        }
    }
}

/// The CRD.
pub(crate) fn crd() -> Value {
    without_spec::crd::<FleetPackageSlice>(
        KIND,
        PLURAL,
        "fpkgslice",
        "What single clusters say of one FleetPackage with detail: All, up to 256 in each slice. Written by the aggregator; removed with its FleetPackage.",
        &[
            Column("FleetPackage", "string", ".metadata.ownerReferences[0].name"),
            Column("Generation", "integer", ".fleetPackageGeneration"),
            Column("Evidence", "date", ".asOf"),
            Column("Age", "date", ".metadata.creationTimestamp"),
        ],
    )
}

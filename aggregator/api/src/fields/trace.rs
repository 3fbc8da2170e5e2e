//! The stages that a revision goes through before it reaches a FleetPackage's own clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::common::ClusterSet;
use super::label_selector::LabelSelector;
use super::package_ref::PackageRef;

/// One stage: a package in the clusters where the revision passes through.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.cluster) != has(self.selector)",
        "message": "exactly one of cluster and selector must be set"
    },
    {
        "rule": "!has(self.revision) || !has(self.output) || self.output == 'Same'",
        "message": "a stage with a revision of its own gives on what came in: leave out output"
    }
]))]
pub struct TraceStage {
    /// Name of the stage, by which a gate can require it.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "message": "stage must be a DNS label, such as build"
    }]))]
    pub stage: String,
    /// The one cluster of the stage, as the metrics pipeline labels it.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: Option<String>,
    /// The clusters of the stage, by the labels of their ClusterProfiles.
    pub selector: Option<LabelSelector>,
    /// The exporter's source that reads the package there, for instance `cartographer-workload`.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// Namespace of the package's object there; left out when it is cluster-scoped.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the package's object there.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// What has to run there in place of what comes in, which is then given on as it came: such as the
    /// digest of the catalog that versions are looked up in.
    #[schemars(length(min = 1, max = 4096))]
    pub revision: Option<String>,
    /// What the stage gives on to the next one.
    #[serde(default)]
    pub output: Output,
}

/// What a stage gives on to the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Output {
    /// What it was given: it must run, by content, what came in.
    #[default]
    Same,
    /// Another artifact, made from what came in, such as an image from a commit: what the package there
    /// has applied while it is healthy at what came in.
    Built,
}

impl StageStatus {
    /// Age of the evidence for how the stage stands now.
    pub fn evidence(&self) -> Option<Time> {
        self.as_of.clone().filter(|_| !self.outdated)
    }
}

impl TraceStage {
    /// The package that is looked at.
    pub fn package(&self) -> PackageRef {
        PackageRef { source: self.source.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The clusters that are looked at.
    pub fn clusters(&self) -> ClusterSet {
        ClusterSet {
            names: self.cluster.clone().map(|cluster| vec![cluster]),
            selector: self.selector.clone(),
            ..ClusterSet::default()
        }
    }
}

/// How far a revision has come in one stage.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// Name of the stage.
    pub stage: String,
    /// The revision that is traced, in the spec's own words.
    pub revision: String,
    /// Stands for the stage as the spec describes it: what was found out under another description is
    /// not built upon.
    pub description: String,
    /// What has to run here, as 12 hex digits; left out while the stage before has not given it.
    pub input: Option<String>,
    /// What comes out, as 12 hex digits; left out while that is not known, and where the stage has a
    /// revision of its own. Once found out it stays: it says of content where it came from, whatever
    /// runs there now.
    pub output: Option<String>,
    /// How the stage stands now: one of the documented reasons. `Superseded`: it was healthy at the
    /// revision and has moved on.
    pub state: String,
    /// The same in words.
    pub message: String,
    /// Age of the evidence: the oldest verified word from the stage's clusters. Not refreshed at every
    /// poll when nothing else changes.
    pub as_of: Option<Time>,
    /// Nothing can be counted now: `clusters` and `asOf` are what was last known of this revision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
    /// How many clusters are how far.
    pub clusters: StageCounts,
    /// When every cluster of the stage was first seen to have been told to run it.
    pub arrived_at: Option<Time>,
    /// When every cluster of the stage was first seen to have applied it.
    pub applied_at: Option<Time>,
    /// When every cluster of the stage was first seen to be healthy at it.
    pub healthy_at: Option<Time>,
    /// What was healthy here last, of another revision or when the spec described the stage in another
    /// way: older than what the spec asks for now. When it asks for just that again, output and time are
    /// what they were.
    pub before: Option<StageBefore>,
}

/// A revision that was healthy in a stage before the present one.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageBefore {
    /// The revision that was traced, in the spec's own words.
    pub revision: String,
    /// Stands for the stage as the spec described it then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What had come in, as 12 hex digits.
    pub input: String,
    /// What came out, as 12 hex digits; left out where the stage has a revision of its own.
    pub output: Option<String>,
    /// When every cluster of the stage was first seen to be healthy at it.
    pub healthy_at: Time,
}

/// Clusters of a stage by what is known of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StageCounts {
    /// Clusters of the stage.
    pub total: u64,
    /// Have been told to run what comes in.
    pub arrived: u64,
    /// Of these, have applied it in full.
    pub applied: u64,
    /// Of these, are healthy.
    pub healthy: u64,
    /// Have no fresh, verified status.
    pub unobserved: u64,
}

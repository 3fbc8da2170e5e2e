//! FleetRollout: a plan of waves for one package. It decides which clusters may have a revision; it delivers nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::fields::common::{Amount, Percentage};
use crate::fields::label_selector::LabelSelector;
use crate::fields::window::Window;
use crate::kinds::rollout_gate::{FleetPackageRef, GateTerms};

/// Most bytes of a revision that is rolled out: it stands in the row of each cluster.
pub const LONGEST_REVISION: usize = 256;

/// Which package, at which revision, in which waves.
#[skip_serializing_none]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "statusbridge.dev",
    version = "v1alpha1",
    kind = "FleetRollout",
    plural = "fleetrollouts",
    namespaced,
    status = "FleetRolloutStatus",
    derive = "PartialEq",
    shortname = "frollout",
    category = "statusbridge",
    doc = "Which clusters may have a revision of a package now: wave by wave, each behind the gate of the one before. It delivers nothing.",
    printcolumn = r#"{"name":"Package","type":"string","jsonPath":".spec.fleetPackageRef.name"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.fingerprint"}"#,
    printcolumn = r#"{"name":"Wave","type":"string","jsonPath":".status.wave"}"#,
    printcolumn = r#"{"name":"Admitted","type":"string","jsonPath":".status.admitted"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Full-Revision","type":"string","jsonPath":".status.revision","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FleetRolloutSpec {
    /// The FleetPackage, in the same namespace, whose package is rolled out. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "fleetPackageRef is immutable; create another FleetRollout instead"
    }]))]
    pub fleet_package_ref: FleetPackageRef,
    /// The revision to roll out. Delivery systems get this text as it stands: write it as yours takes it, such as all 40 digits
    /// of a commit. Left out: the one that the FleetPackage wants, which it may read from another object by `revisionFrom`.
    /// Another revision begins at the first wave.
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-validations" = [
        {
            "rule": "self.trim() == self",
            "message": "revision must not begin or end with white space"
        },
        {
            "rule": "!self.matches('(^|@)sha(1|256|512):[0-9a-fA-F]{0,11}$')",
            "message": "revision must have at least 12 hex digits of a commit or digest: write all of them, or the first 12 alone"
        }
    ]))]
    pub revision: Option<String>,
    /// While true, no further cluster is admitted.
    #[serde(default)]
    pub paused: bool,
    /// Times in which clusters are admitted; without any, all the time. They do not hold back the gates of the waves, which
    /// may have windows of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<Window>,
    /// APIs in which PlacementDecisions are kept beside the record: for each revision in it a set, whose name is the
    /// FleetRollout's with a hyphen and the revision's twelve hex digits, with the clusters that may have it. They stay when
    /// the FleetRollout is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub placement_decisions: Vec<PlacementApi>,
    /// The waves, in their order.
    #[schemars(length(min = 1, max = 100), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub waves: Vec<Wave>,
}

/// An API with PlacementDecisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PlacementApi {
    /// `multicluster.x-k8s.io/v1alpha1` of SIG Multicluster. A cluster without a ClusterProfile is in none of them.
    #[serde(rename = "multicluster.x-k8s.io")]
    Multicluster,
    /// `cluster.open-cluster-management.io/v1beta1`. A set counts as that of the Placement of its name.
    #[serde(rename = "cluster.open-cluster-management.io")]
    OpenClusterManagement,
}

/// Some clusters that may have the revision once the gates of all waves before are open.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// Name of the wave. The wave's gate is called like the FleetRollout, a hyphen, and this name.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "message": "name must consist of a to z, 0 to 9 and hyphens, and begin and end with a letter or digit"
    }]))]
    pub name: String,
    /// Which clusters the wave has. It is decided when the wave starts, and stays the same for the revision.
    pub clusters: WaveClusters,
    /// How many clusters of the wave may be on the way at the same time, as a number or as a share of the wave, rounded up.
    /// Default: all of them. A cluster is on the way while it is admitted, and is neither at the revision as the gate asks for,
    /// nor failed, nor excused.
    #[schemars(extend("pattern" = "^(100|[1-9][0-9]?)%$", "minimum" = 1, "maximum" = 1_000_000))]
    pub max_concurrency: Option<Amount>,
    /// What must be true of the wave's clusters before the next wave starts: the terms of its RolloutGate. Default: all of
    /// them are healthy at the revision.
    #[serde(default)]
    pub gate: GateTerms,
}

/// The clusters of a wave: exactly one of the fields.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.names) ? 1 : 0) + (has(self.selector) ? 1 : 0) + (has(self.count) ? 1 : 0) + (has(self.percentage) ? 1 : 0) == 1",
    "message": "exactly one of names, selector, count and percentage must be set"
}]))]
pub struct WaveClusters {
    /// The clusters of these names. They need not be among the FleetPackage's.
    #[schemars(length(min = 1, max = 10_000), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub names: Option<Vec<String>>,
    /// The clusters whose ClusterProfile has these labels. They need not be among the FleetPackage's.
    pub selector: Option<LabelSelector>,
    /// This number of the FleetPackage's clusters that no wave names or selects and no earlier wave has taken. They come in an
    /// order that stays the same while clusters come and go, those that are excused last.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub count: Option<i64>,
    /// This share, rounded up, of the FleetPackage's clusters that no wave names or selects and no earlier wave has taken. `100%`
    /// takes all that are left.
    pub percentage: Option<Percentage>,
}

/// How far the revision may go, and why no further.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRolloutStatus {
    /// Generation of the spec that this status answers; -1 before the first answer.
    pub observed_generation: Option<i64>,
    /// Age of the evidence: the oldest verified word that the gates of the waves used. Not refreshed at every poll when
    /// nothing else changes.
    pub as_of: Option<Time>,
    /// Which leadership of the aggregator wrote this: how often the leader's Lease had changed hands.
    pub epoch: Option<i64>,
    /// When the revision, Ready or its reason last changed. An Event of the FleetRollout tells each such change once.
    pub verdict_since: Option<Time>,
    /// When the rollout of the revision last came to something else: when it set off, was done, or stalled. A message tells
    /// each such change once.
    pub outcome_since: Option<Time>,
    /// The revision that is rolled out.
    pub revision: Option<String>,
    /// `revision` as 12 hex digits, for columns and for comparison with rows and metrics.
    pub fingerprint: Option<String>,
    /// When its first wave could start.
    pub started_at: Option<Time>,
    /// When the gates of all waves had been open, with every cluster of them admitted. It stays until somebody deletes a wave's
    /// gate or gives it other clusters, or the plan gets another wave.
    pub completed_at: Option<Time>,
    /// The latest wave that has started, and how many there are: `eu (2/5)`.
    pub wave: Option<String>,
    /// Clusters that may have the revision, of those in all waves: `12/400`.
    pub admitted: Option<String>,
    /// Numbers of clusters in all waves, and in none.
    pub clusters: Option<RolloutCounts>,
    /// How far each wave is, in the spec's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub waves: Vec<WaveStatus>,
    /// The first ten clusters that are in no wave, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub left_out: Vec<String>,
    /// What became of the revision before.
    pub previous: Option<PreviousRollout>,
    /// The revision that was last rolled out to all waves.
    pub last_completed_revision: Option<String>,
    /// While the rollout is stalled: the revision that was last rolled out to all waves, or at which the FleetPackage was last
    /// Ready. Nobody goes back to it unless somebody sets it.
    pub recommended_revision: Option<String>,
    /// Stands for what the namespace was allowed to see when this was written; when that changes, nothing of this status is
    /// built upon. Left out where no tenants are configured.
    pub tenancy: Option<String>,
    /// Ready always: whether the revision was rolled out to all waves. Reconciling and Stalled only while they are True.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Clusters of a rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutCounts {
    /// Clusters in any wave; a wave that has not started counts as it would start now.
    pub total: u64,
    /// Those of them that may have the revision.
    pub admitted: u64,
    /// Clusters of the FleetPackage that are in no wave. While the last wave has not started, it may take them yet.
    pub left_out: u64,
}

/// How far a wave is.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveStatus {
    /// Name of the wave.
    pub name: String,
    /// How far the wave is.
    pub state: WaveState,
    /// Name of the wave's RolloutGate, once the wave has started.
    pub gate: Option<String>,
    /// How many clusters the wave has; before it starts, how many it would have now.
    pub clusters: u64,
    /// How many of them may have the revision.
    pub admitted: u64,
    /// Stands for the names of the clusters with which the wave starts. It is written before the gate is made; while the gate
    /// names other clusters, nobody is admitted.
    pub members_fingerprint: Option<String>,
    /// When the wave started.
    pub started_at: Option<Time>,
    /// When the wave's gate was first open with all of the wave's clusters admitted.
    pub opened_at: Option<Time>,
    /// What the wave waits for.
    pub message: Option<String>,
}

/// How far a wave is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WaveState {
    /// It has not started.
    Pending,
    /// It has started, and its gate is not open.
    Progressing,
    /// Its gate is open.
    Open,
    /// Its gate is stalled: too many clusters have failed, or the gate cannot be judged by its spec.
    Failed,
}

/// What became of a revision that another one took the place of.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviousRollout {
    /// The revision that was rolled out before.
    pub revision: String,
    /// When its first wave could start.
    pub started_at: Option<Time>,
    /// When it was rolled out to all waves; left out: it was not.
    pub completed_at: Option<Time>,
    /// When another one took its place.
    pub replaced_at: Time,
    /// Clusters that could have it by then, of those in all waves: `12/400`.
    pub admitted: Option<String>,
    /// The latest wave that had started, and how many there were.
    pub wave: Option<String>,
    /// Why it was not done by then, if it was not.
    pub message: Option<String>,
}

impl FleetRolloutSpec {
    /// The revision to roll out; `of_package` is the one that the FleetPackage wants.
    pub fn wanted<'a>(&'a self, of_package: Option<&'a str>) -> Option<&'a str> {
        self.revision.as_deref().or(of_package)
    }
}

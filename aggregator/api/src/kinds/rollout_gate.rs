//! RolloutGate: one decision for one wave of a rollout.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::{OPEN, find, is_true};
use crate::fields::check::{Check, CheckStatus};
use crate::fields::common::{Amount, ClusterSet};
use crate::fields::excuse::ExcusedCluster;
use crate::fields::window::{Approval, Window};

/// What must be true of which clusters for the gate to open.
#[skip_serializing_none]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "statusbridge.dev",
    version = "v1alpha1",
    kind = "RolloutGate",
    plural = "rolloutgates",
    namespaced,
    status = "RolloutGateStatus",
    derive = "PartialEq",
    shortname = "rgate",
    category = "statusbridge",
    doc = "Whether a rollout may go on: open while enough clusters are healthy at one revision, closed with a reason otherwise.",
    printcolumn = r#"{"name":"Package","type":"string","jsonPath":".spec.fleetPackageRef.name"}"#,
    printcolumn = r#"{"name":"Open","type":"string","jsonPath":".status.conditions[?(@.type==\"Open\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Open\")].reason"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.fingerprint"}"#,
    printcolumn = r#"{"name":"Healthy","type":"string","jsonPath":".status.healthy"}"#,
    printcolumn = r#"{"name":"Excused","type":"integer","jsonPath":".status.clusters.excused"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Full-Revision","type":"string","jsonPath":".spec.revision","priority":1}"#,
    printcolumn = r#"{"name":"Waiting","type":"string","jsonPath":".status.waitingFor[0].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RolloutGateSpec {
    /// The FleetPackage, in the same namespace, whose package is judged. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "fleetPackageRef is immutable; create another RolloutGate instead"
    }]))]
    pub fleet_package_ref: FleetPackageRef,
    /// The revision to wait for, in the words of the delivery system or as the 12 hex digits that
    /// a status shows. Changing it makes a new generation, which starts closed.
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = [
        {
            "rule": "self.trim() == self",
            "message": "revision must not begin or end with white space"
        },
        {
            "rule": "!self.matches('(^|@)sha(1|256|512):[0-9a-fA-F]{0,11}$')",
            "message": "revision must have at least 12 hex digits of a commit or digest: write all of them, or the first 12 alone"
        }
    ]))]
    pub revision: String,
    /// The clusters of this wave.
    pub clusters: ClusterSet,
    /// What must be true of them.
    #[serde(flatten)]
    pub terms: GateTerms,
    /// Gates in the same namespace that must be open, each at its present generation, and at this
    /// gate's revision when it is about the same package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub depends_on: Vec<GateRef>,
    /// A person's word that stands instead of the computed verdict.
    #[serde(rename = "override")]
    pub override_: Option<Override>,
}

/// What must be true of clusters for a gate to open, whichever they are and whatever the revision is.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateTerms {
    /// How far a cluster must be to count.
    #[serde(default)]
    pub require: Require,
    /// How many clusters must count, as a number or as a share of all targets, rounded up.
    /// Default: all targets less `maxFailures`, but at least one.
    #[schemars(extend("pattern" = "^(100|[1-9][0-9]?)%$", "minimum" = 1, "maximum" = 1_000_000))]
    pub min_healthy: Option<Amount>,
    /// How many clusters may have failed or be out of sight, as a number or as a share of all
    /// targets, rounded down. Default 0.
    #[schemars(extend("pattern" = "^(100|[1-9]?[0-9])%$", "minimum" = 0, "maximum" = 1_000_000))]
    pub max_failures: Option<Amount>,
    /// How long a cluster must have been so without a change before it counts. Default 0s.
    #[schemars(length(max = 21), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && size(self) > 0",
        "message": "minSuccessTime must be a duration such as 90s, 10m or 1h30m"
    }]))]
    pub min_success_time: Option<String>,
    /// How long after `status.startedAt` a cluster may take to reach the revision, as `require`
    /// says; one that is not there by then counts as failed. Default: for ever.
    #[schemars(length(max = 21), extend("x-kubernetes-validations" = [
        {
            "rule": "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && size(self) > 0",
            "message": "progressDeadline must be a duration such as 90s, 10m or 1h30m"
        },
        {
            "rule": "!self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') || size(self) == 0 || duration(self) >= duration('1s')",
            "message": "progressDeadline must be at least 1s"
        }
    ]))]
    pub progress_deadline: Option<String>,
    /// A stage of the FleetPackage's trace in which the revision must have been healthy, and nothing
    /// must speak against it now.
    #[schemars(length(min = 1, max = 63))]
    pub require_stage: Option<String>,
    /// Queries on application metrics whose values must stay within bounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub checks: Vec<Check>,
    /// When the gate may be open: in any of these. Default: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<Window>,
    /// Whether the gate is kept closed until this is taken away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether a RolloutApproval must name the gate and its revision.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approval: Approval,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reference to a FleetPackage in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPackageRef {
    /// Name of the FleetPackage.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Reference to a RolloutGate in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateRef {
    /// Name of the RolloutGate.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How far a cluster must be to count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Require {
    /// Applied in full and healthy. A failed apply or failed health counts as a failure.
    #[default]
    Healthy,
    /// Applied in full; health is not looked at. Only a failed apply counts as a failure.
    Applied,
}

/// A person's word that stands instead of the computed verdict.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// What the gate is to be.
    pub state: OverrideState,
    /// Why, for those who read the status later.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// When the override ends; left out: when it is removed.
    pub until: Option<Time>,
}

/// What an override makes of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OverrideState {
    /// Open, whatever the clusters say.
    Open,
    /// Closed, whatever the clusters say.
    Closed,
}

/// The verdict and what it rests on.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutGateStatus {
    /// Generation of the spec that this status answers; -1 before the first answer.
    pub observed_generation: Option<i64>,
    /// Age of the evidence: the oldest verified word that was used. Not refreshed at every poll
    /// when nothing else changes.
    pub as_of: Option<Time>,
    /// Which leadership of the aggregator wrote this: how often the leader's Lease had changed
    /// hands. A new leader writes every object once, so that what an earlier one sent late is
    /// refused.
    pub epoch: Option<i64>,
    /// When the gate was first judged for this revision.
    pub started_at: Option<Time>,
    /// When Open last changed.
    pub since: Option<Time>,
    /// Until when an open gate may stay so at the longest, where that is known: the end of its window, or the beginning
    /// of a RolloutFreeze.
    pub open_until: Option<Time>,
    /// The approval that counts for the revision, where the gate asks for one.
    pub approved_by: Option<Approved>,
    /// When the revision, Open or its reason last changed. An Event of the gate tells each such change once.
    pub verdict_since: Option<Time>,
    /// When the rollout of the revision last came to something else: when it set off, when the gate first opened in this
    /// generation, when it stalled. A message tells each such change once.
    pub outcome_since: Option<Time>,
    /// The revision that was judged.
    pub revision: Option<String>,
    /// `revision` as 12 hex digits, for columns and for comparison with rows and metrics. `spec.revision` takes these too.
    pub fingerprint: Option<String>,
    /// Clusters that count, of all targets that are not excused: `95/100`.
    pub healthy: Option<String>,
    /// How many clusters are how far.
    pub clusters: Option<GateCounts>,
    /// Clusters that the FleetPackage or the configuration excuses now, those first that count again first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub excused: Vec<ExcusedCluster>,
    /// The clusters that count for the revision whatever the selector selects now, where `clusters.freeze` is set.
    pub members: Option<Members>,
    /// Clusters that are selected now and are none of `members`: they wait for the next revision.
    pub newcomers: Option<Newcomers>,
    /// What keeps the gate closed, most important first; empty while it is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub waiting_for: Vec<Waiting>,
    /// What the checks came to, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub checks: Vec<CheckStatus>,
    /// Stands for what the namespace was allowed to see when this was written; when that changes,
    /// nothing of this status is built upon. Left out where no tenants are configured.
    pub tenancy: Option<String>,
    /// Ready (the same as Open), Open and OpenedOnce always; Reconciling and Stalled only while
    /// they are True.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl RolloutGateStatus {
    /// The verdict on this generation of the spec; none while the status answers another one.
    pub fn verdict_on(&self, generation: i64) -> Option<&Condition> {
        let answers = |observed: Option<i64>| observed == Some(generation);
        find(&self.conditions, OPEN)
            .filter(|open| answers(self.observed_generation) && answers(open.observed_generation))
    }

    /// Whether the gate is open now: for this generation of its spec. What rests on an open gate asks this.
    pub fn is_open_now(&self, generation: i64) -> bool {
        self.verdict_on(generation).is_some_and(|open| open.status == "True")
    }

    /// Whether the status says Open for any generation, and so has to be closed when the gate must not be open.
    pub fn says_open(&self) -> bool {
        is_true(&self.conditions, OPEN)
    }
}

/// The approval that counts.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    /// Name of the RolloutApproval.
    pub name: String,
    /// Who approved.
    pub user: String,
    /// When it was approved.
    pub at: Option<Time>,
}

/// The clusters that a gate keeps to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Members {
    /// Stands for the revision and the selector that they were fixed for: another one fixes them anew.
    pub of: String,
    /// When they were fixed.
    pub since: Time,
    /// All of them, by name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<String>,
}

/// Clusters that wait for the next revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Newcomers {
    /// How many.
    pub count: u64,
    /// The first ten of them, by name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<String>,
}

/// Clusters by what is known of them. `total` is the sum of `healthy`, `progressing`, `failed`,
/// `superseded`, `stale`, `missing`, `unverified` and `conflicting`. Those that are excused are in `excused` alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GateCounts {
    /// Targets that count: all but those that are excused.
    pub total: u64,
    /// Targets that are excused.
    pub excused: u64,
    /// Count for the gate: fresh, verified, and what `require` and `minSuccessTime` ask for at
    /// the gate's revision. (With `require: Applied` these are the clusters that applied it.)
    pub healthy: u64,
    /// Have applied the gate's revision in full.
    pub applied: u64,
    /// Have been told to run the gate's revision.
    pub updated: u64,
    /// Are not done: not updated, being applied, not healthy yet, paused, soaking.
    pub progressing: u64,
    /// Of those that are progressing, are healthy at the revision but not for long enough.
    pub soaking: u64,
    /// Failed to apply the gate's revision, are unhealthy at it, or are not there by the deadline.
    pub failed: u64,
    /// Of those that have failed, are not at the revision by `progressDeadline`.
    pub timed_out: u64,
    /// Have moved on to another revision.
    pub superseded: u64,
    /// Were heard from, but too long ago; or their clock cannot be believed.
    pub stale: u64,
    /// Were never heard from, or do not have the package.
    pub missing: u64,
    /// Send data that does not add up, for so long that the last verified word is too old.
    pub unverified: u64,
    /// Share their name with another cluster, or their ClusterProfile with another one.
    pub conflicting: u64,
}

/// One thing that keeps a gate closed.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// One of the documented reasons.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// How many clusters it concerns; 0 when it concerns the gate as a whole.
    pub count: u64,
    /// When it is over if nothing else happens, where that is known: while clusters soak, when the last of them has been so
    /// for `minSuccessTime`; while the gate is outside its windows, when the next one begins; in a freeze, its end.
    pub until: Option<Time>,
    /// The first ten of them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<String>,
}

//! FleetPackage: one package across clusters. A report; it deploys nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::fields::common::{Amount, ClusterSet};
use crate::fields::excuse::{Excuse, ExcusedCluster};
use crate::fields::package_ref::PackageRef;
use crate::fields::revision_from::RevisionFrom;
use crate::fields::trace::{StageStatus, TraceStage};

/// Which package, at which revision, in which clusters.
#[skip_serializing_none]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "statusbridge.dev",
    version = "v1alpha1",
    kind = "FleetPackage",
    plural = "fleetpackages",
    namespaced,
    status = "FleetPackageStatus",
    derive = "PartialEq",
    shortname = "fpkg",
    category = "statusbridge",
    doc = "How one package fares across clusters: how many run which revision, and where it goes wrong. It reports; it deploys nothing.",
    printcolumn = r#"{"name":"Package","type":"string","jsonPath":".spec.package.name"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.fingerprint"}"#,
    printcolumn = r#"{"name":"Targets","type":"integer","jsonPath":".status.clusters.total"}"#,
    printcolumn = r#"{"name":"Updated","type":"integer","jsonPath":".status.clusters.updated"}"#,
    printcolumn = r#"{"name":"Healthy","type":"integer","jsonPath":".status.clusters.healthy"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.clusters.failed"}"#,
    printcolumn = r#"{"name":"Stale","type":"integer","jsonPath":".status.clusters.stale"}"#,
    printcolumn = r#"{"name":"Excused","type":"integer","jsonPath":".status.clusters.excused"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Full-Revision","type":"string","jsonPath":".status.revision","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "message": "managedBy is immutable"
    },
    {
        "rule": "!has(self.revision) || !has(self.revisionFrom)",
        "message": "revision and revisionFrom exclude each other"
    },
    {
        "rule": "!has(self.trace) || size(self.trace) == 0 || has(self.revision) || has(self.revisionFrom)",
        "message": "a trace follows a revision: set revision or revisionFrom"
    },
    {
        "rule": "!has(self.clusters) || !has(self.clusters.freeze) || !self.clusters.freeze",
        "message": "only the clusters of a RolloutGate can be frozen, not those of a FleetPackage"
    }
]))]
pub struct FleetPackageSpec {
    /// The package, as the clusters report it. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "package is immutable; create another FleetPackage instead"
    }]))]
    pub package: PackageRef,
    /// The revision that should run, in the words of the delivery system (a commit, a digest, a
    /// version) or as the 12 hex digits that a status shows. Left out: only report what runs.
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
    pub revision: Option<String>,
    /// Where to read the revision that should run, instead of writing it down: from another object
    /// in the same namespace, whenever that changes.
    pub revision_from: Option<RevisionFrom>,
    /// The stages that the revision goes through before it reaches the package, in their order. What
    /// the last one gives on is what the package has to run in the clusters that count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["stage"]
    ))]
    pub trace: Vec<TraceStage>,
    /// The clusters that count. Default: every cluster that reports the package.
    #[serde(default = "ClusterSet::any_reporting")]
    pub clusters: ClusterSet,
    /// Clusters that need not be healthy for a while, for this FleetPackage and for every gate of it: they are
    /// counted apart and shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub excused: Vec<Excuse>,
    /// How many clusters must have fresh, verified status and not be excused, as a number or as a share of all
    /// targets, rounded up, for the FleetPackage to be Ready and for a gate of it to open. Default: more than half
    /// of the targets.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^(100|[1-9][0-9]?)%$')",
        "message": "minObserved must be a number of clusters from 1 or a percentage from 1% to 100%"
    }]))]
    pub min_observed: Option<Amount>,
    /// How old the last verified word from a cluster may be before it no longer counts. Choose at
    /// least four scrape intervals and a few seconds.
    #[serde(default = "default_stale_after")]
    #[schemars(length(max = 21), extend("x-kubernetes-validations" = [
        {
            "rule": "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && size(self) > 0",
            "message": "staleAfter must be a duration such as 90s, 3m or 1h30m"
        },
        {
            "rule": "!self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') || size(self) == 0 || duration(self) >= duration('1s')",
            "message": "staleAfter must be at least 1s"
        }
    ]))]
    pub stale_after: String,
    /// How much the status says about single clusters.
    #[serde(default)]
    pub detail: Detail,
    /// Name of another reporter that fills the status; the aggregator then leaves this object
    /// alone. Immutable.
    #[schemars(length(min = 1, max = 253))]
    pub managed_by: Option<String>,
}

fn default_stale_after() -> String {
    "3m".to_owned()
}

/// How much the status says about single clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Detail {
    /// Name the clusters where something is wrong, worst first, at most 20.
    #[default]
    Problems,
    /// The same, and every cluster in FleetPackageSlices.
    All,
    /// Counts only.
    None,
}

impl FleetPackageStatus {
    /// How many clusters are how far, if that could be counted for the spec that the status answers.
    pub fn counted(&self) -> Option<PackageCounts> {
        self.clusters.filter(|_| self.last_counted.is_none())
    }

    /// What its counts were counted for, if it has any.
    pub fn counted_for(&self) -> Option<LastCounted> {
        let anew = || LastCounted {
            generation: self.observed_generation.unwrap_or_default(),
            revision: self.revision.clone(),
        };
        self.clusters.map(|_| self.last_counted.clone().unwrap_or_else(anew))
    }
}

impl FleetPackageSpec {
    /// A report on this package in these clusters, and nothing else. `stale_after` is a duration such as `3m`.
    pub fn of(package: PackageRef, clusters: ClusterSet, stale_after: &str) -> Self {
        Self {
            package,
            revision: None,
            revision_from: None,
            trace: Vec::new(),
            clusters,
            excused: Vec::new(),
            min_observed: None,
            stale_after: stale_after.to_owned(),
            detail: Detail::default(),
            managed_by: None,
        }
    }

    /// The revision that is wanted, as far as a reader of the object can tell: the spec's own, or what
    /// `status` says that `revisionFrom` gives.
    pub fn wanted<'a>(&'a self, status: Option<&'a FleetPackageStatus>) -> Option<&'a str> {
        match &self.revision_from {
            Some(_) => status.and_then(|status| status.revision.as_deref()),
            None => self.revision.as_deref(),
        }
    }
}

/// What the aggregator found.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPackageStatus {
    /// Generation of the spec that this status answers; -1 before the first answer.
    pub observed_generation: Option<i64>,
    /// Age of the evidence: the oldest verified word that was used. Not refreshed at every poll
    /// when nothing else changes.
    pub as_of: Option<Time>,
    /// Which leadership of the aggregator wrote this: how often the leader's Lease had changed
    /// hands. A new leader writes every object once, so that what an earlier one sent late is
    /// refused.
    pub epoch: Option<i64>,
    /// When the revision, Ready or its reason last changed. An Event of the FleetPackage tells each such change once.
    pub verdict_since: Option<Time>,
    /// When the rollout of the revision last came to something else: when it set off, when the package was first Ready at
    /// it, when it stalled. A message tells each such change once.
    pub outcome_since: Option<Time>,
    /// The revision that is wanted: the spec's, or what `revisionFrom` gives now. Empty while
    /// `revisionFrom` gives none.
    pub revision: Option<String>,
    /// `revision` as 12 hex digits, for columns and for comparison with rows and metrics. `spec.revision` takes these too.
    pub fingerprint: Option<String>,
    /// The revision at which the package was last Ready: the wanted one; without one, the one that
    /// every cluster had, if it was the same everywhere.
    pub last_healthy_revision: Option<String>,
    /// Present while nothing can be counted: what `clusters`, `revisions` and `problems`, which are what
    /// was last known, at `asOf`, were counted for. They say nothing about the present spec.
    pub last_counted: Option<LastCounted>,
    /// How many clusters are how far.
    pub clusters: Option<PackageCounts>,
    /// Which revisions run where, most widespread first, at most 10 and one that sums up the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub revisions: Vec<RevisionCount>,
    /// Clusters that do not count now, those first that count again first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub excused: Vec<ExcusedCluster>,
    /// Where something is wrong or not done, worst first, then clusters that are excused, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub problems: Vec<Problem>,
    /// Which revisions were wanted, newest first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<HistoryEntry>,
    /// How far the revision has come in each stage of the trace, in the spec's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub trace: Vec<StageStatus>,
    /// Stands for what the namespace was allowed to see when this was written; when that changes,
    /// nothing of this status is built upon. Left out where no tenants are configured.
    pub tenancy: Option<String>,
    /// Ready and Reporting always; Reconciling and Stalled only while they are True.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What counts from before were counted for.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastCounted {
    /// Generation of the spec; that of the present one, if only the clusters cannot be told any more.
    pub generation: i64,
    /// The revision that was wanted; left out: whatever each cluster wanted.
    pub revision: Option<String>,
}

/// Clusters by what is known of them. `total` is the sum of `reporting`, `stale`, `missing`,
/// `unverified` and `conflicting`; `reporting` that of `healthy`, `progressing`, `paused` and `failed`.
/// Those that are excused are in `excused` alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageCounts {
    /// Targets that count: all but those that are excused.
    pub total: u64,
    /// Targets that are excused.
    pub excused: u64,
    /// Have fresh, verified status.
    pub reporting: u64,
    /// Were heard from, but too long ago; or their clock cannot be believed.
    pub stale: u64,
    /// Were never heard from, or do not have the package.
    pub missing: u64,
    /// Send data that does not add up, for so long that the last verified word is too old.
    pub unverified: u64,
    /// Share their name with another cluster, or their ClusterProfile with another one.
    pub conflicting: u64,
    /// Have been told to run the wanted revision.
    pub updated: u64,
    /// Of those that are updated, have applied it in full.
    pub applied: u64,
    /// Of those that have applied it, are healthy at it.
    pub healthy: u64,
    /// Are on the way.
    pub progressing: u64,
    /// Are paused.
    pub paused: u64,
    /// Failed to apply, or are unhealthy, at whatever revision.
    pub failed: u64,
}

/// How widespread one revision is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionCount {
    /// The wanted revision in the spec's own words, any other as 12 hex digits, or `other` for
    /// the sum of the rest.
    pub revision: String,
    /// In how many clusters it is applied.
    pub applied: u64,
    /// In how many clusters it is healthy.
    pub healthy: u64,
}

/// How far a wanted revision came, fleet-wide.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The revision, in the spec's own words.
    pub revision: String,
    /// When the package was first judged by this revision.
    pub started_at: Time,
    /// When every target was first seen to have applied it; left out: that was not seen.
    pub applied_at: Option<Time>,
    /// When the package was first Ready at it; left out: it never was.
    pub healthy_at: Option<Time>,
    /// When a cluster that was told to run it was first seen to have failed; left out: none was.
    pub failed_at: Option<Time>,
    /// When the package was first Ready after that failure, at this revision or another; left out: it was not.
    pub restored_at: Option<Time>,
}

/// One cluster that is not as it should be.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Name of the cluster.
    pub cluster_name: String,
    /// What is wrong: one of the documented reasons, for instance Failed or Stale.
    pub state: String,
    /// The package's own word for it, or why the cluster's word does not count.
    pub reason: String,
    /// Since when; for clusters that do not report, when they were last heard of.
    pub since: Option<Time>,
    /// Why it does not count, where it is excused.
    pub excused: Option<String>,
}

//! Every reason that a condition, a problem's state or a `waitingFor` entry can carry.

use std::fmt;

// The order is the order of importance in `waitingFor` and in `problems`: worst first.
crate::catalogue! {
    /// Closed list of reasons; a name is API and is never given another meaning.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    Reason:
    /// The spec cannot be understood by this aggregator.
    InvalidSpec,
    /// The object's namespace may not see what the spec asks for.
    Forbidden,
    /// The FleetPackage that the gate refers to does not exist in the gate's namespace.
    FleetPackageNotFound,
    /// The FleetPackage is filled by another reporter (`managedBy`), so the gate has nothing to judge.
    ExternallyManaged,
    /// The gate waits for itself by way of `dependsOn`.
    DependencyCycle,
    /// The aggregator may not read the object that `revisionFrom` names.
    RevisionForbidden,
    /// The object that `revisionFrom` names does not exist, or its kind is not installed.
    RevisionNotFound,
    /// The API server fails to give the object that `revisionFrom` names, the object is too large, or its expression waits too long.
    RevisionUnreadable,
    /// The object that `revisionFrom` names gives no revision: the expression fails on it, or gives nothing or too much.
    RevisionInvalid,
    /// The sweeper closed the gate: the aggregator has stopped renewing its heartbeat, or says there that it cannot close it.
    AggregatorSilent,
    /// The gate is closed for the reason that the message names; the object has no room for more.
    ObjectFull,
    /// The metrics backend gave no usable answer to the last poll.
    BackendUnavailable,
    /// Which clusters a selector means cannot be told: ClusterProfiles are not installed or cannot be read.
    ClusterProfilesUnavailable,
    /// A person's word stands instead of the computed verdict.
    Overridden,
    /// There is no cluster to judge.
    NoTargets,
    /// Fewer clusters report the package than `reporting.minClusters` asks for.
    TooFewClusters,
    /// Fewer clusters have fresh, verified status and are not excused than `minObserved` asks for.
    TooFewObserved,
    /// More clusters have failed than `maxFailures` allows.
    FailureBudgetExceeded,
    /// Another FleetRollout of the namespace rolls the same package out: one at a time.
    OtherRollout,
    /// A FleetRolloutSlice of the FleetRollout cannot be read, or is of another FleetPackage.
    RecordUnavailable,
    /// Waves that have not started name or select the same clusters.
    WavesOverlap,
    /// A RolloutGate of the name that a wave's gate would have is there, and is not the FleetRollout's.
    GateTaken,
    /// The gate of a wave names other clusters than the wave started with; or a gate that a person closed has lost its wave.
    GateChanged,
    /// The gate of a wave is stalled: too many of its clusters have failed, or it cannot be judged by its spec.
    WaveFailed,
    /// Something that the aggregator has to write for a FleetRollout cannot be written; the message says what, and why.
    NotWritten,
    /// Neither the FleetRollout nor its FleetPackage names a revision.
    NoRevision,
    /// A gate in `dependsOn` does not exist in the gate's namespace.
    DependencyNotFound,
    /// A gate in `dependsOn` is about another revision of the same package.
    DependencyAtAnotherRevision,
    /// A gate in `dependsOn` is not open at its present generation.
    DependencyNotOpen,
    /// The FleetPackage's trace has no stage of the name that the gate requires.
    StageNotFound,
    /// In the stage that the gate requires the revision was not healthy yet, or it is not now.
    StageNotHealthy,
    /// What a stage of the trace makes of the revision is not known, so neither is what the clusters should run.
    ArtifactUnknown,
    /// Applying failed, or the package is unhealthy.
    Failed,
    /// The cluster is not at the revision, and `progressDeadline` has passed.
    TimeOut,
    /// Two clusters report under the same name, or two ClusterProfiles claim it.
    Conflict,
    /// The cluster's clock is too far from the backend's for its times to be believed.
    ClockSkew,
    /// What the backend returns does not add up to what the exporter attested.
    Unverified,
    /// The last verified word from the cluster is too old.
    Stale,
    /// The cluster has not been heard of, or reports no such package.
    Missing,
    /// No cluster has reported the gate's revision, neither as desired nor as applied.
    RevisionNeverSeen,
    /// The cluster has moved on to another revision than the gate's.
    Superseded,
    /// Whether a RolloutFreeze is in force cannot be told: they cannot be read.
    FreezesUnavailable,
    /// The gate asks for an approval of its revision, and there is none.
    ApprovalRequired,
    /// The gate, or the FleetRollout, is paused by its spec.
    GatePaused,
    /// A RolloutFreeze of the gate's namespace is in force.
    Frozen,
    /// It is not the time of any of the gate's windows.
    OutsideWindow,
    /// The cluster has not been told to run the revision yet.
    NotUpdated,
    /// Delivery of the package is paused in the cluster.
    Paused,
    /// The package is being deleted in the cluster.
    Deleting,
    /// The revision is applied, but its health cannot be told (for instance because nothing checks it).
    HealthUnknown,
    /// The revision is being applied, or is applied and not healthy yet.
    Progressing,
    /// Healthy at the revision, but not for `minSuccessTime` yet.
    Soaking,
    /// A check's value is out of bounds or missing, or there is no usable answer to its query.
    CheckFailed,
    /// A check does not count yet: the clusters have not been at the revision for its window, or it has not been answered.
    CheckPending,
    /// The object has not been looked at yet.
    Pending,
    /// The gate has not been open in this generation.
    NotYetOpen,
    /// Clusters are admitted wave by wave; the message says what the rollout waits for.
    RollingOut,
    /// Every wave's gate was open with all of its clusters admitted.
    RolledOut,
    /// Enough clusters are healthy at the wanted revision.
    Healthy,
    /// Enough clusters have applied the wanted revision.
    Applied,
    /// Every cluster is healthy at the revision that it was itself told to run.
    HealthyAtOwnRevision,
    /// Every target has fresh, verified status.
    AllReporting,
    /// Every target has fresh, verified status, but `staleAfter` is shorter than four scrape intervals and the settle delay.
    StaleAfterTooShort,
    /// Some targets have no fresh, verified status.
    NotReporting,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

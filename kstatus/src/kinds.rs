//! Rules of the kinds that kstatus knows by name (its `pkg/kstatus/status/core.go`).

use statusbridge_contract::Health;

use super::{
    object::{Condition, Malformed, Object},
    status::Status,
};

/// How long a Pod may wait for a node before it counts as failed, in seconds.
const SCHEDULE_WINDOW: i64 = 15;

/// The rules of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    AlwaysReady,
    CustomResourceDefinition,
    DaemonSet,
    Deployment,
    Job,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    StatefulSet,
}

impl Rules {
    pub(super) const ALL: &'static [Self] = &[
        Self::AlwaysReady,
        Self::CustomResourceDefinition,
        Self::DaemonSet,
        Self::Deployment,
        Self::Job,
        Self::PersistentVolumeClaim,
        Self::Pod,
        Self::PodDisruptionBudget,
        Self::ReplicaSet,
        Self::Service,
        Self::StatefulSet,
    ];

    /// The rules of `group/kind`, or of a kind of the core group.
    pub(super) fn of(group_kind: &str) -> Option<Self> {
        Some(match group_kind {
            "Secret" | "ConfigMap" | "batch/CronJob" => Self::AlwaysReady,
            "apiextensions.k8s.io/CustomResourceDefinition" => Self::CustomResourceDefinition,
            "apps/DaemonSet" | "extensions/DaemonSet" => Self::DaemonSet,
            "apps/Deployment" | "extensions/Deployment" => Self::Deployment,
            "batch/Job" => Self::Job,
            "PersistentVolumeClaim" => Self::PersistentVolumeClaim,
            "Pod" => Self::Pod,
            "policy/PodDisruptionBudget" => Self::PodDisruptionBudget,
            "apps/ReplicaSet" | "extensions/ReplicaSet" => Self::ReplicaSet,
            "Service" => Self::Service,
            "apps/StatefulSet" => Self::StatefulSet,
            _ => return None,
        })
    }

    /// The fields that the rules read besides those of every object; `[]` is every item of a list.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::AlwaysReady | Self::CustomResourceDefinition | Self::PodDisruptionBudget => &[],
            Self::DaemonSet => &[
                "status.desiredNumberScheduled",
                "status.currentNumberScheduled",
                "status.updatedNumberScheduled",
                "status.numberAvailable",
                "status.numberReady",
            ],
            Self::Deployment => &[
                "spec.progressDeadlineSeconds",
                "spec.replicas",
                "status.replicas",
                "status.updatedReplicas",
                "status.readyReplicas",
                "status.availableReplicas",
            ],
            Self::Job => &[
                "spec.parallelism",
                "spec.completions",
                "spec.suspend",
                "status.succeeded",
                "status.active",
                "status.failed",
                "status.startTime",
            ],
            Self::PersistentVolumeClaim => &["status.phase"],
            Self::Pod => &[
                "metadata.creationTimestamp",
                "status.phase",
                "status.containerStatuses[].name",
                "status.containerStatuses[].state.waiting.reason",
            ],
            Self::ReplicaSet => &[
                "spec.replicas",
                "status.replicas",
                "status.readyReplicas",
                "status.availableReplicas",
                "status.fullyLabeledReplicas",
            ],
            Self::Service => &["spec.type", "spec.clusterIP"],
            Self::StatefulSet => &[
                "spec.updateStrategy.type",
                "spec.updateStrategy.rollingUpdate.partition",
                "spec.replicas",
                "status.replicas",
                "status.readyReplicas",
                "status.currentReplicas",
                "status.updatedReplicas",
                "status.currentRevision",
                "status.updateRevision",
            ],
        }
    }

    /// What the rules say; `now` in unix seconds.
    pub(super) fn judge(
        self,
        object: &Object<'_>,
        conditions: &[Condition<'_>],
        now: i64,
    ) -> Result<Status, Malformed> {
        Ok(match self {
            Self::AlwaysReady => Status::current("Resource is always ready"),
            Self::CustomResourceDefinition => custom_resource_definition(conditions),
            Self::DaemonSet => return daemon_set(object),
            Self::Deployment => deployment(object, conditions),
            Self::Job => job(object, conditions),
            Self::PersistentVolumeClaim => match object.string_or(&["status", "phase"], "unknown") {
                "Bound" => Status::current("PVC is Bound"),
                phase => Status::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
            },
            Self::Pod => return pod(object, conditions, now),
            Self::PodDisruptionBudget => Status::current("AllowedDisruptions has been computed."),
            Self::ReplicaSet => replica_set(object, conditions),
            Self::Service => service(object),
            Self::StatefulSet => stateful_set(object),
        })
    }
}

/// InProgress when there are fewer than wanted.
fn fewer(reason: &str, what: &str, have: i64, want: i64) -> Option<Status> {
    (want > have).then(|| Status::in_progress(reason, format!("{what}: {have}/{want}")))
}

/// InProgress while there are more than wanted.
fn surplus(have: i64, want: i64) -> Option<Status> {
    let more = have.wrapping_sub(want);
    (have > want).then(|| Status::in_progress("ExtraPods", format!("Pending termination: {more}")))
}

/// The first status that was found, or that of when all is well.
fn first_of<const N: usize>(checks: [Option<Status>; N], all_well: impl FnOnce() -> Status) -> Status {
    checks.into_iter().flatten().next().unwrap_or_else(all_well)
}

fn custom_resource_definition(conditions: &[Condition<'_>]) -> Status {
    for c in conditions {
        match (c.type_, c.status) {
            ("NamesAccepted", "False") => return Status::by(Health::Failed, c),
            ("Established", "False") if c.reason != "Installing" => return Status::by(Health::Failed, c),
            ("Established", "True") => return Status::current("CRD is established"),
            _ => {}
        }
    }
    Status::in_progress("Installing", "Install in progress")
}

fn daemon_set(object: &Object<'_>) -> Result<Status, Malformed> {
    // A controller that looked at it has set both; that they agree is checked of every object.
    if object.int64(&["metadata", "generation"])?.is_none() {
        let message = format!("{} metadata.generation not found", object.kind());
        return Ok(Status::in_progress("NoGeneration", message));
    }
    if object.int64(&["status", "observedGeneration"])?.is_none() {
        let message = format!("{} status.observedGeneration not found", object.kind());
        return Ok(Status::in_progress("NoObservedGeneration", message));
    }
    let count = |field| object.int_or(&["status", field], 0);
    let desired = object.int_or(&["status", "desiredNumberScheduled"], -1);
    if desired == -1 {
        return Ok(Status::in_progress("NoDesiredNumber", "Missing .status.desiredNumberScheduled"));
    }
    let checks = [
        fewer("LessCurrent", "Current", count("currentNumberScheduled"), desired),
        fewer("LessUpdated", "Updated", count("updatedNumberScheduled"), desired),
        fewer("LessAvailable", "Available", count("numberAvailable"), desired),
        fewer("LessReady", "Ready", count("numberReady"), desired),
    ];
    Ok(first_of(checks, || {
        Status::current(format!("All replicas scheduled as expected. Replicas: {desired}"))
    }))
}

fn deployment(object: &Object<'_>, conditions: &[Condition<'_>]) -> Status {
    // Without a deadline the controller sets no condition Progressing.
    let no_deadline = i64::from(i32::MAX);
    let deadline = object.int_or(&["spec", "progressDeadlineSeconds"], no_deadline);
    let (mut progressing, mut available) = (deadline == no_deadline, false);
    for c in conditions {
        match (c.type_, c.status, c.reason) {
            ("Progressing", _, "ProgressDeadlineExceeded") => {
                return Status::new(Health::Failed, c.reason, "Progress deadline exceeded");
            }
            ("Progressing", "True", "NewReplicaSetAvailable") => progressing = true,
            ("Available", "True", _) => available = true,
            _ => {}
        }
    }
    let count = |field| object.int_or(&["status", field], 0);
    let wanted = object.int_or(&["spec", "replicas"], 1);
    let (replicas, updated) = (count("replicas"), count("updatedReplicas"));
    let not = |state: bool, reason, message| (!state).then(|| Status::in_progress(reason, message));
    let checks = [
        fewer("LessReplicas", "Replicas", replicas, wanted),
        fewer("LessUpdated", "Updated", updated, wanted),
        surplus(replicas, wanted),
        fewer("LessAvailable", "Available", count("availableReplicas"), updated),
        fewer("LessReady", "Ready", count("readyReplicas"), wanted),
        not(progressing, "ReplicaSetNotAvailable", "ReplicaSet not Available"),
        not(available, "DeploymentNotAvailable", "Deployment not Available"),
    ];
    first_of(checks, || Status::current(format!("Deployment is available. Replicas: {replicas}")))
}

fn job(object: &Object<'_>, conditions: &[Condition<'_>]) -> Status {
    let parallelism = object.int_or(&["spec", "parallelism"], 1);
    let completions = object.int_or(&["spec", "completions"], parallelism);
    let suspended = object.bool_or(&["spec", "suspend"], false);
    let count = |field| object.int_or(&["status", field], 0);
    let (succeeded, active, failed) = (count("succeeded"), count("active"), count("failed"));
    for c in conditions.iter().filter(|c| c.status == "True") {
        match c.type_ {
            "Complete" => {
                return Status::current(format!("Job Completed. succeeded: {succeeded}/{completions}"));
            }
            "Failed" => {
                let message = format!("Job Failed. failed: {failed}/{completions}");
                return Status::new(Health::Failed, "JobFailed", message);
            }
            "Suspended" if suspended => return Status::current("Job is suspended"),
            _ => {}
        }
    }
    if object.string_or(&["status", "startTime"], "").is_empty() {
        return Status::in_progress("JobNotStarted", "Job not started");
    }
    // A Job that runs is Current: kstatus asks whether it was started, not whether it is done.
    Status::current(format!("Job in progress. success:{succeeded}, active: {active}, failed: {failed}"))
}

fn pod(object: &Object<'_>, conditions: &[Condition<'_>], now: i64) -> Result<Status, Malformed> {
    let with = |type_, status| conditions.iter().find(|c| c.type_ == type_ && c.status == status);
    Ok(match object.string_or(&["status", "phase"], "") {
        "Succeeded" => Status::current("Pod has completed successfully"),
        "Failed" => Status::current("Pod has completed, but not successfully"),
        "Running" if with("Ready", "True").is_some() => Status::current("Pod is Ready"),
        "Running" => {
            let crashing = object.containers_waiting("CrashLoopBackOff")?;
            if crashing.is_empty() {
                return Ok(Status::in_progress("PodRunningNotReady", "Pod is running but is not Ready"));
            }
            let message = format!("Containers in CrashLoop state: {}", crashing.join(","));
            Status::new(Health::Failed, "ContainerCrashLooping", message)
        }
        "Pending" => match with("PodScheduled", "False") {
            Some(c) if c.reason == "Unschedulable" => {
                let window = i128::from(now.saturating_sub(SCHEDULE_WINDOW)) * 1_000_000_000;
                if object.creation().is_some_and(|created| window < created) {
                    return Ok(Status::in_progress("PodNotScheduled", "Pod has not been scheduled"));
                }
                Status::new(Health::Failed, "PodUnschedulable", "Pod could not be scheduled")
            }
            _ => Status::in_progress("PodPending", "Pod is in the Pending phase"),
        },
        "" => Status::in_progress("PodNotObserved", "Pod phase not available"),
        phase => {
            return Err(Malformed { reason: "UnknownPhase", message: format!("unknown phase {phase}") });
        }
    })
}

fn replica_set(object: &Object<'_>, conditions: &[Condition<'_>]) -> Status {
    if conditions.iter().any(|c| c.type_ == "ReplicaFailure" && c.status == "True") {
        return Status::in_progress("ReplicaFailure", "Replica Failure condition. Check Pods");
    }
    let count = |field| object.int_or(&["status", field], 0);
    let wanted = object.int_or(&["spec", "replicas"], 1);
    let replicas = count("replicas");
    let checks = [
        fewer("LessLabelled", "Labelled", count("fullyLabeledReplicas"), wanted),
        fewer("LessAvailable", "Available", count("availableReplicas"), wanted),
        fewer("LessReady", "Ready", count("readyReplicas"), wanted),
        surplus(replicas, wanted),
    ];
    first_of(checks, || Status::current(format!("ReplicaSet is available. Replicas: {replicas}")))
}

fn service(object: &Object<'_>) -> Status {
    // Whether the load balancer has an address is not asked.
    let balancer = object.string_or(&["spec", "type"], "ClusterIP") == "LoadBalancer";
    if balancer && object.string_or(&["spec", "clusterIP"], "").is_empty() {
        return Status::in_progress("NoIPAssigned", "ClusterIP not set. Service type: LoadBalancer");
    }
    Status::current("Service is ready")
}

fn stateful_set(object: &Object<'_>) -> Status {
    if object.string_or(&["spec", "updateStrategy", "type"], "") == "OnDelete" {
        return Status::current("StatefulSet is using the ondelete update strategy");
    }
    let count = |field| object.int_or(&["status", field], 0);
    let wanted = object.int_or(&["spec", "replicas"], 1);
    let (replicas, updated) = (count("replicas"), count("updatedReplicas"));
    let partition = object.int_or(&["spec", "updateStrategy", "rollingUpdate", "partition"], -1);
    let counted = [
        fewer("LessReplicas", "Replicas", replicas, wanted),
        fewer("LessReady", "Ready", count("readyReplicas"), wanted),
        surplus(replicas, wanted),
    ];
    first_of(counted, || {
        if partition != -1 {
            let rolled = [fewer("PartitionRollout", "updated", updated, wanted.wrapping_sub(partition))];
            return first_of(rolled, || {
                Status::current(format!("Partition rollout complete. updated: {updated}"))
            });
        }
        let revision = |field| object.string_or(&["status", field], "");
        let mismatch = revision("currentRevision") != revision("updateRevision");
        let checks = [
            fewer("LessCurrent", "current", count("currentReplicas"), wanted),
            mismatch.then(|| {
                Status::in_progress("RevisionMismatch", "Waiting for updated revision to match current")
            }),
        ];
        first_of(checks, || {
            Status::current(format!("All replicas scheduled as expected. Replicas: {replicas}"))
        })
    })
}

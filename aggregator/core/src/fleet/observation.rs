//! What the fleet answers when asked about one package in one cluster.

use std::sync::Arc;

use statusbridge_contract::{ApplyState, Fingerprint, Health};

use crate::time::Seconds;

/// The verified state of one package in one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How far applying has come.
    pub apply: ApplyState,
    /// Health of what is applied.
    pub health: Health,
    /// Revision the cluster has been told to run.
    pub desired: Fingerprint,
    /// Revision last applied in full.
    pub applied: Fingerprint,
    /// Revision that is applied in full and Current now.
    pub healthy: Fingerprint,
    /// Word for the reason code; `code 0x…` when the cluster's dictionary
    /// lacks it, `None` when the code is 0.
    pub reason: Option<String>,
    /// Since when it is so, in the backend's clock: as the exporter vouches, and not before the last
    /// verified exposition that said otherwise.
    pub since: Seconds,
    /// Applied revision before the present one, as far as remembered; `NONE`
    /// if not.
    pub previously_applied: Fingerprint,
}

/// How far an observation can be relied upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Verified evidence is young enough, the source is up, nothing conflicts.
    Fresh,
    /// The last verified evidence is too old, or the source itself is cut off.
    Stale,
    /// The cluster was never seen, or it is verified, fresh and has no such
    /// package.
    Missing,
    /// Too old, and what keeps arriving does not add up to its digest.
    Unverified,
    /// Two sources of truth disagree about this cluster or package.
    Conflict,
    /// The cluster's clock and the backend's are too far apart to say how old
    /// the evidence is.
    ClockSkew,
}

/// The answer to "what is known about this package in this cluster?".
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Whether it can be relied upon.
    pub standing: Standing,
    /// Time of the evidence, in the backend's clock.
    pub as_of: Option<Seconds>,
    /// What was last verified, also when no longer fresh.
    pub row: Option<Row>,
    /// One of [`reason`]'s constants.
    pub reason: &'static str,
    /// The same for a person to read; empty when all is well.
    pub message: String,
    /// The cluster whose exporter said so, where that is another one.
    pub told_by: Option<Arc<str>>,
}

/// The closed list of reasons of an [`Observation`].
pub mod reason {
    /// Fresh and verified.
    pub const REPORTED: &str = "Reported";
    /// No verified data of this cluster has been seen.
    pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
    /// The cluster reports, but not this package.
    pub(crate) const PACKAGE_NOT_FOUND: &str = "PackageNotFound";
    /// The cluster's exporter was not heard from for too long.
    pub const EXPORTER_SILENT: &str = "ExporterSilent";
    /// The aggregator itself scrapes the cluster's exporter, and cannot.
    pub(crate) const SCRAPE_FAILED: &str = "ScrapeFailed";
    /// The exporter says that it lost contact with the objects it reads.
    pub const SOURCE_DOWN: &str = "SourceDown";
    /// Data arrives, but does not add up to its digest.
    pub const UNVERIFIED: &str = "Unverified";
    /// Two clusters report under one name.
    pub const CLUSTER_NAME_CONFLICT: &str = "ClusterNameConflict";
    /// Two streams of one cluster keep saying different things.
    pub(crate) const STREAMS_DISAGREE: &str = "StreamsDisagree";
    /// The clocks of cluster and backend are too far apart.
    pub const CLOCK_SKEW: &str = "ClockSkew";
    /// Two ClusterProfiles stand for the cluster.
    pub const CLUSTER_PROFILE_CONFLICT: &str = "ClusterProfileConflict";
    /// The ClusterProfile does not say by which name its cluster reports.
    pub const CLUSTER_NAME_UNKNOWN: &str = "ClusterNameUnknown";
    /// Nothing is heard, and the ClusterProfile says that the control plane is not healthy.
    pub const CONTROL_PLANE_UNHEALTHY: &str = "ControlPlaneUnhealthy";
    /// The metrics backend gives no usable answers.
    pub(crate) const BACKEND_UNAVAILABLE: &str = "BackendUnavailable";
}

//! What the status of a RolloutGate depends on.

use statusbridge_api::trace::StageStatus;
use statusbridge_api::{FleetPackageSpec, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::Fingerprint;

use super::asked::Asked;
use crate::decide::dependencies::Dependencies;
use crate::decide::excused::Excused;
use crate::decide::hold::{Approvals, Freezes};
use crate::decide::{Backend, Membership, Moment, Target};

/// The FleetPackage that a gate refers to.
#[derive(Debug, Clone, Copy)]
pub enum PackageSpec<'a> {
    /// Its spec.
    Found(&'a FleetPackageSpec),
    /// There is none of this name.
    NotFound,
    /// There is one, but its spec cannot be read.
    Unreadable(&'a str),
}

/// All that a RolloutGate's status depends on.
pub struct Input<'a> {
    /// The spec, or why it cannot be read.
    pub spec: Result<&'a RolloutGateSpec, &'a str>,
    /// Its generation.
    pub generation: i64,
    /// The status as it stands.
    pub previous: Option<&'a RolloutGateStatus>,
    /// The FleetPackage.
    pub package: PackageSpec<'a>,
    /// The clusters of the wave that count.
    pub targets: &'a [Target],
    /// Those that do not.
    pub excused: &'a Excused<'a>,
    /// Whether they are all that are meant.
    pub membership: &'a Membership,
    /// The clusters that the selector of a gate with fixed members selects now; none where that is not known.
    pub selected: Option<&'a [String]>,
    /// Why some feed has never answered, if one has not.
    pub unheard: Option<&'a str>,
    /// What the clusters have to run: what comes of the gate's revision at the end of the trace, or why
    /// that is not known.
    pub artifact: Result<Fingerprint, &'a str>,
    /// How far the gate's revision has come in each stage of the trace.
    pub stages: &'a [StageStatus],
    /// Whether any cluster at all was seen to want or have the gate's revision. Only who waits for it asks.
    pub seen_anywhere: &'a dyn Fn() -> bool,
    /// The gates that it depends on.
    pub dependencies: &'a Dependencies<'a>,
    /// The checks, in the order of the spec.
    pub checks: &'a [Asked<'a>],
    /// The freezes of the namespace.
    pub freezes: Freezes<'a>,
    /// The approvals of the gate.
    pub approvals: Approvals<'a>,
    /// What the last poll came to.
    pub backend: Backend<'a>,
    /// When.
    pub moment: Moment,
}

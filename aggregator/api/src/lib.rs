//! The hub API, `statusbridge.dev/v1alpha1`: what people write and what the aggregator answers.
//!
//! ```text
//!   RolloutGate ──fleetPackageRef──> FleetPackage ──package──> rows that the clusters report
//!        │                                │
//!        └── status: may the rollout go   ├── status: how many clusters run what, and how
//!            on, and if not, why not      └── FleetPackageSlices: each cluster, on request
//!
//!   FleetRollout ──makes──> one RolloutGate for each wave
//!        └── FleetRolloutSlices: which clusters may have which revision
//!
//!   RolloutApproval ──gateRef──> RolloutGate      somebody lets it open for one revision
//!   RolloutFreeze                                 for a while no gate of the namespace is open
//! ```
//!
//! The types are the source of the CRDs in `deploy/crds` ([`crd`]); whatever the API server can
//! refuse with a readable message is refused there.

pub mod conditions;
pub mod crd;
mod fields;
mod kinds;
pub mod names;
pub mod reason;
mod without_spec;

pub use fields::common::{ClusterSet, Reporting};
pub use fields::excuse::{Excuse, ExcusedCluster};
pub use fields::label_selector::LabelSelector;
pub use fields::package_ref::PackageRef;
pub use fields::revision_from::RevisionFrom;
pub use fields::trace::TraceStage;
pub use fields::{check, common, excuse, label_selector, package_ref, revision_from, trace, window};
pub use kinds::fleet_package::{FleetPackage, FleetPackageSpec, FleetPackageStatus};
pub use kinds::fleet_package_slice::FleetPackageSlice;
pub use kinds::fleet_rollout::{FleetRollout, FleetRolloutSpec, FleetRolloutStatus};
pub use kinds::fleet_rollout_slice::FleetRolloutSlice;
pub use kinds::rollout_approval::{RolloutApproval, RolloutApprovalSpec};
pub use kinds::rollout_freeze::{RolloutFreeze, RolloutFreezeSpec};
pub use kinds::rollout_gate::{RolloutGate, RolloutGateSpec, RolloutGateStatus};
pub use kinds::{
    fleet_package, fleet_package_slice, fleet_rollout, fleet_rollout_slice, rollout_approval, rollout_gate,
};
pub use names::{GROUP, VERSION};
pub use reason::Reason;

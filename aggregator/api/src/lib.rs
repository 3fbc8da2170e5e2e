//! The hub API, `statusbridge.dev/v1alpha1`: what people write and what the aggregator answers.
//!
//! ```text
//!   RolloutGate ──fleetPackageRef──> FleetPackage ──package──> rows that the clusters report
//!        │                                │
//!        └── status: may the rollout go   ├── status: how many clusters run what, and how
//!            on, and if not, why not      └── FleetPackageSlices: each cluster, on request
//! ```
//!
//! The types are the source of the CRDs in `deploy/crds` ([`crd`]); whatever the API server can
//! refuse with a readable message is refused there.

pub mod check;
pub mod common;
pub mod conditions;
pub mod crd;
pub mod fleet_package;
pub mod fleet_package_slice;
pub mod label_selector;
pub mod names;
pub mod package_ref;
pub mod reason;
pub mod revision_from;
pub mod rollout_gate;
pub mod trace;

pub use common::{ClusterSet, Reporting};
pub use fleet_package::{FleetPackage, FleetPackageSpec, FleetPackageStatus};
pub use fleet_package_slice::FleetPackageSlice;
pub use label_selector::LabelSelector;
pub use package_ref::PackageRef;
pub use reason::Reason;
pub use revision_from::RevisionFrom;
pub use rollout_gate::{RolloutGate, RolloutGateSpec, RolloutGateStatus};
pub use trace::TraceStage;

/// API group of every kind here.
pub const GROUP: &str = "statusbridge.dev";
/// The one API version there is.
pub const VERSION: &str = "v1alpha1";

//! The kinds of the API.

pub mod fleet_package;
pub mod fleet_package_slice;
pub mod rollout_approval;
pub(crate) mod rollout_freeze;
pub mod rollout_gate;

//! The kinds of the API.

pub mod fleet_package;
pub mod fleet_package_slice;
pub mod fleet_rollout;
pub mod fleet_rollout_slice;
pub mod rollout_approval;
pub(crate) mod rollout_freeze;
pub mod rollout_gate;

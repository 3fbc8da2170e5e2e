//! From the hub's objects, the fleet and the time to the statuses that must be written.
//!
//! ```text
//!   store (objects) ──targets──> survey (observations) ──judge──> decide ──> status
//!   dependencies, references, profiles, tenancy ────────────┘
//! ```

pub mod calls;
pub mod command;
pub mod dependencies;
pub mod detail;
pub mod discover;
pub mod election;
pub mod feeds;
mod flights;
pub mod gate_verdict;
pub mod heartbeat;
#[cfg(test)]
mod history_tests;
pub mod holds;
pub mod judge;
pub mod judged;
pub mod judging;
pub mod labels;
pub mod lazy_object;
pub mod object;
pub(crate) mod observation_cache;
pub mod owned;
pub mod picture;
pub mod profiles;
pub mod reconciler;
pub mod references;
mod reported;
pub mod revision_verdict;
#[cfg(test)]
mod rollout_history_tests;
pub mod rollout_slices;
pub mod rollouts;
mod slice_changes;
pub mod slices;
pub mod state;
pub mod store;
mod targets;
pub mod tenancy;
pub(crate) mod verdict_cache;
mod write_queue;
mod written;

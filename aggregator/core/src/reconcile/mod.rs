//! From the hub's objects, the fleet and the time to the statuses that must be written.
//!
//! ```text
//!   store (objects) ──targets──> survey (observations) ──judge──> decide ──> status
//!   dependencies, references, profiles, tenancy ────────────┘
//! ```

pub mod dependencies;
pub mod discover;
pub mod gate_verdict;
pub mod judge;
pub mod lazy_object;
pub mod observation_cache;
pub mod profiles;
pub mod references;
pub mod slices;
pub mod store;
mod targets;
pub mod tenancy;
pub mod verdict_cache;
pub mod write_queue;

//! From the hub's objects, the fleet and the time to the statuses that must be written.
//!
//! ```text
//!   store (objects) ──targets──> survey (observations) ──judge──> decide ──> status
//!   dependencies, references, profiles, tenancy ────────────┘
//! ```

pub mod backlog;
pub mod dependencies;
pub mod discover;
pub mod judge;
pub mod profiles;
pub mod raw;
pub mod reading;
pub mod references;
pub mod slices;
pub mod store;
pub mod survey;
mod targets;
pub mod tenancy;
pub mod verdicts;

//! A report for every package that any cluster reports, made by itself (`--discover-into`).
//!
//! ```text
//!   fleet.packages() ─────────────────┐
//!                                     ├─> plan: make, note as gone, remove ──> write
//!   FleetPackages of that namespace ──┘
//! ```
//!
//! Objects that this made bear a label; no other is ever changed or removed. When a package was last
//! reported is kept in an annotation, so that it outlives the process.

mod discovery;
mod name;
mod plan;

pub use discovery::Discovery;
pub use name::name;
pub use plan::{Change, Input, Plan, plan};

use crate::time::Seconds;

/// Who owns what discovery writes.
pub const FIELD_MANAGER: &str = "statusbridge-discovery";

/// Where and how much.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Namespace of the FleetPackages that are made.
    pub namespace: String,
    /// How many there may be.
    pub limit: usize,
    /// One is removed when no cluster has reported its package for so long.
    pub forget_after: Seconds,
}

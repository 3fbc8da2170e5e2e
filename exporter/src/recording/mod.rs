//! Saved objects in place of an API server: which kinds it would serve, how it would show their objects, and when.
//!
//! ```text
//!   saved objects ──> Kinds ──view──> what a watch of a kind sees
//!         └─────────> timeline ─────> which version comes when
//! ```

mod definition;
mod fields;
mod kinds;
mod timeline;

pub use kinds::Kinds;
pub(crate) use kinds::{GroupKind, Hidden, View, group_kind, key, version};
pub(crate) use timeline::{Version, beginning, in_order, millis, timeline};

//! Saved objects go through the engine that a cluster's objects go through, in no time: what the exporter would show.
//!
//! ```text
//!   saved objects ──recording──> Rehearsal <──Command, Update──> Engine ──journal──> packages, transitions
//! ```
//!
//! The rehearsal is the API server: it lists, watches and reads what was saved, answers at once, and is told what time it is.

mod driver;
mod history;
mod package;
#[cfg(test)]
mod tests;

pub use driver::Rehearsal;
pub use history::{Clock, History, rehearse};
pub use package::{Package, PackageId, Transition};

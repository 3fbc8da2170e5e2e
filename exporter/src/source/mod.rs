//! Sources: which kind of object is a package, and how to read its state. Data, not code.
//!
//! ```text
//!   YAML ──format──> Definition ──compile──> Source ──evaluate──> Verdict
//!                                              │  └──join_keys──> which related objects to look up
//!                                              └──projection──> which fields to keep
//! ```
//!
//! `plain` refuses YAML that hides an expression. Where a source has no rules, `kstatus` judges.

mod catalog;
mod compile;
mod error;
mod evaluate;
mod expectation;
mod files;
mod footprint;
mod format;
mod join;
mod kind;
pub mod kstatus;
mod plain;
mod preset;
mod program;
mod projection;
mod references;
mod resource_rules;
mod resources;
mod rule;
mod schema;
mod trial;
mod verdict;

pub use catalog::SourceArgs;
pub(crate) use catalog::SourceTexts;
pub use error::SourceError;
pub use expectation::{Expectation, Revisions};
pub(crate) use files::ENDINGS;
pub use files::files_of;
pub use join::{JoinKey, Related, RelatedObject, RelatedObjects};
pub use kind::{KindRef, PackageKind};
pub use preset::{PRESETS, Preset};
pub use program::{Sample, Source};
pub use projection::Projection;
pub(crate) use resources::{ResourceLabel, ResourceRef, ResourceSet, ResourceState, ResourceSummary};
pub use schema::schema;
pub use verdict::{Detail, Evaluation, Hold, HoldKey, Inventory, Verdict};

#[cfg(test)]
mod tests;

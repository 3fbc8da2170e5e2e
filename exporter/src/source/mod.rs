//! Sources: which kind of object is a package, and how to read its state. Data, not code.
//!
//! ```text
//!   YAML ──format──> Definition ──compile──> Source ──evaluate──> Verdict
//!                                              │  └──join_keys──> which related objects to look up
//!                                              └──projection──> which fields to keep
//! ```
//!
//! `plain` refuses YAML that hides an expression. Where a source has no rules, kstatus judges.

mod catalog;
mod compile;
mod error;
mod evaluate;
mod expectation;
mod files;
mod footprint;
mod format;
#[cfg(test)]
mod fuzz;
mod identity;
mod join;
mod kind;
mod plain;
mod preset;
mod program;
mod projection;
mod reach;
mod references;
mod resource_health;
mod resource_program;
mod resources;
mod rule;
mod schema;
mod selector;
mod trial;
mod verdict;
mod words;

pub use catalog::SourceArgs;
pub use error::SourceProblem;
pub use expectation::{Expectation, Revisions};
pub use files::files_of;
pub(crate) use files::{ENDINGS, FileTexts, texts_of};
pub(crate) use format::API_VERSION;
pub use identity::Identity;
pub use join::{JoinKey, Related, RelatedObject, RelatedObjects};
pub use kind::{KindRef, PackageKinds};
pub use preset::{PRESETS, Preset};
pub use program::{Sample, Source};
pub use projection::Projection;
pub(crate) use resource_health::ResourceHealth;
pub(crate) use resources::{ResourceLabel, ResourceRef, ResourceSet, ResourceState, ResourceSummary};
pub use schema::schema;
pub use selector::Selector;
pub use verdict::{Counts, Detail, Evaluation, Hold, HoldKey, Verdict, stands_for};

#[cfg(test)]
mod tests;

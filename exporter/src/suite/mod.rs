//! Tests of sources: objects, and what is expected to be shown of them.
//!
//! ```text
//!   SourceTest, or samples with `expect` ──> Suite ──objects──> rehearsal ──difference──> Outcome
//! ```

mod definition;
mod difference;
mod objects;
mod run;
#[cfg(test)]
mod tests;

pub use definition::{Case, Suite};
pub use run::{Outcome, SourceFinder};

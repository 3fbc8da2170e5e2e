//! What is decided about packages and gates, as seen from outside.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod checks;
mod deadline;
mod depends;
mod excused;
mod frozen;
mod gate;
mod history;
mod laws;
mod made;
mod membership;
mod model;
mod package;
mod slices;
mod trace;

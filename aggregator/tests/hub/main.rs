//! What the hub half decides and generates, without any server.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod board;
mod checks;
mod crds;
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
mod reading;
mod slices;
mod trace;

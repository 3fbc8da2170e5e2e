//! What the hub half decides and generates, without any server.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod crds;
mod gate;
mod laws;
mod made;
mod membership;
mod package;

//! The CRDs, and what readers are told of a gate, without any server.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod board;
mod crds;
mod reading;

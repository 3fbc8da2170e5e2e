//! The exporter: watches the packages of a cluster and serves what it sees of them as metrics with a digest.
//!
//! ```text
//!   API server ──> watch ──> state ──> serve ──> /metrics, or push
//!                              │
//!                           source: what an object says of a package
//! ```
//!
//! `rehearsal` does the same with objects that were `saved`: a `recording` of them stands in for the API server. A `suite`
//! holds what it shows against what was expected.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

mod clock;
pub mod metrics;
pub mod recording;
pub mod rehearsal;
pub mod saved;
pub mod serve;
pub mod source;
pub mod state;
pub mod suite;
pub mod watch;

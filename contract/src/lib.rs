//! What both halves of Status Bridge must agree on, and nothing else: pure data, no I/O.
//!
//! ```text
//!   state ──┐
//!   reason ─┼─> metric ──> sample ──> digest        (exporter: render and attest)
//!   fingerprint ┘             ^
//!                     stream ─┘                     (aggregator: undo the pipeline, then verify)
//!                 exposition ─┘                     (aggregator: read what an exporter rendered)
//! ```
//!
//! The same rules in words, with worked vectors for an implementation in another language, are in
//! `docs/contract.md` and `contract/vectors.json`.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod digest;
pub mod exposition;
pub mod fingerprint;
pub mod metric;
pub mod reason;
pub mod sample;
pub mod state;
pub mod stream;
pub mod version;
pub mod wanted;

pub use digest::Digest;
pub use fingerprint::{Fingerprint, MAX_48_BITS};
pub use metric::{ALWAYS, Metric, PACKAGE_METRICS, label};
pub use state::{ApplyState, Health};
pub use version::Version;

/// The contract version that exporters publish, as it stands in the digest's `contract` label.
pub const CONTRACT_VERSION: &str = Version::CURRENT.name();

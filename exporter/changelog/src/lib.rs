//! A drop-in for Crossplane's change-log sidecar (crossplane/changelogs-sidecar) that counts what it writes.
//!
//! ```text
//!   provider ──unix socket──> service ──line──> buffer ──> thread ──> standard output
//!                                └──labels, repeats──> metrics ──> /metrics
//! ```
//!
//! The provider's side is `pkg/reconciler/managed/changelogger.go` of crossplane/crossplane-runtime. In the middle of a
//! reconciliation it waits up to 10 s for the socket and for the answer to its entry. So the socket is there at all
//! times, and an answer waits neither for standard output nor for the log nor for the API server.
//!
//! - `serve` starts everything and stops it
//! - `socket` holds the file that the provider connects to
//! - `service` answers the provider's requests over gRPC
//! - `entry` is the provider's message, and the line of JSON that it becomes
//! - `output` writes lines to standard output, by a thread of its own
//! - `metrics` counts changes, under a bounded number of labels
//! - `log` writes the sidecar's own log, by a thread of its own

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

mod entry;
mod log;
mod metrics;
mod output;
mod serve;
mod service;
mod socket;

pub use metrics::with_every_series;
pub use serve::{Args, run};

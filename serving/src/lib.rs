//! What every process of Status Bridge does alike: it logs, finds its API server, serves HTTP or HTTPS to those who may
//! ask, and stops when it is told to.
//!
//! ```text
//!   options ─> listen ─> endpoints ─> authorize ─> answer
//!                            └─> metrics (of all that)        process: where, what is logged, when to stop
//!
//!   address: where other servers are
//! ```

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod address;
mod answer;
pub mod authorize;
pub mod endpoints;
mod listen;
pub mod metrics;
pub mod options;
mod process;

pub use answer::{format, page, refusal, response};
pub use listen::{http, places, tls};
pub use process::{kubeconfig, log, signals};

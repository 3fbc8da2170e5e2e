//! What every process of Status Bridge does alike: it logs, finds its API server, serves HTTP or HTTPS to those who may
//! ask, and stops when it is told to.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod authorize;
mod descriptors;
pub mod endpoints;
pub mod format;
pub mod http;
pub mod kubeconfig;
pub mod log;
pub mod metrics;
pub mod options;
pub mod page;
pub mod refusal;
pub mod response;
pub mod signals;
pub mod tls;

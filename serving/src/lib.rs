//! What every process of Status Bridge does alike: it logs, finds its API server, serves HTTP or HTTPS, and stops when it
//! is told to.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod http;
pub mod kubeconfig;
pub mod log;
pub mod signals;
pub mod tls;

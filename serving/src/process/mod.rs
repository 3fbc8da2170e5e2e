//! The process itself: where its API server is, what it logs, and how it is told to stop.

pub mod kubeconfig;
pub mod log;
pub mod signals;

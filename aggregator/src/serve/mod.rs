//! The loop of the aggregator, and what it shows: HTTP endpoints, metrics, gates by name.

#[cfg(test)]
mod again_tests;
pub mod commands;
pub mod config;
pub mod controller;
pub mod gates_page;
pub mod server;

pub use commands::{ServeArgs, SweepArgs, crds, serve, sweep};

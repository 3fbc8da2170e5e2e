//! The loop of the aggregator, and what it shows: HTTP endpoints, metrics, gates by name.

pub mod commands;
pub mod config;
pub mod controller;
pub mod gates_page;
pub mod server;

pub use commands::{ServeArgs, SweepArgs, crds, serve, sweep};

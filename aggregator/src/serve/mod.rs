//! The loop of the aggregator, and what it shows: HTTP endpoints, metrics, the API.

mod apart;
pub mod api;
mod cluster_tokens;
pub mod commands;
pub mod config;
pub mod controller;
pub mod desk;
pub mod server;
mod states;
mod turns;
mod ui;

pub use commands::{ServeArgs, SweepArgs, crds, serve, sweep};

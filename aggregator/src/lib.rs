//! Aggregator library.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it
pub mod announce;
pub mod api;
pub mod backlog;
pub mod board;
pub mod checks;
pub mod clock;
pub mod config;
pub mod controller;
pub mod decide;
pub mod dependencies;
pub mod discover;
pub mod expositions;
pub mod feed;
pub mod feeds;
pub mod fence;
pub mod fleet;
pub mod fold;
pub mod gates_page;
pub mod heartbeat;
pub mod judge;
pub mod lease;
pub mod metrics;
#[cfg(test)]
mod model;
pub mod names;
pub mod poll;
pub mod profiles;
pub mod raw;
pub mod reading;
pub mod reception;
pub mod references;
mod serial;
pub mod serve;
pub mod server;
pub mod settle;
pub mod slices;
pub mod store;
pub mod survey;
pub mod sweeper;
mod targets;
pub mod tenancy;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verdicts;
pub mod verify;
pub mod write;
mod yaml_file;

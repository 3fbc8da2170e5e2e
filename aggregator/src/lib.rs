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
pub mod doctor;
pub mod explain;
pub mod expositions;
pub mod feed;
pub mod feeds;
pub mod fence;
pub mod fleet;
mod fold;
pub mod gates_page;
mod hanging;
pub mod heartbeat;
pub mod judge;
pub mod lease;
pub mod metrics;
#[cfg(test)]
mod model;
pub mod names;
pub mod operations;
mod output;
pub mod poll;
pub mod profiles;
pub mod raw;
pub mod reading;
pub mod reception;
pub mod references;
mod serial;
pub mod serve;
pub mod server;
pub mod set_revision;
pub mod settle;
pub mod slices;
pub mod store;
pub mod survey;
pub mod sweeper;
mod targets;
pub mod tenancy;
#[cfg(test)]
mod testing;
pub mod verdicts;
pub mod verify;
pub mod wait;
pub mod write;
mod yaml_file;

//! Aggregator library.
pub mod announce;
pub mod api;
pub mod backlog;
pub mod checks;
pub mod clock;
pub mod config;
pub mod controller;
pub mod decide;
pub mod dependencies;
pub mod discover;
pub mod explain;
pub mod feed;
pub mod fence;
pub mod fleet;
pub mod heartbeat;
pub mod judge;
pub mod lease;
pub mod metrics;
#[cfg(test)]
mod model;
pub mod names;
pub mod poll;
pub mod profiles;
pub mod serve;
pub mod server;
pub mod settle;
pub mod slices;
pub mod store;
pub mod sweeper;
mod targets;
pub mod tenancy;
#[cfg(test)]
mod testing;
pub mod verify;
pub mod write;

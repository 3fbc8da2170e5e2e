//! What Status Bridge promises, end to end on real servers: one file for each promise.
//!
//! One program holds them all, so that they link once and run side by side.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod backend_faults;
mod cardinality;
mod checks;
mod exporter_silent;
mod flux_delivers;
mod leadership;
mod logs;
mod missing_clusters;
mod previous_revision;
mod profiles;
mod reports;
mod rubbish;
mod spoiled_samples;
mod streams;
mod sweeper;
mod tenants;
mod watches;
mod waves;
mod without;
mod world;

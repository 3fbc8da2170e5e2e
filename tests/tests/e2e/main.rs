//! What Status Bridge promises, end to end on real servers: one file for each promise.
//!
//! One program holds them all, so that they link once and run side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod backend_faults;
mod backends;
mod cardinality;
mod changelog;
mod checks;
mod clocks;
mod detours;
mod doctor;
mod exporter_silent;
mod flux_delivers;
mod gates_page;
mod history;
mod leadership;
mod logs;
mod mimir;
mod missing_clusters;
mod odd_names;
mod old_objects;
mod pipelines;
mod previous_revision;
mod profiles;
mod provenance;
mod reader;
mod recipes;
mod references;
mod reports;
mod restored_hub;
mod roads;
mod rubbish;
mod set_revision;
mod soak;
mod spoiled_samples;
mod stale_after;
mod stale_markers;
mod status;
mod streams;
mod sweeper;
mod tenants;
mod thanos;
mod versions;
mod victoria_cluster;
mod wait;
mod watches;
mod waves;
mod world;

//! Every test that runs real servers, in one program: it links once, and as many tests run side by side as
//! `RUST_TEST_THREADS` says, to the last one. Most of them wait most of the time. Those of [`attacks`] keep the processor
//! busy, so `make test` runs them after the others, and fewer at a time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::string_slice)] // what cannot be ends a test

mod attacks;
mod checked;
mod dashboards;
mod deploy;
mod docs;
mod e2e;
mod exporter;
mod faults;
mod feed;
mod hub_api;
mod kpt;
mod kpt_health;
mod porch;
mod presets;
mod rig;
mod scrape;
mod soak;
mod sources;
mod verdicts;

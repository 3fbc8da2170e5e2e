//! A model that tries to break the promise: clusters, exporters, scrapes, a backend with all its
//! faults, aggregators that die and stand still, and a hub, driving the code that verifies, folds and
//! decides. What is true in the clusters is known here, so a gate that opens on a lie is found.

mod backend;
mod cluster;
mod story;
mod world;

use proptest::prelude::*;

use crate::clock::Seconds;
use world::World;

/// Where the clock begins.
const START: Seconds = 1_000_000.0;
const CLUSTER_LABEL: &str = "cluster";
const PACKAGE: &str = "p";
const SCRAPE_INTERVAL: u64 = 15;
const POLL_INTERVAL: Seconds = 15.0;
/// By how much a soak may be measured too long: times are whole seconds, and a clock is believed to
/// within two.
const CLOCK_SLACK: Seconds = 4.0;

/// How many histories are tried; `make model N=…` tries more.
fn histories() -> u32 {
    std::env::var("STATUSBRIDGE_MODEL_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_gate_opens_on_a_lie_and_a_quiet_fleet_opens(story in story::stories()) {
        if let Err(lie) = World::play(&story) {
            prop_assert!(false, "{}", lie);
        }
    }
}

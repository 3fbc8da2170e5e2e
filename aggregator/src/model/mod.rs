//! A model that tries to break the promise: clusters, exporters, scrapes, a backend with all its
//! faults, aggregators that die, stand still and overrule each other, and a hub, driving the code that
//! verifies, folds and decides. What is true in the clusters is known here, so a gate that opens on a
//! lie is found.
//!
//! ```text
//!   story --> world: clusters --scrapes--> backend --queries--> replicas --writes--> hub <-- sweeper
//!                       \-- truth --------------------------------> promise <-- gate --/
//! ```

mod backend;
mod cluster;
mod hub;
mod promise;
mod replica;
mod story;
mod timeline;
#[cfg(test)]
mod told;
mod world;

use std::cell::Cell;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use statusbridge_core::time::Seconds;

use crate::feed::promql::Exporters;
use world::World;

/// Where the clock begins.
const START: Seconds = 1_000_000.0;
const CLUSTER_LABEL: &str = "cluster";
/// The label that tells exporters from all else that is scraped, and its value.
const JOB: (&str, &str) = ("job", "exporter");
const PACKAGE: &str = "p";
const POLL_INTERVAL: Seconds = 15.0;
/// By how much a soak may be measured too long: times are whole seconds.
const CLOCK_SLACK: Seconds = 1.0;
/// A cluster's clock may be off by so much before it is not believed, see `FleetSettings`.
const MAX_SKEW: Seconds = 60.0;
/// Tests among which the histories are divided, so that several cores play them.
const TESTS: u32 = 4;

/// The streams that the operator trusts.
static EXPORTERS: LazyLock<Exporters> = LazyLock::new(|| {
    let trust = format!("{}=\"{}\"", JOB.0, JOB.1).parse().expect("a matcher");
    Exporters { cluster_label: CLUSTER_LABEL.to_owned(), trust }
});

/// A number that is given from outside.
fn given(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// How many histories are tried; `make model N=…` tries more.
fn histories() -> u32 {
    given("STATUSBRIDGE_MODEL_HISTORIES").unwrap_or(500)
}

/// What makes the histories others. Always the same ones are part of the tests, so that a change passes or
/// not because of what it changes; `make model` always finds new ones.
fn dice(test: u8) -> TestRng {
    let mut seed = [test; 32];
    seed[..4].copy_from_slice(&given("STATUSBRIDGE_MODEL_SEED").unwrap_or_default().to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &seed)
}

/// Plays a share of all histories, and tells the shortest one found that breaks the promise.
fn try_to_break_it(test: u8) {
    let config = ProptestConfig {
        cases: histories().div_ceil(TESTS),
        // What once failed is kept in `told`, where people can read it.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let played = Cell::new(0);
    let broken = TestRunner::new_with_rng(config, dice(test)).run(&story::stories(), |story| {
        played.set(played.get() + 1);
        World::play(&story).map_err(|broken| TestCaseError::fail(broken.to_string()))
    });
    match broken {
        Ok(()) => {}
        Err(TestError::Fail(_, story)) => {
            panic!("after {} histories\n{}\n{story:?}", played.get(), world::tell(&story))
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_gate_opens_on_a_lie_and_a_quiet_fleet_opens_1() {
    try_to_break_it(1);
}

#[test]
fn no_gate_opens_on_a_lie_and_a_quiet_fleet_opens_2() {
    try_to_break_it(2);
}

#[test]
fn no_gate_opens_on_a_lie_and_a_quiet_fleet_opens_3() {
    try_to_break_it(3);
}

#[test]
fn no_gate_opens_on_a_lie_and_a_quiet_fleet_opens_4() {
    try_to_break_it(4);
}

//! How much is measured, as the environment says it.

use super::engine::Kind;
use anyhow::{Context, Result, ensure};
use statusbridge_tests::bench::{number, setting};
use std::time::Duration;

/// Clusters of the smallest fleet.
const FEWEST: usize = 10;

/// How much is measured.
pub(super) struct Plan {
    /// `ENGINE`: which engines.
    pub(super) kinds: Vec<Kind>,
    /// `CLUSTERS`.
    pub(super) clusters: usize,
    /// `PACKAGES`: how many packages each cluster has.
    pub(super) packages: usize,
    /// `MINUTES`: how long nothing happens but scrapes.
    pub(super) rest: Duration,
    /// `INTERVAL`: time between two scrapes of a cluster.
    pub(super) interval: Duration,
    /// `QUIET`: how many of the aggregator's polls are measured.
    pub(super) polls: u64,
}

impl Plan {
    /// Reads the environment.
    pub(super) fn read() -> Result<Self> {
        let kinds = match setting("ENGINE") {
            None => Kind::ALL.to_vec(),
            Some(name) => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                let all = Kind::ALL.map(Kind::name).join(", ");
                vec![kind.with_context(|| format!("ENGINE is `{name}`; it has to be one of {all}"))?]
            }
        };
        let plan = Self {
            kinds,
            clusters: number("CLUSTERS", 1_000)?,
            packages: number("PACKAGES", 100)?,
            rest: Duration::from_secs(60 * number::<u64>("MINUTES", 10)?),
            interval: Duration::from_secs(number("INTERVAL", 30)?),
            polls: number("QUIET", 8)?,
        };
        ensure!(plan.clusters >= 2 * FEWEST && plan.packages > 0, "at least {} clusters", 2 * FEWEST);
        ensure!(!plan.rest.is_zero() && !plan.interval.is_zero(), "MINUTES and INTERVAL are at least 1");
        ensure!(plan.polls > 0, "QUIET is at least 1");
        Ok(plan)
    }

    /// How many clusters the small fleet has with which this one is compared.
    pub(super) fn few(&self) -> usize {
        (self.clusters / 100).max(FEWEST)
    }
}

//! The gates, and when the hub had what came of a change.

use super::clock::{Clock, Seconds};
use super::{PACKAGES, PATIENCE, STALE_AFTER};
use anyhow::{Context, Result};
use serde_json::json;
use statusbridge_tests::history::condition;
use statusbridge_tests::{History, Hub, eventually};

/// Every version of each package's gate.
pub(super) struct Gates(Vec<History>);

/// A package has become what its gate asks for, or is no longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) package: usize,
    /// Whether its gate opens.
    pub(super) opens: bool,
    pub(super) at: Seconds,
}

impl Change {
    /// The change with this number, made at some time: all packages in turn, each one back and forth.
    pub(super) fn new(number: usize, at: Seconds, is_open_at_first: bool) -> Self {
        let again = (number / PACKAGES).is_multiple_of(2);
        Self { package: number % PACKAGES, opens: again != is_open_at_first, at }
    }
}

impl Gates {
    /// Makes a FleetPackage and a gate for each package, which asks for its revision in a cluster, and waits until they have
    /// a verdict: all open, or all closed.
    pub(super) async fn make(
        hub: &Hub,
        package: impl Fn(usize) -> String,
        cluster: impl Fn(usize) -> String,
        revision: impl Fn(usize) -> String,
        are_open: bool,
    ) -> Result<Self> {
        let mut recorded = Vec::new();
        for n in 0..PACKAGES {
            let package = package(n);
            hub.report(&package, STALE_AFTER, json!({})).await?;
            let clusters = json!({"clusters": {"names": [cluster(n)]}});
            hub.gate(&package, &package, &revision(n), clusters).await?;
            recorded.push(hub.history(&package).await?);
        }
        let gates = Self(recorded);
        for n in 0..PACKAGES {
            gates.says(n, are_open, |_| true).await?;
        }
        Ok(gates)
    }

    /// When the hub had what came of a change.
    pub(super) async fn seen(&self, change: Change, clock: Clock) -> Result<Seconds> {
        let moment = self.says(change.package, change.opens, |seen| clock.of(seen) >= change.at).await?;
        Ok(clock.of(moment))
    }

    /// When a gate first was as it is to be, of its versions from some moment on.
    async fn says(
        &self,
        package: usize,
        is_open: bool,
        counts: impl Fn(std::time::Instant) -> bool,
    ) -> Result<std::time::Instant> {
        let is = if is_open { "True" } else { "False" };
        eventually(PATIENCE, &format!("Open of gate {package} is {is}"), async || {
            let versions = self.0.get(package).context("no such gate")?.versions().await?;
            let mut after = versions.iter().filter(|version| counts(version.seen));
            let found = after.find(|version| condition(&version.object, "Open").0 == is);
            found.map(|version| version.seen).context("not yet")
        })
        .await
    }
}

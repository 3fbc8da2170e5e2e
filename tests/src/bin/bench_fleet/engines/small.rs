//! A part of the fleet, scraped as often as two hours' blocks have samples: what an engine needs however few series there
//! are, and what full blocks take on disk.

use super::engine::{Engine, Kind};
use super::feed::Feed;
use super::load;
use super::plan::Plan;
use super::sender::Sender;
use super::stored::Stored;
use crate::generated::{Generated, Millis};
use anyhow::Result;
use statusbridge_tests::Rig;
use statusbridge_tests::bench::say;
use std::sync::Arc;
use std::time::Duration;

/// Time between two scrapes.
const INTERVAL: Duration = Duration::from_secs(1);
/// Scrapes of each cluster: those of two hours at 30 s.
const SCRAPES: u32 = 240;

/// What it came to. Memory in bytes.
pub(super) struct Small {
    /// Series in memory.
    pub(super) series: f64,
    /// Resident memory at most, in the last quarter of the time.
    pub(super) resident: u64,
    /// What is on disk at the end.
    pub(super) stored: Stored,
}

/// Measures it with an engine of its own.
pub(super) async fn measure(rig: &Rig, plan: &Plan, kind: Kind, feed: Feed) -> Result<Small> {
    let interval = INTERVAL.as_millis() as Millis;
    let fleet = Arc::new(Generated::new(plan.few(), plan.packages, interval, interval, 0));
    let exporters = feed.serve(fleet.clone()).await?;
    let engine = Engine::start(rig, kind).await?;
    let sender = Sender::start(rig, &engine, exporters.job(), INTERVAL).await?;
    engine.holds(feed.series(&fleet)).await?;
    // What comes with the start is over by then.
    tokio::time::sleep(INTERVAL * (SCRAPES - SCRAPES / 4)).await;
    let loads = load::watch(&engine.processes(), INTERVAL * (SCRAPES / 4)).await?;
    let series = engine.counts().await?.series;
    sender.process().kill();
    let stored = engine.stored().await?;
    let resident = load::resident(&loads);
    say(&format!(
        "{} with {} clusters of {}: {} MB resident, on disk {stored:?}",
        kind.name(),
        plan.few(),
        feed.name(),
        resident / 1_000_000
    ));
    Ok(Small { series, resident, stored })
}

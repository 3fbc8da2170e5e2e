//! What one engine needs for one feed.

use super::engine::{Engine, Kind};
use super::feed::Feed;
use super::load::{self, Load};
use super::plan::Plan;
use super::reading::{self, Reading};
use super::sender::Sender;
use super::small::{self, Small};
use crate::generated::{Generated, Millis, now};
use anyhow::{Context, Result};
use statusbridge_tests::Rig;
use statusbridge_tests::bench::say;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon all clusters have a new revision. Every page that is rendered later has it whole.
const SOON: Millis = 15_000;

/// What an engine needs. Memory and sizes in bytes.
pub(super) struct Needs {
    /// Series in memory while all packages are at rest.
    pub(super) series: f64,
    /// Samples a second that it accepted.
    pub(super) rate: f64,
    /// The same in those that were due.
    pub(super) share: f64,
    /// A small part of the same fleet.
    pub(super) small: Small,
    /// Each of its processes, while all packages are at rest.
    pub(super) rest: Vec<Load>,
    /// The Prometheus that sends, meanwhile.
    pub(super) sender: Load,
    /// Bytes sent for a sample.
    pub(super) sent: f64,
    /// Samples that were lost on the way, until the end.
    pub(super) lost: f64,
    /// What the aggregator reads of it; none where there is nothing for it to read.
    pub(super) reading: Option<Reading>,
    /// The most resident memory until then.
    pub(super) read: u64,
    /// Series in memory after a new revision of all packages.
    pub(super) rolled_out: f64,
    /// Resident memory then.
    pub(super) rolled_out_resident: u64,
}

impl Needs {
    /// Resident memory in bytes that each further series takes, as the small fleet and this one differ.
    pub(super) fn each_series(&self) -> f64 {
        let more = load::resident(&self.rest) as f64 - self.small.resident as f64;
        more.max(0.0) / (self.series - self.small.series).max(1.0)
    }

    /// Resident memory in bytes with so many series.
    pub(super) fn memory(&self, series: f64) -> f64 {
        self.small.resident as f64 + (series - self.small.series).max(0.0) * self.each_series()
    }
}

/// Measures one.
pub(super) async fn measure(plan: &Plan, kind: Kind, feed: Feed) -> Result<Needs> {
    let what = || format!("{} with what {} says", kind.name(), feed.name());
    // A directory for each engine, so that the disk of one is free for the next.
    let new = || Rig::new(&format!("bench-engines-{}", kind.name()));
    let rig = new()?;
    let small = small::measure(&rig, plan, kind, feed).await;
    let small = small.inspect_err(|_| rig.mark_failed()).with_context(what)?;
    drop(rig);
    let rig = new()?;
    let whole = measure_in(&rig, plan, kind, feed, small).await;
    whole.inspect_err(|_| rig.mark_failed()).with_context(what)
}

async fn measure_in(rig: &Rig, plan: &Plan, kind: Kind, feed: Feed, small: Small) -> Result<Needs> {
    let interval = plan.interval.as_millis() as Millis;
    let fleet = Arc::new(Generated::new(plan.clusters, plan.packages, interval, interval, 0));
    let exporters = feed.serve(fleet.clone()).await?;
    let engine = Engine::start(rig, kind).await?;
    let sender = Sender::start(rig, &engine, exporters.job(), plan.interval).await?;
    let expected = feed.series(&fleet);
    engine.holds(expected).await?;
    // What comes with the first scrapes is over.
    tokio::time::sleep(plan.interval * 2).await;

    let mut processes = engine.processes();
    processes.push(("Prometheus", sender.process()));
    let (before, sent_before, began) = (engine.counts().await?, sender.sent().await?, Instant::now());
    let mut rest = load::watch(&processes, plan.rest).await?;
    let (after, sent, took) = (engine.counts().await?, sender.sent().await?, began.elapsed());
    let sender_load = rest.pop().context("the sender was not watched")?;
    let rate = (after.samples - before.samples) / took.as_secs_f64();
    say(&format!("{rate:.0} samples a second into {} series: {rest:.3?}, {sender_load:.3?}", after.series));

    let reading = match feed {
        Feed::StatusBridge => {
            Some(reading::measure(rig, &engine, &fleet, load::cores(&rest), plan.polls).await?)
        }
        Feed::StateMetrics => None,
    };
    let read = engine.highest_resident()?;

    roll_out(&fleet);
    tokio::time::sleep(Duration::from_millis(SOON.unsigned_abs()) + plan.interval * 2).await;
    let rolled_out = load::watch(&engine.processes(), plan.interval).await?;
    let rolled_out_series = engine.counts().await?.series;
    let lost = sender.sent().await?.lost;
    say(&format!("{rolled_out_series} series after a new revision"));
    Ok(Needs {
        series: after.series,
        rate,
        share: rate * plan.interval.as_secs_f64() / expected as f64,
        small,
        rest,
        sender: sender_load,
        sent: (sent.bytes - sent_before.bytes) / (sent.samples - sent_before.samples).max(1.0),
        lost,
        reading,
        read,
        rolled_out: rolled_out_series,
        rolled_out_resident: load::resident(&rolled_out),
    })
}

/// All clusters have a new revision of every package at the same moment.
fn roll_out(fleet: &Generated) {
    let at = now() + SOON;
    for cluster in 0..fleet.len() {
        (0..fleet.packages.len()).for_each(|package| fleet.deliver(cluster, package, 1, at));
    }
}

//! What the aggregator's own reading costs an engine.

use super::engine::Engine;
use crate::generated::Generated;
use crate::hub::{Account, Hub, Running, poll_interval};
use anyhow::{Result, ensure};
use statusbridge_tests::Rig;
use statusbridge_tests::bench::say;
use std::time::{Duration, Instant};

/// Longest time for a first synchronisation.
const PATIENCE: Duration = Duration::from_secs(900);
/// From the end of a poll until nothing of it is left to do.
const AFTER_A_POLL: Duration = Duration::from_secs(7);

/// The first synchronisation, and one poll without changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// From the aggregator's start until every cluster is verified.
    pub(super) first: Read,
    /// On average.
    pub(super) quiet: Read,
}

/// What some reading took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    /// Time.
    pub(super) took: Duration,
    /// Samples in the answers.
    pub(super) samples: f64,
    /// Bytes of the answers, before compression.
    pub(super) bytes: f64,
    /// The engine's processor time, beyond what it takes to receive samples meanwhile.
    pub(super) engine: Duration,
}

/// What an aggregator says at some moment.
struct Moment {
    account: Account,
    /// Time that all polls so far took.
    polling: f64,
    samples: f64,
    /// Processor time of the engine so far.
    engine: Duration,
    at: Instant,
}

/// Runs a real aggregator on a real hub over the engine, which keeps `receiving` processors busy without it.
pub(super) async fn measure(
    rig: &Rig,
    engine: &Engine,
    fleet: &Generated,
    receiving: f64,
    polls: u64,
) -> Result<Reading> {
    let hub = Hub::start_with(rig, &engine.url(), fleet, &engine.arguments()).await?;
    let before = engine.processor()?;
    let running = hub.launch(rig).await?;
    let all = fleet.exporters() as u64;
    running.wait("the first synchronisation", PATIENCE, |account| account.verified == all).await?;
    let took = running.started.elapsed();
    let now = moment(&running, engine).await?;
    let first = Read {
        took,
        samples: now.samples,
        bytes: now.account.bytes as f64,
        engine: beyond(now.engine.saturating_sub(before), receiving, running.started.elapsed()),
    };
    say(&format!("first synchronisation: {first:.1?}"));

    running.polls(2).await?;
    tokio::time::sleep(AFTER_A_POLL).await;
    let before = moment(&running, engine).await?;
    tokio::time::sleep(poll_interval()? * polls as u32).await;
    let after = moment(&running, engine).await?;
    let done = after.account.polls - before.account.polls;
    ensure!(done > 0 && after.account.verified == all, "not all is verified: {:?}", after.account);
    let each = |whole: f64| whole / done as f64;
    let used = after.engine.saturating_sub(before.engine);
    let quiet = Read {
        took: Duration::from_secs_f64(each(after.polling - before.polling)),
        samples: each(after.samples - before.samples),
        bytes: each((after.account.bytes - before.account.bytes) as f64),
        engine: beyond(used, receiving, after.at - before.at).div_f64(done as f64),
    };
    say(&format!("a quiet poll: {quiet:.1?}"));
    running.aggregator.process().terminate(Duration::from_secs(30)).await?;
    Ok(Reading { first, quiet })
}

async fn moment(running: &Running, engine: &Engine) -> Result<Moment> {
    let of = async |name: &str| running.aggregator.metric(&format!("statusbridge_aggregator_{name}")).await;
    Ok(Moment {
        account: running.polls(0).await?,
        polling: of("poll_duration_seconds_sum").await?,
        samples: of("poll_samples_total").await?,
        engine: engine.processor()?,
        at: Instant::now(),
    })
}

fn beyond(used: Duration, receiving: f64, meanwhile: Duration) -> Duration {
    used.saturating_sub(meanwhile.mul_f64(receiving))
}

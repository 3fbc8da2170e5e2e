//! What processes use over a stretch of time.

use anyhow::{Context, Result};
use statusbridge_tests::{Process, usage};
use std::time::{Duration, Instant};

/// Time between two looks at resident memory.
const PAUSE: Duration = Duration::from_secs(2);

/// What one process used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// What it is for.
    pub(super) role: &'static str,
    /// The most resident memory in bytes.
    pub(super) resident: u64,
    /// How many processors it kept busy, on average.
    pub(super) cores: f64,
}

/// Watches processes for so long.
pub(super) async fn watch(processes: &[(&'static str, &Process)], span: Duration) -> Result<Vec<Load>> {
    let pid = |(role, process): &(&'static str, &Process)| {
        process.ensure_running()?;
        process.pid().with_context(|| format!("the {role} does not run"))
    };
    let mut loads = Vec::new();
    for it in processes {
        loads.push((Load { role: it.0, resident: 0, cores: 0.0 }, usage::processor(pid(it)?)?));
    }
    let began = Instant::now();
    while began.elapsed() < span {
        tokio::time::sleep(PAUSE.min(span.saturating_sub(began.elapsed()))).await;
        for (it, (load, _)) in processes.iter().zip(&mut loads) {
            load.resident = load.resident.max(usage::resident(pid(it)?)?);
        }
    }
    let took = began.elapsed().as_secs_f64();
    for (it, (load, before)) in processes.iter().zip(&mut loads) {
        load.cores = usage::processor(pid(it)?)?.saturating_sub(*before).as_secs_f64() / took;
    }
    Ok(loads.into_iter().map(|(load, _)| load).collect())
}

/// Bytes that all of them had resident at most.
pub(super) fn resident(loads: &[Load]) -> u64 {
    loads.iter().map(|load| load.resident).sum()
}

/// Processors that all of them kept busy.
pub(super) fn cores(loads: &[Load]) -> f64 {
    loads.iter().map(|load| load.cores).sum()
}

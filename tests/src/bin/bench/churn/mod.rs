//! Memory while everything comes and goes under names that were never there before, and nothing grows in number: an
//! exporter on a real API server, and an aggregator to which clusters push.
//!
//! ```text
//!   each second   Workload::step   packages, namespaces, revisions, reasons, resources   -> exporter
//!                 Clusters::step   clusters, packages, revisions, reasons, objects       -> aggregator
//!   each half minute               resident memory of both                               -> Report
//! ```

mod clusters;
mod report;
mod workload;

use anyhow::{Context, Result, ensure};
use clusters::Clusters;
use report::{Reading, Report};
use statusbridge_tests::bench::say;
use statusbridge_tests::{Etcd, Process, Rig, usage};
use std::cell::Cell;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use workload::Workload;

/// Time between two steps.
const STEP: Duration = Duration::from_secs(1);
/// Time between two readings of the memory; less where the whole takes a few minutes.
const READING: Duration = Duration::from_secs(30);
/// Readings there are at least.
const READINGS: u32 = 40;

/// Lets names come and go for so many minutes, and gives the table and whether memory stayed flat.
pub(crate) async fn measure(rig: &Rig, minutes: u32) -> Result<(String, bool)> {
    ensure!(minutes > 0, "MINUTES has to be at least 1");
    let machine = usage::machine();
    let span = Duration::from_secs(60) * minutes;
    say(&format!("churn for {minutes} minutes: starting"));
    let etcd = Etcd::start(rig).await?;
    let (mut workload, mut clusters) =
        tokio::try_join!(Workload::start(rig, &etcd), Clusters::start(rig, &etcd))?;
    let pids = [pid(workload.exporter())?, pid(clusters.aggregator())?];
    let started = Instant::now();
    let gone = Cell::new((workload.gone(), clusters.gone()));

    let steps = async {
        let mut next = started;
        while started.elapsed() < span {
            tokio::try_join!(workload.step(), clusters.step())?;
            gone.set((workload.gone(), clusters.gone()));
            next += STEP;
            sleep_until(next).await;
        }
        Ok(())
    };
    let readings = async {
        let mut readings = Vec::new();
        let pause = READING.min(span / READINGS);
        for n in 1..=u32::try_from(span.as_millis() / pause.as_millis())? {
            sleep_until(started + pause * n).await;
            let reading = Reading {
                at: (pause * n).as_secs_f64() / span.as_secs_f64(),
                resident: [usage::resident(pids[0])?, usage::resident(pids[1])?],
                peak: [usage::highest_resident(pids[0])?, usage::highest_resident(pids[1])?],
                gone: gone.get(),
            };
            if n.is_multiple_of(READINGS / 10) {
                say(&format!("  {:.0} %: {reading:?}", reading.at * 100.0));
            }
            readings.push(reading);
        }
        anyhow::Ok(readings)
    };
    let ((), readings) = tokio::try_join!(steps, readings)?;
    // Memory is worth something only of programs that kept up.
    workload.is_shown().await?;
    clusters.are_judged().await?;
    let report = Report { minutes, machine, readings };
    Ok((report.render(), report.is_flat()))
}

fn pid(process: &Process) -> Result<u32> {
    process.pid().with_context(|| format!("{} does not run", process.name()))
}

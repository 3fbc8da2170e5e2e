//! The figures of a row, read from processes and servers.

use crate::rows::COUNT;
use crate::world::World;
use anyhow::{Context, Result};
use kube::api::ListParams;
use statusbridge_tests::{Etcd, Process, Prometheus, eventually, hub, usage};
use std::time::Duration;

/// Kinds of ours that the hub has objects of.
const KINDS: [&str; 5] =
    ["FleetPackage", "FleetPackageSlice", "FleetRollout", "FleetRolloutSlice", "RolloutGate"];
/// How long a busy machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// All of them, in the order of [`FIGURES`](crate::rows::FIGURES).
pub(crate) async fn figures(world: &World) -> Result<[u64; COUNT]> {
    for process in [world.workload.exporter.process(), world.hub.aggregator.process()] {
        process.ensure_running()?;
    }
    eventually(PATIENCE, "everything is measured", async || read(world).await).await
}

async fn read(world: &World) -> Result<[u64; COUNT]> {
    let (exporter, aggregator) = (&world.workload.exporter, &world.hub.aggregator);
    let [exporter_resident, exporter_descriptors, exporter_threads] = of(exporter.process())?;
    let [aggregator_resident, aggregator_descriptors, aggregator_threads] = of(aggregator.process())?;
    let page = aggregator.http().get(aggregator.url("/metrics")).send().await?.error_for_status()?;
    let [etcd_size, etcd_in_use] = database(&world.hub_etcd).await?;
    Ok([
        exporter_resident,
        exporter_descriptors,
        exporter_threads,
        series(&exporter.metrics().await?),
        aggregator_resident,
        aggregator_descriptors,
        aggregator_threads,
        series(&page.text().await?),
        one(&world.prometheus, "count({__name__=~\"statusbridge_.*\"})").await?,
        one(&world.prometheus, "sum(statusbridge_source_packages)").await?,
        objects(world).await?,
        etcd_size,
        etcd_in_use,
    ])
}

/// Processor time that exporter and aggregator have used.
pub(crate) fn processor(world: &World) -> Result<[Duration; 2]> {
    let of = |process: &Process| usage::processor(pid(process)?);
    Ok([of(world.workload.exporter.process())?, of(world.hub.aggregator.process())?])
}

fn pid(process: &Process) -> Result<u32> {
    process.pid().with_context(|| format!("{} does not run", process.name()))
}

/// Resident bytes, open file descriptors, threads.
fn of(process: &Process) -> Result<[u64; 3]> {
    let pid = pid(process)?;
    let count = |folder: &str| -> Result<u64> {
        let path = format!("/proc/{pid}/{folder}");
        Ok(std::fs::read_dir(&path).with_context(|| format!("reading {path}"))?.count() as u64)
    };
    Ok([usage::resident(pid)?, count("fd")?, count("task")?])
}

/// Samples of an exposition.
fn series(exposition: &str) -> u64 {
    exposition.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count() as u64
}

/// The value of a query that has one.
async fn one(prometheus: &Prometheus, query: &str) -> Result<u64> {
    let samples = prometheus.query(query).await?;
    Ok(samples.first().with_context(|| format!("{query} has no value"))?.value as u64)
}

/// Bytes of an etcd's database, and those of them that are in use.
async fn database(etcd: &Etcd) -> Result<[u64; 2]> {
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let page = http.get(format!("{}/metrics", etcd.url())).send().await?.error_for_status()?.text().await?;
    let sample = |name: &str| -> Result<u64> {
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name).with_context(|| format!("no {name}"))?;
        Ok(value.parse::<f64>()? as u64)
    };
    Ok([sample("etcd_mvcc_db_total_size_in_bytes")?, sample("etcd_mvcc_db_total_size_in_use_in_bytes")?])
}

/// How many objects of ours the hub has.
async fn objects(world: &World) -> Result<u64> {
    let mut count = 0;
    for kind in KINDS {
        let api = world.hub.api.dynamic(&hub::kind(kind), None).await?;
        let first = api.list(&ListParams::default().limit(1)).await?;
        let rest = first.metadata.remaining_item_count.unwrap_or_default();
        count += first.items.len() as u64 + u64::try_from(rest)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_the_lines_that_are_samples() {
        assert_eq!(series("# HELP a b\n# TYPE a gauge\na 1\n\na{b=\"#\"} 2\n# EOF\n"), 2);
    }
}

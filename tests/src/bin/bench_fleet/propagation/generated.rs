//! Changes in a generated fleet.

use super::clock::Clock;
use super::gates::{Change, Gates};
use super::polls::Polls;
use super::{INTERVAL, PACKAGES, PATIENCE, Road, Way};
use crate::backend::Backend;
use crate::generated::{Generated, Millis, NAMESPACE, revision};
use crate::hub::{SETTLE_DELAY, poll_interval};
use anyhow::{Context, Result, ensure};
use statusbridge_tests::{AggregatorOptions, Etcd, FLUX_NAMESPACE, Hub, Rig, eventually};
use std::sync::Arc;

/// Packages of each cluster.
const EACH: usize = 100;

/// The ways of so many changes, each in one of so many clusters, which are scraped at any moment of the interval.
pub(super) async fn changes(rig: &Rig, changes: usize, clusters: usize) -> Result<Vec<Way>> {
    ensure!(NAMESPACE == FLUX_NAMESPACE, "FleetPackages look in another namespace");
    ensure!(clusters >= PACKAGES, "at least {PACKAGES} clusters");
    let interval = INTERVAL.as_millis() as Millis;
    let fleet = Arc::new(Generated::new(clusters, EACH, interval, interval, 0));
    let backend = Backend::start(fleet.clone()).await?;
    let clock = Clock::new();
    let polls = Polls::start(&backend.url(), clock).await?;
    let etcd = Etcd::start(rig).await?;
    let options = AggregatorOptions {
        poll_interval: poll_interval()?,
        settle_delay: SETTLE_DELAY,
        ..AggregatorOptions::new(polls.url())
    };
    let hub = Hub::start_with(rig, &etcd, options).await?;
    let cluster = |n: usize| n * (clusters / PACKAGES);
    let name = |n| fleet.cluster_name(cluster(n)).to_owned();
    let gates = Gates::make(&hub, super::package, name, |n| revision(&super::package(n), 1), false).await?;
    let mut done = Vec::new();
    for number in 0..changes {
        let next = tokio::time::Instant::now() + Road::Generated.pause();
        let change = Change::new(number, clock.now(), false);
        fleet.deliver(
            cluster(change.package),
            change.package,
            u64::from(change.opens),
            (change.at * 1000.0) as Millis,
        );
        done.push(change);
        tokio::time::sleep_until(next).await;
    }
    let mut ways = Vec::new();
    for change in done {
        let at = (change.at * 1000.0) as Millis;
        let mut scrapes = fleet.scrapes(cluster(change.package), at - 1, at + interval);
        let scraped = scrapes.next().context("no scrape")? as f64 / 1000.0;
        let polled =
            eventually(PATIENCE, "it was polled", async || polls.first(scraped).context("not yet")).await?;
        let seen = gates.seen(change, clock).await?;
        ways.push(Way {
            exporter: 0.0,
            scrape: scraped - change.at,
            poll: polled - scraped,
            aggregator: seen - polled,
        });
    }
    match backend.refused() {
        Some(refused) => anyhow::bail!("the aggregator asked what this benchmark does not know: {refused}"),
        None => Ok(ways),
    }
}

//! Changes of real objects in a real cluster, told of by a real exporter.

use super::clock::{Clock, Seconds};
use super::gates::{Change, Gates};
use super::others::Others;
use super::polls::Polls;
use super::{INTERVAL, PACKAGES, PATIENCE, Road, Way, package};
use crate::hub::{SETTLE_DELAY, poll_interval};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use statusbridge_contract::Health;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::{
    AggregatorOptions, Etcd, Hub, Prometheus, PrometheusConfig, PushDoor, Rig, ScrapeJob, Workload,
    eventually, token_entry, workload,
};
use std::time::Duration;
use tokio::task::JoinSet;

/// The cluster in which changes are made.
const MEASURED: &str = "measured";
/// The revision of everything.
const REVISION: &str = "main@sha1:0123456789abcdef0123456789abcdef01234567";

/// What a change was written with, and when the exporter showed it.
struct Shown {
    change: Change,
    at: Seconds,
}

/// The ways of so many changes in one cluster, which are scraped by a real Prometheus, beside so many others.
pub(super) async fn scraped(rig: &Rig, changes: usize, clusters: usize) -> Result<Vec<Way>> {
    let etcd = Etcd::start(rig).await?;
    let others = Others::start(clusters - 1, REVISION).await?;
    let cluster = cluster(rig, &etcd, &[]).await?;
    let job = others.targets(cluster.target(ScrapeJob::new("statusbridge")));
    let mut config = PrometheusConfig::with_jobs([job]);
    config.scrape_interval = INTERVAL;
    let prometheus = Prometheus::start(rig, &config).await?;
    let clock = Clock::new();
    let polls = Polls::start(&prometheus.url(), clock).await?;
    let options = AggregatorOptions {
        poll_interval: poll_interval()?,
        settle_delay: SETTLE_DELAY,
        ..AggregatorOptions::new(polls.url())
    };
    let hub = Hub::start_with(rig, &etcd, options).await?;
    let gates = gates(&hub).await?;
    let mut ways = Vec::new();
    for shown in make(&cluster, changes, Road::Scraped.pause(), clock).await? {
        let scraped = eventually(PATIENCE, "Prometheus has it", async || {
            first_sample(&prometheus, shown.change).await?.context("not yet")
        })
        .await?;
        let polled =
            eventually(PATIENCE, "it was polled", async || polls.first(scraped).context("not yet")).await?;
        let seen = gates.seen(shown.change, clock).await?;
        ways.push(Way {
            exporter: shown.at.min(scraped) - shown.change.at,
            scrape: (scraped - shown.at).max(0.0),
            poll: polled - scraped,
            aggregator: seen - polled,
        });
    }
    Ok(ways)
}

/// The same where the exporter pushes, and so do the others.
pub(super) async fn pushed(rig: &Rig, changes: usize, clusters: usize) -> Result<Vec<Way>> {
    let etcd = Etcd::start(rig).await?;
    let others = Others::start(clusters - 1, REVISION).await?;
    let door = PushDoor::new(rig)?;
    let token = |cluster: &str| format!("the token of {cluster}");
    let names = others.names().chain([MEASURED]);
    let tokens: Vec<Value> = names.map(|name| token_entry(name, &token(name))).collect();
    let tokens = rig.file("tokens.yaml", json!(tokens).to_string())?;
    let options = AggregatorOptions::configured(rig, "push", &door.config(&tokens))?;
    let hub = Hub::start_with(rig, &etcd, options).await?;
    let _pushing: JoinSet<()> = others.push(&door, token)?;
    let own = rig.file("token", token(MEASURED))?;
    let arguments = door.arguments(&own, INTERVAL.as_secs());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let cluster = cluster(rig, &etcd, &arguments).await?;
    let clock = Clock::new();
    let gates = gates(&hub).await?;
    let mut ways = Vec::new();
    for Shown { change, at } in make(&cluster, changes, Road::Pushed.pause(), clock).await? {
        let seen = gates.seen(change, clock).await?;
        let shown = at.min(seen);
        ways.push(Way { exporter: shown - change.at, aggregator: seen - shown, ..Way::default() });
    }
    Ok(ways)
}

async fn cluster(rig: &Rig, etcd: &Etcd, arguments: &[&str]) -> Result<Workload> {
    let cluster = Workload::start(rig, etcd, MEASURED, arguments).await?;
    for n in 0..PACKAGES {
        cluster.deliver(&package(n), REVISION).await?;
    }
    Ok(cluster)
}

async fn gates(hub: &Hub) -> Result<Gates> {
    Gates::make(hub, package, |_| MEASURED.to_owned(), |_| REVISION.to_owned(), true).await
}

async fn make(cluster: &Workload, changes: usize, pause: Duration, clock: Clock) -> Result<Vec<Shown>> {
    let mut done = Vec::new();
    for n in 0..changes {
        let next = tokio::time::Instant::now() + pause;
        done.push(write(cluster, clock, n).await?);
        tokio::time::sleep_until(next).await;
    }
    Ok(done)
}

/// Makes a healthy package fail, or a failed one healthy, and waits until the exporter shows it.
async fn write(cluster: &Workload, clock: Clock, number: usize) -> Result<Shown> {
    // The API server has it some time before its answer arrives here: that counts as ours.
    let change = Change::new(number, clock.now(), true);
    let (status, health) = match change.opens {
        true => (workload::delivered(REVISION), Health::Current),
        false => (workload::failed(REVISION, "it does not come up"), Health::Failed),
    };
    let name = package(change.package);
    cluster.set_status(&name, status).await?;
    eventually(PATIENCE, "the exporter shows it", async || {
        loop {
            let shown = cluster.says().await?.package(SOURCE, &name).context("no package")?;
            if shown.health == health {
                return Ok(Shown { change, at: clock.now() });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// The time of the first scrape after the change that has it.
async fn first_sample(prometheus: &Prometheus, change: Change) -> Result<Option<Seconds>> {
    let at = change.at + PATIENCE.as_secs_f64();
    let query = format!(
        "statusbridge_package_healthy_revision{{cluster=\"{MEASURED}\",package=\"{}\"}}[{}s]",
        package(change.package),
        PATIENCE.as_secs()
    );
    let url = reqwest::Url::parse_with_params(
        &format!("{}/api/v1/query", prometheus.url()),
        [("query", query), ("time", format!("{at:.3}"))],
    )?;
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
    let answer: Value = serde_json::from_slice(&client.get(url).send().await?.bytes().await?)?;
    let values = answer["data"]["result"][0]["values"].as_array().context("no samples")?;
    let samples = values.iter().filter_map(|pair| Some((pair[0].as_f64()?, pair[1].as_str()?)));
    // Scrapes that came before the change may have the same value, from the time before the last one.
    let mut after = samples.filter(|(at, _)| *at >= change.at);
    Ok(after.find(|(_, value)| (*value != "0") == change.opens).map(|(at, _)| at))
}

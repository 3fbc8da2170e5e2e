//! How long a status takes from the workload cluster to a condition in the hub, and what of that is ours.
//!
//! ```text
//!   write --ours--> /metrics --scrape interval--> Prometheus --settle delay, poll interval--> poll --ours--> condition
//! ```

use crate::query;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use statusbridge_contract::Health;
use statusbridge_tests::bench::say;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::history::condition;
use statusbridge_tests::{
    AggregatorOptions, Etcd, FakeFleet, FakePackage, History, Hub, Port, Prometheus, PrometheusConfig, Rig,
    ScrapeJob, Workload, eventually, hub, usage, workload,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Packages whose status is written, one after another.
const PACKAGES: usize = 20;
/// Packages of each cluster that is only there as load.
const LOAD: usize = 20;
/// Time between two writes.
const PAUSE: Duration = Duration::from_millis(700);
/// Longest time for one write to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// The revision of everything.
const REVISION: &str = "main@sha1:0123456789abcdef0123456789abcdef01234567";

/// Seconds since 1970.
type Seconds = f64;

/// A write, and when it was seen where.
struct Write {
    package: usize,
    health: Health,
    written: Seconds,
    shown: Seconds,
}

/// What a write's way took, in seconds.
struct Way {
    /// From the write until the exporter shows it.
    exporter: Seconds,
    /// From there to the scrape that found it.
    scrape: Seconds,
    /// From that scrape until a poll asked about a time at which it counts.
    poll: Seconds,
    /// From that poll's first query until the condition was written.
    aggregator: Seconds,
}

impl Way {
    fn ours(&self) -> Seconds {
        self.exporter + self.aggregator
    }

    fn total(&self) -> Seconds {
        self.ours() + self.scrape + self.poll
    }
}

/// Measures so many writes beside so many other clusters, and gives the table.
pub(crate) async fn measure(rig: &Rig, writes: usize, others: usize) -> Result<String> {
    let machine = usage::machine();
    let etcd = Etcd::start(rig).await?;
    let cluster = Workload::start(rig, &etcd, "measured", &[]).await?;
    let fleet = FakeFleet::start().await?;
    let mut job = cluster.target(ScrapeJob::new("statusbridge"));
    for other in 0..others {
        let name = format!("other-{other:03}");
        (0..LOAD).for_each(|n| fleet.says(&name, &package(n), FakePackage::healthy_at(REVISION)));
        job = fleet.target(job, &name, &[]);
    }
    for n in 0..PACKAGES {
        cluster.deliver(&package(n), REVISION).await?;
    }
    let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
    let clock = Clock::new();
    let polls = Polls::start(&prometheus.url(), clock).await?;
    let hub = Hub::start_with(rig, &etcd, AggregatorOptions::new(polls.url())).await?;
    let mut recorded = Vec::new();
    for n in 0..PACKAGES {
        hub.report(&package(n), "30s", json!({})).await?;
        hub.reports(&package(n), "Ready", "True", "HealthyAtOwnRevision", PATIENCE).await?;
        recorded.push(History::record(&hub.api, &hub::kind("FleetPackage"), "default", &package(n)).await?);
    }
    say(&format!("{writes} writes in one cluster beside {others} others"));
    let mut done = Vec::new();
    for n in 0..writes {
        let next = tokio::time::Instant::now() + PAUSE;
        done.push(write(&cluster, clock, n).await?);
        tokio::time::sleep_until(next).await;
    }
    let mut ways = Vec::new();
    for write in &done {
        ways.push(way(write, &prometheus, &polls, &recorded[write.package], clock).await?);
    }
    Ok(table(&ways, others, &machine))
}

fn package(number: usize) -> String {
    format!("app-{number:02}")
}

/// Makes a healthy package fail, or a failed one healthy, and waits until the exporter shows it.
async fn write(cluster: &Workload, clock: Clock, n: usize) -> Result<Write> {
    let number = n % PACKAGES;
    let fails = (n / PACKAGES).is_multiple_of(2);
    let (status, health) = match fails {
        true => (workload::failed(REVISION, "it does not come up"), Health::Failed),
        false => (workload::delivered(REVISION), Health::Current),
    };
    // The API server has it some time before its answer arrives here: that counts as ours.
    let written = clock.now();
    cluster.set_status(&package(number), status).await?;
    let shown = eventually(PATIENCE, "the exporter shows it", async || {
        loop {
            let shown = cluster.says().await?.package(SOURCE, &package(number)).context("no package")?;
            if shown.health == health {
                return Ok(clock.now());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await?;
    Ok(Write { package: number, health, written, shown })
}

/// Where a write was when.
async fn way(
    write: &Write,
    prometheus: &Prometheus,
    polls: &Polls,
    history: &History,
    clock: Clock,
) -> Result<Way> {
    let scraped = eventually(PATIENCE, "Prometheus has it", async || {
        first_sample(prometheus, write).await?.context("not yet")
    })
    .await?;
    let polled =
        eventually(PATIENCE, "it was polled", async || polls.first(scraped).context("not yet")).await?;
    let (status, reason) = match write.health {
        Health::Failed => ("False", "Failed"),
        _ => ("True", "HealthyAtOwnRevision"),
    };
    let seen = eventually(PATIENCE, "the hub says so", async || {
        let versions = history.versions().await?;
        let after = versions.iter().map(|version| (clock.of(version.seen), version));
        let mut after = after.filter(|(seen, _)| *seen >= write.written);
        let found = after.find(|(_, version)| condition(&version.object, "Ready").0 == status);
        let (seen, version) = found.with_context(|| format!("not {status} yet"))?;
        let got = condition(&version.object, "Ready").1;
        ensure!(status == "False" || got == reason, "Ready is {status} for {got}");
        Ok(seen)
    })
    .await?;
    Ok(Way {
        exporter: write.shown.min(scraped) - write.written,
        scrape: (scraped - write.shown).max(0.0),
        poll: polled - scraped,
        aggregator: seen - polled,
    })
}

/// The time of the first scrape after the write that has it.
async fn first_sample(prometheus: &Prometheus, write: &Write) -> Result<Option<Seconds>> {
    let at = write.written + PATIENCE.as_secs_f64();
    let query = format!(
        "statusbridge_package_healthy_revision{{cluster=\"measured\",package=\"{}\"}}[{}s]",
        package(write.package),
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
    // Scrapes that came before the write may have the same value, from the time before the last one.
    let mut after = samples.filter(|(at, _)| *at >= write.written);
    let is_healthy = write.health == Health::Current;
    Ok(after.find(|(_, value)| (*value != "0") == is_healthy).map(|(at, _)| at))
}

/// Both clocks of this machine, so that moments can be compared with times.
#[derive(Clone, Copy)]
struct Clock {
    instant: Instant,
    time: Seconds,
}

impl Clock {
    fn new() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { instant: Instant::now(), time }
    }

    fn of(self, moment: Instant) -> Seconds {
        let before = self.instant.saturating_duration_since(moment).as_secs_f64();
        self.time + moment.saturating_duration_since(self.instant).as_secs_f64() - before
    }

    fn now(self) -> Seconds {
        self.of(Instant::now())
    }
}

/// Stands before Prometheus and notes when which time was asked about.
struct Polls {
    port: Port,
    /// When a digest was asked for, and about which time.
    asked: Arc<Mutex<Vec<(Seconds, Seconds)>>>,
    task: JoinHandle<()>,
}

impl Polls {
    async fn start(backend: &str, clock: Clock) -> Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address()).await.context("listening")?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let client = reqwest::Client::builder().no_proxy().gzip(false).timeout(PATIENCE).build()?;
        let way = Arc::new((client, backend.to_owned(), asked.clone()));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        let way = way.clone();
                        connections.spawn(async move {
                            let answer = service_fn(move |request| pass_on(request, way.clone(), clock));
                            let _ = hyper::server::conn::http1::Builder::new()
                                .serve_connection(TokioIo::new(stream), answer)
                                .await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { port, asked, task })
    }

    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// When a poll first asked about a time at which a sample counts.
    fn first(&self, scraped: Seconds) -> Option<Seconds> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().find(|(_, about)| *about >= scraped).map(|(at, _)| *at)
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Passing = (reqwest::Client, String, Arc<Mutex<Vec<(Seconds, Seconds)>>>);

async fn pass_on(
    request: hyper::Request<hyper::body::Incoming>,
    way: Arc<Passing>,
    clock: Clock,
) -> Result<hyper::Response<Full<Bytes>>> {
    let arrived = clock.now();
    let (client, backend, asked) = way.as_ref();
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let form = reqwest::Url::parse(&format!("http://form/?{}", String::from_utf8_lossy(&body)))?;
    let field = |name: &str| form.query_pairs().find(|(n, _)| n == name).map(|(_, value)| value.into_owned());
    if field("query").is_some_and(|query| query::is_of_heads(&query)) {
        let until: Seconds = field("time").and_then(|time| time.parse().ok()).unwrap_or_default();
        asked.lock().unwrap_or_else(PoisonError::into_inner).push((arrived, until - query::AHEAD));
    }
    let sent = client
        .post(format!("{backend}{path}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
        .send()
        .await?;
    let status = sent.status();
    let mut response = hyper::Response::new(Full::new(sent.bytes().await?));
    *response.status_mut() = status;
    Ok(response)
}

fn table(ways: &[Way], others: usize, machine: &str) -> String {
    let mut table = format!(
        "{} status writes in one workload cluster with a real exporter, beside {others} clusters of {LOAD} packages each; \
         scraped, polled and settled by the second. {machine}.\n\n\
         | | median | 99th percentile | aim | met |\n|---|---|---|---|---|\n",
        ways.len()
    );
    let quantile = |of: &dyn Fn(&Way) -> Seconds, share: f64| -> Seconds {
        let mut all: Vec<Seconds> = ways.iter().map(of).collect();
        all.sort_by(Seconds::total_cmp);
        let rank = (share * all.len() as f64).ceil() as usize;
        all.get(rank.max(1) - 1).copied().unwrap_or_default()
    };
    let mut row = |what: &str, of: &dyn Fn(&Way) -> Seconds, aim: bool| {
        let (median, most) = (quantile(of, 0.5), quantile(of, 0.99));
        let (aim, met) = match aim {
            true => ("under 1 s", if most < 1.0 { "yes" } else { "**no**" }),
            false => ("", ""),
        };
        table += &format!("| {what} | {:.0} ms | {:.0} ms | {aim} | {met} |\n", median * 1e3, most * 1e3);
    };
    row("from the write to the condition in the hub", &Way::total, false);
    row("of it: from /metrics to the scrape (interval 1 s)", &|way| way.scrape, false);
    row("of it: from the scrape to the poll (settle delay 1 s, interval 1 s)", &|way| way.poll, false);
    row("of it ours", &Way::ours, true);
    row("of that: from the write to /metrics", &|way| way.exporter, false);
    row(
        "of that: from the poll to the condition, the backend's answers included",
        &|way| way.aggregator,
        false,
    );
    table
}

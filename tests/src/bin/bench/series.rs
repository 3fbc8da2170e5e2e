//! What a metrics backend has to hold of the packages: the exporter and kube-state-metrics beside each other, each
//! scraped by a Prometheus of its own, through what happens to packages.

use crate::cluster::{Bench, Cluster};
use crate::fleet;
use crate::subject::{Program, Subject};
use anyhow::{Context, Result, ensure};
use statusbridge_tests::bench::say;
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::{Prometheus, PrometheusConfig, Rig, ScrapeJob, eventually, usage};
use std::time::Duration;

/// Time between scrapes.
const INTERVAL: Duration = Duration::from_secs(10);
/// Longest time until what happened is scraped.
const PATIENCE: Duration = Duration::from_secs(180);
/// One package in so many is in trouble.
const TROUBLED: usize = 10;
/// The series of packages, by either program.
const OF_PACKAGES: &str = "{__name__=~\"statusbridge_package_.+|gotk_resource_info\"}";

/// A program and who scrapes it.
struct Scraped {
    subject: Subject,
    prometheus: Prometheus,
}

/// What a Prometheus holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Series of packages that the last scrape had.
    active: f64,
    /// Series that its head holds, those that have ended included.
    head: f64,
    /// Resident memory in bytes.
    resident: u64,
}

/// A row: what happened, and what either Prometheus holds then.
type Row = (String, [Held; 2]);

/// Measures with so many packages, and gives the table.
pub(crate) async fn measure(rig: &Rig, packages: usize) -> Result<String> {
    let machine = usage::machine();
    say(&format!("{packages} packages: writing the objects"));
    let cluster = Cluster::start(rig, Bench::Packages, packages).await?;
    let both = [start(rig, &cluster, Program::Exporter).await?, start(rig, &cluster, Program::Peer).await?];
    let mut rows = Vec::new();
    let mut row = async |what: String| -> Result<()> {
        let held = [both[0].holds().await?, both[1].holds().await?];
        say(&format!("{what}: {held:?}"));
        rows.push((what, held));
        Ok(())
    };
    let sizes = [both[0].size().await?, both[1].size().await?];
    row("all at rest".to_owned()).await?;

    let some = || 0..packages / TROUBLED;
    cluster.put(some(), |n| fleet::failed_status(n, 1)).await?;
    row("a tenth with failing health checks".to_owned()).await?;
    cluster.put(some(), |n| fleet::healthy_status(n, 1)).await?;
    row("at rest again".to_owned()).await?;
    cluster.put(some(), |n| fleet::unchecked_status(n, 1)).await?;
    row("a tenth without health checks".to_owned()).await?;
    cluster.put(some(), |n| fleet::healthy_status(n, 1)).await?;
    for revision in [2, 3] {
        cluster.announce(packages, revision).await?;
        cluster.put(0..packages, |n| fleet::progressing_status(n, revision)).await?;
        row(format!("all on the way to revision {revision}")).await?;
        cluster.put(0..packages, |n| fleet::healthy_status(n, revision)).await?;
        row(format!("all at revision {revision}")).await?;
    }
    Ok(table(packages, &machine, sizes, &rows))
}

async fn start(rig: &Rig, cluster: &Cluster, program: Program) -> Result<Scraped> {
    let subject = program.start(rig, cluster).await?;
    subject.first_complete_scrape(cluster.packages).await?;
    let job = ScrapeJob::new("subject").target(subject.address(), &[("cluster", "production-eu-west-1")]);
    let config = PrometheusConfig { scrape_interval: INTERVAL, ..PrometheusConfig::with_jobs([job]) };
    let prometheus = Prometheus::start(rig, &config).await?;
    Ok(Scraped { subject, prometheus })
}

impl Scraped {
    /// Bytes of an exposition.
    async fn size(&self) -> Result<usize> {
        let mut size = 0;
        self.subject.scrape(false, |piece| size += piece.len()).await?;
        Ok(size)
    }

    /// What Prometheus holds once it has scraped what the program has come to say.
    async fn holds(&self) -> Result<Held> {
        usage::until_idle(self.subject.pid()?).await?;
        let scrape = async || {
            let up = self.prometheus.query("timestamp(up == 1)").await?;
            Ok::<f64, anyhow::Error>(up.first().context("no scrape")?.value)
        };
        let before = eventually(PATIENCE, "a first scrape", scrape).await?;
        // One that began before it was idle may be under way.
        eventually(PATIENCE, "two more scrapes", async || {
            ensure!(scrape().await? > before + 1.5 * INTERVAL.as_secs_f64(), "not yet");
            Ok(())
        })
        .await?;
        let count = self.prometheus.query(&format!("count({OF_PACKAGES})")).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let text = http.get(format!("{}/metrics", self.prometheus.url())).send().await?.text().await?;
        let head = Exposition::parse(&text)?.value("prometheus_tsdb_head_series", &[]);
        let pid = self.prometheus.process().pid().context("Prometheus does not run")?;
        Ok(Held {
            active: count.first().context("nothing of packages")?.value,
            head: head.context("Prometheus does not say how many series its head has")?,
            resident: usage::resident(pid)?,
        })
    }
}

fn table(packages: usize, machine: &str, sizes: [usize; 2], rows: &[Row]) -> String {
    let each = |value: f64| value / packages as f64;
    let mut table = format!(
        "{packages} Flux Kustomizations, each program scraped by a Prometheus of its own every {} s. {machine}. \
         Exposition at rest: {:.1} MB ({:.0} bytes a package), kube-state-metrics {:.1} MB ({:.0}).\n\n\
         | | series a package | kube-state-metrics | head series | kube-state-metrics | Prometheus' memory | \
         kube-state-metrics |\n|---|---|---|---|---|---|---|\n",
        INTERVAL.as_secs(),
        sizes[0] as f64 / 1e6,
        each(sizes[0] as f64),
        sizes[1] as f64 / 1e6,
        each(sizes[1] as f64),
    );
    for (what, [ours, theirs]) in rows {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        table += &format!(
            "| {what} | {:.2} | {:.2} | {} | {} | {:.0} MB | {:.0} MB |\n",
            each(ours.active),
            each(theirs.active),
            ours.head,
            theirs.head,
            mega(ours.resident),
            mega(theirs.resident),
        );
    }
    table
}

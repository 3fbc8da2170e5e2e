//! Evidence through real backends: what an exporter attested arrives, and every fault on the way is noticed.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_aggregator::clock;
use statusbridge_aggregator::feed::promql::poll::{PollConfig, PollReport, Poller};
use statusbridge_aggregator::feed::promql::{
    Exporters, FeedConfig, FeedError, Flavour, PromFeed, QueryApi, Trust,
};
use statusbridge_api::PackageRef;
use statusbridge_contract::{Fingerprint, MAX_48_BITS, Metric, label};
use statusbridge_core::fleet::{Fleet, FleetSettings, Observation, Standing};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_tests::exposition::{Attestation, Page};
use statusbridge_tests::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Number of the process of every exporter.
const PROCESS: u64 = 4711;
/// Scrapes come every second.
const STALE_AFTER: f64 = 8.0;

/// Revision of each package.
type Packages = BTreeMap<String, u64>;

/// What an exporter with these packages says, all of them healthy.
fn render(uid: u64, packages: &Packages, rendered: f64) -> String {
    let mut page = Page::default();
    for (name, revision) in packages {
        let labels = [
            (label::PACKAGE, name.as_str()),
            (label::PACKAGE_NAMESPACE, "ns"),
            (label::PACKAGE_SOURCE, "flux"),
        ];
        page.say(Metric::PackageHealthyRevision, &labels, *revision);
        page.say(Metric::PackageTransitionTimestamp, &labels, 1_700_000_000);
    }
    let source = [(label::PACKAGE_SOURCE, "flux")];
    page.say(Metric::SourceUp, &source, 1);
    page.say(Metric::SourcePackages, &source, packages.len() as u64);
    let uid = Fingerprint::from_value(uid).unwrap();
    page.attested(Attestation::new(uid, PROCESS, rendered as u64))
}

/// The same with a timestamp on every sample, in milliseconds.
fn stamped(page: &str, at: u64) -> String {
    page.lines().map(|line| format!("{line} {at}\n")).collect()
}

/// An exporter reduced to its exposition: each scrape is rendered on request.
struct Exporter {
    address: SocketAddr,
    packages: Arc<Mutex<Packages>>,
    task: JoinHandle<()>,
}

impl Exporter {
    async fn start(uid: u64, packages: Packages) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let packages = Arc::new(Mutex::new(packages));
        let shown = packages.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let page = render(uid, &shown.lock().unwrap(), clock::now());
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
                let answer = format!("{head}Content-Length: {}\r\n\r\n{page}", page.len());
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Ok(Self { address, packages, task })
    }

    fn set(&self, name: &str, revision: u64) {
        self.packages.lock().unwrap().insert(name.to_owned(), revision);
    }

    fn remove(&self, name: &str) {
        self.packages.lock().unwrap().remove(name);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One of an exporter's packages.
fn package(name: &str) -> PackageRef {
    PackageRef { source: "flux".into(), namespace: Some("ns".into()), name: name.into() }
}

/// Packages whose revisions use all of the 48 bits.
fn packages(count: u64) -> Packages {
    let spread = |i: u64| MAX_48_BITS - i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 40);
    (0..count).map(|i| (format!("p{i}"), spread(i))).collect()
}

fn job(exporter: &Exporter, cluster: &str) -> ScrapeJob {
    ScrapeJob::new("statusbridge").target(exporter.address, &[("cluster", cluster)])
}

/// An aggregator's half that reads.
struct Reader {
    poller: Poller,
    fleet: Fleet,
    settle: f64,
}

/// How an aggregator polls that believes every stream.
fn poll_config() -> PollConfig {
    PollConfig::new(Exporters { cluster_label: "cluster".to_owned(), trust: Trust::All })
}

impl Reader {
    fn new(url: &str) -> Result<Self> {
        Self::with(FeedConfig::new(url))
    }

    /// One that sends headers.
    fn sending(url: &str, headers: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        Self::with(FeedConfig { headers: headers.into_iter().collect(), ..FeedConfig::new(url) })
    }

    /// One that asks as this flavour.
    fn asking(url: &str, flavour: Flavour) -> Result<Self> {
        Self::with(FeedConfig { flavour, ..FeedConfig::new(url) })
    }

    fn with(config: FeedConfig) -> Result<Self> {
        let poller = Poller::new(poll_config(), feed(config)?);
        Ok(Self { poller, fleet: Fleet::new(FleetSettings::default()), settle: 0.5 })
    }

    async fn poll(&mut self) -> PollReport {
        self.poller.poll(&mut self.fleet, clock::now() - self.settle).await
    }

    fn observe(&self, cluster: &str, name: &str) -> Observation {
        self.fleet.observe(cluster, &package(name), clock::now() - self.settle, STALE_AFTER)
    }

    /// Polls until the package is seen like this.
    async fn until(
        &mut self,
        cluster: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Observation) -> bool,
    ) -> Result<Observation> {
        eventually(SOON, what, async || {
            let report = self.poll().await;
            let seen = self.observe(cluster, name);
            ensure!(is(&seen), "{seen:?} after {report:?}");
            Ok(seen)
        })
        .await
    }

    async fn until_healthy(&mut self, cluster: &str, name: &str, revision: u64) -> Result<Observation> {
        let what = format!("{name} is healthy at {revision:x} in {cluster}");
        self.until(cluster, name, &what, |o| o.standing == Standing::Fresh && healthy(o) == Some(revision))
            .await
    }
}

fn feed(config: FeedConfig) -> Result<PromFeed> {
    Ok(PromFeed::new(FeedConfig { timeout: Duration::from_secs(2), ..config })?)
}

/// The case of the error that a poll ended with.
fn failure(report: &PollReport) -> Option<&'static str> {
    report.failure.as_ref().map(FeedError::kind)
}

fn healthy(seen: &Observation) -> Option<u64> {
    seen.row.as_ref().map(|row| row.healthy.value())
}

#[tokio::test]
async fn what_was_attested_is_verified_through_prometheus() {
    run("feed-prometheus", async |rig| {
        let (one, two) = (Exporter::start(1, packages(40)).await?, Exporter::start(2, packages(3)).await?);
        let jobs = [job(&one, "c1"), ScrapeJob { name: "other".into(), ..job(&two, "c2") }];
        let config = PrometheusConfig::with_jobs(jobs).external(&[("source", "x"), ("stage", "prod")]);
        let prometheus = Prometheus::start(rig, &config).await?;
        let mut reader = Reader::new(&prometheus.url())?;
        for (name, revision) in packages(40) {
            reader.until_healthy("c1", &name, revision).await?;
        }
        reader.until_healthy("c2", "p2", packages(3)["p2"]).await?;
        eventually(SOON, "a poll of which nothing moved reads nothing", async || {
            let report = reader.poll().await;
            ensure!(report.ok && report.verified == 2 && report.read == 0, "{report:?}");
            // Of each stream: digest, rendering time and process number, of the last half minute.
            ensure!((6..6 * 40).contains(&report.samples), "{report:?}");
            Ok(())
        })
        .await?;

        two.set("p2", 0x0123_4567_89ab);
        let seen = reader.until_healthy("c2", "p2", 0x0123_4567_89ab).await?;
        assert_eq!(seen.row.unwrap().previously_applied.value(), packages(3)["p2"]);
        two.remove("p1");
        reader.until("c2", "p1", "p1 is gone", |o| o.standing == Standing::Missing).await?;
        let id = package("p0");
        assert_eq!(reader.fleet.reporting(&id), ["c1", "c2"]);
        assert!(
            reader.fleet.revisions(&id).contains_key(&Fingerprint::from_value(packages(1)["p0"]).unwrap())
        );
        eventually(SOON, "enough scrapes tell how far apart they are", async || {
            reader.poll().await;
            let interval = reader.fleet.scrape_interval("c1").context("too few")?;
            ensure!((0.5..5.0).contains(&interval), "{interval}");
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn what_was_attested_is_verified_through_remote_write() {
    run("feed-remote-write", async |rig| {
        let exporter = Exporter::start(1, packages(40)).await?;
        let victoria = VictoriaMetrics::start(rig).await?;
        let mimir = Mimir::start(rig).await?;
        let tenant = mimir.tenant("fleet")?;
        let mut config =
            PrometheusConfig::with_jobs([ScrapeJob::new("statusbridge").target(exporter.address, &[])])
                .external(&[("cluster", "c1"), ("source", "x")]);
        config.remote_write = vec![victoria.remote_write_url()];
        let _prometheus = Prometheus::start(rig, &tenant.written_by(config)).await?;
        let readers = [Reader::new(&victoria.url())?, Reader::sending(&mimir.url(), [tenant.header()])?];
        let mut readers = readers.map(|reader| Reader { settle: 2.0, ..reader });
        for reader in &mut readers {
            for (name, revision) in packages(40) {
                reader.until_healthy("c1", &name, revision).await?;
            }
        }
        exporter.set("p7", 0x0123_4567_89ab);
        exporter.remove("p8");
        for reader in &mut readers {
            reader.until_healthy("c1", "p7", 0x0123_4567_89ab).await?;
            reader.until("c1", "p8", "p8 is gone", |o| o.standing == Standing::Missing).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_a_tenant_of_mimir_must_not_see_or_may_not_write_is_never_taken_for_all_there_is() {
    run("feed-mimir", async |rig| {
        let exporter = Exporter::start(1, packages(10)).await?;
        // 25 series are ours at first, and five are Prometheus' own.
        let mimir = Mimir::start_with(rig, json!({"few": {"max_global_series_per_user": 45}})).await?;
        let (fleet, few) = (mimir.tenant("fleet")?, mimir.tenant("few")?);
        let config = few.written_by(fleet.written_by(PrometheusConfig::with_jobs([job(&exporter, "c1")])));
        let _prometheus = Prometheus::start(rig, &config).await?;
        let reader = |tenant: &str| -> Result<Reader> {
            let reader = Reader::sending(&mimir.url(), [mimir.tenant(tenant)?.header()])?;
            Ok(Reader { settle: 2.0, ..reader })
        };
        // Who asks for two tenants gets the streams of both, which a label tells apart.
        let (mut fleet, mut few, mut both) = (reader("fleet")?, reader("few")?, reader("few|fleet")?);
        for reader in [&mut fleet, &mut few, &mut both] {
            reader.until_healthy("c1", "p1", packages(2)["p1"]).await?;
        }
        eventually(SOON, "one stream of each tenant is verified", async || {
            let report = both.poll().await;
            ensure!(report.verified == 2 && report.unverified == 0, "{report:?}");
            Ok(())
        })
        .await?;
        let mut other = reader("other")?;
        let report = other.poll().await;
        ensure!(report.ok && (report.verified, report.unverified, report.read) == (0, 0, 0), "{report:?}");
        assert_eq!(other.observe("c1", "p1").standing, Standing::Missing);
        let report = Reader::new(&mimir.url())?.poll().await;
        let error = report.error.context("somebody without a name is answered")?;
        assert_eq!(error, "backend answered HTTP 401: no org id");

        // What is more than a tenant may have is left out, and the rest is taken.
        packages(30).into_iter().for_each(|(name, revision)| exporter.set(&name, revision));
        fleet.until_healthy("c1", "p29", packages(30)["p29"]).await?;
        let seen = few.until("c1", "p1", "a part is missing", |o| o.standing == Standing::Unverified).await?;
        ensure!(seen.message.contains("missing"), "{seen:?}");
        // Whoever sees both is held up by the one that does not add up.
        let seen =
            both.until("c1", "p1", "a part is missing", |o| o.standing == Standing::Unverified).await?;
        ensure!(seen.message.contains("missing"), "{seen:?}");

        // While it starts it answers everything with an error, and never with nothing.
        mimir.process().kill();
        assert_eq!(failure(&fleet.poll().await), Some("connect"));
        mimir.process().start()?;
        eventually(SOON, "it is back", async || {
            let report = fleet.poll().await;
            if report.ok {
                assert_eq!(report.verified + report.unverified, 1, "{report:?}");
            }
            ensure!(report.ok, "{report:?}");
            Ok(())
        })
        .await?;
        fleet.until_healthy("c1", "p29", packages(30)["p29"]).await.map(drop)
    })
    .await;
}

/// What is asked for in all the ways of polls and checks.
const QUESTIONS: [&str; 7] = [
    "{__name__=~\"statusbridge_digest|statusbridge_rendered_timestamp_seconds\"}[60000ms]",
    "{__name__=~\"statusbridge_(package_healthy_revision|source_up)\",cluster=~\"c1|c2\"}[5000ms]",
    "group by (__name__,cluster) ({__name__=~\"statusbridge_.+\",__name__!~\"statusbridge_digest\",cluster=~\"c1|c2\"})",
    "label_replace(max by (cluster) (max_over_time(statusbridge_source_up[60s])), \"part\", \"a\", \"\", \"\") \
     or label_replace(count by (cluster) (statusbridge_source_up offset 9s), \"part\", \"b\", \"\", \"\")",
    "sum by (cluster) (statusbridge_source_packages)",
    "absent(no_such_metric)",
    PAST,
];
/// About so long ago that VictoriaMetrics keeps the answer.
const PAST: &str = "count_over_time(errors[4h])";
/// Series and samples of each.
const ERRORS: (u64, u64) = (20, 60);

/// Values of an answer, by series.
#[derive(Debug, Default, PartialEq)]
struct Values(BTreeMap<String, f64>);

impl Sink for Values {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        self.0.extend(samples.last().map(|sample| (format!("{labels:?}"), sample.value)));
    }
}

async fn ask(url: &str, flavour: Flavour, question: &str) -> Result<Result<Values, FeedError>> {
    let config = FeedConfig { flavour, ..FeedConfig::new(url) };
    Ok(feed(config)?.query(question, clock::now() - 2.0, Values::default()).await)
}

#[tokio::test]
async fn what_a_cluster_of_victoria_metrics_tells_without_a_node_is_nothing() {
    run("feed-victoria-cluster", async |rig| {
        let cluster = VictoriaCluster::start(rig, 1).await?;
        let (now, (series, samples)) = (clock::now() as u64 * 1000, ERRORS);
        let errors = (0..series * samples)
            .map(|n| format!("errors{{cluster=\"c{}\"}} 1 {}\n", n % series, now - n / series * 15_000));
        cluster.import(errors.collect()).await?;
        eventually(SOON, "both nodes have their part on disk", async || {
            let stored = cluster.stored().await?;
            ensure!(stored.iter().sum::<u64>() == series * samples, "{stored:?}");
            ensure!(stored.iter().all(|part| *part > 0), "{stored:?}");
            Ok(())
        })
        .await?;
        let (one, two) = (Exporter::start(1, packages(40)).await?, Exporter::start(2, packages(3)).await?);
        let jobs = [job(&one, "c1"), ScrapeJob { name: "other".into(), ..job(&two, "c2") }];
        // Beside it another one that keeps every sample twice.
        let twice = VictoriaCluster::start(rig, 2).await?;
        let mut config = PrometheusConfig::with_jobs(jobs);
        config.remote_write = vec![cluster.remote_write_url(), twice.remote_write_url()];
        let _prometheus = Prometheus::start(rig, &config).await?;

        let select = cluster.select(rig, &[]).await?;
        let denying = cluster.select(rig, &["-search.denyPartialResponse"]).await?;
        let (hiding, telling) = (select.above(rig).await?, denying.above(rig).await?);
        let url = select.url();
        ensure!(
            feed(FeedConfig::new(&url))?.probe().await == Some(Flavour::VictoriaMetrics),
            "it is not known"
        );
        let flavours =
            [(Flavour::Prometheus, "partial"), (Flavour::VictoriaMetrics, "api"), (Flavour::Any, "api")];
        let mut readers = Vec::new();
        for (flavour, _) in flavours {
            readers.push(Reader::asking(&url, flavour)?);
        }
        let mut misled = Reader::asking(&hiding.url(), Flavour::VictoriaMetrics)?;
        let kept_twice = twice.select(rig, &["-replicationFactor=2", "-dedup.minScrapeInterval=1ms"]).await?;
        let mut kept_twice = Reader::asking(&kept_twice.url(), Flavour::VictoriaMetrics)?;
        let all = readers.iter_mut().chain([&mut misled, &mut kept_twice]);
        for reader in all {
            reader.settle = 2.0;
            reader.until_healthy("c1", "p1", packages(2)["p1"]).await?;
            reader.until_healthy("c2", "p2", packages(3)["p2"]).await?;
        }
        let before = ask(&url, Flavour::VictoriaMetrics, PAST).await??;
        ensure!(before.0.values().all(|count| *count == samples as f64), "{before:?}");
        ensure!(before.0.len() as u64 == series, "{before:?}");

        cluster.node(1).kill();
        twice.node(1).kill();
        for question in QUESTIONS {
            for (flavour, kind) in flavours {
                let answer = ask(&url, flavour, question).await?;
                // Raw samples are never given in part.
                let kind = if question.ends_with("ms]") { "api" } else { kind };
                let error = answer.as_ref().err().with_context(|| format!("{flavour:?}: {answer:?}"))?;
                ensure!(error.kind() == kind, "{flavour:?}: {question}: {error}");
            }
            ask(&telling.url(), Flavour::VictoriaMetrics, question).await?.err().context(question)?;
        }
        // What lies between keeps it to itself. Nobody can tell but who knows what to expect.
        let hidden = ask(&hiding.url(), Flavour::VictoriaMetrics, PAST).await??;
        ensure!(hidden.0.len() < before.0.len() && !hidden.0.is_empty(), "{hidden:?}");
        let id = package("p1");
        for (flavour, _) in flavours {
            let mut newcomer = Reader::asking(&url, flavour)?;
            let report = newcomer.poll().await;
            ensure!(failure(&report) == Some("api"), "{flavour:?}: {report:?}");
            ensure!(newcomer.fleet.reporting(&id).is_empty(), "{flavour:?} knows the half");
        }
        one.set("p1", 0x0123_4567_89ab);
        eventually(SOON, "all of it is stale, and what is hidden is found elsewhere", async || {
            let mut ages = Vec::new();
            for reader in &mut readers {
                let report = reader.poll().await;
                ensure!(failure(&report) == Some("api"), "{report:?}");
                for cluster in ["c1", "c2"] {
                    let seen = reader.observe(cluster, "p1");
                    ages.push(seen.standing == Standing::Stale && seen.reason == "BackendUnavailable");
                    let known = seen.row.as_ref().map(|row| row.healthy.value());
                    if known != Some(packages(2)["p1"]) || seen.standing == Standing::Missing {
                        return Ok(Err(format!("{seen:?}")));
                    }
                }
            }
            for reader in [&mut misled, &mut kept_twice] {
                let report = reader.poll().await;
                let gone: Vec<String> = packages(40)
                    .into_keys()
                    .filter(|name| reader.observe("c1", name).standing == Standing::Missing)
                    .collect();
                if !gone.is_empty() {
                    return Ok(Err(format!("{gone:?} are taken for gone: {report:?}")));
                }
                let seen = reader.observe("c1", "p1");
                ensure!(healthy(&seen) == Some(0x0123_4567_89ab), "{seen:?} after {report:?}");
            }
            ensure!(ages.iter().all(|stale| *stale), "{ages:?}");
            Ok(Ok(()))
        })
        .await?
        .map_err(anyhow::Error::msg)?;

        cluster.node(1).start()?;
        twice.node(1).start()?;
        for reader in &mut readers {
            reader.until_healthy("c1", "p1", 0x0123_4567_89ab).await?;
            reader.until_healthy("c2", "p2", packages(3)["p2"]).await?;
        }
        // It keeps parts of partial answers and gives them as whole ones to who lets it.
        for (flavour, _) in flavours {
            let after = ask(&url, flavour, PAST).await??;
            ensure!(after == before, "{flavour:?}: {after:?}, not {before:?}");
        }
        cluster.node(1).freeze()?;
        for reader in &mut readers {
            let report = reader.poll().await;
            ensure!(matches!(failure(&report), Some("timeout" | "partial" | "api")), "{report:?}");
        }
        cluster.node(1).thaw()?;
        // Of what was written meanwhile this node has nothing, and the other one is the only one that has.
        twice.node(0).kill();
        kept_twice.poll().await;
        one.set("p1", 77);
        kept_twice.until_healthy("c1", "p1", 77).await?;
        for reader in &mut readers {
            reader.until_healthy("c1", "p1", 77).await?;
        }
        Ok(())
    })
    .await;
}

/// A slow clock stamps the samples of a cluster, so that they are a minute old when they come; those of another cluster that
/// reports under the same name come at once.
#[tokio::test]
async fn a_cluster_whose_samples_are_always_late_is_heard_beside_another_of_its_name() {
    run("feed-late", async |rig| {
        let victoria = VictoriaMetrics::start(rig).await?;
        let mut reader = Reader::new(&victoria.url())?;
        let begin = clock::now().floor() - 1800.0;
        let mut standings = Vec::new();
        for round in 0..12 {
            let t = begin + 15.0 * f64::from(round);
            for (uid, instance, at) in [(1, "late", t - 60.0), (2, "other", t - 1.0)] {
                let page = stamped(&render(uid, &packages(2), at), (at * 1000.0) as u64);
                victoria.import_as(page, &[("cluster", "c1"), ("instance", instance)]).await?;
            }
            eventually(SOON, "both are found", async || {
                let found = victoria.query("sum(count_over_time(statusbridge_process_number[2h]))").await?;
                ensure!(found.first().map(|it| it.value) == Some(f64::from(2 * (round + 1))), "{found:?}");
                Ok(())
            })
            .await?;
            let report = reader.poller.poll(&mut reader.fleet, t).await;
            ensure!(report.ok, "{report:?}");
            standings.push(reader.fleet.observe("c1", &package("p1"), t, 180.0).standing);
        }
        assert_eq!(standings, [Standing::Conflict; 12]);
        Ok(())
    })
    .await;
}

/// Series of a package that was deleted, never marked stale, stay in instant answers for minutes.
#[tokio::test]
async fn what_is_never_marked_stale_is_not_read() {
    run("feed-raw", async |rig| {
        let pages = FileServer::start().await?;
        let mut job =
            ScrapeJob::new("statusbridge").target(pages.address(), &[("cluster", "c1"), ("instance", "i")]);
        job.more.insert("track_timestamps_staleness".into(), json!(false));
        let mimir = Mimir::start(rig).await?;
        let tenant = mimir.tenant("fleet")?;
        let config = tenant.written_by(PrometheusConfig::with_jobs([job]));
        let prometheus = Prometheus::start(rig, &config).await?;
        let victoria = VictoriaMetrics::start(rig).await?;
        let mut behind = Reader::sending(&mimir.url(), [tenant.header()])?;
        behind.settle = 2.0;
        let mut readers = [Reader::new(&prometheus.url())?, Reader::new(&victoria.url())?, behind];
        let say = async |packages: &Packages| -> Result<()> {
            let now = clock::now();
            // Samples with timestamps of their own are never marked stale.
            let page = stamped(&render(1, packages, now), (now * 1000.0) as u64);
            pages.put("/metrics", page.clone());
            let labelled: String =
                page.lines().map(|line| with_label(line, "cluster=\"c1\"") + "\n").collect();
            victoria.import(&labelled).await
        };
        let all = packages(5);
        let mut fewer = all.clone();
        fewer.remove("p3");
        for reader in &mut readers {
            eventually(SOON, "all are there", async || {
                say(&all).await?;
                let report = reader.poll().await;
                let seen = reader.observe("c1", "p3");
                ensure!(seen.standing == Standing::Fresh, "{seen:?} after {report:?}");
                Ok(())
            })
            .await?;
            let reread = eventually(SOON, "p3 is gone", async || {
                say(&fewer).await?;
                let report = reader.poll().await;
                let seen = reader.observe("c1", "p3");
                ensure!(seen.standing == Standing::Missing, "{seen:?} after {report:?}");
                Ok(report.reread)
            })
            .await?;
            assert_eq!(reread, 0);
            assert_eq!(healthy(&reader.observe("c1", "p2")), Some(all["p2"]));
        }
        Ok(())
    })
    .await;
}

fn with_label(line: &str, label: &str) -> String {
    match line.find(['{', ' ']) {
        Some(at) if line[at..].starts_with("{}") => format!("{}{{{label}}}{}", &line[..at], &line[at + 2..]),
        Some(at) if line[at..].starts_with('{') => format!("{}{{{label},{}", &line[..at], &line[at + 1..]),
        Some(at) => format!("{}{{{label}}}{}", &line[..at], &line[at..]),
        None => line.to_owned(),
    }
}

#[tokio::test]
async fn relabelling_between_exporter_and_backend_is_caught_and_named() {
    run("feed-relabel", async |rig| {
        let exporter = Exporter::start(1, packages(4)).await?;
        let healthy_revision = Metric::PackageHealthyRevision.name();
        let only = |more: Value| {
            let mut rule = json!({"source_labels": ["__name__"], "regex": healthy_revision});
            rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rule
        };
        let faults = [
            (only(json!({"action": "drop"})), "statusbridge_package_healthy_revision is missing altogether"),
            (
                only(json!({"action": "replace", "target_label": "team", "replacement": "x"})),
                "an additional label team=\"x\"",
            ),
            (
                only(json!({"action": "replace", "target_label": "package_namespace", "replacement": "y"})),
                "label package_namespace of 4 packages was rewritten, \"y\" instead of \"ns\"",
            ),
            (
                json!({"action": "labeldrop", "regex": "package_namespace"}),
                "label package_namespace of 4 packages is gone, it was \"ns\"",
            ),
            (
                json!({"action": "drop", "source_labels": ["package", "__name__"], "regex": "p2;.*_healthy_revision"}),
                "statusbridge_package_healthy_revision{package=\"p2\"",
            ),
        ];
        let good = PrometheusConfig::with_jobs([job(&exporter, "c1")]);
        let prometheus = Prometheus::start(rig, &good).await?;
        let mut reader = Reader::new(&prometheus.url())?;
        for (fault, named) in faults {
            reader.until_healthy("c1", "p1", packages(2)["p1"]).await?;
            let mut job = job(&exporter, "c1");
            job.metric_relabel = vec![fault.clone()];
            prometheus.reload(&PrometheusConfig::with_jobs([job])).await?;
            // Something must move for the fault to be seen: until then what was verified is confirmed.
            let seen = eventually(SOON, "the fault is seen", async || {
                exporter.set("p0", (clock::now() * 1000.0) as u64);
                let report = reader.poll().await;
                let seen = reader.observe("c1", "p1");
                ensure!(seen.standing == Standing::Unverified, "{seen:?} after {report:?}");
                Ok(seen)
            })
            .await?;
            ensure!(seen.message.contains(named), "{fault}: {}", seen.message);
            assert_eq!(healthy(&seen), Some(packages(2)["p1"]), "the last verified row stays");
            exporter.set("p0", 77);
            prometheus.reload(&good).await?;
            reader.until_healthy("c1", "p0", 77).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_backend_that_fails_is_told_from_packages_that_are_gone() {
    run("feed-faults", async |rig| {
        let exporter = Exporter::start(1, packages(200)).await?;
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job(&exporter, "c1")])).await?;
        let proxy = FaultProxy::start(rig, prometheus.address()).await?;
        let mut reader = Reader::new(&proxy.url())?;
        let revision = packages(2)["p1"];
        let faults = [
            (Fault::Freeze, &["timeout"][..]),
            (Fault::Refuse, &["connect"]),
            (Fault::Cut, &["connect"]),
            (Fault::ServerError, &["http"]),
            (Fault::HalfBody, &["truncated"]),
        ];
        for (fault, kinds) in faults {
            reader.until_healthy("c1", "p1", revision).await?;
            proxy.set(fault);
            let report = reader.poll().await;
            ensure!(failure(&report).is_some_and(|k| kinds.contains(&k)), "{fault:?}: {report:?}");
            let young = reader.observe("c1", "p1");
            ensure!(young.standing == Standing::Fresh && healthy(&young) == Some(revision), "{young:?}");
            proxy.set(Fault::Pass);
        }
        reader.until_healthy("c1", "p1", revision).await?;
        prometheus.process().freeze()?;
        let seen = reader.until("c1", "p1", "it ages", |o| o.standing == Standing::Stale).await?;
        assert_eq!(seen.reason, "BackendUnavailable");
        assert_eq!(healthy(&seen), Some(revision));
        prometheus.process().thaw()?;
        reader.until_healthy("c1", "p1", revision).await?;
        prometheus.stop();
        assert_eq!(failure(&reader.poll().await), Some("connect"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn replicas_do_not_flap_and_clusters_of_one_name_conflict() {
    run("feed-streams", async |rig| {
        let exporter = Exporter::start(1, packages(5)).await?;
        let replica = |name: &str| {
            ScrapeJob::new(name)
                .target(exporter.address, &[("cluster", "c1"), ("replica", name), ("job", "x")])
        };
        let replicas = [replica("a"), replica("b")];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs(replicas.clone())).await?;
        let mut reader = Reader::new(&prometheus.url())?;
        let revision = packages(2)["p1"];
        eventually(SOON, "both replicas are verified", async || {
            let report = reader.poll().await;
            ensure!(report.verified == 2 && report.unverified == 0, "{report:?}");
            Ok(())
        })
        .await?;
        reader.until_healthy("c1", "p1", revision).await?;
        holds_for(Duration::from_secs(6), "fresh at one revision", async || {
            reader.poll().await;
            let seen = reader.observe("c1", "p1");
            ensure!(seen.standing == Standing::Fresh && healthy(&seen) == Some(revision), "{seen:?}");
            Ok(())
        })
        .await?;

        let other = Exporter::start(2, packages(5)).await?;
        let jobs = [&replicas[..], &[ScrapeJob { name: "y".into(), ..job(&other, "c1") }]].concat();
        prometheus.reload(&PrometheusConfig::with_jobs(jobs)).await?;
        let seen = reader.until("c1", "p1", "a conflict", |o| o.standing == Standing::Conflict).await?;
        assert_eq!(seen.reason, "ClusterNameConflict");
        ensure!(
            seen.message.contains("uid 000000000001") && seen.message.contains("uid 000000000002"),
            "{seen:?}"
        );
        prometheus.reload(&PrometheusConfig::with_jobs(replicas)).await?;
        reader.until_healthy("c1", "p1", revision).await?;

        // Under the very same labels, whosever turn it is.
        let same = |exporter: &Exporter, name: &str| {
            ScrapeJob::new(name)
                .target(exporter.address, &[("cluster", "c2"), ("instance", "i"), ("job", "z")])
        };
        prometheus.reload(&PrometheusConfig::with_jobs([same(&exporter, "z")])).await?;
        reader.until_healthy("c2", "p1", revision).await?;
        prometheus.reload(&PrometheusConfig::with_jobs([same(&exporter, "z"), same(&other, "zz")])).await?;
        let seen = reader.until("c2", "p1", "a conflict", |o| o.standing == Standing::Conflict).await?;
        assert_eq!(seen.reason, "ClusterNameConflict");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_target_label_of_one_of_our_names_is_undone() {
    run("feed-exported", async |rig| {
        let exporter = Exporter::start(1, packages(3)).await?;
        let labels =
            [("cluster", "c1"), ("package", "monitoring"), ("package_source", "helm"), ("contract", "sla")];
        let job = ScrapeJob::new("statusbridge").target(exporter.address, &labels);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        Reader::new(&prometheus.url())?.until_healthy("c1", "p1", packages(2)["p1"]).await?;
        Ok(())
    })
    .await;
}

//! One exporter beside the management cluster of an Argo CD, whose Applications run in a thousand other clusters: what it
//! costs the exporter, and the aggregator behind a real Prometheus; what one cluster's change costs.

use crate::cluster::{APPLICATIONS, Bench, Cluster};
use crate::figures::{median, spent};
use crate::fleet::hex;
use crate::report::{mega, millis};
use crate::subject::Program;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::bench::{say, setting};
use statusbridge_tests::{
    Aggregator, AggregatorOptions, Etcd, Hub, Prometheus, PrometheusConfig, Rig, ScrapeJob, eventually, usage,
};
use std::time::{Duration, Instant};

/// Packages of each cluster.
pub(crate) const EACH: usize = 50;
/// The source that reads them.
pub(crate) const SOURCE: &str = "argocd-application";
/// Where the Applications are.
pub(crate) const NAMESPACE: &str = "argocd";

/// Starts, each after a list of the same objects.
const STARTS: usize = 3;
/// Scrapes of each sort.
const SCRAPES: u32 = 20;
/// Between two scrapes of Prometheus, and between two polls.
const INTERVAL: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Polls that are measured while nothing changes.
const QUIET: u32 = 4;
/// Clusters that change at once.
const SOME: usize = 100;
/// Longest time until something has come about.
const PATIENCE: Duration = Duration::from_secs(180);

/// An Application that is Synced and Healthy.
pub(crate) fn application(n: usize) -> Value {
    at_revision(n, 1)
}

fn at_revision(n: usize, revision: usize) -> Value {
    let (cluster, app) = (cluster(n / EACH), app(n));
    let source = json!({
        "repoURL": format!("https://git.example.com/platform/{app}.git"), "path": "overlays/production", "targetRevision": "main",
        "kustomize": {"namePrefix": "", "commonLabels": {"platform.example.com/cluster": cluster}},
    });
    let destination = json!({"name": cluster, "namespace": app});
    let revision = revision_of(n, revision);
    let resource = |kind: &str, group: &str| {
        json!({"group": group, "version": "v1", "kind": kind, "namespace": app, "name": app, "status": "Synced",
            "health": {"status": "Healthy"}})
    };
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": format!("{cluster}-{app}"), "namespace": NAMESPACE,
            "labels": {"statusbridge.dev/package": app, "platform.example.com/cluster": cluster},
            "finalizers": ["resources-finalizer.argocd.argoproj.io"],
        },
        "spec": {
            "project": "default", "source": source, "destination": destination,
            "syncPolicy": {"automated": {"prune": true, "selfHeal": true}, "syncOptions": ["CreateNamespace=true"]},
        },
        "status": {
            "sync": {"status": "Synced", "revision": revision, "comparedTo": {"source": source, "destination": destination}},
            "health": {"status": "Healthy", "lastTransitionTime": "2026-01-02T03:04:05Z"},
            "reconciledAt": "2026-01-02T03:05:05Z",
            "operationState": {
                "phase": "Succeeded", "message": "successfully synced (all tasks run)",
                "startedAt": "2026-01-02T03:03:04Z", "finishedAt": "2026-01-02T03:03:05Z",
                "operation": {"sync": {"revision": revision}}, "syncResult": {"revision": revision, "source": source},
            },
            "history": [{"id": 0, "deployedAt": "2026-01-02T03:03:05Z", "deployStartedAt": "2026-01-02T03:03:04Z",
                "revision": revision, "source": source}],
            "resources": [resource("Deployment", "apps"), resource("Service", ""), resource("ConfigMap", ""),
                resource("ServiceAccount", ""), resource("Ingress", "networking.k8s.io")],
        },
    })
}

/// The status of one that is Synced to a revision and Healthy.
pub(crate) fn status(n: usize, revision: usize) -> Value {
    let Value::Object(mut object) = at_revision(n, revision) else { return Value::Null };
    object.remove("status").unwrap_or_default()
}

fn cluster(n: usize) -> String {
    format!("cluster-{n:04}")
}

fn app(n: usize) -> String {
    format!("app-{:02}", n % EACH)
}

/// All clusters have the same revision of an app.
fn revision_of(n: usize, revision: usize) -> String {
    hex(40, &[n % EACH, revision])
}

/// Measures with so many packages, and gives the table.
pub(crate) async fn measure(rig: &Rig, packages: usize) -> Result<String> {
    ensure!(
        packages.is_multiple_of(EACH) && packages > SOME * EACH,
        "CENTRAL has to be a multiple of {EACH}"
    );
    let machine = usage::machine();
    say(&format!("{packages} Applications of {} clusters: writing them", packages / EACH));
    let cluster = Cluster::start(rig, Bench::Central, packages).await?;
    let mut table = Table::default();
    let bytes = cluster.list().await?.bytes / packages;

    let (mut lists, mut starts, mut subject) = (Vec::new(), Vec::new(), None);
    for _ in 0..STARTS {
        drop(subject.take());
        cluster.list().await?;
        lists.push(cluster.list().await?.took);
        let started = Program::Exporter.start(rig, &cluster).await?;
        starts.push(started.first_complete_scrape(packages).await?);
        subject = Some(started);
    }
    let exporter = subject.context("no start to measure")?;
    let pid = exporter.pid()?;
    table.row(
        "exporter: CPU from start to first complete scrape",
        millis(usage::processor(pid)?.as_secs_f64()),
    );
    let (list, start) = (median(lists), median(starts));
    table.row("start to first complete scrape", millis(start.as_secs_f64()));
    table.row("the same in plain paged LISTs", format!("{:.2}", start.as_secs_f64() / list.as_secs_f64()));
    usage::until_idle(pid).await?;
    for (gzip, how) in [(false, ""), (true, ", compressed")] {
        let mut size = 0;
        let scrapes = async {
            for _ in 0..SCRAPES {
                size = 0;
                exporter.scrape(gzip, |piece| size += piece.len()).await?;
            }
            Ok(())
        };
        let (_, processor) = spent(pid, scrapes).await?;
        table.row(&format!("CPU for a scrape{how}"), millis((processor / SCRAPES).as_secs_f64()));
        table.row(&format!("size of a scrape{how}"), mega(size as f64));
    }
    let text = exporter.text().await?;
    let series = text.lines().filter(|line| line.starts_with("statusbridge_")).count();
    table.row(
        "series per package, those for each cluster included",
        format!("{:.2}", series as f64 / packages as f64),
    );

    let target =
        ScrapeJob::new("statusbridge-exporter").target(exporter.address(), &[("cluster", "management-1")]);
    let config = PrometheusConfig { scrape_interval: INTERVAL, ..PrometheusConfig::with_jobs([target]) };
    let prometheus = Prometheus::start(rig, &config).await?;
    // The age of what was scraped once is known to nobody.
    eventually(PATIENCE, "two scrapes", async || {
        let scrapes =
            prometheus.query("count_over_time(statusbridge_digest{package_cluster=\"\"}[5m])").await?;
        ensure!(scrapes.first().is_some_and(|it| it.value >= 2.0), "{scrapes:?}");
        Ok(())
    })
    .await?;
    of_aggregator(rig, &cluster, &prometheus, &mut table).await?;
    table.row("exporter: resident memory at most", mega(usage::highest_resident(pid)? as f64));
    if setting("KEEP").is_some_and(|keep| keep != "0") {
        say(&format!("the exporter is process {pid}, until Ctrl-C"));
        std::future::pending::<()>().await;
    }
    Ok(format!(
        "{packages} Applications of one Argo CD ({bytes} bytes each as JSON), {EACH} in each of {} clusters, scraped by a real \
         Prometheus and polled every {POLL_INTERVAL:?}. {machine}. A plain paged LIST of them takes {}.\n\n| | |\n|---|---|\n{}",
        packages / EACH,
        millis(list.as_secs_f64()),
        table.0,
    ))
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, what: &str, value: String) {
        say(&format!("{what}: {value}"));
        self.0.push_str(&format!("| {what} | {value} |\n"));
    }
}

/// What an aggregator has used and read so far.
#[derive(Clone, Copy)]
struct Account {
    polls: f64,
    samples: f64,
    bytes: f64,
    processor: Duration,
}

impl Account {
    async fn of(aggregator: &Aggregator) -> Result<Self> {
        let metric = async |name: &str| aggregator.metric(&format!("statusbridge_aggregator_{name}")).await;
        Ok(Self {
            polls: metric("polls_total{result=\"success\"}").await?,
            samples: metric("poll_samples_total").await?,
            bytes: metric("poll_bytes_total").await?,
            processor: usage::processor(aggregator.process().pid().context("it does not run")?)?,
        })
    }

    /// Waits for so many polls more.
    async fn polls(self, aggregator: &Aggregator, more: u32) -> Result<Self> {
        eventually(PATIENCE, "polls end", async || {
            let now = Self::of(aggregator).await?;
            ensure!(now.polls >= self.polls + f64::from(more), "{} polls", now.polls);
            Ok(now)
        })
        .await
    }
}

async fn of_aggregator(
    rig: &Rig,
    cluster: &Cluster,
    prometheus: &Prometheus,
    table: &mut Table,
) -> Result<()> {
    let options = AggregatorOptions {
        poll_interval: POLL_INTERVAL,
        settle_delay: "5s",
        more: ["--backend-timeout", "60s"].map(str::to_owned).to_vec(),
        ..AggregatorOptions::new(prometheus.url())
    };
    let options = options.believing(rig.dir(), SOURCE, &[("management-1", "cluster-*")])?;
    let etcd = Etcd::start(rig).await?;
    let hub = Hub::start_with(rig, &etcd, options).await?;
    let aggregator = &hub.aggregator;
    let first = eventually(PATIENCE, "everything is read", async || {
        let now = Account::of(aggregator).await?;
        let verified = aggregator.metric("statusbridge_aggregator_streams{state=\"verified\"}").await?;
        ensure!(verified >= 1.0, "nothing is verified");
        Ok(now)
    })
    .await?;
    table.row("aggregator: CPU for the first synchronisation", millis(first.processor.as_secs_f64()));
    table.row("samples and bytes read for it", format!("{}, {}", first.samples, mega(first.bytes)));
    for n in 0..EACH {
        let package = json!({"source": SOURCE, "namespace": NAMESPACE, "name": app(n)});
        let spec = json!({"package": package, "clusters": {"reporting": {"minClusters": 1}}});
        hub.report(&app(n), "3m", spec).await?;
    }
    let gate = async |name: &str, revision: usize, clusters: Value| {
        hub.gate(name, &app(0), &revision_of(0, revision), json!({"clusters": clusters})).await.map(drop)
    };
    let all = cluster.packages / EACH;
    gate("all", 1, json!({"reporting": {"minClusters": all}})).await?;
    hub.opens("all", PATIENCE).await?;

    let before = Account::of(aggregator).await?.polls(aggregator, 2).await?;
    let after = before.polls(aggregator, QUIET).await?;
    let each = |of: fn(&Account) -> f64| (of(&after) - of(&before)) / f64::from(QUIET);
    table.row("CPU for a quiet poll", millis(each(|it| it.processor.as_secs_f64())));
    let quiet = each(|it| it.samples);
    table.row("samples and bytes read for it", format!("{quiet:.0}, {}", mega(each(|it| it.bytes))));

    for (revision, count) in [(2, 1), (3, SOME)] {
        let names: Vec<String> = (0..count).map(self::cluster).collect();
        let name = format!("changed-{count}");
        gate(&name, revision, json!({"names": names})).await?;
        hub.closes(&name, "RevisionNeverSeen", PATIENCE).await?;
        let before = Account::of(aggregator).await?.polls(aggregator, 1).await?;
        for n in 0..count {
            cluster.write_status(APPLICATIONS, n * EACH, &status(n * EACH, revision)).await?;
        }
        let written = Instant::now();
        hub.opens(&name, PATIENCE).await?;
        let took = written.elapsed();
        let after = Account::of(aggregator).await?;
        let polls = after.polls - before.polls;
        let what = match count {
            1 => "one package of one cluster changes".to_owned(),
            _ => format!("one package of {count} clusters changes"),
        };
        table.row(&format!("{what}: from there to the gate's verdict"), millis(took.as_secs_f64()));
        table.row(
            "samples read more than by quiet polls",
            format!("{:.0}", after.samples - before.samples - polls * quiet),
        );
    }
    let pid = aggregator.process().pid().context("it does not run")?;
    table.row("aggregator: resident memory at most", mega(usage::highest_resident(pid)? as f64));
    Ok(())
}

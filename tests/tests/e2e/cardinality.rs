//! Low cardinality for ever: a thousand rollouts leave no series behind but those that a package may have.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use statusbridge_contract::{Fingerprint, Metric, PACKAGE_METRICS, label};
use statusbridge_tests::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PACKAGES: u32 = 20;
const ROUNDS: u32 = 50;
/// Series that belong to no package: what an exporter says of its sources and of itself, reasons, counts by states.
const OTHERS: f64 = 100.0;
/// One package in so many fails in each round, another one in the next.
const FAILING: u32 = 4;

/// How many series of ours there are.
async fn series(prometheus: &Prometheus) -> Result<f64> {
    let ours = prometheus.query("count({__name__=~\"statusbridge_.+\"})").await?;
    Ok(ours.first().context("nothing of ours")?.value)
}

/// Waits until Prometheus holds these wanted revisions.
async fn arrive(prometheus: &Prometheus, wanted: &BTreeMap<String, f64>) -> Result<()> {
    eventually(SOON, "the round is scraped", async || {
        // The healthy revision is the applied one, and that is the desired one, where nothing else is said.
        let [desired, applied, healthy] =
            [Metric::PackageDesiredRevision, Metric::PackageAppliedRevision, Metric::PackageHealthyRevision]
                .map(Metric::name);
        let wanted_now = format!("{desired} or on (package) {applied} or on (package) {healthy} > 0");
        let samples = prometheus.query(&wanted_now).await?;
        let held: BTreeMap<String, f64> =
            samples.into_iter().map(|s| (s.label(label::PACKAGE).to_owned(), s.value)).collect();
        ensure!(held == *wanted, "{held:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_thousand_revisions_error_texts_and_flaps_leave_ten_series_of_a_package_at_most() {
    run("e2e-cardinality", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        // Every state and every way between two of them once: their number is bounded, and counted by state.
        for package in 0..PACKAGES {
            let name = format!("p{package:02}");
            cluster.deliver(&name, &revision(1)).await?;
            cluster.fail(&name, &revision(2), "health check failed").await?;
            cluster.deliver(&name, &revision(3)).await?;
        }
        let mut config = PrometheusConfig::with_jobs([cluster.target(job())]);
        config.scrape_interval = Duration::from_millis(500);
        let prometheus = Prometheus::start(rig, &config).await?;

        let mut first = None;
        for round in 0..ROUNDS {
            let changes = stream::iter(0..PACKAGES).map(async |package| -> Result<(String, f64)> {
                let name = format!("p{package:02}");
                let number = 10 + round * PACKAGES + package;
                let revision = revision(number);
                // Who fails changes, how many fail does not.
                if (package + round) % FAILING == 0 {
                    let message = format!(
                        "health check failed after {number} ms: deployment/app-{number:x} is no more"
                    );
                    cluster.fail(&name, &revision, &message).await?;
                } else {
                    cluster.deliver(&name, &revision).await?;
                }
                Ok((name, Fingerprint::of(&revision).value() as f64))
            });
            let wanted: BTreeMap<String, f64> = changes.buffer_unordered(8).try_collect().await?;
            arrive(&prometheus, &wanted).await?;
            // By then every package has failed once, and has all the series that it will ever have.
            if round + 1 < FAILING {
                continue;
            }
            let now = settled(&prometheus, &cluster).await?;
            let first = *first.get_or_insert(now);
            ensure!(now == first, "after round {round}: {now} series, {first} after the first rounds");
        }
        let says = cluster.says().await?;
        ensure!(says.packages().len() == PACKAGES as usize, "{:?}", says.packages());
        let ever = "count by (package) (last_over_time({__name__=~\"statusbridge_package_.+\"}[1h]))";
        let ever = prometheus.query(ever).await?;
        ensure!(ever.len() == PACKAGES as usize, "{ever:?}");
        ensure!(ever.iter().all(|package| package.value <= PACKAGE_METRICS.len() as f64), "{ever:?}");
        // Of all packages together there are reasons, and counts by states.
        let all = prometheus.query("count(last_over_time({__name__=~\"statusbridge_.+\"}[1h]))").await?;
        let all = all.first().context("nothing of ours")?.value;
        let of_packages: f64 = ever.iter().map(|package| package.value).sum();
        ensure!(all - of_packages < OTHERS, "{all} series, {of_packages} of packages");
        // And at rest each has two.
        for package in 0..PACKAGES {
            cluster.deliver(&format!("p{package:02}"), &revision(1)).await?;
        }
        eventually(SOON, "two series a package", async || {
            let now =
                prometheus.query("count by (package) ({__name__=~\"statusbridge_package_.+\"})").await?;
            ensure!(now.len() == PACKAGES as usize && now.iter().all(|it| it.value == 2.0), "{now:?}");
            Ok(())
        })
        .await?;
        Ok(())
    })
    .await;
}

/// The series after a round, once Prometheus holds what the exporter says and no more comes.
async fn settled(prometheus: &Prometheus, cluster: &Workload) -> Result<f64> {
    eventually(SOON, "Prometheus holds what the exporter says", async || {
        let says = cluster.says().await?;
        let digest = says.lines.iter().find(|l| l.name == Metric::Digest.name()).context("no digest")?.value;
        let held = prometheus.query(Metric::Digest.name()).await?;
        ensure!(held.first().is_some_and(|h| h.value == digest), "not yet");
        let before = series(prometheus).await?;
        let scrapes = async || -> Result<f64> {
            Ok(prometheus.query("timestamp(up)").await?.first().context("no scrape")?.value)
        };
        let now = scrapes().await?;
        eventually(SOON, "one more scrape", async || {
            ensure!(scrapes().await? > now, "none");
            Ok(())
        })
        .await?;
        let after = series(prometheus).await?;
        ensure!(after == before, "still changing");
        Ok(after)
    })
    .await
}

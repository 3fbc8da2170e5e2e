//! Low cardinality for ever: a thousand rollouts create no new series.

use crate::world::*;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PACKAGES: u32 = 20;
const ROUNDS: u32 = 50;

/// How many series were ever made, and how many of ours there are.
async fn series(prometheus: &Prometheus) -> Result<(f64, f64)> {
    let own = reqwest::Client::builder().no_proxy().build()?;
    let text = own.get(format!("{}/metrics", prometheus.url())).send().await?.text().await?;
    let made = Exposition::parse(&text)?
        .value("prometheus_tsdb_head_series_created_total", &[])
        .context("Prometheus does not say how many series it made")?;
    let ours = prometheus.query("count({__name__=~\"statusbridge_.+\"})").await?;
    Ok((made, ours.first().context("nothing of ours")?.value))
}

/// Waits until Prometheus holds these wanted revisions.
async fn arrive(prometheus: &Prometheus, wanted: &BTreeMap<String, f64>) -> Result<()> {
    eventually(SOON, "the round is scraped", async || {
        let samples = prometheus.query(Metric::PackageDesiredRevision.name()).await?;
        let held: BTreeMap<String, f64> =
            samples.into_iter().map(|s| (s.label(label::PACKAGE).to_owned(), s.value)).collect();
        ensure!(held == *wanted, "{held:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_thousand_revisions_and_error_texts_make_no_new_series() {
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
                if (package + round) % 4 == 0 {
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
            let now = match first {
                Some(_) => series(&prometheus).await?,
                // The first scrape's own series, such as `up`, come with it; the counts of states settle.
                None => settled(&prometheus, &cluster).await?,
            };
            let first = *first.get_or_insert(now);
            ensure!(
                now == first,
                "after round {round}: {now:?} series made and held, {first:?} after the first"
            );
        }
        let says = cluster.says().await?;
        ensure!(says.packages().len() == PACKAGES as usize, "{:?}", says.packages());
        Ok(())
    })
    .await;
}

/// The series after the first round, once Prometheus holds what the exporter says and no more comes.
async fn settled(prometheus: &Prometheus, cluster: &Workload) -> Result<(f64, f64)> {
    eventually(SOON, "Prometheus holds what the exporter says", async || {
        let says = cluster.says().await?;
        let digest = says.lines.iter().find(|l| l.name == Metric::Digest.name()).context("no digest")?.value;
        let held = prometheus.query(Metric::Digest.name()).await?;
        ensure!(held.first().is_some_and(|h| h.value == digest), "not yet");
        let (before, _) = series(prometheus).await?;
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
        ensure!(after.0 == before, "still growing");
        Ok(after)
    })
    .await
}

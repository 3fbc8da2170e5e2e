//! A real hub, aggregator and Prometheus over a fleet that says what it is told to: for tests of the page in a browser.
//!
//! It prints the page's address on a line once everything runs. Each line on standard input is a command; the answer is `ok`,
//! or why not:
//!
//! | command | does |
//! |---|---|
//! | `healthy CLUSTER REVISION`, `failed CLUSTER REVISION` | the cluster says so from its next scrape on |
//! | `rolls REVISION` | a FleetRollout brings it to the clusters of the EU, and then to the others |
//! | `silent CLUSTER` | its exporter answers no more |
//! | `hub-stops` | the hub's API server ends |

use anyhow::{Context, Result, bail};
use serde_json::json;
use statusbridge_tests::*;
use std::io::{BufRead, Write};

const CLUSTERS: [&str; 3] = ["eu-1", "eu-2", "us-1"];
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

fn main() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let rig = Rig::new("fleet-on-command")?;
        serve(&rig).await
    })
}

async fn serve(rig: &Rig) -> Result<()> {
    let etcd = Etcd::start(rig).await?;
    let healthy = || FakePackage::healthy_at(R1);
    let (fleet, prometheus) = FakeFleet::scraped(rig, &CLUSTERS, "payments", healthy).await?;
    let mut options = AggregatorOptions::new(prometheus.url());
    options.more = ["--serve-fleet", "--backend-timeout", "2s"].map(str::to_owned).to_vec();
    let hub = Hub::start_with(rig, &etcd, options).await?;
    hub.report("payments", "8s", json!({"revision": R1})).await?;
    hub.gate("wave-1", "payments", R1, json!({"clusters": {"names": ["eu-1", "eu-2"]}})).await?;
    let waits = json!({"clusters": {"names": ["us-1"]}, "dependsOn": [{"name": "wave-1"}]});
    hub.gate("wave-2", "payments", R1, waits).await?;
    hub.opens("wave-2", SOON).await?;
    answer(&format!("http://{}/ui/", hub.aggregator.address()))?;
    let (sender, mut lines) = tokio::sync::mpsc::channel(1);
    // A blocking read must not keep the servers from being stopped.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match obey(&hub, &fleet, &line).await {
            Ok(()) => answer("ok")?,
            Err(error) => answer(&format!("error: {error:#}"))?,
        }
    }
    Ok(())
}

async fn obey(hub: &Hub, fleet: &FakeFleet, line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["healthy", cluster, revision] => {
            fleet.says(known(cluster)?, "payments", FakePackage::healthy_at(revision));
        }
        ["failed", cluster, revision] => {
            fleet.says(known(cluster)?, "payments", FakePackage::failed_at(revision));
        }
        ["rolls", revision] => {
            let waves = json!([
                {"name": "eu", "clusters": {"names": ["eu-1", "eu-2"]}}, {"name": "us", "clusters": {"percentage": "100%"}},
            ]);
            let spec = json!({"fleetPackageRef": {"name": "payments"}, "revision": revision, "waves": waves});
            let rollout = json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
                "metadata": {"name": "payments", "namespace": "default"}, "spec": spec,
            });
            hub.api.apply_object(&rollout).await?;
        }
        ["silent", cluster] => fleet.is_silent(known(cluster)?),
        ["hub-stops"] => hub.api.stop(),
        _ => bail!("{line:?} is no command"),
    }
    Ok(())
}

fn known(cluster: &str) -> Result<&'static str> {
    CLUSTERS
        .into_iter()
        .find(|known| *known == cluster)
        .with_context(|| format!("there is no cluster {cluster:?}"))
}

fn answer(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

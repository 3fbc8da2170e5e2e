//! A real VictoriaMetrics cluster that has lost a storage node: half of every answer is not there.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_contract::{Fingerprint, Metric};
use statusbridge_tests::*;
use std::path::Path;

/// Lets the aggregator ask as this flavour from now on.
fn ask_as(file: &Path, url: &str, flavour: &str) -> Result<()> {
    let backend = json!({"name": "vm", "url": url, "trust": "all", "flavour": flavour, "timeout": "4s"});
    put(file, &json!({"feeds": {"backends": [backend]}}).to_string())
}

#[tokio::test]
async fn half_of_an_answer_opens_nothing() {
    run("e2e-victoria-cluster", async |rig| {
        let cluster = VictoriaCluster::start(rig, 1).await?;
        let select = cluster.select(rig, &[]).await?;
        let fleet = FakeFleet::start().await?;
        let names = ["c1", "c2", "c3"];
        for name in names {
            fleet.says(name, APP, healthy_for(60));
        }
        let job = names.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let mut config = PrometheusConfig::with_jobs([job]);
        config.remote_write.push(cluster.remote_write_url());
        let _prometheus = Prometheus::start(rig, &config).await?;
        let file = rig.dir().join("aggregator.yaml");
        ask_as(&file, &select.url(), "prometheus")?;
        let mut options = AggregatorOptions::new("");
        options.settle_delay = "3s";
        options.more = vec!["--config".to_owned(), file.display().to_string()];
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        let all = json!({"clusters": {"names": names}});
        let reporting = |least: u32| json!({"clusters": {"reporting": {"minClusters": least}}});
        for (gate, spec) in [("all", all), ("reporting", reporting(1))] {
            hub.gate(gate, APP, &revision(1), spec).await?;
            hub.opens(gate, SOON).await?;
        }

        // What is told while the node is away is told by whoever is left. Raw samples are never answered in part.
        cluster.node(1).kill();
        for name in names {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(2)));
        }
        hub.gate("next", APP, &revision(2), reporting(1)).await?;
        let next = hub.history("next").await?;
        for gate in ["all", "reporting"] {
            waits_for(&hub, gate, STALE_BY, &["feed vm: backend refused the query: 503"]).await?;
        }
        hub.reports(APP, "Reporting", "False", "BackendUnavailable", SOON).await?;
        eventually(SOON, "all clusters are stale, and nothing is missing", async || {
            let report = hub.get_report(APP).await?;
            let clusters = &report.data["status"]["clusters"];
            let of = |standing: &str| clusters[standing].as_u64();
            ensure!(of("stale") == Some(3) && of("missing") == Some(0), "{clusters}");
            Ok(())
        })
        .await?;

        // Asked for all or nothing; and the aggregator begins with nothing, once it has read that.
        ask_as(&file, &select.url(), "victoriametrics")?;
        eventually(SOON, "the aggregator knows nothing of any cluster", async || {
            let clusters = hub.aggregator.metric("statusbridge_aggregator_clusters").await?;
            ensure!(clusters == 0.0, "{clusters} clusters");
            Ok(())
        })
        .await?;
        hub.gate("late", APP, &revision(2), reporting(1)).await?;
        let late = hub.history("late").await?;
        for gate in ["all", "reporting", "next", "late"] {
            waits_for(&hub, gate, STALE_BY, &["feed vm: backend refused the query: 503"]).await?;
        }
        for history in [&next, &late] {
            history.check("a node is away", closed).await?;
        }

        // Else the first answer may have revision 1, which is seen then: it is about the time three seconds ago.
        let newest = cluster.select(rig, &["-search.latencyOffset=1ms"]).await?;
        let wanted = Fingerprint::of(&revision(2)).value();
        let moved = format!("{} offset 4s == {wanted}", Metric::PackageHealthyRevision.name());
        eventually(SOON, "the node that is left has revision 2 of all", async || {
            let found = newest.query(&moved).await?.len();
            ensure!(found == names.len(), "of {found}");
            Ok(())
        })
        .await?;
        cluster.node(1).start()?;
        for gate in ["next", "late"] {
            hub.opens(gate, SOON).await?;
        }
        // The aggregator began with nothing: it knows no more that revision 1 was there.
        hub.closes("all", "RevisionNeverSeen", SOON).await.map(drop)
    })
    .await;
}

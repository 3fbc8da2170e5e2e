//! A real Mimir: tenants that must not see each other, an ingester that is gone, and two replicas of which it takes one.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::Path;

/// Asks this Mimir in the name of a tenant, or of nobody.
fn ask_as(file: &Path, mimir: &Mimir, tenant: Option<&str>) -> Result<()> {
    let headers = tenant.map(|name| json!({"X-Scope-OrgID": name})).unwrap_or_else(|| json!({}));
    let backend = json!({
        "name": "mimir", "url": mimir.url(), "trust": "all", "flavour": "prometheus", "timeout": "2s", "headers": headers,
    });
    put(file, &json!({"feeds": {"backends": [backend]}}).to_string())
}

fn in_clusters(names: &[&str]) -> Value {
    json!({"clusters": {"names": names}})
}

#[tokio::test]
async fn another_tenant_no_tenant_and_an_ingester_that_is_gone_open_nothing() {
    run("e2e-mimir", async |rig| {
        let fleet = FakeFleet::start().await?;
        let names = ["a", "b", "late"];
        for name in names {
            fleet.says(name, APP, healthy_for(60));
        }
        let mimir = Mimir::start(rig).await?;
        let ingester = mimir.start_ingester(rig).await?;
        let tenant = mimir.tenant("fleet")?;
        let job = names.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let _prometheus =
            Prometheus::start(rig, &tenant.written_by(PrometheusConfig::with_jobs([job]))).await?;
        let config = rig.dir().join("aggregator.yaml");
        ask_as(&config, &mimir, Some("fleet"))?;
        let mut options = AggregatorOptions::new("");
        // Remote write takes its time.
        options.settle_delay = "3s";
        options.more = vec!["--config".to_owned(), config.display().to_string()];
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        // Scrapes reach Mimir up to five seconds late.
        hub.report(APP, "15s", json!({})).await?;
        let reporting = json!({"clusters": {"reporting": {"minClusters": 3}}});
        let gates =
            [("a", in_clusters(&["a"])), ("all", in_clusters(&names)), ("reporting", reporting.clone())];
        for (name, spec) in gates {
            hub.gate(name, APP, &revision(1), spec).await?;
            hub.opens(name, SOON).await?;
        }
        // The next wave waits for one cluster that does not get there until the very end.
        for name in ["a", "b"] {
            fleet.says(name, APP, FakePackage::healthy_at(&revision(2)));
        }
        let next = [("next", in_clusters(&names)), ("next-reporting", reporting)];
        let mut histories = Vec::new();
        for (name, spec) in next {
            hub.gate(name, APP, &revision(2), spec).await?;
            hub.closes(name, "NotUpdated", SOON).await?;
            histories.push(hub.history(name).await?);
        }
        for name in ["a", "b"] {
            hub.gate(name, APP, &revision(2), in_clusters(&[name])).await?;
            hub.opens(name, SOON).await?;
        }

        // The doctor has nothing to say but what it would be asked as, and names what is wrong without a tenant.
        let doctor = async |header: &str| -> Result<(Option<i32>, String)> {
            let url = mimir.url();
            let trusted = ["--trust", "job=\"statusbridge\""];
            let asked = ["doctor", "--backend", &url, "--backend-header", header, "--stale-after", "40s"];
            let args = [&asked[..], &trusted].concat();
            let out = own_command("statusbridge", &args).await?.output().await?;
            Ok((out.status.code(), String::from_utf8([out.stdout, out.stderr].concat())?))
        };
        let (code, said) = doctor("X-Scope-OrgID: fleet").await?;
        ensure!(code == Some(0) && said.contains("seems to be prometheus"), "{code:?}: {said}");
        let (code, said) = doctor("X-Nothing: x").await?;
        ensure!(code == Some(1) && said.contains("HTTP 401: no org id"), "{code:?}: {said}");

        // What another tenant has is nothing, and who does not say which is told so.
        ask_as(&config, &mimir, Some("another"))?;
        hub.closes("a", "Missing", STALE_BY).await?;
        ask_as(&config, &mimir, None)?;
        waits_for(&hub, "a", STALE_BY, &["backend answered HTTP 401: no org id"]).await?;
        ask_as(&config, &mimir, Some("fleet"))?;
        hub.opens("a", SOON).await?;

        // Each of the ingesters has a part of every cluster. With one of them gone nothing is answered.
        ingester.process().kill();
        for name in ["a", "b"] {
            waits_for(&hub, name, STALE_BY, &["backend refused the query: internal", "Unavailable"]).await?;
        }
        hub.reports(APP, "Reporting", "False", "BackendUnavailable", SOON).await?;
        ingester.process().start()?;
        hub.opens("a", SOON).await?;
        mimir.has_ingesters(2).await?;
        // One that leaves in good order takes its part with it, and Mimir answers with the rest without a word.
        ingester.process().terminate(SOON).await?;
        mimir.has_ingesters(1).await?;
        hub.opens("a", SOON).await?;
        hub.opens("b", SOON).await?;
        for history in &histories {
            history.check("one cluster never got there", closed).await?;
        }
        fleet.says("late", APP, FakePackage::healthy_at(&revision(2)));
        hub.opens("next", SOON).await?;
        hub.opens("next-reporting", SOON).await.map(drop)
    })
    .await;
}

/// Mimir takes the samples of one replica, and those of the other once the first has been silent for some time.
#[tokio::test]
async fn a_replica_that_dies_is_replaced_by_the_other_and_its_lost_markers_cost_nothing() {
    run("e2e-mimir-replicas", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, healthy_for(3600));
        let limits = json!({"fleet": {
            "accept_ha_samples": true, "ha_tracker_update_timeout": "7s",
            "ha_tracker_update_timeout_jitter_max": "0s", "ha_tracker_failover_timeout": "8s",
        }});
        let mimir = Mimir::start_with(rig, limits).await?;
        let tenant = mimir.tenant("fleet")?;
        let replica =
            |name: &str| tenant.written_by(scraping(&fleet, &["c1"]).external(&[("__replica__", name)]));
        let elected = Prometheus::start(rig, &replica("a")).await?;
        eventually(SOON, "the first one is taken", async || {
            let digests = tenant.query("statusbridge_digest").await?;
            ensure!(digests.len() == 1 && digests[0].label("__replica__").is_empty(), "{digests:?}");
            Ok(())
        })
        .await?;
        let other = Prometheus::start(rig, &replica("b")).await?;
        let mut options = AggregatorOptions::new(mimir.url());
        options.settle_delay = "3s";
        options.more = ["--backend-header", "X-Scope-OrgID: fleet"].map(str::to_owned).to_vec();
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, "60s", json!({})).await?;
        hub.gate("wave", APP, &revision(1), in_clusters(&["c1"])).await?;
        hub.opens("wave", SOON).await?;

        // Each dies while a failure is shown, and never says that the series of the failure have ended.
        for dies in [&elected, &other] {
            fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
            hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
            dies.process().kill();
            fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
            let died = fake_fleet::unix_now() as f64;
            eventually(SOON, "the other one is taken", async || {
                let stamps = tenant.query("timestamp(statusbridge_digest)").await?;
                ensure!(stamps.first().is_some_and(|stamp| stamp.value > died + 2.0), "{stamps:?}");
                Ok(())
            })
            .await?;
            // A backend goes on showing a series that has not ended for five minutes, which is longer.
            hub.opens("wave", SOON).await?;
            dies.start_again().await?;
        }
        Ok(())
    })
    .await;
}

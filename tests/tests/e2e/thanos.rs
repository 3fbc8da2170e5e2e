//! A real Thanos querier that has lost a store: first it warns, then it has forgotten that there ever was one.

use crate::e2e::world::*;
use anyhow::ensure;
use serde_json::json;
use statusbridge_tests::*;
use std::time::Duration;

/// In which a querier gives up a store that does not answer.
const FORGOTTEN_BY: Duration = Duration::from_secs(120);
const DIGEST: &str = "statusbridge_digest";

#[tokio::test]
async fn a_store_that_is_lost_or_forgotten_opens_nothing() {
    run("e2e-thanos", async |rig| {
        let fleet = FakeFleet::start().await?;
        let (mut servers, mut sidecars) = (Vec::new(), Vec::new());
        for name in ["here", "lost"] {
            fleet.says(name, APP, healthy_for(60));
            // As such pipelines have it: the cluster's name is no target label but an external one.
            let job = fleet.target(job(), name, &[("cluster", "")]);
            let config = PrometheusConfig::with_jobs([job]).external(&[("cluster", name)]);
            let prometheus = Prometheus::start(rig, &config).await?;
            sidecars.push(ThanosSidecar::start(rig, &prometheus).await?);
            servers.push(prometheus);
        }
        let querier = ThanosQuerier::start(rig, &sidecars.iter().collect::<Vec<_>>()).await?;
        eventually(SOON, "the querier has both clusters", async || {
            let found = querier.query(DIGEST).await?.len();
            ensure!(found == 2, "{found}");
            Ok(())
        })
        .await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new(querier.url());
        let flags = ["--backend-timeout", "4s", "--backend-flavour", "thanos"];
        options.more = flags.map(str::to_owned).to_vec();
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        let names = |names: &[&str]| json!({"clusters": {"names": names}});
        let gates = [
            ("here", names(&["here"])),
            ("lost", names(&["lost"])),
            ("both", names(&["here", "lost"])),
            ("reporting", json!({"clusters": {"reporting": {"minClusters": 2}}})),
        ];
        for (name, spec) in &gates {
            hub.gate(name, APP, &revision(1), spec.clone()).await?;
            hub.opens(name, SOON).await?;
        }
        // The next wave waits for a revision that the cluster whose store is lost never gets.
        let next = names(&["here", "lost"]);
        hub.gate("next", APP, &revision(2), next.clone()).await?;
        hub.closes("next", "RevisionNeverSeen", SOON).await?;
        let next_history = hub.history("next").await?;

        sidecars[1].process().kill();
        eventually(SOON, "the querier warns", async || {
            let warnings = querier.warnings(DIGEST).await?;
            ensure!(!warnings.is_empty(), "no warning");
            Ok(())
        })
        .await?;
        // An answer with a warning is none, for the store that is there too.
        for name in ["here", "lost", "both", "reporting"] {
            eventually(STALE_BY, &format!("{name} is closed because the querier warns"), async || {
                let gate = hub.get_gate(name).await?;
                ensure!(history::condition(&gate, "Open").0 == "False", "open");
                let waiting = waiting(&gate);
                ensure!(waiting.contains("answer comes with warnings"), "{waiting}");
                Ok(())
            })
            .await?;
        }
        hub.reports(APP, "Reporting", "False", "BackendUnavailable", SOON).await?;
        let lost = [hub.history("lost").await?, hub.history("both").await?, hub.history("reporting").await?];

        eventually(FORGOTTEN_BY, "the querier has forgotten the store", async || {
            let (found, warnings) = (querier.query(DIGEST).await?, querier.warnings(DIGEST).await?);
            ensure!(found.len() == 1 && warnings.is_empty(), "{} and {warnings:?}", found.len());
            Ok(())
        })
        .await?;
        // Nothing in the answer says that a part is missing, but who was expected.
        fleet.says("here", APP, FakePackage::healthy_at(&revision(2)));
        hub.closes("here", "Superseded", SOON).await?;
        for name in ["lost", "both"] {
            eventually(SOON, &format!("{name} names the cluster"), async || {
                let gate = hub.get_gate(name).await?;
                let waiting = waiting(&gate);
                ensure!(waiting.contains("\"lost\"") && !waiting.contains("warnings"), "{waiting}");
                Ok(())
            })
            .await?;
        }
        hub.gate("here-next", APP, &revision(2), names(&["here"])).await?;
        hub.opens("here-next", SOON).await?;
        for (name, spec) in [("next", next), ("next-reporting", gates[3].1.clone())] {
            hub.gate(name, APP, &revision(2), spec).await?;
        }
        hub.closes("next", "Stale", SOON).await?;
        let another = hub.history("next-reporting").await?;
        holds_for(Duration::from_secs(4), "none opens", async || {
            // These were open once; what was is not taken back.
            for history in &lost {
                history.check("the store is lost", not_open).await?;
            }
            for history in [&next_history, &another] {
                history.check("the store is lost", closed).await?;
            }
            Ok(())
        })
        .await?;

        sidecars[1].process().start()?;
        fleet.says("lost", APP, FakePackage::healthy_at(&revision(2)));
        hub.opens("next", SOON).await?;
        hub.opens("next-reporting", SOON).await.map(drop)
    })
    .await;
}

//! Exporters of several contract versions side by side.

use crate::e2e::world::*;
use anyhow::ensure;
use serde_json::json;
use statusbridge_tests::*;

const NAMES: [&str; 4] = ["good", "new", "newest", "oldest"];

#[tokio::test]
async fn what_a_contract_version_does_not_know_is_named() {
    run("e2e-versions", async |rig| {
        let fleet = FakeFleet::start().await?;
        for name in NAMES {
            fleet.says(name, APP, healthy_for(60));
        }
        // One whose digest covers what its own version does not have, one of a version that nobody reads yet, and one
        // of a version that nobody reads.
        fleet.publishes("new", "2", &["statusbridge_package_foo"]);
        fleet.publishes("newest", "3", &["statusbridge_package_foo"]);
        fleet.publishes("oldest", "1", &[]);
        let backend = Backend::prometheus(rig, &fleet, &NAMES).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        let mut histories = Vec::new();
        for name in NAMES {
            histories.push(hub.history(name).await?);
            hub.gate(name, APP, &revision(1), json!({"clusters": {"names": [name]}})).await?;
        }
        hub.opens("good", SOON).await?;
        for (name, why) in [
            ("new", "the exporter has statusbridge_package_foo, which contract version 2 does not know"),
            ("newest", "contract version `3`, this aggregator reads 2: upgrade the aggregator"),
            ("oldest", "contract version `1`, this aggregator reads 2: upgrade the exporter"),
        ] {
            eventually(SOON, &format!("{name} says {why}"), async || {
                let waiting = waiting(&hub.closes(name, "Unverified", SOON).await?);
                ensure!(waiting.contains(why), "{waiting}");
                Ok(())
            })
            .await?;
        }
        for history in &histories[1..] {
            history.check("what cannot be verified opens nothing", closed).await?;
        }
        // As soon as what it says is what its version has, it is read; both leave no trace of what was.
        for name in &NAMES[1..] {
            fleet.publishes(name, "2", &[]);
            hub.opens(name, SOON).await?;
        }
        Ok(())
    })
    .await;
}

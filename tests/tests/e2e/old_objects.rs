//! Objects that the API server would refuse today.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::*;

/// The CRDs as they might have been before any of their rules.
fn loose_crds() -> Result<Vec<Value>> {
    fn loosen(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                let rules =
                    ["x-kubernetes-validations", "maxLength", "minLength", "maxItems", "minItems", "enum"];
                rules
                    .into_iter()
                    .chain(["minimum", "maximum", "pattern"])
                    .for_each(|rule| drop(fields.remove(rule)));
                fields.values_mut().for_each(loosen);
            }
            Value::Array(items) => items.iter_mut().for_each(loosen),
            _ => {}
        }
    }
    let mut crds = Vec::new();
    for file in crds::own()? {
        crds.extend(crds::documents(&std::fs::read_to_string(file)?)?);
    }
    for crd in &mut crds {
        for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
            let schema = &mut version["schema"]["openAPIV3Schema"];
            schema.as_object_mut().map(|schema| schema.remove("x-kubernetes-validations"));
            // Slices have no spec.
            schema.pointer_mut("/properties/spec").map(loosen);
        }
    }
    Ok(crds)
}

#[tokio::test]
async fn objects_older_than_the_crds_are_told_what_is_wrong_and_harm_no_other() {
    run("e2e-old-objects", async |rig| {
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", APP, healthy_for(3600));
        let backend = Backend::prometheus(rig, &fleet, &["c1"]).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, backend.options()).await?;
        hub.report(APP, "30s", json!({})).await?;
        for crd in loose_crds()? {
            hub.api.apply_object(&crd).await?;
        }
        let wave = json!({"names": ["c1"]});
        let bad = [
            ("no-soak", json!({"clusters": wave, "minSuccessTime": "for ever"})),
            ("no-amount", json!({"clusters": wave, "maxFailures": "some"})),
            ("no-revision", json!({"clusters": wave, "revision": ""})),
            ("both-sets", json!({"clusters": {"names": ["c1"], "reporting": {"minClusters": 1}}})),
            ("no-set", json!({"clusters": {}})),
            ("no-such-requirement", json!({"clusters": wave, "require": "Blessed"})),
        ];
        for (name, spec) in &bad {
            // The API server takes a while to follow its CRDs.
            eventually(SOON, &format!("{name} is accepted"), async || {
                hub.gate(name, APP, &revision(1), spec.clone()).await
            })
            .await?;
        }
        let stale = json!({"staleAfter": "soon"});
        eventually(SOON, "a bad FleetPackage is accepted", async || {
            hub.report("bad", "30s", stale.clone()).await
        })
        .await?;
        hub.api.install_crds(&crds::own()?).await?;
        hub.gate("good", APP, &revision(1), json!({"clusters": wave})).await?;
        hub.gate("of-bad", "bad", &revision(1), json!({"clusters": wave})).await?;

        for (name, _) in &bad {
            let gate = hub.closes(name, "InvalidSpec", SOON).await?;
            ensure!(history::condition(&gate, "Stalled").0 == "True", "{name}: {}", gate.data["status"]);
        }
        hub.closes("of-bad", "InvalidSpec", SOON).await?;
        hub.reports("bad", "Ready", "False", "InvalidSpec", SOON).await?;
        hub.opens("good", SOON).await?;
        // They are still answered after a change elsewhere, and by an aggregator that finds them at its start.
        hub.aggregator.process().kill();
        fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
        hub.aggregator.process().start()?;
        hub.closes("good", "FailureBudgetExceeded", SOON).await?;
        hub.closes("no-soak", "InvalidSpec", SOON).await.map(drop)
    })
    .await;
}

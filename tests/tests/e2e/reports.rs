//! What the hub tells beside verdicts: every cluster in slices, the history of revisions, packages that nobody asked
//! about, and what a verdict rests on.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_tests::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// A fleet that is only its exporters' words, with everything behind it.
struct Reported {
    fleet: FakeFleet,
    prometheus: Prometheus,
    hub: Hub,
    _etcd: Etcd,
}

impl Reported {
    async fn start(rig: &Rig, clusters: &[String], scrape: Duration, flags: &[&str]) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        for cluster in clusters {
            fleet.says(cluster, APP, FakePackage::healthy_at(&revision(1)));
        }
        let targets = clusters.iter().fold(job(), |job, name| fleet.target(job, name, &[]));
        let mut config = PrometheusConfig::with_jobs([targets]);
        config.scrape_interval = scrape;
        let prometheus = Prometheus::start(rig, &config).await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s"].iter().chain(flags).map(|&flag| flag.to_owned()).collect();
        let hub = Hub::start_with(rig, &etcd, options).await?;
        Ok(Self { fleet, prometheus, hub, _etcd: etcd })
    }

    async fn slices(&self) -> Result<Vec<DynamicObject>> {
        let api = self.hub.api.dynamic(&hub::kind("FleetPackageSlice"), Some("default")).await?;
        Ok(api.list(&ListParams::default()).await?.items)
    }
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// Name and version of each object.
fn versions(objects: &[DynamicObject]) -> BTreeMap<String, String> {
    let version = |it: &DynamicObject| it.metadata.resource_version.clone().unwrap_or_default();
    objects.iter().map(|it| (name(it).to_owned(), version(it))).collect()
}

/// The row of each cluster, once.
fn rows(slices: &[DynamicObject]) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for row in slices.iter().flat_map(|slice| slice.data["clusters"].as_array().into_iter().flatten()) {
        let cluster = row["clusterName"].as_str().context("a row without a cluster")?.to_owned();
        ensure!(all.insert(cluster.clone(), row.clone()).is_none(), "{cluster} is in two slices");
    }
    Ok(all)
}

#[tokio::test]
async fn every_cluster_has_a_row_and_a_change_of_one_is_a_write_of_one_slice() {
    run("e2e-slices", async |rig| {
        let names: Vec<String> = (0..260).map(|at| format!("c{at:03}")).collect();
        // Slices are refreshed every third of staleAfter: not while this test looks.
        let stale_after = "30m";
        let world = Reported::start(rig, &names, Duration::from_secs(5), &[]).await?;
        let hub = &world.hub;
        // One of somebody else's, with a name of ours as it were, and our label.
        let foreign = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackageSlice",
            "metadata": {"name": "theirs", "namespace": "default", "labels": {"statusbridge.dev/fleet-package": APP}},
            "fleetPackageGeneration": 1, "clusters": [],
        });
        let foreign = hub.api.apply_object(&foreign).await?;
        let spec = json!({"detail": "All", "revision": revision(1), "clusters": {"names": names}});
        hub.report(APP, stale_after, spec.clone()).await?;
        let ours = async || -> Result<Vec<DynamicObject>> {
            Ok(world.slices().await?.into_iter().filter(|it| name(it) != "theirs").collect())
        };
        let all_at = async |generation: i64, succeeded: usize| -> Result<Vec<DynamicObject>> {
            eventually(SOON, &format!("{succeeded} clusters are done"), async || {
                let slices = ours().await?;
                let rows = rows(&slices)?;
                let done = rows.values().filter(|row| row["status"] == "Succeeded").count();
                ensure!(rows.len() == 260 && done == succeeded, "{} rows, {done} done", rows.len());
                ensure!(slices.iter().all(|it| it.data["fleetPackageGeneration"] == generation), "an old one");
                Ok(slices)
            })
            .await
        };
        let first = all_at(1, 260).await?;
        ensure!(first.len() == 2, "{} slices", first.len());
        let report = hub.get_report(APP).await?;
        for slice in &first {
            let owner = &slice.metadata.owner_references.as_ref().context("no owner")?[0];
            ensure!(owner.controller == Some(true) && Some(&owner.uid) == report.metadata.uid.as_ref(), "{owner:?}");
            ensure!(slice.metadata.labels.as_ref().context("no label")?["statusbridge.dev/fleet-package"] == APP);
            ensure!(slice.data["asOf"].is_string() && slice.data.get("status").is_none(), "{}", slice.data);
            ensure!(slice.data["clusters"].as_array().context("no rows")?.len() <= 256);
        }
        let row = rows(&first)?.remove("c007").context("c007 has no row")?;
        let words = [&row["desiredRevision"], &row["appliedRevision"], &row["healthyRevision"]];
        ensure!(words.iter().all(|it| **it == json!(revision(1))), "{row}");

        // One cluster fails: one slice is written.
        world.fleet.says("c007", APP, FakePackage::failed_at(&revision(1)));
        let second = all_at(1, 259).await?;
        let failed = rows(&second)?.remove("c007").context("c007 has no row")?;
        let told = (&failed["status"], &failed["state"], &failed["reason"]);
        ensure!(told == (&json!("Failed"), &json!("Failed"), &json!("HealthCheckFailed")), "{failed}");
        ensure!(failed.get("healthyRevision").is_none(), "{failed}");
        let (before, after) = (versions(&first), versions(&second));
        ensure!(before.keys().eq(after.keys()), "{before:?} {after:?}");
        let written: Vec<_> = after.iter().filter(|(slice, version)| before[*slice] != **version).collect();
        ensure!(written.len() == 1, "{written:?}");

        // A restart adopts what is there, and writes nothing for nothing.
        hub.aggregator.process().kill();
        world.fleet.says("c007", APP, FakePackage::healthy_at(&revision(1)));
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        let third = all_at(1, 260).await?;
        ensure!(versions(&third).keys().eq(before.keys()), "other slices: {:?}", versions(&third));
        let written = versions(&third).iter().filter(|(slice, version)| after[*slice] != **version).count();
        ensure!(written == 1, "{written} slices were written");
        // One that gets no answer from the backend knows nothing, and takes nothing away.
        hub.aggregator.process().kill();
        world.prometheus.stop();
        hub.aggregator.process().start()?;
        holds_for(Duration::from_secs(5), "the slices stay as they are", async || {
            ensure!(versions(&ours().await?) == versions(&third), "something was written");
            Ok(())
        })
        .await?;
        world.prometheus.start_again().await?;
        hub.aggregator.wait_ready().await?;
        // What somebody spoils or removes is put right.
        let spoil = json!({"clusters": []}).to_string();
        hub.api.kubectl(&["patch", "fpkgslice", name(&third[0]), "--type=merge", "-p", &spoil]).await?;
        hub.api.kubectl(&["delete", "fpkgslice", name(&third[1])]).await?;
        all_at(1, 260).await?;

        // Another revision: every row answers the new generation.
        let mut moved = spec.clone();
        moved["revision"] = json!(revision(2));
        hub.report(APP, stale_after, moved.clone()).await?;
        let fourth = all_at(2, 0).await?;
        let short = Fingerprint::of(&revision(1)).to_string();
        let row = rows(&fourth)?.remove("c001").context("c001 has no row")?;
        ensure!((&row["state"], &row["healthyRevision"]) == (&json!("NotUpdated"), &json!(short)), "{row}");

        // Not asked for any more, or without its FleetPackage, they go. Somebody else's stays.
        let gone = async || {
            eventually(SOON, "the slices are gone", async || {
                ensure!(ours().await?.is_empty(), "still there");
                Ok(())
            })
            .await
        };
        let mut quiet = moved.clone();
        quiet["detail"] = json!("Problems");
        hub.report(APP, stale_after, quiet).await?;
        gone().await?;
        hub.report(APP, stale_after, moved).await?;
        all_at(4, 0).await?;
        hub.api.kubectl(&["delete", "fpkg", APP]).await?;
        gone().await?;
        let left = world.slices().await?;
        ensure!(versions(&left) == versions(&[foreign]), "{left:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_history_of_revisions_outlives_the_aggregator() {
    run("e2e-history", async |rig| {
        let names = ["c1".to_owned(), "c2".to_owned()];
        let world = Reported::start(rig, &names, Duration::from_secs(1), &[]).await?;
        let hub = &world.hub;
        let wants = async |number: u32| hub.report(APP, "20s", json!({"revision": revision(number)})).await;
        let says = |cluster: &str, package: FakePackage| world.fleet.says(cluster, APP, package);
        let history = async || -> Result<Vec<Value>> {
            let report = hub.get_report(APP).await?;
            Ok(report.data["status"]["history"].as_array().cloned().unwrap_or_default())
        };
        wants(1).await?;
        hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        wants(2).await?;
        hub.reports(APP, "Ready", "False", "NotUpdated", SOON).await?;
        says("c1", FakePackage::healthy_at(&revision(2)));
        says("c2", FakePackage::failed_at(&revision(2)));
        hub.reports(APP, "Ready", "False", "Failed", SOON).await?;
        let before = eventually(SOON, "both have applied it", async || {
            let history = history().await?;
            ensure!(history.len() == 2 && history[0]["appliedAt"].is_string(), "{history:?}");
            Ok(history)
        })
        .await?;
        ensure!(
            before[0]["revision"] == json!(revision(2)) && before[0].get("healthyAt").is_none(),
            "{before:?}"
        );
        ensure!(
            before[1]["revision"] == json!(revision(1)) && before[1]["healthyAt"].is_string(),
            "{before:?}"
        );
        ensure!(hub.get_report(APP).await?.data["status"]["lastHealthyRevision"] == json!(revision(1)));

        hub.aggregator.process().kill();
        says("c2", FakePackage::healthy_at(&revision(2)));
        hub.aggregator.process().start()?;
        hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        let mut after = history().await?;
        // What failed before is over at the same moment.
        for reached in ["healthyAt", "restoredAt"] {
            let at = after[0]
                .as_object_mut()
                .and_then(|it| it.remove(reached))
                .with_context(|| format!("no {reached}"))?;
            ensure!(at.as_str() >= before[0]["appliedAt"].as_str(), "{reached} {at}");
        }
        ensure!(after == before, "{after:?} is not {before:?}");
        ensure!(hub.get_report(APP).await?.data["status"]["lastHealthyRevision"] == json!(revision(2)));
        // Back again is another rollout.
        wants(1).await?;
        eventually(SOON, "a third entry", async || {
            let history = history().await?;
            let told: Vec<_> = history.iter().map(|it| it["revision"].clone()).collect();
            ensure!(told == [json!(revision(1)), json!(revision(2)), json!(revision(1))], "{told:?}");
            Ok(())
        })
        .await
    })
    .await;
}

const DISCOVERED: &str = "statusbridge-discovered";
const LABEL: &str = "statusbridge.dev/discovered";

fn found(package: &str) -> String {
    format!("flux-kustomization.flux-system.{package}")
}

#[tokio::test]
async fn packages_that_clusters_report_are_found_and_forgotten() {
    run("e2e-discovery", async |rig| {
        let names = ["c1".to_owned(), "c2".to_owned()];
        let flags = ["--discover-into", DISCOVERED, "--discover-limit", "3", "--discover-forget-after", "8s"];
        let world = Reported::start(rig, &names, Duration::from_secs(1), &flags).await?;
        let (hub, fleet) = (&world.hub, &world.fleet);
        fleet.says("c1", "both", FakePackage::healthy_at(&revision(1)));
        fleet.says("c2", "both", FakePackage::healthy_at(&revision(2)));
        fleet.says("c2", "mine", FakePackage::healthy_at(&revision(1)));
        hub.api.ensure_namespace(DISCOVERED).await?;
        let package =
            |name: &str| json!({"source": fake_fleet::SOURCE, "namespace": FLUX_NAMESPACE, "name": name});
        let object = |name: &str, package: Value, labels: Value| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
                "metadata": {"namespace": DISCOVERED, "name": name, "labels": labels},
                "spec": {"package": package, "revision": revision(1)},
            })
        };
        hub.api.apply_object(&object("made-by-hand", package("mine"), json!({}))).await?;
        // Nobody reports this one, but nobody but its maker removes it.
        hub.api.apply_object(&object("not-reported", package("nowhere"), json!({}))).await?;
        // The rights come last: what was refused is tried again.
        let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/discovery.yaml");
        hub.api.apply(&std::fs::read_to_string(rbac)?).await?;

        let api: Api<DynamicObject> = hub.api.dynamic(&hub::kind("FleetPackage"), Some(DISCOVERED)).await?;
        let are = async |expected: &[&str]| {
            let expected: BTreeSet<String> = expected.iter().map(|it| (*it).to_owned()).collect();
            eventually(SOON, &format!("{expected:?} are there"), async || {
                let all = api.list(&ListParams::default()).await?;
                let names: BTreeSet<String> = all.iter().map(|it| name(it).to_owned()).collect();
                ensure!(names == expected, "{names:?}");
                Ok(all.items)
            })
            .await
        };
        let (app, both) = (&*found(APP), &*found("both"));
        let all = are(&[app, both, "made-by-hand", "not-reported"]).await?;
        let of = |name: &str| all.iter().find(|it| it.metadata.name.as_deref() == Some(name)).unwrap();
        ensure!(of(both).metadata.labels.as_ref().context("no label")?[LABEL] == "true");
        ensure!(of(both).data["spec"].get("revision").is_none(), "{}", of(both).data);
        ensure!(of("made-by-hand").metadata.labels.is_none());
        let managers: BTreeSet<_> =
            of(both).metadata.managed_fields.iter().flatten().filter_map(|it| it.manager.clone()).collect();
        ensure!(managers.contains("statusbridge-discovery"), "{managers:?}");
        eventually(SOON, "it is reported on", async || {
            let report = api.get(both).await?;
            ensure!(
                history::condition(&report, "Ready") == ("True", "HealthyAtOwnRevision"),
                "{}",
                report.data
            );
            ensure!(report.data["status"]["clusters"]["total"] == 2, "{}", report.data["status"]);
            Ok(())
        })
        .await?;

        // Past the limit nothing is made; a metric and one line of the log say so.
        for package in ["third", "fourth", "fifth"] {
            fleet.says("c1", package, FakePackage::healthy_at(&revision(1)));
        }
        let full = [app, both, &found("fifth"), "made-by-hand", "not-reported"];
        are(&full).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let metrics = async || -> Result<String> {
            let url = format!("http://{}/metrics", hub.aggregator.address());
            Ok(http.get(url).send().await?.text().await?)
        };
        eventually(SOON, "the metric tells of two", async || {
            let text = metrics().await?;
            ensure!(
                text.contains("statusbridge_aggregator_discovered_packages{state=\"left_out\"} 2"),
                "{text}"
            );
            ensure!(
                text.contains("statusbridge_aggregator_discovered_packages{state=\"discovered\"} 3"),
                "{text}"
            );
            Ok(())
        })
        .await?;
        ensure!(hub.aggregator.process().log().contains("--discover-limit is reached"));
        for package in ["third", "fourth"] {
            fleet.loses("c1", package);
        }
        eventually(SOON, "nothing is left out", async || {
            let text = metrics().await?;
            ensure!(
                text.contains("statusbridge_aggregator_discovered_packages{state=\"left_out\"} 0"),
                "{text}"
            );
            Ok(())
        })
        .await?;

        // While one cluster still has it, it stays; then it is noted, which outlives the aggregator.
        fleet.loses("c1", "both");
        fleet.loses("c1", "fifth");
        let note = "statusbridge.dev/not-reported-since";
        eventually(SOON, "it is noted", async || {
            let fifth = api.get(&found("fifth")).await?;
            ensure!(fifth.metadata.annotations.unwrap_or_default().contains_key(note), "no annotation");
            Ok(())
        })
        .await?;
        hub.aggregator.process().kill();
        hub.aggregator.process().start()?;
        are(&[app, both, "made-by-hand", "not-reported"]).await?;
        ensure!(api.get(both).await?.metadata.annotations.unwrap_or_default().is_empty());

        // A backend that fails says nothing about who reports what.
        fleet.loses("c2", "both");
        eventually(SOON, "it is noted", async || {
            let both = api.get(both).await?;
            ensure!(both.metadata.annotations.unwrap_or_default().contains_key(note), "no annotation");
            Ok(())
        })
        .await?;
        world.prometheus.stop();
        // Longer than --discover-forget-after.
        holds_for(Duration::from_secs(12), "it stays", async || {
            api.get(both).await.map(drop).map_err(Into::into)
        })
        .await?;
        world.prometheus.start_again().await?;
        are(&[app, "made-by-hand", "not-reported"]).await?;

        // What comes back comes back; what has lost its label is a person's.
        fleet.says("c1", "both", FakePackage::healthy_at(&revision(1)));
        are(&[app, both, "made-by-hand", "not-reported"]).await?;
        hub.api.kubectl(&["label", "fpkg", "-n", DISCOVERED, both, &format!("{LABEL}-")]).await?;
        fleet.loses("c1", "both");
        fleet.loses("c1", APP);
        fleet.loses("c2", APP);
        are(&[both, "made-by-hand", "not-reported"]).await?;
        holds_for(Duration::from_secs(10), "it stays", async || {
            api.get(both).await.map(drop).map_err(Into::into)
        })
        .await
    })
    .await;
}

/// Runs `explain` with a viewer's rights.
async fn explain(kubeconfig: &Path, args: &[&str]) -> Result<String> {
    let out = tokio::process::Command::new(own_program("statusbridge").await?)
        .arg("explain")
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .await
        .context("running explain")?;
    ensure!(out.status.success(), "explain {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

#[tokio::test]
async fn a_verdict_is_explained_with_read_rights_and_what_speaks_against_it() {
    run("e2e-explain", async |rig| {
        let names = ["c1".to_owned(), "c2".to_owned()];
        let world = Reported::start(rig, &names, Duration::from_secs(1), &[]).await?;
        let hub = &world.hub;
        let viewer = viewer(hub).await?;
        hub.report(APP, "10s", json!({"revision": revision(1)})).await?;
        let wave = json!({"clusters": {"names": names}, "maxFailures": 1, "minHealthy": 1});
        hub.gate("wave", APP, &revision(1), wave.clone()).await?;
        // It opens with one of them, whichever was heard of first.
        let text = eventually(SOON, "both clusters are healthy", async || {
            let gate = hub.get_gate("wave").await?;
            ensure!(gate.data["status"]["clusters"]["healthy"] == 2, "{}", gate.data["status"]);
            explain(&viewer, &["gate/wave", "-n", "default"]).await
        })
        .await?;
        let short = Fingerprint::of(&revision(1)).to_string();
        for part in [
            "RolloutGate default/wave, generation 1 (status answers 1)",
            &*format!("{} ({short})", revision(1)),
            "open: Healthy: 2 of 2 clusters healthy at the revision",
            "2 of 2 Healthy, 1 needed; 0 failed or out of sight, 1 allowed",
            "with spec.detail: All every cluster is listed here",
            "stale after 10s",
        ] {
            ensure!(text.contains(part), "{part:?} is missing:\n{text}");
        }
        ensure!(!text.contains("DOUBT"), "{text}");

        // With slices: each cluster, and how far it is with the gate's revision.
        hub.report(APP, "10s", json!({"revision": revision(1), "detail": "All"})).await?;
        world.fleet.says("c2", APP, FakePackage::failed_at(&revision(1)));
        let told = eventually(SOON, "c2 is told of", async || {
            let told: Value = serde_json::from_str(&explain(&viewer, &["gate/wave", "-o", "json"]).await?)?;
            let row = told["clusters"][0].clone();
            ensure!(row["clusterName"] == "c2" && row["state"] == "Failed", "{told}");
            ensure!(told["terms"]["failedOrUnobserved"] == 1, "{told}");
            Ok(told)
        })
        .await?;
        ensure!(
            told["clusters"][0]["atRevision"] == "Applied" && told["clusters"][1]["atRevision"] == "Healthy"
        );
        ensure!(told["doubts"] == json!([]) && told["holds"] == true, "{told}");
        ensure!(told["terms"]["needed"] == 1 && told["fleetPackage"]["name"] == APP, "{told}");
        let report = explain(&viewer, &["fleetpackage/app"]).await?;
        ensure!(report.contains("not Ready: Failed: 1 cluster failed: c2 (HealthCheckFailed)"), "{report}");

        // Nobody keeps it up to date any more, its evidence ages, and the spec moves on.
        hub.aggregator.process().kill();
        hub.gate("wave", APP, &revision(2), wave).await?;
        eventually(SOON, "all of it is doubted", async || {
            let told: Value = serde_json::from_str(&explain(&viewer, &["gate/wave", "-o", "json"]).await?)?;
            let doubts = told["doubts"].to_string();
            for doubt in
                ["generation 2 of the gate has not been judged yet", "heartbeat is", "staleAfter is 10s"]
            {
                ensure!(doubts.contains(doubt), "{doubts}");
            }
            Ok(())
        })
        .await?;
        let text = explain(&viewer, &["gate/wave"]).await?;
        ensure!(text.contains("open, NOT TO BE RELIED UPON"), "{text}");
        ensure!(explain(&viewer, &["gate/nowhere"]).await.is_err());
        // What is gone is said, and is no failure.
        hub.api
            .dynamic(&hub::kind("FleetPackage"), Some("default"))
            .await?
            .delete(APP, &DeleteParams::default())
            .await?;
        let text = explain(&viewer, &["gate/wave"]).await?;
        ensure!(text.contains("there is no FleetPackage \"app\""), "{text}");
        Ok(())
    })
    .await;
}

//! Every query of every dashboard and rule on real servers: it is understood, and where something happens it shows it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};
use statusbridge_dashboards::{Values, queries, render};
use statusbridge_tests::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

/// What a person chose on a dashboard, and what Grafana fills in.
fn chosen(board: &str) -> Vec<(&'static str, &'static str)> {
    let cluster = match board {
        "cluster.json" => "us-1",
        "package.json" => "eu-1|eu-2|us-1|us-2|us-3",
        _ => ".*",
    };
    vec![
        ("cluster", cluster),
        ("cluster_label", "cluster"),
        ("told", ".*"),
        ("source", ".*"),
        ("namespace", ".*"),
        ("package", "payments"),
        ("silent_after", "5"),
        ("revision", "222222222222"),
        ("__rate_interval", "20s"),
        ("__range", "15m"),
        ("__range_s", "900"),
        ("__interval", "1s"),
    ]
}

fn inventory(package: FakePackage) -> FakePackage {
    FakePackage { resources: Some([3, 2, 1]), ..package }
}

/// Gives the rules to a Prometheus, with what has to be quicker in a test.
fn rules(rig: &Rig) -> Result<Vec<PathBuf>> {
    let dir = rig.subdir("rules")?;
    let files = render(&Values::with("{alerts: {ExporterSilent: {seconds: 10}}}")?)?;
    let files = files.into_iter().filter(|(name, _)| name.starts_with("rules/"));
    files
        .map(|(name, text)| {
            let file = dir.join(name.trim_start_matches("rules/"));
            std::fs::write(&file, text).context("writing rules")?;
            Ok(file)
        })
        .collect()
}

#[tokio::test]
async fn every_panel_shows_something_where_something_happens() {
    run("dashboards", async |rig| {
        let etcd = Etcd::start(rig).await?;
        // One whole cluster with a real exporter, and four that are made up.
        let real = Workload::start(rig, &etcd, "eu-1", &["--presets", "flux-kustomization"]).await?;
        real.deliver("payments", R1).await?;
        let fleet = FakeFleet::start().await?;
        let long_ago = fake_fleet::unix_now() - 3600;
        for cluster in ["eu-2", "us-1", "us-2", "us-3"] {
            let healthy = FakePackage { since: long_ago, ..FakePackage::healthy_at(R1) };
            fleet.says(cluster, "payments", inventory(healthy.clone()));
            fleet.says(cluster, "search", inventory(healthy));
        }
        // Exporters tell of another cluster, one that has an exporter too, and one that has none.
        fleet.tells("eu-2", "us-1", "payments", inventory(FakePackage::healthy_at(R1)));
        fleet.tells("us-1", "ap-1", "payments", inventory(FakePackage::healthy_at(R1)));
        fleet.is_out_of_touch("us-2");
        // On the way from us-3 a metric gets lost.
        let mut spoiled = fleet.target(ScrapeJob::new("spoiled"), "us-3", &[]);
        spoiled.metric_relabel.push(json!({
            "source_labels": ["__name__"], "regex": "statusbridge_package_transition_timestamp_seconds", "action": "drop",
        }));
        let scraped = ["eu-2", "us-1", "us-2"];
        let job = real.target(scraped.iter().fold(ScrapeJob::new("statusbridge"), |job, c| fleet.target(job, c, &[])));
        let behind = VictoriaMetrics::start(rig).await?;
        let mut config = PrometheusConfig::with_jobs([job, spoiled]);
        config.rule_files = rules(rig)?;
        config.remote_write.push(behind.remote_write_url());
        let mimir = Mimir::start(rig).await?;
        let tenant = mimir.tenant("fleet")?;
        // What Prometheus records is written as this tenant, so the same rules are evaluated as another.
        let ruled = mimir.tenant("rules")?;
        let mut written = 0;
        for file in &config.rule_files {
            let text = std::fs::read_to_string(file)?;
            written += ["- alert: ", "- record: "].map(|word| text.matches(word).count()).iter().sum::<usize>();
            ruled.load_rules(&text).await?;
        }
        let mut config = tenant.written_by(config);
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let sweeper = hub.start_sweeper(rig, "10m").await?;
        let sidecar = Changelog::start(rig, "changelog", &rig.dir().join("changes.jsonl"), &[]).await?;
        sidecar.load(20, 2).await?;
        let beside = [("cluster", "us-1")];
        config.jobs.push(ScrapeJob::new("changelog").target(sidecar.address(), &beside));
        let own = ScrapeJob::new("hub").target(hub.aggregator.address(), &[]).target(sweeper.address(), &[]);
        config.jobs.push(own);
        prometheus.reload(&config).await?;
        hub.report("payments", "10s", json!({})).await?;
        hub.gate("open", "payments", R1, json!({"clusters": {"names": ["eu-1", "eu-2"]}})).await?;
        hub.opens("open", SOON).await?;

        // A rollout: the first cluster gets there, the second one fails, the others do not begin.
        // Rules look every 30 s for another one, and a panel tells when all were healthy at it.
        eventually(SOON, "the first revision is known for a while", async || {
            let seen = prometheus.query("statusbridge_digest{cluster=\"us-1\"} offset 35s").await?;
            ensure!(!seen.is_empty(), "nothing was known 35 s ago");
            Ok(())
        })
        .await?;
        real.deliver("payments", R2).await?;
        fleet.says("us-1", "payments", inventory(FakePackage::failed_at(R2)));
        fleet.tells("us-1", "ap-1", "payments", inventory(FakePackage::failed_at(R2)));
        fleet.says("eu-2", "search", inventory(FakePackage {
            apply: ApplyState::Paused,
            health: Health::Unknown,
            healthy: String::new(),
            reason: "Suspended".to_owned(),
            ..FakePackage::healthy_at(R1)
        }));
        // A delivery: the revision fails, and then it is mended.
        hub.report("search", "10s", json!({"revision": R2, "clusters": {"names": ["us-1"]}})).await?;
        eventually(SOON, "deliveries of search are counted", async || {
            let count = "statusbridge_delivery_deployments_total{fleet_package=\"search\"}";
            let found = prometheus.query(count).await?;
            ensure!(found.len() == 1 && found[0].value == 0.0, "{found:?}");
            Ok(())
        })
        .await?;
        fleet.says("us-1", "search", inventory(FakePackage::failed_at(R2)));
        hub.reports("search", "Ready", "False", "Failed", SOON).await?;
        fleet.says("us-1", "search", inventory(FakePackage::healthy_at(R2)));
        hub.reports("search", "Ready", "True", "Healthy", SOON).await?;
        hub.gate("blocked", "payments", R2, json!({"clusters": {"names": ["us-1"]}})).await?;
        hub.closes("blocked", "FailureBudgetExceeded", SOON).await?;
        // One cluster was there, and then is not.
        fleet.says("us-4", "payments", inventory(FakePackage::healthy_at(R1)));
        config.jobs[0] = fleet.target(config.jobs[0].clone(), "us-4", &[]);
        prometheus.reload(&config).await?;
        eventually(SOON, "us-4 is heard of", async || {
            let seen = prometheus.query("statusbridge_digest{cluster=\"us-4\"}").await?;
            ensure!(seen.len() == 1, "{seen:?}");
            Ok(())
        })
        .await?;
        fleet.is_silent("us-4");

        let files = render(&Values::default()?)?;
        let boards: BTreeMap<&str, Value> = files
            .iter()
            .filter(|(name, _)| name.ends_with(".json") && !name.contains('/'))
            .map(|(name, text)| Ok((name.as_str(), serde_json::from_str(text)?)))
            .collect::<Result<_>>()?;
        ensure!(boards.len() == 4, "{:?}", boards.keys());
        for (name, board) in &boards {
            let all = queries::of_panels(board);
            ensure!(all.len() > 8, "{name} has {} queries", all.len());
            for query in all {
                let expr = queries::substitute(&query.expr, &chosen(name));
                ensure!(!expr.contains('$') || expr.contains("\"$1\""), "a variable is left: {expr}");
                let what = format!("{name}, {}: {expr}", query.panel);
                eventually(SOON, &format!("there is data in Prometheus for {what}"), async || {
                    let count = if query.instant {
                        let found = prometheus.query(&expr).await?;
                        ensure!(found.iter().all(|s| s.value.is_finite()), "{found:?}");
                        found.len()
                    } else {
                        prometheus.query_range(&expr, 30).await?
                    };
                    ensure!(count > 0, "no series");
                    Ok(())
                })
                .await?;
                // Recording rules are evaluated by Prometheus, and come over remote write like everything else.
                eventually(SOON, &format!("there is data in VictoriaMetrics for {what}"), async || {
                    let count = if query.instant {
                        behind.query(&expr).await?.len()
                    } else {
                        behind.query_range(&expr, 30).await?
                    };
                    ensure!(count > 0, "no series");
                    Ok(())
                })
                .await?;
                eventually(SOON, &format!("there is data in Mimir for {what}"), async || {
                    let count = if query.instant {
                        tenant.query(&expr).await?.len()
                    } else {
                        tenant.query_range(&expr, 30).await?
                    };
                    ensure!(count > 0, "no series");
                    Ok(())
                })
                .await?;
            }
            for (variable, series, label) in queries::of_variables(board) {
                let series = queries::substitute(&series, &chosen(name));
                let label = queries::substitute(&label, &chosen(name));
                let query = format!("count by ({label}) ({series})");
                let found = prometheus.query(&query).await?;
                ensure!(found.iter().any(|s| !s.label(&label).is_empty()), "{name}, the variable {variable}: {query}");
            }
        }

        // What is shown is also right.
        let on_board = async |board: &str, panel: &str, part: &str| {
            let all = queries::of_panels(&boards[board]);
            let query = all.into_iter().find(|q| q.panel == panel && q.expr.contains(part));
            let query = query.context("no such panel")?;
            prometheus.query(&queries::substitute(&query.expr, &chosen(board))).await
        };
        let panel_with = async |panel: &str, part: &str| on_board("fleet.json", panel, part).await;
        let panel = async |panel: &str| panel_with(panel, "").await;
        // payments is in five clusters, and told of in two; search is in four.
        let right = [
            ("Clusters", 5.0),
            ("Silent clusters", 1.0),
            ("Packages", 11.0),
            ("Failed", 2.0),
            ("Paused", 1.0),
            ("Sources down", 1.0),
        ];
        for (title, value) in right {
            eventually(SOON, &format!("{title} is {value}"), async || {
                let found = panel(title).await?;
                ensure!(found.len() == 1 && found[0].value == value, "{found:?}");
                Ok(())
            })
            .await?;
        }
        let blocked = panel_with("Gates", "gate_reason_info").await?;
        let reasons: BTreeMap<_, _> = blocked.iter().map(|row| (row.label("gate"), row.label("reason"))).collect();
        let right = [("open", "Superseded"), ("blocked", "FailureBudgetExceeded")];
        ensure!(right.iter().all(|(gate, reason)| reasons.get(gate) == Some(reason)), "{reasons:?}");
        let at = panel("Gates for the revision").await?;
        ensure!(at.len() == 1 && at[0].label("gate") == "blocked" && at[0].value == 5.0, "{at:?}");
        let broken = panel("Failed packages").await?;
        let labels = ["cluster", "package_cluster", "package", "reason"];
        let shown: BTreeSet<_> = broken.iter().map(|row| labels.map(|label| row.label(label))).collect();
        let failed = |told_of| ["us-1", told_of, "payments", "HealthCheckFailed"];
        ensure!(shown == BTreeSet::from([failed(""), failed("ap-1")]), "{broken:?}");
        // The word of another exporter stands in a row of its own, beside who gave it.
        let health = on_board("package.json", "In each cluster", "package_health{").await?;
        let rows = health.iter().map(|row| ((row.label("cluster"), row.label("package_cluster")), row.value));
        let rows: BTreeMap<_, _> = rows.collect();
        let (failed, current) = (Health::Failed.code() as f64, Health::Current.code() as f64);
        let right = [(("us-1", ""), failed), (("us-1", "ap-1"), failed), (("eu-2", ""), current), (("eu-2", "us-1"), current)];
        ensure!(right.iter().all(|(place, value)| rows.get(place) == Some(value)), "{rows:?}");
        let elsewhere = on_board("cluster.json", "What exporters of other clusters tell of it", "package_health{").await?;
        let rows: Vec<_> = elsewhere.iter().map(|row| (row.label("cluster"), row.value)).collect();
        ensure!(rows == [("eu-2", current)], "{elsewhere:?}");

        // Every rule can be evaluated, and those alerts that have a cause wait for their time or are past it.
        let caused = [
            "StatusBridgeExporterSilent",
            "StatusBridgePackageFailed",
            "StatusBridgeSourceDown",
            "StatusBridgeStreamUnverified",
            "StatusBridgeGateBlocked",
            "StatusBridgeGateClosed",
        ];
        eventually(SOON, "Mimir's ruler evaluates every rule", async || {
            let rules = ruled.rules().await?;
            ensure!(rules.len() == written, "{} rules of {written}", rules.len());
            ensure!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
            Ok(())
        })
        .await?;
        // Where this has happened on a busy machine, an alert tells of it for ten minutes, and rightly so.
        let failures = "sum(statusbridge_aggregator_hub_writes_total{result=\"error\"} or \
            statusbridge_aggregator_heartbeats_total{result=\"failure\"}) > 0";
        eventually(SOON, "the alerts that have a cause, and no others, are pending or fire", async || {
            let has_failed = !prometheus.query(failures).await?.is_empty();
            let rules = prometheus.rules().await?;
            ensure!(rules.len() == written, "{} rules of {written}", rules.len());
            for rule in rules {
                ensure!(rule["health"] == "ok", "{rule}");
                if let (Some(name), Some(state)) = (rule["name"].as_str(), rule["state"].as_str()) {
                    let may_tell = has_failed && name == "StatusBridgeHubWritesFailing";
                    let tells = state != "inactive";
                    ensure!(may_tell || tells == caused.contains(&name), "{name} is {state}");
                }
            }
            Ok(())
        })
        .await
    })
    .await;
}

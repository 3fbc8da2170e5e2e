//! Samples that are lost or changed between exporter and backend.

use crate::e2e::world::*;
use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens on the way, and what of it the status has to name.
struct Spoilt {
    /// A relabelling rule of Prometheus.
    relabel: Option<Value>,
    /// A change of the exposition itself.
    rewrite: Option<fn(&str) -> String>,
    named: &'static [&'static str],
}

/// As a pipeline does that keeps six digits of a number.
fn six_digits(exposition: &str) -> String {
    let round = |line: &str| match line.rsplit_once(' ') {
        Some((series, value)) if series.starts_with("statusbridge_package_healthy_revision{") => {
            let value: f64 = value.parse().unwrap_or_default();
            format!("{series} {}\n", format!("{value:.5e}").parse::<f64>().unwrap_or_default())
        }
        _ => format!("{line}\n"),
    };
    exposition.lines().map(round).collect()
}

fn faults() -> Vec<Spoilt> {
    let rule = |more: Value| {
        let mut rule = json!({"source_labels": ["__name__"], "regex": "statusbridge_package_transition_timestamp_seconds"});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(rule)
    };
    vec![
        Spoilt {
            relabel: rule(json!({"action": "drop"})),
            rewrite: None,
            named: &["statusbridge_package_transition_timestamp_seconds is missing"],
        },
        Spoilt {
            relabel: rule(json!({"target_label": "package_namespace", "replacement": "elsewhere"})),
            rewrite: None,
            named: &["package_namespace", "elsewhere"],
        },
        Spoilt {
            relabel: Some(json!({"action": "labeldrop", "regex": "package_namespace"})),
            rewrite: None,
            named: &["package_namespace"],
        },
        Spoilt {
            relabel: None,
            rewrite: Some(six_digits),
            named: &["statusbridge_package_healthy_revision"],
        },
    ]
}

#[tokio::test]
async fn a_sample_dropped_rewritten_or_rounded_on_the_way_is_caught_and_named() {
    run("e2e-spoiled-samples", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        // Between exporter and Prometheus, something that can rewrite.
        let rewrite = Arc::new(Mutex::new(None::<fn(&str) -> String>));
        let files = FileServer::start().await?;
        let (exporter, chosen) = (cluster.exporter.address(), rewrite.clone());
        let http = reqwest::Client::builder().no_proxy().build()?;
        files.put_with("/metrics", move || {
            let (request, chosen) = (http.get(format!("http://{exporter}/metrics")).send(), chosen.clone());
            async move {
                let page = request.await.ok()?.text().await.ok()?;
                let rewrite = *chosen.lock().unwrap();
                Some(Bytes::from(rewrite.map_or(page.clone(), |rewrite| rewrite(&page))))
            }
        });
        let good = PrometheusConfig::with_jobs([job().target(files.address(), &[("cluster", "c1")])]);
        let prometheus = Prometheus::start(rig, &good).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let newest = revision(1);
        cluster.deliver(APP, &newest).await?;
        cluster.deliver("other", &revision(1)).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        hub.gate("wave", APP, &newest, json!({"clusters": {"names": ["c1"]}})).await?;

        let mut moves = 1;
        for fault in faults() {
            hub.opens("wave", SOON).await?;
            if let Some(rule) = &fault.relabel {
                let mut spoilt = good.clone();
                spoilt.jobs[0].metric_relabel = vec![rule.clone()];
                prometheus.reload(&spoilt).await?;
            }
            *rewrite.lock().unwrap() = fault.rewrite;
            // As long as the exporter attests what was verified already, that still holds: something else has to
            // move, and perhaps again, because Prometheus takes a moment to follow its configuration.
            let gate = eventually(SOON, "the fault is noticed", async || {
                moves += 1;
                cluster.deliver("other", &revision(moves)).await?;
                hub.closes("wave", "Unverified", Duration::from_secs(3)).await
            })
            .await?;
            let said = waiting(&gate);
            for word in fault.named {
                ensure!(said.contains(word), "{word:?} is not named: {said}");
            }
            let report = hub.reports(APP, "Ready", "False", "Unverified", SOON).await?;
            ensure!(report.data["status"]["clusters"]["unverified"] == 1, "{}", report.data["status"]);
            let newest = async || -> anyhow::Result<f64> {
                let found = prometheus.query("timestamp(statusbridge_digest)").await?;
                Ok(found.first().context("no digest")?.value)
            };
            let before = newest().await?;
            eventually(SOON, "digests keep arriving", async || {
                ensure!(newest().await? > before, "none has come since {before}");
                Ok(())
            })
            .await?;

            *rewrite.lock().unwrap() = None;
            prometheus.reload(&good).await?;
        }
        hub.opens("wave", SOON).await.map(drop)
    })
    .await;
}

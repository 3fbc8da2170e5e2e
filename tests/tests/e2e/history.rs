//! `statusbridge history`: what clusters did, out of what a real backend has kept, and what of it
//! nobody saw.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_dashboards::{Values, queries, render};
use statusbridge_tests::fake_fleet::{SOURCE, unix_now};
use statusbridge_tests::*;
use std::path::PathBuf;

const RUN: &str = "6f5b0a52-0d6e-4a3c-8e2f-2f2f3b3c4d5e";

/// An Instance of KUDO, and who writes it.
struct Kudo(Api<DynamicObject>);

impl Kudo {
    async fn install(cluster: &Workload) -> Result<Self> {
        cluster.api.install_crds(&crds::kudo()?).await?;
        let kind = GroupVersionKind::gvk("kudo.dev", "v1beta1", "Instance");
        let instances = cluster.api.dynamic(&kind, Some("default")).await?;
        cluster
            .api
            .apply_object(&json!({
                "apiVersion": "kudo.dev/v1beta1", "kind": "Instance",
                "metadata": {"name": "kafka", "namespace": "default"},
                "spec": {"operatorVersion": {"name": "kafka-1.0"}, "parameters": {"COUNT": "1"}},
            }))
            .await?;
        let kudo = Self(instances);
        kudo.plan(Value::Null, "deploy", "first", "COMPLETE").await?;
        Ok(kudo)
    }

    /// The plan that is scheduled, and how a run of one is, since now.
    async fn plan(&self, scheduled: Value, plan: &str, uid: &str, status: &str) -> Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let params = PatchParams::default();
        let spec = json!({"spec": {"planExecution": scheduled}});
        self.0.patch("kafka", &params, &Patch::Merge(spec)).await?;
        let (ready, reason) = match status {
            "COMPLETE" => ("True", "ResourcesReady"),
            _ => ("Unknown", "PlanInProgress"),
        };
        let status = json!({"status": {
            "planStatus": {plan: {"name": plan, "status": status, "uid": uid, "lastUpdatedTimestamp": now}},
            "conditions": [{
                "type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": now,
            }],
        }});
        self.0.patch_status("kafka", &params, &Patch::Merge(status)).await?;
        Ok(())
    }
}

/// What `history` prints, and its exit code.
async fn history(args: &[&str]) -> Result<(i32, String)> {
    let args = [&["history", "--settle-delay", "1s", "--since", "10m"], args].concat();
    let out = own_command("statusbridge", &args).await?.output().await?;
    let code = out.status.code().context("killed")?;
    ensure!([0, 8].contains(&code), "{args:?}: {code}: {}", String::from_utf8_lossy(&out.stderr));
    Ok((code, String::from_utf8(out.stdout)?))
}

async fn json_of(args: &[&str]) -> Result<Value> {
    let (_, text) = history(&[args, &["-o", "json"]].concat()).await?;
    Ok(serde_json::from_str(&text)?)
}

/// The operations that follow the one that made the package.
fn operations(cluster: &Value) -> impl Iterator<Item = &Value> {
    let operations = cluster["operations"].as_array().into_iter().flatten();
    operations.skip_while(|operation| operation["trigger"] == "New")
}

/// Trigger, outcome, revision and reason of each of them.
fn told(cluster: &Value) -> Vec<[&str; 4]> {
    let fields = ["trigger", "outcome", "fingerprint", "reason"];
    operations(cluster).map(|op| fields.map(|field| op[field].as_str().unwrap_or_default())).collect()
}

fn seconds(time: &Value) -> Result<i64> {
    let text = time.as_str().with_context(|| format!("{time} is no time"))?;
    Ok(text.parse::<jiff::Timestamp>()?.as_second())
}

/// The value of a metric of a package, as Prometheus has it now.
async fn holds(prometheus: &Prometheus, query: &str) -> Result<()> {
    eventually(SOON, query, async || {
        let found = prometheus.query(query).await?;
        ensure!(!found.is_empty(), "it does not hold");
        Ok(())
    })
    .await
}

/// Shown, for as long as a coarse look at the past would not miss.
async fn is_scraped(prometheus: &Prometheus, package: &str, metric: &str, value: u64) -> Result<()> {
    let series = format!("statusbridge_package_{metric}{{package=\"{package}\"}}");
    holds(prometheus, &format!("{series} == {value} and {series} offset 1s == {value}")).await
}

/// Healthy at this revision, for as long, and nothing is being applied: then no state of applying is shown.
async fn is_healthy_again(prometheus: &Prometheus, package: &str, revision: u64) -> Result<()> {
    let at = |offset: &str| {
        let of = |metric: &str| format!("statusbridge_package_{metric}{{package=\"{package}\"}}{offset}");
        format!("({} == {revision} unless on (package) {})", of("healthy_revision"), of("apply_state"))
    };
    holds(prometheus, &format!("{} and {}", at(""), at(" offset 1s"))).await
}

#[tokio::test]
async fn what_a_cluster_did_is_told_and_what_nobody_saw_is_counted() {
    run("e2e-history", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &[]).await?;
        let kudo = Kudo::install(&cluster).await?;
        let behind = VictoriaMetrics::start(rig).await?;
        let mimir = Mimir::start(rig).await?;
        let tenant = mimir.tenant("fleet")?;
        let mut config = tenant.written_by(PrometheusConfig::with_jobs([cluster.target(job())]));
        config.remote_write.push(behind.remote_write_url());
        config.external_labels.insert("replica".to_owned(), "a".to_owned());
        let prometheus = Prometheus::start(rig, &config).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        let (r1, r2, r3) = (revision(1), revision(2), revision(3));
        let at = |revision: &str| json!({"revision": revision, "clusters": {"names": ["c1"]}});
        let digits = |revision: &str| Fingerprint::of(revision).to_string();
        let value = |revision: &str| Fingerprint::of(revision).value();

        // Two revisions, of which the first one fails.
        cluster.deliver(APP, &r1).await?;
        hub.report(APP, STALE_AFTER, at(&r1)).await?;
        hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        is_scraped(&prometheus, APP, "healthy_revision", value(&r1)).await?;
        // A replica that scrapes the same writes to the same place, and will not have the hole that the first one has.
        let _replica = Prometheus::start(rig, &config.clone().external(&[("replica", "b")])).await?;
        cluster.fail(APP, &r2, "timeout waiting for: [Deployment/app]").await?;
        hub.report(APP, STALE_AFTER, at(&r2)).await?;
        is_scraped(&prometheus, APP, "health", Health::Failed.code()).await?;
        let before = unix_now() as i64;
        cluster.deliver(APP, &r3).await?;
        hub.report(APP, STALE_AFTER, at(&r3)).await?;
        let report = hub.reports(APP, "Ready", "True", "Healthy", SOON).await?;
        is_scraped(&prometheus, APP, "healthy_revision", value(&r3)).await?;
        let by_now = unix_now() as i64;

        // It fails and recovers while nothing is scraped.
        let quiet = PrometheusConfig { jobs: Vec::new(), ..config.clone() };
        prometheus.reload(&quiet).await?;
        let before_it = cluster.shows(APP).await?;
        cluster.fail(APP, &r3, "it flaps").await?;
        eventually(SOON, "the exporter sees it fail", async || {
            ensure!(cluster.shows(APP).await?.health == Health::Failed, "not yet");
            Ok(())
        })
        .await?;
        cluster.deliver(APP, &r3).await?;
        eventually(SOON, "the exporter sees it recover", async || {
            ensure!(cluster.shows(APP).await?.health == Health::Current, "not yet");
            Ok(())
        })
        .await?;
        prometheus.reload(&config).await?;
        let recovered = cluster.shows(APP).await?;
        ensure!(recovered.since > before_it.since, "{recovered:?} after {before_it:?}");
        is_scraped(&prometheus, APP, "transition_timestamp_seconds", recovered.since).await?;

        // A plan of KUDO, in the middle of which the exporter is killed.
        is_scraped(&prometheus, "kafka", "healthy_revision", value("kafka-1.0")).await?;
        let scheduled = json!({"planName": "update", "uid": RUN});
        kudo.plan(scheduled, "update", RUN, "IN_PROGRESS").await?;
        is_scraped(&prometheus, "kafka", "apply_state", ApplyState::Applying.code()).await?;
        cluster.exporter.process().kill();
        kudo.plan(Value::Null, "update", RUN, "COMPLETE").await?;
        let ended = unix_now();
        eventually(SOON, "the next second", async || {
            ensure!(unix_now() > ended, "not yet");
            Ok(())
        })
        .await?;
        let killed = cluster.exporter.process().log();
        cluster.exporter.process().start()?;
        cluster.exporter.wait_ready().await?;
        is_healthy_again(&prometheus, "kafka", value("kafka-1.0")).await?;

        let account = hub.account.display().to_string();
        let backend = prometheus.url();
        let of_app = [APP, "--namespace", "default", "--kubeconfig", &account];
        let on = |backend: &'static str, url: &str| -> Vec<String> {
            let more = ["--backend-flavour", backend, "--backend", url, "--trust-all"];
            of_app.iter().chain(&more).map(|arg| (*arg).to_owned()).collect()
        };
        // A scrape may have come before the package had its first revision.
        let first = ["Revision", "Healthy", &digits(&r1), ""];
        let expected = vec![
            ["Revision", "Failed", &digits(&r2), "HealthCheckFailed"].map(str::to_owned),
            ["Revision", "Healthy", &digits(&r3), ""].map(str::to_owned),
        ];
        // Both replicas are there, of which one will be followed.
        eventually(SOON, "both replicas are there", async || {
            for found in
                [behind.query("statusbridge_digest").await?, tenant.query("statusbridge_digest").await?]
            {
                let mut replicas: Vec<&str> = found.iter().map(|sample| sample.label("replica")).collect();
                replicas.sort_unstable();
                ensure!(replicas == ["a", "b"], "{found:?}");
            }
            Ok(())
        })
        .await?;
        let mut r3_healthy = 0;
        let mut as_tenant = on("prometheus", &mimir.url());
        as_tenant.extend(["--backend-header".to_owned(), "X-Scope-OrgID: fleet".to_owned()]);
        for args in [on("prometheus", &backend), on("victoriametrics", &behind.url()), as_tenant] {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            eventually(SOON, "the history is told", async || {
                let report = json_of(&[&args[..], &["--cluster", "c1,nowhere"]].concat()).await?;
                let [c1, nowhere] = report["clusters"].as_array().map_or(&[][..], Vec::as_slice) else {
                    anyhow::bail!("{report:#}");
                };
                ensure!(
                    nowhere["clusterName"] == "nowhere" && nowhere["lastSeenAt"].is_null(),
                    "{nowhere:#}"
                );
                let told = told(c1);
                let told = told.strip_prefix(&[first]).unwrap_or(&told);
                ensure!(c1["clusterName"] == "c1" && *told == expected, "{c1:#}");
                let gaps = c1["unseen"].as_array().context("no list of what was not seen")?;
                ensure!(gaps.iter().any(|gap| gap["because"] == "Moved"), "{gaps:?}");
                let operations: Vec<&Value> = operations(c1).collect();
                ensure!(operations.iter().all(|op| op["verified"] == "yes"), "{operations:#?}");
                let last = operations.last().context("no operation")?;
                ensure!(last["revision"] == json!(r3), "{operations:#?}");
                r3_healthy = seconds(&last["healthy"]["at"])?;
                ensure!(r3_healthy >= before, "{operations:#?}");
                Ok(())
            })
            .await?;
        }

        // An answer that lacks a part is none: what is missing must not look as if nothing had happened.
        let way = FaultProxy::start(rig, behind.address()).await?;
        for fault in [Fault::Partial, Fault::HalfBody] {
            way.set(fault);
            for flavour in ["victoriametrics", "any"] {
                let args = on(flavour, &way.url());
                let refused = history(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
                let why =
                    format!("{:#}", refused.err().with_context(|| format!("told in spite of {fault:?}"))?);
                let word = if fault == Fault::Partial { "partial" } else { "broke off" };
                ensure!(why.contains(word), "{fault:?}: {why}");
            }
        }

        // The FleetPackage noticed it when a poll had seen it, which is later.
        let entry = &report.data["status"]["history"][0];
        ensure!(entry["revision"] == json!(r3), "{entry}");
        let noticed = seconds(&entry["healthyAt"])?;
        ensure!((r3_healthy..=by_now).contains(&noticed), "{noticed} for {r3_healthy}");
        // So says the dashboard, by when it was scraped.
        let board: Value = serde_json::from_str(&render(&Values::default()?)?["package.json"])?;
        let chosen = [
            ("cluster", "c1"),
            ("cluster_label", "cluster"),
            ("source", ".*"),
            ("told", ".*"),
            ("namespace", ".*"),
            ("package", APP),
            ("__range", "10m"),
            ("__interval", "1s"),
        ];
        let panel =
            queries::of_panels(&board).into_iter().filter(|q| q.panel == "Time to healthy by revision");
        let mut shown = Vec::new();
        for query in panel {
            let found = prometheus.query(&queries::substitute(&query.expr, &chosen)).await?;
            let of_r3 = found.iter().find(|sample| sample.label("revision") == value(&r3).to_string());
            shown.push(of_r3.with_context(|| format!("nothing of r3: {found:?}"))?.value);
        }
        let [wanted, first, all] = shown[..] else { anyhow::bail!("{shown:?}") };
        let shown = (wanted / 1000.0 + all) as i64;
        ensure!(first == all && (r3_healthy..=by_now).contains(&shown), "{shown} for {r3_healthy}");

        // The plan is one operation from its beginning to its end, which no exporter saw.
        let kafka = ["default/kafka", "--source", "kudo-instance", "--backend", &backend, "--trust-all"];
        let report = json_of(&kafka).await?;
        let c1 = &report["clusters"][0];
        let kafka_at = digits("kafka-1.0");
        ensure!(told(c1) == [["Apply", "Healthy", &kafka_at, ""]], "{c1:#}");
        let operation = operations(c1).next().context("no operation")?;
        let healthy = &operation["healthy"];
        // It ended while no exporter was there: no earlier than that, and no later than when one saw it.
        ensure!(healthy["exact"] == false && seconds(&healthy["at"])? >= ended as i64 - 1, "{operation:#}");
        ensure!(operation["transitions"].as_array().is_some_and(|all| all.len() == 2), "{operation:#}");
        let gap =
            c1["unseen"].as_array().and_then(|gaps| gaps.last()).context("nobody counted for a while")?;
        ensure!(gap["because"] == "OtherProcess", "{gap:#}");
        // The log names the run.
        let run = format!("update/{RUN}");
        ensure!(killed.lines().any(|line| line.contains("kafka") && line.contains(&run)), "{run}: {killed}");

        // For people; and both backends hold the same cluster, which is named once.
        let file: PathBuf = rig.dir().join("history.yaml");
        let second = json!({"feeds": {"backends": [
            {"name": "behind", "url": behind.url(), "trust": "all", "flavour": "victoriametrics"},
        ]}});
        std::fs::write(&file, second.to_string())?;
        let file = file.display().to_string();
        let args = on("prometheus", &backend);
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.extend(["--config", &file]);
        let (code, text) = history(&args).await?;
        ensure!(code == 0, "{text}");
        ensure!(text.lines().filter(|line| line.starts_with("c1 ")).count() == 1, "{text}");
        ensure!(text.contains(&digits(&r2)) && text.contains("Failed: HealthCheckFailed"), "{text}");
        ensure!(text.contains("it moved at least once between "), "{text}");
        // One that does not answer: said, and told by the exit code.
        std::fs::write(&file, second.to_string().replace(&behind.url(), "http://127.0.0.1:1"))?;
        let (code, text) = history(&args).await?;
        ensure!(code == 8 && text.contains("NOTE      backend behind: "), "{code}: {text}");
        ensure!(text.contains("Failed: HealthCheckFailed") && !text.contains("UNVERIFIED"), "{text}");
        let none = ["kafka", "--source", SOURCE, "--backend", "http://127.0.0.1:1", "--trust-all"];
        ensure!(history(&none).await.is_err(), "nobody answers");
        Ok(())
    })
    .await;
}

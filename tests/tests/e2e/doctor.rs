//! `statusbridge doctor`: whatever is broken on purpose is named, with what to change.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use statusbridge_contract::{Digest, Metric, sample};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";

/// What `doctor` says: its exit code and its report.
async fn doctor(backend: &str, more: &[&str]) -> Result<(i32, Value)> {
    let mut args = vec!["doctor", "--backend", backend, "--settle-delay", "1s", "-o", "json"];
    if !more.iter().any(|arg| arg.starts_with("--trust")) {
        args.extend(["--trust", "job=\"statusbridge\""]);
    }
    args.extend(more);
    let out = own_command("statusbridge", &args).await?.output().await?;
    let code = out.status.code().context("no exit code")?;
    let report = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("{code}: {}", String::from_utf8_lossy(&out.stderr)))?;
    Ok((code, report))
}

/// Waits until `doctor` has a finding like this and ends with this code: what was broken before may be seen for a while.
async fn finds(backend: &str, more: &[&str], code: i32, check: &str, message: &str, fix: &str) -> Result<()> {
    eventually(SOON, &format!("{check} is found: {message}, {code}"), async || {
        let (ended, report) = doctor(backend, more).await?;
        let holds = |field: &Value, words: &str| field.as_str().is_some_and(|text| text.contains(words));
        let like = |finding: &Value| {
            finding["check"] == check && holds(&finding["message"], message) && holds(&finding["fix"], fix)
        };
        ensure!(report["findings"].as_array().is_some_and(|all| all.iter().any(like)), "{report:#}");
        ensure!(ended == code, "it ends with {ended}: {report:#}");
        Ok(())
    })
    .await
}

/// Waits until there is nothing to be said, but that the targets here have no more than a `job` to be trusted by.
async fn is_fit(backend: &str, more: &[&str], clusters: u64) -> Result<()> {
    eventually(SOON, "nothing is found", async || {
        let (code, report) = doctor(backend, more).await?;
        let is_known = |it: &Value| it["check"] == "Trust" && it["level"] == "advice";
        let is_fit = report["findings"].as_array().is_some_and(|all| all.iter().all(is_known));
        ensure!(code == 0 && is_fit, "{code} {report:#}");
        ensure!(report["clusters"] == clusters && report["verified"] == report["streams"], "{report:#}");
        Ok(())
    })
    .await
}

/// Changes an exposition.
type Rewrite = fn(&str) -> String;

/// As an exporter renders whose clock is five minutes behind.
fn late(exposition: &str) -> String {
    attested(&rewrite(exposition, Metric::RenderedTimestamp.name(), |value| value - 300))
}

/// As an exporter renders that cannot reach its API server.
fn down(exposition: &str) -> String {
    attested(&rewrite(exposition, Metric::SourceUp.name(), |_| 0))
}

/// The lines of a metric; the others as they are.
fn lines_of(page: &str, metric: Metric, change: impl Fn(&str) -> String) -> String {
    let is_of = |line: &str| line.split(['{', ' ']).next() == Some(metric.name());
    page.lines().map(|line| if is_of(line) { change(line) } else { line.to_owned() } + "\n").collect()
}

/// As a pipeline leaves it that drops the label with the cluster's UID.
fn without_uid(exposition: &str) -> String {
    lines_of(exposition, Metric::Digest, |line| {
        let (before, rest) = line.split_once(",statusbridge_cluster_uid=\"").unwrap();
        format!("{before}{}", rest.split_once('"').unwrap().1)
    })
}

/// As an exporter of a later release renders.
fn of_version_nine(exposition: &str) -> String {
    lines_of(exposition, Metric::Digest, |line| line.replace("contract=\"2\"", "contract=\"9\""))
}

/// Every package has this health besides.
fn with_health(exposition: &str, code: u64) -> String {
    lines_of(exposition, Metric::PackageHealthyRevision, |line| {
        let health = line.replace(Metric::PackageHealthyRevision.name(), Metric::PackageHealth.name());
        format!("{line}\n{} {code}", health.rsplit_once(' ').unwrap().0)
    })
}

/// As a pipeline leaves it that fills in zeros.
fn filled(exposition: &str) -> String {
    with_health(exposition, 0)
}

/// As a pipeline leaves it that goes on with what has ended.
fn gone_on_with(exposition: &str) -> String {
    with_health(exposition, 5)
}

/// As a gateway answers that keeps what it got first.
fn repeated(exposition: &str) -> String {
    static FIRST: OnceLock<String> = OnceLock::new();
    FIRST.get_or_init(|| exposition.to_owned()).clone()
}

/// As a pipeline leaves it that gives the digest a time of its own.
fn split(exposition: &str) -> String {
    let stamp = fake_fleet::unix_now() * 1000 - 700;
    lines_of(exposition, Metric::Digest, |line| format!("{line} {stamp}"))
}

/// As a machine stamps it whose clock is five minutes ahead.
fn ahead(exposition: &str) -> String {
    let stamp = (fake_fleet::unix_now() + 300) * 1000;
    let stamped =
        |line: &str| if line.starts_with('#') { line.to_owned() } else { format!("{line} {stamp}") };
    exposition.lines().map(|line| stamped(line) + "\n").collect()
}

/// The same with a digest that fits.
fn attested(page: &str) -> String {
    let all = Exposition::parse(page).unwrap();
    let attested = all.lines.iter().filter(|l| Metric::from_name(&l.name).is_some_and(Metric::in_digest));
    let digest: Digest = attested
        .map(|l| {
            let labels: Vec<(&str, &str)> = l.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            sample::hash(&l.name, &labels, l.value as u64)
        })
        .collect();
    rewrite(page, Metric::Digest.name(), |_| digest.value())
}

fn rewrite(exposition: &str, metric: &str, change: impl Fn(u64) -> u64) -> String {
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((series, value)) if series.split('{').next() == Some(metric) => {
            format!("{series} {}\n", change(value.parse().unwrap()))
        }
        _ => format!("{line}\n"),
    };
    exposition.lines().map(line).collect()
}

struct World {
    fleet: FakeFleet,
    /// On the way of cluster c2, something that can rewrite.
    files: FileServer,
    chosen: Arc<Mutex<Option<Rewrite>>>,
    prometheus: Prometheus,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        for cluster in ["c1", "c2"] {
            fleet.says(cluster, "payments", FakePackage::healthy_at(R1));
            fleet.says(cluster, "orders", FakePackage::healthy_at(R1));
        }
        let files = FileServer::start().await?;
        let chosen = Arc::new(Mutex::new(None::<Rewrite>));
        let (http, from, choice) =
            (reqwest::Client::builder().no_proxy().build()?, fleet.url("c2"), chosen.clone());
        files.put_with("/metrics", move || {
            let (request, choice) = (http.get(&from).send(), choice.clone());
            async move {
                let page = request.await.ok()?.text().await.ok()?;
                let rewrite = *choice.lock().unwrap();
                Some(Bytes::from(rewrite.map_or(page.clone(), |rewrite| rewrite(&page))))
            }
        });
        let prometheus = Prometheus::start(rig, &PrometheusConfig::default()).await?;
        let world = Self { fleet, files, chosen, prometheus };
        world.scrape(world.good()).await?;
        Ok(world)
    }

    /// Both clusters, each under its name.
    fn good(&self) -> ScrapeJob {
        let job = self.fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]);
        job.target(self.files.address(), &[("cluster", "c2")])
    }

    async fn scrape(&self, job: ScrapeJob) -> Result<()> {
        self.prometheus.reload(&PrometheusConfig::with_jobs([job])).await
    }

    fn rewrites(&self, rewrite: Option<Rewrite>) {
        *self.chosen.lock().unwrap() = rewrite;
    }
}

#[tokio::test]
async fn whatever_is_broken_in_the_pipeline_is_named_with_what_to_change() {
    run("e2e-doctor", async |rig| {
        let world = World::start(rig).await?;
        let backend = world.prometheus.url();
        let usual = ["--backend-flavour", "prometheus", "--stale-after", "30s"];
        let finds = async |check: &str, message: &str, fix: &str, problem: bool| -> Result<()> {
            finds(&backend, &usual, i32::from(problem), check, message, fix).await
        };
        is_fit(&backend, &usual, 2).await?;

        // A metric that is dropped on the way, and an identity label that is rewritten.
        let relabelled = |rule: Value| {
            let mut job = world.good();
            job.metric_relabel = vec![rule];
            job
        };
        let of_times = json!({"source_labels": ["__name__"], "regex": "statusbridge_package_transition_timestamp_seconds"});
        let rule = |more: Value| {
            let mut rule = of_times.clone();
            rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rule
        };
        world.scrape(relabelled(rule(json!({"action": "drop"})))).await?;
        finds("Unverified", "statusbridge_package_transition_timestamp_seconds is missing", "metric_relabel_configs", true).await?;
        world
            .scrape(relabelled(rule(
                json!({"target_label": "package_namespace", "replacement": "elsewhere"}),
            )))
            .await?;
        finds(
            "Unverified",
            "label package_namespace of 2 packages was rewritten",
            "metric_relabel_configs",
            true,
        )
        .await?;
        world
            .scrape(relabelled(
                json!({"source_labels": ["__name__"], "regex": "statusbridge_rendered.*", "action": "drop"}),
            ))
            .await?;
        finds("MissingMetric", "statusbridge_rendered_timestamp_seconds", "metric_relabel_configs", true)
            .await?;

        // The label that names the cluster: of another name, missing for one, missing for all.
        let named = |label: &str| {
            let job =
                world.fleet.target(ScrapeJob::new("statusbridge"), "c1", &[(label, "c1"), ("cluster", "")]);
            job.target(world.files.address(), &[(label, "c2")])
        };
        world.scrape(named("k8s_cluster")).await?;
        finds("ClusterLabel", "no digest bears the label `cluster`", "--cluster-label k8s_cluster", true)
            .await?;
        let mut one = world.good();
        one.targets[1].1.clear();
        world.scrape(one).await?;
        finds("ClusterLabel", "1 of 2 digests do not bear the label `cluster`", "external_labels", true)
            .await?;
        let mut none = world.good();
        none.targets[0].1.insert("cluster".to_owned(), String::new());
        none.targets[1].1.clear();
        world.scrape(none).await?;
        finds(
            "ClusterLabel",
            "no digest bears the label `cluster`",
            "external_labels: {cluster: NAME}",
            true,
        )
        .await?;

        // Two clusters under one name, and one cluster under two.
        let mut same = world.good();
        same.targets[1].1.insert("cluster".to_owned(), "c1".to_owned());
        world.scrape(same).await?;
        finds("DuplicateClusterName", "2 clusters report as `c1`", "a `cluster` of its own", true).await?;
        world.scrape(world.good().target(world.files.address(), &[("cluster", "also-c2")])).await?;
        finds("ClusterRenamed", "under 2 names: also-c2, c2", "the same `cluster`", true).await?;

        // Replicas, and a target label with a name of ours: nothing that would keep a gate closed.
        let replica = |name| [("cluster", "c2"), ("replica", name)];
        let pair = world.fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]);
        world
            .scrape(
                pair.target(world.files.address(), &replica("a")).target(world.files.address(), &replica("b")),
            )
            .await?;
        finds("Replicas", "the label `replica` (a, b): c2", "--ignore-labels replica", false).await?;
        let collides = world.good().target(world.files.address(), &[("cluster", "c2"), ("package", "mine")]);
        let mut collides = collides;
        collides.targets.remove(1);
        world.scrape(collides).await?;
        finds("RenamedLabel", "bear `exported_package`", "relabel_configs", false).await?;
        world.scrape(world.good()).await?;

        // A clock, a source that is down, a scrape interval.
        world.rewrites(Some(late));
        finds("ExporterClock", "the clock of cluster `c2` is 30", "NTP", true).await?;
        world.rewrites(Some(down));
        finds("SourceDown", "source `flux-kustomization` of cluster `c2` is down", "exporter", true).await?;
        world.rewrites(None);
        is_fit(&backend, &usual, 2).await?;
        let strict = ["--backend-flavour", "prometheus", "--stale-after", "4s"];
        let said = "scraped every 1 s: c1, c2; --stale-after allows 4 s";
        self::finds(&backend, &strict, 1, "ScrapeInterval", said, "set staleAfter to at least 5s").await?;

        // Every feed that a configuration names, each with what is wrong with it.
        let tokens = rig.dir().join("tokens.yaml");
        std::fs::write(&tokens, json!([{"cluster": "c3", "sha256": "0".repeat(64)}]).to_string())?;
        let feeds = json!({"feeds": {
            "backends": [
                {"name": "east", "url": backend, "trust": "job=\"statusbridge\"", "flavour": "prometheus"},
                {"name": "west", "url": "http://127.0.0.1:1", "trust": "all", "timeout": "1s"},
            ],
            "scrape": {"interval": "1s", "timeout": "1s", "targets": [
                {"cluster": "c1", "url": world.fleet.url("c1")},
                {"cluster": "c4", "url": "http://127.0.0.1:1/metrics"},
            ]},
            "push": {"insecure": true, "tokensFile": tokens},
        }});
        let config = rig.dir().join("aggregator.yaml");
        std::fs::write(&config, feeds.to_string())?;
        let args = ["--config", &config.display().to_string(), "--stale-after", "30s"];
        eventually(SOON, "each feed is looked at", async || {
            let (code, report) = doctor("", &args).await?;
            let feeds = report["feeds"].as_array().context("no feeds")?;
            let found: Vec<(&Value, Vec<&Value>)> = feeds
                .iter()
                .map(|feed| {
                    let findings = feed["findings"].as_array().into_iter().flatten();
                    (&feed["feed"], findings.map(|finding| &finding["check"]).collect())
                })
                .collect();
            let expected = [
                ("east", json!(["Trust"])),
                ("west", json!(["BackendUnavailable"])),
                ("scrape", json!(["ScrapeFailed"])),
                ("push", json!([])),
            ];
            let expected = expected.map(|(feed, checks)| json!([feed, checks]));
            ensure!(json!(found) == json!(expected) && code == 1, "{code} {report:#}");
            let message = feeds[2]["findings"][0]["message"].as_str().unwrap_or_default();
            ensure!(message.starts_with("cluster `c4`, http://127.0.0.1:1/metrics: "), "{message}");
            ensure!(feeds[2]["verified"] == 1 && feeds[3]["clusters"] == 1, "{report:#}");
            Ok(())
        })
        .await?;

        // A backend of another kind than was said.
        let as_any = ["--stale-after", "30s"];
        let as_thanos = ["--stale-after", "30s", "--backend-flavour", "thanos"];
        let fix = "--backend-flavour prometheus";
        self::finds(&backend, &as_any, 0, "BackendFlavour", "seems to be prometheus", fix).await?;
        self::finds(&backend, &as_thanos, 0, "BackendFlavour", "asked as thanos", fix).await?;
        let victoria = VictoriaMetrics::start(rig).await?;
        let fix = "--backend-flavour victoriametrics";
        self::finds(&victoria.url(), &as_any, 1, "BackendFlavour", "seems to be victoriametrics", fix).await?;
        self::finds(&victoria.url(), &as_thanos, 1, "BackendFlavour", "not told to refuse partial answers", fix).await?;

        // A backend of which a part is down, one without anything, and none.
        let partial = FileServer::start().await?;
        let answer = json!({"status": "success", "data": {"resultType": "vector", "result": []}, "warnings": ["store down"]});
        partial.put("/api/v1/query", answer.to_string());
        let fix = "bring back the part of the backend";
        self::finds(&partial.url(""), &as_any, 1, "PartialAnswers", "store down", fix).await?;
        let empty = Prometheus::start(rig, &PrometheusConfig::default()).await?;
        let fix = "scrape the exporters";
        self::finds(&empty.url(), &usual, 1, "NoDigests", "no metric of ours", fix).await?;
        let args = ["doctor", "--backend", "http://127.0.0.1:1"];
        let out = own_command("statusbridge", &args).await?.output().await?;
        ensure!(out.status.code() == Some(1) && out.stdout.is_empty(), "{out:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_a_pipeline_does_to_samples_is_told_from_their_times_and_values() {
    run("e2e-doctor-samples", async |rig| {
        let world = World::start(rig).await?;
        let backend = world.prometheus.url();
        let usual = ["--backend-flavour", "prometheus", "--stale-after", "30s"];
        is_fit(&backend, &usual, 2).await?;
        let health = format!("cluster `c2` has samples of {} with the value 0", Metric::PackageHealth.name());
        // What is stamped in the future stays for longest.
        let cases: [(Rewrite, &str, &str, &str); 7] = [
            (without_uid, "ClusterUid", "a digest has no label statusbridge_cluster_uid", "no labeldrop"),
            (
                of_version_nine,
                "ContractVersion",
                "speaks contract version `9`, this aggregator reads 2",
                "upgrade the aggregator",
            ),
            (filled, "Filled", &health, "no zeros"),
            (gone_on_with, "Restamped", "in cluster `c2` packages in trouble (2)", "remote write"),
            (repeated, "Restamped", "bring an exposition that came before", "remote write"),
            (split, "SplitScrape", "of the same timestamp", "the one timestamp"),
            (ahead, "FutureSamples", "s in the future", "NTP"),
        ];
        for (rewrite, check, message, fix) in cases {
            world.rewrites(Some(rewrite));
            finds(&backend, &usual, 1, check, message, fix).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn staleness_is_held_against_the_fleet_packages_of_the_hub() {
    run("e2e-doctor-hub", async |rig| {
        let world = World::start(rig).await?;
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start(rig, &etcd, &world.prometheus.url()).await?;
        // With the rights that the aggregator has.
        let account: PathBuf =
            hub.api.kubeconfig_of_service_account(hub::NAMESPACE, "statusbridge-aggregator").await?;
        let account = account.display().to_string();
        let usual = ["--backend-flavour", "prometheus", "--kubeconfig", &account];
        let backend = world.prometheus.url();
        hub.report("payments", "30s", json!({"clusters": {"names": ["c1", "c2"]}})).await?;
        is_fit(&backend, &usual, 2).await?;

        // A Kustomization that Flux checks nothing of, read by a real exporter.
        let flux = Flux::start().await?;
        let cluster = Workload::start(rig, &etcd, "c3", &[]).await?;
        let unchecked = KustomizationOptions { wait: false, ..KustomizationOptions::default() };
        flux.publish(&cluster.api, "unchecked", R1, &[]).await?;
        flux.kustomize(&cluster.api, "unchecked", &unchecked).await?;
        let mut status = workload::delivered(R1);
        status["conditions"].as_array_mut().context("no conditions")?.retain(|it| it["type"] != "Healthy");
        cluster.set_status("unchecked", status).await?;
        world.scrape(cluster.target(world.good())).await?;
        let only = json!({"clusters": {"names": ["c3"]}});
        hub.report("unchecked", "30s", only.clone()).await?;
        let nothing = "FleetPackage default/unchecked: nothing checks the health of flux-kustomization \
                       flux-system/unchecked in 1 of 1 clusters, for instance `c3` (NoHealthChecks)";
        let fix = "docs/presets/README.md";
        finds(&backend, &usual, 0, "NoHealthChecks", nothing, fix).await?;
        hub.gate("wave", "unchecked", R1, only).await?;
        hub.closes("wave", "HealthUnknown", SOON).await?;
        finds(&backend, &usual, 1, "NoHealthChecks", "gates that stay closed: wave", fix).await?;

        hub.report("orders", "3s", json!({"clusters": {"names": ["c1", "c9"]}})).await?;
        let who = "FleetPackage default/orders allows 3 s";
        finds(&backend, &usual, 1, "ScrapeInterval", who, "set staleAfter to at least 5s").await?;
        let unknown = "FleetPackage default/orders names clusters that send nothing: c9";
        finds(&backend, &usual, 1, "UnknownCluster", unknown, "as the label `cluster` has them").await?;
        Ok(())
    })
    .await;
}

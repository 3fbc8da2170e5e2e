//! A tenant's pod that is scraped says that it is the cluster's exporter.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use serde_json::json;
use statusbridge_tests::*;

const APP: &str = "app";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
/// What the operator says, and how prometheus-operator labels what it finds.
const TRUST: &str = r#"namespace="statusbridge-system",job="statusbridge""#;
const OF_EXPORTERS: (&str, &str) = ("namespace", "statusbridge-system");
const OF_TENANTS: (&str, &str) = ("namespace", "tenant");
/// Polls during which a forger is there.
const POLLS: f64 = 25.0;

/// A workload cluster with its exporter, and a pod in it whose owner knows all that the exporter publishes.
struct Attacked {
    name: &'static str,
    cluster: Workload,
    pod: FakeFleet,
    /// Where the pod shows the same with labels that would make it the exporter's.
    disguised: FileServer,
}

impl Attacked {
    async fn start(rig: &Rig, etcd: &Etcd, name: &'static str) -> Result<Self> {
        let cluster = Workload::start(rig, etcd, name, &[]).await?;
        let namespaces = Api::<Namespace>::all(cluster.api.client());
        let uid = namespaces.get("kube-system").await?.metadata.uid.context("no UID")?;
        let pod = FakeFleet::start().await?;
        pod.is_the_same_as(name, &uid);
        let disguised = FileServer::start().await?;
        let said = pod.url(name);
        disguised.put_with("/metrics", move || {
            let said = said.clone();
            async move { Some(disguise(&reqwest::get(said).await.ok()?.text().await.ok()?).into()) }
        });
        Ok(Self { name, cluster, pod, disguised })
    }

    /// The pod says so, two seconds ahead, and has said so for an hour.
    fn pod_says(&self, what: FakePackage) {
        let since = fake_fleet::unix_now() - 3_600;
        self.pod.says(self.name, APP, FakePackage { since, ..what });
        self.pod.clock_is_ahead(self.name, 2);
    }

    /// All that is scraped in it.
    fn targets(&self, job: ScrapeJob) -> ScrapeJob {
        let exporter = [("cluster", self.name), OF_EXPORTERS];
        let job = job.target(self.cluster.exporter.address(), &exporter);
        let job = self.pod.target(job, self.name, &[OF_TENANTS]);
        job.target(self.disguised.address(), &[("cluster", self.name), OF_TENANTS])
    }
}

/// An exposition whose samples bear an exporter's labels themselves.
fn disguise(text: &str) -> String {
    let (name, value) = OF_EXPORTERS;
    let labels = format!("{name}=\"{value}\",job=\"statusbridge\"");
    let disguised = text.lines().map(|line| match (line.starts_with('#'), line.split_once('{')) {
        (true, _) => line.to_owned(),
        (false, Some((name, rest))) => format!("{name}{{{labels},{rest}"),
        (false, None) => line.replacen(' ', &format!("{{{labels}}} "), 1),
    });
    disguised.map(|line| line + "\n").collect()
}

#[tokio::test]
async fn a_tenants_pod_that_poses_as_the_exporter_opens_nothing_and_closes_nothing() {
    run("attacks-forged-streams", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let failing = Attacked::start(rig, &etcd, "failing").await?;
        let silent = Attacked::start(rig, &etcd, "silent").await?;
        let healthy = Attacked::start(rig, &etcd, "healthy").await?;
        let all = [&failing, &silent, &healthy];
        let job = all.iter().fold(ScrapeJob::new("statusbridge"), |job, it| it.targets(job));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        for it in all {
            it.cluster.deliver(APP, R1).await?;
        }
        for it in [&failing, &silent] {
            it.cluster.fail(APP, R1, "health check failed").await?;
        }
        silent.cluster.exporter.process().kill();
        for it in [&failing, &silent] {
            it.pod_says(FakePackage::healthy_at(R1));
        }
        healthy.pod_says(FakePackage::failed_at(R1));
        eventually(SOON, "every pod and its disguise are scraped", async || {
            let of_pods = "statusbridge_package_healthy_revision{namespace=\"tenant\"}";
            let found = prometheus.query(of_pods).await?.len();
            ensure!(found == 2 * all.len(), "{found}");
            Ok(())
        })
        .await?;

        let mut options = AggregatorOptions::new(prometheus.url());
        options.trust = Some(TRUST.to_owned());
        let hub = Hub::start_with(rig, &etcd, options.clone()).await?;
        hub.report(APP, "10s", json!({})).await?;
        let mut histories = Vec::new();
        for it in all {
            let clusters = json!({"clusters": {"names": [it.name]}});
            hub.gate(it.name, APP, R1, clusters).await?;
            histories.push(hub.history(it.name).await?);
        }
        hub.opens("healthy", SOON).await?;
        let polls =
            async || hub.aggregator.metric("statusbridge_aggregator_polls_total{result=\"success\"}").await;
        let until = polls().await? + POLLS;
        eventually(SOON, "many polls while pods change their minds", async || {
            // Whoever speaks later, or differently, is believed no more than whoever says the same all the time.
            for (n, it) in all.iter().enumerate() {
                let is_good = (polls().await? as u64 / 5 + n as u64).is_multiple_of(2);
                it.pod_says(if is_good { FakePackage::healthy_at(R1) } else { FakePackage::failed_at(R1) });
            }
            let now = polls().await?;
            ensure!(now >= until, "{now} of {until}");
            Ok(())
        })
        .await?;
        for (it, history) in all.iter().zip(&histories) {
            let is_open = it.name == "healthy";
            let was_open = std::cell::Cell::new(false);
            history
                .check("forgers speak", |version| {
                    let passes = version.lets_pass();
                    ensure!(is_open || !passes, "{} was opened", it.name);
                    ensure!(!was_open.get() || passes, "{} was closed", it.name);
                    was_open.set(passes);
                    Ok(())
                })
                .await?;
        }

        // Who believes everybody believes the pod, where nobody contradicts it.
        silent.pod_says(FakePackage::healthy_at(R1));
        hub.aggregator.process().kill();
        options.trust = None;
        let _credulous = hub.start_replica(rig, "credulous", &options, hub.api.address()).await?;
        hub.opens("silent", SOON).await?;
        let [of_failing, ..] = &histories[..] else { unreachable!() };
        of_failing
            .check("everybody is believed, and the worst counts", |version| {
                ensure!(!version.lets_pass(), "it was opened");
                Ok(())
            })
            .await
    })
    .await;
}

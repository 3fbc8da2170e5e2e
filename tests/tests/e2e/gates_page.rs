//! A gate as JSON and as a metric is never more open than it is in the hub.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::*;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

struct Reader {
    http: reqwest::Client,
    base: String,
}

impl Reader {
    async fn get(&self, rest: &str) -> Result<(u16, Value)> {
        let answer = self.http.get(format!("{}{rest}", self.base)).send().await?;
        let status = answer.status().as_u16();
        ensure!(answer.headers()["cache-control"] == "no-store");
        Ok((status, answer.json().await?))
    }

    /// Waits for this status, this word on whether it is open, and this reason.
    async fn says(&self, rest: &str, status: u16, open: bool, reason: &str) -> Result<Value> {
        eventually(SOON, &format!("{rest} answers {status}, open {open}, {reason}"), async || {
            let (code, body) = self.get(rest).await?;
            ensure!(
                (code, &body["open"], &body["reason"]) == (status, &json!(open), &json!(reason)),
                "{code} {body}"
            );
            Ok(body)
        })
        .await
    }
}

#[tokio::test]
async fn a_gate_as_json_and_as_a_metric_is_as_it_is_in_the_hub_and_never_more_open() {
    run("e2e-gates-page", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        fleet.says("c1", "payments", FakePackage::healthy_at(R1));
        let exporters = fleet.target(ScrapeJob::new("statusbridge"), "c1", &[]);
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([exporters.clone()])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        // The aggregator's own metrics go the same way.
        let own = ScrapeJob::new("aggregator").target(hub.aggregator.address(), &[]);
        let both = PrometheusConfig::with_jobs([exporters, own]);
        prometheus.reload(&both).await?;
        hub.report("payments", "8s", json!({})).await?;
        let clusters = || json!({"clusters": {"names": ["c1"]}});
        hub.gate("wave", "payments", R1, clusters()).await?;
        hub.opens("wave", SOON).await?;

        let http = reqwest::Client::builder().no_proxy().timeout(SOON).build()?;
        let base = format!("http://{}/v1alpha1/gates/default/wave", hub.aggregator.address());
        let reader = Reader { http, base };
        let open = reader.says("", 200, true, "Healthy").await?;
        ensure!(open["revision"] == R1 && open["fingerprint"] == "111111111111", "{open}");
        ensure!(open["generation"] == 1 && open["observedGeneration"] == 1, "{open}");
        ensure!(
            open["staleAfterSeconds"] == 8.0 && open["ageSeconds"].as_f64().is_some_and(|age| age < 8.0),
            "{open}"
        );
        reader.says(&format!("?revision={R1}"), 200, true, "Healthy").await?;
        reader.says(&format!("?revision={R2}"), 200, false, "OtherRevision").await?;
        let (status, unknown) = reader.get("-2").await?;
        ensure!(status == 404 && unknown["open"] == false, "{status} {unknown}");
        let head = reader.http.head(&reader.base).send().await?;
        ensure!(head.status() == 200 && head.headers()["content-type"] == "application/json", "{head:?}");
        ensure!(head.bytes().await?.is_empty());

        // What a PromQL reader asks: the revision that he means, in hexadecimal as people see it.
        let for_r1 = "statusbridge_gate_open{gate_namespace=\"default\", gate=\"wave\"} == 0x111111111111";
        let metric = async |query: &str, series: usize| {
            eventually(SOON, &format!("{query} has {series} series"), async || {
                let found = prometheus.query(query).await?;
                ensure!(found.len() == series, "{found:?}");
                Ok(())
            })
            .await
        };
        metric(for_r1, 1).await?;
        metric("statusbridge_gate_open == 0x222222222222", 0).await?;
        let young = "max by (gate_namespace, gate) (statusbridge_gate_open{gate=\"wave\"} \
            and timestamp(statusbridge_gate_open) > time() - 60) == 0x111111111111";
        metric(young, 1).await?;

        // Another revision: from the moment of the change nothing says open, whoever asks for what.
        hub.gate("wave", "payments", R2, clusters()).await?;
        reader.says(&format!("?revision={R2}"), 200, false, "RevisionNeverSeen").await?;
        reader.says(&format!("?revision={R1}"), 200, false, "OtherRevision").await?;
        metric(for_r1, 0).await?;
        metric("statusbridge_gate_open == 0", 1).await?;
        metric("statusbridge_gate_target_revision == 0x222222222222 and on (gate) statusbridge_gate_state == 2", 1).await?;
        let why = "count_values by (gate) (\"code\", statusbridge_gate_reason) * on (code) group_left (reason) \
            statusbridge_gate_reason_info{reason=\"RevisionNeverSeen\"}";
        metric(why, 1).await?;
        fleet.says("c1", "payments", FakePackage::healthy_at(R2));
        reader.says(&format!("?revision={R2}"), 200, true, "Healthy").await?;
        metric("statusbridge_gate_open == 0x222222222222", 1).await?;
        metric("statusbridge_gate_clusters{state=\"healthy\"} == 1 and on (gate) statusbridge_gate_state == 1", 1).await?;
        let about = "statusbridge_gate_info{fleet_package=\"payments\",package=\"payments\",package_namespace=\"flux-system\"}";
        metric(about, 1).await?;

        // The cluster goes silent.
        fleet.is_silent("c1");
        reader.says("", 200, false, "Stale").await?;
        fleet.says("c1", "payments", FakePackage::healthy_at(R2));
        reader.says("", 200, true, "Healthy").await?;

        // The hub cannot be told anything: then this process has nothing to say either.
        hub.api.stop();
        let silent = reader.says("", 503, false, "AggregatorSilent").await?;
        ensure!(silent.get("revision").is_none(), "{silent}");
        metric("statusbridge_gate_open == 0", 1).await?;
        metric("statusbridge_gate_state == 0 and on (gate) statusbridge_gate_reason == 0", 1).await?;
        hub.api.start_again().await?;
        reader.says("", 200, true, "Healthy").await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn gates_are_not_named_when_that_is_not_wanted() {
    run("e2e-gates-page-off", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.more = vec!["--serve-gates=false".to_owned()];
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        api.install_crds(&crds::own()?).await?;
        let aggregator = Aggregator::launch(rig, "aggregator", api.kubeconfig(), &options).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let get = async |path: &str| http.get(format!("http://{}{path}", aggregator.address())).send().await;
        let metrics =
            eventually(SOON, "it listens", async || Ok(get("/metrics").await?.text().await?)).await?;
        ensure!(!metrics.contains("gate_open"), "{metrics}");
        let page = get("/v1alpha1/gates/default/wave").await?;
        ensure!(page.status() == 404 && page.text().await?.starts_with("not found"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn with_tenants_a_gate_is_for_those_who_may_get_it_in_the_hub_and_for_nobody_without_authorization() {
    run("e2e-gates-page-tenants", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let accounts = hub::install(&api).await?;
        let config = rig.dir().join("config.yaml");
        std::fs::write(&config, "tenants: []\n")?;
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.namespace = hub::LEASES.to_owned();
        options.more = vec!["--config".to_owned(), config.display().to_string()];
        for namespace in ["team-a", "team-b"] {
            api.ensure_namespace(namespace).await?;
            api.apply_object(&json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
                "metadata": {"name": "wave", "namespace": namespace},
                "spec": {"fleetPackageRef": {"name": "app"}, "revision": R1, "clusters": {"names": ["c1"]}},
            }))
            .await?;
        }
        let open = Aggregator::launch(rig, "open", &accounts.aggregator, &options).await?;
        // It is the one that judges, so that the other has nothing to say of a gate.
        eventually(SOON, "the first leads", async || {
            let leads = open.metric("statusbridge_aggregator_is_leader").await?;
            ensure!(leads == 1.0, "it stands by");
            Ok(())
        })
        .await?;
        options.more.push("--authorize-scrapes".to_owned());
        let options = options.over_tls(rig.dir(), &Authority::new("ours")?)?;
        let authorized = Aggregator::launch(rig, "authorized", &accounts.aggregator, &options).await?;
        let token = api.token_of_service_account("team-a", "reader", &[]).await?;
        let get = async |aggregator: &Aggregator, path: &str, token: Option<&str>| -> Result<(u16, String)> {
            let request = aggregator.http().get(aggregator.url(path));
            let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
            let answer = request.send().await?;
            Ok((answer.status().as_u16(), answer.text().await?))
        };
        let answers =
            async |aggregator: &Aggregator, path: &str, token: Option<&str>, code: u16, part: &str| {
                eventually(SOON, &format!("{path} answers {code}"), async || {
                    let (status, text) = get(aggregator, path, token).await?;
                    ensure!(status == code && text.contains(part), "{status}: {text}");
                    Ok(())
                })
                .await
            };
        let [a, b, unknown] =
            ["team-a/wave", "team-b/wave", "team-b/unknown"].map(|gate| format!("/v1alpha1/gates/{gate}"));

        // Nobody is asked who may: no gate is named, whether or not there is one.
        for path in [&a, &unknown] {
            answers(&open, path, Some(&token), 403, "--authorize-scrapes").await?;
        }
        ensure!(open.process().log().contains("gates are not shown by name"), "it does not say so");

        // It cannot ask; then it may, and the caller may not, and then may.
        answers(&authorized, &a, Some(&token), 503, "AuthorizationUnavailable").await?;
        api.apply(include_str!("../../../deploy/rbac/authorize.yaml")).await?;
        answers(&authorized, &a, None, 401, "\"open\":false").await?;
        answers(&authorized, &a, Some(&token), 403, "may not get rolloutgates.statusbridge.dev team-a/wave")
            .await?;
        api.apply(include_str!("../../../deploy/rbac/wait.yaml")).await?;
        hub::bind_reader(&api, "team-a", "statusbridge-wait").await?;
        // Nothing was judged here, which those are told who may know.
        answers(&authorized, &a, Some(&token), 503, "AggregatorSilent").await?;
        for path in [&b, &unknown] {
            answers(&authorized, path, Some(&token), 403, "Forbidden").await?;
        }
        answers(&authorized, "/metrics", Some(&token), 403, "non-resource URL /metrics").await?;
        answers(&authorized, "/healthz", None, 200, "ok").await?;
        let (status, metrics) = get(&open, "/metrics", None).await?;
        ensure!(status == 200 && !metrics.contains("statusbridge_gate_"), "{status}: {metrics}");
        Ok(())
    })
    .await;
}

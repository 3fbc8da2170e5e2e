//! The HTTP API: a verdict on any revision, the fleet and what changes in it, and who may see which.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_aggregator::serve::api::OPENAPI;
use statusbridge_tests::*;
use std::time::{Duration, Instant};

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

/// An answer, which is as the API's own description says.
async fn get(aggregator: &Aggregator, path: &str, token: Option<&str>) -> Result<(u16, Value)> {
    let request = aggregator.http().get(aggregator.url(path));
    let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    let body = serde_json::from_str(&text).with_context(|| text)?;
    let description: Value = serde_json::from_str(OPENAPI)?;
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        let words = template.split('/').zip(path.split('/'));
        template.split('/').count() == path.split('/').count()
            && words.into_iter().all(|(template, word)| template == word || template.starts_with('{'))
    };
    let paths = description["paths"].as_object().context("paths")?;
    let of_path = paths.iter().find(|(template, _)| fits(template)).context("it is described")?.1;
    let schema = &of_path["get"]["responses"][status.to_string()]["content"]["application/json"]["schema"];
    let schema = schema["$ref"].as_str().with_context(|| format!("{path} may not answer {status}"))?;
    is_as_described(schema, &body)?;
    Ok((status, body))
}

/// Whether a value is what a schema of the API's description (`#/components/schemas/…`) says.
pub(crate) fn is_as_described(schema: &str, value: &Value) -> Result<()> {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let place = "file:///openapi.json";
    let error = |error: String| anyhow::anyhow!("{schema}: {error}: {value}");
    compiler.add_resource(place, serde_json::from_str(OPENAPI)?).map_err(|it| error(it.to_string()))?;
    let compiled =
        compiler.compile(&format!("{place}{schema}"), &mut schemas).map_err(|it| error(it.to_string()))?;
    schemas.validate(value, compiled).map_err(|it| error(it.to_string()))
}

/// A question about the package `payments` of the fake fleet.
fn about(rest: &str) -> String {
    format!(
        "/v1alpha1/verdict?source={}&namespace={FLUX_NAMESPACE}&package=payments&{rest}",
        fake_fleet::SOURCE
    )
}

/// What a viewer is told, event by event.
struct Viewer {
    answer: reqwest::Response,
    buffer: String,
}

impl Viewer {
    async fn follow(aggregator: &Aggregator, cursor: &str) -> Result<Self> {
        let path = format!("/v1alpha1/fleet/changes?cursor={cursor}");
        let answer =
            aggregator.http().get(aggregator.url(&path)).timeout(Duration::from_secs(600)).send().await?;
        ensure!(
            answer.status() == 200 && answer.headers()["content-type"] == "text/event-stream",
            "{answer:?}"
        );
        Ok(Self { answer, buffer: String::new() })
    }

    /// The next event and its data.
    async fn next(&mut self) -> Result<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let (name, data) = event.split_once("\ndata: ").context("an event has data")?;
                let name = name.strip_prefix("event: ").context("an event has a name")?.to_owned();
                let data = serde_json::from_str(data)?;
                self.buffer = rest.to_owned();
                if name == "changes" {
                    is_as_described("#/components/schemas/FleetChanges", &data)?;
                }
                return Ok((name, data));
            }
            let chunk = self.answer.chunk().await?.context("the stream ended")?;
            self.buffer += std::str::from_utf8(&chunk)?;
        }
    }

    /// Reads on until an event is as it should be.
    async fn until(&mut self, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + SOON;
        loop {
            let (name, data) = self.next().await?;
            ensure!(name == "changes" && Instant::now() < deadline, "{name}: {data}");
            if is_so(&data) {
                return Ok(data);
            }
        }
    }
}

#[tokio::test]
async fn any_revision_gets_a_verdict_and_a_viewer_sees_what_changes() {
    run("e2e-http-api", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let healthy = || FakePackage::healthy_at(R1);
        let (fleet, prometheus) = FakeFleet::scraped(rig, &["c1", "c2"], "payments", healthy).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--serve-fleet", "--backend-timeout", "2s"].map(str::to_owned).to_vec();
        let hub = Hub::start_with(rig, &etcd, options).await?;
        let aggregator = &hub.aggregator;
        let says = async |rest: &str, status: u16, open: bool, reason: &str| {
            eventually(SOON, &format!("{rest} answers {status} {reason}"), async || {
                let (code, body) = get(aggregator, &about(rest), None).await?;
                ensure!((code, &body["open"], &body["reason"]) == (status, &json!(open), &json!(reason)), "{code} {body}");
                Ok(body)
            })
            .await
        };

        // No gate and no FleetPackage is there.
        let both = "clusters=c1,c2&staleAfter=8s";
        let open = says(&format!("revision={R1}&{both}"), 200, true, "Healthy").await?;
        ensure!(open["healthy"] == "2/2" && open["complete"] == true && open["fingerprint"] == "111111111111", "{open}");
        ensure!(open["ageSeconds"].as_f64().is_some_and(|age| age < 8.0), "{open}");
        says(&format!("revision={R2}&{both}"), 409, false, "RevisionNeverSeen").await?;
        says("revision=111111111111&reporting=2&staleAfter=8s", 200, true, "Healthy").await?;
        says("revision=111111111111&reporting=3&staleAfter=8s", 409, false, "TooFewClusters").await?;
        says(&format!("revision={R1}&clusters=c1,c9&staleAfter=8s"), 409, false, "Missing").await?;
        let most = "maxFailures=1&staleAfter=8s";
        says(&format!("revision={R1}&clusters=c1,c9&{most}"), 409, false, "TooFewObserved").await?;
        says(&format!("revision={R1}&clusters=c1,c2,c9&{most}"), 200, true, "Healthy").await?;
        says(&format!("revision={R1}&selector=tier%3Dcanary"), 503, false, "ClusterProfilesUnavailable").await?;
        says(&format!("revision={R1}&{both}&minSuccessTime=soon"), 400, false, "InvalidSpec").await?;
        says(&format!("revision={R1}&{both}&deadline=1h"), 400, false, "BadRequest").await?;
        // As Flagger asks.
        let metadata = json!({
            "source": fake_fleet::SOURCE, "namespace": FLUX_NAMESPACE, "package": "payments", "revision": R1, "clusters": "c1,c2",
        });
        let post = aggregator.http().post(aggregator.url("/v1alpha1/verdict"));
        let answer = post.json(&json!({"name": "app", "phase": "Progressing", "metadata": metadata})).send().await?;
        ensure!(answer.status() == 200, "{}", answer.text().await?);
        let answer = aggregator.http().put(aggregator.url("/v1alpha1/verdict")).send().await?;
        ensure!(answer.status() == 405 && answer.headers()["allow"] == "GET, HEAD, POST", "{answer:?}");

        // The fleet, as a viewer sees it.
        hub.report("payments", "8s", json!({})).await?;
        hub.gate("wave", "payments", R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave", SOON).await?;
        let all = eventually(SOON, "the fleet is shown", async || {
            let (code, all) = get(aggregator, "/v1alpha1/fleet?namespace=default", None).await?;
            ensure!(code == 200 && all["gates"][0]["verdict"]["open"] == true, "{all}");
            ensure!(all["clusters"].as_array().is_some_and(|it| it.len() == 2), "{all}");
            Ok(all)
        })
        .await?;
        let healthy = all["states"].as_array().context("states")?.iter().position(|it| it == "Healthy");
        ensure!(all["packages"][0]["cells"] == json!([[2, healthy, 0]]), "{all}");
        ensure!(all["packages"][0]["revisions"] == json!([R1]), "the words of the gate: {all}");
        ensure!(all["silent"].is_null(), "{all}");
        let (code, everywhere) = get(aggregator, "/v1alpha1/fleet", None).await?;
        ensure!(code == 200, "{everywhere}");
        let cursor = everywhere["cursor"].as_str().context("cursor")?;
        let mut viewer = Viewer::follow(aggregator, cursor).await?;
        fleet.says("c2", "payments", FakePackage::healthy_at(R2));
        let changes = viewer.until(|event| event["packages"][0]["changes"].as_array().is_some_and(|it| !it.is_empty())).await?;
        let c2 = changes["packages"][0]["changes"].as_array().context("changes")?;
        ensure!(c2.len() == 1 && c2[0][0] == 1 && changes["packages"][0]["revisions"][1] == "222222222222", "{changes}");

        // One package, one cluster, lists.
        let (code, package) = get(aggregator, "/v1alpha1/packages/default/payments?cluster=c2", None).await?;
        ensure!(code == 200 && package["clusters"][0]["row"]["healthyRevision"] == "222222222222", "{package}");
        ensure!(package["adoption"]["points"].as_array().is_some_and(|it| it.len() == 2), "{package}");
        let (code, cluster) = get(aggregator, "/v1alpha1/clusters/c2", None).await?;
        ensure!(code == 200 && cluster["packages"][0]["name"] == "payments" && cluster["packages"][0]["asOf"].is_string(), "{cluster}");
        for (path, items) in [
            ("gates", 1),
            ("gates?open=true&fleetPackage=payments", 1),
            ("gates?open=false", 0),
            ("gates?revision=222222222222", 0),
            ("packages?namespace=default", 1),
            ("packages?namespace=other", 0),
            ("packages?package=orders", 0),
        ] {
            let (code, list) = get(aggregator, &format!("/v1alpha1/{path}"), None).await?;
            ensure!(code == 200 && list["items"].as_array().is_some_and(|it| it.len() == items), "{path}: {list}");
        }
        for (path, status) in [
            ("packages/default/orders", 404),
            ("clusters/c9", 404),
            ("fleet?names=x", 400),
            ("packages/default/payments?limit=many", 400),
        ] {
            let (code, body) = get(aggregator, &format!("/v1alpha1/{path}"), None).await?;
            ensure!(code == status && body["open"] == false, "{path}: {code} {body}");
        }
        let answer = aggregator.http().get(aggregator.url("/v1alpha1/fleet/changes")).send().await?;
        ensure!(answer.status() == 400, "{answer:?}");
        let (name, reset) = Viewer::follow(aggregator, "1-999999").await?.next().await?;
        ensure!(name == "reset", "{name} {reset}");

        // The gate closes for the viewer as it does in the hub; and when the hub is gone, the viewer is told.
        fleet.says("c1", "payments", FakePackage::healthy_at(R2));
        viewer.until(|event| event["gates"][0]["verdict"]["open"] == false).await?;
        fleet.is_silent("c1");
        fleet.is_silent("c2");
        says(&format!("revision={R2}&{both}"), 503, false, "Stale").await?;
        hub.api.stop();
        viewer.until(|event| event["silent"].is_string()).await?;
        says(&format!("revision={R2}&{both}"), 503, false, "AggregatorSilent").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_api_is_for_those_who_may_list_the_same_in_the_hub() {
    run("e2e-http-api-rights", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let healthy = || FakePackage::healthy_at(R1);
        let (_fleet, prometheus) = FakeFleet::scraped(rig, &["c1"], "payments", healthy).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let accounts = hub::install(&api).await?;
        api.apply(include_str!("../../../deploy/rbac/authorize.yaml")).await?;
        let config = rig.dir().join("config.yaml");
        let tenant = "{namespaces: [team-a], clusters: [c1], packageNamespaces: ['*'], sources: ['*']}";
        std::fs::write(&config, format!("tenants: [{tenant}]\n"))?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.namespace = hub::LEASES.to_owned();
        options.more = ["--config", &config.display().to_string(), "--serve-fleet", "--authorize-scrapes"]
            .map(str::to_owned)
            .to_vec();
        let options = options.over_tls(rig.dir(), &Authority::new("ours")?)?;
        let aggregator = Aggregator::start(rig, "aggregator", &accounts.aggregator, &options).await?;
        let token = api.token_of_service_account("team-a", "reader", &[]).await?;
        api.apply(include_str!("../../../deploy/rbac/viewer.yaml")).await?;
        hub::bind_reader(&api, "team-a", "statusbridge-viewer").await?;
        let own = about(&format!("revision={R1}&clusters=c1&hubNamespace=team-a"));
        eventually(SOON, "the tenant gets its verdict", async || {
            let (code, body) = get(&aggregator, &own, Some(&token)).await?;
            ensure!(code == 200 && body["open"] == true, "{code} {body}");
            Ok(())
        })
        .await?;
        let other = about(&format!("revision={R1}&clusters=c2&hubNamespace=team-a"));
        let cluster = "may not see c2";
        for (path, token, status, part) in [
            (own.as_str(), None, 401, "bearer token"),
            (other.as_str(), Some(token.as_str()), 403, cluster),
            (
                about(&format!("revision={R1}&clusters=c1&hubNamespace=team-b")).as_str(),
                Some(&token),
                403,
                "may not list",
            ),
            (about(&format!("revision={R1}&clusters=c1")).as_str(), Some(&token), 403, "in all namespaces"),
            ("/v1alpha1/fleet", Some(&token), 403, "may not list"),
            ("/v1alpha1/fleet?namespace=team-b", Some(&token), 403, "may not list"),
            ("/v1alpha1/fleet?namespace=team-a", None, 401, "bearer token"),
            ("/v1alpha1/fleet/changes?cursor=1-1&namespace=team-b", Some(&token), 403, "may not list"),
            ("/v1alpha1/packages/team-b/payments", Some(&token), 403, "may not list"),
            ("/v1alpha1/clusters/c1?namespace=team-b", Some(&token), 403, "may not list"),
            ("/v1alpha1/gates?namespace=team-b", Some(&token), 403, "may not list"),
            ("/v1alpha1/packages", Some(&token), 403, "may not list"),
            ("/v1alpha1/rollouts?namespace=team-b", Some(&token), 403, "may not list"),
            ("/v1alpha1/rollouts/team-b/payments?wave=all", Some(&token), 403, "may not list"),
            ("/v1alpha1/rollouts/team-a/payments?wave=all", Some(&token), 404, "there is no FleetRollout"),
        ] {
            let (code, body) = get(&aggregator, path, token).await?;
            ensure!(
                code == status && body["message"].as_str().is_some_and(|it| it.contains(part)),
                "{path}: {code} {body}"
            );
        }
        let (code, own) = get(&aggregator, "/v1alpha1/fleet?namespace=team-a", Some(&token)).await?;
        ensure!(code == 200, "{own}");
        let (code, own) = get(&aggregator, "/v1alpha1/rollouts?namespace=team-a", Some(&token)).await?;
        ensure!(code == 200 && own["items"] == json!([]), "{own}");
        Ok(())
    })
    .await;
}

/// Makes or changes a FleetRollout of the package `payments`.
async fn rolls(api: &ApiServer, revision: &str, waves: Value) -> Result<()> {
    let rollout = json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
        "metadata": {"name": "payments", "namespace": "default"},
        "spec": {"fleetPackageRef": {"name": "payments"}, "revision": revision, "waves": waves},
    });
    api.apply_object(&rollout).await.map(drop)
}

#[tokio::test]
async fn a_rollout_is_told_with_the_clusters_of_its_waves() {
    run("e2e-http-api-rollouts", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let healthy = || FakePackage::healthy_at(R1);
        let (fleet, prometheus) = FakeFleet::scraped(rig, &["c1", "c2"], "payments", healthy).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = vec!["--serve-fleet".to_owned()];
        let hub = Hub::start_with(rig, &etcd, options).await?;
        let aggregator = &hub.aggregator;
        hub.report("payments", "8s", json!({"clusters": {"names": ["c1", "c2"]}})).await?;
        let waves = json!([
            {"name": "first", "clusters": {"names": ["c1"]}}, {"name": "rest", "clusters": {"percentage": "100%"}},
        ]);
        rolls(&hub.api, R2, waves).await?;
        eventually(SOON, "the first wave is admitted", async || {
            let (code, list) = get(aggregator, "/v1alpha1/rollouts?namespace=default", None).await?;
            let rollout = &list["items"][0];
            ensure!(code == 200 && rollout["reason"] == "RollingOut" && rollout["package"] == "payments", "{list}");
            ensure!(rollout["status"]["admitted"] == "1/2", "{list}");
            Ok(())
        })
        .await?;
        let one = async |rest: &str| get(aggregator, &format!("/v1alpha1/rollouts/default/payments{rest}"), None).await;
        let (code, whole) = one("").await?;
        ensure!(code == 200 && whole["status"]["waves"][0]["gate"] == "payments-first" && whole["clusters"].is_null(), "{whole}");
        eventually(SOON, "its cluster has not moved yet", async || {
            let (code, first) = one("?wave=first").await?;
            let c1 = &first["clusters"][0];
            ensure!(code == 200 && c1["clusterName"] == "c1" && c1["admitted"].is_string(), "{first}");
            ensure!(c1["row"]["state"] == "NotUpdated" && first["more"] == false, "{first}");
            Ok(())
        })
        .await?;
        let (code, rest) = one("?wave=rest&limit=5").await?;
        ensure!(code == 200 && rest["clusters"] == json!([]), "{rest}");
        for (path, status) in [("?wave=none", 404), ("?limit=many", 400), ("?cluster=c1", 400)] {
            let (code, body) = one(path).await?;
            ensure!(code == status && body["open"] == false, "{path}: {code} {body}");
        }

        // A viewer hears that it failed, and that it is gone.
        let (_, all) = get(aggregator, "/v1alpha1/fleet?namespace=default", None).await?;
        ensure!(all["rollouts"][0]["stalled"] == false, "{all}");
        let (_, all) = get(aggregator, "/v1alpha1/fleet", None).await?;
        let mut viewer = Viewer::follow(aggregator, all["cursor"].as_str().context("cursor")?).await?;
        fleet.says("c1", "payments", FakePackage::failed_at(R2));
        let failed = viewer.until(|event| event["rollouts"][0]["stalled"] == true).await?;
        ensure!(failed["rollouts"][0]["reason"] == "WaveFailed", "{failed}");
        let (_, first) = one("?wave=first").await?;
        ensure!(first["clusters"][0]["row"]["state"] == "Failed", "{first}");
        let rollouts = hub.api.dynamic(&hub::kind("FleetRollout"), Some("default")).await?;
        rollouts.delete("payments", &Default::default()).await?;
        viewer.until(|event| event["gone"]["rollouts"] == json!(["default/payments"])).await?;
        ensure!(one("").await?.0 == 404);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn without_a_hub_the_command_line_judges_as_the_aggregator_would() {
    run("e2e-verdict-command", async |rig| {
        let healthy = || FakePackage::healthy_at(R1);
        let (fleet, prometheus) = FakeFleet::scraped(rig, &["c1", "c2"], "payments", healthy).await?;
        let package = format!("{}/{FLUX_NAMESPACE}/payments", fake_fleet::SOURCE);
        let url = prometheus.url();
        let backend = ["--backend", url.as_str(), "--trust-all", "--settle-delay", "1s", "-o", "json"];
        let ask = async |rest: &[&str]| -> Result<(Option<i32>, Value)> {
            let mut args = vec!["verdict", "--package", &package];
            args.extend(backend);
            args.extend(rest);
            let output = own_command("statusbridge", &args).await?.output().await?;
            let text = String::from_utf8(output.stdout)?;
            let verdict = serde_json::from_str(&text)
                .with_context(|| format!("{text:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
            Ok((output.status.code(), verdict))
        };
        let (code, open) = ask(&["--clusters", "c1,c2", "--revision", R1, "--wait", "60s"]).await?;
        ensure!(code == Some(0) && open["open"] == true && open["healthy"] == "2/2", "{code:?} {open}");
        is_as_described("#/components/schemas/RevisionVerdict", &open)?;
        let (code, closed) = ask(&["--clusters", "c1,c2", "--revision", R2]).await?;
        ensure!(code == Some(4) && closed["reason"] == "RevisionNeverSeen", "{code:?} {closed}");
        for cluster in ["c1", "c2"] {
            fleet.is_silent(cluster);
        }
        eventually(SOON, "nothing can be said of silent clusters", async || {
            let (code, stale) =
                ask(&["--clusters", "c1,c2", "--revision", R1, "--stale-after", "5s"]).await?;
            ensure!(code == Some(5) && stale["state"] == "Unknown", "{code:?} {stale}");
            Ok(())
        })
        .await?;
        fleet.says("c1", "payments", FakePackage::healthy_at(R1));
        let (code, invalid) = ask(&["--clusters", ",", "--revision", R1]).await?;
        ensure!(code == Some(2) && invalid["state"] == "Invalid", "{code:?} {invalid}");
        fleet.says("c2", "payments", FakePackage::failed_at(R2));
        let (code, stalled) = ask(&["--reporting", "2", "--revision", R2, "--wait", "60s"]).await?;
        ensure!(code == Some(3) && stalled["reason"] == "FailureBudgetExceeded", "{code:?} {stalled}");
        // It waits until it is so.
        let (waited, ()) = tokio::join!(
            ask(&["--clusters", "c2", "--revision", R2, "--wait", "60s", "--max-failures", "0", "--applied"]),
            async {
                fleet.says("c2", "payments", FakePackage::healthy_at(R2));
            }
        );
        let (code, open) = waited?;
        ensure!(code == Some(0) && open["open"] == true, "{code:?} {open}");

        let mut args = vec!["status", "--without-hub"];
        args.extend(backend);
        let output = own_command("statusbridge", &args).await?.output().await?;
        let status: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(output.status.success() && status.to_string().contains("payments"), "{status}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_page_on_ones_own_machine_shows_what_the_hub_says_and_no_more() {
    run("e2e-ui", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let healthy = || FakePackage::healthy_at(R1);
        let (fleet, prometheus) = FakeFleet::scraped(rig, &["c1"], "payments", healthy).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report("payments", "8s", json!({"detail": "All", "revision": R1})).await?;
        hub.gate("wave", "payments", R1, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave", SOON).await?;
        rolls(&hub.api, R1, json!([{"name": "all", "clusters": {"names": ["c1"]}}])).await?;
        let kubeconfig = hub.api.kubeconfig().display().to_string();
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let args = ["ui", "--kubeconfig", &kubeconfig, "--namespace", "default", "--listen", &address];
        let refused = own_command("statusbridge", &["ui", "--listen", "0.0.0.0:0"]).await?.output().await?;
        ensure!(refused.status.code() == Some(2), "{refused:?}");
        let _ui = own_command("statusbridge", &args).await?.spawn()?;
        let http = reqwest::Client::builder().no_proxy().timeout(SOON).build()?;
        let shows = async |what: &str, is_so: &dyn Fn(&Value) -> bool| {
            eventually(SOON, what, async || {
                let answer =
                    http.get(format!("http://{address}/v1alpha1/fleet?namespace=default")).send().await?;
                let all: Value = answer.json().await?;
                ensure!(is_so(&all), "{all}");
                Ok(())
            })
            .await
        };
        let state = |all: &Value| {
            all["states"][all["packages"][0]["cells"][0][1].as_u64().unwrap_or(9999) as usize].clone()
        };
        let gate = |all: &Value| {
            let mut gates = all["gates"].as_array().into_iter().flatten();
            gates.find(|gate| gate["metadata"]["name"] == "wave").cloned().unwrap_or_default()
        };
        shows("the cluster and the gate", &|all| {
            all["silent"].is_null() && state(all) == "Healthy" && gate(all)["verdict"]["open"] == true
        })
        .await?;
        shows("the rollout", &|all| all["rollouts"][0]["ready"] == true).await?;
        let wave = format!("http://{address}/v1alpha1/rollouts/default/payments?wave=all");
        let wave: Value = http.get(wave).send().await?.json().await?;
        let c1 = &wave["clusters"][0];
        ensure!(c1["admitted"].is_string() && c1["row"]["state"] == "Healthy", "{wave}");
        let page = http.get(format!("http://{address}/ui/")).send().await?;
        ensure!(page.status() == 200 && page.headers().contains_key("content-security-policy"), "{page:?}");
        let rebound = http
            .get(format!("http://{address}/v1alpha1/fleet"))
            .header("host", "evil.example")
            .send()
            .await?;
        ensure!(rebound.status() == 403, "{rebound:?}");
        // What the aggregator writes later counts, too.
        fleet.says("c1", "payments", FakePackage::failed_at(R2));
        shows("what failed", &|all| state(all) == "Failed" && gate(all)["verdict"]["open"] == false).await?;
        hub.api.stop();
        shows("that the hub is gone", &|all| all["silent"].is_string()).await
    })
    .await;
}

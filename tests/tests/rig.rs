//! The rig tested by itself: what every other test takes for granted.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::json;
use statusbridge_tests::*;
use std::path::Path;
use std::time::Duration;

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test]
async fn api_servers_on_one_etcd_do_not_see_each_other() {
    run("two-api-servers", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let (one, two) =
            tokio::try_join!(ApiServer::start(rig, &etcd, "one"), ApiServer::start(rig, &etcd, "two"))?;
        one.apply_object(&config_map("only-in-one")).await?;
        let names = async |api: &ApiServer| -> Result<Vec<String>> {
            let all =
                Api::<ConfigMap>::namespaced(api.client(), "default").list(&ListParams::default()).await?;
            Ok(all.items.into_iter().filter_map(|c| c.metadata.name).collect())
        };
        assert!(names(&one).await?.contains(&"only-in-one".to_owned()));
        assert!(!names(&two).await?.contains(&"only-in-one".to_owned()));

        one.install_crds(&crds::configsync()?).await?;
        let kinds = one.kubectl(&["api-resources", "--api-group=configsync.gke.io", "-o", "name"]).await?;
        assert!(kinds.contains("rootsyncs.configsync.gke.io"), "{kinds}");
        let kinds = two.kubectl(&["api-resources", "--api-group=configsync.gke.io", "-o", "name"]).await?;
        assert_eq!(kinds, "");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_data_and_its_users() {
    run("api-server-restart", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        api.apply_object(&config_map("kept")).await?;
        let account = api.kubeconfig_of_service_account("default", "reader").await?;
        let nobody = api.kubeconfig_as("nobody", &["nothing"])?;
        api.stop();
        assert!(api.kubectl(&["get", "configmap", "kept"]).await.is_err());
        api.start_again().await?;
        api.kubectl(&["get", "configmap", "kept"]).await?;

        // Users are known and may do nothing until RBAC says so.
        for (file, user) in [(&account, "system:serviceaccount:default:reader"), (&nobody, "nobody")] {
            let file = file.to_str().context("path")?;
            let as_user =
                ["--kubeconfig", file, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
            assert_eq!(api.kubectl(&as_user).await?, user);
            let refused = api.kubectl_output(&["--kubeconfig", file, "get", "configmaps"]).await?;
            let message = String::from_utf8_lossy(&refused.stderr);
            assert!(message.contains("Forbidden"), "{message}");
        }
        api.kubectl(&["create", "clusterrole", "look", "--verb=get,list", "--resource=configmaps"]).await?;
        let grant = ["create", "clusterrolebinding", "look", "--clusterrole=look", "--user=nobody"];
        api.kubectl(&grant).await?;
        let file = nobody.to_str().context("path")?;
        eventually(SOON, "the binding takes effect", async || {
            api.kubectl(&["--kubeconfig", file, "get", "configmaps"]).await
        })
        .await?;
        Ok(())
    })
    .await;
}

/// Asks for a streaming list of ConfigMaps and gives back the first event.
async fn first_event_of_a_streaming_list(api: &ApiServer) -> Result<String> {
    use futures::{AsyncBufReadExt, TryStreamExt};
    let path = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
                &resourceVersionMatch=NotOlderThan&timeoutSeconds=10";
    let request = http::Request::get(path).body(Vec::new())?;
    let lines = api.client().request_stream(request).await?.lines();
    tokio::pin!(lines);
    lines.try_next().await?.context("the stream ended without an event")
}

#[tokio::test]
async fn only_the_old_etcd_makes_the_api_server_refuse_streaming_lists() {
    run("streaming-lists", async |rig| {
        let (new, old) = tokio::try_join!(Etcd::start(rig), Etcd::start_old(rig))?;
        let (on_new, on_old) =
            tokio::try_join!(ApiServer::start(rig, &new, "new"), ApiServer::start(rig, &old, "old"))?;
        on_new.apply_object(&config_map("first")).await?;
        let event = first_event_of_a_streaming_list(&on_new).await?;
        assert!(event.starts_with(r#"{"type":"ADDED""#), "{event}");
        let event = first_event_of_a_streaming_list(&on_old).await?;
        assert!(event.starts_with(r#"{"type":"ERROR""#) && event.contains("RequestWatchProgress"), "{event}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn prometheus_scrapes_reloads_and_keeps_its_data() {
    run("prometheus", async |rig| {
        let target = FileServer::start().await?;
        target.put("/metrics", "demo_value 1\n");
        let job = ScrapeJob::new("demo").target(target.address(), &[("cluster", "c1")]);
        let mut config = PrometheusConfig::with_jobs([job]);
        config.scrape_interval = Duration::from_millis(200);
        let prometheus = Prometheus::start(rig, &config).await?;
        let one_sample = async |query: &str| -> Result<Sample> {
            let samples = prometheus.query(query).await?;
            ensure!(samples.len() == 1, "{} samples", samples.len());
            samples.into_iter().next().context("no sample")
        };
        let sample = eventually(SOON, "it is scraped", async || one_sample("demo_value").await).await?;
        assert_eq!((sample.label("cluster"), sample.value), ("c1", 1.0));

        target.put("/metrics", "demo_value 2\n");
        eventually(SOON, "the new value arrives", async || {
            let value = one_sample("demo_value").await?.value;
            ensure!(value == 2.0, "{value}");
            Ok(())
        })
        .await?;

        prometheus.process().freeze()?;
        let asked = tokio::time::timeout(Duration::from_millis(500), prometheus.query("demo_value")).await;
        assert!(asked.is_err(), "a frozen server answered");
        prometheus.process().thaw()?;
        eventually(SOON, "it answers again", async || one_sample("demo_value").await).await?;

        // Only a target that goes leaves stale markers; a whole job that goes does not.
        config.jobs[0].targets.clear();
        prometheus.reload(&config).await?;
        eventually(SOON, "the target is gone", async || {
            ensure!(prometheus.query("demo_value").await?.is_empty());
            Ok(())
        })
        .await?;
        prometheus.stop();
        prometheus.start_again().await?;
        let kept = prometheus.query("count_over_time(demo_value[10m])").await?;
        assert_eq!(kept.len(), 1, "data before the restart");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn victoria_metrics_takes_imports_and_remote_write() {
    run("victoria-metrics", async |rig| {
        let backend = VictoriaMetrics::start(rig).await?;
        backend.import("imported{cluster=\"c1\"} 281474976710655\n").await?;
        let target = FileServer::start().await?;
        target.put("/metrics", "written 281474976710655\n");
        let job = ScrapeJob::new("demo").target(target.address(), &[]);
        let mut config = PrometheusConfig::with_jobs([job]).external(&[("cluster", "c2")]);
        config.remote_write.push(backend.remote_write_url());
        let _prometheus = Prometheus::start(rig, &config).await?;
        for (query, cluster) in [("imported", "c1"), ("written", "c2")] {
            let sample = eventually(SOON, query, async || {
                backend.query(query).await?.into_iter().next().context("no sample yet")
            })
            .await?;
            assert_eq!((sample.label("cluster"), sample.value), (cluster, 281_474_976_710_655.0));
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn flux_delivers_a_package_and_waits_for_its_deployment() {
    run("flux", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        let _controller = KustomizeController::start(rig, &api).await?;
        let flux = Flux::start().await?;
        let publish = async |revision: &str, image: &str| {
            flux.publish(&api, "app", revision, &[("app.yaml", &deployment_manifest("app", image))]).await
        };
        let is = async |ready: &str, applied: &str| {
            eventually(SOON, &format!("Ready={ready} with {applied} applied"), async || {
                let state = Flux::state(&api, "app", "Ready").await?;
                ensure!(state == (ready.to_owned(), applied.to_owned()), "{state:?}");
                Ok(())
            })
            .await
        };
        let set = async |rollout: Rollout, image: &str| {
            eventually(SOON, "the Deployment is applied", async || {
                let path = ["get", "deployment", "app", "-o", "jsonpath={..image}"];
                let now = api.kubectl(&path).await?;
                ensure!(now == image, "{now}");
                Flux::set_deployment(&api, "default", "app", rollout).await
            })
            .await
        };
        publish("r1", "app:1").await?;
        let options = KustomizationOptions { timeout: "10s", ..KustomizationOptions::default() };
        flux.kustomize(&api, "app", &options).await?;
        set(Rollout::Progressing, "app:1").await?;
        is("Unknown", "").await?;
        set(Rollout::Ready, "app:1").await?;
        is("True", "r1").await?;

        publish("r2", "app:2").await?;
        set(Rollout::Failed, "app:2").await?;
        is("False", "r1").await?;
        set(Rollout::Ready, "app:2").await?;
        is("True", "r2").await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_fault_proxy_spoils_what_it_is_told_to() {
    run("fault-proxy", async |rig| {
        let server = FileServer::start().await?;
        server.put("/", "0123456789");
        let proxy = FaultProxy::start(rig, server.address()).await?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            // A pooled connection may be found cut only when it is used.
            .pool_max_idle_per_host(0)
            .build()?;
        let get = async || -> Result<String, reqwest::Error> {
            http.get(proxy.url()).send().await?.error_for_status()?.text().await
        };
        assert_eq!(get().await?, "0123456789");
        proxy.set(Fault::ServerError);
        assert_eq!(get().await.map_err(|e| e.status().map(|s| s.as_u16())), Err(Some(500)));
        proxy.set(Fault::HalfBody);
        let error = get().await.err().context("half a body was taken for a whole one")?;
        assert!(error.is_decode() || error.is_body(), "{error:?}");
        proxy.set(Fault::Cut);
        assert!(get().await.is_err());
        proxy.set(Fault::Refuse);
        eventually(SOON, "connections are refused", async || {
            let error = get().await.err().context("answered")?;
            ensure!(error.is_connect(), "{error:?}");
            Ok(())
        })
        .await?;
        proxy.set(Fault::Pass);
        eventually(SOON, "it listens again", async || Ok(get().await?)).await?;
        proxy.set(Fault::Freeze);
        let waiting = tokio::time::timeout(Duration::from_millis(300), get()).await;
        assert!(waiting.is_err(), "a frozen connection answered");
        let held_back = get();
        tokio::pin!(held_back);
        assert!(futures::poll!(&mut held_back).is_pending());
        proxy.set(Fault::Pass);
        assert_eq!(held_back.await?, "0123456789");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_fault_proxy_leads_to_servers_in_turn_and_sends_old_requests() {
    run("fault-proxy-turns", async |rig| {
        let servers = [FileServer::start().await?, FileServer::start().await?];
        for (server, name) in servers.iter().zip(["a", "b"]) {
            server.put("/name", name);
            server.put("/other", format!("other-{name}"));
        }
        let proxy = FaultProxy::balance(rig, &servers.each_ref().map(FileServer::address)).await?;
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
        let get = async |path: &str| -> Result<String> {
            let answer = http.get(format!("{}{path}", proxy.url())).send().await?;
            Ok(answer.error_for_status()?.text().await?)
        };
        assert_eq!([get("/name").await?, get("/name").await?, get("/other").await?], ["a", "b", "other-a"]);
        proxy.set(Fault::OldRequests);
        assert_eq!([get("/name").await?, get("/other").await?], ["b", "a"]);
        proxy.set(Fault::OldRequests);
        assert_eq!([get("/other").await?, get("/name").await?], ["other-b", "other-a"]);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_fault_proxy_spoils_answers_of_query_apis() {
    run("fault-proxy-queries", async |rig| {
        let server = FileServer::start().await?;
        let series = |value: u32| {
            let result = json!([{"metric": {"cluster": "c1"}, "value": [1, value.to_string()]}]);
            json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
        };
        let proxy = FaultProxy::start(rig, server.address()).await?;
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
        let ask = async |query: &str, time: u32| -> Result<Vec<serde_json::Value>> {
            let body = format!("query={query}&time={time}");
            let answer = http.post(format!("{}/api/v1/query", proxy.url())).body(body).send().await?;
            let answer: serde_json::Value = answer.error_for_status()?.json().await?;
            Ok(answer["data"]["result"].as_array().context("no result")?.clone())
        };
        server.put("/api/v1/query", series(1));
        proxy.set(Fault::OldAnswers);
        assert_eq!(ask("up", 1).await?[0]["value"][1], "1");
        server.put("/api/v1/query", series(2));
        assert_eq!(ask("up", 2).await?[0]["value"][1], "1");
        assert_eq!(ask("down", 2).await?[0]["value"][1], "2");
        proxy.set(Fault::OldAnswers);
        assert_eq!(ask("up", 3).await?[0]["value"][1], "2");

        proxy.set(Fault::Twins);
        let twins: Vec<_> = ask("up", 4).await?.iter().map(|it| it["metric"].clone()).collect();
        assert_eq!(twins, [json!({"cluster": "c1"}), json!({"cluster": "c1", "replica": "twin"})]);
        proxy.set(Fault::Doubles);
        let doubles = ask("up", 5).await?;
        assert_eq!((doubles.len(), &doubles[0]), (2, &doubles[1]));
        proxy.set(Fault::TooManyRequests);
        let refused = ask("up", 6).await.err().context("answered")?.to_string();
        assert!(refused.contains("429"), "{refused}");

        let delay = Duration::from_millis(200);
        proxy.set(Fault::Slow(delay));
        let started = std::time::Instant::now();
        ask("up", 7).await?;
        assert!(started.elapsed() >= 2 * delay, "{:?}", started.elapsed());
        Ok(())
    })
    .await;
}

fn alive(pid: u32) -> bool {
    // A zombie has ended; only its parent has not looked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

#[tokio::test]
async fn dropping_a_handle_ends_its_process_and_dropping_the_rig_its_directory() {
    let rig = Rig::new("drop").unwrap();
    let dir = rig.dir().to_owned();
    let etcd = Etcd::start(&rig).await.unwrap();
    let pid = etcd.process().pid().unwrap();
    assert!(alive(pid));
    drop(rig);
    assert!(dir.exists(), "the server still needs it");
    drop(etcd);
    assert!(!alive(pid));
    assert!(!dir.exists() || std::env::var_os("STATUSBRIDGE_KEEP_LOGS").is_some());
}

/// Not a test of its own: the process that the next test kills.
#[tokio::test]
#[ignore = "started by the next test, which kills it"]
async fn child_that_is_killed() {
    let rig = Rig::new("killed").unwrap();
    // Something that does not end by itself when its directory is removed, as etcd does.
    let none: [(&str, std::ffi::OsString); 0] = [];
    let server = Process::spawn(&rig, "server", Path::new("/bin/sleep"), ["600"], none).unwrap();
    let path = std::env::var("STATUSBRIDGE_TEST_PID_FILE").unwrap();
    let part = format!("{path}.part");
    std::fs::write(&part, format!("{}\n{}", server.pid().unwrap(), rig.dir().display())).unwrap();
    std::fs::rename(part, path).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_outlives_a_killed_test_process() {
    run("kill-9", async |rig| {
        let pid_file = rig.dir().join("pid");
        let child = Process::spawn(
            rig,
            "child",
            &std::env::current_exe()?,
            ["--ignored", "--exact", "rig::child_that_is_killed"],
            [("STATUSBRIDGE_TEST_PID_FILE", pid_file.clone().into())],
        )?;
        let said = eventually(SOON, "the child has started its server", async || {
            child.ensure_running()?;
            Ok(std::fs::read_to_string(&pid_file)?)
        })
        .await?;
        let (pid, dir) = said.split_once('\n').context("two lines")?;
        let pid: u32 = pid.parse()?;
        assert!(alive(pid));
        child.signal("KILL")?;
        eventually(SOON, "its server and directory are gone", async || {
            ensure!(!alive(pid), "the server lives");
            ensure!(!Path::new(dir).exists(), "the directory is there");
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let rig = Rig::new("cannot-start").unwrap();
    let mut job = ScrapeJob::new("demo");
    job.relabel.push(json!({"action": "no such action"}));
    let config = PrometheusConfig::with_jobs([job]);
    let error = Prometheus::start(&rig, &config).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("ended by itself") && text.contains("no such action"), "{text}");
    // It is kept because something failed, which is what was wanted here.
    std::fs::remove_dir_all(rig.dir()).unwrap();
}

//! Who gets the exporter's metrics, and over what: real tokens, a real API server, a real Prometheus.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use reqwest::{Certificate, Client};
use serde_json::json;
use statusbridge_tests::{
    ApiServer, Changelog, Etcd, Exporter, Prometheus, PrometheusConfig, Rig, SOON, ScrapeJob, crds,
    eventually, own_program, run,
};

const PRESETS: [&str; 2] = ["--presets", "flux-kustomization"];
const AUTHORIZE: &str = "--authorize-scrapes";

/// An API server with the kinds that the exporter reads.
async fn cluster(rig: &Rig, etcd: &Etcd) -> Result<ApiServer> {
    let api = ApiServer::start(rig, etcd, "one").await?;
    api.install_crds(&crds::flux()?).await?;
    Ok(api)
}

/// What `statusbridge source rbac` with these arguments prints, applied.
async fn grant(api: &ApiServer, args: &[&str]) -> Result<()> {
    let role = tokio::process::Command::new(own_program("statusbridge").await?)
        .args(["source", "rbac"])
        .args(PRESETS)
        .args(args)
        .output()
        .await?;
    ensure!(role.status.success(), "{}", String::from_utf8_lossy(&role.stderr));
    api.apply(&String::from_utf8(role.stdout)?).await
}

/// A kubeconfig of the service account that the printed role is bound to, and nothing else.
async fn exporters_account(api: &ApiServer) -> Result<PathBuf> {
    api.apply_object(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "statusbridge-exporter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "statusbridge-exporter"},
        "subjects": [{"kind": "ServiceAccount", "name": "statusbridge-exporter", "namespace": "statusbridge-system"}],
    }))
    .await?;
    api.kubeconfig_of_service_account("statusbridge-system", "statusbridge-exporter").await
}

/// The role and binding that the documentation gives to scrapers.
pub(crate) fn scrapers_rights() -> Result<&'static str> {
    let text = include_str!("../../docs/exporter.md");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    blocks.into_iter().find(|b| b.contains("nonResourceURLs")).context("the documentation has no such role")
}

/// The rights that the documentation gives to a provider's service account.
fn sidecars_rights() -> Result<&'static str> {
    let text = include_str!("../../docs/change-logs.md");
    let found = text.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    found.into_iter().find(|b| b.contains("ClusterRole")).context("the documentation has no such role")
}

/// Status and text of an answer.
async fn get(http: &Client, url: &str, token: Option<&str>) -> Result<(u16, String)> {
    let mut request = http.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    ensure!(status != 401 || answer.headers()["www-authenticate"] == "Bearer", "401 without a challenge");
    let text = answer.text().await?;
    ensure!(status == 200 || !text.contains("statusbridge_"), "{status} with metrics: {text}");
    Ok((status, text))
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_api_server_lets_in() {
    run("scrape-authorize", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = cluster(rig, &etcd).await?;
        let kubeconfig = exporters_account(&api).await?;
        let (prometheus, other) = (
            api.token_of_service_account("monitoring", "prometheus", &[]).await?,
            api.token_of_service_account("monitoring", "other", &[]).await?,
        );
        let elsewhere = api.token_of_service_account("monitoring", "prometheus", &["vault"]).await?;
        api.apply(scrapers_rights()?).await?;
        grant(&api, &[]).await?;
        let exporter =
            Exporter::start(rig, "exporter", &kubeconfig, &[&PRESETS[..], &[AUTHORIZE]].concat()).await?;
        let http = Client::builder().no_proxy().timeout(SOON).build()?;
        let url = |path: &str| format!("http://{}{path}", exporter.address());
        let metrics = url("/metrics");
        let becomes = async |token: Option<&str>, expected: u16| {
            eventually(SOON, &format!("the answer is {expected}"), async || {
                let (status, text) = get(&http, &metrics, token).await?;
                ensure!(status == expected, "{status}: {text}");
                Ok(text)
            })
            .await
        };
        let answers = async |token: Option<&str>, expected: u16, part: &str| {
            let (status, text) = get(&http, &metrics, token).await?;
            ensure!(status == expected && text.contains(part), "{status} and not {expected} {part}: {text}");
            Ok(())
        };

        // The exporter may not ask, so nobody is let in.
        answers(Some(&prometheus), 503, "it answered 403 to a TokenReview").await?;
        let log = exporter.process().log();
        ensure!(log.contains("tokenreviews.authentication.k8s.io is forbidden"), "{log}");
        ensure!(log.contains("without TLS"), "no warning of tokens in the clear: {log}");
        grant(&api, &[AUTHORIZE]).await?;

        let text = becomes(Some(&prometheus), 200).await?;
        ensure!(text.contains("statusbridge_digest{"), "{text}");
        answers(None, 401, "").await?;
        answers(Some("garbage"), 401, "").await?;
        answers(Some(&format!("{prometheus}x")), 401, "").await?;
        answers(Some(&elsewhere), 401, "").await?;
        answers(Some(&other), 403, "system:serviceaccount:monitoring:other may not").await?;
        answers(Some(&other), 403, "system:serviceaccount:monitoring:other may not").await?;
        let basic = http.get(&metrics).basic_auth("prometheus", Some(&prometheus)).send().await?;
        ensure!(basic.status() == 401, "{}", basic.status());
        for path in ["/healthz", "/readyz"] {
            ensure!(get(&http, &url(path), None).await?.0 == 200, "{path} is open");
        }
        let (_, text) = get(&http, &metrics, Some(&prometheus)).await?;
        for (cause, times) in [("unauthenticated", 5), ("forbidden", 2)] {
            let line = format!("statusbridge_exporter_scrapes_refused_total{{cause=\"{cause}\"}} {times}\n");
            ensure!(text.contains(&line), "not {line} in {text}");
        }
        ensure!(!text.contains("cause=\"forbidden\",group"), "the exporter lacks a right: {text}");

        // Taken away and given back, both within the time that an answer holds.
        api.kubectl(&["delete", "clusterrolebinding", "statusbridge-scraper"]).await?;
        becomes(Some(&prometheus), 403).await?;
        api.apply(scrapers_rights()?).await?;
        becomes(Some(&prometheus), 200).await?;

        // An API server that does not answer, and one that is not there.
        api.process().freeze()?;
        answers(Some("unheard"), 503, "no answer within 5s").await?;
        becomes(Some(&prometheus), 503).await?;
        api.process().thaw()?;
        becomes(Some(&prometheus), 200).await?;
        api.stop();
        becomes(Some(&prometheus), 503).await?;
        answers(Some("unheard"), 503, "a TokenReview got no answer").await?;
        answers(None, 401, "").await?;
        ensure!(get(&http, &url("/healthz"), None).await?.0 == 200);
        api.start_again().await?;
        becomes(Some(&prometheus), 200).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_change_log_sidecars_metrics_are_too_and_no_provider_waits_for_the_api_server() {
    run("scrape-authorize-changelog", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        let account = api.kubeconfig_of_service_account("crossplane-system", "provider-example").await?;
        let (prometheus, other) = (
            api.token_of_service_account("monitoring", "prometheus", &[]).await?,
            api.token_of_service_account("monitoring", "other", &[]).await?,
        );
        api.apply(scrapers_rights()?).await?;
        let out = rig.dir().join("out.jsonl");
        let environment = vec![("KUBECONFIG", account.into())];
        let sidecar = Changelog::start_in(rig, "sidecar", &out, environment, &[AUTHORIZE]).await?;
        let http = Client::builder().no_proxy().timeout(SOON).build()?;
        let metrics = format!("http://{}/metrics", sidecar.address());
        let becomes = async |token: Option<&str>, expected: u16, part: &str| {
            eventually(SOON, &format!("the answer is {expected}"), async || {
                let (status, text) = get(&http, &metrics, token).await?;
                ensure!(
                    status == expected && text.contains(part),
                    "{status} and not {expected} {part}: {text}"
                );
                Ok(text)
            })
            .await
        };

        // The provider's account may not ask, so nobody is let in. The provider does not notice.
        becomes(Some(&prometheus), 503, "it answered 403 to a TokenReview").await?;
        let sent = sidecar.load(100, 4).await?;
        ensure!((sent.sent, sent.failed) == (100, 0), "{sent:?}");
        api.apply(sidecars_rights()?).await?;
        becomes(Some(&prometheus), 200, "statusbridge_changelog_written_total 100\n").await?;
        becomes(None, 401, "").await?;
        becomes(Some("garbage"), 401, "").await?;
        becomes(Some(&other), 403, "system:serviceaccount:monitoring:other may not").await?;

        // An API server that does not answer holds up scrapes, and no provider.
        api.process().freeze()?;
        let scrape = becomes(Some("unheard"), 503, "no answer within 5s");
        let (scraped, sent) = tokio::join!(scrape, sidecar.load(1000, 8));
        let sent = sent?;
        ensure!((sent.sent, sent.failed) == (1000, 0) && sent.slowest.as_secs() < 4, "{sent:?}");
        scraped?;
        api.process().thaw()?;
        let text = becomes(Some(&prometheus), 200, "statusbridge_changelog_written_total 1100\n").await?;
        for cause in ["unauthenticated", "forbidden", "unavailable"] {
            let refused = format!("statusbridge_changelog_scrapes_refused_total{{cause=\"{cause}\"}} ");
            ensure!(text.contains(&refused), "not {refused} in {text}");
        }
        Ok(())
    })
    .await;
}

/// A certificate and its key, as PEM.
fn certificate() -> Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// What a kubelet does to a mounted Secret: a new directory, and a symbolic link that is put in the old one's place.
fn mount(directory: &Path, version: u32, certificate: &str, key: &str) -> Result<()> {
    let data = directory.join(format!("..version-{version}"));
    std::fs::create_dir_all(&data)?;
    std::fs::write(data.join("tls.crt"), certificate)?;
    std::fs::write(data.join("tls.key"), key)?;
    let link = directory.join("..data_tmp");
    std::os::unix::fs::symlink(&data, &link)?;
    std::fs::rename(&link, directory.join("..data"))?;
    for name in ["tls.crt", "tls.key"] {
        let file = directory.join(name);
        if !file.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), &file)?;
        }
    }
    Ok(())
}

/// A path over TLS, on a connection of its own, by a client that trusts this certificate and no other.
async fn trusting(certificate: &str, address: SocketAddr, path: &str) -> Result<String> {
    let http = Client::builder()
        .no_proxy()
        .timeout(SOON)
        .tls_certs_only([Certificate::from_pem(certificate.as_bytes())?])
        .build()?;
    let answer = http.get(format!("https://{address}{path}")).send().await?;
    Ok(answer.error_for_status()?.text().await?)
}

#[tokio::test]
async fn certificates_are_followed_and_bad_ones_change_nothing() {
    run("scrape-tls", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = cluster(rig, &etcd).await?;
        let (first, second) = (certificate()?, certificate()?);
        let directory = rig.subdir("mounted")?;
        mount(&directory, 1, &first.0, &first.1)?;
        let file = |name: &str| directory.join(name).display().to_string();
        let (crt, key) = (file("tls.crt"), file("tls.key"));
        let args = [&PRESETS[..], &["--tls-cert-file", &crt, "--tls-private-key-file", &key]].concat();
        let exporter = Exporter::launch(rig, "exporter", api.kubeconfig(), &args).await?;
        let address = exporter.address();
        let shows = async |certificate: &str, good: u8| {
            eventually(SOON, &format!("the certificate is served, last reload good = {good}"), async || {
                exporter.process().ensure_running()?;
                let text = trusting(certificate, address, "/metrics").await?;
                let line = format!("statusbridge_exporter_certificate_last_reload_successful {good}\n");
                ensure!(text.contains(&line), "{text}");
                Ok(())
            })
            .await
        };
        shows(&first.0, 1).await?;
        trusting(&first.0, address, "/healthz").await?;
        ensure!(trusting(&second.0, address, "/healthz").await.is_err(), "the client trusts anything");
        let plain =
            Client::builder().no_proxy().build()?.get(format!("http://{address}/metrics")).send().await;
        ensure!(plain.is_err(), "it still speaks plain HTTP");

        // Those who connect and say nothing keep nobody out.
        let mut silent = Vec::new();
        for _ in 0..50 {
            silent.push(tokio::net::TcpStream::connect(address).await?);
        }
        trusting(&first.0, address, "/healthz").await?;

        mount(&directory, 2, &second.0, &second.1)?;
        shows(&second.0, 1).await?;
        ensure!(trusting(&first.0, address, "/healthz").await.is_err(), "the first is still served");
        mount(&directory, 3, &first.0, &second.1)?;
        shows(&second.0, 0).await?;
        let log = exporter.process().log();
        ensure!(log.contains("the one of before is still served") && !log.contains("PRIVATE KEY"), "{log}");
        mount(&directory, 4, &first.0, &first.1)?;
        shows(&first.0, 1).await?;

        // They are dropped in the end.
        for mut connection in silent {
            let mut nothing = [0];
            let read = tokio::io::AsyncReadExt::read(&mut connection, &mut nothing);
            let read = tokio::time::timeout(SOON, read).await.context("still open")?;
            ensure!(!matches!(read, Ok(1..)), "{read:?}");
        }
        let ended = exporter.process().terminate(SOON).await?;
        ensure!(ended.success(), "{ended}");

        // At the start there is none of before.
        mount(&directory, 5, &first.0, &second.1)?;
        exporter.process().start()?;
        eventually(SOON, "it ends by itself", async || {
            ensure!(exporter.process().ensure_running().is_err(), "it runs");
            Ok(())
        })
        .await?;
        let log = exporter.process().log();
        ensure!(log.contains("error: cannot serve with") && log.contains("tls.crt"), "{log}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn prometheus_scrapes_with_its_token_over_https() {
    run("scrape-prometheus", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = cluster(rig, &etcd).await?;
        grant(&api, &[AUTHORIZE]).await?;
        let kubeconfig = exporters_account(&api).await?;
        let (pem, key) = certificate()?;
        let write = |name: &str, text: &str| {
            let path = rig.dir().join(name).display().to_string();
            std::fs::write(&path, text).map(|()| path)
        };
        let (crt, key) = (write("tls.crt", &pem)?, write("tls.key", &key)?);
        let tls = ["--tls-cert-file", &crt, "--tls-private-key-file", &key, AUTHORIZE];
        let exporter = Exporter::launch(rig, "exporter", &kubeconfig, &[&PRESETS[..], &tls].concat()).await?;

        let token = api.token_of_service_account("monitoring", "prometheus", &[]).await?;
        let token = write("token", &token)?;
        let job = |name: &str, more: &[(&str, serde_json::Value)]| {
            let more = more.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
            ScrapeJob { more, ..ScrapeJob::new(name) }.target(exporter.address(), &[])
        };
        let https = ("scheme", json!("https"));
        let trust = ("tls_config", json!({"ca_file": crt}));
        let bearer = ("authorization", json!({"credentials_file": token}));
        let jobs = [
            job("right", &[https.clone(), trust.clone(), bearer.clone()]),
            job("no-token", &[https.clone(), trust.clone()]),
            job("no-trust", &[https, bearer.clone()]),
            job("no-tls", &[bearer]),
        ];
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs(jobs)).await?;
        let up = async |expected: &[(&str, f64)]| {
            eventually(SOON, &format!("up is {expected:?}"), async || {
                let samples = prometheus.query("up").await?;
                let mut seen: Vec<(&str, f64)> = samples.iter().map(|s| (s.label("job"), s.value)).collect();
                seen.sort_by(|a, b| a.0.cmp(b.0));
                ensure!(seen == expected, "{seen:?}");
                Ok(())
            })
            .await
        };
        // Nobody gave it the right yet.
        up(&[("no-tls", 0.0), ("no-token", 0.0), ("no-trust", 0.0), ("right", 0.0)]).await?;
        api.apply(scrapers_rights()?).await?;
        up(&[("no-tls", 0.0), ("no-token", 0.0), ("no-trust", 0.0), ("right", 1.0)]).await?;
        eventually(SOON, "the source is up", async || {
            let samples = prometheus.query("statusbridge_source_up").await?;
            ensure!(samples.len() == 1 && samples[0].value == 1.0, "{samples:?}");
            ensure!(samples[0].label("job") == "right");
            Ok(())
        })
        .await
    })
    .await;
}

//! What a FleetRollout admits, handed over to the clusters that ask: each is told its own, from the record alone.

use crate::e2e::http_api::is_as_described;
use crate::e2e::rollouts::{A_WHILE, CLUSTERS, Setup, three_waves};
use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use reqwest::{Method, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use statusbridge_tests::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The token of a cluster.
pub(crate) fn token(cluster: &str) -> String {
    format!("token-of-{cluster}")
}

/// What the aggregator knows of it.
pub(crate) fn hash(cluster: &str) -> String {
    Sha256::digest(token(cluster)).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes which of these clusters may ask.
pub(crate) fn may_ask(file: &Path, clusters: &[&str]) -> Result<()> {
    let lines =
        clusters.iter().map(|cluster| format!("- {{cluster: {cluster}, sha256: {}}}\n", hash(cluster)));
    std::fs::write(file, lines.collect::<String>())?;
    Ok(())
}

/// The files of an aggregator that clusters ask, and the flags that name them.
struct Files {
    tokens: PathBuf,
    flags: Vec<String>,
}

impl Files {
    fn write(rig: &Rig) -> Result<Self> {
        let (tokens, config) = (rig.dir().join("tokens.yaml"), rig.dir().join("config.yaml"));
        may_ask(&tokens, &CLUSTERS)?;
        std::fs::write(&config, json!({"rollouts": {"tokensFile": tokens}}).to_string())?;
        let config = config.display().to_string();
        let flags = ["--serve-rollouts", "--authorize-scrapes", "--config", config.as_str()];
        Ok(Self { tokens, flags: flags.map(str::to_owned).to_vec() })
    }

    /// Options that have them.
    fn named(&self, mut options: AggregatorOptions) -> AggregatorOptions {
        options.more.extend(self.flags.iter().cloned());
        options
    }
}

fn path(rollout: &str, cluster: &str) -> String {
    format!("/v1alpha1/rollouts/default/{rollout}/clusters/{cluster}")
}

/// Asks, and gives back status and body. The body is what the description says.
async fn ask(aggregator: &Aggregator, path: &str, token: Option<&str>) -> Result<(u16, Value)> {
    let request = aggregator.http().get(aggregator.url(path));
    let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    let body: Value = serde_json::from_str(&text).with_context(|| text)?;
    let schema = if status == 200 { "Inputs" } else { "Failure" };
    is_as_described(&format!("#/components/schemas/{schema}"), &body)?;
    Ok((status, body))
}

/// What a cluster is told that it may have, asked with its own token.
async fn told(aggregator: &Aggregator, cluster: &str) -> Result<Option<String>> {
    match ask(aggregator, &path(APP, cluster), Some(&token(cluster))).await? {
        (200, body) => {
            let input = &body["inputs"][0];
            ensure!(input["cluster"] == cluster, "{body}");
            Ok(input["revision"].as_str().map(str::to_owned))
        }
        (404, body) if body["reason"] == "NotAdmitted" => Ok(None),
        (status, body) => anyhow::bail!("{cluster}: {status} {body}"),
    }
}

/// Fails unless these clusters are told one revision, and the others another one or nothing.
async fn tells(
    aggregator: &Aggregator,
    these: &BTreeSet<String>,
    revision: &str,
    others: Option<&str>,
) -> Result<()> {
    for cluster in CLUSTERS {
        let told = told(aggregator, cluster).await?;
        let expected = if these.contains(cluster) { Some(revision) } else { others };
        ensure!(told.as_deref() == expected, "{cluster} is told {told:?}, not {expected:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_is_told_what_it_may_have_and_nothing_of_others() {
    run("e2e-handed-over-rights", async |rig| {
        let files = Files::write(rig)?;
        let setup = Setup::start_with(rig, |options| Ok(files.named(options))).await?;
        let (api, aggregator) = (&setup.hub.api, &setup.hub.aggregator);
        setup.hub.may_authorize().await?;
        api.apply(include_str!("../../../deploy/rbac/viewer.yaml")).await?;
        let reader = api.token_of_service_account("default", "reader", &[]).await?;
        let stranger = api.token_of_service_account("default", "stranger", &[]).await?;
        hub::bind_reader(api, "default", "statusbridge-viewer").await?;

        // No rollout, and one that has admitted nobody: no token of a cluster tells them apart.
        let absent = ask(aggregator, &path(APP, "c1"), Some(&token("c1"))).await?;
        ensure!(absent.0 == 404 && absent.1["reason"] == "NotAdmitted", "{absent:?}");
        setup.rolls(APP, 2, three_waves()).await?;
        let canary = setup.admits(2, 1).await?;
        eventually(SOON, "the canary is told", async || tells(aggregator, &canary, &revision(2), None).await)
            .await?;
        let first = canary.first().context("a canary")?.as_str();
        let other = CLUSTERS.into_iter().find(|it| *it != first).context("another one")?;
        let waiting = ask(aggregator, &path(APP, other), Some(&token(other))).await?;
        let none = ask(aggregator, &path("none", other), Some(&token(other))).await?;
        let unnamed = |it: &Value, name: &str| it.to_string().replace(name, "X");
        ensure!(
            unnamed(&waiting.1, "default/app") == unnamed(&none.1, "default/none"),
            "{waiting:?} {none:?}"
        );

        let (own, others) = (path(APP, first), path(APP, other));
        let of_first = token(first);
        for (path, token, status, part) in [
            (own.as_str(), Some(of_first.as_str()), 200, revision(2).as_str()),
            (&own, Some(&reader), 200, &revision(2)),
            (&others, Some(&reader), 404, "may have nothing yet"),
            (&others, Some(&of_first), 403, "may ask about itself only"),
            (&path("none", other), Some(&of_first), 403, "may ask about itself only"),
            (&own, Some(&stranger), 403, "may not get fleetrollouts"),
            (&path("none", first), Some(&stranger), 403, "may not get fleetrollouts"),
            (&own, Some("token-of-nobody"), 401, "bearer token"),
            (&own, None, 401, "bearer token"),
            (&format!("{own}?namespace=other"), Some(&of_first), 400, "there is no parameter"),
            (
                "/v1alpha1/rollouts/default/app/clusters/..%2Fc1",
                Some(&of_first),
                403,
                "may ask about itself only",
            ),
            ("/v1alpha1/rollouts/other/app/clusters/c1", Some(&reader), 403, "may not get fleetrollouts"),
        ] {
            let (code, body) = ask(aggregator, path, token).await?;
            ensure!(code == status && body.to_string().contains(part), "{path} {token:?}: {code} {body}");
        }
        let post = aggregator.http().post(aggregator.url(&own)).bearer_auth(&of_first).send().await?;
        ensure!(post.status() == 405 && post.headers()[header::ALLOW] == "GET, HEAD", "{post:?}");
        // A cluster's token opens nothing else.
        for elsewhere in ["/metrics", "/v1alpha1/gates/default/app-canary"] {
            let answer =
                aggregator.http().get(aggregator.url(elsewhere)).bearer_auth(&of_first).send().await?;
            ensure!(answer.status() == 401, "{elsewhere}: {answer:?}");
        }

        // The same of all clusters, which a token of the hub is needed for.
        let plugin = aggregator.url("/v1alpha1/applicationset/api/v1/getparams.execute");
        let about = |rollout: &str| {
            let parameters = json!({"namespace": "default", "rollout": rollout});
            json!({"applicationSetName": "app", "input": {"parameters": parameters}}).to_string()
        };
        for (body, token, status, part) in [
            (about(APP), Some(reader.as_str()), 200, revision(2).as_str()),
            (about("none"), Some(&reader), 404, "has admitted no cluster yet"),
            (about(APP), Some(&stranger), 403, "may not get fleetrollouts"),
            (about("none"), Some(&stranger), 403, "may not get fleetrollouts"),
            (about(APP), Some(&of_first), 401, "bearer token"),
            (about(APP), None, 401, "bearer token"),
            ("{}".to_owned(), Some(&reader), 400, "must be `namespace` and `rollout`"),
            (String::new(), Some(&reader), 400, "must be `namespace` and `rollout`"),
            (format!("[{}", "[".repeat(16 << 10)), Some(&reader), 413, "more than 16384 bytes"),
            ("[".repeat(16 << 10), Some(&reader), 400, "must be `namespace` and `rollout`"),
        ] {
            let request = aggregator.http().post(&plugin).body(body.clone());
            let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
            let answer = request.send().await?;
            let (code, answer): (u16, Value) = (answer.status().as_u16(), answer.json().await?);
            let schema = if code == 200 { "PluginResponse" } else { "Failure" };
            is_as_described(&format!("#/components/schemas/{schema}"), &answer)?;
            ensure!(
                code == status && answer.to_string().contains(part),
                "{body:.100} {token:?}: {code} {answer}"
            );
        }
        let got = aggregator.http().get(&plugin).bearer_auth(&reader).send().await?;
        ensure!(got.status() == 405 && got.headers()[header::ALLOW] == "POST", "{got:?}");

        // Who has the answer is told so until it is another one.
        let get = async |method: Method, mark: Option<&str>| {
            let request = aggregator.http().request(method, aggregator.url(&own)).bearer_auth(&of_first);
            let request =
                if let Some(mark) = mark { request.header(header::IF_NONE_MATCH, mark) } else { request };
            let answer = request.send().await?;
            let mark = answer.headers()[header::ETAG].to_str()?.to_owned();
            Ok::<_, anyhow::Error>((answer.status().as_u16(), mark, answer.text().await?.len()))
        };
        let (status, mark, length) = get(Method::GET, None).await?;
        ensure!(status == 200 && length > 0, "{status}");
        ensure!(get(Method::GET, Some(&mark)).await? == (304, mark.clone(), 0));
        ensure!(get(Method::HEAD, None).await? == (200, mark.clone(), 0));
        setup.rolls(APP, 3, json!([{"name": "all", "clusters": {"percentage": "100%"}}])).await?;
        let all = setup.admits(3, CLUSTERS.len()).await?;
        eventually(SOON, "all are told", async || tells(aggregator, &all, &revision(3), None).await).await?;
        let (status, new, _) = get(Method::GET, Some(&mark)).await?;
        ensure!(status == 200 && new != mark, "{status} {new}");

        // Tokens come and go with the file; one that cannot be read changes nothing.
        std::fs::write(&files.tokens, "- {cluster: c1}\n")?;
        holds_for(A_WHILE, "tokens stay", async || told(aggregator, first).await.map(drop)).await?;
        may_ask(&files.tokens, &[other])?;
        eventually(SOON, "a token that is gone is refused", async || {
            let (status, body) = ask(aggregator, &own, Some(&of_first)).await?;
            ensure!(status == 401, "{status} {body}");
            Ok(())
        })
        .await?;
        ensure!(told(aggregator, other).await? == Some(revision(3)));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_record_alone_answers_whatever_else_is_dead() {
    run("e2e-handed-over-record", async |rig| {
        let files = Files::write(rig)?;
        let setup = Setup::start_with(rig, |options| Ok(files.named(options))).await?;
        let (hub, aggregator) = (&setup.hub, &setup.hub.aggregator);
        hub.may_authorize().await?;
        setup.rolls(APP, 2, json!([{"name": "all", "clusters": {"percentage": "100%"}}])).await?;
        let all = setup.admits(2, CLUSTERS.len()).await?;
        setup.deliver(2, &all);
        setup.rolls(APP, 3, three_waves()).await?;
        let canary = setup.admits(3, 1).await?;
        let before = revision(2);
        let is_told =
            async |aggregator: &Aggregator| tells(aggregator, &canary, &revision(3), Some(&before)).await;
        eventually(SOON, "all are told", async || is_told(aggregator).await).await?;

        // A replica that stands by.
        let options = files.named(AggregatorOptions::new(setup.prometheus.url()));
        let standby = hub.start_replica(rig, "standby", &options, hub.api.address()).await?;
        eventually(SOON, "the one that stands by tells the same", async || is_told(&standby).await).await?;

        // Evidence is stale, and then forgotten.
        setup.prometheus.stop();
        setup.deliver(3, &canary);
        holds_for(A_WHILE, "all are told the same", async || is_told(aggregator).await).await?;
        aggregator.process().kill();
        aggregator.process().start()?;
        eventually(SOON, "all are told the same", async || is_told(aggregator).await).await?;
        holds_for(A_WHILE, "all are told the same", async || is_told(aggregator).await).await?;

        // The hub is gone: what was read stays. One that has read nothing says so.
        hub.api.stop();
        holds_for(A_WHILE, "all are told the same", async || {
            is_told(aggregator).await?;
            is_told(&standby).await
        })
        .await?;
        aggregator.process().kill();
        aggregator.process().start()?;
        eventually(SOON, "nothing is said that is not known", async || {
            let request = aggregator.http().get(aggregator.url(&path(APP, "c1"))).bearer_auth(token("c1"));
            let answer = request.send().await?;
            ensure!(
                answer.status() == 503 && answer.headers().contains_key(header::RETRY_AFTER),
                "{answer:?}"
            );
            Ok(())
        })
        .await?;
        hub.api.start_again().await?;
        eventually(SOON, "all are told again", async || is_told(aggregator).await).await
    })
    .await;
}

//! The recipes that ask for a verdict on any revision: each waits while the aggregator's real answer is closed or while
//! nothing can be said, goes on when it is open, and says so when it is refused.

use super::*;
use crate::e2e::profiles::profile;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Where the recipes ask.
const ADDRESS: &str = "statusbridge-aggregator.statusbridge-system.svc:8080";
/// The package and revision that the tools are told, in the words of a query.
const PACKAGE: &str = "source=flux-kustomization&namespace=flux-system&hubNamespace=default&package=app";

/// A hub that answers over TLS, to those who show the token.
struct Asked {
    one: One,
    /// Certificate of the authority that signed the aggregator's.
    certificate: PathBuf,
    token: String,
    address: String,
}

impl Asked {
    /// `PACKAGE` at a revision, in the clusters of the first wave.
    fn question(number: u32) -> String {
        format!("{PACKAGE}&selector=wave%3D1&revision={}", revision(number))
    }

    /// The status and the text of an answer.
    async fn get(&self, url: &str, query: &[(String, String)], authorization: &str) -> Result<(u16, String)> {
        let url = reqwest::Url::parse_with_params(&url.replace(ADDRESS, &self.address), query)?;
        let request = self.one.hub.aggregator.http().get(url);
        let answer = request.header("authorization", authorization).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

/// deploy/recipes/verdict.sh about a question. It asks every second.
fn script(asked: &Asked, question: &str, env: &[(&str, &str)]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(file("verdict.sh"));
    command.arg(question).env_clear().env("PATH", "/usr/bin:/bin").kill_on_drop(true).stdin(Stdio::null());
    let address = format!("https://{}", asked.address);
    command.envs([("AGGREGATOR", &*address), ("TOKEN", &asked.token), ("INTERVAL", "1")]);
    command.env("CURL_CA_BUNDLE", &asked.certificate).envs(env.iter().copied());
    command
}

/// Fails unless the script ends with a code, and these words on its standard output or error.
async fn script_ends(
    asked: &Asked,
    question: &str,
    env: &[(&str, &str)],
    code: i32,
    words: &str,
) -> Result<String> {
    let out = script(asked, question, env).output().await?;
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    ensure!(out.status.code() == Some(code) && said.contains(words), "{}: {said}", out.status);
    Ok(said)
}

/// What the promotion tools' expressions come to.
fn evaluated(question: &Value) -> Result<Value> {
    let answer = told("promotion-steps", question)?;
    ensure!(answer["error"].is_null(), "{answer}");
    Ok(answer)
}

/// The phase that Kargo's step is in after its next request, and the message of one that has failed.
async fn kargo(asked: &Asked, token: &str, revision: &str) -> Result<(&'static str, Value)> {
    let task = recipe("kargo.yaml")?.pop().context("no task")?;
    let mut vars = json!({
        "source": "flux-kustomization", "namespace": "flux-system", "package": APP, "selector": "wave=1",
        "revision": revision,
    });
    for var in task["spec"]["vars"].as_array().context("no vars")? {
        let name = var["name"].as_str().context("a var without name")?;
        if vars[name].is_null() {
            vars[name] = var["value"].clone();
        }
    }
    let step = &task["spec"]["steps"][0];
    let secrets = json!({"statusbridge": {"token": token}});
    let mut config =
        evaluated(&json!({"config": step["config"], "vars": vars, "secrets": secrets}))?["config"].take();
    is_config_of_kargo(&config)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let query = config["queryParams"].take();
    let query = query.as_array().into_iter().flatten();
    let query: Vec<_> = query.map(|param| (text(&param["name"]), text(&param["value"]))).collect();
    ensure!(config["headers"][0]["name"] == "Authorization", "{config}");
    let (status, body) =
        asked.get(&text(&config["url"]), &query, &text(&config["headers"][0]["value"])).await?;
    let expressions = json!({
        "success": config["successExpression"], "failure": config["failureExpression"],
        "error": config["errorExpression"],
    });
    let mut values = evaluated(
        &json!({"expressions": expressions, "answer": {"status": status, "body": body}}),
    )?["values"]
        .take();
    let phase = match (values["failure"].as_bool(), values["success"].as_bool()) {
        (Some(true), Some(_)) => "Failed",
        (Some(false), Some(true)) => "Succeeded",
        (Some(false), Some(false)) => "Running",
        _ => return Err(anyhow!("{values}")),
    };
    Ok((phase, values["error"].take()))
}

/// Whether Kargo's own schema takes the configuration of an `http` step.
fn is_config_of_kargo(config: &Value) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumer-crds/kargo/http-config.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let schema = compiler.compile(&file.display().to_string(), &mut schemas);
    let schema = schema.map_err(|error| anyhow!("{error}"))?;
    schemas.validate(config, schema).map_err(|error| anyhow!("{error}: {config}"))
}

/// What GitOps Promoter knows when it judges a commit.
struct Commit {
    active: u32,
    phase: &'static str,
    last_successful: u32,
    /// Whether it asks, or is between two requests.
    asks: bool,
}

/// The phase that GitOps Promoter gives a commit, and the description.
async fn promoter(asked: &Asked, token: &str, commit: &Commit) -> Result<(String, String)> {
    let check = recipe("gitops-promoter.yaml")?.pop().context("no check")?;
    let words =
        [("source=argocd-application&namespace=argocd&hubNamespace=default&package=payments", PACKAGE)];
    let spec = pod::with(&check["spec"], &words)?;
    let when = &spec["success"]["when"];
    let branch = "environment/staging";
    let environment =
        |more: Value| json!({"Status": {"Environments": [{"Branch": "environment/dev"}, more]}});
    let mut question = json!({
        "told": {
            "Branch": branch, "Phase": commit.phase, "SuccessOutput": null,
            "PromotionStrategy": environment(
                json!({"Branch": branch, "Active": {"Hydrated": {"Sha": revision(commit.active)}}}),
            ),
            "WebRequestCommitStatus": environment(
                json!({"Branch": branch, "LastSuccessfulSha": revision(commit.last_successful)}),
            ),
        },
    });
    if commit.asks {
        let request = &spec["httpRequest"];
        ensure!(request["methodTemplate"] == "GET", "{request}");
        question["templates"] = json!({"url": request["urlTemplate"]});
        let url = evaluated(&question)?["values"]["url"].take();
        ensure!(request["authentication"]["bearer"]["secretRef"]["name"] == "statusbridge", "{request}");
        let url = url.as_str().context("no address")?;
        let (status, body) = asked.get(url, &[], &format!("Bearer {token}")).await?;
        question["answer"] = json!({"status": status, "body": body});
    }
    question["expressions"] = json!({"phase": when["expression"], "output": when["output"]["expression"]});
    let mut values = evaluated(&question)?["values"].take();
    let phase = match &values["phase"] {
        Value::Bool(true) => "success",
        Value::Bool(false) => "pending",
        other => other["phase"].as_str().with_context(|| values.to_string())?,
    }
    .to_owned();
    question["told"]["SuccessOutput"] = values["output"].take();
    question["templates"] = json!({"description": spec["descriptionTemplate"]});
    let description = evaluated(&question)?["values"]["description"].take();
    Ok((phase, description.as_str().unwrap_or_default().to_owned()))
}

/// Whether Flagger's load tester lets the Canary start, and what it writes to its log.
async fn flagger(asked: &Asked, token: &str, number: u32) -> Result<(bool, String)> {
    let canary = recipe("flagger.yaml")?.pop().context("no Canary")?;
    let hook = &canary["spec"]["analysis"]["webhooks"][0];
    ensure!(
        (&hook["type"], &hook["metadata"]["type"]) == (&json!("confirm-rollout"), &json!("bash")),
        "{hook}"
    );
    let mount = asked.certificate.parent().context("a certificate that lies nowhere")?;
    std::fs::write(mount.join("token"), token)?;
    let question = format!("{PACKAGE}&selector=wave%3D1&revision={}", revision(number));
    let recipe_asks = "source=flux-helmrelease&namespace=flux-system&hubNamespace=default&package=payments\
                       &selector=wave%3D1&revision=1.4.2";
    let words = [
        (ADDRESS, &*asked.address),
        (recipe_asks, &question),
        ("/etc/statusbridge", &mount.display().to_string()),
    ];
    let hook = pod::with(hook, &words)?;
    let command = hook["metadata"]["cmd"].as_str().context("no command")?;
    let out = tokio::process::Command::new("bash").args(["-c", command]).kill_on_drop(true).output().await?;
    Ok((out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()))
}

/// Status of the answer to exactly what Flagger sends (pkg/apis/flagger/v1beta1/canary.go, CanaryWebhookPayload): what the
/// load tester gets, and what a proxy that adds the token would pass on.
async fn flagger_posts(asked: &Asked, token: &str, metadata: &Value) -> Result<u16> {
    let payload = json!({
        "name": "payments", "namespace": "payments", "phase": "Progressing", "checksum": "85d557f47b",
        "metadata": metadata,
    });
    let url = asked.one.hub.aggregator.url("/v1alpha1/verdict?hubNamespace=default");
    let request = asked.one.hub.aggregator.http().post(url).bearer_auth(token).json(&payload);
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn who_asks_for_a_verdict_goes_on_only_when_it_is_open() {
    run("e2e-recipes-verdict", async |rig| {
        let authority = Authority::new("ours")?;
        let certificate = rig.subdir("mounted")?.join("ca.crt");
        std::fs::write(&certificate, authority.pem())?;
        let one = One::start_with(rig, |mut options| {
            options.more.extend(["--authorize-scrapes", "--serve-fleet"].map(str::to_owned));
            options.over_tls(rig.dir(), &authority)
        })
        .await?;
        let api = &one.hub.api;
        one.hub.may_authorize().await?;
        api.apply(include_str!("../../../../deploy/rbac/viewer.yaml")).await?;
        let token = api.token_of_service_account("default", "reader", &[]).await?;
        let stranger = api.token_of_service_account("default", "stranger", &[]).await?;
        hub::bind_reader(api, "default", "statusbridge-viewer").await?;
        let address = one.hub.aggregator.address().to_string();
        let asked = Asked { certificate, token, address, one };
        let (api, token) = (&asked.one.hub.api, &*asked.token);
        for (tool, recipe) in [
            ("kargo", "kargo.yaml"),
            ("gitops-promoter", "gitops-promoter.yaml"),
            ("flagger", "flagger.yaml"),
        ] {
            api.install_crds(&crds::consumer(tool)?).await?;
            is_accepted(api, recipe).await?;
        }
        let ask = |active: u32| Commit { active, phase: "pending", last_successful: 1, asks: true };
        let wait = async |status: u16, why: &str| {
            script_ends(
                &asked,
                &Asked::question(2),
                &[("TIMEOUT", "0")],
                4,
                &format!("{status} \"message\""),
            )
            .await?;
            let kargo = kargo(&asked, token, &revision(2)).await?;
            ensure!(kargo.0 == "Running", "{why}: {kargo:?}");
            let promoter = promoter(&asked, token, &ask(2)).await?;
            ensure!(promoter.0 == "pending" && !promoter.1.is_empty(), "{why}: {promoter:?}");
            let flagger = flagger(&asked, token, 2).await?;
            ensure!(!flagger.0 && flagger.1.contains(&format!("\n{status}\n")), "{why}: {flagger:?}");
            Ok::<_, anyhow::Error>(())
        };

        // Nothing can be said: the hub has no ClusterProfiles.
        wait(503, "no ClusterProfiles").await?;
        // The cluster is not at the revision.
        api.install_crds(&crds::cluster_inventory()?).await?;
        profile(api, "default", "c1", json!({"wave": "1", "environment": "staging"})).await?;
        eventually(SOON, "the verdict is closed", async || {
            let authorization = format!("Bearer {token}");
            let url = asked.one.hub.aggregator.url(&format!("/v1alpha1/verdict?{}", Asked::question(2)));
            let answer = asked.get(&url, &[], &authorization).await?;
            ensure!(answer.0 == 409 && answer.1.contains("RevisionNeverSeen"), "{answer:?}");
            Ok(())
        })
        .await?;
        wait(409, "another revision").await?;

        // The script waits, and goes on as soon as the cluster is there.
        let mut running = script(&asked, &Asked::question(2), &[("TIMEOUT", "90")]);
        let mut running = running.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(running.stdout.take().context("no output")?).lines();
        let mut last = lines.next_line().await?.unwrap_or_default();
        ensure!(last.starts_with("409 \"message\""), "it did not wait: {last}");
        asked.one.at(2);
        while let Some(line) = lines.next_line().await? {
            last = line;
        }
        let ended = running.wait().await?;
        ensure!(ended.success() && last.starts_with("200 \"message\""), "{ended}: {last}");
        ensure!(kargo(&asked, token, &revision(2)).await?.0 == "Succeeded");
        let (phase, description) = promoter(&asked, token, &ask(2)).await?;
        ensure!(phase == "success" && description.contains("1 of 1 cluster"), "{phase}: {description}");
        let (starts, said) = flagger(&asked, token, 2).await?;
        ensure!(starts && said.contains("\n200\n"), "{said}");

        // Of digits alone, which Kargo takes for a number where it may.
        asked.one.fleet.says("c1", APP, FakePackage::healthy_at("111111111111"));
        eventually(SOON, "Kargo goes on", async || {
            let kargo = kargo(&asked, token, "111111111111").await?;
            ensure!(kargo.0 == "Succeeded", "{kargo:?}");
            Ok(())
        })
        .await?;

        // Between two requests a success is one of the commit that it was about.
        for (active, phase, last_successful, expected) in
            [(2, "success", 2, "success"), (3, "success", 2, "pending"), (2, "pending", 2, "pending")]
        {
            let commit = Commit { active, phase, last_successful, asks: false };
            let said = promoter(&asked, token, &commit).await?;
            ensure!(said.0 == expected, "{active} {phase} {last_successful}: {said:?}");
        }

        // Refused.
        for (question, by, status) in [
            (Asked::question(2), "", 401),
            (Asked::question(2), &stranger, 403),
            (Asked::question(2) + "&minSuccessTime=soon", token, 400),
        ] {
            let env = [("TOKEN", by), ("TIMEOUT", "90")];
            script_ends(&asked, &question, &env, 1, &format!("{status} \"message\"")).await?;
        }
        script_ends(&asked, "", &[("AGGREGATOR", "")], 2, "usage").await?;
        for by in [&*stranger, "nobody"] {
            let kargo = kargo(&asked, by, &revision(2)).await?;
            ensure!(kargo.0 == "Failed" && kargo.1.is_string(), "{kargo:?}");
            let promoter = promoter(&asked, by, &ask(2)).await?;
            ensure!(promoter.0 == "failure" && !promoter.1.is_empty(), "{promoter:?}");
            ensure!(!flagger(&asked, by, 2).await?.0);
        }

        // As Flagger itself asks.
        let metadata = json!({
            "source": fake_fleet::SOURCE, "namespace": FLUX_NAMESPACE, "package": APP, "selector": "wave=1",
            "revision": "111111111111",
        });
        for (by, revision, status) in [
            (token, json!("111111111111"), 200),
            (token, json!(revision(2)), 409),
            (token, Value::Null, 400),
            (&stranger, json!("111111111111"), 403),
        ] {
            let mut metadata = metadata.clone();
            metadata["revision"] = revision;
            let said = flagger_posts(&asked, by, &metadata).await?;
            ensure!(said == status, "{metadata}: {said}, not {status}");
        }

        // Somebody else answers 200; nobody answers.
        let other = FileServer::start().await?;
        other.put("/v1alpha1/verdict", "<html>please log in</html>");
        let elsewhere = [("AGGREGATOR", other.url("")), ("TIMEOUT", "90".to_owned())];
        let elsewhere = elsewhere.each_ref().map(|(name, value)| (*name, &**value));
        script_ends(&asked, &Asked::question(2), &elsewhere, 1, "no verdict").await?;
        asked.one.hub.aggregator.process().kill();
        script_ends(&asked, &Asked::question(2), &[("TIMEOUT", "2")], 4, "the time is over").await?;
        ensure!(!flagger(&asked, token, 2).await?.0);
        Ok(())
    })
    .await;
}

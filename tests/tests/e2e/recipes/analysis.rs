//! Argo Rollouts' real controller, which runs the analyses of Rollouts and of Kargo's verifications, asks the
//! aggregator's real page and starts the recipe's Job: whatever goes wrong, an analysis does not succeed.

use super::*;

/// Argo Rollouts' controller, for analyses alone.
struct Rollouts {
    runs: Api<DynamicObject>,
    _process: Process,
    _ports: [Port; 2],
}

impl Rollouts {
    /// It trusts authorities whose certificates lie in `trusted`, as the recipe says.
    async fn start(rig: &Rig, api: &ApiServer, trusted: &Path) -> Result<Self> {
        api.install_crds(&crds::consumer("argo-rollouts")?).await?;
        let ports = [Port::reserve()?, Port::reserve()?];
        let [metrics, health] = ports.each_ref().map(|port| port.address().port());
        let args = [
            "--controllers=analysis".to_owned(),
            "--leader-elect=false".to_owned(),
            format!("--metricsPort={metrics}"),
            format!("--healthzPort={health}"),
            format!("--kubeconfig={}", api.kubeconfig().display()),
        ];
        let env = [("NO_PROXY", "127.0.0.1".into()), ("SSL_CERT_DIR", trusted.into())];
        let process =
            Process::spawn(rig, "rollouts-controller", &program("rollouts-controller")?, args, env)?;
        let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "AnalysisRun");
        Ok(Self { runs: api.dynamic(&kind, Some("default")).await?, _process: process, _ports: ports })
    }

    /// Makes an AnalysisRun as Rollouts and Kargo do: of a template and of values for its arguments.
    async fn run(&self, name: &str, template: &Value, args: &[(&str, &str)]) -> Result<()> {
        let mut all: Vec<Value> = template["spec"]["args"].as_array().cloned().unwrap_or_default();
        for arg in &mut all {
            if let Some((_, value)) = args.iter().find(|(name, _)| arg["name"] == *name) {
                arg["value"] = json!(value);
            }
        }
        let run = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AnalysisRun", "metadata": {"name": name},
            "spec": {"args": all, "metrics": template["spec"]["metrics"]},
        });
        self.runs.create(&Default::default(), &serde_json::from_value(run)?).await?;
        Ok(())
    }

    /// The status of a run as it is now.
    async fn status(&self, name: &str) -> Result<Value> {
        Ok(self.runs.get(name).await?.data["status"].take())
    }

    /// Waits until a run has ended, and gives its status.
    async fn ends(&self, name: &str) -> Result<Value> {
        eventually(SOON, &format!("the analysis {name} ends"), async || {
            let status = self.status(name).await?;
            let phase = status["phase"].as_str().unwrap_or_default();
            ensure!(!matches!(phase, "" | "Pending" | "Running"), "{status}");
            Ok(status)
        })
        .await
    }

    /// Fails unless a run ends like this.
    async fn ends_as(&self, name: &str, phase: &str) -> Result<Value> {
        let status = self.ends(name).await?;
        ensure!(status["phase"] == phase, "{name} is not {phase}: {status}");
        Ok(status)
    }

    /// Waits for the Job that a run has made.
    async fn job(&self, api: &ApiServer, run: &str) -> Result<Job> {
        let jobs = Api::<Job>::namespaced(api.client(), "default");
        eventually(SOON, &format!("the analysis {run} makes a Job"), async || {
            let status = self.status(run).await?;
            let job = &status["metricResults"][0]["measurements"][0]["metadata"]["job-name"];
            let job = job.as_str().with_context(|| status.to_string())?;
            Ok(jobs.get(job).await?)
        })
        .await
    }
}

/// Runs a Job's pod, and says in its status how that ended.
async fn perform(api: &ApiServer, job: &Job) -> Result<pod::Ended> {
    let name = job.metadata.name.as_deref().context("no name")?;
    let pod = serde_json::to_value(&job.spec)?["template"]["spec"].take();
    let ended = pod::run(&pod, &pod::account(api, &pod).await?).await?;
    pod::ends(&Api::namespaced(api.client(), "default"), name, &ended).await?;
    Ok(ended)
}

/// An analysis with a web metric, and the arguments that it takes beside the revision.
struct Web {
    name: &'static str,
    template: Value,
    args: Vec<(&'static str, &'static str)>,
}

impl Web {
    /// The template that asks an aggregator. Where it asks again after an answer, it does so every second and gives up after so
    /// many, and `errors` in a row are too many: the recipe's own times take an hour.
    fn at(&self, aggregator: &str, count: u64, errors: Option<u64>) -> Result<Value> {
        let words = [("statusbridge-aggregator.statusbridge-system.svc:8080", aggregator)];
        let mut template = pod::with(&self.template, &words)?;
        ensure!(template.to_string().contains("\"https://"), "not over TLS: {template}");
        let metric = &mut template["spec"]["metrics"][0];
        let limit = metric["count"].as_u64().zip(metric["inconclusiveLimit"].as_u64());
        ensure!(
            limit.is_some_and(|(count, limit)| limit < count),
            "inconclusive answers alone could suffice: {metric}"
        );
        if metric["count"] != 1 {
            metric["interval"] = json!("1s");
            metric["count"] = json!(count);
            metric["inconclusiveLimit"] = json!(count - 1);
        }
        if let Some(errors) = errors {
            metric["consecutiveErrorLimit"] = json!(errors);
        }
        Ok(template)
    }

    /// Its arguments, for a revision.
    fn args<'a>(&'a self, revision: &'a str) -> Vec<(&'a str, &'a str)> {
        [&self.args[..], &[("revision", revision)]].concat()
    }
}

#[tokio::test]
#[ignore = "its servers take minutes to build: make long"]
async fn an_analysis_of_argo_rollouts_succeeds_only_while_gate_or_verdict_is_open_for_its_revision() {
    run("e2e-recipes-analysis", async |rig| {
        let (authority, trusted) = (Authority::new("ours")?, rig.subdir("trusted")?);
        std::fs::write(trusted.join("ca.pem"), authority.pem())?;
        let one = One::start_with(rig, |mut options| {
            options.more.extend(["--authorize-scrapes", "--serve-fleet"].map(str::to_owned));
            options.over_tls(rig.dir(), &authority)
        })
        .await?;
        let hub = &one.hub;
        hub.may_authorize().await?;
        let rollouts = Rollouts::start(rig, &hub.api, &trusted).await?;
        let [gate_template, verdict_template, job] =
            <[Value; 3]>::try_from(recipe("argo-rollouts.yaml")?).map_err(|all| anyhow!("{all:?}"))?;
        is_accepted(&hub.api, "argo-rollouts.yaml").await?;
        let aggregator = hub.aggregator.address().to_string();
        let of_gate = Web {
            name: "gate",
            template: gate_template,
            args: vec![("gate", "wave-1"), ("namespace", "default")],
        };
        let of_verdict = Web {
            name: "verdict",
            template: verdict_template,
            args: vec![
                ("source", fake_fleet::SOURCE),
                ("namespace", FLUX_NAMESPACE),
                ("package", APP),
                ("clusters", "c1"),
                ("staleAfter", STALE_AFTER),
            ],
        };
        let both = [&of_gate, &of_verdict];
        // An analysis that ends at the first error, and after so many other answers.
        let asks_at = async |web: &Web, name: &str, address: &str, number: u32, count: u64| {
            let run = format!("{name}-{}", web.name);
            let template = web.at(address, count, Some(0))?;
            rollouts.run(&run, &template, &web.args(&revision(number))).await.map(|()| run)
        };
        let asks = async |web: &Web, name: &str, number: u32, count: u64| {
            asks_at(web, name, &aggregator, number, count).await
        };
        let runs_job = async |name: &str, number: u32| {
            let args = [
                ("gate", "wave-1"),
                ("namespace", "default"),
                ("revision", &*revision(number)),
                ("timeout", "3s"),
            ];
            rollouts.run(name, &job, &args).await?;
            perform(&hub.api, &rollouts.job(&hub.api, name).await?).await
        };
        wait_rights(&hub.api, "pipeline").await?;
        hub.api.apply(include_str!("../../../../deploy/rbac/viewer.yaml")).await?;
        let viewer = ["create", "rolebinding", "viewer", "--clusterrole=statusbridge-viewer"];
        let viewer = [&viewer[..], &["--namespace=default", "--serviceaccount=default:pipeline"]].concat();
        hub.api.kubectl(&viewer).await?;
        let gives_token = async |account: &str| -> Result<()> {
            let token = hub.api.token_of_service_account("default", account, &[]).await?;
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-gate", "namespace": "default"},
                "stringData": {"token": token},
            });
            hub.api.apply_object(&secret).await.map(drop)
        };
        gives_token("pipeline").await?;
        hub.api.apply_object(&serde_json::from_str::<Value>(&gate(2))?).await?;

        // Closed: it waits, and goes on once the gate is open. A closed verdict is an error to Argo Rollouts.
        for web in both {
            let template = web.at(&aggregator, 120, None)?;
            rollouts.run(&format!("waits-{}", web.name), &template, &web.args(&revision(2))).await?;
        }
        eventually(SOON, "the analyses wait", async || {
            for (web, answers, least) in [("gate", "inconclusive", 2), ("verdict", "consecutiveError", 1)] {
                let status = rollouts.status(&format!("waits-{web}")).await?;
                ensure!(status["metricResults"][0][answers].as_u64() >= Some(least), "{status}");
                ensure!(status["phase"] == "Running", "{status}");
            }
            Ok(())
        })
        .await?;
        one.at(2);
        hub.opens("wave-1", SOON).await?;
        ensure!(runs_job("job-open", 2).await?.code == 0);
        for run in ["job-open", "waits-gate", "waits-verdict"] {
            rollouts.ends_as(run, "Successful").await?;
        }

        // Open, but not for this revision; no such gate; a question that makes no sense.
        let ends_in_error = async |name: &str, why: &str| -> Result<()> {
            let status = rollouts.ends_as(name, "Error").await?;
            ensure!(status.to_string().contains(why), "not because of {why}: {status}");
            Ok(())
        };
        for web in both {
            asks(web, "other-revision", 3, 3).await?;
        }
        let args = [("gate", "wave-2"), ("namespace", "default"), ("revision", &*revision(2))];
        rollouts.run("no-gate", &of_gate.at(&aggregator, 3, Some(0))?, &args).await?;
        let mut args = of_verdict.args("");
        args.retain(|(name, _)| *name != "clusters");
        args.push(("clusters", ""));
        rollouts.run("no-question", &of_verdict.at(&aggregator, 1, Some(0))?, &args).await?;
        let ended = runs_job("job-other-revision", 3).await?;
        ensure!(ended.code == 4 && ended.said.contains("OtherRevision"), "{ended:?}");
        rollouts.ends_as("job-other-revision", "Failed").await?;
        rollouts.ends_as("other-revision-gate", "Inconclusive").await?;
        ends_in_error("other-revision-verdict", "409").await?;
        ends_in_error("no-gate", "404").await?;
        ends_in_error("no-question", "400").await?;

        // Somebody else answers, whose answer Argo Rollouts would take for a success: without TLS, or with a certificate
        // of somebody else.
        let other = FileServer::start().await?;
        for path in ["gates/default/wave-1", "verdict"] {
            other.put(&format!("/v1alpha1/{path}"), "<html>please log in</html>");
        }
        let options = AggregatorOptions::new(one.prometheus.url());
        let options = options.over_tls(&rig.subdir("impostor")?, &Authority::new("another")?)?;
        let impostor = hub.start_replica(rig, "impostor", &options, hub.api.address()).await?;
        for web in both {
            let run = asks_at(web, "not-tls", &other.address().to_string(), 3, 3).await?;
            ends_in_error(&run, "server gave HTTP response to HTTPS client").await?;
            let run = asks_at(web, "not-ours", &impostor.address().to_string(), 3, 3).await?;
            ends_in_error(&run, "certificate signed by unknown authority").await?;
        }
        impostor.process().kill();

        // Somebody who may not see the gate.
        gives_token("default").await?;
        for web in both {
            ends_in_error(&asks(web, "not-allowed", 2, 3).await?, "403").await?;
        }
        gives_token("pipeline").await?;

        // A cluster failed: it will not open by itself, and nobody waits for an hour.
        one.fleet.says("c1", APP, FakePackage::failed_at(&revision(2)));
        hub.closes("wave-1", "FailureBudgetExceeded", SOON).await?;
        rollouts.ends_as(&asks(&of_gate, "stalled", 2, 120).await?, "Failed").await?;
        one.at(2);
        hub.opens("wave-1", SOON).await?;

        let token = hub.api.token_of_service_account("default", "pipeline", &[]).await?;
        // The metrics backend is away: the evidence gets old, or the aggregator says that it cannot say.
        one.prometheus.process().kill();
        let question: Vec<String> =
            of_verdict.args(&revision(2)).iter().map(|(name, value)| format!("{name}={value}")).collect();
        for path in ["gates/default/wave-1", &format!("verdict?{}&hubNamespace=default", question.join("&"))] {
            eventually(SOON, &format!("{path} does not say open"), async || {
                let request = hub.aggregator.http().get(hub.aggregator.url(&format!("/v1alpha1/{path}")));
                let answer: Value = request.bearer_auth(&token).send().await?.json().await?;
                ensure!(answer["open"] == false, "{answer}");
                Ok(())
            })
            .await?;
        }
        let status = rollouts.ends(&asks(&of_gate, "no-backend", 2, 3).await?).await?;
        ensure!(status["phase"] == "Inconclusive" || status["phase"] == "Error", "{status}");
        ends_in_error(&asks(&of_verdict, "no-backend", 2, 3).await?, "503").await?;
        one.prometheus.process().start()?;
        hub.opens("wave-1", SOON).await?;

        // The aggregator is dead, and the gate's last word is that it is open.
        hub.aggregator.process().kill();
        for web in both {
            rollouts.ends_as(&asks(web, "dead", 2, 3).await?, "Error").await?;
        }
        ensure!(history::condition(&hub.get_gate("wave-1").await?, "Open").0 == "True");
        hub.api.apply_object(&serde_json::from_str::<Value>(&gate(3))?).await?;
        let ended = runs_job("job-dead", 3).await?;
        ensure!(ended.code == 4 && ended.said.contains("has not been judged yet"), "{ended:?}");
        rollouts.ends_as("job-dead", "Failed").await?;
        Ok(())
    })
    .await;
}

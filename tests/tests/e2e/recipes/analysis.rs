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
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": jiff::Timestamp::now()});
    let mut status = json!({"startTime": jiff::Timestamp::now()});
    if ended.code == 0 {
        status["completionTime"] = json!(jiff::Timestamp::now());
        status["succeeded"] = json!(1);
        status["conditions"] = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
    } else {
        status["failed"] = json!(1);
        status["conditions"] = json!([condition("FailureTarget"), condition("Failed")]);
    }
    let jobs = Api::<Job>::namespaced(api.client(), "default");
    let patch = Patch::Merge(json!({"status": status}));
    jobs.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(ended)
}

/// The web metric at the address of an aggregator, asking every second and giving up after so many answers or the first
/// error: an hour, and ten seconds after each error, are the recipe's own.
fn at(template: &Value, aggregator: &str, count: u64) -> Result<Value> {
    let mut template =
        pod::with(template, &[("statusbridge-aggregator.statusbridge-system.svc:8080", aggregator)])?;
    ensure!(template.to_string().contains("\"https://"), "not over TLS: {template}");
    let metric = &mut template["spec"]["metrics"][0];
    let limit = metric["count"].as_u64().zip(metric["inconclusiveLimit"].as_u64());
    ensure!(
        limit.is_some_and(|(count, limit)| limit < count),
        "inconclusive answers alone could suffice: {metric}"
    );
    metric["interval"] = json!("1s");
    metric["count"] = json!(count);
    metric["inconclusiveLimit"] = json!(count - 1);
    metric["consecutiveErrorLimit"] = json!(0);
    Ok(template)
}

#[tokio::test]
async fn an_analysis_of_argo_rollouts_succeeds_only_while_the_gate_is_open_for_its_revision() {
    run("e2e-recipes-analysis", async |rig| {
        let (authority, trusted) = (Authority::new("ours")?, rig.subdir("trusted")?);
        std::fs::write(trusted.join("ca.pem"), authority.pem())?;
        let one = One::start_with(rig, |mut options| {
            options.more.push("--authorize-scrapes".to_owned());
            options.over_tls(rig.dir(), &authority)
        })
        .await?;
        let hub = &one.hub;
        hub.may_authorize().await?;
        let rollouts = Rollouts::start(rig, &hub.api, &trusted).await?;
        let [web, job] =
            <[Value; 2]>::try_from(recipe("argo-rollouts.yaml")?).map_err(|all| anyhow!("{all:?}"))?;
        is_accepted(&hub.api, "argo-rollouts.yaml").await?;
        let aggregator = hub.aggregator.address().to_string();
        let asks = async |name: &str, gate: &str, number: u32, count: u64| {
            let args = [("gate", gate), ("namespace", "default"), ("revision", &*revision(number))];
            rollouts.run(name, &at(&web, &aggregator, count)?, &args).await
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

        // Closed: it waits, and goes on once the gate is open.
        asks("waits", "wave-1", 2, 120).await?;
        eventually(SOON, "the analysis waits", async || {
            let status = rollouts.status("waits").await?;
            ensure!(status["metricResults"][0]["inconclusive"].as_u64() >= Some(2), "{status}");
            ensure!(status["phase"] == "Running", "{status}");
            Ok(())
        })
        .await?;
        one.at(2);
        hub.opens("wave-1", SOON).await?;
        rollouts.ends_as("waits", "Successful").await?;
        ensure!(runs_job("job-open", 2).await?.code == 0);
        rollouts.ends_as("job-open", "Successful").await?;

        // Open, but not for this revision; no such gate.
        asks("other-revision", "wave-1", 3, 3).await?;
        asks("no-gate", "wave-2", 2, 3).await?;
        let ended = runs_job("job-other-revision", 3).await?;
        ensure!(ended.code == 4 && ended.said.contains("OtherRevision"), "{ended:?}");
        rollouts.ends_as("job-other-revision", "Failed").await?;
        rollouts.ends_as("other-revision", "Inconclusive").await?;
        rollouts.ends_as("no-gate", "Error").await?;

        // Somebody else answers, whose answer Argo Rollouts would take for a success: without TLS, or with a certificate
        // of somebody else.
        let ends_in_error = async |name: &str, why: &str| -> Result<()> {
            let status = rollouts.ends_as(name, "Error").await?;
            ensure!(status.to_string().contains(why), "not because of {why}: {status}");
            Ok(())
        };
        let args = [("gate", "wave-1"), ("namespace", "default"), ("revision", &*revision(3))];
        let other = FileServer::start().await?;
        other.put("/v1alpha1/gates/default/wave-1", "<html>please log in</html>");
        rollouts.run("not-tls", &at(&web, &other.address().to_string(), 3)?, &args).await?;
        ends_in_error("not-tls", "server gave HTTP response to HTTPS client").await?;
        let options = AggregatorOptions::new(one.prometheus.url());
        let options = options.over_tls(&rig.subdir("impostor")?, &Authority::new("another")?)?;
        let impostor = hub.start_replica(rig, "impostor", &options, hub.api.address()).await?;
        rollouts.run("not-ours", &at(&web, &impostor.address().to_string(), 3)?, &args).await?;
        ends_in_error("not-ours", "certificate signed by unknown authority").await?;
        impostor.process().kill();

        // Somebody who may not see the gate.
        gives_token("default").await?;
        asks("not-allowed", "wave-1", 2, 3).await?;
        ends_in_error("not-allowed", "403").await?;
        gives_token("pipeline").await?;

        // A cluster failed: it will not open by itself, and nobody waits for an hour.
        one.fleet.says("c1", APP, FakePackage::failed_at(&revision(2)));
        hub.closes("wave-1", "FailureBudgetExceeded", SOON).await?;
        asks("stalled", "wave-1", 2, 120).await?;
        rollouts.ends_as("stalled", "Failed").await?;
        one.at(2);
        hub.opens("wave-1", SOON).await?;

        let token = hub.api.token_of_service_account("default", "pipeline", &[]).await?;
        // The metrics backend is away: the evidence gets old, or the aggregator says that it cannot say.
        one.prometheus.process().kill();
        eventually(SOON, "the page does not say that the gate is open", async || {
            let request = hub.aggregator.http().get(hub.aggregator.url("/v1alpha1/gates/default/wave-1"));
            let answer: Value = request.bearer_auth(&token).send().await?.json().await?;
            ensure!(answer["open"] == false, "{answer}");
            Ok(())
        })
        .await?;
        asks("no-backend", "wave-1", 2, 3).await?;
        let status = rollouts.ends("no-backend").await?;
        ensure!(status["phase"] == "Inconclusive" || status["phase"] == "Error", "{status}");
        one.prometheus.process().start()?;
        hub.opens("wave-1", SOON).await?;

        // The aggregator is dead, and the gate's last word is that it is open.
        hub.aggregator.process().kill();
        asks("dead", "wave-1", 2, 3).await?;
        rollouts.ends_as("dead", "Error").await?;
        ensure!(history::condition(&hub.get_gate("wave-1").await?, "Open").0 == "True");
        hub.api.apply_object(&serde_json::from_str::<Value>(&gate(3))?).await?;
        let ended = runs_job("job-dead", 3).await?;
        ensure!(ended.code == 4 && ended.said.contains("has not been judged yet"), "{ended:?}");
        rollouts.ends_as("job-dead", "Failed").await?;
        Ok(())
    })
    .await;
}

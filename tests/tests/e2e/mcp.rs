//! `statusbridge mcp`: what a chat is told of a rollout, over the API of the aggregator and with the rights of one tenant.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use statusbridge_tests::*;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

#[tokio::test]
async fn a_chat_learns_what_blocks_a_wave_with_the_rights_of_its_token() {
    run("e2e-mcp", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        let mut jobs = Vec::new();
        for (cluster, package) in [("c1", FakePackage::healthy_at(R1)), ("c2", FakePackage::failed_at(R1))] {
            fleet.says(cluster, "payments", package);
            jobs.push(fleet.target(ScrapeJob::new(cluster), cluster, &[]));
        }
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs(jobs)).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let accounts = hub::install(&api).await?;
        api.apply(include_str!("../../../deploy/rbac/authorize.yaml")).await?;
        api.apply(include_str!("../../../deploy/rbac/viewer.yaml")).await?;
        let token = api.token_of_service_account("team-a", "reader", &[]).await?;
        hub::bind_reader(&api, "team-a", "statusbridge-viewer").await?;
        let object = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
                "metadata": {"name": name, "namespace": "team-a"}, "spec": spec,
            })
        };
        let package = json!({"source": fake_fleet::SOURCE, "namespace": FLUX_NAMESPACE, "name": "payments"});
        let spec = json!({"package": package, "revision": R1, "clusters": {"names": ["c1", "c2"]}, "staleAfter": "30s"});
        api.apply_object(&object("FleetPackage", "payments", spec)).await?;
        for (name, cluster, before) in [("wave-1", "c2", None), ("wave-2", "c1", Some("wave-1")), ("wave-3", "c1", Some("wave-2"))] {
            let depends_on: Vec<_> = before.iter().map(|name| json!({"name": name})).collect();
            let spec = json!({
                "fleetPackageRef": {"name": "payments"}, "revision": R1, "clusters": {"names": [cluster]}, "dependsOn": depends_on,
            });
            api.apply_object(&object("RolloutGate", name, spec)).await?;
        }

        let authority = Authority::new("ours")?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.namespace = hub::LEASES.to_owned();
        options.more = ["--serve-fleet", "--authorize-scrapes"].map(str::to_owned).to_vec();
        let options = options.over_tls(rig.dir(), &authority)?;
        let aggregator = Aggregator::start(rig, "aggregator", &accounts.aggregator, &options).await?;
        let (ca_file, token_file) = (rig.dir().join("ca.crt"), rig.dir().join("token"));
        std::fs::write(&ca_file, authority.pem())?;
        let files = [&ca_file, &token_file].map(|file| file.display().to_string());
        let server = aggregator.url("");
        let args = ["mcp", "--server", &server, "--ca-file", &files[0], "--token-file", &files[1], "-n", "team-a"];
        let mut command = own_command("statusbridge", &args).await?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = (child.stdout.take().context("stdout")?, child.stdin.take().context("stdin")?);
        let client = ().serve(pipes).await?;
        let ask = async |tool: &'static str, arguments: Value| -> Result<(String, Option<Value>)> {
            let arguments = serde_json::from_value(arguments)?;
            let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
            let text = result.content.first().and_then(|content| content.as_text()).context("text")?;
            Ok((text.text.clone(), result.structured_content))
        };

        std::fs::write(&token_file, "nobodys")?;
        let (text, _) = ask("fleet_status", json!({})).await?;
        ensure!(text.contains("does not accept the token"), "{text}");
        std::fs::write(&token_file, token)?;
        eventually(SOON, "the chain of waves is explained", async || {
            let (text, data) = ask("explain", json!({"kind": "gate", "name": "wave-3"})).await?;
            let data = data.with_context(|| text.clone())?;
            let before: Vec<_> = data["dependsOn"].as_array().context("dependsOn")?.iter().map(|it| &it["name"]).collect();
            ensure!(data["gate"]["open"] == false && before == ["wave-2", "wave-1"], "{data}");
            ensure!(data["dependsOn"][1]["reason"] == "FailureBudgetExceeded", "{data}");
            ensure!(text.contains("wave-2 depends on gate team-a/wave-1: Stalled"), "{text}");
            let (text, data) = ask("explain", json!({"kind": "gate", "name": "wave-1"})).await?;
            ensure!(data.with_context(|| text.clone())?["clusters"][0]["clusterName"] == "c2", "{text}");
            Ok(())
        })
        .await?;
        let question = |revision: &str| {
            json!({
                "source": fake_fleet::SOURCE, "packageNamespace": FLUX_NAMESPACE, "package": "payments", "revision": revision,
                "clusters": ["c1"],
            })
        };
        for (revision, begin) in [(R1, "Yes"), (R2, "No")] {
            eventually(SOON, "the question is answered", async || {
                let (text, _) = ask("verdict", question(revision)).await?;
                ensure!(text.starts_with(begin), "{text}");
                Ok(())
            })
            .await?;
        }
        let (text, data) = ask("fleet_status", json!({})).await?;
        let totals = json!({"packages": 1, "packagesReady": 0, "gates": 3, "gatesOpen": 0});
        ensure!(data.with_context(|| text.clone())?["totals"] == totals, "{text}");
        let (text, data) = ask("history", json!({"fleetPackage": "payments"})).await?;
        ensure!(data.with_context(|| text.clone())?["history"][0]["revision"] == R1, "{text}");
        let (text, data) = ask("fleet_status", json!({"namespace": "team-b"})).await?;
        ensure!(data.is_none() && text.contains("refuses") && text.contains("may not list"), "{text}");
        client.cancel().await?;
        ensure!(child.wait().await?.success());
        Ok(())
    })
    .await;
}

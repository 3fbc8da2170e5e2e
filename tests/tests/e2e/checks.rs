//! Application metrics that keep a gate closed: for each cluster, for all together, and from templates.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::hub::Hub;
use statusbridge_tests::*;
use std::time::Duration;

const TEMPLATES: &str = r#"
checkTemplates:
  worst:
    query: max({__name__="{{metric}}", app="{{app}}"})
    parameters:
      metric: {}
      app: {pattern: "[a-z]+"}
  own:
    query: sum(label_replace(error_ratio{cluster=~"{{clusters}}"}, "of", "{{namespace}}", "", "") * on (of) group_left () label_replace(vector(1), "of", "default", "", ""))
"#;

/// Clusters whose application serves metrics of its own.
struct Setup {
    fleet: FakeFleet,
    pages: FileServer,
    hub: Hub,
    prometheus: Prometheus,
    _etcd: Etcd,
}

impl Setup {
    async fn start(rig: &Rig, clusters: &[&str]) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        let pages = FileServer::start().await?;
        let mut exporters = job();
        let mut applications = ScrapeJob::new("applications");
        for cluster in clusters {
            fleet.says(cluster, APP, FakePackage::healthy_at(&revision(1)));
            exporters = fleet.target(exporters, cluster, &[]);
            let path = format!("/{cluster}");
            applications =
                applications.target(pages.address(), &[("cluster", cluster), ("__metrics_path__", &path)]);
        }
        let prometheus =
            Prometheus::start(rig, &PrometheusConfig::with_jobs([exporters, applications])).await?;
        let config = rig.dir().join("config.yaml");
        std::fs::write(&config, TEMPLATES)?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.more = ["--backend-timeout", "2s", "--config", &config.display().to_string()]
            .map(str::to_owned)
            .to_vec();
        let etcd = Etcd::start(rig).await?;
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, STALE_AFTER, json!({})).await?;
        Ok(Self { fleet, pages, hub, prometheus, _etcd: etcd })
    }

    /// What a cluster's application says.
    fn errors(&self, cluster: &str, ratio: &str) {
        self.pages.put(&format!("/{cluster}"), format!("error_ratio{{app=\"pay\"}} {ratio}\n"));
    }

    async fn gate(&self, name: &str, checks: Value) -> Result<()> {
        let spec = json!({"clusters": {"names": ["c1", "c2"]}, "checks": checks});
        self.hub.gate(name, APP, &revision(1), spec).await.map(drop)
    }

    /// Waits until a gate is closed by its check for this reason.
    async fn fails(&self, name: &str, message: &str) -> Result<()> {
        eventually(SOON, &format!("{name} fails: {message}"), async || {
            let gate = self.hub.get_gate(name).await?;
            ensure!(history::condition(&gate, "Open") == ("False", "CheckFailed"), "{}", gate.data["status"]);
            let said = gate.data["status"]["waitingFor"][0]["message"].as_str().unwrap_or_default();
            ensure!(said.contains(message), "{said}");
            ensure!(gate.data["status"]["checks"][0]["state"] == "Failed", "{}", gate.data["status"]);
            ensure!(history::condition(&gate, "Stalled").0.is_empty(), "it may pass later");
            Ok(())
        })
        .await
    }
}

fn check(more: Value) -> Value {
    let mut check = json!({"name": "errors", "max": 0.1, "window": "2s"});
    check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([check])
}

#[tokio::test]
async fn a_gate_waits_for_what_the_application_says() {
    run("e2e-checks", async |rig| {
        let setup = Setup::start(rig, &["c1", "c2", "c3"]).await?;
        let hub = &setup.hub;
        setup.errors("c1", "0");
        // For each cluster; for all of them; a scalar; a query that was written once.
        setup.gate("each", check(json!({"query": "error_ratio{app=\"pay\"}"}))).await?;
        setup.gate("all", check(json!({"query": "sum(error_ratio)"}))).await?;
        setup
            .gate("scalar", check(json!({"query": "scalar(count(error_ratio))", "min": 2, "max": 3})))
            .await?;
        let worst = json!({"template": "worst", "parameters": {"metric": "error_ratio", "app": "pay"}});
        setup.gate("template", check(worst)).await?;
        setup.gate("own", check(json!({"template": "own"}))).await?;
        let forged = json!({"template": "own", "parameters": {"clusters": ".*"}});
        setup.gate("forged", check(forged)).await?;
        eventually(SOON, "nobody sets which clusters are meant", async || {
            let gate = hub.get_gate("forged").await?;
            let said = gate.data["status"]["waitingFor"][0]["message"].as_str().unwrap_or_default();
            ensure!(history::condition(&gate, "Open") == ("False", "InvalidSpec"), "{}", gate.data["status"]);
            ensure!(said.contains("parameter \"clusters\" cannot be set"), "{said}");
            Ok(())
        })
        .await?;
        setup.fails("each", "check errors: no value in c2").await?;
        hub.opens("all", SOON).await?;
        hub.opens("own", SOON).await?;
        hub.opens("template", SOON).await?;
        setup.fails("scalar", "less than 2").await?;

        // The third cluster is none of theirs, but part of what is asked of all together.
        setup.errors("c2", "0.5");
        setup.errors("c3", "NaN");
        setup.fails("each", "more than 0.1 in c2").await?;
        setup.fails("all", "not a finite number").await?;
        setup.fails("own", "more than 0.1").await?;
        hub.opens("scalar", SOON).await?;
        setup.errors("c3", "0");
        setup.fails("all", "more than 0.1").await?;
        setup.fails("template", "more than 0.1").await?;

        setup.errors("c2", "0.05");
        for gate in ["each", "all", "template", "own"] {
            hub.opens(gate, SOON).await?;
        }
        let gate = hub.opens("each", SOON).await?;
        let expected = json!([{"name": "errors", "state": "Passed", "value": "0 to 0.05"}]);
        ensure!(gate.data["status"]["checks"] == expected, "{}", gate.data["status"]["checks"]);

        // A value that moves within its bounds is not written at every poll.
        let history = hub.history("each").await?;
        holds_for(Duration::from_secs(8), "it stays open", async || {
            setup.errors("c2", &format!("0.0{}", fake_fleet::unix_now() % 10));
            history.check("a value within bounds", open).await
        })
        .await?;
        let versions = history.versions().await?;
        ensure!(versions.len() <= 6, "{} versions in eight seconds", versions.len());

        // A restart of the aggregator closes nothing.
        hub.aggregator.process().kill();
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        holds_for(Duration::from_secs(3), "it stays open", async || history.check("a restart", open).await)
            .await?;

        // Metrics that go away are a failure too.
        setup.pages.remove("/c1");
        setup.fails("each", "no value in c1").await?;
        for cluster in ["c2", "c3"] {
            setup.pages.remove(&format!("/{cluster}"));
        }
        setup.fails("all", "no data").await
    })
    .await;
}

#[tokio::test]
async fn bad_checks_close_their_own_gate_and_no_other() {
    run("e2e-bad-checks", async |rig| {
        let setup = Setup::start(rig, &["c1", "c2"]).await?;
        let hub = &setup.hub;
        for cluster in ["c1", "c2"] {
            setup.errors(cluster, "0");
        }
        setup.gate("good", check(json!({"query": "sum(error_ratio)"}))).await?;
        hub.opens("good", SOON).await?;
        let good = hub.history("good").await?;
        for (name, query, message) in [
            ("syntax", "sum(", "parse error"),
            ("range", "error_ratio[1m]", "result is a matrix"),
            ("text", "\"zero\"", "malformed"),
            (
                "several",
                "sum by (instance, job) (label_replace(error_ratio, \"job\", \"$1\", \"cluster\", \"(.*)\"))",
                "several series without label `cluster`",
            ),
            (
                "twice",
                "error_ratio or label_replace(error_ratio, \"more\", \"x\", \"\", \"\")",
                "several values in c1, c2",
            ),
            ("nothing", "no_such_metric", "no data"),
            ("huge", "vector(1) / 0", "not a finite number"),
        ] {
            setup.gate(name, check(json!({"query": query}))).await?;
            setup.fails(name, message).await?;
        }
        for (name, parameters, message) in [
            ("no-template", json!({"template": "best"}), "check \"errors\": there is no template \"best\""),
            (
                "no-parameter",
                json!({"template": "worst", "parameters": {"metric": "m"}}),
                "check \"errors\": template \"worst\" needs parameter \"app\"",
            ),
            (
                "bad-value",
                json!({"template": "worst", "parameters": {"metric": "m", "app": "a\"} or vector(0) #"}}),
                "check \"errors\": parameter \"app\" of template \"worst\" must match [a-z]+",
            ),
        ] {
            setup.gate(name, check(parameters)).await?;
            let gate = hub.closes(name, "InvalidSpec", SOON).await?;
            ensure!(history::condition(&gate, "Stalled").0 == "True", "{}", gate.data["status"]);
            ensure!(gate.data["status"]["waitingFor"][0]["message"] == message, "{}", waiting(&gate));
        }
        good.check("bad checks of others", open).await?;

        // The window: a cluster that has just arrived says nothing about the application yet.
        let spec = json!({"query": "sum(error_ratio)", "window": "8s"});
        let patient = hub.history("patient").await?;
        for cluster in ["c1", "c2"] {
            setup.fleet.says(cluster, APP, FakePackage::healthy_at(&revision(1)));
        }
        setup.gate("patient", check(spec)).await?;
        hub.closes("patient", "CheckPending", SOON).await?;
        hub.opens("patient", SOON).await?;
        patient
            .check("it waits for nothing but its check", |version| {
                let reason = version.condition("Open").1;
                ensure!(["", "CheckPending", "Healthy"].contains(&reason), "{reason}");
                Ok(())
            })
            .await?;

        // Without a backend, what a check said ages like everything else.
        setup.prometheus.process().freeze()?;
        eventually(STALE_BY, "good is closed", async || {
            let gate = hub.get_gate("good").await?;
            ensure!(history::condition(&gate, "Open").0 == "False", "{}", gate.data["status"]);
            Ok(())
        })
        .await?;
        setup.prometheus.process().thaw()?;
        hub.opens("good", SOON).await.map(drop)
    })
    .await;
}

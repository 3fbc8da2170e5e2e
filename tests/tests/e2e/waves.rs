//! Waves that wait for each other: they open one after another and close together.

use crate::e2e::world::*;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Health};
use statusbridge_tests::history::Version;
use statusbridge_tests::*;
use std::time::Duration;

/// Three fake clusters, c1 to c3, and a hub.
struct Setup {
    fleet: FakeFleet,
    hub: Hub,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const WAVES: [&str; 3] = ["wave-1", "wave-2", "wave-3"];

impl Setup {
    async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, Duration::from_secs(1), STALE_AFTER).await
    }

    async fn start_with(rig: &Rig, poll_interval: Duration, stale_after: &str) -> Result<Self> {
        let fleet = FakeFleet::start().await?;
        for cluster in CLUSTERS {
            fleet.says(cluster, APP, FakePackage::healthy_at(&revision(1)));
        }
        let job = CLUSTERS.iter().fold(job(), |job, cluster| fleet.target(job, cluster, &[]));
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        eventually(SOON, "all clusters have been heard of for a while", async || {
            let ago = fake_fleet::unix_now().saturating_sub(2) as f64;
            let heard = prometheus.query_at("statusbridge_digest", ago).await?.len();
            ensure!(heard == CLUSTERS.len(), "{heard} clusters");
            Ok(())
        })
        .await?;
        let etcd = Etcd::start(rig).await?;
        let mut options = AggregatorOptions::new(prometheus.url());
        options.poll_interval = poll_interval;
        options.more = vec!["--backend-timeout".to_owned(), "2s".to_owned()];
        let hub = Hub::start_with(rig, &etcd, options).await?;
        hub.report(APP, stale_after, json!({})).await?;
        Ok(Self { fleet, hub, _prometheus: prometheus, _etcd: etcd })
    }

    /// A gate for one cluster.
    async fn wave(&self, name: &str, number: u32, cluster: &str, depends_on: &[&str]) -> Result<()> {
        self.wave_with(name, number, cluster, depends_on, json!({})).await
    }

    async fn wave_with(
        &self,
        name: &str,
        number: u32,
        cluster: &str,
        depends_on: &[&str],
        more: Value,
    ) -> Result<()> {
        let others: Vec<Value> = depends_on.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({"clusters": {"names": [cluster]}, "dependsOn": others});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.hub.gate(name, APP, &revision(number), spec).await.map(drop)
    }
}

fn number(version: &Version) -> Result<u64> {
    Ok(version.object.metadata.resource_version.as_deref().context("no resourceVersion")?.parse()?)
}

/// Whether a version is open for the spec that it has.
fn is_open(version: &Version) -> bool {
    version.condition("Open").0 == "True"
        && version.object.data["status"]["observedGeneration"].as_i64() == version.object.metadata.generation
}

/// Whenever a gate turned open, the other was open for the spec that it had just then.
async fn opened_only_behind(gate: &History, other: &History) -> Result<usize> {
    let (gate, other) = (gate.versions().await?, other.versions().await?);
    let mut openings = 0;
    for (before, after) in gate.iter().zip(&gate[1..]) {
        if is_open(before) || !is_open(after) {
            continue;
        }
        let at = number(after)?;
        let mut then = None;
        for version in &other {
            if number(version)? < at {
                then = Some(version);
            }
        }
        let then = then.context("the other gate was not there yet")?;
        ensure!(is_open(then), "opened at {at} behind {}", then.object.data["status"]);
        openings += 1;
    }
    Ok(openings)
}

#[tokio::test]
async fn waves_open_in_order_and_close_in_cascade() {
    run("e2e-waves", async |rig| {
        let setup = Setup::start(rig).await?;
        let (fleet, hub) = (&setup.fleet, &setup.hub);
        setup.wave("wave-1", 2, "c1", &[]).await?;
        setup.wave("wave-2", 2, "c2", &["wave-1"]).await?;
        setup.wave("wave-3", 2, "c3", &["wave-2"]).await?;
        let mut histories = Vec::new();
        for wave in WAVES {
            histories.push(hub.history(wave).await?);
        }
        hub.closes("wave-1", "RevisionNeverSeen", SOON).await?;
        hub.closes("wave-2", "DependencyNotOpen", SOON).await?;

        // The last rolls first: no gate takes it for its turn.
        for cluster in ["c3", "c2"] {
            fleet.says(cluster, APP, FakePackage::healthy_at(&revision(2)));
        }
        for (wave, other) in [("wave-2", "wave-1"), ("wave-3", "wave-2")] {
            eventually(SOON, &format!("{wave} waits for nothing but {other}"), async || {
                let gate = hub.get_gate(wave).await?;
                let waiting = &gate.data["status"]["waitingFor"];
                ensure!(gate.data["status"]["healthy"] == "1/1", "{}", gate.data["status"]);
                ensure!(waiting.as_array().is_some_and(|all| all.len() == 1), "{waiting}");
                ensure!(waiting[0]["message"] == format!("gate {other} is not open"), "{waiting}");
                Ok(())
            })
            .await?;
        }
        for history in &histories {
            history.check("the first wave is not done", closed).await?;
        }
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(2)));
        for wave in WAVES {
            hub.opens(wave, SOON).await?;
        }

        // The first wave breaks: all close, and open again when it is well.
        fleet.says("c1", APP, FakePackage::failed_at(&revision(2)));
        hub.closes("wave-1", "FailureBudgetExceeded", SOON).await?;
        for wave in ["wave-2", "wave-3"] {
            let gate = hub.closes(wave, "DependencyNotOpen", SOON).await?;
            ensure!(history::condition(&gate, "OpenedOnce").0 == "True", "{}", gate.data["status"]);
            ensure!(history::condition(&gate, "Stalled").0.is_empty(), "it waits: {}", gate.data["status"]);
        }
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(2)));
        for wave in WAVES {
            hub.opens(wave, SOON).await?;
        }

        // Another spec of the first wave, although it is fulfilled at once.
        setup.wave_with("wave-1", 2, "c1", &[], json!({"minHealthy": 1})).await?;
        for wave in WAVES {
            hub.opens(wave, SOON).await?;
        }
        let mut openings = Vec::new();
        for (at, wave) in WAVES.iter().enumerate().skip(1) {
            let count = opened_only_behind(&histories[at], &histories[at - 1])
                .await
                .with_context(|| format!("{wave} and the one before"))?;
            openings.push(count);
        }
        ensure!(openings[0] >= 2 && openings[1] >= 2, "{openings:?}");

        // A person's word opens a gate for those behind it too.
        fleet.says("c1", APP, FakePackage::failed_at(&revision(2)));
        hub.closes("wave-3", "DependencyNotOpen", SOON).await?;
        let word = json!({"override": {"state": "Open", "reason": "c1 is being replaced"}});
        setup.wave_with("wave-1", 2, "c1", &[], word).await?;
        hub.opens("wave-3", SOON).await?;
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(2)));

        // Another revision of the same package is not the one before, in whatever words; the same one is.
        setup.wave("wave-1", 1, "c1", &[]).await?;
        hub.closes("wave-2", "DependencyAtAnotherRevision", SOON).await?;
        hub.closes("wave-3", "DependencyNotOpen", SOON).await?;
        let short = statusbridge_contract::Fingerprint::of(&revision(2)).to_string();
        hub.gate("wave-1", APP, &short, json!({"clusters": {"names": ["c1"]}})).await?;
        hub.opens("wave-3", SOON).await?;

        // A restart of the aggregator closes none of them.
        hub.aggregator.process().kill();
        let mut histories = Vec::new();
        for wave in WAVES {
            histories.push(hub.history(wave).await?);
        }
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        holds_for(Duration::from_secs(3), "they stay open", async || {
            for history in &histories {
                history.check("a restart", open).await?;
            }
            Ok(())
        })
        .await?;
        hub.api.kubectl(&["delete", "rolloutgate", "wave-1"]).await?;
        hub.closes("wave-2", "DependencyNotFound", SOON).await?;
        hub.closes("wave-3", "DependencyNotOpen", SOON).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_change_reaches_all_that_depend_on_it_without_a_poll() {
    run("e2e-waves-at-once", async |rig| {
        let setup = Setup::start_with(rig, Duration::from_secs(3600), "2h").await?;
        let hub = &setup.hub;
        for (wave, cluster, others) in
            [("wave-3", "c3", &["wave-2"][..]), ("wave-2", "c2", &["wave-1"]), ("wave-1", "c1", &[])]
        {
            setup.wave(wave, 1, cluster, others).await?;
        }
        for round in 0..3 {
            for wave in WAVES {
                hub.opens(wave, SOON).await.with_context(|| format!("round {round}"))?;
            }
            let freeze = json!({"override": {"state": "Closed", "reason": "freeze"}});
            setup.wave_with("wave-1", 1, "c1", &[], freeze).await?;
            hub.closes("wave-1", "Overridden", SOON).await?;
            hub.closes("wave-2", "DependencyNotOpen", SOON).await?;
            hub.closes("wave-3", "DependencyNotOpen", SOON).await?;
            hub.gate("wave-1", APP, &revision(1), json!({"clusters": {"names": ["c1"]}})).await?;
            let thaw = r#"{"spec":{"override":null}}"#;
            hub.api.kubectl(&["patch", "rolloutgate", "wave-1", "--type=merge", "-p", thaw]).await?;
        }
        let metrics = reqwest::Client::builder().no_proxy().build()?;
        let metrics = metrics.get(format!("http://{}/metrics", hub.aggregator.address())).send().await?;
        let metrics = metrics.text().await?;
        ensure!(metrics.contains("polls_total{result=\"success\"} 1\n"), "it polled again: {metrics}");
        Ok(())
    })
    .await;
}

/// Refuses every status of the first wave.
const REFUSAL: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [statusbridge.dev], apiVersions: ["*"], operations: [UPDATE], resources: [rolloutgates/status]}
  validations:
  - {expression: "object.metadata.name != 'wave-1'", message: refused}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
"#;

#[tokio::test]
async fn a_gate_whose_closing_is_refused_carries_nobody() {
    run("e2e-waves-refused", async |rig| {
        let setup = Setup::start(rig).await?;
        let hub = &setup.hub;
        setup.wave("wave-1", 1, "c1", &[]).await?;
        setup.wave("wave-2", 1, "c2", &["wave-1"]).await?;
        hub.opens("wave-2", SOON).await?;
        hub.api.apply(REFUSAL).await?;
        eventually(SOON, "statuses of wave-1 are refused", async || {
            let patch = r#"{"status":{"healthy":"0/0"}}"#;
            let words = ["--subresource=status", "--type=merge", "--dry-run=server", "-p", patch];
            let tried = [&["patch", "rolloutgate", "wave-1"], &words[..]].concat();
            let out = hub.api.kubectl_output(&tried).await?;
            ensure!(String::from_utf8_lossy(&out.stderr).contains("refused"), "{out:?}");
            Ok(())
        })
        .await?;
        setup.fleet.says("c1", APP, FakePackage::failed_at(&revision(1)));
        hub.closes("wave-2", "DependencyNotOpen", SOON).await?;
        hub.opens("wave-1", SOON).await.context("its closing was not refused")?;
        holds_for(Duration::from_secs(3), "wave-2 is not carried", async || {
            let gate = hub.get_gate("wave-2").await?;
            ensure!(history::condition(&gate, "Open").0 == "False", "{}", gate.data["status"]);
            Ok(())
        })
        .await?;
        hub.api.kubectl(&["delete", "validatingadmissionpolicybinding", "refuse"]).await?;
        hub.closes("wave-1", "FailureBudgetExceeded", SOON).await?;
        setup.fleet.says("c1", APP, FakePackage::healthy_at(&revision(1)));
        hub.opens("wave-2", SOON).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn gates_in_a_circle_are_stalled_and_those_behind_them_wait() {
    run("e2e-circle", async |rig| {
        let setup = Setup::start(rig).await?;
        let hub = &setup.hub;
        setup.wave("one", 1, "c1", &["three"]).await?;
        setup.wave("two", 1, "c2", &["one"]).await?;
        setup.wave("behind", 1, "c1", &["two"]).await?;
        hub.closes("one", "DependencyNotFound", SOON).await?;
        // The last makes the circle.
        let histories = [hub.history("one").await?, hub.history("two").await?, hub.history("three").await?];
        setup.wave("three", 1, "c3", &["two"]).await?;
        for gate in ["one", "two", "three"] {
            let gate = hub.closes(gate, "DependencyCycle", SOON).await?;
            ensure!(
                history::condition(&gate, "Stalled") == ("True", "DependencyCycle"),
                "{}",
                gate.data["status"]
            );
            let message = "depends on itself: one -> three -> two -> one";
            ensure!(gate.data["status"]["waitingFor"][0]["message"] == message, "{}", waiting(&gate));
        }
        let gate = hub.closes("behind", "DependencyNotOpen", SOON).await?;
        ensure!(history::condition(&gate, "Reconciling").0 == "True", "{}", gate.data["status"]);
        for history in &histories {
            history.check("no gate of the circle opens", closed).await?;
        }
        // Without one of its sides the circle is a row.
        setup.wave("three", 1, "c3", &[]).await?;
        for gate in ["three", "one", "two", "behind"] {
            hub.opens(gate, SOON).await?;
        }
        // And a circle that is closed again closes what was open.
        setup.wave("three", 1, "c3", &["behind"]).await?;
        for gate in ["three", "one", "two", "behind"] {
            hub.closes(gate, "DependencyCycle", SOON).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_by_the_deadline_has_failed() {
    run("e2e-deadline", async |rig| {
        let setup = Setup::start(rig).await?;
        let (fleet, hub) = (&setup.fleet, &setup.hub);
        let begun = |package: FakePackage| FakePackage {
            apply: ApplyState::Applying,
            health: Health::InProgress,
            desired: revision(2),
            healthy: String::new(),
            ..package
        };
        fleet.says("c1", APP, FakePackage::healthy_at(&revision(2)));
        fleet.says("c2", APP, begun(FakePackage::healthy_at(&revision(1))));
        let spec = |more: Value| {
            let mut spec =
                json!({"clusters": {"names": CLUSTERS}, "progressDeadline": "15s", "maxFailures": 1});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        hub.gate("wave", APP, &revision(2), spec(json!({}))).await?;
        let waits = hub.closes("wave", "NotUpdated", SOON).await?;
        // It goes on counting while no aggregator is there, and whatever else changes in the spec.
        hub.aggregator.process().kill();
        hub.gate("wave", APP, &revision(2), spec(json!({"minHealthy": "10%"}))).await?;
        hub.aggregator.process().start()?;
        let gate = hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        let status = &gate.data["status"];
        ensure!(status["startedAt"] == waits.data["status"]["startedAt"], "{status}");
        ensure!(status["clusters"]["failed"] == 2 && status["clusters"]["timedOut"] == 2, "{status}");
        ensure!(status["clusters"]["progressing"] == 0, "{status}");
        let message = "2 clusters failed, 1 allowed: c2 (TimeOut), c3 (TimeOut)";
        ensure!(status["waitingFor"][0]["message"] == message, "{status}");
        ensure!(history::condition(&gate, "Stalled").0 == "True", "{status}");
        // One comes late: what is left is within the budget, and Open is the truth now.
        fleet.says("c2", APP, FakePackage::healthy_at(&revision(2)));
        let gate = hub.opens("wave", SOON).await?;
        ensure!(gate.data["status"]["clusters"]["timedOut"] == 1, "{}", gate.data["status"]);
        Ok(())
    })
    .await;
}

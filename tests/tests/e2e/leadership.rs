//! Several replicas: one works, the others cost nothing, and one that was deposed never writes over the next.

use crate::e2e::world::{open, scraping_slowly};
use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::time::{Duration, Instant};

const LEADER: &str = "statusbridge-aggregator-leader";
const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";
/// From the last renewal of one that dies until the next one leads: 20 s, and what a busy machine needs.
const TAKEOVER: Duration = Duration::from_secs(20 + 60);

/// Settings of the replica of this name.
fn options(name: &str, backend: &FaultProxy, backend_timeout: &str) -> AggregatorOptions {
    let mut options = AggregatorOptions::new(backend.url());
    options.more = ["--identity", name, "--backend-timeout", backend_timeout].map(str::to_owned).to_vec();
    options
}

/// A replica behind connections that can be cut: one to the hub, one to the backend.
struct Replica {
    name: &'static str,
    aggregator: Aggregator,
    to_hub: FaultProxy,
    to_backend: FaultProxy,
}

/// One cluster, one hub, and a first replica called `a` without a cuttable connection to the hub.
struct World {
    fleet: FakeFleet,
    prometheus: Prometheus,
    hub: Hub,
    backend_of_a: FaultProxy,
    _etcd: Etcd,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        for package in ["app", "other"] {
            fleet.says("c1", package, FakePackage::healthy_at(R1));
        }
        let prometheus = Prometheus::start(rig, &scraping_slowly(&fleet, &["c1"])).await?;
        let backend_of_a = FaultProxy::start(rig, prometheus.address()).await?;
        let hub = Hub::start_with(rig, &etcd, options("a", &backend_of_a, "2s")).await?;
        Ok(Self { fleet, prometheus, hub, backend_of_a, _etcd: etcd })
    }

    async fn replica(&self, rig: &Rig, name: &'static str, backend_timeout: &str) -> Result<Replica> {
        let to_hub = FaultProxy::start(rig, self.hub.api.address()).await?;
        let to_backend = FaultProxy::start(rig, self.prometheus.address()).await?;
        let options = options(name, &to_backend, backend_timeout);
        let aggregator =
            self.hub.start_replica(rig, &format!("aggregator-{name}"), &options, to_hub.address()).await?;
        Ok(Replica { name, aggregator, to_hub, to_backend })
    }

    /// Who holds the Lease, and how often it has changed hands.
    async fn leader(&self) -> Result<(String, i64)> {
        let lease = self.hub.lease(LEADER).await?;
        let holder = lease.holder_identity.context("nobody leads")?;
        let name = holder.split('_').next().unwrap_or_default().to_owned();
        Ok((name, lease.lease_transitions.unwrap_or_default().into()))
    }

    /// Waits until another one than `old` leads and has judged; gives its name and epoch.
    async fn next_leader(&self, old: &str, epoch: i64, gates: &[&str]) -> Result<(String, i64)> {
        let (name, next) = eventually(TAKEOVER, &format!("another one than {old} leads"), async || {
            let (name, next) = self.leader().await?;
            ensure!(next > epoch && name != old, "{name} leads in epoch {next}");
            Ok((name, next))
        })
        .await?;
        for gate in gates {
            eventually(SOON, &format!("{gate} is of epoch {next}"), async || {
                let of = epoch_of(&self.hub.get_gate(gate).await?);
                ensure!(of == Some(next), "it is of {of:?}");
                Ok(())
            })
            .await?;
        }
        Ok((name, next))
    }

    /// One that has ended holds the Lease no longer, so that nobody waits for its end.
    async fn has_given_back(&self, old: &str) -> Result<()> {
        let holder = self.hub.lease(LEADER).await?.holder_identity.unwrap_or_default();
        ensure!(!holder.starts_with(old), "{holder:?} still holds the Lease");
        Ok(())
    }

    /// What a leader wrote that read the gate as `basis` and thought that it should open.
    async fn send_late(&self, basis: &DynamicObject) -> Result<kube::Result<DynamicObject>> {
        let mut status = basis.data["status"].clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["status"] = json!("True");
        }
        let metadata = &basis.metadata;
        let patch = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
                "resourceVersion": metadata.resource_version},
            "status": status,
        });
        let gates = self.hub.api.dynamic(&hub::kind("RolloutGate"), Some("default")).await?;
        let params = PatchParams::apply("statusbridge-aggregator").force();
        let name = metadata.name.as_deref().context("no name")?;
        Ok(gates.patch_status(name, &params, &Patch::Apply(&patch)).await)
    }
}

fn epoch_of(gate: &DynamicObject) -> Option<i64> {
    gate.data["status"]["epoch"].as_i64()
}

/// No version may come from a leader that an earlier version's leader had replaced.
async fn epochs_never_fall(history: &History) -> Result<()> {
    let versions = history.versions().await?;
    let epochs: Vec<i64> = versions.iter().filter_map(|version| epoch_of(&version.object)).collect();
    ensure!(epochs.is_sorted(), "a deposed leader's status landed: {epochs:?}");
    Ok(())
}

/// How many statuses of gates a replica has sent, whatever became of them.
async fn writes_sent(aggregator: &Aggregator) -> Result<f64> {
    let mut sum = 0.0;
    for result in ["done", "conflict", "gone", "error"] {
        let name = "statusbridge_aggregator_hub_writes_total";
        sum += aggregator.metric(&format!("{name}{{kind=\"RolloutGate\",result=\"{result}\"}}")).await?;
    }
    Ok(sum)
}

/// All clusters of a gate, by name.
fn wave() -> Value {
    json!({"clusters": {"names": ["c1"]}})
}

#[tokio::test]
async fn whatever_happens_to_a_leader_another_takes_over_and_is_never_overruled() {
    run("e2e-leadership", async |rig| {
        let world = World::start(rig).await?;
        let hub = &world.hub;
        // Nothing here goes stale: what is written is written because the leader changed.
        hub.report("app", "10m", json!({})).await?;
        hub.gate("open", "app", R1, wave()).await?;
        hub.gate("closed", "app", R2, wave()).await?;
        let all = ["open", "closed"];
        hub.opens("open", SOON).await?;
        let never_opened = hub.closes("closed", "RevisionNeverSeen", SOON).await?;
        let (first, epoch) = world.leader().await?;
        ensure!(first == "a", "{first} leads");
        let histories = [hub.history("open").await?, hub.history("closed").await?];

        // Standbys are ready, and ask the backend nothing.
        let replicas = [world.replica(rig, "b", "2s").await?, world.replica(rig, "c", "2s").await?];
        let polls = "statusbridge_aggregator_polls_total{result=\"success\"}";
        let before = hub.aggregator.metric(polls).await?;
        eventually(SOON, "the leader polls on", async || {
            ensure!(hub.aggregator.metric(polls).await? >= before + 5.0, "not yet");
            Ok(())
        })
        .await?;
        for replica in &replicas {
            ensure!(replica.aggregator.metric("statusbridge_aggregator_is_leader").await? == 0.0);
            ensure!(replica.to_backend.bytes_returned() == 0, "{} asked the backend", replica.name);
            // It looks at the Lease and at nothing else: no list, no watch.
            let log = replica.aggregator.process().log();
            ensure!(log.contains("standing by"), "{log}");
        }
        ensure!(
            hub.lease("statusbridge-aggregator-heartbeat")
                .await?
                .holder_identity
                .is_some_and(|it| it.starts_with("a_"))
        );

        // Killed.
        hub.aggregator.process().kill();
        let (second, epoch) = world.next_leader("a", epoch, &all).await?;
        let other = replicas.iter().find(|it| it.name != second).context("no other")?;
        ensure!(other.to_backend.bytes_returned() == 0, "the one that still stands by asked the backend");
        // What the dead one had under way comes too late, though nothing but the leader has changed.
        match world.send_late(&never_opened).await? {
            Err(kube::Error::Api(refused)) => ensure!(refused.code == 409, "{refused:?}"),
            other => bail!("a late opening came to {other:?}"),
        }
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;

        // Frozen: it does not know, and must find out before it does anything.
        let frozen = replicas.iter().find(|it| it.name == second).context("no such replica")?;
        let sent = writes_sent(&frozen.aggregator).await?;
        frozen.aggregator.process().freeze()?;
        let (third, epoch) = world.next_leader(&second, epoch, &all).await?;
        // The world changes while it sleeps: whatever it still knows is wrong.
        world.fleet.says("c1", "app", FakePackage::failed_at(R1));
        hub.closes("open", "FailureBudgetExceeded", SOON).await?;
        frozen.aggregator.process().thaw()?;
        eventually(SOON, "the one that slept stands by", async || {
            ensure!(frozen.aggregator.metric("statusbridge_aggregator_is_leader").await? == 0.0, "it leads");
            ensure!(frozen.aggregator.process().log().contains("the lease is lost"), "it has not noticed");
            Ok(())
        })
        .await?;
        frozen.aggregator.wait_ready().await?;
        let asked = frozen.to_backend.bytes_returned();
        world.fleet.says("c1", "app", FakePackage::healthy_at(R1));
        hub.opens("open", SOON).await?;
        ensure!(writes_sent(&frozen.aggregator).await? == sent, "it wrote after it was deposed");
        ensure!(frozen.to_backend.bytes_returned() == asked, "it went on polling");
        ensure!(world.leader().await?.0 == third);

        // Told to stop: the next one leads at once. (Only replicas with a connection that can be cut remain.)
        let (fourth, epoch) = if third == "a" {
            let ended = hub.aggregator.process().terminate(SOON).await?;
            ensure!(ended.success(), "{ended}");
            world.has_given_back("a").await?;
            world.next_leader("a", epoch, &all).await?
        } else {
            (third, epoch)
        };

        // Cut off from the hub, half open.
        let cut = replicas.iter().find(|it| it.name == fourth).context("no such replica")?;
        cut.to_hub.set(Fault::Freeze);
        let (fifth, _) = world.next_leader(&fourth, epoch, &all).await?;
        ensure!(cut.aggregator.metric("statusbridge_aggregator_is_leader").await? == 0.0, "two lead");
        cut.to_hub.set(Fault::Pass);
        cut.aggregator.wait_ready().await?;
        ensure!(world.leader().await?.0 == fifth, "{fifth} was deposed");

        for history in &histories {
            epochs_never_fall(history).await?;
        }
        histories[1].check("a gate at a revision that nobody has", crate::e2e::world::closed).await
    })
    .await;
}

#[tokio::test]
async fn a_change_of_leaders_alone_closes_no_gate() {
    run("e2e-leadership-quiet", async |rig| {
        let world = World::start(rig).await?;
        let hub = &world.hub;
        hub.report("app", "2m", json!({})).await?;
        hub.gate("open", "app", R1, wave()).await?;
        hub.opens("open", SOON).await?;
        let (_, epoch) = world.leader().await?;
        let history = hub.history("open").await?;
        let b = world.replica(rig, "b", "2s").await?;

        ensure!(hub.aggregator.process().terminate(SOON).await?.success());
        world.has_given_back("a").await?;
        let (_, epoch) = world.next_leader("a", epoch, &["open"]).await?;
        hub.aggregator.process().start()?;
        hub.aggregator.wait_ready().await?;
        b.aggregator.process().kill();
        world.next_leader("b", epoch, &["open"]).await?;
        history.check("a change of leaders closes nothing", open).await?;
        epochs_never_fall(&history).await?;
        // One version for each leader, and now and then a younger asOf.
        let versions = history.versions().await?.len();
        ensure!(versions < 12, "{versions} versions");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_new_leader_closes_what_is_too_old_before_the_backend_says_anything() {
    run("e2e-leadership-old", async |rig| {
        let world = World::start(rig).await?;
        let hub = &world.hub;
        // When the next one leads, evidence for the one is too old, for the other it is not.
        hub.report("app", "10s", json!({})).await?;
        hub.report("other", "10m", json!({})).await?;
        hub.gate("old", "app", R1, wave()).await?;
        hub.gate("young", "other", R1, wave()).await?;
        hub.opens("old", SOON).await?;
        hub.opens("young", SOON).await?;
        let (_, epoch) = world.leader().await?;
        let young = hub.history("young").await?;
        // The next one's backend takes every question and never answers.
        let b = world.replica(rig, "b", "2m").await?;
        b.to_backend.set(Fault::Freeze);
        world.backend_of_a.set(Fault::Freeze);
        hub.aggregator.process().kill();
        world.next_leader("a", epoch, &[]).await?;
        let gate = hub.closes("old", "BackendUnavailable", SOON).await?;
        ensure!(epoch_of(&gate) > Some(epoch), "{}", gate.data["status"]);
        for result in ["success", "failure"] {
            let polls = format!("statusbridge_aggregator_polls_total{{result={result:?}}}");
            ensure!(b.aggregator.metric(&polls).await? == 0.0, "it polled first");
        }
        young.check("what is young enough stays open", open).await?;

        b.to_backend.set(Fault::Pass);
        hub.opens("old", SOON).await?;
        young.check("what is young enough stays open", open).await
    })
    .await;
}

#[tokio::test]
async fn times_that_do_not_fit_together_are_refused() {
    run("e2e-leadership-times", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "hub").await?;
        let mut options = AggregatorOptions::new("http://127.0.0.1:1");
        options.more = ["--leader-elect-lease-duration", "11s"].map(str::to_owned).to_vec();
        let wrong = Aggregator::launch(rig, "aggregator", api.kubeconfig(), &options).await?;
        eventually(SOON, "it ends with a reason", async || {
            let log = wrong.process().log();
            ensure!(log.contains("the lease duration must be at least 10 s"), "{log}");
            ensure!(wrong.process().ensure_running().is_err(), "it runs");
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn of_two_installations_on_a_hub_the_younger_stands_back() {
    run("e2e-installations", async |rig| {
        let world = World::start(rig).await?;
        let (hub, first) = (&world.hub, &world.hub.aggregator);
        let (_, epoch) = world.leader().await?;
        let mut second = options("b", &world.backend_of_a, "2s");
        second.namespace = hub::LEASES.to_owned();
        second.more.extend(["--installation", "another"].map(str::to_owned));
        let second = Aggregator::launch(rig, "aggregator-b", &hub.account, &second).await?;
        let stands_back = async || {
            ensure!(
                second.metric("statusbridge_aggregator_stands_back").await? == 1.0,
                "it does not stand back"
            );
            Ok(())
        };
        eventually(SOON, "it stands back", stands_back).await?;
        let log = second.process().log();
        ensure!(log.contains("another installation serves this hub") && log.contains("\"other\":"), "{log}");
        ensure!(second.wait_ready().await.is_err(), "it says that it is ready");

        // Not even while the first one is away, be it that it has given the Lease back.
        first.process().terminate(SOON).await?;
        let looks = Instant::now() + Duration::from_secs(8);
        while Instant::now() < looks {
            stands_back().await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        first.process().start()?;
        let (leader, next) = world.next_leader("nobody", epoch, &[]).await?;
        ensure!(leader == "a" && next == epoch + 1, "{leader} leads in epoch {next}");

        // Somebody decides otherwise.
        hub.api.kubectl(&["delete", "lease", "-n", hub::LEASES, LEADER]).await?;
        first.process().kill();
        eventually(TAKEOVER, "the other one leads", async || {
            let (leader, _) = world.leader().await?;
            ensure!(leader == "b", "{leader} leads");
            Ok(())
        })
        .await
    })
    .await;
}

//! `statusbridge wait`: what a pipeline sees, and the code that it goes by.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use statusbridge_tests::*;
use std::path::{Path, PathBuf};
use tokio::process::Child;

const R1: &str = "main@sha1:1111111111111111111111111111111111111111";
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

/// A `wait` under way.
struct Waiter {
    child: Child,
    log: PathBuf,
    /// Standard error.
    progress: PathBuf,
}

impl Waiter {
    async fn start(rig: &Rig, kubeconfig: &Path, args: &str) -> Result<Self> {
        let log = tempfile::Builder::new().prefix("wait-").tempfile_in(rig.dir())?.into_temp_path().keep()?;
        let progress = log.with_extension("progress");
        let kubeconfig = kubeconfig.display().to_string();
        let mut all = vec!["wait", "--kubeconfig", &kubeconfig, "-n", "default"];
        all.extend(args.split(' '));
        let child = own_command("statusbridge", &all)
            .await?
            .stdout(std::fs::File::create(&log)?)
            .stderr(std::fs::File::create(&progress)?)
            .spawn()?;
        Ok(Self { child, log, progress })
    }

    fn lines(&self) -> Result<Vec<String>> {
        Ok(std::fs::read_to_string(&self.log)?.lines().map(str::to_owned).collect())
    }

    /// Waits until the last line of its progress begins and ends so.
    async fn shows(&self, start: &str, end: &str) -> Result<()> {
        eventually(SOON, &format!("it shows {start:?} … {end:?}"), async || {
            let shown = std::fs::read_to_string(&self.progress)?;
            let last = shown.lines().last().unwrap_or_default();
            ensure!(last.starts_with(start) && last.ends_with(end) && !shown.contains('\u{1b}'), "{shown}");
            Ok(())
        })
        .await
    }

    async fn says(&self, words: &str) -> Result<()> {
        eventually(SOON, &format!("it says {words:?}"), async || {
            let lines = self.lines()?;
            ensure!(lines.iter().any(|line| line.contains(words)), "{lines:?}");
            Ok(())
        })
        .await
    }

    fn runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "it ended: {ended:?}, {:?}", self.lines()?);
        Ok(())
    }

    /// Its exit code, and all that it printed.
    async fn ends(mut self) -> Result<(i32, Vec<String>)> {
        let status = tokio::time::timeout(SOON, self.child.wait()).await.context("it does not end")??;
        Ok((status.code().context("no exit code")?, self.lines()?))
    }
}

/// A kubeconfig with no more rights than a pipeline needs.
async fn pipeline(api: &ApiServer) -> Result<PathBuf> {
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/wait.yaml");
    api.apply(&std::fs::read_to_string(role)?).await?;
    let group = "rbac.authorization.k8s.io";
    api.apply_object(&json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "statusbridge-wait", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "statusbridge-wait"},
        "subjects": [{"kind": "User", "name": "pipeline", "apiGroup": group}],
    }))
    .await?;
    api.kubeconfig_as("pipeline", &[])
}

struct World {
    hub: Hub,
    fleet: FakeFleet,
    account: PathBuf,
    _prometheus: Prometheus,
    _etcd: Etcd,
}

impl World {
    /// Clusters c1 and c2, both healthy at R1.
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let fleet = FakeFleet::start().await?;
        let mut job = ScrapeJob::new("statusbridge");
        for cluster in ["c1", "c2"] {
            fleet.says(cluster, "payments", FakePackage::healthy_at(R1));
            job = fleet.target(job, cluster, &[]);
        }
        let prometheus = Prometheus::start(rig, &PrometheusConfig::with_jobs([job])).await?;
        let hub = Hub::start(rig, &etcd, &prometheus.url()).await?;
        hub.report("payments", "8s", json!({})).await?;
        let account = pipeline(&hub.api).await?;
        Ok(Self { hub, fleet, account, _prometheus: prometheus, _etcd: etcd })
    }

    async fn gate(&self, revision: &str) -> Result<()> {
        self.hub
            .gate("wave", "payments", revision, json!({"clusters": {"names": ["c1", "c2"]}}))
            .await
            .map(drop)
    }
}

#[tokio::test]
async fn a_pipeline_waits_for_its_revision_and_for_no_other_across_a_restart_of_the_hub() {
    run("e2e-wait", async |rig| {
        let world = World::start(rig).await?;
        world.gate(R1).await?;
        world.hub.opens("wave", SOON).await?;
        let wait = async |args: &str| Waiter::start(rig, &world.account, args).await;

        let (code, lines) = wait(&format!("gate/wave --revision {R1}")).await?.ends().await?;
        ensure!(code == 0, "{code} {lines:?}");
        ensure!(lines == ["rolloutgate/wave: open: Healthy: 2 of 2 clusters healthy at the revision (2/2)"], "{lines:?}");

        // The gate is open, for what was before: neither at once nor after a while is that a yes.
        let (code, lines) = wait(&format!("gate/wave --revision {R2} --grace 1s")).await?.ends().await?;
        ensure!(code == 6, "{code} {lines:?}");
        ensure!(lines[0] == "rolloutgate/wave: OtherRevision: the gate is for revision 111111111111, not 222222222222 (2/2)", "{lines:?}");

        // Whoever changes the gate may come after the pipeline.
        let mut waiter = wait(&format!("gate/wave --revision {R2} -o json")).await?;
        waiter.says("OtherRevision").await?;
        world.gate(R2).await?;
        waiter.says("RevisionNeverSeen").await?;
        world.fleet.says("c1", "payments", FakePackage::healthy_at(R2));
        waiter.says("NotUpdated").await?;
        world.hub.api.stop();
        waiter.says("Unreachable").await?;
        world.fleet.says("c2", "payments", FakePackage::healthy_at(R2));
        waiter.runs()?;
        world.hub.api.start_again().await?;
        let (code, lines) = waiter.ends().await?;
        ensure!(code == 0, "{code} {lines:?}");
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
        let (last, before) = lines.split_last().context("no lines")?;
        ensure!(before.iter().all(|line| line["open"] == false), "{before:?}");
        ensure!(before.windows(2).all(|pair| pair[0] != pair[1]), "the same line twice: {before:?}");
        ensure!(last["open"] == true && last["outcome"] == "Open" && last["exitCode"] == 0, "{last}");
        ensure!(last["fingerprint"] == "222222222222", "{last}");

        // A FleetPackage without a revision is Ready at any; with one, at that.
        let of_package = format!("fleetpackage/payments --revision {R2}");
        let (code, lines) = wait(&format!("{of_package} --grace 1s")).await?.ends().await?;
        ensure!(code == 6 && lines[0].contains("the FleetPackage is for revision -, not 222222222222"), "{code} {lines:?}");
        world.hub.report("payments", "8s", json!({"revision": R2})).await?;
        let (code, lines) = wait(&of_package).await?.ends().await?;
        ensure!(code == 0, "{code} {lines:?}");
        ensure!(lines.last().is_some_and(|line| line.starts_with("fleetpackage/payments: ready: Healthy: ")), "{lines:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn each_way_not_to_open_has_its_own_code() {
    run("e2e-wait-codes", async |rig| {
        let world = World::start(rig).await?;
        let wait = async |args: &str| Waiter::start(rig, &world.account, args).await?.ends().await;
        let of_r2 = format!("gate/wave --revision {R2}");
        let expect = |(code, lines): (i32, Vec<String>), expected: i32, words: &str| {
            ensure!(code == expected, "{code} {lines:?}");
            ensure!(lines.last().is_some_and(|line| line.contains(words)), "{lines:?}");
            Ok(())
        };
        let (code, _) = wait("gate/wave").await?;
        ensure!(code == 2, "without --revision: {code}");
        expect(wait(&format!("{of_r2} --grace 1s")).await?, 7, "there is no such object")?;
        world.gate(R2).await?;
        expect(wait(&format!("{of_r2} --timeout 3s")).await?, 4, "the time is over: ")?;
        expect(wait(&format!("{of_r2} --deadline 2026-01-01T00:00:00Z")).await?, 4, "the time is over: ")?;
        // Enough rights for a gate, none for anything else.
        let other = format!("{of_r2} --grace 1s -n kube-system");
        let other = other.replace("gate/wave", "gate/other");
        let (code, lines) = {
            let kubeconfig = world.account.display().to_string();
            let mut args = vec!["wait", "--kubeconfig", &kubeconfig];
            args.extend(other.split(' '));
            let out = own_command("statusbridge", &args).await?.output().await?;
            (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
        };
        ensure!(code == Some(1) && lines.contains("forbidden"), "{code:?} {lines}");

        world.fleet.says("c1", "payments", FakePackage::failed_at(R2));
        world.hub.closes("wave", "FailureBudgetExceeded", SOON).await?;
        expect(wait(&of_r2).await?, 3, "1 cluster failed, 0 allowed: c1 (HealthCheckFailed)")?;

        for cluster in ["c1", "c2"] {
            world.fleet.says(cluster, "payments", FakePackage::healthy_at(R2));
        }
        world.hub.opens("wave", SOON).await?;
        // The aggregator dies with the gate open: for a while that still holds, and then no more.
        world.hub.aggregator.process().kill();
        eventually(SOON, "the verdict is too old", async || {
            let (code, lines) = wait(&format!("{of_r2} --grace 1s --slack 0s")).await?;
            ensure!(code == 5, "{code} {lines:?}");
            ensure!(
                lines.last().is_some_and(|line| line.contains("the evidence is older than staleAfter (8 s)")),
                "{lines:?}"
            );
            Ok(())
        })
        .await?;
        // Nobody judges the next generation.
        world.gate(R1).await?;
        expect(
            wait(&format!("gate/wave --revision {R1} --grace 1s")).await?,
            5,
            "generation 2 of the gate has not been judged yet",
        )
    })
    .await;
}

#[tokio::test]
async fn how_far_the_clusters_are_is_shown_while_it_waits() {
    run("e2e-wait-progress", async |rig| {
        let world = World::start(rig).await?;
        let both = json!({"clusters": {"names": ["c1", "c2"]}, "minSuccessTime": "1h"});
        world.hub.gate("wave", "payments", R2, both).await?;
        let waiter = Waiter::start(rig, &world.account, &format!("gate/wave --revision {R2}")).await?;
        waiter.shows("wave 0/2 healthy", ", 2 in progress").await?;
        let since = fake_fleet::unix_now();
        world.fleet.says("c1", "payments", FakePackage { since, ..FakePackage::healthy_at(R2) });
        waiter.shows("wave 0/2 healthy, 1 soaking 59m", "s left, 1 in progress").await?;
        world.fleet.says("c2", "payments", FakePackage::failed_at(R2));
        ensure!(waiter.ends().await?.0 == 3, "it is stalled");
        Ok(())
    })
    .await;
}

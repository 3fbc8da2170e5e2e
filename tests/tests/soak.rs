//! Since when the exporter vouches for a package, on real API servers: with each change that it sees and with each gap
//! in what it sees, and with nothing else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use statusbridge_contract::{ApplyState, Digest, Health, Metric};
use statusbridge_tests::{
    ApiServer, Etcd, Exporter, Fault, FaultProxy, Rig, SOON, WallClock, eventually, exposition::Exposition,
    holds_for, run,
};

/// Packages are ConfigMaps: one source rests on them alone, the other on what they are made of.
const SOURCES: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: alone
spec:
  kinds:
    - {group: "", kind: ConfigMap, versions: [v1]}
  matchConditions:
    - name: packages
      expression: object.?data.?kind.orValue('') == 'alone'
  revisions:
    desiredExpression: object.?data.?wanted
    appliedExpression: object.?data.?revision
  apply:
    - whenExpression: object.?data.?state.orValue('') == 'busy'
      state: Applying
    - whenExpression: object.?data.?state.orValue('') == 'bad'
      state: Failed
      reasonExpression: object.?data.?why
    - state: Applied
  health:
    - whenExpression: object.?data.?state.orValue('') == 'bad'
      state: Failed
    - state: Current
  sinceExpression: object.?data.?since
  hold:
    whenExpression: object.?data.?state.orValue('') == 'busy'
    keyExpression: object.?data.?revision
  samples:
    - object:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: a, namespace: n}
        data: {kind: alone, revision: r1}
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: made-of
spec:
  kinds:
    - {group: "", kind: ConfigMap, versions: [v1]}
  matchConditions:
    - name: packages
      expression: object.?data.?kind.orValue('') == 'made-of'
  revisions:
    desiredExpression: object.?data.?revision
    appliedExpression: object.?data.?revision
  apply:
    - state: Applied
  health:
    - state: Resources
      unwatched: {state: Unknown}
  resources:
    watch:
      enabled: true
      referencesExpression: "[{'group': 'batch', 'kind': 'Job', 'namespace': 'default', 'name': object.?data.?job.orValue('none')}]"
  sinceExpression: object.?data.?since
  samples:
    - object:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: a, namespace: n}
        data: {kind: made-of, revision: r1, job: j}
"#;

const ALONE: &str = "alone";
const MADE_OF: &str = "made-of";

/// An API server, and sources for exporters.
struct Cluster {
    etcd: Etcd,
    api: ApiServer,
    sources: PathBuf,
}

impl Cluster {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        let sources = rig.dir().join("sources.yaml");
        std::fs::write(&sources, SOURCES)?;
        Ok(Self { etcd, api, sources })
    }

    async fn exporter(&self, rig: &Rig, name: &str, kubeconfig: &Path, more: &[&str]) -> Result<Exporter> {
        let sources = self.sources.display().to_string();
        let own = ["--presets", "flux-kustomization", "--sources", &sources];
        Exporter::start(rig, name, kubeconfig, &[&own, more].concat()).await
    }

    fn packages(&self) -> Api<ConfigMap> {
        Api::namespaced(self.api.client(), "default")
    }

    async fn put(&self, name: &str, data: Value) -> Result<()> {
        put(&self.packages(), name, data).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.packages().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// A Job that is done.
    async fn job(&self, name: &str) -> Result<()> {
        let container = json!({"name": "c", "image": "i"});
        self.api
            .apply_object(&json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
            }))
            .await?;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(self.api.client(), "default");
        jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// A version more of a Job, which says the same.
    async fn touch_job(&self, name: &str) -> Result<()> {
        let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(self.api.client(), "default");
        let annotation = json!({"metadata": {"annotations": {"touched": "yes"}}});
        jobs.patch(name, &PatchParams::default(), &Patch::Merge(annotation)).await?;
        Ok(())
    }

    async fn delete_job(&self, name: &str) -> Result<()> {
        let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(self.api.client(), "default");
        jobs.delete(name, &DeleteParams::background()).await?;
        eventually(SOON, "the job is gone", async || {
            ensure!(jobs.get_opt(name).await?.is_none());
            Ok(())
        })
        .await
    }
}

async fn put(packages: &Api<ConfigMap>, name: &str, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let params = PatchParams::apply("test").force();
    packages.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

/// A package that rests on its own object, as it says.
fn alone(state: &str) -> Value {
    json!({"kind": ALONE, "revision": "r1", "wanted": "r1", "state": state})
}

/// One that is made of a job.
fn made_of(job: &str) -> Value {
    json!({"kind": MADE_OF, "revision": "r1", "job": job})
}

/// The digest of what an exposition says, without when it says so.
fn state_digest(says: &Exposition) -> Result<Digest> {
    let digest = says.value(Metric::Digest.name(), &[]).context("no digest")?;
    Ok(Digest::of_state(digest as u64, rendered(says)?))
}

fn rendered(says: &Exposition) -> Result<u64> {
    Ok(says.value(Metric::RenderedTimestamp.name(), &[]).context("no time")? as u64)
}

/// For how many seconds a package that is good has been vouched for; `None` when it is not good.
fn soak(says: &Exposition, source: &str, package: &str) -> Result<Option<i64>> {
    says.adds_up()?;
    let shown = says.package(source, package).with_context(|| format!("nothing is said of {package}"))?;
    let good =
        shown.apply == ApplyState::Applied && shown.health == Health::Current && !shown.healthy.is_none();
    Ok(good.then_some(rendered(says)?.cast_signed() - shown.since.cast_signed()))
}

/// Waits until a good package has been vouched for, for at least so many seconds, by a source that is up.
async fn soaked(exporter: &Exporter, source: &str, package: &str, seconds: i64) -> Result<Exposition> {
    eventually(SOON, &format!("{package} is good for {seconds} s"), async || {
        let says = exporter.says().await?;
        ensure!(says.source_up(source) == Some(true), "{source} is not up");
        let soak = soak(&says, source, package)?.context("it is not good")?;
        ensure!(soak >= seconds, "for {soak} s only");
        Ok(says)
    })
    .await
}

/// Waits until a source is up again and shows that package `a` is not good.
async fn shows_the_failure(exporter: &Exporter) -> Result<()> {
    eventually(SOON, "it has caught up", async || {
        let says = exporter.says().await?;
        ensure!(says.source_up(ALONE) == Some(true), "not up");
        ensure!(soak(&says, ALONE, "a")?.is_none(), "the failure is not shown");
        Ok(())
    })
    .await
}

fn since(says: &Exposition, source: &str, package: &str) -> Result<u64> {
    Ok(says.package(source, package).with_context(|| format!("nothing is said of {package}"))?.since)
}

#[tokio::test]
async fn every_change_moves_the_time_and_nothing_else_does() {
    run("soak-changes", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let exporter = cluster.exporter(rig, "exporter", cluster.api.kubeconfig(), &[]).await?;
        cluster.put("a", alone("good")).await?;
        let before = soaked(&exporter, ALONE, "a", 2).await?;

        // Failed and recovered within a second.
        cluster.put("a", alone("bad")).await?;
        cluster.put("a", alone("good")).await?;
        eventually(SOON, "its time has moved", async || {
            let says = exporter.says().await?;
            ensure!(
                soak(&says, ALONE, "a")?.is_some() && since(&says, ALONE, "a")? > since(&before, ALONE, "a")?
            );
            Ok(())
        })
        .await?;
        let log = exporter.process().log();
        let moves = log
            .lines()
            .filter(|l| l.contains("\"target\":\"transition\"") && l.contains("\"package\":\"a\""));
        ensure!(moves.count() == 3, "found, failed, recovered: {log}");

        let before = soaked(&exporter, ALONE, "a", 2).await?;
        let digest = state_digest(&before)?;
        // What is shown stays the same: the object's own time, its labels, its reason.
        let mut data = alone("good");
        data["since"] = json!("2020-01-01T00:00:00Z");
        data["why"] = json!("NoReason");
        cluster.put("a", data.clone()).await?;
        cluster.put("marker", alone("good")).await?;
        eventually(SOON, "what came later is shown", async || {
            exporter.says().await?.package(ALONE, "marker").context("no")
        })
        .await?;
        ensure!(since(&exporter.says().await?, ALONE, "a")? == since(&before, ALONE, "a")?, "it moved");
        ensure!(state_digest(&exporter.says().await?)? != digest, "there is a package more");

        let quiet = state_digest(&exporter.says().await?)?;
        holds_for(Duration::from_secs(8), "a quiet exporter says the same", async || {
            let says = exporter.says().await?;
            says.adds_up()?;
            ensure!(state_digest(&says)? == quiet, "{says:?}");
            Ok(())
        })
        .await?;

        // The wanted revision is promised as well.
        data["wanted"] = json!("r2");
        cluster.put("a", data).await?;
        eventually(SOON, "a wanted revision moves it", async || {
            ensure!(since(&exporter.says().await?, ALONE, "a")? > since(&before, ALONE, "a")?);
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn a_new_exporter_vouches_from_its_first_sight_or_for_what_one_object_alone_says() {
    run("soak-first-sight", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let long_ago = "2020-01-01T00:00:00Z";
        let mut old = alone("good");
        old["since"] = json!(long_ago);
        let mut resting = made_of("j");
        resting["since"] = json!(long_ago);
        cluster.job("j").await?;
        cluster.put("made", resting).await?;
        cluster.put("old", old.clone()).await?;
        let first = cluster.exporter(rig, "first", cluster.api.kubeconfig(), &[]).await?;
        soaked(&first, MADE_OF, "made", 6).await?;
        let says = soaked(&first, ALONE, "old", 6).await?;
        let made = since(&says, ALONE, "old")?;

        // Its node dies, with all that runs there; another exporter finds everything Current.
        first.process().kill();
        let began = jiff::Timestamp::now().as_second();
        let second = cluster.exporter(rig, "second", cluster.api.kubeconfig(), &[]).await?;
        let says = soaked(&second, MADE_OF, "made", 0).await?;
        let at = since(&says, MADE_OF, "made")?;
        ensure!(at.cast_signed() >= began, "{at} is before it began, {began}");
        // An object that says so itself is believed, but not about a time before it was there.
        let says = soaked(&second, ALONE, "old", 6).await?;
        ensure!(
            since(&says, ALONE, "old")?.abs_diff(made) <= 1,
            "{} and {made}",
            since(&says, ALONE, "old")?
        );

        // Deleted and made anew with the old status, before the eyes of one exporter and unseen by the next.
        let again = jiff::Timestamp::now().as_second();
        cluster.delete("old").await?;
        cluster.put("old", old).await?;
        eventually(SOON, "its soak begins anew", async || {
            let at = since(&second.says().await?, ALONE, "old")?;
            ensure!(at.cast_signed() >= again, "since {at}");
            Ok(())
        })
        .await?;
        second.process().kill();
        let third = cluster.exporter(rig, "third", cluster.api.kubeconfig(), &[]).await?;
        let says = soaked(&third, ALONE, "old", 0).await?;
        ensure!(since(&says, ALONE, "old")?.cast_signed() >= again);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn after_a_gap_only_what_has_not_changed_is_vouched_for() {
    run("soak-gap", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let proxy = FaultProxy::start(rig, cluster.api.address()).await?;
        let kubeconfig = cluster.api.kubeconfig_via(proxy.address())?;
        for job in ["stays", "goes", "again", "touched"] {
            cluster.job(job).await?;
            cluster.put(job, made_of(job)).await?;
        }
        cluster.put("alone", alone("good")).await?;
        cluster.put("flapped", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", &kubeconfig, &[]).await?;
        for package in ["stays", "goes", "again", "touched"] {
            soaked(&exporter, MADE_OF, package, 3).await?;
        }
        let before = exporter.says().await?;

        proxy.set(Fault::Refuse);
        let gap = jiff::Timestamp::now().as_second();
        cluster.delete_job("goes").await?;
        cluster.delete_job("again").await?;
        cluster.job("again").await?;
        cluster.touch_job("touched").await?;
        cluster.put("flapped", alone("bad")).await?;
        cluster.put("flapped", alone("good")).await?;
        // A restarted API server remembers nothing from before, so the version to go on from is too old.
        cluster.api.stop();
        cluster.api.start_again().await?;
        proxy.set(Fault::Pass);
        let says = eventually(SOON, "the versions expired, and all is known again", async || {
            let text = exporter.metrics().await?;
            ensure!(text.contains("cause=\"expired\"} "), "nothing expired");
            let says = exporter.says().await?;
            ensure!(says.source_up(MADE_OF) == Some(true) && says.source_up(ALONE) == Some(true), "not up");
            ensure!(soak(&says, MADE_OF, "goes")?.is_none(), "its job is gone");
            ensure!(since(&says, MADE_OF, "again")? > since(&before, MADE_OF, "again")?, "again");
            ensure!(since(&says, ALONE, "flapped")? > since(&before, ALONE, "flapped")?, "flapped");
            Ok(says)
        })
        .await?;
        for (source, package) in [(MADE_OF, "stays"), (ALONE, "alone")] {
            let (now, then) = (since(&says, source, package)?, since(&before, source, package)?);
            ensure!(now == then, "{package}: {then} became {now}");
        }
        for (source, package) in [(MADE_OF, "again"), (MADE_OF, "touched"), (ALONE, "flapped")] {
            let at = since(&says, source, package)?.cast_signed();
            ensure!(at >= gap, "{package}: {at} is before the gap at {gap}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_may_not_be_read_for_a_while_is_vouched_for_from_the_list_after_it() {
    run("soak-forbidden", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let sources = cluster.sources.display().to_string();
        let rights = ["--presets", "flux-kustomization", "--sources", &sources];
        let kubeconfig = Exporter::grant(&cluster.api, &rights).await?;
        for package in ["alone", "flapped"] {
            cluster.put(package, alone("good")).await?;
        }
        let exporter = cluster.exporter(rig, "exporter", &kubeconfig, &["--contact-timeout", "5s"]).await?;
        soaked(&exporter, ALONE, "alone", 3).await?;
        let before = exporter.says().await?;

        let bindings: Api<ClusterRoleBinding> = Api::all(cluster.api.client());
        bindings.delete("exporter", &DeleteParams::default()).await?;
        // What is open stays open whatever becomes of rights.
        cluster.api.stop();
        cluster.api.start_again().await?;
        let gap = jiff::Timestamp::now().as_second();
        eventually(SOON, "the source is down, because it is refused", async || {
            ensure!(exporter.metrics().await?.contains("cause=\"forbidden\"} "), "nothing was refused");
            ensure!(exporter.says().await?.source_up(ALONE) == Some(false), "it is up");
            Ok(())
        })
        .await?;
        cluster.put("flapped", alone("bad")).await?;
        cluster.put("flapped", alone("good")).await?;

        Exporter::grant(&cluster.api, &rights).await?;
        let says = eventually(SOON, "it is up again", async || {
            let says = exporter.says().await?;
            ensure!(says.source_up(ALONE) == Some(true), "it is not up");
            Ok(says)
        })
        .await?;
        let (now, then) = (since(&says, ALONE, "alone")?, since(&before, ALONE, "alone")?);
        ensure!(now == then, "what did not change: {then} became {now}");
        let flapped = since(&says, ALONE, "flapped")?.cast_signed();
        ensure!(flapped >= gap, "{flapped} is before the gap at {gap}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn nothing_of_before_counts_once_etcd_was_restored() {
    run("soak-restored", async |rig| {
        let cluster = Cluster::start(rig).await?;
        cluster.put("a", alone("good")).await?;
        cluster.job("j").await?;
        cluster.put("made", made_of("j")).await?;
        let exporter = cluster.exporter(rig, "exporter", cluster.api.kubeconfig(), &[]).await?;
        soaked(&exporter, MADE_OF, "made", 1).await?;
        cluster.etcd.stop();
        let saved = cluster.etcd.save("saved")?;
        cluster.etcd.start_again().await?;
        cluster.api.wait_ready().await?;
        // Later versions, which the restored etcd does not know.
        for n in 0..50 {
            cluster.put("later", json!({"n": n.to_string()})).await?;
        }
        cluster.put("gone", alone("good")).await?;
        soaked(&exporter, ALONE, "gone", 2).await?;
        let before = soaked(&exporter, MADE_OF, "made", 3).await?;

        let restored = jiff::Timestamp::now().as_second();
        cluster.api.stop();
        cluster.etcd.stop();
        cluster.etcd.restore(&saved)?;
        cluster.etcd.start_again().await?;
        cluster.api.start_again().await?;
        let says = eventually(SOON, "the older state is shown", async || {
            let says = exporter.says().await?;
            ensure!(says.source_up(ALONE) == Some(true) && says.source_up(MADE_OF) == Some(true), "not up");
            ensure!(says.package(ALONE, "gone").is_none(), "it shows what is no longer there");
            Ok(says)
        })
        .await?;
        ensure!(exporter.metrics().await?.contains("cause=\"restored\"} "), "it was not noticed");
        for (source, package) in [(ALONE, "a"), (MADE_OF, "made")] {
            let at = since(&says, source, package)?;
            ensure!(at.cast_signed() >= restored && at > since(&before, source, package)?, "{package}: {at}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn time_in_which_the_exporter_stood_still_counts_for_nothing() {
    run("soak-suspended", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let proxy = FaultProxy::start(rig, cluster.api.address()).await?;
        let kubeconfig = cluster.api.kubeconfig_via(proxy.address())?;
        cluster.put("a", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", &kubeconfig, &[]).await?;
        let before = soaked(&exporter, ALONE, "a", 3).await?;
        let soaked_before = soak(&before, ALONE, "a")?.context("good")?;

        exporter.process().freeze()?;
        let stopped = std::time::Instant::now();
        cluster.put("a", alone("bad")).await?;
        holds_for(Duration::from_secs(12), "it stands still", async || Ok(())).await?;
        // What lies in its socket is not let through, and nothing else comes.
        proxy.set(Fault::Freeze);
        let stood = stopped.elapsed().as_secs_f64();
        exporter.process().thaw()?;
        let after = exporter.says().await?;
        let ran = (rendered(&after)? - rendered(&before)?) as f64 - stood;
        if let Some(soaked) = soak(&after, ALONE, "a")? {
            let counted = (soaked - soaked_before) as f64;
            ensure!(counted <= ran + 2.0, "{counted} s more in {ran} s");
            ensure!(after.source_up(ALONE) == Some(false), "it vouches for what it has not seen");
        }
        holds_for(
            Duration::from_secs(3),
            "nothing is vouched for until the watch has caught up",
            async || {
                ensure!(exporter.says().await?.source_up(ALONE) == Some(false));
                Ok(())
            },
        )
        .await?;
        proxy.set(Fault::Pass);
        shows_the_failure(&exporter).await
    })
    .await;
}

#[tokio::test]
async fn a_watch_that_is_heard_from_and_behind_is_not_up() {
    run("soak-behind", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let proxy = FaultProxy::start(rig, cluster.api.address()).await?;
        let kubeconfig = cluster.api.kubeconfig_via(proxy.address())?;
        cluster.put("a", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", &kubeconfig, &[]).await?;
        soaked(&exporter, ALONE, "a", 1).await?;

        // More is written than comes through, without an end.
        proxy.set(Fault::Slow(Duration::from_millis(500)));
        let packages = cluster.packages();
        let flood = tokio::spawn(async move {
            for n in 0_u64.. {
                let mut data = alone("good");
                data["n"] = json!(format!("{n}{}", "x".repeat(20_000)));
                if put(&packages, "noisy", data).await.is_err() {
                    return;
                }
            }
        });
        eventually(SOON, "the source says that it is behind", async || {
            ensure!(exporter.says().await?.source_up(ALONE) == Some(false), "it is up");
            Ok(())
        })
        .await?;
        cluster.put("a", alone("bad")).await?;
        holds_for(
            Duration::from_secs(5),
            "it is not up for as long as it does not show the failure",
            async || {
                let says = exporter.says().await?;
                ensure!(soak(&says, ALONE, "a")?.is_none() || says.source_up(ALONE) == Some(false));
                Ok(())
            },
        )
        .await?;
        flood.abort();
        proxy.set(Fault::Pass);
        shows_the_failure(&exporter).await
    })
    .await;
}

#[tokio::test]
async fn what_changes_every_other_second_takes_no_source_down() {
    run("soak-steady", async |rig| {
        let cluster = Cluster::start(rig).await?;
        cluster.put("a", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", cluster.api.kubeconfig(), &[]).await?;
        soaked(&exporter, ALONE, "a", 1).await?;
        let packages = cluster.packages();
        let busy = tokio::spawn(async move {
            // The pauses are about as long as those after which a watch counts as quiet.
            for pause in (0..).flat_map(|_| [900, 1_300, 1_700, 1_900, 2_100]) {
                let mut data = alone("good");
                data["n"] = json!(pause.to_string());
                if put(&packages, "busy", data).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
        let holds = holds_for(Duration::from_secs(40), "the source stays up", async || {
            ensure!(exporter.says().await?.source_up(ALONE) == Some(true), "it is down");
            Ok(())
        })
        .await;
        busy.abort();
        holds
    })
    .await;
}

#[tokio::test]
async fn a_quiet_watch_stays_up_on_a_slow_road_while_others_write() {
    run("soak-quiet", async |rig| {
        let cluster = Cluster::start(rig).await?;
        let proxy = FaultProxy::start(rig, cluster.api.address()).await?;
        let kubeconfig = cluster.api.kubeconfig_via(proxy.address())?;
        cluster.put("a", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", &kubeconfig, &[]).await?;
        let before = soaked(&exporter, ALONE, "a", 3).await?;
        // Every question takes three seconds, and the server's version is never the one that the watch knows.
        proxy.set(Fault::Slow(Duration::from_millis(1_500)));
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.api.client(), "default");
        let busy = tokio::spawn(async move {
            for n in 0_u64.. {
                let object = json!({
                    "apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": "busy", "annotations": {"n": n.to_string()}},
                });
                let params = PatchParams::apply("test").force();
                if accounts.patch("busy", &params, &Patch::Apply(object)).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let holds = holds_for(Duration::from_secs(60), "the source stays up", async || {
            let says = exporter.says().await?;
            ensure!(says.source_up(ALONE) == Some(true), "it is down");
            ensure!(since(&says, ALONE, "a")? == since(&before, ALONE, "a")?, "its time moved");
            Ok(())
        })
        .await;
        ensure!(!busy.is_finished(), "nobody wrote");
        busy.abort();
        holds?;
        let relists = exporter.says().await?.sum("statusbridge_exporter_relists_total");
        ensure!(relists == before.sum("statusbridge_exporter_relists_total"), "lists were read again");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_flood_on_one_object_does_not_delay_the_news_of_another() {
    run("soak-flood", async |rig| {
        let cluster = Cluster::start(rig).await?;
        cluster.put("noisy", alone("good")).await?;
        cluster.put("a", alone("good")).await?;
        let exporter = cluster.exporter(rig, "exporter", cluster.api.kubeconfig(), &[]).await?;
        soaked(&exporter, ALONE, "a", 1).await?;
        let writer = |part: usize| {
            let packages = cluster.packages();
            tokio::spawn(async move {
                for n in 0_u64.. {
                    let mut data = alone("good");
                    data["n"] = json!(format!("{part}-{n}"));
                    if put(&packages, "noisy", data).await.is_err() {
                        return;
                    }
                }
            })
        };
        let writers: Vec<_> = (0..4).map(writer).collect();
        let events = async || exporter.watch_events("ConfigMap").await;
        let first = events().await?;
        eventually(SOON, "a flood has come", async || {
            let count = events().await? - first;
            ensure!(count > 300.0, "{count} events are no flood");
            Ok(())
        })
        .await?;
        holds_for(Duration::from_secs(15), "the source is up", async || {
            ensure!(exporter.says().await?.source_up(ALONE) == Some(true));
            Ok(())
        })
        .await?;
        cluster.put("a", alone("bad")).await?;
        eventually(Duration::from_secs(30), "the failure is shown", async || {
            ensure!(soak(&exporter.says().await?, ALONE, "a")?.is_none());
            Ok(())
        })
        .await?;
        ensure!(!writers.iter().any(tokio::task::JoinHandle::is_finished), "somebody no longer wrote");
        writers.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn setting_the_wall_clock_changes_neither_soaks_nor_holds() {
    run("soak-wall-clock", async |rig| {
        let cluster = Cluster::start(rig).await?;
        cluster.put("a", alone("good")).await?;
        cluster.put("b", alone("good")).await?;
        let clock = WallClock::of(rig, "exporter")?;
        let exporter = cluster.exporter(rig, "exporter", cluster.api.kubeconfig(), &[]).await?;
        let before = eventually(SOON, "both are good for 3 s", async || {
            let says = exporter.says().await?;
            for package in ["a", "b"] {
                ensure!(soak(&says, ALONE, package)?.is_some_and(|soak| soak >= 3), "{says:?}");
            }
            Ok(says)
        })
        .await?;
        let began = std::time::Instant::now();
        let soaked = soak(&before, ALONE, "a")?.context("good")?;
        let same = async |shift: i64| {
            clock.set(shift)?;
            let says = exporter.says().await?;
            let elapsed = i64::try_from(began.elapsed().as_secs())?;
            let ahead = rendered(&says)?.cast_signed() - rendered(&before)?.cast_signed() - elapsed;
            ensure!((ahead - shift).abs() <= 2, "it says that it is {ahead} s ahead, and not {shift}");
            ensure!(says.source_up(ALONE) == Some(true), "not up");
            let now = soak(&says, ALONE, "a")?.context("it is not good")?;
            ensure!((now - soaked - elapsed).abs() <= 2, "{soaked} s became {now} s after {elapsed} s");
            anyhow::Ok(says)
        };
        for shift in [3600, 0, -3600, 1800, -1800, 0] {
            same(shift).await?;
        }

        // A hold lasts for 30 seconds of everybody's time.
        cluster.put("b", alone("busy")).await?;
        let busy = std::time::Instant::now();
        let mut shifts = [3600, -3600].into_iter().cycle();
        eventually(SOON, "the hold has run out", async || {
            let says = same(shifts.next().unwrap_or(0)).await;
            let held = soak(&says.expect("the clock is set"), ALONE, "b").expect("b is shown").is_some();
            let elapsed = busy.elapsed().as_secs();
            assert!(held || elapsed >= 28, "it ran out after {elapsed} s");
            assert!(!held || elapsed <= 35, "it has not run out after {elapsed} s");
            ensure!(!held, "still held");
            Ok(())
        })
        .await
    })
    .await;
}

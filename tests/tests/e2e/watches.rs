//! API servers that go and come back, kinds that do, connections that only seem to be there.

use crate::e2e::world::*;
use anyhow::{Result, ensure};
use serde_json::json;
use statusbridge_contract::Fingerprint;
use statusbridge_tests::fake_fleet::SOURCE;
use statusbridge_tests::*;
use std::time::Duration;

/// Servers that are alive say something about once a minute; here silence counts sooner.
const IMPATIENT: [&str; 2] = ["--contact-timeout", "5s"];

async fn up(cluster: &Workload, up: bool) -> Result<()> {
    eventually(SOON, &format!("source_up is {up}"), async || {
        let says = cluster.says().await?.source_up(SOURCE);
        ensure!(says == Some(up), "{says:?}");
        Ok(())
    })
    .await
}

/// Waits until exactly these packages are shown, each healthy at its revision, and the source is up.
async fn shows(cluster: &Workload, packages: &[(&str, u32)]) -> Result<()> {
    eventually(SOON, &format!("exactly {packages:?} are shown"), async || {
        let says = cluster.says().await?;
        ensure!(
            says.packages() == packages.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
            "{:?}",
            says.packages()
        );
        for (name, number) in packages {
            let shown = says.package(SOURCE, name);
            let healthy = shown.is_some_and(|s| s.healthy == Fingerprint::of(&revision(*number)));
            ensure!(healthy, "{name}: {shown:?}");
        }
        let count = says.value("statusbridge_source_packages", &[("package_source", SOURCE)]);
        ensure!(count == Some(packages.len() as f64), "{count:?} are counted");
        ensure!(says.source_up(SOURCE) == Some(true), "the source is not up");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_stopped_api_server_takes_its_source_down_and_closes_the_gate_until_it_is_back() {
    run("e2e-api-server-restart", async |rig| {
        // A quiet watch must not be taken for a dead one, so only silence of many seconds counts.
        let world = World::start(rig, &["c1"], &["--contact-timeout", "5s"]).await?;
        let (cluster, hub) = (&world.clusters[0], &world.hub);
        cluster.deliver("other", &revision(1)).await?;
        world.open("wave", &revision(1)).await?;

        cluster.api.stop();
        up(cluster, false).await?;
        let last_known = cluster.shows(APP).await?;
        ensure!(last_known.healthy == Fingerprint::of(&revision(1)), "what is shown is the last known");
        hub.closes("wave", "Stale", SOON).await?;
        let report = hub.reports(APP, "Reporting", "False", "NotReporting", SOON).await?;
        let problem = &report.data["status"]["problems"][0];
        ensure!(problem["reason"] == "SourceDown", "{}", report.data["status"]);

        cluster.api.start_again().await?;
        shows(cluster, &[(APP, 1), ("other", 1)]).await?;
        hub.opens("wave", SOON).await?;
        cluster.deliver("other", &revision(2)).await?;
        shows(cluster, &[(APP, 1), ("other", 2)]).await
    })
    .await;
}

#[tokio::test]
async fn a_silent_quiet_api_server_is_told_from_a_dead_one() {
    run("e2e-quiet", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &IMPATIENT).await?;
        cluster.deliver(APP, &revision(1)).await?;
        shows(&cluster, &[(APP, 1)]).await?;
        holds_for(Duration::from_secs(15), "the source stays up while nothing happens", async || {
            let says = cluster.says().await?;
            ensure!(says.source_up(SOURCE) == Some(true), "source_up is {:?}", says.source_up(SOURCE));
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn where_streaming_lists_are_refused_plain_ones_do() {
    run("e2e-old-etcd", async |rig| {
        let etcd = Etcd::start_old(rig).await?;
        let cluster = Workload::start(rig, &etcd, "c1", &IMPATIENT).await?;
        for name in ["a", "b", "c"] {
            cluster.deliver(name, &revision(1)).await?;
        }
        shows(&cluster, &[("a", 1), ("b", 1), ("c", 1)]).await?;
        // What is there already comes by a list, what changes then by a watch.
        cluster.exporter.process().kill();
        cluster.exporter.process().start()?;
        cluster.exporter.wait_ready().await?;
        shows(&cluster, &[("a", 1), ("b", 1), ("c", 1)]).await?;
        cluster.kustomizations().delete("b", &Default::default()).await?;
        cluster.deliver("c", &revision(2)).await?;
        shows(&cluster, &[("a", 1), ("c", 2)]).await?;
        cluster.api.stop();
        up(&cluster, false).await?;
        cluster.api.start_again().await?;
        cluster.kustomizations().delete("a", &Default::default()).await?;
        shows(&cluster, &[("c", 2)]).await
    })
    .await;
}

#[tokio::test]
async fn a_kind_that_goes_takes_its_packages_along_and_comes_back_with_others() {
    run("e2e-crd", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let more = ["--contact-timeout", "10s", "--discovery-interval", "1s"];
        let cluster = Workload::start(rig, &etcd, "c1", &more).await?;
        cluster.deliver("before", &revision(1)).await?;
        cluster.deliver("kept-name", &revision(1)).await?;
        shows(&cluster, &[("before", 1), ("kept-name", 1)]).await?;
        let crd = "kustomizations.kustomize.toolkit.fluxcd.io";
        cluster.api.kubectl(&["delete", "crd", crd, "--timeout=60s"]).await?;
        eventually(SOON, "no package is shown", async || {
            let packages = cluster.says().await?.packages();
            ensure!(packages.is_empty(), "{packages:?}");
            Ok(())
        })
        .await?;
        cluster.api.install_crds(&crds::flux()?).await?;
        cluster.deliver("after", &revision(2)).await?;
        cluster.deliver("kept-name", &revision(2)).await?;
        shows(&cluster, &[("after", 2), ("kept-name", 2)]).await?;

        // Joined kinds too: without its source nobody knows that a package is to run something else than it does.
        let is_wanted = async |wanted: bool| {
            eventually(SOON, &format!("another revision is wanted: {wanted}"), async || {
                let shown = cluster.shows("after").await?;
                ensure!((shown.desired == Fingerprint::of(&revision(3))) == wanted, "{shown:?}");
                ensure!((shown.desired != shown.applied) == wanted, "{shown:?}");
                Ok(())
            })
            .await
        };
        cluster.want("after", &revision(3)).await?;
        is_wanted(true).await?;
        let crd = "externalartifacts.source.toolkit.fluxcd.io";
        cluster.api.kubectl(&["delete", "crd", crd, "--timeout=60s"]).await?;
        is_wanted(false).await?;
        cluster.api.install_crds(&crds::flux()?).await?;
        let artifact = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
            "metadata": {"name": "after", "namespace": FLUX_NAMESPACE}, "spec": {},
        });
        cluster.api.apply_object(&artifact).await?;
        cluster.want("after", &revision(3)).await?;
        is_wanted(true).await
    })
    .await;
}

#[tokio::test]
async fn what_was_deleted_while_the_watch_was_down_is_gone_when_it_is_back() {
    run("e2e-watch-down", async |rig| {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "c1").await?;
        api.install_crds(&crds::flux()?).await?;
        api.ensure_namespace(FLUX_NAMESPACE).await?;
        let proxy = FaultProxy::start(rig, api.address()).await?;
        let kubeconfig = api.kubeconfig_via(proxy.address())?;
        let exporter = Exporter::start(rig, "exporter", &kubeconfig, &IMPATIENT).await?;
        let cluster = Workload::of(api, exporter).await?;
        for name in ["a", "b", "c", "d"] {
            cluster.deliver(name, &revision(1)).await?;
        }
        shows(&cluster, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]).await?;

        // A half-open connection: nothing says that it is dead.
        proxy.set(Fault::Freeze);
        cluster.kustomizations().delete("a", &Default::default()).await?;
        cluster.deliver("b", &revision(2)).await?;
        up(&cluster, false).await?;
        ensure!(cluster.says().await?.packages() == ["a", "b", "c", "d"], "the last known is still shown");
        proxy.set(Fault::Pass);
        shows(&cluster, &[("b", 2), ("c", 1), ("d", 1)]).await?;

        // The API server forgets what happened meanwhile: only a new list tells.
        let lists =
            async || Ok::<_, anyhow::Error>(cluster.says().await?.sum("statusbridge_exporter_relists_total"));
        let before = lists().await?;
        proxy.set(Fault::Refuse);
        cluster.kustomizations().delete("c", &Default::default()).await?;
        up(&cluster, false).await?;
        cluster.deliver("c", &revision(3)).await?;
        cluster.kustomizations().delete("d", &Default::default()).await?;
        cluster.api.stop();
        cluster.api.start_again().await?;
        proxy.set(Fault::Pass);
        shows(&cluster, &[("b", 2), ("c", 3)]).await?;
        ensure!(lists().await? > before, "there was no new list");

        // Cut again and again: nothing is lost on the way.
        for number in 4..10 {
            cluster.deliver("b", &revision(number)).await?;
            proxy.cut();
        }
        shows(&cluster, &[("b", 9), ("c", 3)]).await
    })
    .await;
}

/// A cluster whose exporter reaches it through a proxy, with the first revision.
async fn behind_proxy(rig: &Rig) -> Result<(Etcd, FaultProxy, Workload)> {
    let etcd = Etcd::start(rig).await?;
    let api = ApiServer::start(rig, &etcd, "c1").await?;
    api.install_crds(&crds::flux()?).await?;
    api.ensure_namespace(FLUX_NAMESPACE).await?;
    let proxy = FaultProxy::start(rig, api.address()).await?;
    let kubeconfig = api.kubeconfig_via(proxy.address())?;
    let exporter = Exporter::start(rig, "exporter", &kubeconfig, &IMPATIENT).await?;
    let cluster = Workload::of(api, exporter).await?;
    cluster.deliver(APP, &revision(1)).await?;
    shows(&cluster, &[(APP, 1)]).await?;
    Ok((etcd, proxy, cluster))
}

#[tokio::test]
async fn what_changed_while_the_watch_was_down_is_known_before_the_source_is_up_again() {
    run("e2e-watch-catches-up", async |rig| {
        let (_etcd, proxy, cluster) = behind_proxy(rig).await?;

        proxy.set(Fault::Refuse);
        up(&cluster, false).await?;
        cluster.fail(APP, &revision(1), "deployment/app: ProgressDeadlineExceeded").await?;
        // The head of the server's answer is there long before what it says.
        proxy.set(Fault::Slow(Duration::from_millis(400)));
        eventually(SOON, "the source is up", async || {
            let says = cluster.says().await?;
            let healthy = says.package(SOURCE, APP).is_some_and(|app| !app.healthy.is_none());
            if says.source_up(SOURCE) == Some(true) && healthy {
                return Ok(Err(anyhow::anyhow!("what was true before is said of now")));
            }
            ensure!(says.source_up(SOURCE) == Some(true), "it is down");
            Ok(Ok(()))
        })
        .await?
    })
    .await;
}

#[tokio::test]
async fn a_source_stays_up_after_an_outage_that_taught_its_watches_to_wait() {
    run("e2e-watch-backoff", async |rig| {
        let (_etcd, proxy, cluster) = behind_proxy(rig).await?;
        // Each try takes twice as long as the one before to come.
        proxy.set(Fault::Refuse);
        let tries = async || {
            let says = cluster.says().await?;
            Ok::<_, anyhow::Error>(says.sum("statusbridge_exporter_watch_errors_total"))
        };
        let before = tries().await?;
        eventually(SOON, "its watches tried again and again", async || {
            let now = tries().await?;
            ensure!(now >= before + 12.0, "{now} after {before}");
            Ok(())
        })
        .await?;
        up(&cluster, false).await?;
        proxy.set(Fault::Pass);
        up(&cluster, true).await?;
        holds_for(Duration::from_secs(20), "the source stays up while nothing happens", async || {
            let says = cluster.says().await?;
            ensure!(says.source_up(SOURCE) == Some(true), "source_up is {:?}", says.source_up(SOURCE));
            Ok(())
        })
        .await
    })
    .await;
}

//! The exporter beside the real kpt: what it says of a package whose Deployment takes its time, becomes ready, fails and
//! is deleted. It is scraped all the time, and not once may a revision be healthy that is not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams};
use statusbridge_contract::{ApplyState, Fingerprint, Health, Metric};
use statusbridge_tests::exposition::Exposition;
use statusbridge_tests::*;
use tokio::task::JoinHandle;

const BETWEEN_SCRAPES: Duration = Duration::from_millis(50);
const SOURCE: &str = "kpt-resourcegroup";
const PACKAGE: &str = "web";
const WAIT: &str = "--reconcile-timeout=60s";

/// What may be said, by what the test itself did to the cluster.
#[derive(Debug, Default)]
struct Truth {
    /// All of this revision is applied and ready, or is becoming so at this moment.
    healthy: Option<Fingerprint>,
    /// So it was with this one until the cluster was made worse: it may be said until it is not said for the first
    /// time, which nobody can do before they heard.
    fading: Option<Fingerprint>,
    /// Revisions that were said to be healthy, without repetitions.
    said: Vec<Fingerprint>,
    scrapes: u64,
}

impl Truth {
    /// Holds an exposition against it.
    fn hear(&mut self, says: &Exposition) -> Result<()> {
        says.adds_up()?;
        self.scrapes += 1;
        let name = Metric::PackageHealthyRevision.name();
        let healthy = says.lines.iter().filter(|l| l.name == name && l.value != 0.0);
        let healthy: Vec<_> = healthy.map(|l| Fingerprint::from_value(l.value as u64)).collect();
        let said = match healthy[..] {
            [] => {
                self.fading = None;
                return Ok(());
            }
            [Some(said)] => said,
            _ => bail!("there is one package, and these are healthy: {healthy:?}"),
        };
        ensure!(
            self.healthy == Some(said) || self.fading == Some(said),
            "{said} is said to be healthy: {self:?}"
        );
        if self.healthy == Some(said) {
            self.fading = None;
        }
        let shown = says.package(SOURCE, PACKAGE).context("healthy, and else nothing is said of it")?;
        let good = (ApplyState::Applied, Health::Current, said, said);
        ensure!((shown.apply, shown.health, shown.desired, shown.applied) == good, "healthy, but {shown:?}");
        if self.said.last() != Some(&said) {
            self.said.push(said);
        }
        Ok(())
    }
}

/// Scrapes the exporter all the time.
struct Listener {
    truth: Arc<Mutex<Truth>>,
    task: JoinHandle<Result<()>>,
}

impl Listener {
    fn start(exporter: Arc<Exporter>) -> Self {
        let truth = Arc::<Mutex<Truth>>::default();
        let heard = truth.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(BETWEEN_SCRAPES);
            loop {
                ticks.tick().await;
                let text = exporter.metrics().await?;
                let mut truth = heard.lock().unwrap_or_else(PoisonError::into_inner);
                truth.hear(&Exposition::parse(&text)?).with_context(|| text)?;
            }
        });
        Self { truth, task }
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the cluster is changed so that this revision becomes applied and ready.
    fn good(&self, revision: &str) {
        self.truth().healthy = Some(Fingerprint::of(revision));
    }

    /// To be called before the cluster is changed so that nothing is applied and ready.
    fn bad(&self) {
        let mut truth = self.truth();
        if let Some(healthy) = truth.healthy.take() {
            truth.fading = Some(healthy);
        }
    }

    /// Ends it; fails when it has heard anything wrong.
    async fn finish(mut self) -> Result<(u64, Vec<Fingerprint>)> {
        if self.task.is_finished() {
            (&mut self.task).await??;
        }
        let mut truth = self.truth();
        Ok((truth.scrapes, std::mem::take(&mut truth.said)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is expected of the package.
struct Expected<'a> {
    state: (ApplyState, Health),
    desired: &'a str,
    applied: &'a str,
    healthy: &'a str,
}

struct World {
    api: ApiServer,
    exporter: Arc<Exporter>,
    package: KptPackage,
    listener: Listener,
    _etcd: Etcd,
}

impl World {
    async fn start(rig: &Rig) -> Result<Self> {
        let etcd = Etcd::start(rig).await?;
        let api = ApiServer::start(rig, &etcd, "one").await?;
        let package = KptPackage::new(rig, &api, PACKAGE).await?;
        let exporter = Exporter::start(rig, "exporter", api.kubeconfig(), &["--presets", SOURCE]).await?;
        let exporter = Arc::new(exporter);
        let listener = Listener::start(exporter.clone());
        Ok(Self { api, exporter, package, listener, _etcd: etcd })
    }

    async fn front(&self, rollout: Rollout) -> Result<()> {
        Flux::set_deployment(&self.api, "default", "front", rollout).await
    }

    async fn shows(&self, what: &str, expected: Expected<'_>) -> Result<()> {
        let Expected { state, desired, applied, healthy } = expected;
        let revisions = [desired, applied, healthy].map(Fingerprint::of);
        eventually(SOON, &format!("{what}: {state:?}"), async || {
            if self.listener.task.is_finished() {
                return Ok(()); // what it heard is told in the end
            }
            let shown = self.exporter.says().await?.package(SOURCE, PACKAGE).context("not shown")?;
            let found = ((shown.apply, shown.health), [shown.desired, shown.applied, shown.healthy]);
            ensure!(found == (state, revisions), "{shown:?}");
            Ok(())
        })
        .await
    }

    /// All of this revision is applied, and this is its health.
    async fn applied(&self, what: &str, revision: &str, health: Health) -> Result<()> {
        let healthy = if health == Health::Current { revision } else { "" };
        let state = (ApplyState::Applied, health);
        self.shows(what, Expected { state, desired: revision, applied: revision, healthy }).await?;
        if health != Health::Current {
            return Ok(());
        }
        // The test goes on only when the listener has seen it, too.
        eventually(SOON, &format!("{what}: heard"), async || {
            let is_heard = self.listener.truth().said.last() == Some(&Fingerprint::of(revision));
            ensure!(is_heard || self.listener.task.is_finished(), "not yet");
            Ok(())
        })
        .await
    }

    /// It is not: neither is anything healthy.
    async fn not_applied(&self, what: &str, revision: &str, state: (ApplyState, Health)) -> Result<()> {
        self.shows(what, Expected { state, desired: revision, applied: "", healthy: "" }).await
    }
}

async fn first_revision(world: &World) -> Result<()> {
    let (package, listener) = (&world.package, &world.listener);
    package.revision("r1")?;
    package
        .apply_while(&[WAIT], true, async || {
            world.front(Rollout::Progressing).await?;
            let applying = (ApplyState::Applying, Health::Unknown);
            world.not_applied("kpt waits for the Deployment", "r1", applying).await?;
            listener.good("r1");
            world.front(Rollout::Ready).await
        })
        .await?;
    world.applied("kpt has seen it ready", "r1", Health::Current).await?;

    listener.bad();
    world.front(Rollout::Progressing).await?;
    world.applied("its replicas are replaced", "r1", Health::InProgress).await?;
    world.front(Rollout::Failed).await?;
    world.applied("its progress deadline passes", "r1", Health::Failed).await?;
    listener.good("r1");
    world.front(Rollout::Ready).await?;
    world.applied("it recovers", "r1", Health::Current).await
}

async fn not_ready_in_time(world: &World) -> Result<()> {
    let (package, listener) = (&world.package, &world.listener);
    listener.bad();
    package.revision("r2")?;
    package.apply(&["--reconcile-timeout=2s"], false).await?;
    world.applied("the Deployment's controller has not seen r2", "r2", Health::InProgress).await?;
    world.front(Rollout::Failed).await?;
    world.applied("r2 fails", "r2", Health::Failed).await?;
    world.front(Rollout::Progressing).await?;
    world.applied("r2 is tried again", "r2", Health::InProgress).await?;
    listener.good("r2");
    world.front(Rollout::Ready).await?;
    world.applied("ready when kpt has gone", "r2", Health::Current).await
}

async fn refused_objects(world: &World) -> Result<()> {
    let (package, listener) = (&world.package, &world.listener);
    let ready = async || world.front(Rollout::Ready).await;
    listener.bad();
    package.revision("r3")?;
    package.write("more.yaml", &config_map_manifest("more", "a/b", "refused"))?;
    package.apply_while(&[WAIT], false, ready).await?;
    // kpt forgets a new object that is refused, and all others are ready.
    let pending = (ApplyState::Pending, Health::Current);
    world.not_applied("a new object is refused", "r3", pending).await?;
    listener.good("r3");
    package.write("more.yaml", &config_map_manifest("more", "a", "b"))?;
    package.apply(&[WAIT], true).await?;
    package.apply(&[WAIT], true).await?;
    world.applied("accepted", "r3", Health::Current).await?;

    listener.bad();
    package.revision("r4")?;
    package.write("more.yaml", &config_map_manifest("more", "a/b", "refused"))?;
    package.apply_while(&[WAIT], false, ready).await?;
    let failed = (ApplyState::Failed, Health::Unknown);
    world.not_applied("an object of the inventory is refused", "r4", failed).await?;
    listener.good("r4");
    package.write("more.yaml", &config_map_manifest("more", "a", "b"))?;
    package.apply(&[WAIT], true).await?;
    package.apply(&[WAIT], true).await?;
    world.applied("accepted again", "r4", Health::Current).await
}

async fn deleted_by_hand(world: &World) -> Result<()> {
    let (package, listener) = (&world.package, &world.listener);
    listener.bad();
    let deployments = Api::<Deployment>::namespaced(world.api.client(), "default");
    deployments.delete("front", &DeleteParams::default()).await?;
    world.applied("the Deployment is deleted by hand", "r4", Health::NotFound).await?;
    package
        .apply_while(&[WAIT], true, async || {
            listener.good("r4");
            world.front(Rollout::Ready).await
        })
        .await?;
    world.applied("applied once more", "r4", Health::Current).await
}

#[tokio::test]
async fn health_is_that_of_the_objects_and_never_said_too_early() {
    run("kpt-health", async |rig| {
        let world = World::start(rig).await?;
        let tried = async {
            first_revision(&world).await?;
            not_ready_in_time(&world).await?;
            refused_objects(&world).await?;
            deleted_by_hand(&world).await
        };
        let tried = tried.await;
        // What was wrong with a scrape comes first: the rest may follow from it.
        let (scrapes, said) = world.listener.finish().await?;
        tried?;
        ensure!(scrapes > 0 && said == ["r1", "r2", "r3", "r4"].map(Fingerprint::of), "{scrapes}: {said:?}");
        Ok(())
    })
    .await;
}

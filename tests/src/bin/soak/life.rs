//! What goes on in the clusters and in the hub. Whatever comes, something of its kind goes.

use crate::world::{REAL, World};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use statusbridge_contract::Health;
use statusbridge_tests::fake_fleet::unix_now;
use statusbridge_tests::history::condition;
use statusbridge_tests::{FLUX_NAMESPACE, FakePackage, eventually, hub};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Packages that every cluster has.
const COMMON: usize = 20;
/// Packages that the real cluster has for itself.
const OWN: usize = 60;
/// FleetRollouts there are.
const ROLLOUTS: usize = 4;
/// Packages that have failed in the real cluster, and as many in the others.
const FAILED: usize = 20;
/// Clusters that the second gate of a package names.
const NAMED: usize = 10;

/// Time between two steps.
const STEP: Duration = Duration::from_secs(2);
/// Steps after which a package of the real cluster gets another revision, and those after which another one takes its place.
const DELIVER: u64 = 3;
const REPLACE_OWN: u64 = 5;
/// The same of a package of all clusters with its FleetPackage and gates, of a gate, and of a FleetRollout.
const REPLACE_COMMON: u64 = 30;
const REPLACE_GATE: u64 = 10;
const REPLACE_ROLLOUT: u64 = 45;
/// Steps after which the record of the FleetRollouts is read.
const HAND_OVER: u64 = 2;

/// Scrapes and polls come every 15 s.
const STALE_AFTER: &str = "90s";
/// Longest time for a write, and until everything is shown and judged.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was done so far.
#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code)] // it is read as it is printed
pub(crate) struct Done {
    revisions: u64,
    failures: u64,
    packages_replaced: u64,
    fleet_packages_replaced: u64,
    gates_replaced: u64,
    rollouts_replaced: u64,
    /// Of these, the ones that had come to their end.
    rolled_out: u64,
    touched: u64,
}

/// A package of the real cluster.
struct Own {
    name: String,
    revision: String,
}

/// A package of all clusters, with what the hub has for it.
struct Common {
    name: String,
    /// The revision that is wanted.
    revision: String,
    /// A gate for all clusters, and one for some.
    gates: [String; 2],
}

/// A FleetRollout on its way.
struct Rollout {
    name: String,
    package: String,
    /// Clusters that were given the revision.
    delivered: BTreeSet<String>,
}

/// Everything that lives.
pub(crate) struct Life<'w> {
    world: &'w World,
    random: Rng,
    packages: Api<DynamicObject>,
    gates: Api<DynamicObject>,
    rollouts: Api<DynamicObject>,
    records: Api<DynamicObject>,
    artifacts: Api<DynamicObject>,
    /// How many names there were so far.
    names: u64,
    own: VecDeque<Own>,
    common: VecDeque<Common>,
    rolling: VecDeque<Rollout>,
    /// The FleetRollout that was deleted last: its record goes with the next.
    deleted: Option<String>,
    failed_here: VecDeque<String>,
    failed_elsewhere: VecDeque<(String, String)>,
    done: Done,
}

impl<'w> Life<'w> {
    /// Makes as much as there will be at any time.
    pub(crate) async fn begin(world: &'w World, random: Rng) -> Result<Self> {
        let of_hub = async |kind: &str| world.hub.api.dynamic(&hub::kind(kind), Some("default")).await;
        let artifact = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "ExternalArtifact");
        let mut life = Self {
            world,
            random,
            packages: of_hub("FleetPackage").await?,
            gates: of_hub("RolloutGate").await?,
            rollouts: of_hub("FleetRollout").await?,
            records: of_hub("FleetRolloutSlice").await?,
            artifacts: world.workload.api.dynamic(&artifact, Some(FLUX_NAMESPACE)).await?,
            names: 0,
            own: VecDeque::new(),
            common: VecDeque::new(),
            rolling: VecDeque::new(),
            deleted: None,
            failed_here: VecDeque::new(),
            failed_elsewhere: VecDeque::new(),
            done: Done::default(),
        };
        for _ in 0..OWN {
            life.own_comes().await?;
        }
        for _ in 0..COMMON {
            life.common_comes().await?;
        }
        for _ in 0..ROLLOUTS {
            life.rollout_comes().await?;
        }
        for _ in 0..FAILED {
            life.fail().await?;
        }
        Ok(life)
    }

    pub(crate) fn done(&self) -> Done {
        self.done
    }

    /// Goes on until then.
    pub(crate) async fn live(&mut self, until: Instant) -> Result<()> {
        let mut ticks = interval(STEP);
        // A machine that was busy for a while has nothing to catch up on.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for step in 1.. {
            ticks.tick().await;
            if Instant::now() >= until {
                break;
            }
            let due = |every: u64| step % every == 0;
            self.fail().await?;
            self.heal().await?;
            self.touch().await?;
            if due(DELIVER) {
                self.deliver().await?;
            }
            if due(HAND_OVER) {
                self.hand_over().await?;
            }
            if due(REPLACE_OWN) {
                self.own_goes().await?;
                self.own_comes().await?;
            }
            if due(REPLACE_GATE) {
                self.replace_gate().await?;
            }
            if due(REPLACE_COMMON) {
                self.common_goes().await?;
                self.common_comes().await?;
            }
            if due(REPLACE_ROLLOUT) {
                self.rollout_goes().await?;
                self.rollout_comes().await?;
            }
        }
        Ok(())
    }

    /// A name that nothing had before.
    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}-{}", self.names)
    }

    /// A revision that nothing had before.
    fn revision(&mut self) -> String {
        format!("main@sha1:{:032x}{:08x}", self.random.u128(..), self.random.u32(..))
    }

    async fn own_comes(&mut self) -> Result<()> {
        let (name, revision) = (self.name("own"), self.revision());
        self.run_here(&name, &revision).await?;
        self.own.push_back(Own { name, revision });
        Ok(())
    }

    async fn own_goes(&mut self) -> Result<()> {
        let Some(gone) = self.own.pop_front() else { return Ok(()) };
        self.failed_here.retain(|name| *name != gone.name);
        self.done.packages_replaced += 1;
        self.remove_here(&gone.name).await
    }

    /// From now on all clusters have one more package, and the hub a FleetPackage and two gates.
    async fn common_comes(&mut self) -> Result<()> {
        let (name, revision) = (self.name("app"), self.revision());
        let gates = [format!("{name}-all"), self.name(&name)];
        for cluster in &self.world.clusters {
            self.world.fleet.says(cluster, &name, FakePackage::healthy_at(&revision));
        }
        self.run_here(&name, &revision).await?;
        let common = Common { name, revision, gates };
        self.want(&common).await?;
        self.common.push_back(common);
        Ok(())
    }

    /// The oldest one that is not rolled out goes.
    async fn common_goes(&mut self) -> Result<()> {
        let rolling: BTreeSet<&str> = self.rolling.iter().map(|it| it.package.as_str()).collect();
        let oldest = self.common.iter().position(|it| !rolling.contains(it.name.as_str()));
        let gone = oldest.and_then(|at| self.common.remove(at)).context("every package is rolled out")?;
        for gate in &gone.gates {
            delete(&self.gates, gate).await?;
        }
        delete(&self.packages, &gone.name).await?;
        for cluster in &self.world.clusters {
            self.world.fleet.loses(cluster, &gone.name);
        }
        self.failed_elsewhere.retain(|(_, package)| *package != gone.name);
        self.done.fleet_packages_replaced += 1;
        self.remove_here(&gone.name).await
    }

    /// Tells the hub which revision is wanted.
    async fn want(&self, common: &Common) -> Result<()> {
        let Common { name, revision, gates: [all, some] } = common;
        let hub = &self.world.hub;
        let everywhere = json!({"reporting": {"minClusters": self.world.clusters.len()}});
        insist(&format!("{name} is wanted at {revision}"), async || {
            hub.report(name, STALE_AFTER, json!({"revision": revision, "detail": "All"})).await?;
            hub.gate(all, name, revision, json!({"clusters": everywhere, "maxFailures": "5%"})).await?;
            let clusters = match self.gates.get_opt(some).await? {
                Some(gate) => gate.data["spec"]["clusters"].clone(),
                None => json!({"names": self.some()}),
            };
            hub.gate(some, name, revision, json!({"clusters": clusters, "maxFailures": 1})).await.map(drop)
        })
        .await
    }

    /// Some clusters beside each other, for a gate.
    fn some(&self) -> &[String] {
        let first = (self.names as usize * NAMED) % (self.world.clusters.len() - NAMED);
        &self.world.clusters[first..first + NAMED]
    }

    async fn replace_gate(&mut self) -> Result<()> {
        let at = self.random.usize(..self.common.len());
        let new = self.name(&self.common[at].name.clone());
        let old = std::mem::replace(&mut self.common[at].gates[1], new);
        delete(&self.gates, &old).await?;
        self.done.gates_replaced += 1;
        self.want(&self.common[at]).await
    }

    /// A package that is not rolled out yet goes to another revision in three waves.
    async fn rollout_comes(&mut self) -> Result<()> {
        let (name, revision) = (self.name("roll"), self.revision());
        let rolling: BTreeSet<&str> = self.rolling.iter().map(|it| it.package.as_str()).collect();
        let resting: Vec<usize> =
            (0..self.common.len()).filter(|at| !rolling.contains(self.common[*at].name.as_str())).collect();
        let at = resting[self.random.usize(..resting.len())];
        self.common[at].revision = revision;
        self.done.revisions += 1;
        let package = self.common[at].name.clone();
        self.want(&self.common[at]).await?;
        let gate = json!({"maxFailures": "20%"});
        let rollout = json!({
            "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetRollout",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"fleetPackageRef": {"name": package}, "waves": [
                {"name": "first", "clusters": {"count": 5}, "gate": gate},
                {"name": "some", "clusters": {"percentage": "25%"}, "gate": gate},
                {"name": "rest", "clusters": {"percentage": "100%"}, "gate": gate},
            ]},
        });
        let hub = &self.world.hub.api;
        insist("a FleetRollout is made", async || hub.apply_object(&rollout).await.map(drop)).await?;
        self.rolling.push_back(Rollout { name, package, delivered: BTreeSet::new() });
        Ok(())
    }

    /// The oldest one goes; clusters that it has not admitted get the revision all the same.
    async fn rollout_goes(&mut self) -> Result<()> {
        let Some(gone) = self.rolling.pop_front() else { return Ok(()) };
        let last = self.rollouts.get_opt(&gone.name).await?;
        let is_done = last.is_some_and(|it| condition(&it, "Ready").0 == "True");
        self.done.rollouts_replaced += 1;
        self.done.rolled_out += u64::from(is_done);
        delete(&self.rollouts, &gone.name).await?;
        // Of the one before, nothing is on its way any more.
        if let Some(before) = self.deleted.replace(gone.name.clone()) {
            let record = ListParams::default().labels(&format!("statusbridge.dev/fleet-rollout={before}"));
            insist("a record is deleted", async || {
                self.records.delete_collection(&DeleteParams::default(), &record).await?;
                Ok(())
            })
            .await?;
        }
        let all: Vec<String> = self.world.clusters.iter().cloned().chain([REAL.to_owned()]).collect();
        let rest: Vec<String> = all.into_iter().filter(|it| !gone.delivered.contains(it)).collect();
        self.deliver_to(&gone.package, &rest).await
    }

    /// Clusters that FleetRollouts have admitted get the revision.
    async fn hand_over(&mut self) -> Result<()> {
        let mut due = Vec::new();
        for rollout in &mut self.rolling {
            let Some(common) = self.common.iter().find(|it| it.name == rollout.package) else { continue };
            let of_it = format!("statusbridge.dev/fleet-rollout={}", rollout.name);
            let slices = self.records.list(&ListParams::default().labels(&of_it)).await;
            // At the next step, then.
            let Ok(slices) = slices else { continue };
            let rows = slices.iter().flat_map(|it| it.data["clusters"].as_array().into_iter().flatten());
            let admitted = rows.filter(|row| row["revision"] == common.revision.as_str());
            let admitted = admitted.filter_map(|row| row["clusterName"].as_str().map(str::to_owned));
            let new: Vec<String> = admitted.filter(|it| !rollout.delivered.contains(it)).collect();
            rollout.delivered.extend(new.iter().cloned());
            due.push((rollout.package.clone(), new));
        }
        for (package, clusters) in due {
            self.deliver_to(&package, &clusters).await?;
        }
        Ok(())
    }

    /// Clusters get the revision at which a package is wanted.
    async fn deliver_to(&mut self, package: &str, clusters: &[String]) -> Result<()> {
        let common = self.common.iter().find(|it| it.name == package);
        let revision = common.context("a package that is rolled out is gone")?.revision.clone();
        for cluster in clusters {
            if cluster == REAL {
                self.run_here(package, &revision).await?;
            } else {
                self.world.fleet.says(cluster, package, FakePackage::healthy_at(&revision));
            }
        }
        Ok(())
    }

    /// A package of the real cluster gets another revision.
    async fn deliver(&mut self) -> Result<()> {
        let (at, revision) = (self.random.usize(..self.own.len()), self.revision());
        self.own[at].revision = revision;
        self.done.revisions += 1;
        self.run_here(&self.own[at].name, &self.own[at].revision).await
    }

    /// Two packages fail, one of them in the real cluster, with texts that nothing had before.
    async fn fail(&mut self) -> Result<()> {
        self.done.failures += 2;
        let Own { name, revision } = &self.own[self.random.usize(..self.own.len())];
        let (pod, seconds) = (self.random.u64(..), self.random.u32(10..600));
        let message = format!(
            "health check failed after {seconds}s: timeout waiting for: [Deployment/{name}/{name} status: \
             'InProgress': pod {name}-{pod:016x} ended with status {}]",
            self.random.u8(..)
        );
        let workload = &self.world.workload;
        insist("a package fails", async || workload.fail(name, revision, &message).await).await?;
        self.failed_here.push_back(name.clone());

        let cluster = self.world.clusters[self.random.usize(..self.world.clusters.len())].clone();
        let package = self.common[self.random.usize(..self.common.len())].name.clone();
        let reason = format!("Failure{:x}", self.random.u64(..));
        self.world.fleet.changes(&cluster, &package, |it| {
            let failed = FakePackage { reason, ..FakePackage::failed_at(&it.applied) };
            *it = failed;
        });
        self.failed_elsewhere.push_back((cluster, package));
        Ok(())
    }

    /// Those that failed first are well again.
    async fn heal(&mut self) -> Result<()> {
        while self.failed_here.len() > FAILED {
            let healed = self.failed_here.pop_front();
            let own = self.own.iter().find(|it| Some(&it.name) == healed.as_ref());
            if let Some(Own { name, revision }) = own {
                self.run_here(name, revision).await?;
            }
        }
        while self.failed_elsewhere.len() > FAILED {
            let Some((cluster, package)) = self.failed_elsewhere.pop_front() else { break };
            self.world.fleet.changes(&cluster, &package, |it| {
                if it.health == Health::Failed {
                    it.since = unix_now();
                    it.health = Health::Current;
                    it.healthy = it.applied.clone();
                    it.reason = String::new();
                }
            });
        }
        Ok(())
    }

    /// An object of each kind gets another version, and is as it was.
    async fn touch(&mut self) -> Result<()> {
        self.done.touched += 1;
        let own = self.own[self.random.usize(..self.own.len())].name.clone();
        let common = &self.common[self.random.usize(..self.common.len())];
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"touched": self.done.touched.to_string()}}}));
        let kustomizations = self.world.workload.kustomizations();
        for (api, name) in
            [(kustomizations, &own), (&self.packages, &common.name), (&self.gates, &common.gates[0])]
        {
            insist(&format!("{name} is touched"), async || {
                api.patch_metadata(name, &PatchParams::default(), &patch).await?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// The real cluster runs a package at a revision.
    async fn run_here(&self, package: &str, revision: &str) -> Result<()> {
        let workload = &self.world.workload;
        insist(&format!("{package} is delivered"), async || workload.deliver(package, revision).await).await
    }

    async fn remove_here(&self, package: &str) -> Result<()> {
        delete(self.world.workload.kustomizations(), package).await?;
        delete(&self.artifacts, package).await
    }

    /// Waits until the exporter shows the packages that are there, and no others.
    pub(crate) async fn is_shown(&self) -> Result<()> {
        let own = self.own.iter().map(|it| &it.name);
        let there: BTreeSet<&String> = own.chain(self.common.iter().map(|it| &it.name)).collect();
        insist("the exporter shows what is there", async || {
            let says = self.world.workload.says().await?;
            says.adds_up()?;
            let shown = says.packages();
            ensure!(shown.iter().collect::<BTreeSet<_>>() == there, "it shows {shown:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the aggregator has judged every object of the hub as it is now.
    pub(crate) async fn is_judged(&self) -> Result<()> {
        insist("every object is judged", async || {
            for api in [&self.packages, &self.gates, &self.rollouts] {
                for object in api.list(&ListParams::default()).await? {
                    let (name, generation) = (&object.metadata.name, object.metadata.generation);
                    let observed = object.data["status"]["observedGeneration"].as_i64();
                    ensure!(observed == generation, "{name:?}: generation {observed:?} of {generation:?}");
                }
            }
            Ok(())
        })
        .await
    }
}

/// Tries until it is done: what it does may be done twice.
async fn insist(what: &str, attempt: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    eventually(PATIENCE, what, attempt).await
}

async fn delete(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    insist(&format!("{name} is deleted"), async || match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop).map_err(Into::into),
    })
    .await
}

//! One history: a fleet, the hub around it, and what was judged.

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use statusbridge_contract::Metric;
use statusbridge_core::decide::closing::{self, Unwatched};
use statusbridge_core::decide::{Evidence, Moment};
use statusbridge_core::fleet::{self, FEED_LABEL, Fleet, FleetSettings, Heard};
use statusbridge_core::reconcile::feeds::{self, Feeds, Planned, Polled};
use statusbridge_core::reconcile::judge::*;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::profiles::News;
use statusbridge_core::reconcile::references::{self, Failure, Place};
use statusbridge_core::reconcile::store::{
    Event as Watched, GateObject, Key, Kind, Object, PackageObject, Store,
};
use statusbridge_core::reconcile::tenancy::Tenancy;
use statusbridge_core::testing::{
    Exposition, Surroundings, digests, evaluate_all, failed, healthy, kept, package,
};
use statusbridge_core::time::{Now, Seconds};

use super::steps::{Change, Landing, Read, Step};

/// Threads that judge: as many as the controller has at most, however many processors there are.
static JUDGES: LazyLock<ThreadPool> =
    LazyLock::new(|| ThreadPoolBuilder::new().num_threads(4).build().unwrap());

const START: Seconds = 1_800_000_000.0;
pub(super) const CLUSTERS: [&str; 3] = ["a", "b", "c"];
pub(super) const FEEDS: [&str; 2] = ["x", "y"];
/// By which feed each of the two exporters of each cluster is heard.
const HEARD_BY: [[usize; 2]; CLUSTERS.len()] = [[0, 1], [0, 0], [1, 1]];
pub(super) const NAMESPACES: [&str; 2] = ["fleet", "team"];
/// The packages that clusters report.
const REPORTED: [&str; 2] = ["p", "q"];
pub(super) const PACKAGES: [(&str, &str); 3] = [("fleet", "p"), ("fleet", "q"), ("team", "p")];
pub(super) const GATES: [(&str, &str); 6] =
    [("fleet", "g0"), ("fleet", "g1"), ("fleet", "g2"), ("fleet", "g3"), ("team", "g0"), ("team", "g1")];
/// The objects of each namespace that hold revisions.
pub(super) const REFERENCES: [&str; 2] = ["stable", "next"];

/// One workload cluster.
struct Cluster {
    exposition: Exposition,
    behind: Seconds,
    scraped: [bool; 2],
    restarts: u64,
}

/// All of it.
pub(super) struct History {
    fleet: Fleet,
    clusters: Vec<Cluster>,
    pub(super) around: Surroundings,
    feeds: Feeds,
    /// Why each feed fails, if it does.
    failing: [Option<&'static str>; FEEDS.len()],
    epoch: i64,
    /// What was sent and has not landed, and over which version of the object.
    sent: Vec<Sent>,
    /// By how much our own clock is ahead of what is looked at.
    ahead: Seconds,
    t: Seconds,
    versions: u64,
    generations: i64,
}

/// A status on its way to the hub.
enum Sent {
    Gate(GateObject),
    Package(PackageObject),
}

fn key((namespace, name): (&str, &str)) -> Key {
    Key { namespace: namespace.into(), name: name.into() }
}

/// Both feeds, of which nothing was heard yet.
fn feeds() -> Feeds {
    let mut feeds = Feeds::default();
    feeds.plan(FEEDS.map(|name| Planned { name: name.into(), settle: 5.0, asked: false }).into());
    feeds
}

fn settings() -> FleetSettings {
    FleetSettings { forget_after: 400.0, ..FleetSettings::default() }
}

fn set<S: DeserializeOwned, T: DeserializeOwned + Evidence>(store: &mut Store<S, T>, object: Value) {
    let object: LazyObject = serde_json::from_value(object).unwrap();
    store.apply(Watched::Apply(object));
}

impl History {
    pub(super) fn new() -> Self {
        let exposition = |uid| {
            let all = Exposition::new(uid);
            REPORTED.iter().fold(all, |all, name| all.with(name, healthy("r1", START as u64 - 300)))
        };
        let cluster =
            |uid| Cluster { exposition: exposition(uid), behind: 0.0, scraped: [true, false], restarts: 0 };
        let mut history = Self {
            fleet: Fleet::new(settings()),
            clusters: vec![cluster(1), cluster(2), cluster(3)],
            around: Surroundings::default(),
            feeds: feeds(),
            failing: [None; FEEDS.len()],
            epoch: 1,
            sent: Vec::new(),
            ahead: 5.0,
            t: START,
            versions: 0,
            generations: 0,
        };
        let all = json!({"reporting": {"minClusters": 1}});
        for at in 0..PACKAGES.len() {
            history.make_package(at, json!({"clusters": all, "staleAfter": "2m"}));
        }
        for (at, (namespace, _)) in GATES.iter().enumerate() {
            let clusters = if at == 0 { json!({"names": ["a", "b", "c"]}) } else { all.clone() };
            let of = if *namespace == "fleet" { REPORTED[at % 2] } else { "p" };
            history.make_gate(
                at,
                json!({"fleetPackageRef": {"name": of}, "revision": "r1", "clusters": clusters}),
            );
        }
        (0..FEEDS.len()).for_each(|feed| history.poll_ends(feed));
        history
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    fn metadata(&mut self, key: &Key, uid: Option<String>) -> Value {
        self.generations += 1;
        let uid = uid.unwrap_or_else(|| self.generations.to_string());
        json!({"namespace": key.namespace, "name": key.name, "uid": uid, "resourceVersion": self.version(),
            "generation": self.generations})
    }

    fn make_gate(&mut self, at: usize, spec: Value) {
        let key = key(GATES[at]);
        let before = self.around.gates.get(&key);
        let status = before.and_then(|gate| gate.status.as_ref()).map(|it| json!(it));
        let uid = before.map(|it| it.uid.clone());
        let metadata = self.metadata(&key, uid);
        set(
            &mut self.around.gates,
            json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": metadata, "spec": spec, "status": status}),
        );
        self.around.graph.update(&self.around.gates, &[key].into());
    }

    fn make_package(&mut self, at: usize, mut spec: Value) {
        let (key, id) = (key(PACKAGES[at]), package(PACKAGES[at].1));
        spec["package"] = json!({"source": id.source, "namespace": id.namespace, "name": id.name});
        let before = self.around.packages.get(&key);
        let status = before.and_then(|it| it.status.as_ref()).map(|it| json!(it));
        let uid = before.map(|it| it.uid.clone());
        let metadata = self.metadata(&key, uid);
        set(
            &mut self.around.packages,
            json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": metadata, "spec": spec, "status": status}),
        );
        self.refer(&key);
    }

    /// Has the ledger know what a FleetPackage refers to.
    fn refer(&mut self, key: &Key) {
        let spec = self.around.packages.get(key).and_then(|package| package.spec.as_ref().ok());
        let from = spec.filter(|spec| spec.managed_by.is_none()).and_then(|spec| spec.revision_from.as_ref());
        self.around.references.ask(key, from, Duration::ZERO);
        evaluate_all(&mut self.around.references);
    }

    /// A feed is polled, and if it answers it tells of every exporter that is scraped.
    fn polled(&mut self, feed: usize) {
        for (cluster, instance) in (0..CLUSTERS.len()).flat_map(|it| [(it, 0), (it, 1)]) {
            let heard = self.failing[feed].is_none() && HEARD_BY[cluster][instance] == feed;
            if heard && self.clusters[cluster].scraped[instance] {
                let late = (3 * cluster + 5 * instance) as Seconds;
                self.hear(cluster, instance, late, false);
            }
        }
        self.answers(feed);
        self.poll_ends(feed);
    }

    /// The poll of a feed has come to its end.
    fn poll_ends(&mut self, feed: usize) {
        let failure = |error: &str| feeds::Failure { error: error.to_owned(), clock_lags: None };
        let outcome = self.failing[feed].map_or(Ok((0, 0)), |error| Err(failure(error)));
        let now = Now { wall: self.t + self.ahead, passed: Duration::ZERO };
        self.feeds.polled(feed, Polled { t: self.t, settle: 5.0, outcome }, now);
    }

    /// The fleet hears whether a feed answers.
    fn answers(&mut self, feed: usize) {
        match self.failing[feed] {
            None => self.fleet.answered(FEEDS[feed], self.t),
            Some(why) => self.fleet.unanswered(FEEDS[feed], why.into()),
        }
    }

    fn hear(&mut self, cluster: usize, instance: usize, late: Seconds, torn: bool) {
        let Cluster { exposition, behind, restarts, .. } = &self.clusters[cluster];
        let at = self.t - late;
        let feed = FEEDS[HEARD_BY[cluster][instance]];
        // Every other one goes on under the same labels.
        let instance = format!("{instance}-{}", restarts / 2);
        let labels = [("cluster", CLUSTERS[cluster]), ("instance", &instance), (FEED_LABEL, feed)];
        let rendered = (at - behind) as u64;
        let mut digests = digests(&labels, exposition, &[at]);
        let digest = exposition.digest(rendered) ^ u64::from(torn);
        digests.samples[0].exposition = fleet::Exposition { digest, rendered };
        if let Heard::Unread(samples) = self.fleet.hear(&digests, self.t) {
            let key = (digests.cluster.as_str(), &digests.stream);
            if torn {
                self.fleet.reject(key, "it is torn".into());
            } else {
                self.fleet.accept(key, &samples[0], exposition.content(), self.t);
            }
        }
    }

    fn values(&mut self, cluster: usize, at: usize, to: Change) {
        let since = self.t as u64;
        let packages = &mut self.clusters[cluster].exposition.packages;
        let values = match to {
            Change::Gone => return drop(packages.remove(&package(REPORTED[at]))),
            Change::Healthy(first) => healthy(if first { "r1" } else { "r2" }, since),
            Change::Failed => failed("r1", since),
            Change::Undated => healthy("r1", 0),
            Change::Counts => {
                let counts = [(Metric::PackageResources, 3), (Metric::PackageResourcesCurrent, 1)];
                [healthy("r1", START as u64 - 300), counts.to_vec()].concat()
            }
        };
        packages.insert(package(REPORTED[at]), values);
    }

    pub(super) fn happens(&mut self, step: Step) {
        match step {
            Step::Round(seconds) => {
                self.t += f64::from(seconds);
                (0..FEEDS.len()).for_each(|feed| self.polled(feed));
            }
            Step::Polled(feed) => self.polled(feed),
            Step::Wait(seconds) => self.t += f64::from(seconds),
            Step::Beat { cluster, instance, late } => self.hear(cluster, instance, late.into(), false),
            Step::Torn { cluster, instance } => self.hear(cluster, instance, 0.0, true),
            Step::Change { cluster, package, to } => self.values(cluster, package, to),
            Step::Down { cluster } => {
                let down = &mut self.clusters[cluster].exposition.down;
                if down.pop().is_none() {
                    down.push("flux".into());
                }
            }
            Step::Uid { cluster, uid } => self.clusters[cluster].exposition.uid = uid,
            Step::Scraped { cluster, instance } => self.clusters[cluster].scraped[instance] ^= true,
            Step::Restart { cluster } => {
                self.clusters[cluster].restarts += 1;
                self.clusters[cluster].exposition.process += 1;
            }
            Step::Clock { cluster, behind } => self.clusters[cluster].behind = behind.into(),
            Step::Feed { feed, answers, ended } => {
                let why = ["refused", "timed out"][(self.versions % 2) as usize];
                self.failing[feed] = (!answers).then_some(why);
                self.answers(feed);
                if ended {
                    self.poll_ends(feed);
                }
            }
            Step::Replanned => {
                self.configured();
                (self.feeds, self.fleet) = (feeds(), Fleet::new(settings()));
            }
            Step::Tenants(rules) => {
                self.configured();
                let read = |rules| serde_json::from_value(rules).unwrap();
                self.around.tenancy = if rules.is_null() { Tenancy::default() } else { read(rules) };
            }
            Step::Reference { namespace, news } => self.read(NAMESPACES[namespace], news),
            Step::Epoch => self.epoch += 1,
            Step::Gate(at, spec) => self.make_gate(at, spec),
            Step::Package(at, spec) => self.make_package(at, spec),
            Step::Profile { cluster, label, unhealthy } => {
                let status = if unhealthy { "False" } else { "True" };
                let profile = json!({
                    "metadata": {"namespace": "fleet", "name": CLUSTERS[cluster], "labels": {"in": label.to_string()}},
                    "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": status, "reason": "Why"}]},
                });
                let profile: kube::api::DynamicObject = serde_json::from_value(profile).unwrap();
                let mut news = vec![Watched::Apply(profile)];
                if self.versions.is_multiple_of(2) {
                    news.splice(0..0, [Watched::Init, Watched::InitDone]);
                }
                self.around.profiles.apply(news.into_iter().map(News::from), self.t);
            }
            Step::OwnClock(ahead) => self.ahead = ahead.into(),
            Step::Unscraped { cluster, why } => {
                let why = ["refused", "timed out"].get(usize::from(why)).map(|why| (*why).to_owned());
                self.fleet.unscraped(CLUSTERS[cluster], "http://exporter/", why);
            }
            Step::Unlisted => _ = self.around.profiles.apply([News::Broken("refused".into())], self.t),
            Step::Swept(at) => {
                let gate = self.around.gates.get(&key(GATES[at])).cloned();
                let now = self.t + self.ahead;
                let close = |gate: &GateObject| {
                    closing::unwatched(
                        Unwatched::Silent,
                        gate.spec.as_ref().map_err(String::as_str),
                        gate.status.as_ref()?,
                        now,
                    )
                };
                if let Some((gate, closed)) = gate.and_then(|gate| close(&gate).map(|closed| (gate, closed)))
                {
                    let resource_version = self.version();
                    self.around.gates.keep(Object { status: Some(closed), resource_version, ..gate });
                }
            }
            Step::Touched(at) => {
                if let Some(gate) = self.around.gates.get(&key(GATES[at])).cloned() {
                    let resource_version = self.version();
                    self.around.gates.keep(Object { resource_version, ..gate });
                }
            }
            Step::GateGone(at) => {
                let key = key(GATES[at]);
                self.around.gates.forget(&key);
                self.around.verdicts.forget(Kind::RolloutGate, &key);
                self.around.graph.update(&self.around.gates, &[key].into());
            }
            Step::PackageGone(at) => {
                let key = key(PACKAGES[at]);
                self.around.packages.forget(&key);
                self.around.verdicts.forget(Kind::FleetPackage, &key);
                self.refer(&key);
            }
            Step::Arrives => {
                for sent in std::mem::take(&mut self.sent) {
                    let resource_version = self.version();
                    match sent {
                        Sent::Gate(gate) => {
                            let known = self.around.gates.get(&gate.key);
                            if known.is_some_and(|it| it.resource_version == gate.resource_version) {
                                self.around.unconfirmed.remove(&(Kind::RolloutGate, gate.key.clone()));
                                self.around.gates.keep(Object { resource_version, ..gate });
                            }
                        }
                        Sent::Package(package) => {
                            let known = self.around.packages.get(&package.key);
                            if known.is_some_and(|it| it.resource_version == package.resource_version) {
                                self.around.unconfirmed.remove(&(Kind::FleetPackage, package.key.clone()));
                                self.around.packages.keep(Object { resource_version, ..package });
                            }
                        }
                    }
                }
            }
            Step::Unconfirmed(at) => {
                let key = (Kind::RolloutGate, key(GATES[at]));
                if !self.around.unconfirmed.remove(&key) {
                    self.around.unconfirmed.insert(key);
                }
            }
            Step::Closing(at) => {
                let key = key(GATES[at]);
                if !self.around.closing.remove(&key) {
                    self.around.closing.insert(key);
                }
            }
        }
        self.around.observations.clear();
    }

    /// The configuration is another: what the controller forgets then.
    fn configured(&mut self) {
        self.around.verdicts.clear();
        self.around.observations.clear();
    }

    /// Something is heard of the objects that hold revisions.
    fn read(&mut self, namespace: &str, news: Read) {
        let place = Place { namespace: namespace.into(), api_version: "v1".into(), kind: "ConfigMap".into() };
        let holds = |revision: Option<bool>| {
            kept(&match revision {
                Some(first) => json!({"data": {"revision": if first { "r1" } else { "r2" }}}),
                None => json!({"data": {}}),
            })
        };
        let name = |at: usize| REFERENCES[at].to_owned();
        let news = match news {
            Read::Listed(all) => references::News::Listed {
                asked: REFERENCES.map(str::to_owned).into(),
                objects: (0..)
                    .zip(all)
                    .filter(|(_, it)| it.is_some())
                    .map(|(at, it)| (name(at), holds(it)))
                    .collect(),
            },
            Read::Holds(at, revision) => references::News::Changed(name(at), Some(holds(revision))),
            Read::Deleted(at) => references::News::Changed(name(at), None),
            Read::Failed { forbidden: true } => {
                references::News::Failed(Failure::Forbidden { verb: "list", resource: "configmaps".into() })
            }
            Read::Failed { forbidden: false } => {
                references::News::Failed(Failure::NotAnswered("refused".into()))
            }
        };
        self.around.references.take(&place, news, Duration::ZERO);
        evaluate_all(&mut self.around.references);
    }

    /// Judges everything again, on several threads, and anew; and writes what is worth it.
    pub(super) fn judge(&mut self, landing: Landing) -> Result<(), TestCaseError> {
        let moment = Moment { t: self.t, now: self.t + self.ahead };
        let (epoch, unheard) = (self.epoch, self.feeds.unheard());
        let world = World { epoch, unheard, ..self.around.world(&self.fleet, self.feeds.backend(), moment) };
        // As the controller does, and what is about one package at the same time, too.
        let (of_gates, of_packages): (Vec<_>, Vec<_>) =
            (self.around.gates.iter().collect(), self.around.packages.iter().collect());
        let (again_gates, again_packages) = JUDGES.install(|| {
            rayon::join(
                || of_gates.par_iter().map(|gate| world.gate(gate)).collect::<Vec<_>>(),
                || of_packages.par_iter().map(|package| world.package(package)).collect::<Vec<_>>(),
            )
        });
        let (mut gates, mut packages) = (Vec::new(), Vec::new());
        for (gate, again) in of_gates.into_iter().zip(again_gates) {
            let (nothing, observations) = Default::default();
            let anew = World { verdicts: &nothing, observations: &observations, ..world }.gate(gate);
            prop_assert_eq!(&again, &anew, "{}", gate.key);
            // Twice the same.
            prop_assert_eq!(&again, &world.gate(gate), "{}", gate.key);
            gates.extend(again.map(|status| (gate.clone(), status)));
        }
        for (package, again) in of_packages.into_iter().zip(again_packages) {
            let (nothing, observations) = Default::default();
            let anew = World { verdicts: &nothing, observations: &observations, ..world }.package(package);
            prop_assert_eq!(&again, &anew, "{}", package.key);
            packages.extend(again.map(|status| (package.clone(), status)));
        }
        for (before, status) in gates {
            let landed = self.land(Kind::RolloutGate, before, status, landing, Sent::Gate);
            landed.into_iter().for_each(|gate| _ = self.around.gates.keep(gate));
        }
        for (before, status) in packages {
            let landed = self.land(Kind::FleetPackage, before, status, landing, Sent::Package);
            landed.into_iter().for_each(|package| _ = self.around.packages.keep(package));
        }
        Ok(())
    }

    /// The object as a write makes it, if that arrives.
    fn land<S: DeserializeOwned + Clone + PartialEq, T: DeserializeOwned + Evidence>(
        &mut self,
        kind: Kind,
        before: Object<S, T>,
        status: T,
        landing: Landing,
        sent: fn(Object<S, T>) -> Sent,
    ) -> Option<Object<S, T>> {
        let mut after = Object { status: Some(status.clone()), ..before.clone() };
        if landing == Landing::None {
            self.sent.push(sent(after));
            return None;
        }
        after.resource_version = self.version();
        if let Some(status) = after.status.as_mut().filter(|_| landing == Landing::Pruned) {
            *status.epoch() = None;
        }
        let number = self.around.verdicts.number(kind, &before.key);
        self.around.verdicts.landed(kind, number, &before, &status, &after);
        Some(after)
    }
}

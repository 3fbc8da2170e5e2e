//! Judging again comes to the same as judging anew, whatever happens in between.

use kube::api::DynamicObject;
use kube::runtime::watcher::Event as Watched;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::fleet::{Beat, FleetSettings, Heard, Turns};
use crate::profiles::News;
use crate::testing::{Exposition, Surroundings, Values, failed, gather, healthy, package, stream};
use crate::verify::verify;

const START: Seconds = 1_800_000_000.0;
const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const PACKAGES: [&str; 2] = ["p", "q"];

/// What happens between two looks.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes, and every exporter that is scraped is heard.
    Round(u16),
    /// Time passes in silence.
    Wait(u16),
    /// An exporter is heard, so many seconds late.
    Beat { cluster: usize, instance: usize, late: u16 },
    /// What it says does not add up.
    Torn { cluster: usize, instance: usize },
    /// A package is other from now on.
    Change { cluster: usize, package: usize, to: Change },
    /// A source is cut off, or is no longer.
    Down { cluster: usize },
    /// Another cluster has the name.
    Uid { cluster: usize, uid: u64 },
    /// Two clusters take turns.
    TakesTurns { cluster: usize, instance: usize },
    /// An exporter is scraped, or is no longer.
    Scraped { cluster: usize, instance: usize },
    /// An exporter counts from zero.
    Restart { cluster: usize },
    /// Clocks of a cluster are so much behind.
    Clock { cluster: usize, behind: i16 },
    /// The feed answers or fails from now on.
    Feed(bool),
    /// The past of a package is looked up.
    LookedUp { cluster: usize, package: usize, ago: u16 },
    /// A gate has another spec.
    Gate(usize, Value),
    /// A FleetPackage has another spec.
    Package(usize, Value),
    /// There are other ClusterProfiles.
    Profile { cluster: usize, label: bool, unhealthy: bool },
    /// ClusterProfiles cannot be read.
    Unlisted,
    /// It is not known whether a write has arrived.
    Doubtful(usize),
    /// A gate is about to be closed.
    Closing(usize),
    /// Our own clock is set.
    OwnClock(i16),
    /// An exporter cannot be scraped from here, for one reason or another, or it can.
    Unscraped { cluster: usize, why: u8 },
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Healthy(bool),
    Failed,
    Counts,
    Gone,
    Undated,
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let cluster = || 0..CLUSTERS.len();
    let instance = || 0..2_usize;
    let change = prop_oneof![
        4 => any::<bool>().prop_map(Change::Healthy),
        2 => Just(Change::Failed),
        1 => Just(Change::Counts),
        1 => Just(Change::Gone),
        1 => Just(Change::Undated),
    ];
    let clusters = prop_oneof![
        Just(json!({"names": ["a", "b"]})),
        Just(json!({"names": ["b", "z"]})),
        Just(json!({"reporting": {"minClusters": 1}})),
        Just(json!({"selector": {"matchLabels": {"in": "true"}}})),
    ];
    let gate = (clusters.clone(), any::<bool>(), 0..9_u8, 0..PACKAGES.len()).prop_map(|(clusters, first, more, package)| {
        let revision = if first { "r1" } else { "r2" };
        let mut spec = json!({"fleetPackageRef": {"name": PACKAGES[package]}, "revision": revision, "clusters": clusters});
        let more = match more {
            0 | 6 => json!({"minSuccessTime": "90s"}),
            7 => json!({"minSuccessTime": "5m"}),
            1 => json!({"progressDeadline": "2m", "maxFailures": 1}),
            2 => json!({"override": {"state": "Open", "reason": "trust me", "until": "2027-01-15T08:05:00Z"}}),
            3 => json!({"dependsOn": [{"name": "g0"}]}),
            4 => json!({"minHealthy": 1, "maxFailures": 2}),
            8 => json!({"requireStage": "first"}),
            _ => json!({}),
        };
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    });
    let package = (clusters, 0..5_u8).prop_map(|(clusters, more)| {
        let mut spec = json!({"clusters": clusters, "staleAfter": "2m"});
        match more {
            0 => spec["revision"] = json!("r1"),
            1 => spec["staleAfter"] = json!("50s"),
            2 => spec["managedBy"] = json!("example.com/somebody"),
            3 => {
                let id = crate::testing::package(PACKAGES[0]);
                spec["revision"] = json!("r2");
                spec["trace"] = json!([{"stage": "first", "cluster": "a", "source": id.source, "namespace": id.namespace, "name": id.name}]);
            }
            _ => {}
        }
        spec
    });
    let step = prop_oneof![
        30 => prop_oneof![4 => Just(15), 2 => 1..90_u16, 1 => 100..200_u16].prop_map(Step::Round),
        4 => (1..200_u16).prop_map(Step::Wait),
        6 => (cluster(), instance(), 0..30_u16).prop_map(|(cluster, instance, late)| Step::Beat { cluster, instance, late }),
        3 => (cluster(), instance()).prop_map(|(cluster, instance)| Step::Torn { cluster, instance }),
        10 => (cluster(), 0..PACKAGES.len(), change).prop_map(|(cluster, package, to)| Step::Change { cluster, package, to }),
        2 => cluster().prop_map(|cluster| Step::Down { cluster }),
        1 => (cluster(), 1..3_u64).prop_map(|(cluster, uid)| Step::Uid { cluster, uid }),
        1 => (cluster(), instance()).prop_map(|(cluster, instance)| Step::TakesTurns { cluster, instance }),
        4 => (cluster(), instance()).prop_map(|(cluster, instance)| Step::Scraped { cluster, instance }),
        2 => cluster().prop_map(|cluster| Step::Restart { cluster }),
        2 => (cluster(), prop_oneof![Just(0), -90..90_i16]).prop_map(|(cluster, behind)| Step::Clock { cluster, behind }),
        2 => any::<bool>().prop_map(Step::Feed),
        2 => (cluster(), 0..PACKAGES.len(), 0..400_u16)
            .prop_map(|(cluster, package, ago)| Step::LookedUp { cluster, package, ago }),
        4 => (0..GATES, gate).prop_map(|(at, spec)| Step::Gate(at, spec)),
        3 => (0..PACKAGES.len(), package).prop_map(|(at, spec)| Step::Package(at, spec)),
        2 => (cluster(), any::<bool>(), any::<bool>())
            .prop_map(|(cluster, label, unhealthy)| Step::Profile { cluster, label, unhealthy }),
        1 => Just(Step::Unlisted),
        1 => (0..GATES).prop_map(Step::Doubtful),
        1 => (0..GATES).prop_map(Step::Closing),
        1 => (-100..100_i16).prop_map(Step::OwnClock),
        2 => (cluster(), 0..3_u8).prop_map(|(cluster, why)| Step::Unscraped { cluster, why }),
    ];
    prop::collection::vec((step, prop::bool::weighted(0.8)), 1..60)
}

const GATES: usize = 4;

struct Cluster {
    exposition: Exposition,
    behind: Seconds,
    scraped: [bool; 2],
    restarts: u64,
}

struct History {
    fleet: Fleet,
    clusters: Vec<Cluster>,
    around: Surroundings,
    failing: bool,
    /// By how much our own clock is ahead of what is looked at.
    ahead: Seconds,
    t: Seconds,
    versions: u64,
    generations: i64,
}

fn set<S: DeserializeOwned, T: DeserializeOwned>(store: &mut Store<S, T>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    store.apply(Watched::Apply(object));
}

impl History {
    fn new() -> Self {
        let exposition = |uid| {
            let all = Exposition::new(uid);
            PACKAGES.iter().fold(all, |all, name| all.with(name, healthy("r1", START as u64 - 300, 1)))
        };
        let cluster =
            |uid| Cluster { exposition: exposition(uid), behind: 0.0, scraped: [true, false], restarts: 0 };
        let mut history = Self {
            fleet: Fleet::new(FleetSettings { forget_after: 400.0, ..FleetSettings::default() }),
            clusters: vec![cluster(1), cluster(2), cluster(3)],
            around: Surroundings::default(),
            failing: false,
            ahead: 5.0,
            t: START,
            versions: 0,
            generations: 0,
        };
        let all = json!({"reporting": {"minClusters": 1}});
        for at in 0..PACKAGES.len() {
            history.make_package(at, json!({"clusters": all, "staleAfter": "2m"}));
        }
        for at in 0..GATES {
            let clusters = if at == 0 { json!({"names": ["a", "b", "c"]}) } else { all.clone() };
            history.make_gate(
                at,
                json!({"fleetPackageRef": {"name": PACKAGES[at % 2]}, "revision": "r1", "clusters": clusters}),
            );
        }
        history
    }

    fn metadata(&mut self, name: &str) -> Value {
        self.versions += 1;
        self.generations += 1;
        json!({"namespace": "fleet", "name": name, "uid": name, "resourceVersion": self.versions.to_string(),
            "generation": self.generations})
    }

    fn make_gate(&mut self, at: usize, spec: Value) {
        let name = format!("g{at}");
        let metadata = self.metadata(&name);
        let key = Key { namespace: "fleet".into(), name };
        let status = self.around.gates.get(&key).and_then(|gate| gate.status.as_ref()).map(|it| json!(it));
        set(
            &mut self.around.gates,
            json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
            "metadata": metadata, "spec": spec, "status": status}),
        );
        self.around.graph.update(&self.around.gates, &[key].into());
    }

    fn make_package(&mut self, at: usize, mut spec: Value) {
        let metadata = self.metadata(PACKAGES[at]);
        let id = package(PACKAGES[at]);
        let key = Key { namespace: "fleet".into(), name: PACKAGES[at].into() };
        spec["package"] = json!({"source": id.source, "namespace": id.namespace, "name": id.name});
        let status = self.around.packages.get(&key).and_then(|it| it.status.as_ref()).map(|it| json!(it));
        set(
            &mut self.around.packages,
            json!({"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
            "metadata": metadata, "spec": spec, "status": status}),
        );
    }

    fn hear(&mut self, cluster: usize, instance: usize, late: Seconds, torn: bool, takes_turns: bool) {
        let Cluster { exposition, behind, restarts, .. } = &self.clusters[cluster];
        let at = self.t - late;
        let digest = exposition.digest();
        let instance = format!("{instance}-{restarts}");
        let beat = Beat {
            cluster: CLUSTERS[cluster].into(),
            stream: stream(&[("cluster", CLUSTERS[cluster]), ("instance", &instance)]),
            contract: "1".into(),
            digest: Some(if torn { digest ^ 1 } else { digest }),
            at,
            rendered: Some((at - behind, at)),
            // The backend may know of the stream as a whole until a little earlier only.
            turns: match takes_turns {
                true => Turns::Taken { until: at },
                false => Turns::None { until: at - late.rem_euclid(3.0) },
            },
            ..Beat::default()
        };
        if self.fleet.hear(&beat, self.t) == Heard::Unread {
            match torn {
                true => self.fleet.reject(&beat, "it is torn".into(), None),
                false => {
                    let content = verify(gather(&exposition.lines()), digest).unwrap();
                    self.fleet.accept(&beat, content, self.t);
                }
            }
        }
    }

    fn values(&mut self, cluster: usize, at: usize, to: Change) {
        let since = self.t as u64;
        let packages = &mut self.clusters[cluster].exposition.packages;
        let moves = packages.get(&package(PACKAGES[at])).map_or(0, |values: &Values| values[6]) + 1;
        let mut values = match to {
            Change::Gone => return drop(packages.remove(&package(PACKAGES[at]))),
            Change::Healthy(first) => healthy(if first { "r1" } else { "r2" }, since, moves),
            Change::Failed => failed("r1", since, moves),
            Change::Undated => healthy("r1", 0, moves),
            Change::Counts => healthy("r1", START as u64 - 300, moves - 1),
        };
        if matches!(to, Change::Counts) {
            values.extend([moves, 0, 0]);
        }
        packages.insert(package(PACKAGES[at]), values);
    }

    fn happens(&mut self, step: Step) {
        match step {
            Step::Round(seconds) => {
                self.t += f64::from(seconds);
                for cluster in 0..CLUSTERS.len() {
                    for instance in 0..2 {
                        if self.clusters[cluster].scraped[instance] {
                            let late = (3 * cluster + 5 * instance) as Seconds;
                            self.hear(cluster, instance, late, false, false);
                        }
                    }
                }
                if !self.failing {
                    self.fleet.answered("", self.t);
                }
            }
            Step::Wait(seconds) => self.t += f64::from(seconds),
            Step::Beat { cluster, instance, late } => self.hear(cluster, instance, late.into(), false, false),
            Step::Torn { cluster, instance } => self.hear(cluster, instance, 0.0, true, false),
            Step::TakesTurns { cluster, instance } => self.hear(cluster, instance, 0.0, false, true),
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
                for values in self.clusters[cluster].exposition.packages.values_mut() {
                    values[6] = 0;
                }
            }
            Step::Clock { cluster, behind } => self.clusters[cluster].behind = behind.into(),
            Step::Feed(answers) => {
                self.failing = !answers;
                match answers {
                    true => self.fleet.answered("", self.t),
                    false => self.fleet.unanswered("", "refused".into()),
                }
            }
            Step::LookedUp { cluster, package: at, ago } => {
                let (id, cluster) = (package(PACKAGES[at]), CLUSTERS[cluster]);
                let mut past = crate::fleet::past::Past::default();
                let from = self.t - f64::from(ago);
                for (metric, value) in
                    crate::fleet::past::OF_THE_PAST.iter().zip([0, 0, 5, START as u64 - 300, 1])
                {
                    let sample = crate::feed::Sample { at: from, value: value as f64 };
                    past.add(&stream(&[]), *metric, &[sample]);
                }
                self.fleet.recall(cluster, &id, from, &past);
            }
            Step::Gate(at, spec) => self.make_gate(at, spec),
            Step::Package(at, spec) => self.make_package(at, spec),
            Step::Profile { cluster, label, unhealthy } => {
                let status = if unhealthy { "False" } else { "True" };
                let profile = json!({
                    "metadata": {"namespace": "fleet", "name": CLUSTERS[cluster], "labels": {"in": label.to_string()}},
                    "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": status, "reason": "Why"}]},
                });
                let profile: DynamicObject = serde_json::from_value(profile).unwrap();
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
            Step::Doubtful(at) => {
                let key = (Kind::RolloutGate, Key { namespace: "fleet".into(), name: format!("g{at}") });
                if !self.around.doubtful.remove(&key) {
                    self.around.doubtful.insert(key);
                }
            }
            Step::Closing(at) => {
                let key = Key { namespace: "fleet".into(), name: format!("g{at}") };
                if !self.around.closing.remove(&key) {
                    self.around.closing.insert(key);
                }
            }
        }
        self.around.surveys.clear();
    }

    fn world(&self) -> World<'_> {
        let backend = if self.failing { Backend::Fails("refused") } else { Backend::Answers };
        self.around.world(&self.fleet, backend, Moment { t: self.t, now: self.t + self.ahead })
    }

    /// Judges everything again and anew, and writes what is worth it.
    fn judge(&mut self, lands: bool) -> Result<(), TestCaseError> {
        let (world, nothing) = (self.world(), Verdicts::default());
        let anew = World { verdicts: &nothing, ..world };
        let (mut gates, mut packages) = (Vec::new(), Vec::new());
        for gate in self.around.gates.iter() {
            let (again, anew) = (world.gate(gate), anew.gate(gate));
            prop_assert_eq!(&again, &anew, "{}", gate.key);
            // Twice the same.
            prop_assert_eq!(&again, &world.gate(gate), "{}", gate.key);
            gates.extend(again.map(|status| (gate.clone(), status)));
        }
        for package in self.around.packages.iter() {
            let (again, anew) = (world.package(package), anew.package(package));
            prop_assert_eq!(&again, &anew, "{}", package.key);
            packages.extend(again.map(|status| (package.clone(), status)));
        }
        if lands {
            for (before, status) in gates {
                self.versions += 1;
                let version = self.versions.to_string();
                let after =
                    Object { status: Some(status.clone()), resource_version: version, ..before.clone() };
                self.around.verdicts.landed(Kind::RolloutGate, &before, &status, &after);
                self.around.gates.put(after);
            }
            for (before, status) in packages {
                self.versions += 1;
                let version = self.versions.to_string();
                let after =
                    Object { status: Some(status.clone()), resource_version: version, ..before.clone() };
                self.around.verdicts.landed(Kind::FleetPackage, &before, &status, &after);
                self.around.packages.put(after);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_again_comes_to_the_same_as_judging_anew(steps in steps()) {
        let mut history = History::new();
        for (step, lands) in steps {
            history.happens(step);
            history.judge(lands)?;
        }
    }
}

#[test]
fn a_trace_that_a_spec_no_longer_has_is_told_no_longer() {
    let mut history = History::new();
    let id = crate::testing::package(PACKAGES[1]);
    let stage = json!({"stage": "first", "cluster": "a", "source": id.source, "namespace": id.namespace, "name": id.name});
    let plain = json!({"clusters": {"names": ["a", "b"]}, "staleAfter": "2m"});
    let mut traced = plain.clone();
    (traced["revision"], traced["trace"]) = (json!("r1"), json!([stage]));
    for (spec, stages) in [(traced, 1), (plain, 0)] {
        history.happens(Step::Package(0, spec));
        history.happens(Step::Round(15));
        history.judge(true).unwrap();
        let report = history.around.packages.iter().find(|it| it.key.name == PACKAGES[0]).unwrap();
        assert_eq!(report.status.as_ref().map(|status| status.trace.len()), Some(stages));
    }
}

/// How often verdicts stood, were refreshed, and had to be given anew in that time.
fn counts(history: &History) -> [u64; 3] {
    history.around.verdicts.counts.each_ref().map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn a_quiet_fleet_is_judged_once_and_then_only_refreshed() {
    let mut history = History::new();
    history.happens(Step::Round(15));
    history.judge(true).unwrap();
    let [.., anew] = counts(&history);
    for _ in 0..40 {
        history.happens(Step::Round(15));
        history.judge(true).unwrap();
    }
    let [stood, refreshed, after] = counts(&history);
    // Scrape intervals become known after some rounds.
    assert!(after - anew <= (GATES + PACKAGES.len()) as u64 * 3, "{after} of {anew}");
    assert!(refreshed >= 40 / 4 * 5 && stood > 2 * refreshed, "{stood} {refreshed}");

    // What changes in one package does not concern the other.
    history.happens(Step::Change { cluster: 1, package: 0, to: Change::Healthy(false) });
    let [.., before] = counts(&history);
    history.happens(Step::Round(15));
    history.judge(true).unwrap();
    let [.., after] = counts(&history);
    assert_eq!(after - before, 5, "a FleetPackage, and two gates twice each: then what was written stands");
}

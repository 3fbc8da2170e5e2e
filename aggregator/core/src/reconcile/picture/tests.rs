use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fleet::{Fleet, FleetSettings};
use crate::reconcile::profiles::News;
use crate::reconcile::state::State;
use crate::reconcile::store::Event;
use crate::testing::{self, Exposition, failed, feeds, healthy, tell};

const T: Seconds = 10_000.0;
const CLUSTERS: [&str; 4] = ["a", "b", "c", "d"];
const PACKAGES: [&str; 3] = ["p", "q", "r"];

fn object(
    kind: &str,
    namespace: &str,
    name: &str,
    version: u64,
    spec: &Value,
) -> crate::reconcile::lazy_object::LazyObject {
    serde_json::from_value(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "uid": "u", "resourceVersion": version.to_string(), "generation": 1},
        "spec": spec,
    }))
    .unwrap()
}

fn key(name: &str) -> Key {
    Key { namespace: "tenant".into(), name: name.into() }
}

fn package(name: &str, clusters: &Value) -> Value {
    json!({"package": {"source": "flux", "namespace": "ns", "name": name}, "staleAfter": "3m", "clusters": clusters})
}

/// What happens to the fleet or the hub between two looks.
#[derive(Debug, Clone)]
enum Step {
    Says {
        cluster: usize,
        package: usize,
        revision: &'static str,
        well: bool,
    },
    Passes(Seconds),
    Package {
        name: usize,
        clusters: BTreeSet<usize>,
    },
    Wants {
        name: usize,
        revision: &'static str,
    },
    /// A status was written, and nothing else.
    Judged(usize),
    Gone(usize),
    Gate {
        name: usize,
        revision: &'static str,
    },
    GateGone(usize),
    Rollout {
        name: usize,
        paused: bool,
    },
    RolloutGone(usize),
    Labels {
        cluster: usize,
        region: &'static str,
    },
    Fails,
    Answers,
}

fn step() -> impl Strategy<Value = Step> {
    let revision = || prop::sample::select(vec!["r1", "r2", "r3"]);
    prop_oneof![
        6 => (0..4usize, 0..3usize, revision(), any::<bool>())
            .prop_map(|(cluster, package, revision, well)| Step::Says { cluster, package, revision, well }),
        // In less than that time alone changes nothing that is shown.
        2 => (IDLE..200.0).prop_map(Step::Passes),
        2 => (0..3usize, prop::collection::btree_set(0..4usize, 1..4))
            .prop_map(|(name, clusters)| Step::Package { name, clusters }),
        2 => (0..3usize, revision()).prop_map(|(name, revision)| Step::Wants { name, revision }),
        2 => (0..3usize).prop_map(Step::Judged),
        1 => (0..3usize).prop_map(Step::Gone),
        2 => (0..3usize, revision()).prop_map(|(name, revision)| Step::Gate { name, revision }),
        1 => (0..3usize).prop_map(Step::GateGone),
        2 => (0..3usize, any::<bool>()).prop_map(|(name, paused)| Step::Rollout { name, paused }),
        1 => (0..3usize).prop_map(Step::RolloutGone),
        1 => (0..4usize, prop::sample::select(vec!["eu", "us"])).prop_map(|(cluster, region)| Step::Labels { cluster, region }),
        1 => Just(Step::Fails),
        1 => Just(Step::Answers),
    ]
}

struct Hub {
    state: State,
    now: Seconds,
    version: u64,
    said: [Exposition; 4],
    profiles: BTreeMap<usize, &'static str>,
}

impl Hub {
    fn new() -> Self {
        let said = [1, 2, 3, 4].map(Exposition::new);
        let state = testing::state(Fleet::new(FleetSettings::default()));
        Self { state, now: T, version: 1, said, profiles: BTreeMap::new() }
    }

    fn world(&self) -> World<'_> {
        World::new(&self.state, Moment { t: self.now, now: self.now + 5.0 })
    }

    fn take(&mut self, step: &Step) {
        self.version += 1;
        self.state.observations.clear();
        match step {
            Step::Says { cluster, package, revision, well } => {
                self.now += 31.0;
                let values = if *well { healthy(revision, 100) } else { failed(revision, 100) };
                let said = std::mem::take(&mut self.said[*cluster]).with(PACKAGES[*package], values);
                tell(&mut self.state.fleet, &[("cluster", CLUSTERS[*cluster])], &said, self.now);
                self.said[*cluster] = said;
            }
            Step::Passes(seconds) => self.now += seconds,
            Step::Package { name, clusters } => {
                let names: Vec<&str> = clusters.iter().map(|it| CLUSTERS[*it]).collect();
                let spec = package(PACKAGES[*name], &json!({"names": names}));
                self.state.packages.insert(object(
                    "FleetPackage",
                    "tenant",
                    PACKAGES[*name],
                    self.version,
                    &spec,
                ));
            }
            Step::Wants { name, revision } => {
                let mut spec = package(PACKAGES[*name], &json!({"reporting": {"minClusters": 1}}));
                spec["revision"] = json!(revision);
                self.state.packages.insert(object(
                    "FleetPackage",
                    "tenant",
                    PACKAGES[*name],
                    self.version,
                    &spec,
                ));
            }
            Step::Judged(name) => {
                let known = self.state.packages.get(&key(PACKAGES[*name]));
                if let Some(Ok(spec)) = known.map(|it| it.spec.as_deref()) {
                    let object = json!({
                        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
                        "metadata": {
                            "namespace": "tenant", "name": PACKAGES[*name], "uid": "u", "generation": 1,
                            "resourceVersion": self.version.to_string(),
                        },
                        "spec": spec, "status": {"observedGeneration": self.version},
                    });
                    self.state.packages.insert(serde_json::from_value(object).unwrap());
                }
            }
            Step::Gone(name) => {
                let key = key(PACKAGES[*name]);
                self.state.packages.forget(&key);
            }
            Step::Gate { name, revision } => {
                let spec = json!({
                    "fleetPackageRef": {"name": PACKAGES[*name]}, "revision": revision, "clusters": {"names": ["a"]},
                });
                self.state.gates.insert(object(
                    "RolloutGate",
                    "tenant",
                    PACKAGES[*name],
                    self.version,
                    &spec,
                ));
            }
            Step::GateGone(name) => {
                let key = key(PACKAGES[*name]);
                self.state.gates.forget(&key);
            }
            Step::Rollout { name, paused } => {
                let wave = json!({"name": "all", "clusters": {"percentage": "100%"}});
                let spec =
                    json!({"fleetPackageRef": {"name": PACKAGES[*name]}, "paused": paused, "waves": [wave]});
                let made = object("FleetRollout", "tenant", PACKAGES[*name], self.version, &spec);
                self.state.rollouts.insert(made);
            }
            Step::RolloutGone(name) => {
                let key = key(PACKAGES[*name]);
                self.state.rollouts.forget(&key);
            }
            Step::Labels { cluster, region } => {
                self.profiles.insert(*cluster, region);
                let made = self.profiles.iter().map(|(cluster, region)| -> kube_core::DynamicObject {
                    let metadata = json!({"namespace": "fleet", "name": CLUSTERS[*cluster], "labels": {"region": region}});
                    serde_json::from_value(json!({"metadata": metadata})).unwrap()
                });
                let events =
                    [Event::Init].into_iter().chain(made.map(Event::InitApply)).chain([Event::InitDone]);
                self.state.profiles.apply(events.map(News::from), self.now);
            }
            Step::Fails => self.state.feeds = feeds(&[("", &[Err("refused")])]),
            Step::Answers => self.state.feeds = feeds(&[("", &[Ok(())])]),
        }
    }
}

/// What a viewer has made of what it was sent: names instead of numbers.
#[derive(Debug, Default, PartialEq)]
struct Viewer {
    cursor: String,
    clusters: Vec<(String, Value)>,
    packages: BTreeMap<String, (Value, Vec<[i64; 2]>)>,
    gates: BTreeMap<String, Value>,
    rollouts: BTreeMap<String, Value>,
}

fn name(object: &Value) -> String {
    format!(
        "{}/{}",
        object["metadata"]["namespace"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap()
    )
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Viewer {
    fn all(picture: &Picture) -> Self {
        let view = serde_json::to_value(picture.all(None)).unwrap();
        let mut viewer = Self::default();
        viewer.take(&view);
        viewer
    }

    fn take(&mut self, view: &Value) {
        self.cursor = view["cursor"].as_str().unwrap().to_owned();
        for (place, cluster) in list(&view["clusters"]).iter().enumerate() {
            let index = cluster["index"].as_u64().map_or(place, |index| index as usize);
            let entry = (cluster["name"].as_str().unwrap().to_owned(), cluster["labels"].clone());
            self.clusters.resize(self.clusters.len().max(index + 1), Default::default());
            self.clusters[index] = entry;
        }
        for package in list(&view["packages"]) {
            let mut head = package.clone();
            let head_fields = head.as_object_mut().unwrap();
            head_fields.remove("cells");
            head_fields.remove("changes");
            let kept = self.packages.entry(name(package)).or_default();
            kept.0 = head;
            if let Some(runs) = package["cells"].as_array() {
                let run = |run: &Value| {
                    let [count, state, revision] = [0, 1, 2].map(|at| run[at].as_i64().unwrap());
                    std::iter::repeat_n([state, revision], count as usize)
                };
                kept.1 = runs.iter().flat_map(run).collect();
            }
            for change in list(&package["changes"]) {
                let [index, state, revision] = [0, 1, 2].map(|at| change[at].as_i64().unwrap());
                kept.1.resize(kept.1.len().max(index as usize + 1), [-1, -1]);
                kept.1[index as usize] = [state, revision];
            }
        }
        for package in self.packages.values_mut() {
            package.1.resize(self.clusters.len(), [-1, -1]);
        }
        for gate in list(&view["gates"]) {
            let mut gate = gate.clone();
            gate["verdict"].as_object_mut().unwrap().remove("ageSeconds");
            self.gates.insert(name(&gate), gate);
        }
        for rollout in list(&view["rollouts"]) {
            self.rollouts.insert(name(rollout), rollout.clone());
        }
        for gone in list(&view["gone"]["packages"]) {
            self.packages.remove(gone.as_str().unwrap());
        }
        for gone in list(&view["gone"]["gates"]) {
            self.gates.remove(gone.as_str().unwrap());
        }
        for gone in list(&view["gone"]["rollouts"]) {
            self.rollouts.remove(gone.as_str().unwrap());
        }
    }

    /// Names of cluster, state and revision of every cell of a package.
    fn cells(&self, package: &str) -> BTreeSet<(String, &'static str, Option<String>)> {
        let Some((head, cells)) = self.packages.get(package) else { return BTreeSet::new() };
        let told = self.clusters.iter().zip(cells).filter(|(_, cell)| cell[0] >= 0);
        let cell = |((cluster, _), [state, revision]): (&(String, Value), &[i64; 2])| {
            let revision = usize::try_from(*revision).ok().map(|it| {
                // Words that were known once are still true.
                Fingerprint::of(head["revisions"][it].as_str().unwrap()).to_string()
            });
            (cluster.clone(), Reason::ALL[*state as usize].name(), revision)
        };
        told.map(cell).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_viewer_that_is_told_of_changes_sees_what_a_new_one_sees(
        steps in prop::collection::vec((step(), any::<bool>()), 1..40),
    ) {
        let (mut hub, mut picture) = (Hub::new(), Picture::new(None));
        picture.update(&hub.world());
        let mut viewer = Viewer::all(&picture);
        for (step, looks) in &steps {
            hub.take(step);
            picture.update(&hub.world());
            let fresh = {
                let mut fresh = Picture::new(None);
                fresh.update(&hub.world());
                fresh
            };
            if *looks {
                let view = serde_json::to_value(picture.since(&viewer.cursor, None).unwrap()).unwrap();
                viewer.take(&view);
                prop_assert_eq!(&viewer, &Viewer::all(&picture), "after {:?}", step);
            }
            // What was found out before is never shown in the place of what is so now.
            for object in hub.state.packages.iter() {
                let key = object.key.to_string();
                let backend_fails = hub.state.feeds.unheard().is_some();
                if !backend_fails {
                    prop_assert_eq!(Viewer::all(&picture).cells(&key), Viewer::all(&fresh).cells(&key), "{} after {:?}", key, step);
                }
                // And it is what the slices would say.
                let told = hub.world().each_cluster(object, rows::rows);
                if let Rows::Known(rows) = told {
                    let states: BTreeMap<_, _> = rows.iter().map(|it| (it.row.cluster_name.clone(), it.row.state.clone())).collect();
                    let viewed = Viewer::all(&picture);
                    let shown: BTreeMap<_, _> = viewed.cells(&key).into_iter().map(|(c, s, _)| (c, s.to_owned())).collect();
                    prop_assert_eq!(shown, states);
                } else {
                    let viewed = Viewer::all(&picture);
                    prop_assert!(viewed.cells(&key).iter().all(|(_, state, _)| *state == "BackendUnavailable"));
                }
            }
        }
    }
}

#[test]
fn nothing_is_looked_at_again_while_nothing_is_heard() {
    let (mut hub, mut picture) = (Hub::new(), Picture::new(None));
    hub.take(&Step::Wants { name: 0, revision: "r1" });
    hub.take(&Step::Says { cluster: 0, package: 0, revision: "r1", well: true });
    assert!(picture.update(&hub.world()));
    let cursor = picture.cursor();
    hub.now += 1.0;
    assert!(!picture.update(&hub.world()));
    assert_eq!(picture.cursor(), cursor);
    hub.now += 200.0;
    assert!(picture.update(&hub.world()), "time alone makes evidence old");
    let seen = Viewer::all(&picture);
    assert_eq!(seen.cells("tenant/p").into_iter().map(|it| it.1).collect::<Vec<_>>(), ["Stale"]);
}

#[test]
fn a_status_that_is_written_has_no_cluster_looked_at_again() {
    let (mut hub, mut picture) = (Hub::new(), Picture::new(None));
    hub.take(&Step::Wants { name: 0, revision: "r1" });
    hub.take(&Step::Says { cluster: 0, package: 0, revision: "r1", well: true });
    let judged_in_full = |picture: &Picture| picture.verdicts.number(Kind::FleetPackage, &key("p"));
    // The spec is written in the same words from now on.
    hub.take(&Step::Judged(0));
    picture.update(&hub.world());
    let first = judged_in_full(&picture);
    assert!(first.is_some());
    for _ in 0..3 {
        hub.take(&Step::Judged(0));
        assert!(picture.update(&hub.world()), "the status is shown");
        assert_eq!(judged_in_full(&picture), first);
    }
    hub.take(&Step::Wants { name: 0, revision: "r2" });
    picture.update(&hub.world());
    assert_ne!(judged_in_full(&picture), first, "the spec is another one");
}

#[test]
fn a_namespace_sees_its_own_objects_and_what_it_is_granted_of_clusters() {
    let mut hub = Hub::new();
    hub.take(&Step::Wants { name: 0, revision: "r1" });
    let spec = package("q", &json!({"reporting": {"minClusters": 1}}));
    hub.state.packages.insert(object("FleetPackage", "other", "q", 9, &spec));
    for cluster in 0..2 {
        hub.take(&Step::Says { cluster, package: 0, revision: "r1", well: true });
        hub.take(&Step::Says { cluster, package: 1, revision: "r1", well: true });
    }
    let mut picture = Picture::new(Some("tenant".to_owned()));
    picture.update(&hub.world());
    assert_eq!(
        picture.packages().filter_map(|it| it.spec).map(|it| &it.package.name).collect::<Vec<_>>(),
        ["p"]
    );
    assert_eq!(picture.packages_in("b"), [key("p")]);
    let before = picture.cursor();
    hub.state.rules.tenancy = serde_json::from_value(json!([
        {"namespaces": ["tenant"], "clusters": ["a"], "packageNamespaces": ["*"], "sources": ["*"]},
    ]))
    .unwrap();
    hub.state.observations.clear();
    picture.update(&hub.world());
    assert!(picture.since(&before, None).is_none(), "what was shown under other rules is no beginning");
    let text = serde_json::to_string(&picture.all(None)).unwrap();
    assert!(text.contains(r#""name":"a""#) && !text.contains(r#""name":"b""#), "{text}");
    assert!(picture.packages_in("b").is_empty());
}

#[test]
fn a_rollout_is_shown_as_the_hub_has_it_and_not_judged_before_its_spec_was() {
    let mut hub = Hub::new();
    hub.take(&Step::Rollout { name: 0, paused: true });
    let shown = |hub: &Hub| {
        let mut picture = Picture::new(Some("tenant".to_owned()));
        picture.update(&hub.world());
        serde_json::to_value(picture.rollouts().next().unwrap()).unwrap()
    };
    let verdict =
        |shown: &Value| ["ready", "stalled", "paused", "reason"].map(|field| shown[field].to_string());
    let unjudged = ["false", "false", "true", "\"Pending\""].map(str::to_owned);
    assert_eq!(verdict(&shown(&hub)), unjudged);
    for (generation, expected) in
        [(1, ["false", "true", "true", "\"WaveFailed\""].map(str::to_owned)), (0, unjudged)]
    {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "WaveFailed", "message": "wave all: 1 cluster failed",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = json!({"observedGeneration": generation, "revision": "r2",
            "conditions": [condition("Ready", "False"), condition("Stalled", "True")]});
        let rollout = hub.state.rollouts.get(&key("p")).unwrap().clone();
        let status = serde_json::from_value(status).ok();
        let resource_version = format!("9{generation}");
        hub.state.rollouts.keep(crate::reconcile::object::Object { status, resource_version, ..rollout });
        let shown = shown(&hub);
        assert_eq!(verdict(&shown), expected);
        assert_eq!((&shown["package"], &shown["status"]["revision"]), (&json!("p"), &json!("r2")));
    }
    let mut picture = Picture::new(Some("other".to_owned()));
    picture.update(&hub.world());
    assert_eq!(picture.rollouts().count(), 0);
}

#[test]
fn a_cursor_of_another_picture_is_none() {
    let picture = Picture::new(None);
    for cursor in
        [Picture::new(None).cursor(), String::new(), "-".into(), "1-x".into(), format!("{}-1", picture.id)]
    {
        assert!(picture.since(&cursor, None).is_none(), "{cursor}");
    }
    let view = serde_json::to_value(picture.since(&picture.cursor(), Some("why")).unwrap()).unwrap();
    assert_eq!(view["silent"], "why");
}

#[test]
fn revisions_of_long_ago_are_forgotten_and_nobody_takes_another_one_for_them() {
    const MANY: usize = 100;
    let (mut hub, mut picture) = (Hub::new(), Picture::new(None));
    let spec = package("p", &json!({"reporting": {"minClusters": 1}}));
    hub.state.packages.insert(object("FleetPackage", "tenant", "p", 1, &spec));
    picture.update(&hub.world());
    let mut viewer = Viewer::all(&picture);
    for number in 0..MANY {
        hub.now += 31.0;
        hub.state.observations.clear();
        let said = Exposition::new(1).with("p", healthy(&format!("revision-{number}"), 100));
        tell(&mut hub.state.fleet, &[("cluster", "a")], &said, hub.now);
        picture.update(&hub.world());
        viewer.take(&serde_json::to_value(picture.since(&viewer.cursor, None).unwrap()).unwrap());
        let now = Fingerprint::of(&format!("revision-{number}")).to_string();
        assert_eq!(viewer.cells("tenant/p"), [("a".to_owned(), "Healthy", Some(now))].into(), "{number}");
    }
    assert!(viewer.packages["tenant/p"].0["revisions"].as_array().unwrap().len() < MANY);
}

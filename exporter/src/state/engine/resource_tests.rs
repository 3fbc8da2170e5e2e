//! Packages whose objects the exporter looks at.

use proptest::prelude::*;
use serde_json::json;
use statusbridge_contract::{Fingerprint, Metric};

use super::{
    tests::{Fixture, compile},
    *,
};
use crate::watch::ReadRequest;

const SOURCE: &str = r"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: named
spec:
  kinds:
    - {group: test.dev, kind: Package, versions: [v1]}
  revisions:
    appliedExpression: object.?status.?revision
  apply:
    - whenExpression: object.?status.?revision.orValue('') == object.?spec.?revision.orValue('')
      state: Applied
    - state: Applying
  health:
    - state: Resources
      unwatched: {state: Unknown}
  resources:
    watch:
      enabled: true
      referencesExpression: object.?status.?things
      labelled:
        labelExpression: object.?status.?label
        kindsExpression: '[{''group'': ''test.dev'', ''kind'': ''Part''}]'
  samples:
    - object:
        apiVersion: test.dev/v1
        kind: Package
        metadata: {name: a, namespace: n}
        spec: {revision: r1}
        status: {revision: r1, things: [{group: test.dev, kind: Thing, name: t}], label: 'part-of=a'}
";

const NAMED: usize = 0;

fn package(name: &str, revision: &str, applied: &str, things: &[&str]) -> (PackageKey, Value) {
    let things: Vec<Value> = things
        .iter()
        .map(|thing| json!({"group": "test.dev", "kind": "Thing", "namespace": "n", "name": thing}))
        .collect();
    let object = json!({"metadata": {"name": name, "namespace": "n"},
        "spec": {"revision": revision}, "status": {"revision": applied, "things": things}});
    (PackageKey::new(Some("n"), name), object)
}

fn labelled(name: &str, revision: &str) -> (PackageKey, Value) {
    let (key, mut object) = package(name, revision, revision, &[]);
    object["status"]["label"] = json!(format!("part-of={name}"));
    (key, object)
}

/// A thing at a resource version: `ready` is the status of its condition.
fn thing(name: &str, version: u64, ready: &str) -> (PackageKey, Value) {
    let object = json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string(),
            "labels": {"part-of": "a"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Because"}]}});
    (PackageKey::new(Some("n"), name), object)
}

fn put((key, object): (PackageKey, Value)) -> Change {
    Change::Object(key, object)
}

impl Fixture {
    fn health(&self, name: &str) -> (u64, u64) {
        let value = |metric| self.value(metric, NAMED, name).unwrap_or(99);
        (value(Metric::PackageHealth), value(Metric::PackageHealthyRevision))
    }

    fn reason(&self, name: &str) -> String {
        self.engine.readers[NAMED].packages[&PackageKey::new(Some("n"), name)]
            .shown
            .verdict
            .reason
            .as_deref()
            .unwrap_or_default()
            .to_owned()
    }

    fn reads(&mut self) -> Vec<ReadRequest> {
        let read = |command| match command {
            Command::Read(request) => request,
            other => panic!("{other:?}"),
        };
        self.obey().into_iter().map(read).collect()
    }

    fn answer(&mut self, request: &ReadRequest, objects: Vec<(PackageKey, Value)>) {
        let change = Change::Read { reading: request.reading.clone(), objects, asked: request.asked };
        self.apply(request.kind, change);
    }

    /// Packages, and then the things that they consist of.
    fn started(packages: Vec<(PackageKey, Value)>, things: Vec<(PackageKey, Value)>) -> Self {
        let mut f = Self::of(SOURCE, Limits::default());
        f.list("Package", |f| packages.iter().for_each(|p| f.hear("Package", put(p.clone()))));
        assert!(f.reads().is_empty(), "the first list brings it all");
        if f.kinds.iter().any(|(_, of)| of.kind == "Thing") {
            f.list("Thing", |f| things.into_iter().for_each(|t| f.hear("Thing", put(t))));
        }
        f.confirm(&packages);
        f
    }

    /// Answers reads of packages with these.
    fn confirm(&mut self, packages: &[(PackageKey, Value)]) {
        let package = self.kind("Package");
        for request in self.reads() {
            assert_eq!(request.kind, package, "{request:?}");
            let wanted = |key: &PackageKey| request.reading == Reading::Object(key.clone());
            let found = packages.iter().filter(|(key, _)| wanted(key)).cloned().collect();
            self.answer(&request, found);
        }
    }
}

const CURRENT: u64 = 0;
const IN_PROGRESS: u64 = 1;
const NOT_FOUND: u64 = 3;
const UNKNOWN: u64 = 4;

fn r(revision: &str) -> u64 {
    Fingerprint::of(revision).value()
}

#[test]
fn nothing_is_shown_before_the_resources_are_known_and_a_start_is_no_transition() {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.list("Package", |f| f.hear("Package", put(package("a", "r1", "r1", &["t"]))));
    assert!(f.obey().is_empty());
    assert!(f.text().contains("source_up{package_source=\"named\"} 0\n"));
    assert!(!f.text().contains("package=\"a\""));
    f.list("Thing", |f| f.hear("Thing", put(thing("t", 5, "True"))));
    assert!(!f.text().contains("package=\"a\""), "it is read once more");
    f.confirm(&[package("a", "r1", "r1", &["t"])]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    assert_eq!(f.value(Metric::PackageResources, NAMED, "a"), Some(1));
    assert_eq!(f.value(Metric::PackageResourcesCurrent, NAMED, "a"), None, "all are");
    assert!(f.text().contains("source_up{package_source=\"named\"} 1\n"));
}

#[test]
fn what_was_seen_before_a_package_was_applied_does_not_count() {
    let mut f = Fixture::started(vec![package("a", "r1", "r1", &["t"])], vec![thing("t", 5, "True")]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    f.hear("Package", put(package("a", "r2", "r1", &["t"])));
    assert!(f.reads().is_empty(), "nothing to be known while it is being applied");
    f.hear("Package", put(package("a", "r2", "r2", &["t"])));
    assert_eq!(f.health("a"), (UNKNOWN, 0));
    assert_eq!(f.reason("a"), "ResourcesNotRead");
    let reads = f.reads();
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].reading, Reading::Object(PackageKey::new(Some("n"), "t")));
    // The watch is behind: it says nothing of the new revision.
    f.hear("Thing", put(thing("t", 6, "True")));
    assert_eq!(f.health("a"), (UNKNOWN, 0));
    assert!(f.reads().is_empty(), "it is asked for already");
    f.answer(&reads[0], vec![thing("t", 8, "False")]);
    assert_eq!(f.health("a"), (IN_PROGRESS, 0));
    f.hear("Thing", put(thing("t", 7, "True")));
    assert_eq!(f.health("a"), (IN_PROGRESS, 0), "an older version than the one that was read");
    f.hear("Thing", put(thing("t", 9, "True")));
    assert_eq!((f.health("a"), f.reason("a")), ((UNKNOWN, 0), "ResourcesNotRead".to_owned()));
    f.confirm(&[package("a", "r2", "r2", &["t"])]);
    assert_eq!(f.health("a"), (CURRENT, r("r2")));
    assert!(f.reads().is_empty());
    // Its controller has begun with the next one by the time that all is ready again.
    f.hear("Thing", put(thing("t", 10, "False")));
    f.hear("Thing", put(thing("t", 11, "True")));
    f.confirm(&[package("a", "r3", "r2", &["t"])]);
    assert_eq!(f.health("a"), (UNKNOWN, 0));
    f.hear("Package", put(package("a", "r3", "r2", &["t"])));
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(1));
}

#[test]
fn what_becomes_of_resources_is_seen() {
    let things = vec![thing("t", 5, "True"), thing("u", 6, "True"), thing("of-nobody", 7, "True")];
    let mut f = Fixture::started(vec![package("a", "r1", "r1", &["t", "u"])], things);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    f.hear("Thing", put(thing("u", 8, "False")));
    assert_eq!((f.health("a"), f.reason("a")), ((IN_PROGRESS, 0), "ResourcesInProgress".to_owned()));
    f.hear("Thing", Change::Deleted(PackageKey::new(Some("n"), "t")));
    assert_eq!((f.health("a"), f.reason("a")), ((NOT_FOUND, 0), "ResourcesNotFound".to_owned()));
    f.list("Thing", |f| {
        f.hear("Thing", put(thing("t", 9, "True")));
        f.hear("Thing", put(thing("u", 10, "True")));
    });
    f.confirm(&[package("a", "r1", "r1", &["t", "u"])]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    // A list that no longer names one.
    f.list("Thing", |f| f.hear("Thing", put(thing("t", 9, "True"))));
    assert_eq!(f.health("a"), (NOT_FOUND, 0));
    f.hear("Thing", Change::Absent);
    assert_eq!(f.health("a"), (NOT_FOUND, 0));
}

#[test]
fn a_kind_that_may_not_be_read_is_unknown_and_takes_nothing_else_down() {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.list("Package", |f| {
        f.hear("Package", put(package("a", "r1", "r1", &["t"])));
        f.hear("Package", put(package("b", "r1", "r1", &[])));
    });
    f.obey();
    f.hear("Thing", Change::Forbidden("may not list things".to_owned()));
    assert_eq!((f.health("a"), f.reason("a")), ((UNKNOWN, 0), "ResourcesForbidden".to_owned()));
    assert_eq!((f.health("b"), f.reason("b")), ((UNKNOWN, 0), "NoResources".to_owned()));
    assert!(f.text().contains("source_up{package_source=\"named\"} 1\n"));
    // Somebody has granted it.
    f.list("Thing", |f| f.hear("Thing", put(thing("t", 5, "True"))));
    f.confirm(&[package("a", "r1", "r1", &["t"])]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
}

#[test]
fn a_kind_is_watched_while_some_package_has_objects_of_it() {
    let mut f = Fixture::started(vec![package("a", "r1", "r1", &["t"])], vec![thing("t", 5, "True")]);
    f.hear("Package", put(package("b", "r1", "r1", &["u"])));
    let reads = f.reads();
    assert_eq!(reads.len(), 1, "the list may have passed it over");
    f.answer(&reads[0], vec![]);
    assert_eq!(f.health("b"), (NOT_FOUND, 0));
    f.hear("Package", Change::Deleted(PackageKey::new(Some("n"), "a")));
    f.obey();
    assert_eq!(f.kinds.len(), 2);
    f.hear("Package", put(package("b", "r1", "r1", &[])));
    f.obey();
    assert_eq!(f.kinds.len(), 1, "nobody has any more");
    f.hear("Package", put(package("b", "r1", "r1", &["u"])));
    f.obey();
    f.list("Thing", |f| f.hear("Thing", put(thing("u", 9, "True"))));
    f.confirm(&[package("b", "r1", "r1", &["u"])]);
    assert_eq!(f.health("b"), (CURRENT, r("r1")));
}

#[test]
fn many_objects_to_read_are_one_read() {
    let names: Vec<String> = (0..150).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let things = |version| names.iter().map(move |name| thing(name, version, "True")).collect::<Vec<_>>();
    let mut f = Fixture::started(vec![package("a", "r1", "r1", &names)], things(5));
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    f.hear("Package", put(package("a", "r2", "r2", &names)));
    let reads = f.reads();
    assert_eq!((reads.len(), &reads[0].reading), (1, &Reading::All));
    assert_eq!(f.health("a"), (UNKNOWN, 0));
    f.answer(&reads[0], things(6));
    f.confirm(&[package("a", "r2", "r2", &names)]);
    assert_eq!(f.health("a"), (CURRENT, r("r2")));
}

/// A read is answered with what was so before the watch said otherwise.
#[test]
fn what_the_watch_said_since_a_read_was_asked_for_stands() {
    let a = |revision| package("a", revision, revision, &["t"]);
    let started = || {
        let mut f = Fixture::started(vec![a("r1")], vec![thing("t", 5, "True")]);
        f.hear("Package", put(a("r2")));
        let reads = f.reads();
        (f, reads)
    };
    // It went.
    let (mut f, reads) = started();
    f.hear("Thing", Change::Deleted(PackageKey::new(Some("n"), "t")));
    f.answer(&reads[0], vec![thing("t", 5, "True")]);
    f.confirm(&[a("r2")]);
    assert_eq!(f.health("a"), (NOT_FOUND, 0));
    // It came, after it had gone.
    let (mut f, reads) = started();
    f.hear("Thing", Change::Deleted(PackageKey::new(Some("n"), "t")));
    f.hear("Thing", put(thing("t", 7, "True")));
    f.answer(&reads[0], Vec::new());
    f.confirm(&[a("r2")]);
    assert_eq!(f.health("a"), (CURRENT, r("r2")));
    // What is read later counts again.
    f.hear("Package", put(a("r3")));
    let reads = f.reads();
    f.answer(&reads[0], Vec::new());
    assert_eq!(f.health("a"), (NOT_FOUND, 0));
}

#[test]
fn what_the_watch_said_since_objects_were_read_by_label_stands() {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.list("Package", |f| f.hear("Package", put(labelled("a", "r1"))));
    f.obey();
    f.list("Part", |f| ["p", "q"].iter().for_each(|name| f.hear("Part", put(thing(name, 5, "True")))));
    f.confirm(&[labelled("a", "r1")]);
    f.hear("Package", put(labelled("a", "r2")));
    let reads = f.reads();
    f.hear("Part", Change::Deleted(PackageKey::new(Some("n"), "q")));
    f.hear("Part", put(thing("o", 6, "False")));
    f.answer(&reads[0], vec![thing("p", 5, "True"), thing("q", 5, "False")]);
    assert_eq!(f.health("a"), (IN_PROGRESS, 0), "there is one that came");
    f.hear("Part", put(thing("o", 7, "True")));
    f.confirm(&[labelled("a", "r2")]);
    assert_eq!(f.health("a"), (CURRENT, r("r2")), "and one that went");
}

#[test]
fn objects_are_found_by_label() {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.list("Package", |f| f.hear("Package", put(labelled("a", "r1"))));
    f.obey();
    f.list("Part", |f| f.hear("Part", put(thing("p", 5, "True"))));
    f.confirm(&[labelled("a", "r1")]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    f.hear("Part", put(thing("q", 6, "False")));
    assert_eq!(f.health("a"), (IN_PROGRESS, 0));
    // It is given to somebody else.
    let (key, mut object) = thing("q", 7, "False");
    object["metadata"]["labels"] = json!({"part-of": "b"});
    f.hear("Part", put((key, object)));
    f.confirm(&[labelled("a", "r1")]);
    assert_eq!(f.health("a"), (CURRENT, r("r1")));
    f.hear("Part", Change::Deleted(PackageKey::new(Some("n"), "p")));
    assert_eq!((f.health("a"), f.reason("a")), ((UNKNOWN, 0), "NoResources".to_owned()));
    // Another package comes later: the list has passed its objects over.
    f.hear("Package", put(labelled("b", "r1")));
    let reads = f.reads();
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].reading, Reading::Labelled { label: "part-of".into(), value: "b".into() });
    let (key, mut object) = thing("q", 7, "True");
    object["metadata"]["labels"] = json!({"part-of": "b"});
    f.answer(&reads[0], vec![(key, object)]);
    f.confirm(&[labelled("b", "r1")]);
    assert_eq!(f.health("b"), (CURRENT, r("r1")));
}

#[test]
fn a_source_that_changes_vouches_for_nothing_of_before() {
    let mut f = Fixture::started(vec![package("a", "r1", "r1", &["t"])], vec![thing("t", 5, "True")]);
    f.hear("Thing", put(thing("t", 6, "False")));
    f.hear("Thing", put(thing("t", 7, "True")));
    f.confirm(&[package("a", "r1", "r1", &["t"])]);
    let at = f.value(Metric::PackageTransitionTimestamp, NAMED, "a");
    f.engine.use_sources(compile(SOURCE));
    assert!(f.obey().is_empty(), "nothing has changed");
    f.engine.use_sources(compile(&SOURCE.replacen("spec:", "spec:\n  description: new", 1)));
    f.obey();
    assert!(!f.text().contains("package=\"a\""), "not before its first lists are complete");
    f.list("Package", |f| f.hear("Package", put(package("a", "r1", "r1", &["t"]))));
    f.obey();
    f.list("Thing", |f| f.hear("Thing", put(thing("t", 7, "True"))));
    f.confirm(&[package("a", "r1", "r1", &["t"])]);
    assert!(f.value(Metric::PackageTransitionTimestamp, NAMED, "a") > at);
    f.engine.use_sources(Vec::new());
    f.obey();
    assert!(f.kinds.is_empty() && !f.text().contains("named"));
}

/// What happens in a cluster of one package with two things, and when the exporter hears of it.
#[derive(Debug, Clone)]
enum Step {
    /// The next revision is wanted, its things are changed, it is applied.
    Want,
    Change(usize),
    Applied,
    /// The controller of a thing has made it ready, or it breaks.
    Ready(usize),
    Break(usize),
    /// The next unheard version of the package or of things arrives.
    HearPackage,
    HearThing,
    /// A read is answered with what is stored.
    Answer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Want),
        1 => (0usize..2).prop_map(Step::Change),
        1 => Just(Step::Applied),
        3 => (0usize..2).prop_map(Step::Ready),
        1 => (0usize..2).prop_map(Step::Break),
        4 => Just(Step::HearPackage),
        4 => Just(Step::HearThing),
        3 => Just(Step::Answer),
    ]
}

proptest! {
    /// However late the watches are: a revision is healthy only if, after it was applied and before
    /// the next one was begun with, there was a time for each thing at which it was ready.
    #[test]
    fn a_healthy_revision_was_healthy_after_it_was_applied(steps in proptest::collection::vec(step(), 1..150)) {
        const NAMES: [&str; 2] = ["t", "u"];
        let mut version = 10u64;
        // Revision of a thing's spec, and the one that is ready.
        let mut things = [(1u64, 1u64); 2];
        let as_object = |i: usize, (spec, ready): (u64, u64), version: u64| {
            thing(NAMES[i], version, if ready == spec { "True" } else { "False" })
        };
        let (mut wanted, mut applied) = (1u64, 1u64);
        let mut was_ready = [true; 2];
        let mut stored_package = package("a", "r1", "r1", &NAMES);
        let (mut packages, mut unheard) = (Vec::new(), Vec::new());
        let mut f = Fixture::started(
            vec![package("a", "r1", "r1", &NAMES)],
            vec![as_object(0, things[0], 8), as_object(1, things[1], 9)],
        );
        let mut reads: Vec<ReadRequest> = Vec::new();
        let mut stored = [as_object(0, things[0], 8), as_object(1, things[1], 9)];
        for step in steps {
            version += 1;
            let mut changed = None;
            match step {
                Step::Want if wanted == applied => {
                    wanted += 1;
                    stored_package = package("a", &format!("r{wanted}"), &format!("r{applied}"), &NAMES);
                    packages.push(stored_package.clone());
                }
                Step::Change(i) if wanted > applied && things[i].0 < wanted => {
                    things[i].0 = wanted;
                    changed = Some(i);
                }
                Step::Applied if wanted > applied && things.iter().all(|t| t.0 == wanted) => {
                    applied = wanted;
                    was_ready = [0, 1].map(|i| things[i].1 == applied);
                    stored_package = package("a", &format!("r{wanted}"), &format!("r{applied}"), &NAMES);
                    packages.push(stored_package.clone());
                }
                Step::Ready(i) => {
                    things[i].1 = things[i].0;
                    was_ready[i] |= things[i].1 == applied && wanted == applied;
                    changed = Some(i);
                }
                Step::Break(i) => {
                    things[i].1 = 0;
                    changed = Some(i);
                }
                Step::HearPackage if !packages.is_empty() => f.hear("Package", put(packages.remove(0))),
                Step::HearThing if !unheard.is_empty() => f.hear("Thing", put(unheard.remove(0))),
                Step::Answer if !reads.is_empty() => {
                    let request = reads.remove(0);
                    let Reading::Object(key) = &request.reading else { panic!("{request:?}") };
                    let object = stored.iter().chain([&stored_package]).find(|(k, _)| k == key).cloned();
                    f.answer(&request, object.into_iter().collect());
                }
                _ => {}
            }
            if let Some(i) = changed {
                stored[i] = as_object(i, things[i], version);
                unheard.push(stored[i].clone());
            }
            reads.extend(f.reads());
            let (_, healthy) = f.health("a");
            if healthy == r(&format!("r{applied}")) {
                prop_assert_eq!(was_ready, [true; 2], "r{} after it was applied", applied);
            }
            prop_assert!(healthy != r(&format!("r{}", applied + 1)), "not yet applied");
        }
        // And once everything has arrived, a package that is healthy is shown as such.
        while !packages.is_empty() || !unheard.is_empty() || !reads.is_empty() {
            if !packages.is_empty() {
                f.hear("Package", put(packages.remove(0)));
            } else if !unheard.is_empty() {
                f.hear("Thing", put(unheard.remove(0)));
            } else {
                let request = reads.remove(0);
                let Reading::Object(key) = &request.reading else { panic!("{request:?}") };
                let object = stored.iter().chain([&stored_package]).find(|(k, _)| k == key).cloned();
                f.answer(&request, object.into_iter().collect());
            }
            reads.extend(f.reads());
        }
        let good = wanted == applied && things.iter().all(|t| t.0 == t.1);
        prop_assert_eq!(f.health("a").1 == r(&format!("r{applied}")), good);
    }
}

/// Two sources name one object: one has rules of its own for its kind, which the other does not see.
#[test]
fn a_source_tells_the_health_of_a_kind_by_its_own_rules() {
    let own = SOURCE.replace("name: named", "name: own").replace(
        "  resources:\n",
        "  resources:\n    healthRules:\n      - {group: test.dev, kind: Thing, currentExpression: object.?spec.?up.orValue(false)}\n",
    );
    let mut f = Fixture::of(&format!("{SOURCE}---{own}"), Limits::default());
    let (key, object) = package("a", "r1", "r1", &["t"]);
    f.list("Package", |f| f.hear("Package", put((key.clone(), object.clone()))));
    f.obey();
    let things: Vec<KindId> =
        f.kinds.iter().filter(|(_, of)| of.kind == "Thing").map(|(id, _)| *id).collect();
    assert_eq!(things.len(), 2, "each has a watch of its own");
    let mut say = |up: bool, ready: &str| {
        for id in &things {
            f.now += 1000;
            let (key, mut thing) = thing("t", u64::try_from(f.now).unwrap(), ready);
            thing["spec"] = json!({"up": up});
            f.apply(*id, Change::ListStarted { server: None, restored: false });
            f.apply(*id, Change::Object(key, thing));
            f.apply(*id, Change::ListDone);
        }
        for request in f.reads() {
            f.answer(&request, vec![(key.clone(), object.clone())]);
        }
        [0, 1].map(|source| f.value(Metric::PackageHealth, source, "a"))
    };
    assert_eq!(say(false, "True"), [Some(CURRENT), Some(IN_PROGRESS)]);
    assert_eq!(say(true, "False"), [Some(IN_PROGRESS), Some(CURRENT)]);
}

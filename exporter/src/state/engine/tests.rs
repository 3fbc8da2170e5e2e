use std::{collections::HashSet, time::Duration};

use serde_json::json;
use statusbridge_contract::{Digest, Fingerprint, Metric, sample};
use statusbridge_serving::format::Format;

use super::*;
use crate::{serve::exposition::render, source::KindRef, state::Publisher};

/// One source that joins by name, one by labels, both of the same kinds.
const SOURCES: &str = r"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: named
spec:
  kinds:
    - {group: test.dev, kind: Package, versions: [v1]}
  related:
    - name: owner
      kinds: [{group: test.dev, kind: Owner, versions: [v1]}]
      reference:
        nameExpression: object.?spec.?owner
  revisions:
    desiredExpression: owner.?spec.?revision
    appliedExpression: object.?status.?revision
  apply:
    - whenExpression: object.?status.?revision.orValue('') == owner.?spec.?revision.orValue('none')
      state: Applied
    - state: Pending
  health:
    - state: Current
  samples:
    - object:
        apiVersion: test.dev/v1
        kind: Package
        metadata: {name: a, namespace: n}
        spec: {owner: o}
        status: {revision: r1}
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: labelled
spec:
  kinds:
    - {group: test.dev, kind: Package, versions: [v1]}
  related:
    - name: owners
      kinds: [{group: test.dev, kind: Owner, versions: [v1]}]
      labels:
        match:
          - {label: package, valueExpression: object.metadata.name}
  apply:
    - whenExpression: owners.exists(o, o.?spec.?revision.orValue('') == 'r9')
      state: Failed
      reason: OwnerAtNine
    - state: Applied
  health:
    - state: Current
  samples:
    - object:
        apiVersion: test.dev/v1
        kind: Package
        metadata: {name: a, namespace: n}
";

pub(super) fn compile(sources: &str) -> Vec<Arc<Source>> {
    Source::parse("test.yaml", sources).unwrap().into_iter().map(Arc::new).collect()
}

/// A list from an API server whose clock is this one's.
pub(super) const LIST: Change = Change::ListStarted { server: Some(0), restored: false };

const NAMED: usize = 0;
const LABELLED: usize = 1;

pub(super) struct Fixture {
    pub(super) engine: Engine,
    /// Kinds that are watched.
    pub(super) kinds: Vec<(KindId, KindRef)>,
    pub(super) now: i64,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self::of(SOURCES, Limits::default());
        assert!(fixture.obey().is_empty());
        assert_eq!(fixture.kinds.len(), 2, "each kind is watched once");
        fixture
    }

    pub(super) fn of(sources: &str, limits: Limits) -> Self {
        let engine = Engine::new(compile(sources), limits, Arc::default());
        let mut fixture = Self { engine, kinds: Vec::new(), now: 1_700_000_000_000 };
        fixture.obey();
        fixture
    }

    /// Does what the engine wants done, as far as it is about watches; gives the rest.
    pub(super) fn obey(&mut self) -> Vec<Command> {
        let mut rest = Vec::new();
        for command in self.engine.commands() {
            match command {
                Command::Watch { kind, of, .. } => {
                    self.kinds.push((kind, of));
                    self.apply(kind, Change::Contact(self.now));
                }
                Command::Unwatch(kind) => self.kinds.retain(|(k, _)| *k != kind),
                other => rest.push(other),
            }
        }
        rest
    }

    pub(super) fn kind(&self, kind: &str) -> KindId {
        self.kinds.iter().find(|(_, of)| of.kind == kind).unwrap().0
    }

    pub(super) fn hear(&mut self, kind: &str, change: Change) {
        self.now += 1000;
        self.apply(self.kind(kind), change);
    }

    pub(super) fn apply(&mut self, kind: KindId, change: Change) {
        self.engine.apply(Update { kind, change }, Moment::unix(self.now));
        while self.engine.go_on(Moment::unix(self.now)) {}
    }

    fn package(&mut self, name: &str, revision: &str) {
        let object = json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": self.now.to_string()},
            "spec": {"owner": "o"}, "status": {"revision": revision}});
        self.hear("Package", Change::Object(PackageKey::new(Some("n"), name), object));
    }

    fn owner(&mut self, name: &str, revision: &str, label: &str) {
        let object = json!({"metadata": {"name": name, "namespace": "n", "labels": {"package": label}},
            "spec": {"revision": revision}});
        self.hear("Owner", Change::Object(PackageKey::new(Some("n"), name), object));
    }

    pub(super) fn list(&mut self, kind: &str, then: impl FnOnce(&mut Self)) {
        self.hear(kind, LIST);
        then(self);
        self.hear(kind, Change::ListDone);
    }

    pub(super) fn text(&self) -> String {
        self.text_within(Duration::from_secs(60))
    }

    fn text_within(&self, timeout: Duration) -> String {
        let mut published = self.engine.lock();
        let snapshot = published.snapshot(Publisher::default(), timeout, Moment::unix(self.now));
        String::from_utf8(render(&snapshot, Format::Text, None)).unwrap()
    }

    pub(super) fn value(&self, metric: Metric, source: usize, name: &str) -> Option<u64> {
        let of = &self.engine.readers[source].source.name;
        let start = format!(
            "{}{{package=\"{name}\",package_namespace=\"n\",package_source=\"{of}\"}} ",
            metric.name()
        );
        let text = self.text();
        let said = text.lines().find_map(|l| l.strip_prefix(&start)?.parse().ok());
        let implied = || self.value(Metric::PackageHealthyRevision, source, name).map(|_| 0);
        let may_be_implied = matches!(metric, Metric::PackageApplyState | Metric::PackageHealth);
        said.or_else(|| if may_be_implied { implied() } else { None })
    }
}

fn ready() -> Fixture {
    let mut f = Fixture::new();
    f.list("Owner", |f| f.owner("o", "r1", "a"));
    f.list("Package", |f| f.package("a", "r1"));
    f
}

#[test]
fn nothing_is_published_before_all_first_lists_are_complete() {
    let mut f = Fixture::new();
    assert!(!f.text().contains("source_up"), "a kind that nobody has heard of");
    f.list("Package", |f| f.package("a", "r1"));
    assert!(f.text().contains("statusbridge_source_up{package_source=\"named\"} 0\n"));
    assert!(f.text().contains("statusbridge_source_packages{package_source=\"named\"} 0\n"));
    assert!(!f.text().contains("package=\"a\""));
    f.list("Owner", |f| f.owner("o", "r1", "a"));
    assert!(f.text().contains("statusbridge_source_up{package_source=\"named\"} 1\n"));
    // Evaluated once everything was known: no transition out of a half-known state.
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(0));
}

#[test]
fn a_kind_that_is_joined_but_not_served_is_waited_for_no_longer() {
    let mut f = Fixture::new();
    f.list("Package", |f| f.package("a", "r1"));
    f.hear("Owner", Change::Absent);
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(2), "Pending: no owner");
    f.list("Owner", |f| f.owner("o", "r1", "a"));
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(0));
}

#[test]
fn a_package_follows_what_it_joins_by_name() {
    let mut f = ready();
    f.owner("o", "r2", "a");
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(2));
    assert_eq!(f.value(Metric::PackageDesiredRevision, NAMED, "a"), Some(Fingerprint::of("r2").value()));
    f.package("a", "r2");
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(0));
    f.hear("Owner", Change::Deleted(PackageKey::new(Some("n"), "o")));
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(2));
}

#[test]
fn a_package_follows_what_it_joins_by_labels() {
    let mut f = ready();
    assert_eq!(f.value(Metric::PackageApplyState, LABELLED, "a"), Some(0));
    f.owner("x", "r9", "a");
    assert_eq!(f.value(Metric::PackageApplyState, LABELLED, "a"), Some(6));
    f.owner("x", "r9", "somebody-else");
    assert_eq!(f.value(Metric::PackageApplyState, LABELLED, "a"), Some(0), "the label moved away");
    f.owner("x", "r9", "a");
    f.hear("Owner", Change::Deleted(PackageKey::new(Some("n"), "x")));
    assert_eq!(f.value(Metric::PackageApplyState, LABELLED, "a"), Some(0));
}

#[test]
fn a_list_takes_away_what_it_does_not_name_but_only_when_it_is_complete() {
    let mut f = ready();
    f.package("b", "r1");
    f.hear("Package", LIST);
    f.package("b", "r1");
    assert!(f.value(Metric::PackageHealth, NAMED, "a").is_some(), "last known until the list is complete");
    // The list broke and begins again.
    f.hear("Package", LIST);
    f.package("a", "r1");
    f.hear("Package", Change::ListDone);
    assert!(f.value(Metric::PackageHealth, NAMED, "a").is_some());
    assert_eq!(f.value(Metric::PackageHealth, NAMED, "b"), None);
    assert!(f.text().contains("statusbridge_source_packages{package_source=\"named\"} 1\n"));
}

#[test]
fn a_kind_that_goes_away_takes_its_packages_along() {
    let mut f = ready();
    f.hear("Package", Change::Absent);
    assert_eq!(f.value(Metric::PackageHealth, NAMED, "a"), None);
    assert!(f.text().contains("statusbridge_source_packages{package_source=\"named\"} 0\n"));
    assert!(f.text().contains("statusbridge_source_up{package_source=\"named\"} 1\n"));
    f.list("Package", |f| f.package("a", "r1"));
    assert_eq!(f.value(Metric::PackageApplyState, NAMED, "a"), Some(0));
}

#[test]
fn a_silent_watch_of_any_kind_takes_the_source_down_and_keeps_what_was_known() {
    let f = ready();
    let text = f.text_within(Duration::ZERO);
    assert!(text.contains("statusbridge_source_up{package_source=\"named\"} 0\n"));
    assert!(text.contains("package=\"a\""));
}

#[test]
fn a_version_in_which_nothing_that_is_read_changed_is_not_evaluated() {
    let mut f = ready();
    let before = evaluations(&f);
    f.package("a", "r1");
    assert_eq!(evaluations(&f), before);
    f.package("a", "r7");
    assert_ne!(evaluations(&f), before);
}

/// How many times packages were evaluated.
fn evaluations(f: &Fixture) -> u64 {
    let text = f.engine.metrics.render(Format::Text).unwrap();
    let counts = text.lines().filter(|line| line.starts_with("statusbridge_exporter_evaluations_total"));
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_change_of_a_related_object_costs_the_packages_that_look_for_it() {
    let mut f = Fixture::new();
    f.list("Owner", |f| (0..30).for_each(|n| f.owner(&format!("o{n}"), "r1", &format!("p{}", n % 10))));
    f.list("Package", |f| (0..20).for_each(|n| f.package(&format!("p{n}"), "r1")));
    let mut spent = |change: &dyn Fn(&mut Fixture)| {
        let before = evaluations(&f);
        change(&mut f);
        evaluations(&f) - before
    };
    assert_eq!(spent(&|f| f.owner("o3", "r9", "p3")), 1);
    assert_eq!(
        spent(&|f| f.owner("o3", "r9", "p4")),
        2,
        "the one that it leaves and the one that it comes to"
    );
    assert_eq!(spent(&|f| f.owner("o3", "r9", "nobody")), 1);
    assert_eq!(spent(&|f| f.owner("o3", "r8", "nobody")), 0);
    assert_eq!(spent(&|f| f.hear("Owner", Change::Deleted(PackageKey::new(Some("n"), "o4")))), 1);
    assert_eq!(spent(&|f| f.owner("o", "r1", "nobody")), 20, "all look for this one by name");
}

#[test]
fn what_concerns_every_package_is_done_one_by_one_and_shown_when_all_are_done() {
    let mut f = Fixture::new();
    f.list("Package", |f| (0..50).for_each(|n| f.package(&format!("p{n}"), "r1")));
    f.hear("Owner", LIST);
    f.owner("o", "r1", "p1");
    let (owner, now) = (f.kind("Owner"), Moment::unix(f.now));
    f.engine.apply(Update { kind: owner, change: Change::ListDone }, now);
    let mut before = evaluations(&f);
    assert_eq!(before, 0);
    while f.engine.go_on(now) {
        let after = evaluations(&f);
        assert!(after - before <= 1, "{} at one go", after - before);
        before = after;
        let (shown, named) = (f.text(), "statusbridge_source_packages{package_source=\"named\"}");
        assert!(
            shown.contains(&format!("{named} 0\n")) || shown.contains(&format!("{named} 50\n")),
            "{shown}"
        );
    }
    assert_eq!(before, 100);
    assert!(f.text().contains("statusbridge_source_up{package_source=\"labelled\"} 1\n"));
}

#[test]
fn packages_that_a_limit_leaves_out_come_in_as_others_go() {
    let limits = Limits { max_packages: 2_000, max_label_length: 10, ..Limits::default() };
    let source = SOURCES.split_once("---").unwrap().1.replace("name: labelled", "name: named");
    let mut f = Fixture::of(&source, limits);
    let shown = |f: &Fixture| {
        let text = f.text_within(Duration::from_secs(100_000));
        let value = |metric: &str| {
            let start = format!("statusbridge_source_{metric}{{package_source=\"named\"}} ");
            text.lines().find_map(|line| line.strip_prefix(start.as_str())?.parse::<usize>().ok()).unwrap()
        };
        (value("packages"), value("up"))
    };
    f.list("Owner", |_| {});
    f.list("Package", |f| {
        (0..4_000).for_each(|n| f.package(&format!("p{n}"), "r1"));
        f.package("too-long-a-name", "r1");
    });
    assert_eq!(shown(&f), (2_000, 0));
    let gone = |f: &mut Fixture, name: &str| {
        f.hear("Package", Change::Deleted(PackageKey::new(Some("n"), name)));
    };
    for n in 0..1_999 {
        gone(&mut f, &format!("p{n}"));
    }
    assert_eq!(shown(&f), (2_000, 0), "one is left out still, and one that has no name");
    gone(&mut f, "p1999");
    assert_eq!(shown(&f), (2_000, 0), "nobody waits for room");
    gone(&mut f, "too-long-a-name");
    assert_eq!(shown(&f), (2_000, 1));
    gone(&mut f, "p3000");
    assert_eq!(shown(&f), (1_999, 1));
}

#[test]
fn a_scrape_in_the_middle_of_updates_adds_up() {
    let mut f = ready();
    let published = f.engine.published();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let uid = Fingerprint::of("uid");
    let publisher = Publisher { cluster_uid: Some(uid), process_number: None };
    let reader = std::thread::spawn(move || {
        let (mut scrapes, mut differing) = (0, HashSet::new());
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) || scrapes == 0 {
            let mut guard = published.lock().unwrap();
            let snapshot = guard.snapshot(publisher, Duration::from_secs(60), Moment::unix(1));
            drop(guard);
            let text = String::from_utf8(render(&snapshot, Format::Text, Some(1))).unwrap();
            let digest: Digest = text
                .lines()
                .filter(|l| Metric::from_name(l.split('{').next().unwrap()).is_some_and(Metric::in_digest))
                .map(|l| sample::hash_canonical(l.as_bytes()))
                .collect();
            let shown = format!("statusbridge_cluster_uid=\"{uid}\"}} {}\n", digest.rendered(1).value());
            assert!(text.contains(&shown), "torn");
            scrapes += 1;
            differing.insert(digest.value());
        }
        differing.len()
    });
    for round in 0..400 {
        for name in ["a", "b", "c"] {
            f.package(name, &format!("r{}", round % 7));
        }
        f.owner("o", &format!("r{}", round % 5), "b");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}

thread_local! {
    /// What was logged in this thread: a logger for one thread alone may be passed over, as places that
    /// log are asked once, in whichever thread comes first, whether anybody listens.
    static LOG: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_transition_is_one_line_of_json_that_says_everything_once() {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .with_writer(|| Log)
        .init();
    let mut f = ready();
    f.owner("x", "r9", "a");
    let text = String::from_utf8(LOG.take()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("\"target\":\"transition\"")).collect();
    let [line] = lines.as_slice() else { panic!("the first lists are no news, the failure is one: {text}") };
    let event: Value = serde_json::from_str(line).unwrap();
    for (field, value) in [
        ("source", "labelled"),
        ("package", "a"),
        ("namespace", "n"),
        ("apply_state", "Failed"),
        ("previous_apply_state", "Applied"),
        ("reason", "OwnerAtNine"),
    ] {
        assert_eq!(event[field], value, "{line}");
    }
    assert_eq!(line.matches("\"message\":").count(), 1, "{line}");
}

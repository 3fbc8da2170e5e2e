use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use statusbridge_contract::ApplyState;
use statusbridge_serving::format::Format;

use super::*;
use crate::{
    saved::{SavedEvent, SavedObject},
    serve::exposition::render,
    source::Source,
    state::Limits,
};

const SOURCE: &str = r#"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: widgets
spec:
  kinds:
    - {group: example.com, kind: Widget, versions: [v1]}
  related:
    - name: wanted
      kinds: [{group: "", kind: ConfigMap, versions: [v1]}]
      reference:
        nameExpression: object.metadata.name
  revisions:
    desiredExpression: wanted.?data.?revision
    appliedExpression: object.?status.?revision
  apply:
    - {whenExpression: "wanted.?data.?revision.orValue('') != object.?status.?revision.orValue('')", state: Pending}
    - {state: Applied}
  health: [{whenExpression: object.?status.?busy.orValue(false), state: InProgress}, {state: Current}]
  messageExpression: "'runs ' + object.?status.?revision.orValue('')"
  hold: {whenExpression: object.?status.?busy.orValue(false), keyExpression: object.?status.?revision}
  samples: [{object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}}]
"#;

fn widget(revision: &str, second: u32, busy: bool) -> Value {
    let at = format!("2026-01-01T00:00:{second:02}Z");
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "n"},
        "status": {"revision": revision, "busy": busy, "at": at}})
}

fn wanted(revision: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"revision": revision}})
}

fn run_saved(sources: &str, objects: Vec<SavedObject>, clock: Clock) -> History {
    let sources =
        Source::parse("widgets.yaml", sources).expect("it compiles").into_iter().map(Arc::new).collect();
    rehearse(sources, objects, Limits::default(), clock)
}

fn run_with(sources: &str, values: &[Value], clock: Clock) -> History {
    run_saved(sources, values.iter().map(|value| SavedObject::new("f", value.clone())).collect(), clock)
}

fn run(values: &[Value], clock: Clock) -> History {
    run_with(SOURCE, values, clock)
}

fn states(history: &History) -> Vec<(usize, ApplyState, bool)> {
    let state = |t: &Transition| {
        let package = t.package.as_ref()?;
        Some((package.version, package.shown.verdict.apply, package.shown.verdict.good()))
    };
    history.transitions.iter().filter_map(state).collect()
}

/// The second of each transition, and whether there is a package then.
fn seconds(history: &History) -> Vec<(i64, bool)> {
    history.transitions.iter().map(|t| (t.at / 1000 % 60, t.package.is_some())).collect()
}

fn messages(remarks: &[crate::saved::Remark]) -> Vec<String> {
    remarks.iter().map(ToString::to_string).collect()
}

#[test]
fn what_comes_once_is_there_from_the_start() {
    let history = run(&[widget("r1", 0, false), wanted("r1")], Clock::Fixed(0));
    assert_eq!(states(&history), [(1, ApplyState::Applied, true)]);
    let package = history.packages.values().next().expect("a package");
    assert_eq!(package.shown.verdict.desired, package.shown.verdict.applied);
    assert_eq!(package.detail.desired_revision.as_deref(), Some("r1"), "as it is written");
    assert_eq!(package.detail.message, "runs r1");
}

#[test]
fn a_later_version_of_a_related_object_is_seen_when_it_comes() {
    let all = [wanted("r1"), widget("r1", 0, false), wanted("r2"), widget("r2", 1, false)];
    let states = states(&run(&all, Clock::FromObjects(0)));
    assert_eq!(
        states,
        [(1, ApplyState::Applied, true), (1, ApplyState::Pending, false), (2, ApplyState::Applied, true)]
    );
}

#[test]
fn holds_run_out_by_the_times_in_the_objects() {
    let short = [wanted("r1"), widget("r1", 0, false), widget("r1", 5, true), widget("r1", 20, false)];
    assert_eq!(states(&run(&short, Clock::FromObjects(0))), [(1, ApplyState::Applied, true)]);
    let long = [wanted("r1"), widget("r1", 0, false), widget("r1", 5, true), widget("r1", 40, false)];
    let history = run(&long, Clock::FromObjects(0));
    assert_eq!(
        states(&history),
        [(1, ApplyState::Applied, true), (2, ApplyState::Applied, false), (3, ApplyState::Applied, true)]
    );
    assert_eq!(seconds(&history), [(0, true), (35, true), (40, true)]);
    assert_eq!(run(&long, Clock::Fixed(0)).transitions.len(), 1, "a clock that stands still ends no hold");
}

#[test]
fn what_nobody_reads_and_what_fails_is_told() {
    let mut broken = widget("r1", 0, false);
    broken["status"]["revision"] = json!(5);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let history = run(&[pod, broken, wanted("r1"), wanted("r2")], Clock::Fixed(0));
    assert_eq!(messages(&history.unread), ["f: v1 Pod p is read by no source"]);
    assert_eq!(
        messages(&history.failures),
        [
            "f: Widget n/a: source widgets: spec.revisions.appliedExpression: gives int, where a string or a list of strings is needed in `object.?status.?revision`"
        ],
        "once, though it is evaluated again for the second version of what belongs to it"
    );
    assert_eq!(history.packages.len(), 1, "it is shown as Unknown all the same");
}

#[test]
fn a_failure_is_told_where_the_version_stands() {
    let broken = |mut object: Value| {
        object["status"]["revision"] = json!(5);
        object
    };
    let versions = [
        ("f, line 1", broken(widget("", 0, false))),
        ("f, line 2", widget("r1", 1, false)),
        ("f, line 3", broken(widget("", 2, false))),
    ];
    let objects = versions.map(|(origin, value)| SavedObject::new(origin, value));
    let history = run_saved(SOURCE, objects.to_vec(), Clock::FromObjects(0));
    let origins: Vec<&str> = history.failures.iter().map(|failure| failure.origin.as_str()).collect();
    assert_eq!(origins, ["f, line 1", "f, line 3"]);
}

#[test]
fn an_object_that_is_gone_takes_its_package_along_and_a_related_one_is_missed() {
    let event = |value, event| SavedObject { event, ..SavedObject::new("f", value) };
    let objects = vec![
        event(wanted("r1"), None),
        event(widget("r1", 1, false), Some(SavedEvent::Added)),
        event(widget("r1", 3, false), None),
        event(wanted("r1"), Some(SavedEvent::Deleted)),
        event(widget("r1", 5, false), Some(SavedEvent::Deleted)),
        event(widget("r2", 7, false), Some(SavedEvent::Added)),
    ];
    let history = run_saved(SOURCE, objects, Clock::FromObjects(0));
    assert_eq!(seconds(&history), [(1, true), (3, true), (5, false), (7, true)]);
    assert_eq!(
        states(&history),
        [(1, ApplyState::Applied, true), (2, ApplyState::Pending, false), (3, ApplyState::Pending, false)]
    );
}

#[test]
fn selectors_select_and_other_versions_are_told() {
    let source =
        SOURCE.replace("kind: Widget, versions: [v1]}", "kind: Widget, versions: [v1], selector: team=web}");
    let of = |name: &str, labels: Value, version: &str| {
        let mut object = widget("r1", 0, false);
        object["metadata"]["name"] = name.into();
        object["metadata"]["labels"] = labels;
        object["apiVersion"] = format!("example.com/{version}").into();
        object
    };
    let objects = [
        of("a", json!({"team": "web"}), "v1"),
        of("b", json!({"team": "ops"}), "v1"),
        of("c", json!({"team": "web"}), "v2"),
        wanted("r1"),
    ];
    let history = run_with(&source, &objects, Clock::Fixed(0));
    let names: Vec<&str> = history.packages.keys().map(|id| id.name.as_str()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(
        messages(&history.unread),
        [
            "f: example.com/v1 Widget n/b has not the labels that widgets selects: team=web",
            "f: example.com/v2 Widget n/c is at version v2, where widgets reads v1: save it at that version, or its CustomResourceDefinition too if the API server converts it",
        ]
    );
    // The label goes away, and comes back.
    let moved = [
        of("a", json!({"team": "web"}), "v1"),
        of("a", json!({}), "v1"),
        of("a", json!({"team": "web"}), "v1"),
    ];
    let there: Vec<bool> = run_with(&source, &moved, Clock::Fixed(0))
        .transitions
        .iter()
        .map(|transition| transition.package.is_some())
        .collect();
    assert_eq!(there, [true, false, true]);
}

#[test]
fn what_a_definition_fills_in_is_there_and_what_it_converts_is_read() {
    let schema = json!({"properties": {"status": {"properties": {"revision": {"default": "r0"}}}}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "w"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1"), version("v2")]}});
    let mut widget = widget("r1", 0, false);
    widget["apiVersion"] = "example.com/v2".into();
    widget["status"] = json!({});
    let history = run(&[crd, widget, wanted("r0")], Clock::Fixed(0));
    assert_eq!(states(&history), [(1, ApplyState::Applied, true)]);
    assert_eq!(history.unread, []);
}

/// A source that looks at what its packages consist of, one by category, and the objects of both.
const RESOURCES: &str = r#"
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: bundles
spec:
  categories: [bundle]
  revisions:
    desiredExpression: object.?spec.?revision
    appliedExpression: object.?spec.?revision
  apply: [{state: Applied}]
  health: [{state: Resources, unwatched: {state: Unknown}}]
  resources:
    watch:
      enabled: true
      referencesExpression: object.?spec.?parts
  samples: [{object: {metadata: {name: a}, spec: {parts: []}}}]
"#;

fn bundle() -> [Value; 2] {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "b"},
        "spec": {"group": "example.com", "names": {"kind": "Bundle", "plural": "bundles", "categories": ["bundle"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {}}}]}});
    let parts = json!([{"group": "example.com", "kind": "Widget", "namespace": "n", "name": "a"}]);
    let bundle = json!({"apiVersion": "example.com/v1", "kind": "Bundle", "metadata": {"name": "b", "namespace": "n"},
        "spec": {"revision": "r1", "parts": parts}});
    [crd, bundle]
}

/// Name, apply state and reason of what is shown of bundles, change by change.
fn bundles(history: &History) -> Vec<(String, bool, String)> {
    let of_bundles = history.transitions.iter().filter(|it| it.id.source == "bundles");
    let told = |it: &Transition| {
        let package = it.package.as_ref()?;
        let reason = package.shown.verdict.reason.as_deref().unwrap_or_default().to_owned();
        Some((it.id.to_string(), package.shown.verdict.good(), reason))
    };
    of_bundles.filter_map(told).collect()
}

#[test]
fn what_is_a_package_may_be_part_of_another_one() {
    let ready = |ready: &str, second| {
        let mut widget = widget("r1", second, false);
        widget["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
        widget
    };
    let objects = [&bundle()[..], &[ready("False", 0), wanted("r1"), ready("True", 9)]].concat();
    let history = run_with(&format!("{SOURCE}{RESOURCES}"), &objects, Clock::FromObjects(0));
    let name = || "n/b".to_owned();
    assert_eq!(
        bundles(&history),
        [(name(), false, "ResourcesInProgress".to_owned()), (name(), true, String::new())]
    );
    assert_eq!(history.packages.len(), 2);
    assert_eq!(history.unread, []);
}

#[test]
fn what_no_package_consists_of_is_told() {
    let widget = |name: &str| json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name, "namespace": "n"}});
    let objects = [&bundle()[..], &[widget("a"), widget("b")]].concat();
    let bundles = RESOURCES.trim_start().trim_start_matches("---");
    let history = run_with(bundles, &objects, Clock::Fixed(0));
    assert_eq!(messages(&history.unread), ["f: example.com/v2 Widget n/b is read by no source"]);
}

#[test]
fn what_a_package_consists_of_is_missed_where_it_is_not_there_yet() {
    let mut late = widget("r1", 9, false);
    late["metadata"]["creationTimestamp"] = "2026-01-01T00:00:08Z".into();
    let [crd, bundle] = bundle();
    let mut again = bundle.clone();
    again["status"] = json!({"at": "2026-01-01T00:00:05Z"});
    let mut bundle = bundle;
    bundle["status"] = json!({"at": "2026-01-01T00:00:01Z"});
    let objects = [crd, bundle, again, late];
    let history = run_with(&format!("{SOURCE}{RESOURCES}"), &objects, Clock::FromObjects(0));
    let reasons: Vec<String> = bundles(&history).into_iter().map(|(.., reason)| reason).collect();
    assert_eq!(reasons, ["ResourcesNotFound", ""]);
}

#[test]
fn a_scrape_reads_what_is_shown_in_the_end_and_of_no_kind_that_is_not_there() {
    let history = run_with(&format!("{SOURCE}{RESOURCES}"), &[widget("r1", 0, false)], Clock::Fixed(5_000));
    let text = String::from_utf8(render(&history.snapshot, Format::Text, None)).unwrap();
    assert!(text.contains("statusbridge_source_up{package_source=\"widgets\"} 1\n"), "{text}");
    assert!(
        text.contains("statusbridge_source_last_contact_timestamp_seconds{package_source=\"widgets\"} 5\n"),
        "{text}"
    );
    assert!(!text.contains("bundles"), "{text}");
}

proptest! {
    /// Files and lists have no order that means anything.
    #[test]
    fn objects_say_the_same_in_any_order(
        order in Just((0..8).collect::<Vec<usize>>()).prop_shuffle()
    ) {
        let [crd, bundle] = bundle();
        let named = |mut object: Value, name: &str| {
            object["metadata"]["name"] = name.into();
            object
        };
        let objects = [
            crd,
            bundle,
            widget("r1", 0, false),
            wanted("r1"),
            named(widget("r1", 3, true), "b"),
            named(wanted("r2"), "b"),
            named(wanted("r3"), "nobody"),
            named(widget("r4", 1, false), "c"),
        ];
        let shuffled: Vec<Value> = order.iter().map(|at| objects[*at].clone()).collect();
        let sources = format!("{SOURCE}{RESOURCES}");
        let told = |objects: &[Value]| {
            let history = run_with(&sources, objects, Clock::Fixed(0));
            (history.packages, render(&history.snapshot, Format::Text, None).len())
        };
        prop_assert_eq!(told(&shuffled), told(&objects));
    }
}

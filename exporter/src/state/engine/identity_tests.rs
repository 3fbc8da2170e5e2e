//! Which object is which package, and what becomes of two that are one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{tests::Fixture, *};
use crate::state::Limits;

/// Two kinds, whose objects say themselves which package they are.
const SOURCE: &str = "
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata: {name: named}
spec:
  kinds:
    - {group: test.dev, kind: One, versions: [v1]}
    - {group: test.dev, kind: Other, versions: [v1]}
  identity:
    clusterExpression: object.?spec.?cluster
    namespaceExpression: object.?spec.?space.or(object.metadata.?namespace)
    nameExpression: object.?spec.?app.or(optional.of(object.metadata.name))
    orderExpression: object.?spec.?order.orValue(0)
  matchConditions:
    - name: no-template
      expression: object.?spec.?template.orValue(false) == false
  revisions: {appliedExpression: object.?spec.?revision}
  apply: [{state: Applied}]
  health: [{state: Current}]
  reasonExpression: object.?spec.?word
";

fn fixture() -> Fixture {
    fixture_of(SOURCE)
}

fn fixture_of(source: &str) -> Fixture {
    let mut f = Fixture::of(source, Limits::default());
    f.list("One", |_| {});
    f.list("Other", |_| {});
    f
}

fn put(f: &mut Fixture, kind: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": "n", "resourceVersion": f.now.to_string()});
    let object = json!({"kind": kind, "metadata": metadata, "spec": spec});
    f.hear(kind, Change::Object(PackageKey::new(Some("n"), name), object));
}

fn delete(f: &mut Fixture, kind: &str, name: &str) {
    f.hear(kind, Change::Deleted(PackageKey::new(Some("n"), name)));
}

/// Names and reasons of all that is shown.
fn shown(f: &Fixture) -> Vec<(String, String)> {
    let packages = &f.engine.readers[0].packages;
    let mut all: Vec<(String, String)> = packages
        .iter()
        .map(|(key, package)| {
            let name = format!("{}/{}", key.namespace.as_deref().unwrap_or_default(), key.name);
            (name, package.shown.verdict.reason.as_deref().unwrap_or_default().to_owned())
        })
        .collect();
    all.sort();
    all
}

fn is(names: &[(&str, &str)]) -> Vec<(String, String)> {
    names.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())).collect()
}

#[test]
fn objects_of_several_kinds_are_packages_of_one_source() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({}));
    put(&mut f, "Other", "b", json!({"app": "c", "space": "s"}));
    put(&mut f, "Other", "d", json!({"template": true}));
    assert_eq!(shown(&f), is(&[("n/a", ""), ("s/c", "")]));
    assert!(
        f.text().contains("{package=\"c\",package_namespace=\"s\",package_source=\"named\"}"),
        "{}",
        f.text()
    );
    // It becomes another one, then none, and goes.
    put(&mut f, "Other", "b", json!({"app": "e"}));
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/e", "")]));
    put(&mut f, "Other", "b", json!({"app": "e", "template": true}));
    delete(&mut f, "One", "a");
    assert_eq!(shown(&f), []);
}

#[test]
fn two_objects_that_are_one_package_are_unknown_and_nobody_else_is() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({"revision": "r1"}));
    put(&mut f, "One", "x", json!({"revision": "r1"}));
    put(&mut f, "Other", "b", json!({"app": "a", "revision": "r1"}));
    assert_eq!(shown(&f), is(&[("n/a", "IdentityConflict"), ("n/x", "")]));
    let package = &f.engine.readers[0].packages[&Arc::new(PackageKey::new(Some("n"), "a"))];
    assert!(package.shown.verdict.healthy.is_none() && !package.shown.verdict.good());
    // A change of either changes nothing, and a third makes no difference.
    put(&mut f, "One", "a", json!({"revision": "r2"}));
    put(&mut f, "Other", "third", json!({"app": "a"}));
    assert_eq!(shown(&f), is(&[("n/a", "IdentityConflict"), ("n/x", "")]));
    delete(&mut f, "Other", "third");
    assert_eq!(shown(&f), is(&[("n/a", "IdentityConflict"), ("n/x", "")]));
    // It ends when one of them is another package, or gone.
    put(&mut f, "Other", "b", json!({"app": "z"}));
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/x", ""), ("n/z", "")]));
    put(&mut f, "Other", "b", json!({"app": "x"}));
    delete(&mut f, "One", "x");
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/x", "")]));
    // A list that no longer names one ends it too.
    put(&mut f, "One", "x", json!({}));
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/x", "IdentityConflict")]));
    f.list("Other", |_| {});
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/x", "")]));
}

#[test]
fn an_object_whose_identity_fails_is_shown_under_its_own_name() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({"app": 5}));
    put(&mut f, "One", "b", json!({"app": "x".repeat(2000)}));
    put(&mut f, "One", "c", json!({"app": ""}));
    assert_eq!(
        shown(&f),
        is(&[("n/a", "EvaluationFailed"), ("n/b", "EvaluationFailed"), ("n/c", "EvaluationFailed")])
    );
    put(&mut f, "One", "a", json!({"app": "a"}));
    delete(&mut f, "One", "b");
    assert_eq!(shown(&f), is(&[("n/a", ""), ("n/c", "EvaluationFailed")]));
}

#[test]
fn a_source_of_a_kind_that_is_not_there_waits_for_the_others_only() {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.hear("Other", Change::Absent);
    f.list("One", |f| put(f, "One", "a", json!({})));
    assert!(f.text().contains("statusbridge_source_up{package_source=\"named\"} 1"), "{}", f.text());
    f.list("Other", |f| put(f, "Other", "b", json!({"app": "a"})));
    assert_eq!(shown(&f), is(&[("n/a", "IdentityConflict")]));
}

proptest! {
    /// However objects come, change and go, what is shown is what they are in the end.
    #[test]
    fn what_is_shown_does_not_depend_on_the_way(
        steps in proptest::collection::vec(
            (any::<bool>(), 0..3usize, proptest::option::of((0..3usize, any::<bool>(), 0..3u64))), 1..40),
    ) {
        // What is well needs no reason.
        let mut f = fixture_of(&SOURCE.replace("[{state: Current}]", "[{state: Failed}]"));
        let mut there: BTreeMap<(bool, usize), (usize, bool, u64)> = BTreeMap::new();
        for (kind, object, becomes) in steps {
            let (of, name) = (if kind { "One" } else { "Other" }, format!("o{object}"));
            match becomes {
                Some((app, template, order)) => {
                    there.insert((kind, object), (app, template, order));
                    let spec = json!({"app": format!("p{app}"), "template": template, "order": order, "word": format!("{of}{object}")});
                    put(&mut f, of, &name, spec);
                }
                None => {
                    there.remove(&(kind, object));
                    delete(&mut f, of, &name);
                }
            }
            let mut highest: BTreeMap<usize, (u64, String)> = BTreeMap::new();
            for ((kind, object), (app, _, order)) in there.iter().filter(|(_, (_, template, _))| !template) {
                let word = format!("{}{object}", if *kind { "One" } else { "Other" });
                match highest.get_mut(app) {
                    Some((most, _)) if *most > *order => {}
                    Some((most, word)) if *most == *order => *word = "IdentityConflict".to_owned(),
                    _ => drop(highest.insert(*app, (*order, word))),
                }
            }
            let expected = highest.into_iter().map(|(app, (_, word))| (format!("n/p{app}"), word));
            prop_assert_eq!(shown(&f), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_object_that_does_not_say_where_it_stands_is_taken_for_the_one_that_counts() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({"app": "p", "order": 7}));
    put(&mut f, "Other", "b", json!({"app": "p", "order": "8"}));
    assert_eq!(shown(&f), is(&[("n/p", "EvaluationFailed")]));
    put(&mut f, "One", "a", json!({"app": "p", "order": 9}));
    assert_eq!(shown(&f), is(&[("n/p", "EvaluationFailed")]));
    put(&mut f, "Other", "b", json!({"app": "p", "order": 8}));
    assert_eq!(shown(&f), is(&[("n/p", "")]));
    delete(&mut f, "One", "a");
    put(&mut f, "One", "c", json!({"app": "p", "order": -1, "word": "Low"}));
    assert_eq!(shown(&f), is(&[("n/p", "EvaluationFailed")]));
}

#[test]
fn what_runs_elsewhere_says_where_and_is_another_package_in_each_cluster() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({"app": "p", "cluster": "eu-1"}));
    put(&mut f, "One", "b", json!({"app": "p", "cluster": "eu-2"}));
    put(&mut f, "One", "p", json!({}));
    assert_eq!(shown(&f), is(&[("n/p", ""), ("n/p", ""), ("n/p", "")]));
    for cluster in ["", ",package_cluster=\"eu-1\"", ",package_cluster=\"eu-2\""] {
        let labels = format!("{{package=\"p\"{cluster},package_namespace=\"n\",package_source=\"named\"}}");
        assert!(f.text().contains(&labels), "{labels} in {}", f.text());
    }
    put(&mut f, "Other", "c", json!({"app": "p", "cluster": "eu-2"}));
    let conflicts = f.text().matches("IdentityConflict").count();
    assert_eq!(
        (conflicts, shown(&f).iter().filter(|(_, reason)| reason == "IdentityConflict").count()),
        (1, 1)
    );
}

#[test]
fn no_object_takes_the_name_of_another_one_with_characters_that_nobody_sees() {
    let mut f = fixture();
    put(&mut f, "One", "a", json!({"app": "p\u{0}eu-1"}));
    put(&mut f, "One", "b", json!({"cluster": "eu-1\n"}));
    assert_eq!(shown(&f), is(&[("n/a", "EvaluationFailed"), ("n/b", "EvaluationFailed")]));
}

//! Since when the engine vouches for a package.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use statusbridge_contract::Metric;

use super::{
    tests::{Fixture, LIST, compile},
    *,
};
use crate::state::Publisher;

/// Sources that make a verdict of: the object alone, one that it names, those that have a label, what it is made of.
const SOURCES: &str = r"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: alone
spec:
  kinds:
    - {group: test.dev, kind: Alone, versions: [v1]}
  revisions:
    appliedExpression: object.?spec.?revision
  apply:
    - {whenExpression: object.?spec.?state.orValue('') == 'busy', state: Applying}
    - {whenExpression: object.?spec.?state.orValue('') == 'bad', state: Failed, reasonExpression: object.?spec.?why}
    - {state: Applied}
  health: [{state: Current}]
  sinceExpression: object.?spec.?since
  hold: {whenExpression: object.?spec.?state.orValue('') == 'busy', keyExpression: object.?spec.?revision}
  samples: [{object: {apiVersion: test.dev/v1, kind: Alone, metadata: {name: a, namespace: n}, spec: {revision: r1}}}]
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: naming
spec:
  kinds:
    - {group: test.dev, kind: Naming, versions: [v1]}
  related:
    - name: other
      kinds: [{group: test.dev, kind: Other, versions: [v1]}]
      reference:
        nameExpression: object.?spec.?other
  apply:
    - {whenExpression: other.?spec.?state.orValue('') == 'bad', state: Failed}
    - {state: Applied}
  health: [{state: Current}]
  sinceExpression: object.?spec.?since
  samples: [{object: {apiVersion: test.dev/v1, kind: Naming, metadata: {name: a, namespace: n}}}]
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: labelling
spec:
  kinds:
    - {group: test.dev, kind: Labelling, versions: [v1]}
  related:
    - name: others
      kinds: [{group: test.dev, kind: Other, versions: [v1]}]
      labels:
        match:
          - {label: of, valueExpression: object.metadata.name}
  apply:
    - whenExpression: others.exists(o, o.?spec.?state.orValue('') == 'bad')
      state: Failed
    - {state: Applied}
  health: [{state: Current}]
  samples: [{object: {apiVersion: test.dev/v1, kind: Labelling, metadata: {name: a, namespace: n}}}]
---
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: made
spec:
  kinds:
    - {group: test.dev, kind: Made, versions: [v1]}
  revisions:
    appliedExpression: object.?spec.?revision
  apply: [{state: Applied}]
  health: [{state: Resources, unwatched: {state: Unknown}}]
  resources:
    watch:
      enabled: true
      referencesExpression: object.?spec.?parts
  samples:
    - object:
        apiVersion: test.dev/v1
        kind: Made
        metadata: {name: a, namespace: n}
        spec: {revision: r1, parts: [{group: test.dev, kind: Part, name: p}]}
";

const ALONE: usize = 0;
const NAMING: usize = 1;
const LABELLING: usize = 2;
const MADE: usize = 3;

/// An object of the namespace; version and UID are one, as each is made only once here.
fn object(name: &str, version: u64, spec: Value) -> Change {
    let object = json!({
        "metadata": {
            "name": name, "namespace": "n", "resourceVersion": version.to_string(), "uid": "u",
            "creationTimestamp": "2023-11-14T00:00:00Z", "labels": {"of": "a"},
        },
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": spec.get("ready").cloned().unwrap_or(json!("True"))}]},
    });
    Change::Object(PackageKey::new(Some("n"), name), object)
}

fn recreated(mut change: Change, created: &str) -> Change {
    if let Change::Object(_, object) = &mut change {
        object["metadata"]["uid"] = json!("another");
        object["metadata"]["creationTimestamp"] = json!(created);
    }
    change
}

fn good() -> Value {
    json!({"revision": "r1", "other": "o", "parts": [{"group": "test.dev", "kind": "Part", "namespace": "n", "name": "p"}]})
}

fn with(field: &str, value: &str) -> Value {
    let mut spec = good();
    spec[field] = json!(value);
    spec
}

/// One package of each source, all that they rest on at version 1, and everything listed.
fn started() -> Fixture {
    let mut f = Fixture::of(SOURCES, Limits::default());
    f.list("Other", |f| f.hear("Other", object("o", 1, good())));
    for kind in ["Alone", "Naming", "Labelling"] {
        f.list(kind, |f| f.hear(kind, object("a", 1, good())));
    }
    f.list("Made", |f| f.hear("Made", object("a", 1, good())));
    f.obey();
    f.list("Part", |f| f.hear("Part", object("p", 1, good())));
    confirm(&mut f);
    for source in [ALONE, NAMING, LABELLING, MADE] {
        assert_eq!(f.value(Metric::PackageHealth, source, "a"), Some(0), "{source}");
    }
    f
}

/// Answers the reads of the package that is made of parts.
fn confirm(f: &mut Fixture) {
    for command in f.obey() {
        let Command::Read(request) = command else { panic!("{command:?}") };
        let Change::Object(key, object) = object("a", 1, good()) else { unreachable!() };
        let change =
            Change::Read { reading: request.reading, objects: vec![(key, object)], asked: request.asked };
        f.apply(request.kind, change);
    }
}

fn since(f: &Fixture, source: usize) -> u64 {
    f.value(Metric::PackageTransitionTimestamp, source, "a").unwrap()
}

fn seconds(f: &Fixture) -> u64 {
    f.now.cast_unsigned() / 1000
}

/// A list of a kind that brings these, after some time; whether that moves the time of a package to then.
fn relist(f: &mut Fixture, kind: &str, list: Change, objects: Vec<Change>, source: usize) -> bool {
    let before = since(f, source);
    f.now += 50_000;
    let began = seconds(f);
    f.hear(kind, list);
    objects.into_iter().for_each(|change| f.hear(kind, change));
    f.hear(kind, Change::ListDone);
    confirm(f);
    let after = since(f, source);
    assert!(after == before || after >= began, "{after} is neither {before} nor after {began}");
    after != before
}

#[rstest]
#[case::the_object_itself("Alone", "a", ALONE)]
#[case::what_it_names("Other", "o", NAMING)]
#[case::a_package_that_names("Naming", "a", NAMING)]
#[case::a_package_that_is_made_of_parts("Made", "a", MADE)]
#[case::what_it_is_made_of("Part", "p", MADE)]
fn after_a_gap_a_time_stands_only_if_nothing_is_another_version(
    #[case] kind: &str,
    #[case] name: &str,
    #[case] source: usize,
) {
    let same = || object(name, 1, good());
    assert!(!relist(&mut started(), kind, LIST, vec![same()], source), "the same version");
    assert!(relist(&mut started(), kind, LIST, vec![object(name, 2, good())], source), "a later version");
    let again = recreated(same(), "2023-11-14T00:00:00Z");
    assert!(relist(&mut started(), kind, LIST, vec![again], source), "another object of the name");
    let restored = || Change::ListStarted { server: Some(0), restored: true };
    assert!(relist(&mut started(), kind, restored(), vec![same()], source), "the server went back in time");
    let old = object(name, 1, with("since", "2020-01-01T00:00:00Z"));
    assert!(relist(&mut started(), kind, restored(), vec![old], source), "and so did what it says itself");
}

#[test]
fn after_a_gap_no_time_stands_that_rests_on_a_set_or_on_there_being_nothing() {
    let mut f = started();
    assert!(relist(&mut f, "Other", LIST, vec![object("o", 1, good())], LABELLING));
    // What is named is not there, before and after.
    f.hear("Naming", object("a", 2, with("other", "nothing")));
    assert!(relist(&mut f, "Other", LIST, vec![object("o", 1, good())], NAMING));
}

#[test]
fn a_list_that_breaks_off_hides_no_change() {
    let mut f = started();
    f.hear("Alone", LIST);
    f.hear("Alone", object("a", 2, good()));
    let moved = since(&f, ALONE);
    assert_eq!(moved, seconds(&f));
    assert!(!relist(&mut f, "Alone", LIST, vec![object("a", 2, good())], ALONE));
}

#[test]
fn what_is_watched_moves_the_time_with_each_change_and_with_nothing_else() {
    let mut f = started();
    let first = since(&f, ALONE);
    for (version, spec) in
        [(2, with("since", "2020-01-01T00:00:00Z")), (3, with("why", "Because")), (4, good())]
    {
        f.hear("Alone", object("a", version, spec));
        assert_eq!(since(&f, ALONE), first);
    }
    // There and back within a second.
    f.apply(f.kind("Alone"), object("a", 5, with("state", "bad")));
    f.now += 10;
    f.apply(f.kind("Alone"), object("a", 6, good()));
    let key = PackageKey::new(Some("n"), "a");
    assert_eq!(f.engine.readers[ALONE].packages[&key].shown.since, f.now);
    // A timer that decides nothing, and its end.
    let moved = since(&f, ALONE);
    f.hear("Alone", object("a", 7, with("state", "busy")));
    f.hear("Alone", object("a", 8, good()));
    f.now += 60_000;
    f.engine.expire(Moment::unix(f.now));
    assert_eq!(since(&f, ALONE), moved);
}

#[test]
fn the_first_sight_is_now_or_what_one_object_alone_says_by_the_servers_clock() {
    let of_its_own = |kind: &str, change: Change, server: Option<i64>| {
        let mut f = Fixture::of(SOURCES, Limits::default());
        for other in ["Other", "Alone", "Naming"] {
            f.hear(other, Change::ListStarted { server, restored: false });
            if other == kind {
                f.hear(kind, change_of(&change));
            }
            f.hear(other, Change::ListDone);
        }
        let source = if kind == "Alone" { ALONE } else { NAMING };
        (since(&f, source), seconds(&f))
    };
    fn change_of(change: &Change) -> Change {
        let Change::Object(key, object) = change else { unreachable!() };
        Change::Object(key.clone(), object.clone())
    }
    // 1,700,000,000 is 22:13:20.
    let old = object("a", 1, with("since", "2023-11-14T22:00:00Z"));
    assert_eq!(of_its_own("Alone", change_of(&old), Some(0)).0, 1_699_999_201, "rounded up");
    assert_eq!(of_its_own("Alone", change_of(&old), Some(600_000)).0, 1_699_998_601, "the server is ahead");
    let young = recreated(change_of(&old), "2023-11-14T22:10:00Z");
    assert_eq!(of_its_own("Alone", young, Some(0)).0, 1_699_999_801, "not before it was there");
    let (at, now) = of_its_own("Alone", change_of(&old), None);
    assert!(at + 5 > now, "without the server's clock");
    let (at, now) = of_its_own("Naming", old, Some(0));
    assert!(at + 5 > now, "it rests on another object as well");
}

/// The object says to have been well since long before; this process has seen it fail in between.
#[rstest]
#[case::and_the_source_became_another(|f: &mut Fixture| {
    f.engine.use_sources(compile(&SOURCES.replacen("spec:", "spec:\n  description: new", 1)));
    f.obey();
})]
#[case::and_then_did_not_find_it(|f: &mut Fixture| {
    f.hear("Alone", LIST);
    f.hear("Alone", Change::ListDone);
})]
fn no_time_of_its_own_reaches_back_to_what_was_seen_otherwise(#[case] gap: fn(&mut Fixture)) {
    let mut f = started();
    f.hear("Alone", object("a", 2, with("state", "bad")));
    gap(&mut f);
    f.now += 50_000;
    let began = seconds(&f);
    f.list("Alone", |f| f.hear("Alone", object("a", 3, with("since", "2023-11-14T00:00:00Z"))));
    assert_eq!(f.value(Metric::PackageHealth, ALONE, "a"), Some(0));
    assert!(since(&f, ALONE) >= began, "{} is before {began}", since(&f, ALONE));
}

#[test]
fn a_package_that_appears_while_it_is_watched_is_vouched_for_from_then_on() {
    let mut f = started();
    f.hear("Alone", Change::Deleted(PackageKey::new(Some("n"), "a")));
    f.now += 50_000;
    f.hear("Alone", object("a", 3, with("since", "2020-01-01T00:00:00Z")));
    assert!(since(&f, ALONE) >= seconds(&f) - 1, "made anew with an old status");
}

#[test]
fn no_verdict_that_may_have_been_lost_is_held_over_a_gap() {
    let mut f = started();
    f.hear("Alone", LIST);
    f.hear("Alone", object("a", 3, with("state", "busy")));
    f.hear("Alone", Change::ListDone);
    assert_eq!(f.value(Metric::PackageApplyState, ALONE, "a"), Some(1), "it may have failed meanwhile");
    f.hear("Alone", object("a", 4, with("state", "bad")));
    f.hear("Alone", LIST);
    f.hear("Alone", object("a", 5, with("state", "busy")));
    f.hear("Alone", Change::ListDone);
    assert_eq!(f.value(Metric::PackageApplyState, ALONE, "a"), Some(6), "a failure is");
}

#[test]
fn a_failure_that_a_single_read_was_too_quick_to_see_moves_the_time() {
    let mut f = started();
    let part = |version, ready: &str| object("p", version, with("ready", ready));
    let Change::Object(key, read) = part(8, "True") else { unreachable!() };
    let reading = Reading::Object(key.clone());
    f.hear("Part", Change::Read { reading, objects: vec![(key, read)], asked: 0 });
    f.now += 50_000;
    let before = since(&f, MADE);
    f.hear("Part", part(6, "True"));
    assert_eq!(since(&f, MADE), before);
    f.hear("Part", part(7, "False"));
    assert!(since(&f, MADE) > before);
    assert_eq!(f.value(Metric::PackageHealth, MADE, "a"), Some(0));
}

#[test]
fn what_a_single_read_passed_over_is_missed_unless_the_watch_brings_it() {
    let part = || object("p", 8, good());
    let read = |f: &mut Fixture| {
        let Change::Object(key, object) = part() else { unreachable!() };
        let reading = Reading::Object(key.clone());
        f.hear("Part", Change::Read { reading, objects: vec![(key, object)], asked: 0 });
    };
    let mut f = started();
    read(&mut f);
    assert!(relist(&mut f, "Part", LIST, vec![part()], MADE), "the watch ended before it came that far");
    let mut f = started();
    read(&mut f);
    f.hear("Part", part());
    assert!(!relist(&mut f, "Part", LIST, vec![part()], MADE), "the watch brought it all");
    read(&mut f);
    assert!(!relist(&mut f, "Part", LIST, vec![part()], MADE), "it read what the watch had brought");
}

#[test]
fn a_read_of_all_that_is_late_for_one_object_moves_no_time_of_others() {
    let mut f = started();
    let mut other = good();
    other["parts"][0]["name"] = json!("q");
    f.hear("Part", object("p", 9, good()));
    f.hear("Made", object("b", 2, other.clone()));
    // Its part is read, and then it is read once more.
    for (name, spec) in [("q", good()), ("b", other)] {
        for command in f.obey() {
            let Command::Read(request) = command else { panic!("{command:?}") };
            let Change::Object(key, object) = object(name, 2, spec.clone()) else { unreachable!() };
            let (reading, objects) = (request.reading, vec![(key, object)]);
            f.apply(request.kind, Change::Read { reading, objects, asked: request.asked });
        }
    }
    let times = |f: &Fixture| ["a", "b"].map(|name| f.value(Metric::PackageTransitionTimestamp, MADE, name));
    let [of_a, of_b] = times(&f);
    f.now += 50_000;
    let late = [object("p", 8, with("ready", "False")), object("q", 2, good())].map(|change| match change {
        Change::Object(key, object) => (key, object),
        _ => unreachable!(),
    });
    f.hear("Part", Change::Read { reading: Reading::All, objects: late.into(), asked: 0 });
    assert_eq!(f.value(Metric::PackageHealth, MADE, "b"), Some(0));
    let after = times(&f);
    assert_ne!(after[0], of_a, "a version was passed over");
    assert_eq!(after[1], of_b);
}

#[test]
fn a_source_is_up_only_while_each_of_its_watches_has_kept_up_since_the_last_pause() {
    let mut f = started();
    let up = |f: &Fixture, now: Moment| {
        let snapshot = f.engine.lock().snapshot(Publisher::default(), Duration::from_secs(60), now);
        let mut up = None;
        snapshot.for_each_sample(Metric::SourceUp, |labels, value| {
            if labels[0].1 == "naming" {
                up = Some(value == 1);
            }
        });
        up.unwrap()
    };
    let contact = f.now;
    f.hear("Naming", Change::Contact(contact));
    f.hear("Other", Change::Contact(contact));
    let now = Moment::unix(contact + 60_000);
    assert!(up(&f, now));
    assert!(!up(&f, Moment { boot: now.boot + 1, ..now }), "too long ago");
    let paused = Moment { resumed: contact + 1, ..now };
    assert!(!up(&f, paused), "before the pause");
    f.hear("Naming", Change::Contact(contact + 2));
    assert!(!up(&f, paused), "only one of two");
    f.hear("Other", Change::Contact(contact + 2));
    assert!(up(&f, paused));

    // What is heard has to be taken in soon, whatever came before it.
    let naming = f.engine.kinds.iter().find(|kind| kind.of.kind == "Naming").unwrap().contact.clone();
    let heard = contact + 10_000;
    naming.hear(heard);
    naming.hear(heard + 1_000);
    f.hear("Naming", Change::Contact(heard - 1));
    assert!(up(&f, Moment::unix(heard + 8_000)));
    assert!(!up(&f, Moment::unix(heard + 8_001)), "behind");
    f.hear("Naming", Change::Contact(heard));
    assert!(up(&f, Moment::unix(heard + 8_000)) && !up(&f, Moment::unix(heard + 8_001)), "more was heard");
    f.hear("Naming", Change::Contact(heard + 1_000));
    assert!(up(&f, Moment::unix(heard + 8_001)));
}

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::RevisionFrom;

use super::Resolution;
use super::ledger::{self, Change, Failure, MOST_PLACES, News};
use super::object::{MAX_OBJECT, MOST_OF_A_NAMESPACE, ReadObject, Refusal, Room, Sent, Shelf};
use super::reference::{Place, Reference, read};
use crate::reconcile::object::Key;
use crate::testing::{kept, sent};

/// A ledger whose expressions are all evaluated as soon as anything happens, some time after what happened before.
struct Ledger {
    of: ledger::Ledger,
    now: Duration,
    evaluations: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { of: ledger::Ledger::default(), now: Duration::ZERO, evaluations: 0 }
    }
}

impl Ledger {
    fn ask(&mut self, package: &Key, from: Option<&RevisionFrom>) -> Change {
        let change = self.of.ask(package, from, self.now);
        self.evaluate();
        change
    }

    fn take(&mut self, place: &Place, news: News) -> BTreeSet<Key> {
        let mut changed = self.of.take(place, news, self.now);
        changed.extend(self.evaluate());
        changed
    }

    fn evaluate(&mut self) -> BTreeSet<Key> {
        self.now += Duration::from_secs(2);
        let mut changed = BTreeSet::new();
        while let Some(next) = self.of.next(self.now) {
            self.evaluations += 1;
            changed.extend(self.of.evaluated(next.run(), self.now));
        }
        changed
    }

    fn resolution(&self, package: &Key, from: &RevisionFrom) -> &Resolution {
        self.of.resolution(package, from)
    }
}

fn from(kind: &str, name: &str, expression: &str) -> RevisionFrom {
    RevisionFrom {
        api_version: "v1".into(),
        kind: kind.into(),
        name: name.into(),
        expression: expression.into(),
    }
}

fn config_map(name: &str) -> RevisionFrom {
    from("ConfigMap", name, "object.data.revision")
}

fn key(name: &str) -> Key {
    Key { namespace: "fleet".into(), name: name.into() }
}

fn place() -> Place {
    Place { namespace: "fleet".into(), api_version: "v1".into(), kind: "ConfigMap".into() }
}

fn object(revision: &str) -> ReadObject {
    kept(&json!({"data": {"revision": revision}}))
}

/// What an expression gives on an object.
fn given(expression: &str, object: &Value) -> Result<String, String> {
    let reference = Reference::check("fleet", &from("ConfigMap", "a", expression)).expect(expression);
    read(&reference.compile().expect(expression), &place(), &object.to_string())
}

fn listed(asked: &[&str], objects: &[(&str, &str)]) -> News {
    News::Listed {
        asked: asked.iter().map(|name| (*name).to_owned()).collect(),
        objects: objects.iter().map(|(name, revision)| ((*name).to_owned(), object(revision))).collect(),
    }
}

fn names(keys: impl IntoIterator<Item = Key>) -> Vec<String> {
    keys.into_iter().map(|key| key.name).collect()
}

/// The revision, or the reason why there is none and whether a person is needed.
fn said(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Pending => "Pending".to_owned(),
        Resolution::Revision(revision) => revision.clone(),
        Resolution::Unresolved(it) => {
            format!("{}{}: {}", it.reason, if it.stalled { " for good" } else { "" }, it.message)
        }
    }
}

#[test]
fn a_namespace_refers_to_so_many_kinds_and_no_more() {
    let mut ledger = Ledger::default();
    let of_kind = |n: usize| from(&format!("Kind{n}"), "a", "object.data.revision");
    for n in 0..MOST_PLACES {
        assert!(ledger.ask(&key(&format!("p{n}")), Some(&of_kind(n))).added.is_some(), "{n}");
    }
    let (late, one_more) = (key("late"), of_kind(MOST_PLACES));
    assert_eq!(ledger.ask(&late, Some(&one_more)), Change::default());
    let said = said(ledger.resolution(&late, &one_more));
    assert!(
        said.starts_with("InvalidSpec for good: revisionFrom: FleetPackages of this namespace already refer"),
        "{said}"
    );
    // Neither a kind that is watched already nor another namespace is kept out.
    let known = from("Kind0", "b", "object.data.revision");
    assert!(ledger.ask(&late, Some(&known)).added.is_some());
    let elsewhere = Key { namespace: "elsewhere".into(), name: "p".into() };
    assert!(ledger.ask(&elsewhere, Some(&one_more)).added.is_some());
}

#[test]
fn a_value_is_wanted_as_long_as_its_object_says_it() {
    let mut ledger = Ledger::default();
    let (p, from) = (key("p"), config_map("a"));
    let change = ledger.ask(&p, Some(&from));
    assert_eq!(change, Change { added: Some((place(), "a".into())), dropped: None });
    let now = |ledger: &Ledger| said(ledger.resolution(&p, &from));
    assert_eq!(now(&ledger), "Pending");
    assert_eq!(names(ledger.take(&place(), listed(&["a"], &[("a", "r1")]))), ["p"]);
    assert_eq!(now(&ledger), "r1");
    let same = News::Changed("a".into(), Some(object("r1")));
    assert!(ledger.take(&place(), same).is_empty(), "nothing follows from the same value");
    ledger.take(&place(), News::Changed("a".into(), Some(object(" r2\n"))));
    assert_eq!(now(&ledger), "r2", "white space is dropped");
    ledger.take(&place(), News::Changed("a".into(), None));
    assert_eq!(now(&ledger), "RevisionNotFound: revisionFrom: there is no ConfigMap \"a\" in this namespace");
    ledger.take(&place(), News::Changed("a".into(), Some(object("r3"))));
    assert_eq!(now(&ledger), "r3");
    for (failure, expected) in [
        (Failure::NotServed, "RevisionNotFound: revisionFrom: the hub has no kind ConfigMap in v1 (yet)"),
        (
            Failure::Forbidden { verb: "list", resource: "configmaps".into() },
            "RevisionForbidden for good: revisionFrom: the aggregator may not list configmaps in this namespace",
        ),
        (Failure::Unfit("why".into()), "InvalidSpec for good: revisionFrom: why"),
        (
            Failure::NotAnswered("no".into()),
            "RevisionUnreadable: revisionFrom: ConfigMap \"a\" cannot be read: no",
        ),
    ] {
        assert_eq!(names(ledger.take(&place(), News::Failed(failure))), ["p"]);
        assert_eq!(now(&ledger), expected, "the old value is gone");
        // An event of a watch that broke brings nothing back.
        ledger.take(&place(), News::Changed("a".into(), Some(object("r3"))));
        assert_eq!(now(&ledger), expected);
        ledger.take(&place(), listed(&["a"], &[("a", "r3")]));
        assert_eq!(now(&ledger), "r3");
    }
    assert_eq!(ledger.ask(&p, None), Change { added: None, dropped: Some((place(), "a".into())) });
    assert_eq!(now(&ledger), "Pending");
    assert!(ledger.take(&place(), listed(&["a"], &[("a", "r4")])).is_empty(), "nobody asks any more");
}

#[test]
fn a_value_counts_for_no_other_reference() {
    let mut ledger = Ledger::default();
    let p = key("p");
    ledger.ask(&p, Some(&config_map("a")));
    ledger.take(&place(), listed(&["a"], &[("a", "r1")]));
    for other in [
        config_map("b"),
        from("ConfigMap", "a", "object.data.revision + ''"),
        from("Lease", "a", "object.data.revision"),
        RevisionFrom { api_version: "apps/v1".into(), ..config_map("a") },
    ] {
        // Also before the ledger was told of the change.
        assert_eq!(said(ledger.resolution(&p, &other)), "Pending", "{other:?}");
    }
    // The same object, read in another way: no watch needs to be told.
    let other = from("ConfigMap", "a", "object.data.revision + '!'");
    assert_eq!(ledger.ask(&p, Some(&other)), Change::default());
    assert_eq!(said(ledger.resolution(&p, &other)), "r1!");
    assert_eq!(said(ledger.resolution(&p, &config_map("a"))), "Pending");
    // Another object of the same kind: not known until it was listed.
    let change = ledger.ask(&p, Some(&config_map("b")));
    let objects = (Some((place(), "b".into())), Some((place(), "a".into())));
    assert_eq!((change.added, change.dropped), objects);
    assert_eq!(said(ledger.resolution(&p, &config_map("b"))), "Pending");
}

#[test]
fn packages_share_what_they_refer_to() {
    let mut ledger = Ledger::default();
    let (p, q, r) = (key("p"), key("q"), key("r"));
    ledger.ask(&p, Some(&config_map("a")));
    assert_eq!(ledger.ask(&q, Some(&config_map("a"))), Change::default());
    ledger.take(&place(), listed(&["a"], &[("a", "r1")]));
    ledger.ask(&r, Some(&config_map("b")));
    assert_eq!(said(ledger.resolution(&r, &config_map("b"))), "Pending", "the list did not look for it");
    assert_eq!(said(ledger.resolution(&p, &config_map("a"))), "r1", "and harms nobody else");
    assert_eq!(names(ledger.take(&place(), News::Changed("a".into(), Some(object("r2"))))), ["p", "q"]);
    assert_eq!(names(ledger.take(&place(), listed(&["a", "b"], &[("a", "r2"), ("b", "r9")]))), ["r"]);
    assert_eq!(ledger.ask(&p, None), Change::default(), "another one still refers to it");
    assert_eq!(ledger.ask(&q, None).dropped, Some((place(), "a".into())));
    // Asked for again, it is not known from before.
    ledger.ask(&q, Some(&config_map("a")));
    assert_eq!(said(ledger.resolution(&q, &config_map("a"))), "Pending");
    // A namespace has its own objects.
    let elsewhere = Key { namespace: "other".into(), name: "p".into() };
    ledger.ask(&elsewhere, Some(&config_map("b")));
    assert_eq!(said(ledger.resolution(&elsewhere, &config_map("b"))), "Pending");
}

#[rstest]
#[case::a_secret("v1", "Secret", "never read from a Secret")]
#[case::in_other_words("v1", "sEcReT", "never read from a Secret")]
#[case::of_another_group("example.com/v1", "Secret", "never read from a Secret")]
#[case::with_an_empty_group("/v1", "Secret", "is no apiVersion")]
#[case::an_empty_group("/v1", "ConfigMap", "is no apiVersion")]
#[case::no_version("apps/", "Deployment", "is no apiVersion")]
#[case::nothing("", "Deployment", "is no apiVersion")]
#[case::a_path("../api/v1", "Deployment", "is no apiVersion")]
#[case::a_longer_path("apps/v1/namespaces", "Deployment", "is no apiVersion")]
#[case::a_query("v1?x=", "ConfigMap", "is no apiVersion")]
#[case::upper_case("V1", "ConfigMap", "is no apiVersion")]
#[case::white_space("v1 ", "ConfigMap", "is no apiVersion")]
#[case::escaped("v1%2f", "ConfigMap", "is no apiVersion")]
#[case::no_kind("v1", "", "is no kind")]
#[case::a_subresource("v1", "ConfigMap/status", "is no kind")]
#[case::a_kind_with_white_space("v1", "Secret ", "is no kind")]
#[case::a_kind_that_looks_like_another("v1", "Ѕecret", "is no kind")]
#[case::our_own_status("statusbridge.dev/v1alpha1", "FleetPackage", "never read from a FleetPackage")]
fn hostile_kinds_are_refused(#[case] api_version: &str, #[case] kind: &str, #[case] expected: &str) {
    let from = RevisionFrom { api_version: api_version.into(), ..from(kind, "a", "object.data.revision") };
    let error = Reference::check("fleet", &from).expect_err("a refusal");
    assert!(error.contains(expected), "{error}");
    let mut ledger = Ledger::default();
    assert_eq!(ledger.ask(&key("p"), Some(&from)), Change::default(), "nothing is watched");
    assert!(said(ledger.resolution(&key("p"), &from)).starts_with("InvalidSpec for good: revisionFrom: "));
}

#[rstest]
#[case::of_the_core("v1", "ConfigMap")]
#[case::of_flux("source.toolkit.fluxcd.io/v1", "GitRepository")]
#[case::of_tomorrow("a-b.c1.example.com/v2beta3", "X-y1")]
#[case::a_gate("statusbridge.dev/v1alpha1", "RolloutGate")]
#[case::what_only_begins_like_a_secret("external-secrets.io/v1", "SecretStore")]
fn other_kinds_are_not(#[case] api_version: &str, #[case] kind: &str) {
    let from = RevisionFrom { api_version: api_version.into(), ..from(kind, "a", "object.data.revision") };
    assert!(Reference::check("fleet", &from).is_ok());
}

#[rstest]
#[case::syntax("object.data.", "Syntax error")]
#[case::another_variable("spec.revision", "there is no variable `spec`")]
#[case::no_such_function("env('HOME')", "there is no function `env`")]
#[case::nothing("", "the expression is empty")]
#[case::long(&format!("'{}'", "x".repeat(4096)), "at most 4096 bytes")]
#[case::deep(&format!("{}1{}", "[".repeat(40), "]".repeat(40)), "nested more than 24 deep")]
fn expressions_that_can_never_work_are_refused(#[case] expression: &str, #[case] expected: &str) {
    let from = from("ConfigMap", "a", expression);
    let refusal = |from| Reference::check("fleet", from)?.compile().map(drop);
    let error = refusal(&from).expect_err("a refusal");
    assert!(error.contains(expected), "{error}");
    let mut ledger = Ledger::default();
    ledger.ask(&key("p"), Some(&from));
    ledger.take(&place(), listed(&["a"], &[("a", "r1")]));
    assert!(said(ledger.resolution(&key("p"), &from)).starts_with("InvalidSpec for good: revisionFrom: "));
}

#[rstest]
#[case::not_there("object.data.revisoin", "No such key: revisoin")]
#[case::nothing("object.data.empty", "gives nothing")]
#[case::white_space("object.data.blank", "gives nothing")]
#[case::null("null", "gives nothing")]
#[case::not_yet("object.?status.?revision", "gives nothing")]
#[case::a_number("object.data.number", "gives int, where a string is needed")]
#[case::a_list("[object.data.revision]", "gives list, where a string is needed")]
#[case::an_object("object", "gives map, where a string is needed")]
#[case::too_long("object.data.long", "longer than 4096 bytes")]
#[case::too_costly(
    "object.data.many.map(a, object.data.many.map(b, a + b))[0][0] == 1 ? 'a' : 'b'",
    "takes more than 100000 steps"
)]
#[case::a_pattern_of_the_object(
    "'a'.matches(object.data.pattern) ? 'a' : 'b'",
    "cannot be used as a pattern"
)]
#[case::yaml_that_grows("yaml(object.data.laughs)", "budget breached")]
fn objects_that_give_no_revision_are_errors(#[case] expression: &str, #[case] expected: &str) {
    let laughs = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let below = n - 1;
        text + &format!("a{n}: &a{n} [*a{below}, *a{below}, *a{below}, *a{below}, *a{below}, *a{below}]\n")
    });
    let object = json!({"data": {
        "revision": "r1", "empty": "", "blank": " \n", "number": 7, "long": "x".repeat(4097),
        "many": (0..5000).collect::<Vec<_>>(), "pattern": "((a{50}){50}){50}", "laughs": laughs,
    }});
    let error = given(expression, &object).expect_err(expression);
    assert!(error.contains(expected) && error.len() < 2000, "{error}");
    let mut ledger = Ledger::default();
    let from = from("ConfigMap", "a", expression);
    ledger.ask(&key("p"), Some(&from));
    let objects = [("a".to_owned(), kept(&object))].into();
    ledger.take(&place(), News::Listed { asked: ["a".to_owned()].into(), objects });
    let said = said(ledger.resolution(&key("p"), &from));
    assert!(said.starts_with("RevisionInvalid: revisionFrom: ConfigMap \"a\": expression: "), "{said}");
}

#[test]
fn an_expression_is_evaluated_once_for_a_version_however_many_packages_have_it() {
    let mut ledger = Ledger::default();
    let packages: Vec<Key> = (0..200).map(|n| key(&format!("p{n}"))).collect();
    for package in &packages {
        ledger.ask(package, Some(&config_map("a")));
    }
    let first = listed(&["a"], &[("a", "r1")]);
    assert_eq!(ledger.take(&place(), first.clone()).len(), 200);
    assert_eq!(ledger.evaluations, 1);
    // A list that says the same.
    assert!(ledger.take(&place(), first).is_empty());
    assert_eq!(ledger.evaluations, 1);
    assert_eq!(ledger.take(&place(), News::Changed("a".into(), Some(object("r2")))).len(), 200);
    assert_eq!(ledger.evaluations, 2);
    ledger.ask(&packages[0], Some(&from("ConfigMap", "a", "object.data.revision + '!'")));
    assert_eq!(ledger.evaluations, 3);
}

#[test]
fn an_object_that_always_changes_is_evaluated_once_a_second_as_it_is_then() {
    let mut ledger = ledger::Ledger::default();
    let (p, from, mut now) = (key("p"), config_map("a"), Duration::ZERO);
    ledger.ask(&p, Some(&from), now);
    ledger.take(&place(), listed(&["a"], &[("a", "r0")]), now);
    let mut evaluations = 0;
    for version in 1..=100 {
        now += Duration::from_millis(100);
        let news = News::Changed("a".into(), Some(object(&format!("r{version}"))));
        ledger.take(&place(), news, now);
        if let Some(next) = ledger.next(now) {
            evaluations += 1;
            ledger.evaluated(next.run(), now);
            assert_eq!(said(ledger.resolution(&p, &from)), format!("r{version}"));
            assert!(ledger.next(now).is_none());
        }
        assert!(ledger.expire(now).is_empty());
    }
    assert_eq!(evaluations, 10);
}

#[test]
fn what_waits_for_its_turn_too_long_is_believed_no_longer() {
    let mut ledger = ledger::Ledger::default();
    let (p, from, began) = (key("p"), config_map("a"), Duration::ZERO);
    let at = |seconds| began + Duration::from_secs(seconds);
    ledger.ask(&p, Some(&from), began);
    ledger.take(&place(), listed(&["a"], &[("a", "r1")]), began);
    let first = ledger.next(began).unwrap();
    ledger.evaluated(first.run(), began);
    // Another version comes, and then others.
    for seconds in 10..40 {
        let news = News::Changed("a".into(), Some(object(&format!("r{seconds}"))));
        ledger.take(&place(), news, at(seconds));
        assert!(ledger.expire(at(seconds)).is_empty());
        assert_eq!(said(ledger.resolution(&p, &from)), "r1", "what was known stays for a while");
    }
    assert_eq!(names(ledger.expire(at(40))), ["p"]);
    let late =
        "RevisionUnreadable: revisionFrom: ConfigMap \"a\": the expression has waited 30 s for its turn";
    assert!(said(ledger.resolution(&p, &from)).starts_with(late), "{}", said(ledger.resolution(&p, &from)));
    let second = ledger.next(at(41)).unwrap();
    assert_eq!(names(ledger.evaluated(second.run(), at(41))), ["p"]);
    assert_eq!(said(ledger.resolution(&p, &from)), "r39");
    // It was gone while its expression ran: what that gives is of no object that there is.
    ledger.take(&place(), News::Changed("a".into(), Some(object("r50"))), at(50));
    let third = ledger.next(at(50)).unwrap();
    ledger.take(&place(), News::Changed("a".into(), None), at(50));
    ledger.take(&place(), News::Changed("a".into(), Some(object("r51"))), at(50));
    assert!(ledger.evaluated(third.run(), at(51)).is_empty());
    assert_eq!(said(ledger.resolution(&p, &from)), "Pending");
    let fourth = ledger.next(at(51)).unwrap();
    ledger.evaluated(fourth.run(), at(51));
    assert_eq!(said(ledger.resolution(&p, &from)), "r51");
}

/// An object that takes so many bytes as JSON, and gives this revision.
fn of_size(bytes: usize, name: &str, revision: &str) -> Sent {
    let object = |padding: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "7"},
            "data": {"revision": revision, "padding": "x".repeat(padding)},
        })
    };
    let object = object(bytes - object(0).to_string().len());
    sent(name, &object)
}

#[rstest]
#[case::small(1_000, true)]
#[case::as_large_as_any_may_be(MAX_OBJECT, true)]
#[case::larger(MAX_OBJECT + 1, false)]
#[case::as_large_as_the_api_server_takes(1_500_000, false)]
fn an_object_is_read_unless_it_is_too_large_and_again_once_it_no_longer_is(
    #[case] bytes: usize,
    #[case] is_read: bool,
) {
    let (mut ledger, mut shelf) = (Ledger::default(), Shelf::default());
    let (p, from) = (key("p"), config_map("a"));
    ledger.ask(&p, Some(&from));
    let said_of = |ledger: &Ledger| said(ledger.resolution(&p, &from));
    let expected = if is_read {
        "r2".to_owned()
    } else {
        format!(
            "RevisionUnreadable: revisionFrom: ConfigMap \"a\" takes {} KiB of JSON, and the aggregator reads 256 KiB at \
             most: refer to a smaller object",
            bytes.div_ceil(1024)
        )
    };
    let listed =
        |it: ReadObject| News::Listed { asked: ["a".into()].into(), objects: [("a".into(), it)].into() };
    ledger.take(&place(), listed(shelf.put(of_size(bytes, "a", "r2"))));
    assert_eq!(said_of(&ledger), expected);
    ledger.take(&place(), News::Changed("a".into(), Some(shelf.put(of_size(900, "a", "r1")))));
    assert_eq!(said_of(&ledger), "r1");
    // Nothing is kept of the version before.
    ledger.take(&place(), News::Changed("a".into(), Some(shelf.put(of_size(bytes, "a", "r2")))));
    assert_eq!(said_of(&ledger), expected);
    ledger.take(&place(), listed(shelf.put(of_size(900, "a", "r3"))));
    assert_eq!(said_of(&ledger), "r3");
}

#[test]
fn an_object_that_gets_too_large_while_its_expression_waits_or_runs_gives_nothing() {
    let mut ledger = ledger::Ledger::default();
    let (p, from, now) = (key("p"), config_map("a"), Duration::ZERO);
    let at_last = "RevisionUnreadable: ";
    let too_large = || News::Changed("a".into(), Some(Err(Refusal::TooLarge(MAX_OBJECT + 1))));
    ledger.ask(&p, Some(&from), now);
    ledger.take(&place(), listed(&["a"], &[("a", "r1")]), now);
    assert_eq!(names(ledger.take(&place(), too_large(), now)), ["p"]);
    assert!(ledger.next(now).is_none());
    ledger.take(&place(), News::Changed("a".into(), Some(object("r2"))), now);
    let running = ledger.next(now).unwrap();
    ledger.take(&place(), too_large(), now);
    assert!(ledger.evaluated(running.run(), now).is_empty());
    assert!(said(ledger.resolution(&p, &from)).starts_with(at_last));
}

#[test]
fn objects_of_one_namespace_share_its_room_and_leave_that_of_others_alone() {
    const LARGE: usize = MAX_OBJECT;
    let room = Room::default();
    // Two kinds in one namespace.
    let (mut one, mut other) = (Shelf::new(room.clone()), Shelf::new(room.clone()));
    let name = |n: usize| format!("a{n:02}");
    let many = MOST_OF_A_NAMESPACE / LARGE;
    let mut ledger = Ledger::default();
    let mut objects: Vec<ReadObject> = (0..many).map(|n| one.put(of_size(LARGE, &name(n), "r1"))).collect();
    assert!(objects.iter().all(Result::is_ok));
    // What is late finds no room, however often it comes, and pushes nothing out.
    let (p, from) = (key("p"), config_map("late"));
    ledger.ask(&p, Some(&from));
    ledger.take(&place(), listed(&["late"], &[]));
    for revision in ["r1", "r2"] {
        let late = other.put(of_size(5_000, "late", revision));
        assert!(matches!(late, Err(Refusal::NoRoom(_))));
        ledger.take(&place(), News::Changed("late".into(), Some(late)));
        assert_eq!(
            said(ledger.resolution(&p, &from)),
            "RevisionUnreadable: revisionFrom: ConfigMap \"late\" takes 5 KiB of JSON, which is more than is left of the \
             8 MiB that the aggregator keeps for the references of one namespace: refer to fewer or smaller objects in \
             this namespace"
        );
    }
    assert!(Shelf::new(Room::default()).put(of_size(LARGE, "late", "r1")).is_ok(), "another namespace");
    // A list that says the same, and a version that takes as much as the one before.
    let same = one.put(of_size(LARGE, &name(0), "r1")).unwrap();
    assert!(Arc::ptr_eq(&same, objects[0].as_ref().unwrap()));
    drop(same);
    objects[0] = one.put(of_size(LARGE, &name(0), "r2"));
    assert!(objects[0].is_ok());
    // Once an object goes, there is room for another one.
    assert!(!other.has_room());
    one.remove(&name(1));
    assert!(!other.has_room(), "it is still known elsewhere");
    drop(objects.remove(1));
    assert!(other.has_room() && !one.has_room(), "and is read again where it was missed");
    let late = other.put(of_size(5_000, "late", "r3"));
    assert!(!other.has_room());
    ledger.take(&place(), News::Changed("late".into(), Some(late)));
    assert_eq!(said(ledger.resolution(&p, &from)), "r3");
    // Nobody refers to any of them any more.
    objects.clear();
    one.retain(&BTreeSet::new());
    other.retain(&BTreeSet::new());
    ledger.ask(&p, None);
    assert!((0..many).all(|n| one.put(of_size(LARGE, &name(n), "r1")).is_ok()));
}

#[test]
fn an_object_that_only_grew_too_large_for_the_room_leaves_it_to_others() {
    let room = Room::default();
    let (mut one, mut other) = (Shelf::new(room.clone()), Shelf::new(room));
    let mut is_kept = |bytes, name: &str| one.put(of_size(bytes, name, "r")).is_ok();
    assert!((0..31).all(|n| is_kept(MAX_OBJECT, &format!("a{n}"))) && is_kept(MAX_OBJECT - 9_000, "b"));
    let small = other.put(of_size(8_000, "c", "r"));
    assert!(small.is_ok());
    assert!(matches!(other.put(of_size(30_000, "c", "r")), Err(Refusal::NoRoom(_))));
    drop(small);
    assert!(!other.has_room());
    assert!(other.put(of_size(8_000, "d", "r")).is_ok());
    other.remove("c");
    assert!(!other.has_room(), "nothing waits for room any more");
}

#[test]
fn what_the_api_server_sends_is_kept_without_its_managed_fields() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "a", "resourceVersion": "7", "annotations": {"note": "\u{e9}\"<"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {"f:x": "y".repeat(MAX_OBJECT)}}}],
        },
        "data": {"revision": "r1"},
    });
    let mut kept = object.clone();
    kept["metadata"].as_object_mut().unwrap().remove("managedFields");
    let event = format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
    let sent = match serde_json::from_str(&event).unwrap() {
        kube_core::WatchEvent::<Sent>::Modified(sent) => sent,
        other => panic!("{other:?}"),
    };
    assert_eq!((sent.name.as_str(), sent.version.as_str()), ("a", "7"));
    let text = Shelf::default().put(sent).unwrap();
    assert_eq!(serde_json::from_str::<Value>(text.json()).unwrap(), kept);
    let types = "object.apiVersion + ' ' + object.kind + ' ' + object.metadata.name";
    let untyped = json!({"metadata": {"name": "a"}});
    assert_eq!(given(types, &untyped).as_deref(), Ok("v1 ConfigMap a"), "lists leave them out");
    for sent in ["[]", "null", "{}", r#"{"metadata": 1}"#, r#"{"metadata": {"name": 1}}"#] {
        assert!(serde_json::from_str::<Sent>(sent).is_err(), "{sent}");
    }
}

#[test]
fn an_object_that_is_nested_too_deep_is_an_error_of_its_own() {
    let deep = format!(r#"{{"metadata":{{"name":"a"}},"spec":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let sent: Sent = serde_json::from_str(&deep).unwrap();
    let (mut ledger, p, from) = (Ledger::default(), key("p"), config_map("a"));
    ledger.ask(&p, Some(&from));
    let objects = [("a".to_owned(), Shelf::default().put(sent))].into();
    ledger.take(&place(), News::Listed { asked: ["a".to_owned()].into(), objects });
    let said = said(ledger.resolution(&p, &from));
    assert!(
        said.starts_with("RevisionInvalid: revisionFrom: ConfigMap \"a\": cannot be parsed: recursion"),
        "{said}"
    );
}

/// What the page on revisions shows works.
#[test]
fn the_examples_of_the_documentation_hold() {
    let page = include_str!("../../../../../docs/revisions.md");
    let revision = "main@sha1:1111111111111111111111111111111111111111";
    let bare = "1111111111111111111111111111111111111111";
    let objects = [
        json!({"status": {"artifact": {"revision": revision}}}),
        json!({
            "metadata": {"generation": 2}, "spec": {"lifecycle": "Published", "revision": revision},
            "status": {"observedGeneration": 2, "selfLock": {"git": {"commit": revision}}},
        }),
        json!({"data": {"payments": revision}}),
        json!({"data": {"versions.yaml": format!("payments: {revision}\n")}}),
        json!({"metadata": {"annotations": {"example.com/revision": revision}}}),
    ];
    let table = page.lines().filter(|line| line.contains("| `") && line.contains("object."));
    let cells =
        table.filter_map(|line| line.rsplit_once("| `").and_then(|(_, cell)| cell.strip_suffix("` |")));
    let yaml = page.lines().filter_map(|line| line.trim().strip_prefix("expression: "));
    let expressions: Vec<&str> = cells.chain(yaml).collect();
    assert_eq!(expressions.len(), 7, "{expressions:?}");
    for expression in expressions {
        let given: Vec<String> = objects.iter().filter_map(|object| given(expression, object).ok()).collect();
        let expected = if expression.contains(".split(") { bare } else { revision };
        assert_eq!(given, [expected], "{expression}");
    }
}

/// What may happen to a ledger.
#[derive(Debug, Clone)]
enum Happens {
    Asks(usize, Option<usize>),
    Listed(BTreeSet<usize>, BTreeSet<usize>),
    Changed(usize, bool),
    Failed,
}

fn happens() -> impl Strategy<Value = Happens> {
    let objects = || proptest::collection::btree_set(0usize..3, 0..4);
    prop_oneof![
        (0usize..4, proptest::option::of(0usize..3)).prop_map(|(p, o)| Happens::Asks(p, o)),
        (objects(), objects()).prop_map(|(asked, there)| Happens::Listed(asked, there)),
        (0usize..3, any::<bool>()).prop_map(|(o, there)| Happens::Changed(o, there)),
        Just(Happens::Failed),
    ]
}

proptest! {
    /// Whatever happens in whatever order: a watch is told exactly which objects are asked for, who
    /// is told to look again is exactly who sees something else, and a revision is seen only of an
    /// object that is there, was asked for ever since, and is what the package refers to.
    #[test]
    fn a_ledger_is_never_wrong(all in proptest::collection::vec(happens(), 0..40)) {
        let names = ["a", "b", "c"];
        let packages: Vec<Key> = (0..4).map(|p| key(&format!("p{p}"))).collect();
        let mut ledger = Ledger::default();
        let mut refers = [None::<usize>; 4];
        let mut told = BTreeSet::<String>::new();
        // What is known of an object, as long as somebody asks for it.
        let mut known = [None::<bool>; 3];
        let mut failed = false;
        let seen = |ledger: &Ledger, refers: &[Option<usize>; 4]| -> Vec<String> {
            let of = |(package, object): (&Key, &Option<usize>)| {
                object.map_or(String::new(), |it| said(ledger.resolution(package, &config_map(names[it]))))
            };
            packages.iter().zip(refers).map(of).collect()
        };
        for it in all {
            let before = seen(&ledger, &refers);
            let changed = match it {
                Happens::Asks(package, object) => {
                    let from = object.map(|object| config_map(names[object]));
                    let change = ledger.ask(&packages[package], from.as_ref());
                    refers[package] = object;
                    if let Some((_, name)) = change.added {
                        prop_assert!(told.insert(name));
                    }
                    if let Some((_, name)) = change.dropped {
                        prop_assert!(told.remove(&name));
                    }
                    failed &= !told.is_empty();
                    for (object, known) in known.iter_mut().enumerate() {
                        known.take_if(|_| !refers.contains(&Some(object)));
                    }
                    None
                }
                Happens::Listed(asked, there) => {
                    let looked_for = asked.iter().map(|at| names[*at].to_owned()).collect();
                    let objects = there.intersection(&asked).map(|at| (names[*at].to_owned(), object("r")));
                    let news = News::Listed { asked: looked_for, objects: objects.collect() };
                    if !told.is_empty() {
                        failed = false;
                        for (object, known) in known.iter_mut().enumerate() {
                            let is_known = asked.contains(&object) && refers.contains(&Some(object));
                            *known = is_known.then(|| there.contains(&object));
                        }
                    }
                    Some(ledger.take(&place(), news))
                }
                Happens::Changed(at, there) => {
                    if known[at].is_some() {
                        known[at] = Some(there);
                    }
                    Some(ledger.take(&place(), News::Changed(names[at].to_owned(), there.then(|| object("r")))))
                }
                Happens::Failed => {
                    failed = !told.is_empty();
                    known = [None; 3];
                    Some(ledger.take(&place(), News::Failed(Failure::NotServed)))
                }
            };
            let asked: BTreeSet<String> = refers.iter().flatten().map(|at| names[*at].to_owned()).collect();
            prop_assert_eq!(&told, &asked);
            let now = seen(&ledger, &refers);
            if let Some(changed) = changed {
                let differs = packages.iter().zip(before.iter().zip(&now)).filter(|(_, (a, b))| a != b);
                prop_assert_eq!(changed, differs.map(|(package, _)| package.clone()).collect::<BTreeSet<_>>());
            }
            for (object, said) in refers.iter().zip(&now) {
                let expected = match object.map(|object| known[object]) {
                    None => "",
                    Some(_) if failed => "RevisionNotFound: revisionFrom: the hub has no kind",
                    Some(None) => "Pending",
                    Some(Some(true)) => "r",
                    Some(Some(false)) => "RevisionNotFound: revisionFrom: there is no ConfigMap",
                };
                prop_assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{} is not {}", said, expected);
            }
        }
    }
}

//! What `explain` tells of objects as they may stand in the hub.

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{HubObject, Kind};
use statusbridge_core::reconcile::slices::Slice;

use super::account::{Account, account};
use super::read::{Dependency, Heartbeat, Seen};
use super::text::render;

/// 2027-01-15T08:00:00Z
const NOW: f64 = 1_800_000_000.0;
const R2: &str = "main@sha1:2222222222222222222222222222222222222222";

fn object(value: Value) -> LazyObject {
    serde_json::from_value(value).unwrap()
}

fn condition(kind: &str, is: bool, reason: &str, message: &str) -> Value {
    let status = if is { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": 3, "lastTransitionTime": "2027-01-15T07:50:00Z"})
}

fn gate(name: &str, open: bool) -> Value {
    let (reason, message) = if open {
        ("Healthy", "2 of 2 clusters healthy")
    } else {
        ("Progressing", "1 cluster in progress: us-1")
    };
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "RolloutGate",
        "metadata": {"namespace": "fleet", "name": name, "uid": name, "generation": 3},
        "spec": {
            "fleetPackageRef": {"name": "payments"}, "revision": R2, "require": "Healthy",
            "clusters": {"names": ["eu-1", "us-1", "us-9"]}, "maxFailures": "50%", "minSuccessTime": "10m",
        },
        "status": {
            "observedGeneration": 3, "asOf": "2027-01-15T07:59:40Z", "startedAt": "2027-01-15T07:00:00Z",
            "revision": R2, "healthy": "1/3",
            "clusters": {"total": 3, "healthy": 1, "applied": 1, "updated": 2, "progressing": 1, "soaking": 0,
                "failed": 0, "superseded": 0, "stale": 0, "missing": 1, "unverified": 0, "conflicting": 0},
            "waitingFor": if open { json!([]) } else { json!([{"reason": reason, "message": message, "count": 1, "clusters": ["us-1"]}]) },
            "conditions": [condition("Ready", open, reason, message), condition("Open", open, reason, message)],
        },
    })
}

fn package() -> Value {
    json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage",
        "metadata": {"namespace": "fleet", "name": "payments", "uid": "p", "generation": 2},
        "spec": {
            "package": {"source": "flux-kustomization", "namespace": "flux-system", "name": "payments"},
            "revision": R2, "clusters": {"reporting": {"minClusters": 1}}, "staleAfter": "3m", "detail": "All",
        },
        "status": {
            "observedGeneration": 2, "asOf": "2027-01-15T07:59:30Z", "lastHealthyRevision": "111111111111",
            "clusters": {"total": 2, "reporting": 2, "stale": 0, "missing": 0, "unverified": 0, "conflicting": 0,
                "updated": 2, "applied": 1, "healthy": 1, "progressing": 1, "paused": 0, "failed": 0},
            "problems": [{"clusterName": "us-1", "state": "Progressing", "reason": "Progressing", "since": "2027-01-15T07:58:00Z"}],
            "history": [{"revision": R2, "startedAt": "2027-01-15T07:00:00Z"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "Progressing", "message": "1 cluster in progress: us-1",
                "observedGeneration": 2, "lastTransitionTime": "2027-01-15T07:50:00Z"}],
        },
    })
}

fn slice(generation: i64) -> Slice {
    Slice::read(object(json!({
        "apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackageSlice",
        "metadata": {"namespace": "fleet", "name": "payments-1", "uid": "s", "ownerReferences": [
            {"apiVersion": "statusbridge.dev/v1alpha1", "kind": "FleetPackage", "name": "payments", "uid": "p", "controller": true},
        ]},
        "fleetPackageGeneration": generation, "asOf": "2027-01-15T07:59:30Z",
        "clusters": [
            {"clusterName": "eu-1", "status": "Succeeded", "state": "Healthy", "reason": "Healthy",
                "desiredRevision": R2, "appliedRevision": R2, "healthyRevision": R2, "lastTransitionTime": "2027-01-15T07:30:00Z"},
            {"clusterName": "us-1", "status": "Progressing", "state": "Progressing", "reason": "Pro\u{1b}[31mgressing",
                "desiredRevision": R2, "appliedRevision": "111111111111", "lastTransitionTime": "2027-01-15T07:58:00Z",
                "reportedBy": "management-1"},
        ],
    })), None)
    .unwrap()
}

fn alive() -> Heartbeat {
    Heartbeat::Renewed("2027-01-15T07:59:55Z".parse().unwrap(), 60)
}

fn seen(kind: Kind, subject: Value) -> Seen {
    Seen {
        kind,
        object: object(subject),
        package: Some(object(package())),
        dependencies: Vec::new(),
        slices: Ok(vec![slice(2)]),
        heartbeat: alive(),
    }
}

fn of_gate(change: impl Fn(&mut Value)) -> Seen {
    let mut object = gate("wave-2", true);
    change(&mut object);
    seen(Kind::RolloutGate, object)
}

fn told(seen: &Seen) -> Account {
    account(seen, NOW).unwrap()
}

#[test]
fn a_closed_gate_with_all_that_it_rests_on() {
    let mut object = gate("wave-2", false);
    object["spec"]["override"] = json!({"state": "Closed", "reason": "freeze"});
    object["spec"]["checks"] = json!([{"name": "error-rate", "query": "rate(errors[5m])", "max": 0.01}]);
    object["status"]["checks"] =
        json!([{"name": "error-rate", "state": "Failed", "value": "0.2", "message": "above 0.01"}]);
    object["spec"]["dependsOn"] = json!([{"name": "wave-1"}, {"name": "wave-0"}]);
    let mut behind = gate("wave-1", true);
    behind["metadata"]["generation"] = json!(4);
    let mut seen = seen(Kind::RolloutGate, object);
    let dependency = |name: &str, gate: Option<LazyObject>| Dependency {
        name: name.into(),
        package: gate.is_some().then(|| self::object(package())),
        gate,
    };
    seen.dependencies = vec![dependency("wave-1", Some(self::object(behind))), dependency("wave-0", None)];
    let account = told(&seen);
    insta::assert_snapshot!("gate_text", render(&account));
    insta::assert_snapshot!("gate_json", serde_json::to_string_pretty(&account).unwrap());
}

#[test]
fn clusters_that_are_excused_are_told() {
    let excused = json!([{"clusterName": "us-9", "reason": "a new disk", "until": "2027-01-15T09:00:00Z"}]);
    let mut seen = of_gate(|it| {
        it["status"]["clusters"] =
            json!({"total": 2, "excused": 1, "healthy": 1, "progressing": 1, "updated": 2});
        it["status"]["excused"] = excused.clone();
    });
    let mut package = package();
    package["spec"]["minObserved"] = json!(1);
    package["status"]["problems"][0]["excused"] = json!("a new disk");
    seen.package = Some(object(package.clone()));
    let mut slice = slice(2);
    slice.content.as_mut().unwrap().clusters[1].excused = Some("a new disk".into());
    seen.slices = Ok(vec![slice]);
    let account = told(&seen);
    assert_eq!(account.clusters_note, None, "three were looked at");
    let text = render(&account);
    let has = |line: &str| assert!(text.lines().any(|it| it == line), "no {line:?} in {text}");
    has(
        "Terms         1 of 2 Healthy for 10m, 1 needed; 0 failed or out of sight, 1 allowed; 2 observed, 1 needed; 1 excused",
    );
    has("Excused       us-9: a new disk until 2027-01-15T09:00:00Z");
    let us = text.lines().find(|it| it.starts_with("us-1")).unwrap();
    assert!(us.contains("a new disk") && text.contains("EXCUSED"), "{text}");

    let report = render(&told(&self::seen(Kind::FleetPackage, package)));
    assert!(
        report.contains("us-1: Progressing (Progressing) since 2027-01-15T07:58:00Z, excused: a new disk"),
        "{report}"
    );

    let ended = account_at(&seen, 3601.0);
    let doubt = "a cluster is not excused any more, and the gate has not been judged since";
    assert!(ended.doubts.iter().any(|it| it == doubt), "{:?}", ended.doubts);
}

#[test]
fn the_clusters_that_a_gate_keeps_to_are_told_and_those_that_wait() {
    let clusters = json!({"selector": {"matchLabels": {"env": "prod"}}, "freeze": true});
    let frozen = |of: &str| {
        of_gate(|it| {
            it["spec"]["clusters"] = clusters.clone();
            it["status"]["members"] =
                json!({"of": of, "since": "2027-01-15T07:00:00Z", "clusters": ["eu-1", "us-7"]});
            it["status"]["newcomers"] = json!({"count": 12, "clusters": ["us-8", "us-9"]});
        })
    };
    let names = |account: &Account| -> Vec<String> {
        account.clusters.iter().map(|it| it.row.cluster_name.clone()).collect()
    };
    let of = Fingerprint::of(&format!("{} {}", Fingerprint::of(R2), clusters["selector"])).to_string();
    let account = told(&frozen(&of));
    assert_eq!(names(&account), ["us-7", "eu-1"], "whatever the slices have");
    let text = render(&account);
    let has = |line: &str| assert!(text.lines().any(|it| it == line), "no {line:?} in {text}");
    has("Members       2, frozen at 2027-01-15T07:00:00Z");
    has("Newcomers     12: us-8, us-9");
    assert_eq!(names(&told(&frozen("of-another"))), ["us-1", "eu-1"], "they are of another revision");
}

fn account_at(seen: &Seen, later: f64) -> Account {
    account(seen, NOW + later).unwrap()
}

#[test]
fn a_report_without_slices() {
    let mut object = package();
    object["spec"]["detail"] = json!("Problems");
    let mut seen = seen(Kind::FleetPackage, object);
    (seen.package, seen.slices) = (None, Ok(Vec::new()));
    insta::assert_snapshot!("package_text", render(&told(&seen)));
}

#[test]
fn an_open_gate_that_nothing_speaks_against_has_no_doubts() {
    let account = told(&of_gate(|_| {}));
    // us-9 is in no slice, and says so, but was judged as missing.
    assert_eq!(account.doubts, Vec::<String>::new());
    assert!(account.verdict.holds);
    let terms = account.terms.unwrap();
    assert_eq!((terms.needed, terms.allowed, terms.failed_or_unobserved), (2, 1, 1));
    let rows: Vec<_> = account
        .clusters
        .iter()
        .map(|it| (it.row.cluster_name.as_str(), format!("{:?}", it.at_revision.unwrap())))
        .collect();
    let expected = [("us-9", "Unknown"), ("us-1", "Desired"), ("eu-1", "Healthy")];
    assert_eq!(rows, expected.map(|(cluster, at)| (cluster, at.to_owned())));
}

#[rstest]
#[case::never_judged(|it: &mut Value| it["status"] = json!({"observedGeneration": -1}), "generation 3 of the gate has not been judged yet")]
#[case::old_generation(|it: &mut Value| it["metadata"]["generation"] = json!(4), "generation 4 of the gate has not been judged yet")]
#[case::old_revision(|it: &mut Value| it["spec"]["revision"] = json!("v3"), "the revision that was judged is not the one in the spec")]
#[case::old_evidence(|it: &mut Value| it["status"]["asOf"] = json!("2027-01-15T07:56:59Z"), "the evidence is older than staleAfter (180 s)")]
#[case::no_evidence(|it: &mut Value| it["status"]["asOf"] = Value::Null, "the status does not say how old its evidence is")]
#[case::from_the_future(|it: &mut Value| it["status"]["asOf"] = json!("2027-01-15T08:05:00Z"), "clocks differ")]
#[case::of_tomorrow(|it: &mut Value| it["spec"]["require"] = json!("Blessed"), "this version cannot read the spec")]
#[case::leaving(|it: &mut Value| it["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:59:59Z"), "being deleted")]
fn what_speaks_against_a_verdict_is_said(#[case] change: fn(&mut Value), #[case] doubt: &str) {
    let account = told(&of_gate(change));
    assert!(account.doubts.iter().any(|it| it.contains(doubt)), "{:?}", account.doubts);
    let text = render(&account);
    assert!(text.lines().any(|line| line.starts_with("DOUBT") && line.contains(doubt)), "{text}");
    assert_eq!(text.contains("NOT TO BE RELIED UPON"), account.verdict.holds, "{text}");
}

#[test]
fn a_persons_word_needs_no_evidence() {
    let account = told(&of_gate(|it| {
        it["status"]["asOf"] = Value::Null;
        it["spec"]["override"] = json!({"state": "Open", "reason": "incident 7"});
        it["status"]["conditions"][1]["reason"] = json!("Overridden");
    }));
    assert_eq!(account.doubts, Vec::<String>::new());
    let ended = told(&of_gate(|it| it["status"]["conditions"][1]["reason"] = json!("Overridden")));
    assert_eq!(ended.doubts, ["the override has ended, and the gate has not been judged since"]);
}

#[rstest]
#[case(Heartbeat::Renewed("2027-01-15T07:58:59Z".parse().unwrap(), 60), "heartbeat is 1m1s old")]
#[case(Heartbeat::Never, "there is no heartbeat")]
#[case(Heartbeat::Unreadable("forbidden".into()), "could not be read: forbidden")]
fn a_dead_aggregator_is_said(#[case] heartbeat: Heartbeat, #[case] doubt: &str) {
    let mut seen = of_gate(|_| {});
    seen.heartbeat = heartbeat;
    assert!(told(&seen).doubts.iter().any(|it| it.contains(doubt)));
    // What another reporter fills does not need it.
    let mut theirs = package();
    theirs["spec"]["managedBy"] = json!("them");
    let mut report = self::seen(Kind::FleetPackage, theirs);
    report.heartbeat = seen.heartbeat;
    assert_eq!(told(&report).doubts, Vec::<String>::new());
}

#[test]
fn rows_of_another_generation_or_age_are_doubted() {
    let mut seen = of_gate(|_| {});
    seen.slices = Ok(vec![slice(1)]);
    assert_eq!(told(&seen).doubts, ["1 of 1 slices answer another generation than the FleetPackage's 2"]);
    let later = account(&of_gate(|it| it["status"]["asOf"] = json!("2027-01-15T08:04:00Z")), NOW + 240.0);
    assert!(
        later.unwrap().doubts.iter().any(|it| it == "the evidence of a slice is 4m30s old, staleAfter is 3m")
    );
    seen.slices = Err("forbidden".into());
    let account = told(&seen);
    assert_eq!(account.clusters_note.as_deref(), Some("the slices could not be read: forbidden"));
}

#[test]
fn a_gate_without_its_package_says_so() {
    let mut seen = of_gate(|_| {});
    (seen.package, seen.slices) = (None, Ok(Vec::new()));
    let account = told(&seen);
    let doubt = "there is no FleetPackage \"payments\" in the namespace";
    assert!(account.doubts.iter().any(|it| it == doubt), "{:?}", account.doubts);
    assert_eq!(account.clusters, []);
}

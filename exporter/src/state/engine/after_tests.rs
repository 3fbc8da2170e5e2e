//! Rules that hold once some time has passed.

use serde_json::json;
use statusbridge_contract::{ApplyState, Metric};

use super::{
    tests::{Fixture, compile},
    *,
};

const SOURCE: &str = r"
apiVersion: sources.statusbridge.dev/v1alpha1
kind: Source
metadata:
  name: reporting
spec:
  kinds:
    - {group: test.dev, kind: Reporting, versions: [v1]}
  revisions:
    appliedExpression: object.?spec.?revision
  apply:
    - whenExpression: object.?spec.?revision.orValue('') != ''
      after: {sinceExpression: object.?spec.?reported, duration: 10m}
      state: Failed
      reason: Silent
    - after: {sinceExpression: object.?spec.?reported, duration: 5m}
      state: Pending
      reason: Late
    - state: Applied
  health: [{state: Current}]
  samples:
    - object: {apiVersion: test.dev/v1, kind: Reporting, metadata: {name: a, namespace: n}}
";

/// Has a package report now.
fn reports(f: &mut Fixture, name: &str) {
    let object = json!({
        "metadata": {"name": name, "namespace": "n", "resourceVersion": f.now.to_string()},
        "spec": {"revision": "r1", "reported": (f.now + 1000) / 1000},
    });
    f.hear("Reporting", Change::Object(PackageKey::new(Some("n"), name), object));
}

fn begin(names: &[&str]) -> Fixture {
    let mut f = Fixture::of(SOURCE, Limits::default());
    f.list("Reporting", |f| names.iter().for_each(|name| reports(f, name)));
    f
}

/// Nothing is heard until then, in seconds from now.
fn wait(f: &mut Fixture, seconds: i64) {
    let end = f.now + seconds * 1000;
    while let Some(at) = f.engine.next_deadline().filter(|at| *at <= end) {
        f.now = at;
        f.engine.expire(Moment::unix(at));
        while f.engine.go_on(Moment::unix(at)) {}
    }
    f.now = end;
}

fn state(f: &Fixture, name: &str) -> Option<u64> {
    f.value(Metric::PackageApplyState, 0, name)
}

fn code(state: ApplyState) -> Option<u64> {
    Some(state.code())
}

#[test]
fn rules_hold_when_their_time_has_come_and_nobody_is_woken_before_or_after() {
    let mut f = begin(&["a"]);
    let reported = f.now - 1000;
    assert_eq!(f.engine.next_deadline(), Some(reported + 300_000));
    wait(&mut f, 298);
    assert_eq!(state(&f, "a"), code(ApplyState::Applied));
    wait(&mut f, 1);
    assert_eq!(state(&f, "a"), code(ApplyState::Pending));
    assert_eq!(f.engine.next_deadline(), Some(reported + 600_000));
    wait(&mut f, 300);
    assert_eq!(state(&f, "a"), code(ApplyState::Failed));
    assert_eq!(f.engine.next_deadline(), None);
    reports(&mut f, "a");
    assert_eq!(state(&f, "a"), code(ApplyState::Applied));
}

#[test]
fn a_package_waits_once_however_often_it_changes_and_no_longer_than_it_is_there() {
    let mut f = begin(&["a", "b"]);
    for _ in 0..100 {
        reports(&mut f, "a");
    }
    let waiting = |f: &Fixture| f.engine.readers.iter().map(|reader| reader.packages.len()).sum::<usize>();
    assert_eq!((f.engine.deadlines.len(), waiting(&f)), (2, 2));
    f.hear("Reporting", Change::Deleted(PackageKey::new(Some("n"), "a")));
    assert_eq!(f.engine.deadlines.len(), 1);
    f.engine.use_sources(compile(&SOURCE.replace("5m", "6m")));
    assert_eq!(f.engine.deadlines.len(), 0, "those of the source that is gone");
}

#[test]
fn setting_the_wall_clock_moves_what_waits_for_times_of_the_wall_clock() {
    let mut f = begin(&["a"]);
    let hour_later = Moment { offset: 3_600_000, ..Moment::unix(f.now) };
    while f.engine.go_on(hour_later) {}
    assert_eq!(state(&f, "a"), code(ApplyState::Failed));
    let back = Moment::unix(f.now);
    while f.engine.go_on(back) {}
    assert_eq!(state(&f, "a"), code(ApplyState::Applied), "set back, it is as if it had not happened");
}

#[test]
fn what_time_has_made_of_a_package_is_not_older_after_a_restart() {
    let yaml = SOURCE.replace("  health:", "  sinceExpression: object.?spec.?reported\n  health:");
    assert!(!compile(&yaml)[0].rests_on_one_object());
    let without = yaml
        .replace("after: {sinceExpression: object.?spec.?reported, duration: 5m}", "whenExpression: 'false'");
    let without =
        without.replace("      after: {sinceExpression: object.?spec.?reported, duration: 10m}\n", "");
    assert!(compile(&without)[0].rests_on_one_object());
}

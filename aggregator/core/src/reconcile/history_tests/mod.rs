//! The reconciler through random histories: judging again comes to the same as judging anew, every step leads to so many
//! writes and no more, and after a poll whose writes land nothing is left to say.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

mod history;
mod steps;

use super::object::Kind;
use history::History;
use steps::{Change, Landing, Read, Step, steps};

proptest! {
    #![proptest_config(crate::testing::histories())]

    #[test]
    fn judging_again_comes_to_the_same_as_judging_anew(steps in steps()) {
        let mut history = History::new();
        for (step, landing) in steps {
            let polls_all = matches!(step, Step::Round(_));
            history.happens(step);
            history.compare()?;
            history.acts(landing)?;
            let unsaid = history.compare()?;
            prop_assert!(unsaid == 0 || !polls_all || landing != Landing::Whole, "{} are left", unsaid);
        }
    }
}

/// Whatever follows from a step lands.
fn plays_out(history: &mut History) {
    history.compare().unwrap();
    history.acts(Landing::Whole).unwrap();
    history.compare().unwrap();
}

#[test]
fn a_trace_that_a_spec_no_longer_has_is_told_no_longer() {
    let mut history = History::new();
    let id = crate::testing::package("q");
    let stage = json!({"stage": "first", "cluster": "a", "source": id.source, "namespace": id.namespace, "name": id.name});
    let plain = json!({"clusters": {"names": ["a", "b"]}, "staleAfter": "2m"});
    let mut traced = plain.clone();
    (traced["revision"], traced["trace"]) = (json!("r1"), json!([stage]));
    for (spec, stages) in [(traced, 1), (plain, 0)] {
        history.happens(Step::Package(0, spec));
        history.happens(Step::Round(15));
        plays_out(&mut history);
        let report = history.reconciler.state().packages.iter().next().unwrap();
        assert_eq!(report.status.as_ref().map(|status| status.trace.len()), Some(stages));
    }
}

#[test]
fn a_feed_that_answers_at_last_and_has_nothing_to_tell_is_news_to_who_waited_for_it() {
    let mut history = History::new();
    let wave = json!({"fleetPackageRef": {"name": "p"}, "revision": "r1", "clusters": {"names": ["b", "z"]}});
    let nothing = Step::Scraped { cluster: 2, instance: 0 };
    for step in [Step::Gate(0, wave), nothing, Step::Replanned, Step::Polled(0), Step::Polled(1)] {
        history.happens(step);
        plays_out(&mut history);
    }
}

/// What the process before said counts as long as nothing younger is known; then the new one answers.
#[test]
fn an_exporter_that_takes_over_in_the_same_second_is_believed_as_soon_as_it_is_younger() {
    let mut history = History::new();
    let moved_on = Step::Change { cluster: 0, package: 0, to: Change::Healthy(false) };
    let takes_over = Step::Restart { cluster: 0 };
    for step in [Step::Round(15), moved_on, takes_over, Step::Polled(0), Step::Round(15)] {
        history.happens(step);
        plays_out(&mut history);
    }
}

/// Nothing but what the leader before sent, which arrives late, comes between what it counted and what is said of that.
#[test]
fn what_was_counted_before_somebody_else_wrote_over_it_is_not_told_as_if_it_were_new() {
    let mut history = History::new();
    happen(&mut history, [Step::Feed { feed: 0, answers: false, ended: false }, Step::Round(15)]);
    history.happens(Step::Round(15));
    history.acts(Landing::None).unwrap();
    happen(&mut history, [Step::Leads, Step::Arrives]);
    history.happens(Step::Round(15));
    history.acts(Landing::Whole).unwrap();
    let status =
        &history.hub.of(Kind::FleetPackage).find(|it| it["metadata"]["name"] == "p").unwrap()["status"];
    assert_eq!(
        (&status["clusters"]["total"], &status["lastCounted"]),
        (&json!(1), &json!({"generation": 1}))
    );
    assert_eq!(history.compare().unwrap(), 0, "nothing is left to say");
}

/// Any FleetPackage or gate about all clusters that report the package, with `more` in its spec.
fn about_all(more: Value) -> Value {
    let mut spec = json!({"clusters": {"reporting": {"minClusters": 1}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn report(more: Value) -> Step {
    Step::Package(0, about_all(more))
}

fn gate(at: usize, more: Value) -> Step {
    let mut spec = about_all(more);
    spec["fleetPackageRef"] = json!({"name": "p"});
    Step::Gate(at, spec)
}

fn refers() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "stable", "expression": "object.data.revision"})
}

/// The profile of a cluster, in a list and after it, whichever comes first.
fn listed(cluster: usize, unhealthy: bool) -> [Step; 3] {
    let profile = || Step::Profile { cluster, label: true, unhealthy };
    [profile(), Step::Touched(5), profile()]
}

/// Random histories rarely come by these.
#[rstest]
#[case::a_reference_comes_to_another_revision([
    vec![report(json!({"staleAfter": "2m", "revisionFrom": refers()}))],
    vec![Step::Reference { namespace: 0, news: Read::Listed([Some(true), None]) }, Step::Round(15)],
    vec![Step::Reference { namespace: 0, news: Read::Holds(0, Some(false)) }],
].concat())]
#[case::a_reference_is_not_read_for_long([
    vec![Step::Round(15); 5],
    vec![report(json!({"staleAfter": "2m", "revisionFrom": refers()}))],
    vec![Step::Round(15); 4],
].concat())]
#[case::a_soak_ends_and_nothing_else_happens([
    vec![gate(0, json!({"revision": "r1", "minSuccessTime": "6m"}))],
    vec![Step::Round(15); 6],
].concat())]
#[case::evidence_is_older_for_a_while_and_then_as_old_as_before([
    vec![Step::Package(0, json!({"clusters": {"names": ["a", "b"]}, "staleAfter": "50s"}))],
    vec![Step::Scraped { cluster: 0, instance: 1 }],
    vec![Step::Round(15); 5],
    vec![Step::Down { cluster: 1 }],
    vec![Step::Round(15); 3],
    vec![Step::Scraped { cluster: 0, instance: 0 }, Step::Round(21), Step::Round(15)],
    vec![Step::Beat { cluster: 0, instance: 0, late: 22 }, Step::Beat { cluster: 0, instance: 0, late: 0 }],
].concat())]
#[case::a_selector_selects_another_cluster([
    vec![gate(0, json!({"revision": "r1", "clusters": {"selector": {"matchLabels": {"in": "true"}}}}))],
    listed(0, false).to_vec(),
    vec![Step::Round(15), Step::Round(15), Step::Profile { cluster: 1, label: true, unhealthy: false }],
].concat())]
#[case::a_cluster_joins_those_that_are_frozen([
    vec![gate(0, json!({"revision": "r1", "clusters": {"selector": {"matchLabels": {"in": "true"}}, "freeze": true}}))],
    listed(0, false).to_vec(),
    vec![Step::Round(15), Step::Profile { cluster: 1, label: true, unhealthy: false }, Step::Round(15)],
    vec![Step::Profile { cluster: 1, label: false, unhealthy: false }, Step::Round(15), Step::Leads, Step::Round(15)],
    vec![Step::Profile { cluster: 0, label: false, unhealthy: false }, Step::Round(15), Step::Unlisted, Step::Round(15)],
].concat())]
#[case::profiles_of_which_one_was_unhealthy_are_read_anew([
    listed(2, true).to_vec(),
    vec![Step::Round(15), Step::Scraped { cluster: 2, instance: 0 }, Step::Round(150), Step::Reread],
].concat())]
#[case::an_excuse_ends_and_nothing_else_happens([
    vec![report(json!({"revision": "r1", "excused": [{"cluster": "c", "reason": "r", "until": "2027-01-15T08:03:20Z"}]}))],
    vec![gate(0, json!({"revision": "r1"})), Step::Scraped { cluster: 2, instance: 0 }],
    vec![Step::Round(15); 20],
].concat())]
#[case::a_profile_excuses_a_cluster_that_is_named([
    vec![report(json!({"revision": "r1", "excused": [{"selector": {"matchLabels": {"in": "true"}}, "reason": "r"}]}))],
    vec![gate(0, json!({"revision": "r1", "clusters": {"names": ["a", "b", "c"]}})), Step::Scraped { cluster: 2, instance: 0 }],
    vec![Step::Round(150), Step::Touched(5), Step::Profile { cluster: 2, label: true, unhealthy: false }, Step::Round(15)],
    vec![Step::Profile { cluster: 2, label: false, unhealthy: false }, Step::Unlisted, Step::Round(150)],
].concat())]
#[case::our_clock_was_behind_while_scrapes_are_rare([
    vec![report(json!({"staleAfter": "50s", "revision": "r1"}))],
    vec![Step::Round(60); 6],
    vec![Step::OwnClock(-60), Step::Tenants(Value::Null), Step::OwnClock(5)],
].concat())]
#[case::our_clock_is_set_back_and_reaches_the_time_at_which_gates_were_begun([
    vec![Step::OwnClock(0), Step::Wait(5)],
].concat())]
#[case::a_window_and_a_freeze_end_and_nothing_else_happens([
    vec![gate(0, json!({"revision": "r1", "windows": [{"schedule": "*/5 * * * *", "duration": "2m"}]}))],
    vec![Step::Round(15), Step::Freeze { namespace: 0, name: 0, span: Some((40, 100)) }],
    vec![Step::Round(15); 12],
].concat())]
#[case::an_approval_comes_and_goes([
    vec![gate(0, json!({"revision": "r1", "approval": "Required"})), Step::Round(15)],
    vec![Step::Approval { name: 0, of: Some((0, true)) }, Step::Round(15), Step::Approval { name: 1, of: Some((0, false)) }],
    vec![Step::Holds { freezes: false, news: steps::Holds::Broken }, Step::Round(15), Step::Round(150)],
    vec![Step::Holds { freezes: false, news: steps::Holds::Listed }, Step::Round(15)],
].concat())]
#[case::another_gate_closes_a_circle([
    vec![gate(0, json!({"revision": "r2"})), gate(1, json!({"revision": "r1", "dependsOn": [{"name": "g0"}]}))],
    vec![Step::Round(15), gate(0, json!({"revision": "r2", "dependsOn": [{"name": "g1"}]}))],
].concat())]
fn judging_again_comes_to_the_same_where(#[case] steps: Vec<Step>) {
    let mut history = History::new();
    for step in steps {
        history.happens(step);
        plays_out(&mut history);
    }
}

/// The first gate, as the hub has it.
fn first_gate(history: &History) -> &Value {
    history.hub.of(Kind::RolloutGate).find(|it| it["metadata"]["name"] == "g0").unwrap()
}

fn members(history: &History) -> (Value, Value, bool) {
    let status = &first_gate(history)["status"];
    let open = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|it| it["type"] == "Open" && it["status"] == "True");
    (status["members"]["clusters"].clone(), status["newcomers"]["clusters"].clone(), open)
}

/// So many that evidence is fresh.
const ROUNDS: [Step; 3] = [const { Step::Round(15) }; 3];

fn happen(history: &mut History, steps: impl IntoIterator<Item = Step>) {
    for step in steps {
        history.happens(step);
        plays_out(history);
    }
}

fn stock(history: &mut History, clusters: &[usize]) {
    history.inventory(clusters);
    plays_out(history);
}

fn freezes(revision: &str) -> Step {
    let clusters = json!({"selector": {"matchLabels": {"in": "true"}}, "freeze": true});
    gate(0, json!({"revision": revision, "clusters": clusters}))
}

/// Clusters `a` and `b` are frozen for `r1`.
fn frozen() -> History {
    let mut history = History::new();
    stock(&mut history, &[0, 1]);
    happen(&mut history, ROUNDS);
    happen(&mut history, [freezes("r1")]);
    let status = &first_gate(&history)["status"];
    assert_eq!(members(&history), (json!(["a", "b"]), Value::Null, true), "{status}");
    history
}

#[test]
fn what_is_frozen_stays_so_through_a_restart_whatever_the_inventory_says() {
    let mut history = frozen();
    stock(&mut history, &[0, 1, 2]);
    assert_eq!(members(&history), (json!(["a", "b"]), json!(["c"]), true));
    happen(&mut history, [Step::Leads]);
    happen(&mut history, ROUNDS);
    assert_eq!(members(&history), (json!(["a", "b"]), json!(["c"]), true), "profiles were not read yet");
    // `b` is in no list any more, and fails.
    stock(&mut history, &[0, 2]);
    assert_eq!(members(&history), (json!(["a", "b"]), json!(["c"]), true));
    happen(&mut history, [Step::Change { cluster: 1, package: 0, to: Change::Failed }, Step::Round(15)]);
    assert_eq!(members(&history), (json!(["a", "b"]), json!(["c"]), false));
    assert_eq!(first_gate(&history)["status"]["clusters"]["failed"], 1);
    happen(&mut history, [freezes("r2")]);
    assert_eq!(members(&history), (json!(["a", "c"]), Value::Null, false), "another revision");
}

#[test]
fn nothing_is_frozen_before_profiles_are_listed_and_every_feed_has_answered() {
    let mut history = frozen();
    happen(&mut history, [Step::Unlisted, freezes("r2"), Step::Round(15)]);
    assert_eq!(members(&history).0, Value::Null, "profiles cannot be read");
    stock(&mut history, &[0, 1]);
    assert_eq!(members(&history).0, json!(["a", "b"]));
    let silent = Step::Feed { feed: 1, answers: false, ended: true };
    happen(&mut history, [silent, Step::Replanned, freezes("r1")]);
    happen(&mut history, ROUNDS);
    assert_eq!(members(&history), (Value::Null, Value::Null, false), "one feed has not answered");
    happen(&mut history, [Step::Feed { feed: 1, answers: true, ended: true }]);
    happen(&mut history, ROUNDS);
    assert_eq!(members(&history), (json!(["a", "b"]), Value::Null, true));
}

#[test]
fn nobody_else_fixes_members_by_writing_a_status() {
    let mut history = frozen();
    history.touched_status(0, |status| status["members"]["clusters"] = json!(["a"]));
    plays_out(&mut history);
    assert_eq!(members(&history), (json!(["a", "b"]), Value::Null, true));
    history.touched_status(0, |status| drop(status.as_object_mut().unwrap().remove("members")));
    plays_out(&mut history);
    assert_eq!(members(&history), (json!(["a", "b"]), Value::Null, true));
}

/// How often verdicts had to be given anew while this happened, and all that followed landed.
fn given_anew(history: &mut History, step: Step) -> u64 {
    let counts = |history: &History| {
        history.reconciler.state().verdicts.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    };
    let [.., before] = counts(history);
    history.happens(step);
    history.acts(Landing::Whole).unwrap();
    let [.., after] = counts(history);
    after - before
}

#[test]
fn a_quiet_fleet_is_judged_once_and_then_only_refreshed() {
    let mut history = History::new();
    // Scrape intervals become known after some rounds.
    for _ in 0..5 {
        given_anew(&mut history, Step::Round(15));
    }
    let quiet: u64 = (0..40).map(|_| given_anew(&mut history, Step::Round(15))).sum();
    assert_eq!(quiet, 0);
    // What changes in one package does not concern the other.
    for step in [Step::Wait(15), Step::Change { cluster: 1, package: 0, to: Change::Healthy(false) }] {
        assert_eq!(given_anew(&mut history, step), 0);
    }
    let given = given_anew(&mut history, Step::Polled(0));
    assert_eq!(given, 6, "two FleetPackages and four gates, once after the poll and not again at the write");
}

//! checks: PromQL on application metrics that must stay within bounds.

use rstest::rstest;
use statusbridge_api::RolloutGateStatus;
use statusbridge_api::check::{Check, CheckState};
use statusbridge_api::conditions::{OPEN, RECONCILING, STALLED, find, is_true};
use statusbridge_api::rollout_gate::{Override, OverrideState};
use statusbridge_core::checks::answer::Value;
use statusbridge_core::checks::{Answer, Answered, Fault, Said};
use statusbridge_core::decide::dependencies::{Dependencies, Dependency};
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::rollout_gate::{Asked, Input, NoQuery, questions};
use statusbridge_core::decide::{Backend, Moment, Target, time, unix, worth_writing};
use statusbridge_core::fleet::observation::Row;

use crate::gate::{Case, open, reasons};
use crate::made::*;

fn check(name: &str) -> Check {
    Check {
        name: name.into(),
        query: Some(format!("query_{name}")),
        template: None,
        parameters: Default::default(),
        min: None,
        max: Some(0.01),
        window: "5m".into(),
    }
}

/// Said at a time.
fn said(at: f64, said: Said) -> Asked<'static> {
    Asked {
        query: Ok("query".into()),
        answer: Some(Answered { at, said: Box::leak(Box::new(said)) }),
        discreet: false,
    }
}

fn said_now(now: Said) -> Asked<'static> {
    said(T, now)
}

fn unasked() -> Asked<'static> {
    Asked { query: Ok("query".into()), answer: None, discreet: false }
}

fn one(value: f64) -> Said {
    Ok(Answer::One(value))
}

fn each(values: &[(&str, f64)]) -> Said {
    Ok(Answer::Clusters(
        values.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect(),
    ))
}

fn with(asked: impl IntoIterator<Item = Asked<'static>>) -> Case {
    let mut case = Case { checks: asked.into_iter().collect(), ..Case::default() };
    case.spec.terms.checks =
        ["errors", "latency", "more"].iter().take(case.checks.len()).map(|it| check(it)).collect();
    case
}

fn status(said_now: Said) -> RolloutGateStatus {
    with([said(T - 3.0, said_now)]).on([fresh(healthy(R2)), fresh(healthy(R2))])
}

#[rstest]
#[case::one_value(one(0.005), Some("0.005"))]
#[case::at_the_bound(one(0.01), Some("0.01"))]
#[case::negative_zero(one(-0.0), Some("-0"))]
#[case::each(each(&[("c00", 0.0), ("c01", 0.01)]), Some("0 to 0.01"))]
#[case::all_the_same(each(&[("c00", 0.002), ("c01", 0.002)]), Some("0.002"))]
#[case::other_clusters_do_not_matter(each(&[("c00", 0.0), ("c01", 0.0), ("c99", 7.0), ("c98", f64::NAN)]), Some("0"))]
fn what_passes(#[case] said: Said, #[case] value: Option<&str>) {
    let status = status(said);
    assert!(open(&status), "{:?}", status.waiting_for);
    assert_eq!((status.checks[0].state, status.checks[0].value.as_deref()), (CheckState::Passed, value));
    assert_eq!(status.checks[0].message, None);
}

#[rstest]
#[case::too_much(one(0.0100001), "more than 0.01", &[])]
#[case::nan(one(f64::NAN), "not a finite number", &[])]
#[case::infinite(one(f64::INFINITY), "not a finite number", &[])]
#[case::minus_infinity(one(f64::NEG_INFINITY), "not a finite number", &[])]
#[case::no_data(Err(Fault::Answer("no data".into())), "no data", &[])]
#[case::a_warning(Err(Fault::Backend("backend's answer comes with warnings: a store is gone".into())), "backend's answer comes with warnings: a store is gone", &[])]
#[case::one_cluster_is_missing(each(&[("c00", 0.0)]), "no value in c01", &["c01"])]
#[case::one_cluster_is_bad(each(&[("c00", 0.0), ("c01", 0.5)]), "more than 0.01 in c01", &["c01"])]
#[case::one_cluster_is_nan(each(&[("c00", f64::NAN), ("c01", 0.0)]), "not a finite number in c00", &["c00"])]
#[case::each_in_its_own_way(each(&[("c01", 0.5)]), "more than 0.01 in c01; no value in c00", &["c01", "c00"])]
fn what_fails(#[case] said: Said, #[case] message: &str, #[case] clusters: &[&str]) {
    let status = status(said);
    assert!(!open(&status) && is_true(&status.conditions, RECONCILING), "it may pass later");
    assert_eq!(reasons(&status), ["CheckFailed"]);
    assert_eq!(status.waiting_for[0].message, format!("check errors: {message}"));
    assert_eq!(status.waiting_for[0].clusters, clusters);
    assert_eq!(status.waiting_for[0].count, clusters.len() as u64);
    assert_eq!(
        (status.checks[0].state, status.checks[0].message.as_deref()),
        (CheckState::Failed, Some(message))
    );
}

#[test]
fn two_values_of_one_cluster_fail() {
    let twice =
        Ok(Answer::Clusters([("c00".to_owned(), Value::Several), ("c01".into(), Value::Number(0.0))].into()));
    assert_eq!(status(twice).waiting_for[0].message, "check errors: several values in c00");
}

#[test]
fn bounds_may_be_on_either_side_or_both() {
    let value = |min, max, value| {
        let mut case = with([said(T, one(value))]);
        (case.spec.terms.checks[0].min, case.spec.terms.checks[0].max) = (min, max);
        open(&case.on([fresh(healthy(R2))]))
    };
    assert!(value(Some(99.0), None, 1e300) && !value(Some(99.0), None, 98.9));
    assert!(value(Some(1.0), Some(1.0), 1.0) && !value(Some(1.0), Some(1.0), 1.1));
    assert!(value(None, Some(-5.0), -6.0) && !value(None, Some(-5.0), 0.0));
}

#[test]
fn every_check_must_pass_and_failures_are_named_first() {
    let case = with([unasked(), said(T, one(0.0)), said(T, one(1.0))]);
    let status = case.on([fresh(healthy(R2))]);
    assert_eq!(reasons(&status), ["CheckFailed", "CheckPending"]);
    assert_eq!(status.waiting_for[1].message, "check errors: not answered yet");
    let states: Vec<CheckState> = status.checks.iter().map(|check| check.state).collect();
    assert_eq!(states, [CheckState::Pending, CheckState::Passed, CheckState::Failed]);
}

#[rstest]
#[case::all_long_enough(300.0, T, None)]
#[case::one_too_new(299.0, T, Some("check errors: not at the revision for 5m yet: c01"))]
#[case::long_enough_by_now_but_not_when_it_was_asked(300.0, T - 11.0, Some("check errors: not answered yet"))]
fn a_check_counts_once_the_wave_has_been_there_for_its_window(
    #[case] held: f64,
    #[case] asked_at: f64,
    #[case] expected: Option<&str>,
) {
    // The evidence is ten seconds old.
    let newest = || fresh(Row { since: T - 10.0 - held, ..healthy(R2) });
    let status = with([said(asked_at, one(0.0))]).on([fresh(healthy(R2)), newest()]);
    assert_eq!(status.waiting_for.first().map(|it| it.message.as_str()), expected);
    let pending = expected.map(|_| "CheckPending");
    assert_eq!(reasons(&status), Vec::from_iter(pending));
}

#[test]
fn without_a_window_a_check_counts_at_once() {
    let mut case = with([said(T, one(0.0))]);
    case.spec.terms.checks[0].window = "0s".into();
    assert!(open(&case.on([fresh(Row { since: T + 30.0, ..healthy(R2) })])));
}

#[test]
fn an_answer_ages_like_evidence() {
    for (age, expected) in [(180.0, vec![]), (180.1, vec!["CheckFailed"])] {
        let status = with([said(T - age, one(0.0))]).on([fresh(healthy(R2))]);
        assert_eq!(reasons(&status), expected);
        assert_eq!(unix(status.as_of.as_ref().unwrap()), (T - age).floor());
    }
}

#[test]
fn an_open_gate_whose_check_fails_closes() {
    let opened = with([said(T, one(0.0))]).on([fresh(healthy(R2))]);
    let case = Case { previous: Some(opened), ..with([said(T, one(1.0))]) };
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["CheckFailed"]);
}

#[test]
fn a_check_is_not_asked_while_anything_else_is_missing() {
    let status = with([said(T, one(1.0))]).on([fresh(healthy(R1))]);
    assert_eq!(reasons(&status), ["NotUpdated"]);
    assert_eq!(status.checks[0].state, CheckState::Pending);
    assert_eq!(status.checks[0].message.as_deref(), Some("asked once everything else is fulfilled"));
}

fn asks(case: &Case, targets: &[Target]) -> Vec<String> {
    questions(&Input {
        generation: case.generation,
        previous: case.previous.as_ref(),
        dependencies: &case.dependencies,
        checks: &case.checks,
        moment: case.moment,
        ..asked(&case.spec, &package(), targets, &Excused::nobody())
    })
}

#[test]
fn only_gates_that_wait_for_nothing_else_ask() {
    let wave = targets([fresh(healthy(R2))]);
    assert_eq!(asks(&with([unasked()]), &wave), ["query"]);
    assert_eq!(asks(&with([said(T, one(1.0))]), &wave), ["query"], "also after it failed");
    assert_eq!(asks(&with([]), &wave), [""; 0]);
    assert_eq!(asks(&with([unasked()]), &targets([fresh(healthy(R1))])), [""; 0]);
    assert_eq!(asks(&with([unasked()]), &targets([fresh(Row { since: T - 60.0, ..healthy(R2) })])), [""; 0]);
    let mut waiting = with([unasked()]);
    waiting.dependencies = Dependencies { gates: vec![("wave-1", Dependency::NotOpen)], cycle: None };
    assert_eq!(asks(&waiting, &wave), [""; 0]);
    // A person's word may end: the answer is there by then.
    let mut word = with([unasked()]);
    word.spec.override_ = Some(Override { state: OverrideState::Open, reason: "go".into(), until: None });
    assert_eq!(asks(&word, &wave), ["query"]);
}

#[test]
fn after_a_restart_a_passed_check_stands_until_it_is_asked_again() {
    let opened = with([said(T, one(0.0))]).on([fresh(healthy(R2))]);
    let at = |later: f64, said: Asked<'static>, generation| {
        let seen = fresh(Row { ..healthy(R2) });
        let mut seen = targets([seen]);
        seen[0].observation.as_of = Some(T + later);
        let moment = Moment { t: T + later, now: NOW.now + later };
        Case { previous: Some(opened.clone()), moment, generation, ..with([said]) }
            .with(&seen, Backend::Answers)
    };
    let kept = at(60.0, unasked(), 1);
    assert!(open(&kept));
    assert_eq!(kept.as_of, opened.as_of, "no younger than the evidence of the check");
    assert!(!open(&at(171.0, unasked(), 1)), "not for longer than staleAfter");
    assert!(!open(&at(60.0, unasked(), 2)), "nor for another spec");
    assert!(!open(&at(60.0, said(T + 60.0, one(1.0)), 1)), "nor against a newer answer");
    // One that had not passed does not begin to.
    let failed = with([said(T, one(1.0))]).on([fresh(healthy(R2))]);
    let case = Case { previous: Some(failed), ..with([unasked()]) };
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["CheckPending"]);
}

#[test]
fn a_value_that_moves_is_not_written_at_every_poll() {
    let at = |value, as_of| {
        let mut status = status(one(value));
        status.as_of = Some(time(as_of));
        status
    };
    assert!(!worth_writing(Some(&at(0.001, T)), &at(0.002, T + 20.0), 180.0));
    assert!(worth_writing(Some(&at(0.001, T)), &at(0.002, T + 60.0), 180.0));
    assert!(worth_writing(Some(&at(0.001, T)), &at(0.02, T + 20.0), 180.0), "it fails now");
    assert!(!worth_writing(Some(&at(0.02, T)), &at(0.03, T + 20.0), 180.0), "it fails still");
}

#[rstest]
#[case::two_of_a_name(|checks: &mut Vec<Check>| checks.push(check("errors")), "check \"errors\": there are two of this name")]
#[case::no_bound(|checks: &mut Vec<Check>| checks[0].max = None, "check \"errors\": at least one of min and max must be set")]
#[case::bounds_crossed(|checks: &mut Vec<Check>| checks[0].min = Some(1.0), "check \"errors\": min must not be more than max")]
#[case::window(|checks: &mut Vec<Check>| checks[0].window = "soon".into(), "check \"errors\": \"soon\" is not a duration such as 90s, 3m or 1h30m")]
#[case::too_many(|checks: &mut Vec<Check>| checks.extend((0..16).map(|at| check(&format!("c{at}")))), "there are more than 16 checks")]
fn a_bad_check_is_a_bad_spec(#[case] change: fn(&mut Vec<Check>), #[case] expected: &str) {
    let mut case = with([said(T, one(0.0))]);
    change(&mut case.spec.terms.checks);
    let status = case.on([fresh(healthy(R2))]);
    assert_eq!(reasons(&status), ["InvalidSpec"]);
    assert_eq!(status.waiting_for[0].message, expected);
}

#[rstest]
#[case::bad(NoQuery::Invalid("there is no template \"x\"".into()), "InvalidSpec", "check \"errors\": there is no template \"x\"")]
#[case::refused(NoQuery::Forbidden("this namespace may not".into()), "Forbidden", "check \"errors\": this namespace may not")]
fn a_check_without_a_query_stalls_and_says_why(
    #[case] why: NoQuery,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let case = with([Asked { query: Err(why), answer: None, discreet: false }]);
    let status = case.on([fresh(healthy(R2))]);
    let open = find(&status.conditions, OPEN).unwrap();
    assert_eq!((open.reason.as_str(), open.message.as_str()), (reason, message));
    assert!(is_true(&status.conditions, STALLED));
}

#[test]
fn tenants_do_not_hear_the_backends_own_words() {
    let told = |said: Said| {
        let case = with([Asked { discreet: true, ..said_now(said) }]);
        case.on([fresh(healthy(R2))]).waiting_for[0].message.clone()
    };
    assert_eq!(
        told(Err(Fault::Backend("store of team-b is gone".into()))),
        "check errors: the metrics backend gave no usable answer: the aggregator's log says why"
    );
    assert_eq!(told(Err(Fault::Answer("no data".into()))), "check errors: no data");
}

#[test]
fn a_check_that_nobody_looked_at_keeps_the_gate_closed() {
    let mut case = with([said(T, one(0.0))]);
    case.spec.terms.checks.push(check("forgotten"));
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["CheckPending"]);
}

//! progressDeadline: what is not at the revision by then counts as failed.

use rstest::rstest;
use statusbridge_api::RolloutGateStatus;
use statusbridge_api::conditions::{RECONCILING, STALLED, find, is_true};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::{Moment, time};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::gate::{Case, open, reasons};
use crate::made::*;

/// A gate with a deadline of an hour that was first judged so many seconds ago.
fn begun(ago: f64) -> Case {
    let mut case = Case::spec(|spec| spec.terms.progress_deadline = Some("1h".into()));
    case.previous = Some(RolloutGateStatus {
        observed_generation: Some(1),
        revision: Some(R2.into()),
        started_at: Some(time(NOW.now - ago)),
        ..RolloutGateStatus::default()
    });
    case
}

#[rstest]
#[case::not_told(fresh(healthy(R1)), "NotUpdated")]
#[case::being_applied(fresh(moving(R1, R2)), "Progressing")]
#[case::not_healthy_yet(fresh(applied(R2, Health::InProgress)), "Progressing")]
#[case::nothing_checks_health(fresh(applied(R2, Health::Unknown)), "HealthUnknown")]
#[case::paused(fresh(Row { apply: ApplyState::Paused, ..moving(R1, R2) }), "Paused")]
#[case::being_deleted(fresh(Row { apply: ApplyState::Deleting, ..healthy(R2) }), "Deleting")]
fn time_out_is_what_has_not_reached_the_revision_by_the_deadline(
    #[case] seen: Observation,
    #[case] before: &str,
) {
    let early = begun(3599.0).on([seen.clone()]);
    assert_eq!(reasons(&early), [before]);
    assert!(is_true(&early.conditions, RECONCILING));
    let late = begun(3600.0).on([seen]);
    assert_eq!(reasons(&late), ["FailureBudgetExceeded"]);
    assert_eq!(late.waiting_for[0].message, "1 cluster failed, 0 allowed: c00 (TimeOut)");
    assert!(is_true(&late.conditions, STALLED) && find(&late.conditions, RECONCILING).is_none());
    let counts = late.clusters.unwrap();
    assert_eq!((counts.failed, counts.timed_out, counts.progressing, counts.total), (1, 1, 0, 1));
}

#[rstest]
#[case::failed_is_failed_anyway(fresh(failed(R1, R2)), "FailureBudgetExceeded")]
#[case::one_that_moved_on_was_there(fresh(moving(R2, R3)), "Superseded")]
#[case::soaking_is_there(fresh(Row { since: T - 20.0, ..healthy(R2) }), "Soaking")]
#[case::stale_is_out_of_sight(unobserved(Standing::Stale, Some(moving(R1, R2))), "Stale")]
#[case::missing_is_out_of_sight(unobserved(Standing::Missing, None), "Missing")]
#[case::unverified_is_out_of_sight(unobserved(Standing::Unverified, None), "Unverified")]
#[case::conflicting_is_out_of_sight(unobserved(Standing::Conflict, None), "Conflict")]
fn the_deadline_changes_nothing_for_others(#[case] seen: Observation, #[case] expected: &str) {
    let mut case = begun(7200.0);
    case.spec.terms.min_success_time = Some("10m".into());
    let status = case.on([seen]);
    assert_eq!(reasons(&status), [expected]);
    assert_eq!(status.clusters.unwrap().timed_out, 0);
}

#[test]
fn failures_and_time_outs_share_the_budget_and_nobody_is_counted_twice() {
    let wave = || {
        [
            fresh(failed(R1, R2)),
            fresh(moving(R1, R2)),
            unobserved(Standing::Stale, Some(moving(R1, R2))),
            fresh(healthy(R2)),
        ]
    };
    let with_budget = |most| {
        let mut case = begun(7200.0);
        (case.spec.terms.max_failures, case.spec.terms.min_healthy) = (count(most), count(1));
        case.on(wave())
    };
    let status = with_budget(1);
    assert_eq!(reasons(&status), ["FailureBudgetExceeded", "Stale"]);
    assert_eq!(
        status.waiting_for[0].message,
        "2 clusters failed, 1 allowed: c00 (BuildFailed), c01 (TimeOut)"
    );
    assert_eq!(
        (status.waiting_for[0].count, &status.waiting_for[0].clusters[..]),
        (2, &["c00".to_owned(), "c01".into()][..])
    );
    let counts = status.clusters.unwrap();
    assert_eq!(
        (counts.total, counts.healthy, counts.failed, counts.timed_out, counts.stale),
        (4, 1, 2, 1, 1)
    );

    // With two, the stale one is over the budget: it may come back, so nothing is stalled.
    let status = with_budget(2);
    assert_eq!(reasons(&status), ["Failed", "TimeOut", "Stale"]);
    assert_eq!(status.waiting_for[1].message, "1 cluster not at the revision by the deadline: c01");
    assert!(is_true(&status.conditions, RECONCILING));
    assert!(open(&with_budget(3)));
}

#[test]
fn one_that_recovers_after_the_deadline_counts_again() {
    let mut case = begun(7200.0);
    let stalled = case.on([fresh(moving(R1, R2))]);
    assert!(is_true(&stalled.conditions, STALLED));
    case.previous = Some(stalled);
    let status = case.on([fresh(healthy(R2))]);
    assert!(open(&status) && find(&status.conditions, STALLED).is_none());
}

#[test]
fn a_revision_that_never_came_is_named_also_after_the_deadline() {
    let mut case = begun(7200.0);
    case.seen_anywhere = false;
    let status = case.on([fresh(healthy(R1))]);
    assert_eq!(
        status.waiting_for[0].message,
        format!(
            "1 cluster failed, 0 allowed: c00 (TimeOut); no cluster has reported revision {R2} (222222222222); seen instead: 111111111111 in 1 cluster"
        )
    );
}

#[test]
fn the_deadline_counts_from_when_the_revision_was_first_judged() {
    let first =
        Case::spec(|spec| spec.terms.progress_deadline = Some("1h".into())).on([fresh(moving(R1, R2))]);
    assert_eq!(first.started_at, Some(time(NOW.now)));
    let later = |case: Case, seconds: f64| {
        let moment = Moment { t: T + seconds, now: NOW.now + seconds };
        Case { moment, previous: Some(first.clone()), ..case }.on([fresh(Row { ..moving(R1, R2) })])
    };
    let same = || Case::spec(|spec| spec.terms.progress_deadline = Some("1h".into()));
    // However long nobody looked, and whatever else changes in the spec.
    for case in [same(), Case { generation: 2, ..same() }] {
        let status = later(case, 3600.0);
        assert_eq!(
            (status.started_at.as_ref(), reasons(&status)),
            (first.started_at.as_ref(), vec!["FailureBudgetExceeded"])
        );
    }
    // The same revision in other words is the same revision.
    let mut short = Case { generation: 2, ..same() };
    short.spec.revision = Fingerprint::of(R2).to_string();
    assert_eq!(later(short, 3600.0).started_at, first.started_at);
    // Another revision has its own time.
    let mut next = Case { generation: 2, ..same() };
    next.spec.revision = R3.into();
    let status = later(next, 3600.0);
    assert_eq!(
        (status.started_at.clone(), reasons(&status)),
        (Some(time(NOW.now + 3600.0)), vec!["NotUpdated"])
    );
}

#[test]
fn a_start_that_lies_in_the_future_does_not_put_the_deadline_off() {
    let status = begun(-86_400.0).on([fresh(moving(R1, R2))]);
    assert_eq!(status.started_at, Some(time(NOW.now)));
}

#[test]
fn a_deadline_that_cannot_be_read_is_a_bad_spec() {
    let status =
        Case::spec(|spec| spec.terms.progress_deadline = Some("soon".into())).on([fresh(healthy(R2))]);
    assert_eq!(reasons(&status), ["InvalidSpec"]);
}

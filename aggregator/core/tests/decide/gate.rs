//! Each rule of a gate as a case.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use rstest::rstest;
use statusbridge_api::common::{ClusterSet, Reporting};
use statusbridge_api::conditions::{OPEN, OPENED_ONCE, READY, RECONCILING, STALLED, find, is_true};
use statusbridge_api::rollout_gate::{GateTerms, Members, Override, OverrideState, Require};
use statusbridge_api::trace::StageStatus;
use statusbridge_api::{Reason, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::closing::{self, Unwatched};
use statusbridge_core::decide::dependencies::Dependencies;
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::hold::{Approvals, Freezes};
use statusbridge_core::decide::rollout_gate::{Asked, Input, PackageSpec, decide};
use statusbridge_core::decide::{Backend, Membership, Moment, Target, time, unix, worth_writing};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::made::*;

pub struct Case {
    pub spec: RolloutGateSpec,
    pub generation: i64,
    pub previous: Option<RolloutGateStatus>,
    pub untraced: Option<&'static str>,
    pub stages: Vec<StageStatus>,
    pub seen_anywhere: bool,
    pub dependencies: Dependencies<'static>,
    pub checks: Vec<Asked<'static>>,
    pub moment: Moment,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            spec: gate(),
            untraced: None,
            stages: Vec::new(),
            generation: 1,
            previous: None,
            seen_anywhere: true,
            dependencies: Dependencies::default(),
            checks: Vec::new(),
            moment: NOW,
        }
    }
}

impl Case {
    pub fn spec(change: impl FnOnce(&mut RolloutGateSpec)) -> Self {
        let mut case = Self::default();
        change(&mut case.spec);
        case
    }

    pub fn with(&self, targets: &[Target], backend: Backend<'_>) -> RolloutGateStatus {
        decide(&Input {
            generation: self.generation,
            previous: self.previous.as_ref(),
            artifact: self.untraced.map_or_else(|| Ok(Fingerprint::of(&self.spec.revision)), Err),
            stages: &self.stages,
            seen_anywhere: &|| self.seen_anywhere,
            dependencies: &self.dependencies,
            checks: &self.checks,
            backend,
            moment: self.moment,
            ..asked(&self.spec, &package(), targets, &Excused::nobody())
        })
    }

    pub fn on(&self, observations: impl IntoIterator<Item = Observation>) -> RolloutGateStatus {
        self.with(&targets(observations), Backend::Answers)
    }
}

pub fn open(status: &RolloutGateStatus) -> bool {
    is_true(&status.conditions, OPEN)
}

pub fn reasons(status: &RolloutGateStatus) -> Vec<&str> {
    status.waiting_for.iter().map(|waiting| waiting.reason.as_str()).collect()
}

#[rstest]
#[case::healthy_there(healthy(R2), Reason::Healthy)]
#[case::healthy_without_knowing_what_is_wanted(Row { desired: Fingerprint::NONE, ..healthy(R2) }, Reason::Healthy)]
#[case::healthy_at_the_previous_revision(healthy(R1), Reason::NotUpdated)]
#[case::told_but_healthy_at_the_previous(Row { desired: Fingerprint::of(R2), ..healthy(R1) }, Reason::Progressing)]
#[case::being_applied(moving(R1, R2), Reason::Progressing)]
#[case::applied_not_healthy_yet(applied(R2, Health::InProgress), Reason::Progressing)]
#[case::applied_and_nothing_checks_health(applied(R2, Health::Unknown), Reason::HealthUnknown)]
#[case::applied_and_unhealthy(applied(R2, Health::Failed), Reason::Failed)]
#[case::failed_to_apply(failed(R1, R2), Reason::Failed)]
#[case::failed_without_knowing_what_is_wanted(Row { desired: Fingerprint::NONE, ..failed(R1, R2) }, Reason::Failed)]
#[case::failed_at_another_revision(failed(R1, R1), Reason::NotUpdated)]
#[case::healthy_but_told_to_leave(Row { desired: Fingerprint::of(R3), ..healthy(R2) }, Reason::Superseded)]
#[case::applied_and_told_to_leave(moving(R2, R3), Reason::Superseded)]
#[case::has_left(Row { previously_applied: Fingerprint::of(R2), ..healthy(R3) }, Reason::Superseded)]
#[case::failed_after_leaving(failed(R2, R3), Reason::Superseded)]
#[case::paused_on_the_way(Row { apply: ApplyState::Paused, ..moving(R1, R2) }, Reason::Paused)]
#[case::paused_there(Row { apply: ApplyState::Paused, healthy: Fingerprint::NONE, ..healthy(R2) }, Reason::Paused)]
#[case::being_deleted(Row { apply: ApplyState::Deleting, ..healthy(R2) }, Reason::Deleting)]
#[case::wants_nothing_and_is_there(Row { desired: Fingerprint::NONE, ..healthy(R2) }, Reason::Healthy)]
#[case::wants_nothing_and_is_elsewhere(Row { desired: Fingerprint::NONE, ..healthy(R1) }, Reason::NotUpdated)]
#[case::wants_nothing_and_has_left(
    Row { desired: Fingerprint::NONE, previously_applied: Fingerprint::of(R2), ..healthy(R1) }, Reason::Superseded
)]
fn what_one_cluster_counts_as(#[case] row: Row, #[case] expected: Reason) {
    let status = Case::default().on([fresh(row)]);
    let expected: &[&str] = match expected {
        Reason::Healthy => &[],
        Reason::Failed => &["FailureBudgetExceeded"],
        ref other => &[other.name()],
    };
    assert_eq!(reasons(&status), expected);
    assert_eq!(open(&status), expected.is_empty());
}

#[rstest]
#[case(Standing::Stale, "Stale")]
#[case(Standing::Missing, "Missing")]
#[case(Standing::Unverified, "Unverified")]
#[case(Standing::Conflict, "Conflict")]
#[case(Standing::ClockSkew, "ClockSkew")]
fn a_healthy_row_that_cannot_be_relied_upon_counts_for_nothing(
    #[case] standing: Standing,
    #[case] expected: &str,
) {
    let status = Case::default().on([fresh(healthy(R2)), unobserved(standing, Some(healthy(R2)))]);
    assert!(!open(&status));
    assert_eq!(reasons(&status), [expected]);
    assert_eq!(status.healthy.as_deref(), Some("1/2"));
    assert_eq!(status.waiting_for[0].clusters, ["c01"]);
}

#[rstest]
// minHealthy, maxFailures, of 10 clusters: healthy, failed, stale (the rest in progress) -> open
#[case::all_by_default(None, None, 10, 0, 0, true)]
#[case::one_in_progress(None, None, 9, 0, 0, false)]
#[case::a_failure_is_too_many_by_default(percent("50%"), None, 9, 1, 0, false)]
#[case::so_is_a_stale_one(percent("50%"), None, 9, 0, 1, false)]
#[case::within_the_budget(None, count(2), 8, 1, 1, true)]
#[case::over_the_budget(None, count(2), 7, 2, 1, false)]
#[case::the_budget_does_not_cover_progress(None, count(2), 7, 1, 1, false)]
#[case::the_budget_alone_lowers_the_need(None, count(2), 8, 0, 0, true)]
#[case::min_healthy_is_rounded_up(percent("81%"), percent("100%"), 8, 0, 0, false)]
#[case::min_healthy_is_reached(percent("81%"), percent("100%"), 9, 0, 0, true)]
#[case::max_failures_is_rounded_down(percent("10%"), percent("19%"), 8, 2, 0, false)]
#[case::max_failures_is_kept(percent("10%"), percent("19%"), 8, 1, 0, true)]
#[case::a_number_that_is_more_than_there_are(count(11), None, 10, 0, 0, false)]
#[case::never_with_nobody(None, percent("100%"), 0, 0, 0, false)]
fn need_and_budget(
    #[case] min_healthy: Option<statusbridge_api::common::Amount>,
    #[case] max_failures: Option<statusbridge_api::common::Amount>,
    #[case] well: usize,
    #[case] bad: usize,
    #[case] stale: usize,
    #[case] expected: bool,
) {
    let case = Case::spec(|spec| {
        spec.terms.min_healthy = min_healthy;
        spec.terms.max_failures = max_failures;
    });
    let wave = (0..10).map(|at| match at {
        at if at < well => fresh(healthy(R2)),
        at if at < well + bad => fresh(failed(R1, R2)),
        at if at < well + bad + stale => unobserved(Standing::Stale, None),
        _ => fresh(moving(R1, R2)),
    });
    let status = case.on(wave);
    assert_eq!(open(&status), expected, "{:?}", status.waiting_for);
    assert_eq!(status.waiting_for.is_empty(), expected);
    assert_eq!(is_true(&status.conditions, READY), expected);
}

#[test]
fn three_of_a_hundred_are_not_all() {
    let wave = (0..100).map(|at| match at {
        0..3 => fresh(healthy(R2)),
        _ => unobserved(Standing::Missing, None),
    });
    let status = Case::default().on(wave);
    assert!(!open(&status));
    assert_eq!(status.healthy.as_deref(), Some("3/100"));
    assert_eq!(status.waiting_for[0].count, 97);
    assert_eq!(status.waiting_for[0].clusters.len(), 10);
}

#[test]
fn failures_over_the_budget_stall_and_others_do_not() {
    let stalled =
        Case::default().on([fresh(healthy(R2)), fresh(failed(R1, R2)), unobserved(Standing::Stale, None)]);
    assert_eq!(reasons(&stalled), ["FailureBudgetExceeded", "Stale"]);
    assert!(is_true(&stalled.conditions, STALLED) && !is_true(&stalled.conditions, RECONCILING));
    assert_eq!(stalled.waiting_for[0].message, "1 cluster failed, 0 allowed: c01 (BuildFailed)");

    let waiting = Case::default().on([fresh(healthy(R2)), unobserved(Standing::Stale, None)]);
    assert!(is_true(&waiting.conditions, RECONCILING) && find(&waiting.conditions, STALLED).is_none());
}

#[test]
fn what_the_budget_covers_is_named_last() {
    let case = Case::spec(|spec| spec.terms.max_failures = count(2));
    let status =
        case.on([fresh(failed(R1, R2)), fresh(moving(R1, R2)), fresh(healthy(R1)), fresh(healthy(R2))]);
    assert_eq!(reasons(&status), ["NotUpdated", "Progressing", "Failed"]);
}

#[test]
fn no_clusters_and_too_few_are_closed() {
    assert_eq!(reasons(&Case::default().on([])), ["NoTargets"]);
    let case = Case::spec(|spec| {
        spec.clusters =
            ClusterSet { reporting: Some(Reporting { min_clusters: 3 }), ..ClusterSet::default() };
    });
    let status = case.on([fresh(healthy(R2)), fresh(healthy(R2))]);
    assert_eq!(reasons(&status), ["TooFewClusters"]);
    assert!(!open(&status));
}

#[test]
fn a_revision_that_nobody_knows_is_named_with_what_was_seen_instead() {
    let case = Case { seen_anywhere: false, ..Case::default() };
    let status = case.on([fresh(healthy(R1)), fresh(healthy(R1)), fresh(healthy(R3))]);
    assert_eq!(reasons(&status), ["RevisionNeverSeen"]);
    assert_eq!(
        status.waiting_for[0].message,
        format!(
            "no cluster has reported revision {R2} (222222222222); seen instead: 111111111111 in 2 clusters, 333333333333 in 1 cluster"
        )
    );
    let mut case = Case::spec(|spec| spec.revision = "222222222222".to_owned());
    case.seen_anywhere = false;
    let status = case.on([fresh(healthy(R1))]);
    let expected = "no cluster has reported revision 222222222222; seen instead: 111111111111 in 1 cluster";
    assert_eq!(status.waiting_for[0].message, expected);
}

#[rstest]
#[case::long_ago(3600.0, "10m", true)]
#[case::just_enough_with_evidence_ten_seconds_old(610.0, "10m", true)]
#[case::not_proved_by_the_evidence_yet(605.0, "10m", false)]
#[case::too_short(60.0, "10m", false)]
#[case::no_soak_asked(0.0, "0s", true)]
#[case::changes_that_lie_in_the_future(-60.0, "1s", false)]
fn soak(#[case] healthy_for: f64, #[case] min_success_time: &str, #[case] expected: bool) {
    let case = Case::spec(|spec| spec.terms.min_success_time = Some(min_success_time.into()));
    let status = case.on([fresh(Row { since: T - healthy_for, ..healthy(R2) })]);
    assert_eq!(open(&status), expected);
    let soaking = status.clusters.unwrap().soaking;
    assert_eq!(soaking, u64::from(!expected));
    assert_eq!(reasons(&status), if expected { vec![] } else { vec!["Soaking"] });
    let soak = f64::from(if min_success_time == "10m" { 600 } else { 1 });
    let until = status.waiting_for.first().map(|it| unix(it.until.as_ref().unwrap()));
    assert_eq!(until, (!expected).then_some(T - healthy_for + soak));
}

#[test]
fn applied_is_enough_when_no_more_is_asked() {
    let case = Case::spec(|spec| spec.terms.require = Require::Applied);
    let status = case.on([
        fresh(applied(R2, Health::Unknown)),
        fresh(applied(R2, Health::InProgress)),
        fresh(applied(R2, Health::Failed)),
    ]);
    assert!(open(&status), "{:?}", status.waiting_for);
    assert_eq!(find(&status.conditions, OPEN).unwrap().reason, "Applied");
    assert!(!open(&case.on([fresh(failed(R1, R2))])));
    assert!(!open(&case.on([fresh(healthy(R1))])));
}

#[test]
fn the_previous_revisions_health_never_opens_the_next_generation() {
    let first = Case::spec(|spec| spec.revision = R1.into()).on([fresh(healthy(R1))]);
    assert!(open(&first) && is_true(&first.conditions, OPENED_ONCE));
    let next = Case { generation: 2, previous: Some(first.clone()), ..Case::default() };
    let status = next.on([fresh(healthy(R1))]);
    assert!(!open(&status) && !is_true(&status.conditions, OPENED_ONCE));
    assert_eq!(status.observed_generation, Some(2));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(2)));
    // The revision's clock starts anew, and Open changed just now.
    assert_eq!((status.started_at, status.since), (Some(time(NOW.now)), Some(time(NOW.now))));
}

#[test]
fn opened_once_stays_for_the_generation_and_open_does_not() {
    let opened = Case::default().on([fresh(healthy(R2))]);
    let later = Moment { t: T + 100.0, now: T + 105.0 };
    let closed = Case { previous: Some(opened.clone()), moment: later, ..Case::default() }
        .on([unobserved(Standing::Stale, Some(healthy(R2)))]);
    assert!(!open(&closed) && is_true(&closed.conditions, OPENED_ONCE));
    assert_eq!(find(&closed.conditions, OPENED_ONCE), find(&opened.conditions, OPENED_ONCE));
    assert_eq!(closed.started_at, opened.started_at);
    assert_eq!(closed.since, Some(time(later.now)));

    let same_revision = Case { generation: 2, previous: Some(closed), moment: later, ..Case::default() }
        .on([unobserved(Standing::Stale, Some(healthy(R2)))]);
    assert!(!is_true(&same_revision.conditions, OPENED_ONCE));
    assert_eq!(same_revision.started_at, opened.started_at);
}

#[test]
fn a_persons_word_stands_until_it_ends() {
    let word = |state, until: Option<f64>| {
        Case::spec(|spec| {
            spec.override_ = Some(Override { state, reason: "incident 7".into(), until: until.map(time) });
        })
    };
    let bad = || [fresh(failed(R1, R2))];
    let status = word(OverrideState::Open, None).on(bad());
    assert!(open(&status) && is_true(&status.conditions, OPENED_ONCE) && status.waiting_for.is_empty());
    assert!(find(&status.conditions, STALLED).is_none());
    let condition = find(&status.conditions, OPEN).unwrap();
    assert_eq!(condition.reason, "Overridden");
    assert_eq!(
        condition.message,
        "opened by hand: incident 7; otherwise closed: 1 cluster failed, 0 allowed: c00 (BuildFailed)"
    );

    let status = word(OverrideState::Closed, Some(NOW.now + 60.0)).on([fresh(healthy(R2))]);
    assert!(!open(&status));
    assert_eq!(reasons(&status), ["Overridden"]);

    assert!(!open(&word(OverrideState::Open, Some(NOW.now)).on(bad())));
    assert!(open(&word(OverrideState::Closed, Some(NOW.now)).on([fresh(healthy(R2))])));
}

#[test]
fn nothing_opens_while_the_backend_does_not_answer() {
    let wave = targets([fresh(healthy(R2))]);
    let status = Case::default().with(&wave, Backend::Fails("connection refused"));
    assert_eq!(reasons(&status), ["BackendUnavailable"]);
    assert_eq!(status.waiting_for[0].message, "the metrics backend does not answer: connection refused");

    let opened = Case::default().with(&wave, Backend::Answers);
    let case = Case { previous: Some(opened.clone()), ..Case::default() };
    assert!(open(&case.with(&wave, Backend::Fails("connection refused"))), "the evidence is still fresh");
    let edited = Case { generation: 2, ..case };
    assert!(!open(&edited.with(&wave, Backend::Fails("connection refused"))));
}

#[rstest]
#[case::young_evidence(60.0, 1, true)]
#[case::old_evidence(200.0, 1, false)]
#[case::another_generation(60.0, 2, false)]
fn after_a_restart_an_open_gate_lives_on_its_last_evidence(
    #[case] age: f64,
    #[case] generation: i64,
    #[case] expected: bool,
) {
    let opened = Case::default().on([fresh(healthy(R2))]);
    let moment = Moment { t: T - 10.0 + age, now: T + age };
    let case = Case { generation, previous: Some(opened.clone()), moment, ..Case::default() };
    let status = case.with(&[], Backend::Unknown("first poll is under way"));
    assert_eq!(open(&status), expected);
    if expected {
        assert_eq!(status, opened);
    } else {
        assert_eq!(reasons(&status), ["BackendUnavailable"]);
    }
}

#[test]
fn specs_that_cannot_be_judged_are_closed() {
    let judge = |spec: Result<&RolloutGateSpec, &str>, package: PackageSpec<'_>| {
        decide(&Input {
            spec,
            generation: 1,
            previous: None,
            package,
            targets: &targets([fresh(healthy(R2))]),
            excused: &Excused::nobody(),
            membership: &Membership::Known,
            selected: None,
            unheard: None,
            artifact: Ok(Fingerprint::of(R2)),
            stages: &[],
            seen_anywhere: &|| true,
            dependencies: &Dependencies::default(),
            checks: &[],
            freezes: Freezes::default(),
            approvals: Approvals::default(),
            backend: Backend::Answers,
            moment: NOW,
        })
    };
    let managed = statusbridge_api::FleetPackageSpec { managed_by: Some("them".into()), ..package() };
    let mut contradictory = gate();
    contradictory.clusters.names = Some(vec!["c00".into()]);
    let negative =
        RolloutGateSpec { terms: GateTerms { max_failures: count(-1), ..GateTerms::default() }, ..gate() };
    let endless = RolloutGateSpec {
        terms: GateTerms { min_success_time: Some("for ever".into()), ..GateTerms::default() },
        ..gate()
    };
    for (status, reason, stalled) in [
        (judge(Err("unknown variant"), PackageSpec::NotFound), "InvalidSpec", true),
        (judge(Ok(&gate()), PackageSpec::NotFound), "FleetPackageNotFound", false),
        (judge(Ok(&gate()), PackageSpec::Unreadable("no")), "InvalidSpec", true),
        (judge(Ok(&gate()), PackageSpec::Found(&managed)), "ExternallyManaged", true),
        (judge(Ok(&contradictory), PackageSpec::Found(&package())), "InvalidSpec", true),
        (judge(Ok(&negative), PackageSpec::Found(&package())), "InvalidSpec", true),
        (judge(Ok(&endless), PackageSpec::Found(&package())), "InvalidSpec", true),
    ] {
        assert!(!open(&status));
        assert_eq!(reasons(&status), [reason]);
        assert_eq!(is_true(&status.conditions, STALLED), stalled, "{reason}");
        assert_eq!(status.observed_generation, Some(1));
    }
}

#[test]
fn a_quiet_gate_is_seldom_written() {
    let status = Case::default().on([fresh(healthy(R2))]);
    let mut later = status.clone();
    later.as_of = Some(time(T + 20.0));
    assert!(!worth_writing(Some(&status), &later, 180.0));
    later.as_of = Some(time(T + 50.0));
    assert!(worth_writing(Some(&status), &later, 180.0));
    later = status.clone();
    later.healthy = Some("0/1".into());
    assert!(worth_writing(Some(&status), &later, 180.0));
    assert!(worth_writing(None, &status, 180.0));
}

#[test]
fn a_typical_status_reads_well() {
    let case = Case::spec(|spec| spec.terms.max_failures = count(1));
    let status = case.on([
        fresh(healthy(R2)),
        fresh(moving(R1, R2)),
        fresh(healthy(R1)),
        unobserved(Standing::Unverified, Some(healthy(R2))),
        unobserved(Standing::Stale, None),
    ]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn silence_closes_an_open_gate_and_says_so() {
    let opened = Case::default().on([fresh(healthy(R2))]);
    let closed = closing::unwatched(Unwatched::Silent, Ok(&gate()), &opened, T + 100.0).unwrap();
    assert!(!open(&closed) && !is_true(&closed.conditions, READY));
    assert!(is_true(&closed.conditions, OPENED_ONCE) && is_true(&closed.conditions, RECONCILING));
    assert_eq!(reasons(&closed), ["AggregatorSilent"]);
    assert_eq!((closed.since, closed.observed_generation), (Some(time(T + 100.0)), Some(1)));
    assert_eq!(closed.clusters, opened.clusters);
    // A closed gate needs nothing, nor does one that was never judged.
    let shut = Case::default().on([fresh(healthy(R1))]);
    assert_eq!(closing::unwatched(Unwatched::Silent, Ok(&gate()), &shut, T), None);
    assert_eq!(closing::unwatched(Unwatched::Silent, Ok(&gate()), &RolloutGateStatus::default(), T), None);
    assert!(closing::unwatched(Unwatched::Silent, Err("unknown variant"), &opened, T).is_some());
}

#[test]
fn the_least_that_closes_a_gate_is_never_longer_than_the_open_status_it_replaces() {
    let by_hand = Case::spec(|spec| {
        spec.override_ = Some(Override { state: OverrideState::Open, reason: "x".into(), until: None });
    });

    let mut opened =
        vec![Case::default().on([fresh(healthy(R2))]), by_hand.on([fresh(healthy(R2))]), by_hand.on([])];
    let bytes = |status: &RolloutGateStatus| serde_json::to_string(status).unwrap().len();
    for opened in &mut opened {
        assert!(open(opened));
        opened.epoch = Some(1);
        for reason in Reason::ALL {
            let mut closed = closing::unwatched(Unwatched::Silent, Ok(&gate()), opened, T + 100.0)
                .unwrap_or_else(|| Case::default().on([fresh(healthy(R1))]));
            closed.epoch = opened.epoch;
            for condition in closed.conditions.iter_mut().filter(|it| it.type_ != OPENED_ONCE) {
                condition.reason = reason.name().to_owned();
                condition.message = "x".repeat(300);
            }
            let least = closing::least(opened, &closed);
            assert!(bytes(&least) <= bytes(opened), "{reason}: {least:?} instead of {opened:?}");
            assert!(!open(&least) && !is_true(&least.conditions, READY));
            assert_eq!(find(&least.conditions, OPEN).map(|open| open.message.as_str()), Some(reason.name()));
        }
    }
}

#[test]
fn the_least_says_whether_it_was_open_once_and_at_length_only_that_it_was() {
    let opened = Case::default().on([fresh(healthy(R2))]);
    let mut closed = closing::unwatched(Unwatched::Silent, Ok(&gate()), &opened, T + 100.0).unwrap();
    let of = |status: &RolloutGateStatus| find(&status.conditions, OPENED_ONCE).cloned().unwrap();
    let was = of(&closed);
    assert!(was.status == "True" && !was.message.is_empty());
    assert_eq!(of(&closing::least(&opened, &closed)), was);
    for condition in closed.conditions.iter_mut().filter(|it| it.type_ == OPENED_ONCE) {
        condition.status = "False".to_owned();
    }
    let never = Condition { status: "False".to_owned(), message: String::new(), ..was };
    assert_eq!(of(&closing::least(&opened, &closed)), never);
}

#[test]
fn the_least_keeps_what_the_next_verdict_goes_on_from() {
    let mut opened = Case::default().on([fresh(healthy(R2))]);
    opened.epoch = Some(3);
    opened.tenancy = Some("t".to_owned());
    opened.members =
        Some(Members { of: "wave".to_owned(), since: time(T), clusters: vec!["c00".to_owned()] });
    let closed = closing::unwatched(Unwatched::Silent, Ok(&gate()), &opened, T + 100.0).unwrap();
    let [least, closed] =
        [&closing::least(&opened, &closed), &closed].map(|it| serde_json::to_value(it).unwrap());
    let kept =
        "observedGeneration epoch revision fingerprint startedAt verdictSince outcomeSince tenancy members";
    for field in kept.split(' ') {
        assert!(!least[field].is_null() && least[field] == closed[field], "{field}: {least}");
    }
}

#[test]
fn silence_is_no_verdict_on_a_generation() {
    let mut opened = Case::default().on([fresh(healthy(R2))]);
    opened.observed_generation = None;
    let closed = closing::unwatched(Unwatched::Silent, Ok(&gate()), &opened, T + 100.0).unwrap();
    assert_eq!(closed.observed_generation, None);
    assert_eq!(find(&closed.conditions, OPEN).unwrap().observed_generation, Some(-1));
}

#[rstest]
#[case::stands(None, None)]
#[case::stands_until_later(Some(T + 200.0), None)]
#[case::has_ended(Some(T + 50.0), Some("AggregatorSilent"))]
fn silence_leaves_a_persons_word_alone(#[case] until: Option<f64>, #[case] expected: Option<&str>) {
    let case = Case::spec(|spec| {
        spec.override_ =
            Some(Override { state: OverrideState::Open, reason: "we know".into(), until: until.map(time) });
    });
    let opened = case.on([fresh(healthy(R1))]);
    assert!(open(&opened));
    let closed = closing::unwatched(Unwatched::Silent, Ok(&case.spec), &opened, T + 100.0);
    assert_eq!(closed.as_ref().map(reasons).map(|it| it[0]), expected);
}

#[test]
fn ages_do_not_get_into_the_status() {
    let torn = |age| {
        let mut seen = unobserved(Standing::Unverified, Some(healthy(R2)));
        seen.message = format!("the last verified evidence is {age} s old; a sample is missing");
        seen
    };
    let status = Case::default().on([torn(190)]);
    assert_eq!(status.waiting_for[0].message, "1 cluster cannot be verified: c00; a sample is missing");
    assert_eq!(status, Case::default().on([torn(205)]));
}

//! Clusters that a gate keeps to: when they are fixed, for how long, and what becomes of those that come and go.

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::conditions::{OPEN, STALLED, find, is_true};
use statusbridge_api::rollout_gate::{Members, Newcomers, Override, OverrideState};
use statusbridge_api::{FleetPackageSpec, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::Fingerprint;
use statusbridge_core::decide::closing::{self, Unwatched};
use statusbridge_core::decide::excused::{Excuses, Nowhere};
use statusbridge_core::decide::fleet_package::check;
use statusbridge_core::decide::rollout_gate::{Input, PackageSpec, decide, kept_members};
use statusbridge_core::decide::{Backend, Membership, Moment, Target, time};
use statusbridge_core::fleet::observation::{Observation, Standing, reason};

use crate::made::*;

struct Case {
    spec: RolloutGateSpec,
    package: Option<FleetPackageSpec>,
    previous: Option<RolloutGateStatus>,
    membership: Membership,
    selected: Option<Vec<String>>,
    unheard: Option<&'static str>,
    backend: Backend<'static>,
    moment: Moment,
}

fn freezing() -> RolloutGateSpec {
    let clusters =
        serde_json::from_value(json!({"selector": {"matchLabels": {"env": "prod"}}, "freeze": true}));
    RolloutGateSpec { clusters: clusters.unwrap(), ..gate() }
}

impl Default for Case {
    fn default() -> Self {
        Self {
            spec: freezing(),
            package: Some(package()),
            previous: None,
            membership: Membership::Known,
            selected: None,
            unheard: None,
            backend: Backend::Answers,
            moment: NOW,
        }
    }
}

impl Case {
    fn on(&self, all: impl IntoIterator<Item = Target>) -> RolloutGateStatus {
        let all: Vec<Target> = all.into_iter().collect();
        let excused = self.package.as_ref().map(|it| it.excused.as_slice()).unwrap_or_default();
        let (targets, excused) = Excuses::new(excused, &Nowhere, self.moment.now).split(all.into());
        decide(&Input {
            previous: self.previous.as_ref(),
            package: self.package.as_ref().map_or(PackageSpec::NotFound, PackageSpec::Found),
            membership: &self.membership,
            selected: self.selected.as_deref(),
            unheard: self.unheard,
            backend: self.backend,
            moment: self.moment,
            ..asked(&self.spec, &package(), &targets, &excused)
        })
    }

    /// `c00` and `c01` are fixed, and the gate is open.
    fn fixed() -> Self {
        let mut case = Self::default();
        case.previous = Some(case.on(two()));
        case.previous = Some(case.on(two()));
        assert!(is_open(case.previous.as_ref().unwrap()));
        case
    }

    fn now_selects(names: &[&str]) -> Self {
        Self { selected: Some(names.iter().map(|name| (*name).to_owned()).collect()), ..Self::fixed() }
    }
}

fn well() -> Observation {
    fresh(healthy(R2))
}

fn two() -> Vec<Target> {
    targets([well(), well()])
}

fn in_doubt(cluster: &str, why: &'static str) -> Target {
    let standing =
        if why == reason::CLUSTER_PROFILE_CONFLICT { Standing::Conflict } else { Standing::Missing };
    Target { cluster: cluster.into(), observation: Observation { reason: why, ..unobserved(standing, None) } }
}

fn is_open(status: &RolloutGateStatus) -> bool {
    is_true(&status.conditions, OPEN)
}

fn why(status: &RolloutGateStatus) -> (&str, &str) {
    let open = find(&status.conditions, OPEN).unwrap();
    (&open.reason, &open.message)
}

fn names(status: &RolloutGateStatus) -> Option<Vec<&str>> {
    status.members.as_ref().map(|it| it.clusters.iter().map(String::as_str).collect())
}

#[test]
fn members_stand_in_the_hub_before_the_gate_opens_by_them() {
    let mut case = Case::default();
    let first = case.on(two());
    assert!(!is_open(&first) && !is_true(&first.conditions, STALLED));
    assert_eq!(why(&first).0, "Pending");
    assert_eq!((names(&first), first.healthy.as_deref()), (Some(vec!["c00", "c01"]), Some("2/2")));
    assert_eq!(first.members.as_ref().unwrap().since, time(NOW.now));
    case.previous = Some(first.clone());
    case.moment = Moment { now: NOW.now + 60.0, ..NOW };
    let second = case.on(two());
    assert!(is_open(&second));
    assert_eq!(second.members, first.members, "with the time of the first judgement");
}

#[test]
fn whatever_else_closes_the_gate_is_said_first_and_members_are_fixed_all_the_same() {
    let status = Case::default().on(targets([fresh(healthy(R1)), well()]));
    assert_eq!((why(&status).0, names(&status)), ("NotUpdated", Some(vec!["c00", "c01"])));
}

#[test]
fn excused_clusters_are_members() {
    let mut case = Case::default();
    let excused = json!([{"cluster": "c01", "reason": "a new disk"}]);
    case.package.as_mut().unwrap().excused = serde_json::from_value(excused).unwrap();
    let status = case.on(targets([well(), unobserved(Standing::Missing, None), well()]));
    assert_eq!(names(&status), Some(vec!["c00", "c01", "c02"]));
    case.previous = Some(status);
    let open = case.on(targets([well(), unobserved(Standing::Missing, None), well()]));
    assert!(is_open(&open));
    assert_eq!((open.healthy.as_deref(), names(&open).unwrap().len()), (Some("2/2"), 3));
}

fn outdated() -> Membership {
    Membership::Outdated { since: NOW.now, error: "refused".into() }
}

#[rstest]
#[case::profiles_are_not_listed(Case { membership: Membership::Unlisted("refused".into()), ..Case::default() }, vec![], "ClusterProfilesUnavailable")]
#[case::profiles_are_not_installed(Case { membership: Membership::NotInstalled, ..Case::default() }, vec![], "ClusterProfilesUnavailable")]
#[case::profiles_may_be_out_of_date(Case { membership: outdated(), ..Case::default() }, two(), "ClusterProfilesUnavailable")]
#[case::a_feed_has_never_answered(Case { unheard: Some("feed b: gone"), ..Case::default() }, two(), "BackendUnavailable")]
#[case::no_feed_has(Case { backend: Backend::Unknown("gone"), unheard: Some("gone"), ..Case::default() }, two(), "BackendUnavailable")]
#[case::a_profile_names_no_cluster(Case::default(), [two(), vec![in_doubt("ClusterProfile/a/b", reason::CLUSTER_NAME_UNKNOWN)]].concat(), "ClusterProfilesUnavailable")]
#[case::profiles_claim_one_cluster(Case::default(), [two(), vec![in_doubt("c02", reason::CLUSTER_PROFILE_CONFLICT)]].concat(), "ClusterProfilesUnavailable")]
#[case::nobody_is_selected(Case::default(), vec![], "NoTargets")]
#[case::there_is_no_package(Case { package: None, ..Case::default() }, vec![], "FleetPackageNotFound")]
fn while_it_is_not_certain_who_is_meant_nobody_is_fixed_and_nothing_opens(
    #[case] mut case: Case,
    #[case] all: Vec<Target>,
    #[case] expected: &str,
) {
    case.spec.terms.max_failures = percent("100%");
    let status = case.on(all.clone());
    assert_eq!((names(&status), is_open(&status), why(&status).0), (None, false, expected), "{status:?}");
    assert!(!is_true(&status.conditions, STALLED));
    // Not even where it was opened by hand, and that has ended.
    let word =
        Override { state: OverrideState::Open, reason: "now".into(), until: Some(time(NOW.now + 5.0)) };
    case.spec.override_ = Some(word);
    case.previous = Some(case.on(all.clone()));
    assert!(is_open(case.previous.as_ref().unwrap()), "the manual override stands above all");
    case.moment.now += 10.0;
    let status = case.on(all);
    assert_eq!((names(&status), is_open(&status), why(&status).0), (None, false, expected), "{status:?}");
}

#[rstest]
#[case::as_many_as_can_be_named(10_000, 32, true)]
#[case::one_more(10_001, 20, false)]
#[case::longer_names(10_000, 33, false)]
fn no_more_are_fixed_than_a_gate_can_name(
    #[case] count: usize,
    #[case] bytes: usize,
    #[case] expected: bool,
) {
    let all = targets(std::iter::repeat_n(well(), count)).into_iter().enumerate();
    let all = all.map(|(at, target)| Target { cluster: format!("{at:0bytes$}"), ..target });
    let status = Case::default().on(all);
    assert_eq!(status.members.is_some(), expected);
    assert_eq!(why(&status).0, if expected { "Pending" } else { "InvalidSpec" });
    assert_eq!(is_true(&status.conditions, STALLED), !expected);
    assert!(expected || why(&status).1.contains("FleetRollout"), "{:?}", why(&status));
}

#[test]
fn who_joins_waits_for_the_next_revision_and_is_shown() {
    let status = Case::now_selects(&["c00", "c01", "c02"]).on(two());
    assert!(is_open(&status));
    assert_eq!(status.newcomers, Some(Newcomers { count: 1, clusters: vec!["c02".into()] }));
    let expected = "2 of 2 clusters healthy at the revision; 1 cluster joined later and waits for the next revision: c02";
    assert_eq!(why(&status).1, expected);
    let names: Vec<String> = (1..=30).map(|at| format!("c{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let status = Case::now_selects(&names).on(two());
    let newcomers = status.newcomers.clone().unwrap();
    assert_eq!((newcomers.count, newcomers.clusters.len()), (29, 10));
    assert!(
        why(&status)
            .1
            .ends_with("29 clusters joined later and wait for the next revision: c02, c03, c04 and 26 more")
    );
}

#[test]
fn while_nobody_knows_what_is_selected_newcomers_stay_as_they_were() {
    let joined = Case::now_selects(&["c02"]).on(two());
    let case = Case { previous: Some(joined.clone()), ..Case::default() };
    assert_eq!(case.on(two()).newcomers, joined.newcomers);
    let case = Case { previous: Some(joined), ..Case::now_selects(&["c00"]) };
    assert_eq!(case.on(two()).newcomers, None, "it has left again");
}

#[rstest]
#[case::the_same(json!({}), true)]
#[case::the_revision_in_other_words(json!({"revision": Fingerprint::of(R2).to_string()}), true)]
#[case::other_terms(json!({"minHealthy": 1}), true)]
#[case::another_revision(json!({"revision": R3}), false)]
#[case::another_selector(json!({"clusters": {"selector": {}, "freeze": true}}), false)]
#[case::frozen_no_more(json!({"clusters": {"selector": {"matchLabels": {"env": "prod"}}}}), false)]
#[case::named(json!({"clusters": {"names": ["c00"], "freeze": true}}), false)]
fn members_are_those_of_a_revision_and_a_selector(#[case] change: Value, #[case] kept: bool) {
    let fixed = Case::fixed();
    let mut spec = json!(fixed.spec);
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let spec: RolloutGateSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(kept_members(&spec, fixed.previous.as_ref()).is_some(), kept);
    let status = Case { spec: spec.clone(), ..fixed }.on(targets([well()]));
    let is_frozen = spec.clusters.freeze && spec.clusters.selector.is_some();
    let expected = if kept { vec!["c00", "c01"] } else { vec!["c00"] };
    assert_eq!(names(&status), is_frozen.then_some(expected));
    assert!(kept || !is_frozen || !is_open(&status));
}

#[test]
fn what_cannot_be_judged_keeps_its_members() {
    let fixed = Case::now_selects(&["c02"]);
    let before = fixed.on(two());
    let case = Case { package: None, selected: None, previous: Some(before.clone()), ..Case::default() };
    let status = case.on([]);
    assert_eq!((&status.members, &status.newcomers), (&before.members, &before.newcomers));
    let swept = closing::unwatched(Unwatched::Silent, Ok(&fixed.spec), &before, NOW.now).unwrap();
    assert_eq!(swept.members, before.members);
    assert_eq!(closing::least(&before, &status).members, before.members);
}

#[test]
fn a_status_without_names_fixes_nobody() {
    let mut case = Case::fixed();
    let members = case.previous.as_mut().unwrap().members.as_mut().unwrap();
    *members = Members { clusters: Vec::new(), ..members.clone() };
    let status = case.on(two());
    assert_eq!((names(&status), is_open(&status)), (Some(vec!["c00", "c01"]), false));
}

#[test]
fn names_are_fixed_by_themselves_and_what_reports_cannot_be() {
    let clusters =
        |value: Value| RolloutGateSpec { clusters: serde_json::from_value(value).unwrap(), ..gate() };
    let named = Case { spec: clusters(json!({"names": ["c00", "c01"], "freeze": true})), ..Case::default() };
    let status = named.on(two());
    assert_eq!((is_open(&status), status.members), (true, None));
    let reporting = clusters(json!({"reporting": {"minClusters": 1}, "freeze": true}));
    let status = Case { spec: reporting.clone(), ..Case::default() }.on(two());
    assert_eq!((is_open(&status), why(&status).0), (false, "InvalidSpec"));
    assert!(why(&status).1.contains("not for those that report"), "{:?}", why(&status));
    for spec in [reporting, freezing()] {
        let error = check(&FleetPackageSpec { clusters: spec.clusters, ..package() }).unwrap_err();
        assert!(error.contains("RolloutGates"), "{error}");
    }
}

//! Clusters that need not be healthy: who they are, until when, and what they change.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use statusbridge_api::conditions::{OPEN, READY, REPORTING, find, is_true};
use statusbridge_api::excuse::{Excuse, ExcusedCluster};
use statusbridge_api::label_selector::Labels;
use statusbridge_api::{FleetPackageSpec, FleetPackageStatus, RolloutGateSpec, RolloutGateStatus};
use statusbridge_contract::Health;
use statusbridge_core::decide::excused::{Excuses, Nowhere, Profiled};
use statusbridge_core::decide::fleet_package::{self, Wanted};
use statusbridge_core::decide::rollout_gate::{self};
use statusbridge_core::decide::rows::rows;
use statusbridge_core::decide::{Backend, Moment, Target, time};
use statusbridge_core::fleet::observation::{Observation, Standing};

use crate::made::*;

/// What ClusterProfiles say: labels, and who is excused by the configuration.
#[derive(Default)]
struct Profiles {
    labels: BTreeMap<String, Labels>,
    configured: Option<BTreeMap<String, String>>,
    unread: bool,
}

impl Profiled for Profiles {
    fn labels(&self, cluster: &str) -> Option<&Labels> {
        self.labels.get(cluster)
    }

    fn excuse(&self, cluster: &str) -> Option<&str> {
        self.configured.as_ref()?.get(cluster).map(String::as_str)
    }

    fn may_excuse(&self) -> bool {
        self.configured.is_some()
    }

    fn is_unread(&self) -> bool {
        self.unread
    }
}

struct Case {
    package: FleetPackageSpec,
    gate: RolloutGateSpec,
    profiles: Profiles,
    moment: Moment,
    backend: Backend<'static>,
    gate_before: Option<RolloutGateStatus>,
    package_before: Option<FleetPackageStatus>,
}

impl Case {
    fn new(excused: Value) -> Self {
        let excused: Vec<Excuse> = serde_json::from_value(excused).unwrap();
        Self {
            package: FleetPackageSpec { excused, ..package() },
            gate: gate(),
            profiles: Profiles::default(),
            moment: NOW,
            backend: Backend::Answers,
            gate_before: None,
            package_before: None,
        }
    }

    fn excuses(&self) -> Excuses<'_> {
        Excuses::new(&self.package.excused, &self.profiles, self.moment.now)
    }

    fn gate(&self, all: &[Target]) -> RolloutGateStatus {
        let (targets, excused) = self.excuses().split(all.into());
        rollout_gate::decide(&rollout_gate::Input {
            previous: self.gate_before.as_ref(),
            backend: self.backend,
            moment: self.moment,
            ..asked(&self.gate, &self.package, &targets, &excused)
        })
    }

    fn package(&self, all: &[Target]) -> FleetPackageStatus {
        let (targets, excused) = self.excuses().split(all.into());
        fleet_package::decide(&fleet_package::Input {
            previous: self.package_before.as_ref(),
            backend: self.backend,
            moment: self.moment,
            ..reported(&self.package, &targets, &excused)
        })
    }
}

fn well() -> Observation {
    fresh(healthy(R2))
}

fn silent() -> Observation {
    unobserved(Standing::Missing, None)
}

fn sick() -> Observation {
    fresh(applied(R2, Health::Failed))
}

fn out(cluster: &str) -> Value {
    json!([{"cluster": cluster, "reason": "maintenance"}])
}

fn open(status: &RolloutGateStatus) -> (bool, &str) {
    let open = find(&status.conditions, OPEN).unwrap();
    (open.status == "True", &open.reason)
}

fn ready(status: &FleetPackageStatus) -> (bool, &str) {
    let ready = find(&status.conditions, READY).unwrap();
    (ready.status == "True", &ready.reason)
}

#[rstest]
#[case::failed(sick())]
#[case::silent(silent())]
#[case::at_another_revision(fresh(healthy(R1)))]
#[case::paused(fresh(moving(R1, R2)))]
fn what_an_excused_cluster_does_is_shown_and_does_not_count(#[case] third: Observation) {
    let all = targets([well(), well(), third]);
    let without = Case::new(json!([]));
    assert!(!open(&without.gate(&all)).0 && !ready(&without.package(&all)).0);
    let case = Case::new(out("c02"));

    let gate = case.gate(&all);
    assert_eq!(open(&gate), (true, "Healthy"));
    assert_eq!(gate.healthy.as_deref(), Some("2/2"));
    let counts = gate.clusters.unwrap();
    assert_eq!((counts.total, counts.excused, counts.healthy, counts.failed), (2, 1, 2, 0));
    let message = &find(&gate.conditions, OPEN).unwrap().message;
    assert_eq!(message, "2 of 2 clusters healthy at the revision; 1 excused: c02 (maintenance)");

    let package = case.package(&all);
    assert_eq!(ready(&package), (true, "Healthy"));
    let counts = package.clusters.unwrap();
    assert_eq!((counts.total, counts.excused, counts.healthy), (2, 1, 2));
    assert_eq!(package.revisions.len(), 1, "{:?}", package.revisions);
    let [problem] = package.problems.as_slice() else { panic!("{:?}", package.problems) };
    assert_eq!((problem.cluster_name.as_str(), problem.excused.as_deref()), ("c02", Some("maintenance")));
    let known = without.package(&all).problems;
    assert_eq!((&problem.state, &problem.reason), (&known[0].state, &known[0].reason), "its real state");
    for excused in [&gate.excused, &package.excused] {
        let expected =
            ExcusedCluster { cluster_name: "c02".into(), reason: "maintenance".into(), until: None };
        assert_eq!(*excused, [expected]);
    }
    let (counted, excused) = case.excuses().split(all.as_slice().into());
    let rows = rows(Wanted::literal(&case.package), &counted, &excused);
    let shown: Vec<_> = rows.iter().map(|it| (&*it.row.cluster_name, it.row.excused.as_deref())).collect();
    assert_eq!(shown, [("c00", None), ("c01", None), ("c02", Some("maintenance"))]);
    assert_eq!(rows[2].row.state, known[0].state);
}

#[test]
fn excused_problems_come_after_the_others() {
    let case = Case::new(out("c00"));
    let package = case.package(&targets([sick(), well(), silent()]));
    let problems: Vec<_> =
        package.problems.iter().map(|it| (&*it.cluster_name, &*it.state, it.excused.is_some())).collect();
    assert_eq!(problems, [("c02", "Missing", false), ("c00", "Failed", true)]);
    assert_eq!(ready(&package), (false, "Missing"));
    let healthy = Case::new(out("c00")).package(&targets([well(), well(), well()]));
    assert!(healthy.problems.is_empty(), "an excused cluster without a problem is none");
    assert_eq!(healthy.excused.len(), 1);
}

#[rstest]
#[case::long_before(-3600.0, true)]
#[case::the_second_before(-1.0, true)]
#[case::just_before(-0.001, true)]
#[case::at_the_second(0.0, false)]
#[case::after(0.5, false)]
fn an_excuse_is_over_at_its_end(#[case] after: f64, #[case] excused: bool) {
    let end = NOW.now + 60.0;
    let mut case = Case::new(json!([{"cluster": "c02", "reason": "repair", "until": time(end)}]));
    case.moment = Moment { now: end + after, t: end + after };
    let all = targets([well(), well(), sick()].map(|seen| Observation { as_of: Some(end), ..seen }));
    assert_eq!(open(&case.gate(&all)).0, excused);
    assert_eq!(ready(&case.package(&all)).0, excused);
    let (_, absent) = case.excuses().split(all.into());
    assert_eq!(absent.until(), if excused { end } else { f64::INFINITY });
}

#[rstest]
#[case(1, false, "the only cluster is healthy")]
#[case(2, false, "all 2 clusters are healthy")]
#[case(1, true, "the only cluster that counts is healthy")]
#[case(2, true, "all 2 clusters that count are healthy")]
fn how_many_are_well_is_said_of_those_that_count(
    #[case] wells: usize,
    #[case] excused: bool,
    #[case] said: &str,
) {
    let mut case = Case::new(if excused { out(&format!("c{wells:02}")) } else { json!([]) });
    case.package.min_observed = count(1);
    let status = case.package(&targets(std::iter::repeat_n(well(), wells + usize::from(excused))));
    let message = &find(&status.conditions, READY).unwrap().message;
    assert!(message.starts_with(said), "{message}");
}

#[test]
fn of_several_excuses_the_longest_is_told() {
    let end = |minutes: f64| time(NOW.now + 60.0 * minutes);
    let mut case = Case::new(json!([
        {"cluster": "c00", "reason": "short", "until": end(1.0)},
        {"cluster": "c00", "reason": "long", "until": end(9.0)},
        {"selector": {"matchLabels": {"env": "dev"}}, "reason": "middle", "until": end(5.0)},
        {"selector": {"matchLabels": {"env": "dev"}}, "reason": "over", "until": end(-1.0)},
    ]));
    case.profiles.labels = [("c00", "dev"), ("c01", "dev"), ("c02", "prod")]
        .map(|(name, env)| (name.to_owned(), Labels::from([("env".to_owned(), env.to_owned())])))
        .into();
    case.package.min_observed = count(1);
    let told = |case: &Case| {
        let status = case.gate(&targets([silent(), silent(), well()]));
        status.excused.into_iter().map(|it| (it.cluster_name, it.reason, it.until)).collect::<Vec<_>>()
    };
    let expected = [("c01", "middle", Some(end(5.0))), ("c00", "long", Some(end(9.0)))];
    assert_eq!(told(&case), expected.map(|(a, b, end)| (a.to_owned(), b.to_owned(), end)), "soonest first");
    let (_, absent) = case.excuses().split(targets([silent(), silent(), well()]).into());
    assert_eq!(absent.until(), NOW.now + 60.0, "any end may change who is excused");
    case.profiles.configured = Some([("c00".to_owned(), "drained".to_owned())].into());
    assert_eq!(told(&case)[1], ("c00".to_owned(), "drained".to_owned(), None));
    let by_name = serde_json::from_value(json!({"cluster": "c00", "reason": "by name"})).unwrap();
    case.package.excused.push(by_name);
    assert_eq!(told(&case)[1].1, "by name", "of two that never end");
}

#[rstest]
#[case::a_selector(json!([{"selector": {"matchLabels": {"env": "dev"}}, "reason": "r"}]), false)]
#[case::the_configuration(json!([]), true)]
fn what_excuses_nobody_by_name_excuses_all_the_same(#[case] excused: Value, #[case] configured: bool) {
    let mut case = Case::new(excused);
    let labels = Labels::from([("env".to_owned(), "dev".to_owned())]);
    case.profiles.labels = [("c02".to_owned(), labels)].into();
    case.profiles.configured = configured.then(|| [("c02".to_owned(), "r".to_owned())].into());
    let all = targets([well(), well(), sick()]);
    assert!(open(&case.gate(&all)).0 && ready(&case.package(&all)).0);
    assert_eq!(case.gate(&all).excused.len(), 1);
}

#[rstest]
#[case::no_key(json!({"selector": {"matchLabels": {"a b": "c"}}, "reason": "r"}))]
#[case::not_in_without_values(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}, "reason": "r"}))]
#[case::of_nobody(json!({"selector": {"matchLabels": {"env": "none"}}, "reason": "r"}))]
#[case::both(json!({"cluster": "c02", "selector": {}, "reason": "r"}))]
#[case::neither(json!({"reason": "r"}))]
#[case::another(json!({"cluster": "c2", "reason": "r"}))]
#[case::without_a_profile(json!({"selector": {"matchLabels": {"env": "prod"}}, "reason": "r"}))]
fn what_makes_no_sense_or_means_nobody_excuses_nobody(#[case] excuse: Value) {
    let mut case = Case::new(json!([excuse]));
    let labels = Labels::from([("env".to_owned(), "dev".to_owned())]);
    case.profiles.labels = [("c02".to_owned(), labels)].into();
    let all = targets([well(), well(), sick()]);
    let gate = case.gate(&all);
    assert_eq!((open(&gate).0, gate.clusters.unwrap().excused), (false, 0));
    assert!(gate.excused.is_empty());
}

#[rstest]
// Observed and not excused, excused, unobserved.
#[case::most(None, 2, 1, 0, true)]
#[case::exactly_half(None, 2, 2, 0, false)]
#[case::more_than_half(None, 3, 2, 0, true)]
#[case::all_are_excused(None, 0, 3, 0, false)]
#[case::all_are_excused_whatever_is_asked_for(count(0), 0, 3, 0, false)]
#[case::all_by_a_percentage(percent("100%"), 2, 1, 0, false)]
#[case::some_by_a_percentage(percent("25%"), 1, 3, 0, true)]
#[case::rounded_up(percent("26%"), 1, 3, 0, false)]
#[case::a_number(count(1), 1, 9, 0, true)]
#[case::a_greater_number(count(3), 2, 1, 0, false)]
#[case::more_than_there_are(count(9), 3, 0, 0, false)]
#[case::silent_ones_are_not_observed(None, 2, 0, 2, false)]
#[case::nor_where_some_are_excused(None, 3, 2, 1, false)]
#[case::silent_ones_that_are_few(None, 3, 0, 2, true)]
fn enough_must_be_observed_whatever_is_excused(
    #[case] least: Option<statusbridge_api::common::Amount>,
    #[case] observed: usize,
    #[case] excused: usize,
    #[case] silent_ones: usize,
    #[case] expected: bool,
) {
    let names = (0..excused).map(|at| json!({"cluster": format!("c{at:02}"), "reason": "r"}));
    let mut case = Case::new(names.collect());
    case.package.min_observed = least;
    case.gate.terms.max_failures = percent("100%");
    // Excused clusters that are well are not observed either.
    let wells = std::iter::repeat_n(well(), excused + observed);
    let all = targets(wells.chain(std::iter::repeat_n(silent(), silent_ones)));
    let gate = case.gate(&all);
    assert_eq!(open(&gate), (expected, if expected { "Healthy" } else { "TooFewObserved" }), "{gate:?}");
    let package = case.package(&all);
    let reason = match (silent_ones, expected) {
        (1.., _) => "Missing",
        (0, true) => "Healthy",
        (0, false) => "TooFewObserved",
    };
    assert_eq!(ready(&package), (reason == "Healthy", reason));
    assert_eq!(is_true(&package.conditions, REPORTING), reason == "Healthy");
    if let Some(waiting) = gate.waiting_for.first() {
        assert_eq!(waiting.count, 0, "it concerns the gate as a whole");
    }
}

#[test]
fn a_bad_amount_is_said() {
    let mut case = Case::new(json!([]));
    for bad in [percent("most"), percent("101%"), count(-1)] {
        case.package.min_observed = bad;
        assert_eq!(open(&case.gate(&targets([well()]))), (false, "InvalidSpec"));
        assert_eq!(ready(&case.package(&targets([well()]))), (false, "InvalidSpec"));
    }
}

#[test]
fn an_excused_cluster_is_no_need_and_no_budget() {
    let mut case = Case::new(out("c03"));
    case.gate.terms.min_healthy = percent("100%");
    case.gate.terms.max_failures = percent("25%");
    let all = targets([well(), well(), well(), sick()]);
    assert!(open(&case.gate(&all)).0, "all three that count");
    let all = targets([well(), well(), sick(), sick()]);
    assert_eq!(open(&case.gate(&all)), (false, "FailureBudgetExceeded"), "a quarter of three is none");
    case.gate.clusters.reporting.as_mut().unwrap().min_clusters = 4;
    let gate = case.gate(&targets([well(), well(), well(), well()]));
    assert_eq!(open(&gate), (false, "TooFewClusters"));
    assert_eq!(
        gate.waiting_for[0].message,
        "3 clusters report this package besides 1 that are excused, at least 4 are asked for"
    );
}

/// A gate and a FleetPackage that were good with `c02` excused, after a restart.
fn restarted(excused: Value, profiles: Profiles, before_until: Option<f64>, unread: bool) -> Case {
    let mut before = Case::new(match before_until {
        Some(after) => json!([{"cluster": "c02", "reason": "r", "until": time(NOW.now + after)}]),
        None => out("c02"),
    });
    let all = targets([well(), well(), silent()]);
    before.moment = Moment { now: NOW.now - 60.0, t: NOW.t };
    let (gate, package) = (before.gate(&all), before.package(&all));
    assert!(open(&gate).0 && ready(&package).0);
    let mut case = Case::new(excused);
    case.profiles = profiles;
    (case.gate_before, case.package_before) = (Some(gate), Some(package));
    case.backend = if unread { Backend::Answers } else { Backend::Unknown("not yet") };
    case
}

#[rstest]
#[case::it_lasts(out("c02"), None, true)]
#[case::it_was_taken_away(json!([]), None, false)]
#[case::another_is_excused_now(out("c01"), None, false)]
#[case::it_ends_later(out("c02"), Some(30.0), true)]
#[case::it_has_ended(out("c02"), Some(-30.0), false)]
#[case::it_ends_now(out("c02"), Some(0.0), false)]
fn until_the_backend_was_asked_an_excuse_holds_no_longer_than_it_lasts(
    #[case] excused: Value,
    #[case] before_until: Option<f64>,
    #[case] expected: bool,
) {
    let case = restarted(excused, Profiles::default(), before_until, false);
    let all = targets([silent(), silent(), silent()]);
    assert_eq!(open(&case.gate(&all)).0, expected);
    assert_eq!(ready(&case.package(&all)).0, expected);
}

#[test]
fn once_all_was_read_nothing_stays_that_was_said_with_an_excuse() {
    let case = restarted(out("c02"), Profiles::default(), None, true);
    let all = targets([sick(), well(), silent()]);
    assert!(!open(&case.gate(&all)).0 && !ready(&case.package(&all)).0);
}

#[rstest]
#[case::by_the_configuration(json!([]), true, None, true)]
#[case::by_a_selector(json!([{"selector": {}, "reason": "r"}]), false, None, true)]
#[case::it_has_ended(json!([{"selector": {}, "reason": "r"}]), false, Some(-1.0), false)]
#[case::by_nothing_that_profiles_say(json!([]), false, None, false)]
fn until_profiles_were_read_a_gate_stands_by_those_that_they_may_excuse(
    #[case] excused: Value,
    #[case] configured: bool,
    #[case] before_until: Option<f64>,
    #[case] expected: bool,
) {
    let configured = configured.then(BTreeMap::new);
    let profiles = Profiles { configured: configured.clone(), unread: true, ..Profiles::default() };
    let mut case = restarted(excused, profiles, before_until, true);
    let all = targets([well(), well(), silent()]);
    assert_eq!(open(&case.gate(&all)).0, expected);
    assert_eq!(ready(&case.package(&all)).0, expected);
    // Not for longer than its evidence would count.
    case.moment = Moment { now: NOW.now + 180.0, t: NOW.t + 180.0 };
    assert!(!open(&case.gate(&all)).0 && !ready(&case.package(&all)).0);
    // And nothing opens by what is not known.
    case.moment = NOW;
    (case.gate_before, case.package_before) = (None, None);
    assert!(!open(&case.gate(&all)).0 && !ready(&case.package(&all)).0);
    // Once they have been read they say who is excused.
    let mut case = restarted(json!([]), Profiles { configured, ..Profiles::default() }, None, true);
    case.moment = NOW;
    assert!(!open(&case.gate(&all)).0 && !ready(&case.package(&all)).0);
}

#[test]
fn a_status_names_ten_and_counts_all() {
    let names = (0..30).map(|at| json!({"cluster": format!("c{at:02}"), "reason": "r"}));
    let case = Case::new(names.collect());
    let all = targets(std::iter::repeat_n(well(), 61));
    let gate = case.gate(&all);
    assert_eq!((gate.clusters.unwrap().excused, gate.excused.len()), (30, 10));
    assert!(open(&gate).0);
    let message = &find(&gate.conditions, OPEN).unwrap().message;
    assert!(message.ends_with("; 30 excused: c00 (r), c01 (r), c02 (r) and 27 more"), "{message}");
}

#[test]
fn nobody_is_split_off_where_nobody_is_excused() {
    let all: std::sync::Arc<[Target]> = targets([well(), silent()]).into();
    let (counted, excused) = Excuses::new(&[], &Nowhere, NOW.now).split(all.clone());
    assert!(std::sync::Arc::ptr_eq(&all, &counted) && excused.targets().is_empty());
}

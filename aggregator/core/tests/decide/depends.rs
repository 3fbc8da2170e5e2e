//! dependsOn: the other gates are open, each at its present generation and at the same revision.

use rstest::rstest;
use statusbridge_api::common::{ClusterSet, Reporting};
use statusbridge_api::conditions::{RECONCILING, STALLED, is_true};
use statusbridge_api::rollout_gate::{GateRef, Override, OverrideState};
use statusbridge_core::decide::dependencies::{Dependencies, Dependency};
use statusbridge_core::decide::{Backend, Moment};
use statusbridge_core::fleet::observation::Standing;

use crate::gate::{Case, open, reasons};
use crate::made::*;

fn on(gates: &[(&'static str, Dependency)]) -> Case {
    let mut case = Case::spec(|spec| {
        spec.depends_on = gates.iter().map(|(name, _)| GateRef { name: (*name).into() }).collect();
    });
    case.dependencies = Dependencies { gates: gates.to_vec(), cycle: None };
    case
}

#[rstest]
#[case::open(Dependency::Open, None)]
#[case::missing(Dependency::NotFound, Some(("DependencyNotFound", "gate wave-1 does not exist")))]
#[case::closed(Dependency::NotOpen, Some(("DependencyNotOpen", "gate wave-1 is not open")))]
#[case::elsewhere(Dependency::AtAnotherRevision, Some(("DependencyAtAnotherRevision", "gate wave-1 is about another revision of the package")))]
fn one_dependency(#[case] standing: Dependency, #[case] expected: Option<(&str, &str)>) {
    let status = on(&[("wave-1", standing)]).on([fresh(healthy(R2))]);
    let told = status.waiting_for.first().map(|it| (it.reason.as_str(), it.message.as_str()));
    assert_eq!(told, expected);
    assert_eq!(open(&status), expected.is_none());
    assert_eq!(is_true(&status.conditions, RECONCILING), expected.is_some());
}

#[test]
fn every_one_of_several_has_to_be_open() {
    use Dependency::{NotFound, NotOpen, Open};
    let gates =
        [("a", NotOpen), ("b", Open), ("c", NotOpen), ("d", NotOpen), ("e", NotOpen), ("f", NotFound)];
    let status = on(&gates).on([fresh(healthy(R2)), fresh(healthy(R1))]);
    assert_eq!(reasons(&status), ["DependencyNotFound", "DependencyNotOpen", "NotUpdated"]);
    assert_eq!(status.waiting_for[1].message, "gates a, c, d and 1 more are not open");
}

#[test]
fn a_cycle_stalls_and_says_so_first() {
    let mut case = on(&[("wave-1", Dependency::NotOpen)]);
    case.dependencies.cycle = Some("wave-1 -> wave-2 -> wave-1".into());
    let status = case.on([fresh(healthy(R2)), unobserved(Standing::Stale, None)]);
    assert_eq!(reasons(&status), ["DependencyCycle", "DependencyNotOpen", "Stale"]);
    assert_eq!(status.waiting_for[0].message, "depends on itself: wave-1 -> wave-2 -> wave-1");
    assert!(is_true(&status.conditions, STALLED));
    // Even if all of them seem to be open.
    let mut case = on(&[("wave-1", Dependency::Open)]);
    case.dependencies.cycle = Some("wave-1 -> wave-1".into());
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["DependencyCycle"]);
}

#[test]
fn a_cycle_is_told_also_when_nothing_is_known_of_the_clusters() {
    let mut case = on(&[("wave-1", Dependency::NotOpen)]);
    case.dependencies.cycle = Some("wave-1 -> wave-1".into());
    let status = case.with(&[], Backend::Unknown("first poll"));
    assert_eq!(reasons(&status), ["DependencyCycle", "BackendUnavailable"]);
    assert!(is_true(&status.conditions, STALLED));
    case.spec.terms.progress_deadline = Some("soon".into());
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["InvalidSpec", "DependencyCycle"]);
}

#[test]
fn a_persons_word_does_without_dependencies() {
    let mut case = on(&[("wave-1", Dependency::NotOpen)]);
    case.spec.override_ = Some(Override { state: OverrideState::Open, reason: "go".into(), until: None });
    assert!(open(&case.on([fresh(healthy(R2))])));
}

#[test]
fn after_a_restart_a_gate_lives_on_only_while_its_dependencies_do() {
    let opened = on(&[("wave-1", Dependency::Open)]).on([fresh(healthy(R2))]);
    let moment = Moment { t: T + 20.0, now: T + 25.0 };
    for (standing, expected) in [(Dependency::Open, true), (Dependency::NotOpen, false)] {
        let case = Case { previous: Some(opened.clone()), moment, ..on(&[("wave-1", standing)]) };
        assert_eq!(open(&case.with(&[], Backend::Unknown("first poll"))), expected);
    }
}

#[test]
fn too_few_clusters_and_closed_dependencies_are_both_told() {
    let mut case = on(&[("wave-1", Dependency::NotOpen)]);
    case.spec.clusters =
        ClusterSet { reporting: Some(Reporting { min_clusters: 3 }), ..ClusterSet::default() };
    assert_eq!(reasons(&case.on([fresh(healthy(R2))])), ["TooFewClusters", "DependencyNotOpen"]);
}

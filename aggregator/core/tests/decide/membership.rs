//! What follows when it is not certain which clusters are meant, or when they may not be seen.

use rstest::rstest;
use statusbridge_api::conditions::{OPEN, READY, RECONCILING, STALLED, find, is_true};
use statusbridge_api::label_selector::LabelSelector;
use statusbridge_api::{
    ClusterSet, FleetPackageSpec, FleetPackageStatus, RolloutGateSpec, RolloutGateStatus,
};
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::fleet_package::{self, Wanted};
use statusbridge_core::decide::rollout_gate::{self};
use statusbridge_core::decide::{Backend, Membership, Moment, Target};
use statusbridge_core::fleet::observation::{Observation, Standing, reason};

use crate::made::*;

fn selected() -> ClusterSet {
    ClusterSet { selector: Some(LabelSelector::default()), ..ClusterSet::default() }
}

fn gate_of(
    membership: &Membership,
    targets: &[Target],
    previous: Option<&RolloutGateStatus>,
    backend: Backend<'_>,
    moment: Moment,
) -> RolloutGateStatus {
    rollout_gate::decide(&rollout_gate::Input {
        previous,
        membership,
        backend,
        moment,
        ..asked(&RolloutGateSpec { clusters: selected(), ..gate() }, &package(), targets, &Excused::nobody())
    })
}

fn report_of(
    membership: &Membership,
    targets: &[Target],
    previous: Option<&FleetPackageStatus>,
    moment: Moment,
) -> FleetPackageStatus {
    fleet_package::decide(&fleet_package::Input {
        previous,
        wanted: Wanted::Revision(R2),
        membership,
        moment,
        ..reported(&FleetPackageSpec { clusters: selected(), ..package() }, targets, &Excused::nobody())
    })
}

fn well() -> Vec<Target> {
    targets([fresh(healthy(R2)), fresh(healthy(R2))])
}

fn outdated(since: f64) -> Membership {
    Membership::Outdated { since, error: "connection refused".into() }
}

fn later(seconds: f64) -> Moment {
    Moment { t: NOW.t + seconds, now: NOW.now + seconds }
}

fn reason_of(conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition], kind: &str) -> String {
    find(conditions, kind).unwrap().reason.clone()
}

#[rstest]
#[case::not_listed(Membership::Unlisted("refused".into()), "ClusterProfilesUnavailable", RECONCILING)]
#[case::not_installed(Membership::NotInstalled, "ClusterProfilesUnavailable", RECONCILING)]
#[case::forbidden(Membership::Forbidden("this namespace may not see x".into()), "Forbidden", STALLED)]
fn without_members_nothing_is_said_of_clusters(
    #[case] membership: Membership,
    #[case] expected: &str,
    #[case] kind: &str,
) {
    let gate = gate_of(&membership, &[], None, Backend::Answers, NOW);
    assert!(!is_true(&gate.conditions, OPEN) && is_true(&gate.conditions, kind));
    assert_eq!(
        (reason_of(&gate.conditions, OPEN).as_str(), gate.clusters, gate.healthy),
        (expected, None, None)
    );
    let report = report_of(&membership, &[], None, NOW);
    assert!(!is_true(&report.conditions, READY) && is_true(&report.conditions, kind));
    assert_eq!((reason_of(&report.conditions, READY).as_str(), report.clusters), (expected, None));
    assert!(report.problems.is_empty() && report.revisions.is_empty());
}

#[rstest]
#[case::before_the_first_list(Membership::Unlisted("they have not been listed yet".into()), 100.0, true)]
#[case::evidence_too_old(Membership::Unlisted("refused".into()), 400.0, false)]
#[case::not_installed_is_certain(Membership::NotInstalled, 1.0, false)]
#[case::forbidden_is_certain(Membership::Forbidden("no".into()), 1.0, false)]
fn after_a_restart_what_is_open_stays_while_its_evidence_would_count(
    #[case] membership: Membership,
    #[case] after: f64,
    #[case] stays: bool,
) {
    let opened = gate_of(&Membership::Known, &well(), None, Backend::Answers, NOW);
    assert!(is_true(&opened.conditions, OPEN));
    let ready = report_of(&Membership::Known, &well(), None, NOW);
    for backend in [Backend::Answers, Backend::Unknown("refused")] {
        let gate = gate_of(&membership, &[], Some(&opened), backend, later(after));
        assert_eq!(gate == opened, stays);
        assert_eq!(is_true(&gate.conditions, OPEN), stays);
    }
    assert_eq!(report_of(&membership, &[], Some(&ready), later(after)) == ready, stays);
}

#[test]
fn while_members_may_be_out_of_date_nothing_opens() {
    let status = gate_of(&outdated(NOW.now), &well(), None, Backend::Answers, NOW);
    assert!(!is_true(&status.conditions, OPEN));
    assert_eq!(status.waiting_for[0].reason, "ClusterProfilesUnavailable");
    assert!(status.waiting_for[0].message.ends_with("cannot be read: connection refused"), "{status:?}");
    let status = report_of(&outdated(NOW.now), &well(), None, NOW);
    assert_eq!(reason_of(&status.conditions, READY), "ClusterProfilesUnavailable");
    assert!(!is_true(&status.conditions, READY) && is_true(&status.conditions, RECONCILING));
}

#[test]
fn what_was_closed_or_open_for_another_generation_does_not_open_meanwhile() {
    let opened = gate_of(&Membership::Known, &well(), None, Backend::Answers, NOW);
    let ready = report_of(&Membership::Known, &well(), None, NOW);
    let ill = targets([fresh(healthy(R2)), fresh(failed(R1, R2))]);
    let closed = gate_of(&Membership::Known, &ill, None, Backend::Answers, NOW);
    let unready = report_of(&Membership::Known, &ill, None, NOW);
    let of_another = RolloutGateStatus { observed_generation: Some(0), ..opened };
    for previous in [closed, of_another] {
        let gate = gate_of(&outdated(NOW.now), &well(), Some(&previous), Backend::Answers, later(1.0));
        assert!(!is_true(&gate.conditions, OPEN), "after {previous:?}");
    }
    let of_another = FleetPackageStatus { observed_generation: Some(0), ..ready };
    for previous in [unready, of_another] {
        let report = report_of(&outdated(NOW.now), &well(), Some(&previous), later(1.0));
        assert!(!is_true(&report.conditions, READY), "after {previous:?}");
    }
}

#[test]
fn what_was_open_stays_for_as_long_as_evidence_may_and_shows_it() {
    let opened = gate_of(&Membership::Known, &well(), None, Backend::Answers, NOW);
    let ready = report_of(&Membership::Known, &well(), None, NOW);
    let well = well();
    for (after, stays) in [(100.0, true), (300.0, false)] {
        // The clusters go on reporting: only who belongs to them is in doubt.
        let mut well = well.clone();
        well.iter_mut().for_each(|target| target.observation.as_of = Some(T + after));
        let gate = gate_of(&outdated(NOW.now), &well, Some(&opened), Backend::Answers, later(after));
        let open = find(&gate.conditions, OPEN).unwrap();
        assert_eq!(open.status == "True", stays);
        assert!(open.message.contains("the list of clusters may be out of date"), "{}", open.message);
        let report = report_of(&outdated(NOW.now), &well, Some(&ready), later(after));
        let word = find(&report.conditions, READY).unwrap();
        assert_eq!(word.status == "True", stays);
        assert!(word.message.contains("the list of clusters may be out of date"), "{}", word.message);
    }
    // What is wrong in itself is said first.
    let one_failed = targets([fresh(healthy(R2)), fresh(failed(R1, R2))]);
    let gate = gate_of(&outdated(NOW.now), &one_failed, Some(&opened), Backend::Answers, NOW);
    assert_eq!(reason_of(&gate.conditions, OPEN), "FailureBudgetExceeded");
}

#[test]
fn nobody_selected_is_nobody() {
    let gate = gate_of(&Membership::Known, &[], None, Backend::Answers, NOW);
    assert_eq!(gate.waiting_for[0].reason, "NoTargets");
    assert_eq!(gate.waiting_for[0].message, "the selector selects no cluster");
    let report = report_of(&Membership::Known, &[], None, NOW);
    assert_eq!(find(&report.conditions, READY).unwrap().message, "the selector selects no cluster");
}

#[test]
fn what_is_known_of_a_silent_cluster_is_said() {
    let seen = |standing, why, message: &str| Observation {
        reason: why,
        message: message.into(),
        ..unobserved(standing, None)
    };
    let all = targets([
        seen(Standing::Missing, reason::CONTROL_PLANE_UNHEALTHY, "control plane not healthy: NoLease"),
        seen(Standing::Missing, reason::CLUSTER_NAME_UNKNOWN, "its ClusterProfile has no property id"),
        seen(Standing::Missing, reason::CLUSTER_NOT_FOUND, "cluster `c02` was never seen"),
        seen(Standing::Stale, reason::CONTROL_PLANE_UNHEALTHY, "control plane not healthy: Lost"),
        seen(
            Standing::Conflict,
            reason::CLUSTER_PROFILE_CONFLICT,
            "2 ClusterProfiles stand for this cluster: a and b",
        ),
    ]);
    let gate = gate_of(&Membership::Known, &all, None, Backend::Answers, NOW);
    let messages: Vec<&str> = gate.waiting_for.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "1 cluster has conflicting reports: c04; 2 ClusterProfiles stand for this cluster: a and b",
            "1 cluster not heard from in time: c03 (control plane not healthy: Lost)",
            "3 clusters do not report the package: c00 (control plane not healthy: NoLease), c01 (its ClusterProfile has no property id), c02",
        ]
    );
    let report = report_of(&Membership::Known, &all, None, NOW);
    let words: Vec<&str> = report.problems.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(
        words,
        [
            "ClusterProfileConflict",
            "ControlPlaneUnhealthy",
            "ControlPlaneUnhealthy",
            "ClusterNameUnknown",
            "ClusterNotFound"
        ]
    );
}

#[test]
fn a_selector_that_cannot_be_meant_is_an_invalid_spec() {
    let mut clusters = selected();
    clusters.selector.as_mut().unwrap().match_labels.insert("en v".into(), "prod".into());
    let report = fleet_package::decide(&fleet_package::Input {
        wanted: Wanted::Revision(R2),
        ..reported(&FleetPackageSpec { clusters, ..package() }, &[], &Excused::nobody())
    });
    assert_eq!(reason_of(&report.conditions, READY), "InvalidSpec");
    let mut both = selected();
    both.names = Some(vec!["a".into()]);
    assert_eq!(both.choice().unwrap_err(), "clusters must have exactly one of names, selector and reporting");
}

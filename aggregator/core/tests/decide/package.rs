//! Each rule of a FleetPackage as a case.

use rstest::rstest;
use statusbridge_api::conditions::{READY, RECONCILING, REPORTING, STALLED, find, is_true};
use statusbridge_api::fleet_package::{Detail, FleetPackageSpec, FleetPackageStatus, PackageCounts};
use statusbridge_api::trace::StageStatus;
use statusbridge_api::{Reason, RevisionFrom};
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::decide::excused::Excused;
use statusbridge_core::decide::fleet_package::{Input, RarelyScraped, Wanted, decide, least_stale_after};
use statusbridge_core::decide::{Backend, Membership, Moment, Obstacle};
use statusbridge_core::fleet::observation::{Observation, Row, Standing};

use crate::made::*;

fn judge(spec: &FleetPackageSpec, observations: impl IntoIterator<Item = Observation>) -> FleetPackageStatus {
    decide(&Input { generation: 4, ..reported(spec, &targets(observations), &Excused::nobody()) })
}

fn ready_reason(status: &FleetPackageStatus) -> &str {
    &find(&status.conditions, READY).unwrap().reason
}

#[rstest]
#[case::at_the_wanted_revision(Some(R2), healthy(R2), "Healthy", true)]
#[case::at_another(Some(R2), healthy(R1), "NotUpdated", false)]
#[case::on_the_way(Some(R2), moving(R1, R2), "Progressing", false)]
#[case::about_to_leave(Some(R2), Row { desired: Fingerprint::of(R3), ..healthy(R2) }, "NotUpdated", false)]
#[case::not_healthy_yet(Some(R2), applied(R2, Health::InProgress), "Progressing", false)]
#[case::never_checked(Some(R2), applied(R2, Health::Unknown), "HealthUnknown", false)]
#[case::unhealthy(Some(R2), applied(R2, Health::Failed), "Failed", false)]
#[case::failed_elsewhere(Some(R2), failed(R1, R1), "Failed", false)]
#[case::paused(Some(R2), Row { apply: ApplyState::Paused, ..healthy(R2) }, "Paused", false)]
#[case::deleting(Some(R2), Row { apply: ApplyState::Deleting, ..healthy(R2) }, "Deleting", false)]
#[case::own_revision(None, healthy(R1), "HealthyAtOwnRevision", true)]
#[case::own_revision_unknown(None, Row { desired: Fingerprint::NONE, ..healthy(R1) }, "HealthyAtOwnRevision", true)]
#[case::on_the_way_to_its_own(None, moving(R1, R2), "Progressing", false)]
#[case::nothing_known(None, Row { desired: Fingerprint::NONE, applied: Fingerprint::NONE, healthy: Fingerprint::NONE, ..healthy(R1) }, "Progressing", false)]
fn one_cluster(#[case] wanted: Option<&str>, #[case] row: Row, #[case] reason: &str, #[case] ready: bool) {
    let spec = FleetPackageSpec { revision: wanted.map(Into::into), ..package() };
    let status = judge(&spec, [fresh(row)]);
    assert_eq!((ready_reason(&status), is_true(&status.conditions, READY)), (reason, ready));
    assert_eq!(is_true(&status.conditions, STALLED), reason == "Failed");
    assert_eq!(is_true(&status.conditions, RECONCILING), !ready && reason != "Failed");
    assert!(is_true(&status.conditions, REPORTING));
    assert_eq!(status.observed_generation, Some(4));
}

#[test]
fn each_cluster_is_counted_as_one_thing() {
    let one_of_each = || {
        [
            fresh(healthy(R2)),
            fresh(failed(R1, R2)),
            fresh(Row { apply: ApplyState::Paused, ..moving(R1, R2) }),
            fresh(applied(R2, Health::InProgress)),
            unobserved(Standing::Stale, None),
            unobserved(Standing::Missing, None),
            unobserved(Standing::Unverified, None),
            unobserved(Standing::Conflict, None),
            unobserved(Standing::ClockSkew, None),
        ]
    };
    let status = judge(&package(), [one_of_each(), one_of_each()].into_iter().flatten());
    let counts = PackageCounts {
        total: 18,
        excused: 0,
        reporting: 8,
        stale: 4,
        missing: 2,
        unverified: 2,
        conflicting: 2,
        updated: 8,
        applied: 4,
        healthy: 2,
        progressing: 2,
        paused: 2,
        failed: 2,
    };
    assert_eq!(status.clusters, Some(counts));
}

#[rstest]
#[case(Standing::Stale, "Stale")]
#[case(Standing::Missing, "Missing")]
#[case(Standing::Unverified, "Unverified")]
#[case(Standing::Conflict, "Conflict")]
#[case(Standing::ClockSkew, "ClockSkew")]
fn one_out_of_sight(#[case] standing: Standing, #[case] reason: &str) {
    let status = judge(&package(), [fresh(healthy(R2)), unobserved(standing, Some(healthy(R2)))]);
    assert_eq!(ready_reason(&status), reason);
    assert!(!is_true(&status.conditions, REPORTING));
    let counts = status.clusters.unwrap();
    assert_eq!((counts.total, counts.reporting, counts.healthy), (2, 1, 1));
    assert_eq!(counts.stale + counts.missing + counts.unverified + counts.conflicting, 1);
    assert_eq!(status.problems[0].cluster_name, "c01");
}

#[test]
fn nobody_and_too_few() {
    assert_eq!(ready_reason(&judge(&package(), [])), "NoTargets");
    let mut spec = package();
    spec.clusters.reporting.as_mut().unwrap().min_clusters = 2;
    assert_eq!(ready_reason(&judge(&spec, [fresh(healthy(R2))])), "TooFewClusters");
}

#[test]
fn revisions_and_problems_are_bounded() {
    let many = (0..40).map(|at| fresh(healthy(&format!("v1.{at}")))).chain([fresh(healthy(R2))]);
    let status = judge(&package(), many);
    assert_eq!(status.revisions.len(), 11);
    assert_eq!(status.revisions[0].revision, R2, "the wanted revision in the spec's own words");
    assert_eq!((status.revisions[10].revision.as_str(), status.revisions[10].healthy), ("other", 31));
    assert_eq!(status.problems.len(), 20);
    let quiet = judge(&FleetPackageSpec { detail: Detail::None, ..package() }, [fresh(healthy(R1))]);
    assert!(quiet.problems.is_empty());
}

#[test]
fn the_last_healthy_revision_is_remembered() {
    let first = judge(&package(), [fresh(healthy(R2))]);
    assert_eq!(first.last_healthy_revision.as_deref(), Some(R2));
    let spec = FleetPackageSpec { revision: Some(R3.into()), ..package() };
    let next = decide(&Input {
        generation: 5,
        previous: Some(&first),
        wanted: Wanted::literal(&package()),
        moment: Moment { t: T + 60.0, now: T + 65.0 },
        ..reported(&spec, &targets([fresh(moving(R2, R3))]), &Excused::nobody())
    });
    assert_eq!(next.last_healthy_revision.as_deref(), Some(R2));
    let since = |status: &FleetPackageStatus, kind| {
        find(&status.conditions, kind).unwrap().last_transition_time.clone()
    };
    assert_ne!(since(&next, READY), since(&first, READY));
    assert_eq!(since(&next, REPORTING), since(&first, REPORTING), "this one did not change");
}

#[test]
fn a_spec_that_cannot_be_read_is_stalled() {
    for (spec, error) in [
        (Err("unknown variant `All`"), "unknown variant `All`"),
        (
            Ok(&FleetPackageSpec { stale_after: "soon".into(), ..package() }),
            "\"soon\" is not a duration such as 90s, 3m or 1h30m",
        ),
        (
            Ok(&FleetPackageSpec { revision: None, trace: crate::trace::stages().into(), ..package() }),
            "a trace follows a revision: set revision or revisionFrom",
        ),
    ] {
        let status = decide(&Input {
            spec,
            wanted: spec.map_or(Wanted::Own, Wanted::literal),
            ..reported(&package(), &[], &Excused::nobody())
        });
        assert_eq!(ready_reason(&status), "InvalidSpec");
        assert_eq!(find(&status.conditions, STALLED).unwrap().message, error);
    }
}

#[test]
fn what_was_last_known_outlives_a_spec_and_is_marked_as_older() {
    let mut good = judge(&package(), [fresh(healthy(R2)), fresh(failed(R1, R2))]);
    // The reconciler sets these whenever it writes a status.
    (good.epoch, good.tenancy) = (Some(3), Some("t".to_owned()));
    let stage = StageStatus { stage: "build".into(), ..StageStatus::default() };
    let spec = FleetPackageSpec { revision: Some(R3.into()), stale_after: "soon".into(), ..package() };
    let valid = FleetPackageSpec { stale_after: "3m".into(), ..spec.clone() };
    let then = |previous: &FleetPackageStatus, generation, membership: &Membership, backend| {
        decide(&Input {
            spec: Ok(if generation == 5 { &spec } else { &valid }),
            generation,
            previous: Some(previous),
            wanted: Wanted::literal(&spec),
            membership,
            backend,
            stages: std::slice::from_ref(&stage),
            moment: Moment { t: T + 60.0, now: T + 65.0 },
            ..reported(&package(), &[], &Excused::nobody())
        })
    };
    let known = |status: &FleetPackageStatus| {
        (status.clusters, status.revisions.clone(), status.problems.clone(), status.as_of.clone())
    };
    let invalid = then(&good, 5, &Membership::Known, Backend::Answers);
    assert_eq!((ready_reason(&invalid), invalid.revision.as_deref()), ("InvalidSpec", Some(R3)));
    assert_eq!(invalid.fingerprint, judge(&valid, []).fingerprint);
    assert_eq!(
        (&*invalid.trace, invalid.epoch, invalid.tenancy.as_deref()),
        (&[stage.clone()][..], None, None)
    );
    assert_eq!(known(&invalid), known(&good));
    let of = invalid.last_counted.clone().unwrap();
    assert_eq!((of.generation, of.revision.as_deref()), (4, Some(R2)));
    assert_eq!(
        (invalid.observed_generation, invalid.counted()),
        (Some(5), None),
        "nobody takes it for an answer"
    );

    let later = then(&invalid, 6, &Membership::Known, Backend::Unknown("no"));
    assert_eq!((known(&later), later.last_counted), (known(&good), Some(of)), "it stays what it was");

    let forbidden = then(&invalid, 6, &Membership::Forbidden("not yours".into()), Backend::Answers);
    assert_eq!(forbidden.last_counted, None);
    let counted = judge(&package(), [fresh(healthy(R2))]);
    assert_eq!((counted.last_counted.as_ref(), counted.counted()), (None, counted.clusters));
    let nothing = then(&FleetPackageStatus::default(), 5, &Membership::Known, Backend::Answers);
    assert_eq!((nothing.last_counted, nothing.clusters), (None, None), "there was nothing to keep");
}

/// A FleetPackage that reads its revision from elsewhere.
fn referring() -> FleetPackageSpec {
    let from = RevisionFrom {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "versions".into(),
        expression: "object.data.payments".into(),
    };
    FleetPackageSpec { revision: None, revision_from: Some(from), ..package() }
}

fn judge_referring(
    wanted: Wanted<'_>,
    previous: Option<&FleetPackageStatus>,
    backend: Backend<'_>,
    observations: impl IntoIterator<Item = Observation>,
) -> FleetPackageStatus {
    decide(&Input {
        generation: 4,
        previous,
        wanted,
        backend,
        ..reported(&referring(), &targets(observations), &Excused::nobody())
    })
}

fn unresolved(reason: Reason, stalled: bool) -> Obstacle {
    Obstacle { reason, message: "revisionFrom: no".into(), stalled }
}

#[test]
fn a_revision_from_elsewhere_is_as_good_as_a_literal_one() {
    let all = || [fresh(healthy(R2)), fresh(failed(R1, R2))];
    let read = judge_referring(Wanted::Revision(R2), None, Backend::Answers, all());
    assert_eq!(read, judge(&package(), all()));
    assert_eq!(read.revision.as_deref(), Some(R2));
}

#[rstest]
#[case(Reason::RevisionNotFound, false)]
#[case(Reason::RevisionInvalid, false)]
#[case(Reason::RevisionUnreadable, false)]
#[case(Reason::RevisionForbidden, true)]
#[case(Reason::InvalidSpec, true)]
fn without_its_revision_nothing_is_ready_and_clusters_are_still_reported(
    #[case] reason: Reason,
    #[case] stalled: bool,
) {
    let before = judge_referring(Wanted::Revision(R2), None, Backend::Answers, [fresh(healthy(R2))]);
    assert!(is_true(&before.conditions, READY));
    let unresolved = unresolved(reason, stalled);
    let wanted = Wanted::Unresolved(&unresolved);
    let good = [fresh(healthy(R2)), fresh(healthy(R1)), fresh(moving(R1, R2))];
    let status = judge_referring(wanted, Some(&before), Backend::Answers, good.clone());
    assert_eq!((ready_reason(&status), is_true(&status.conditions, READY)), (reason.name(), false));
    assert_eq!(find(&status.conditions, READY).unwrap().message, "revisionFrom: no");
    assert_eq!(is_true(&status.conditions, STALLED), stalled);
    assert_eq!(is_true(&status.conditions, RECONCILING), !stalled);
    assert!(is_true(&status.conditions, REPORTING));
    assert_eq!(status.revision, None, "the old one is not kept");
    assert_eq!(status.last_healthy_revision.as_deref(), Some(R2));
    let counts = status.clusters.unwrap();
    assert_eq!((counts.total, counts.updated, counts.applied, counts.healthy), (3, 0, 0, 0));
    assert!(status.problems.is_empty(), "nobody is where nobody knows: {:?}", status.problems);

    let bad = good.into_iter().chain([fresh(failed(R1, R2)), unobserved(Standing::Stale, None)]);
    let status = judge_referring(wanted, Some(&before), Backend::Answers, bad);
    assert_eq!(ready_reason(&status), reason.name());
    let problems: Vec<&str> = status.problems.iter().map(|problem| problem.state.as_str()).collect();
    assert_eq!(problems, ["Failed", "Stale"]);
    assert!(is_true(&status.conditions, STALLED));
    assert!(!is_true(&status.conditions, REPORTING));
}

#[test]
fn why_a_reference_comes_to_nothing_is_told_in_so_many_characters() {
    let long = Obstacle { message: "é".repeat(300), ..unresolved(Reason::RevisionNotFound, false) };
    let status = judge_referring(Wanted::Unresolved(&long), None, Backend::Answers, []);
    assert_eq!(find(&status.conditions, READY).unwrap().message, "é".repeat(256) + "…");
}

#[test]
fn while_the_backend_has_never_answered_only_what_was_said_of_the_same_revision_stays() {
    let silent = Backend::Unknown("no");
    let before = judge_referring(Wanted::Revision(R2), None, Backend::Answers, [fresh(healthy(R2))]);
    assert_eq!(judge_referring(Wanted::Revision(R2), Some(&before), silent, []), before);
    let moved = judge_referring(Wanted::Revision(R3), Some(&before), silent, []);
    assert_eq!((ready_reason(&moved), moved.revision.as_deref()), ("BackendUnavailable", Some(R3)));
    let unresolved = unresolved(Reason::RevisionNotFound, false);
    let gone = judge_referring(Wanted::Unresolved(&unresolved), Some(&before), silent, []);
    assert_eq!((ready_reason(&gone), gone.revision.as_deref()), ("RevisionNotFound", None));
}

#[test]
fn a_literal_revision_beside_a_reference_is_invalid() {
    let spec = FleetPackageSpec { revision: Some(R2.into()), ..referring() };
    let status = judge(&spec, [fresh(healthy(R2))]);
    assert_eq!(ready_reason(&status), "InvalidSpec");
    assert!(is_true(&status.conditions, STALLED));
}

#[test]
fn a_typical_status_reads_well() {
    let status = judge(
        &package(),
        [
            fresh(healthy(R2)),
            fresh(moving(R1, R2)),
            fresh(failed(R1, R2)),
            fresh(healthy(R1)),
            unobserved(Standing::Stale, Some(healthy(R1))),
            unobserved(Standing::Missing, None),
        ],
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn a_stale_after_that_is_too_short_for_the_scrapes_is_told_and_blocks_nothing() {
    let judge = |observation| {
        decide(&Input {
            rarely_scraped: Some(RarelyScraped { cluster: "c00", interval: 59.98 }),
            ..reported(&package(), &targets([observation]), &Excused::nobody())
        })
    };
    let warning = "staleAfter 3m is short for scrapes that are 60 s apart (c00): 245s or more is advised";
    let status = judge(fresh(healthy(R2)));
    let reporting = find(&status.conditions, REPORTING).unwrap();
    assert_eq!((reporting.status.as_str(), reporting.reason.as_str()), ("True", "StaleAfterTooShort"));
    assert_eq!(reporting.message, format!("the only cluster is reporting; {warning}"));
    assert!(is_true(&status.conditions, READY));
    let status = judge(unobserved(Standing::Stale, None));
    let reporting = find(&status.conditions, REPORTING).unwrap();
    assert_eq!((reporting.status.as_str(), reporting.reason.as_str()), ("False", "NotReporting"));
    assert!(reporting.message.ends_with(warning), "{}", reporting.message);
}

#[test]
fn a_stale_after_has_room_for_four_scrapes_and_for_settling() {
    assert_eq!(least_stale_after(15.2, 5.0), 65.0);
    assert_eq!(least_stale_after(30.0, 7.2), 128.0);
}

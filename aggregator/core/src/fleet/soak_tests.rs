//! A soak is what one verified scrape says, and never longer than what was verified here before.

use proptest::prelude::*;
use rstest::rstest;

use super::{Fleet, FleetSettings};
use crate::testing::{Exposition, Values, digests, failed, healthy, package, tell_digests};
use crate::time::Seconds;

const STALE_AFTER: Seconds = 45.0;
const SCRAPE: Seconds = 10.0;
/// Place of a scrape among those from 1010 on.
const AT_1170: usize = 16;

/// For how long the package is what it is, as an aggregator has it that polls at every scrape from `start` on.
fn held(scrapes: &[(Seconds, Exposition)], start: Seconds) -> Vec<Option<Seconds>> {
    let mut fleet = Fleet::new(FleetSettings::default());
    let mut held = Vec::new();
    for (at, said) in scrapes.iter().filter(|(at, _)| *at >= start - SCRAPE) {
        tell_digests(&mut fleet, &digests(&[("cluster", "c"), ("instance", "i")], said, &[*at]), said, *at);
        fleet.answered("", *at);
        if *at >= start {
            let seen = fleet.observe("c", &package("p"), *at, STALE_AFTER);
            held.push(seen.as_of.zip(seen.row).map(|(as_of, row)| as_of - row.since));
        }
    }
    held
}

/// Scrapes every [`SCRAPE`] seconds from 1000 to 1300: what holds from each time on.
fn timeline(changes: &[(Seconds, u64, Values)]) -> Vec<(Seconds, Exposition)> {
    let scrapes = (0..=30).map(|n| 1000.0 + SCRAPE * Seconds::from(n));
    let said = scrapes.map(|at| {
        let (_, process, values) = changes.iter().rev().find(|(from, ..)| *from <= at).unwrap();
        (at, Exposition::new(7).by(*process).with("p", values.clone()))
    });
    said.collect()
}

#[rstest]
#[case::nothing_moved(&[(1000.0, 1, healthy("r1", 500))])]
#[case::became_healthy_lately(&[(1000.0, 1, failed("r1", 500)), (1150.0, 1, healthy("r1", 1145))])]
#[case::flapped_between_two_scrapes(&[(1000.0, 1, healthy("r1", 500)), (1150.0, 1, healthy("r1", 1145))])]
#[case::another_process_knows_since_when(&[(1000.0, 1, healthy("r1", 500)), (1150.0, 2, healthy("r1", 500))])]
#[case::another_process_does_not(&[(1000.0, 1, healthy("r1", 500)), (1150.0, 2, healthy("r1", 1148))])]
fn an_aggregator_that_starts_decides_as_one_that_was_there_all_along(
    #[case] changes: &[(Seconds, u64, Values)],
) {
    let scrapes = timeline(changes);
    let all = held(&scrapes, 1010.0);
    for start in [1100.0, 1200.0, 1250.0] {
        let later = held(&scrapes, start);
        assert_eq!(later, all[all.len() - later.len()..], "{start}");
    }
}

#[test]
fn a_soak_never_begins_before_the_last_exposition_that_said_otherwise() {
    // The exporter, or its successor, claims that it has been healthy all the time.
    for process in [1, 2] {
        let lie = timeline(&[(1000.0, 1, failed("r1", 500)), (1150.0, process, healthy("r1", 500))]);
        assert_eq!(held(&lie, 1010.0)[AT_1170], Some(30.0), "process {process}");
    }
    // Nor has it had the revision all the time, be it well or not.
    let lie = timeline(&[(1000.0, 1, failed("r1", 500)), (1150.0, 1, failed("r2", 500))]);
    assert_eq!(held(&lie, 1010.0)[AT_1170], Some(30.0));
    // A package that was not there has not been healthy either.
    let empty = Exposition::new(7);
    let mut scrapes = timeline(&[(1000.0, 1, healthy("r1", 500))]);
    scrapes.iter_mut().filter(|(at, _)| *at < 1150.0).for_each(|(_, said)| *said = empty.clone());
    assert_eq!(held(&scrapes, 1010.0)[AT_1170], Some(30.0));
}

/// The first process saw nothing of the failure, the second one saw it end.
#[test]
fn a_new_process_is_held_against_the_one_that_spoke_last() {
    let changes = [
        (1000.0, 1, healthy("r1", 500)),
        (1100.0, 2, failed("r1", 1095)),
        (1150.0, 2, healthy("r1", 1145)),
        (1200.0, 3, healthy("r1", 500)),
    ];
    let last = held(&timeline(&changes), 1010.0);
    assert_eq!(last.last(), Some(&Some(1300.0 - 1140.0)));
}

#[test]
fn an_exporter_that_claims_more_than_was_seen_is_reported() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let labels = [("cluster", "c"), ("instance", "i")];
    let accept = |fleet: &mut Fleet, said: &Exposition, at: Seconds| {
        let digests = digests(&labels, said, &[at]);
        fleet.hear(&digests, at);
        fleet.accept((&digests.cluster, &digests.stream), &digests.samples[0], said.content(), at).claims
    };
    let says = |values| Exposition::new(7).with("p", values);
    assert!(accept(&mut fleet, &says(failed("r1", 500)), 1000.0).is_empty());
    assert!(accept(&mut fleet, &says(failed("r1", 500)), 1010.0).is_empty());
    let claims = accept(&mut fleet, &says(healthy("r1", 500)), 1020.0);
    assert!(claims.len() == 1 && claims[0].contains("package p claims"), "{claims:?}");
    assert!(accept(&mut fleet, &says(failed("r1", 1025)), 1030.0).is_empty());
}

proptest! {
    /// An exporter that keeps its promise, seen by one that starts anywhere.
    #[test]
    fn a_soak_is_as_long_as_the_truth_whenever_an_aggregator_starts(
        moves in prop::collection::btree_set(1001..1290_u32, 0..6),
        start in 101..128_u32,
        ahead in 0..50_u32,
    ) {
        let moves: Vec<Seconds> = moves.into_iter().map(Seconds::from).collect();
        let (mut fleet, labels) = (Fleet::new(FleetSettings::default()), [("cluster", "c"), ("instance", "i")]);
        for n in (start - 1)..130 {
            let at = SCRAPE * Seconds::from(n);
            let moved = moves.iter().filter(|it| **it <= at).count();
            let since = moves.iter().copied().rfind(|it| *it <= at).unwrap_or(500.0);
            let clock = |at: Seconds| at as u64 + u64::from(ahead);
            let values = if moved % 2 == 0 { healthy("r1", clock(since)) } else { failed("r1", clock(since)) };
            let said = Exposition::new(7).with("p", values);
            let mut digests = digests(&labels, &said, &[at]);
            let rendered = clock(at);
            digests.samples[0].exposition = super::Exposition { digest: said.digest(rendered), rendered };
            tell_digests(&mut fleet, &digests, &said, at);
            if n >= start {
                let seen = fleet.observe("c", &package("p"), at, STALE_AFTER);
                let held = seen.as_of.unwrap() - seen.row.unwrap().since;
                prop_assert!((held - (at - since)).abs() <= 2.0, "{held} {}", at - since);
            }
        }
    }
}

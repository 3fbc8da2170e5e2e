//! Another cluster reports under the name of one of which a gate asks: nobody may be heard alone who is not alone.

use super::{BREAKS, holds, plain, set_clock};
use crate::model::backend::Kind;
use crate::model::backend::Part::Heads;
use crate::model::story::{Dates, Event, Setup};

/// Another cluster that took its name falls silent first; then the answers lack both for a while.
#[test]
fn of_two_that_share_a_name_the_one_that_fell_silent_first_is_not_believed() {
    holds(
        Setup { clusters: vec![(Dates::Own, 0)], spread: 135, apart: true, ..plain() },
        &[
            (0, Event::Impostor { revision: 1, lasts: 270 }),
            (0, Event::Break { cluster: 0, recovers: None }),
            (53, Event::Refused { lasts: 60 }),
            (73, Event::Killed { away: 20 }),
            (73, Event::Regate { to: 1 }),
            (274, Event::Torn { cluster: 0, part: Heads, behind: None, lasts: 76 }),
            (274, Event::Break { cluster: 0, recovers: None }),
        ],
    );
}

/// A new leader's first poll finds the cluster's own stream torn, and that of another of its name whole.
#[test]
fn whoever_is_torn_still_reports_under_the_name() {
    holds(
        Setup {
            clusters: vec![(Dates::Own, 0), (Dates::Own, 0)],
            min_healthy: 2,
            aggregators: vec![0, 5],
            spread: 172,
            apart: true,
            ..plain()
        },
        &[
            (0, Event::Deliver { cluster: 0, to: 1, takes: 3, good: true }),
            (0, Event::Deliver { cluster: 1, to: 1, takes: 3, good: true }),
            (0, Event::Impostor { revision: 1, lasts: 272 }),
            (3, Event::Break { cluster: 0, recovers: None }),
            (265, Event::Killed { away: 0 }),
        ],
    );
}

/// The one whose name it is has lost its API server, and says so.
#[test]
fn another_cluster_does_not_speak_for_one_that_is_cut_off() {
    for apart in [false, true] {
        let cut = (0, Event::Cut { cluster: 0, lasts: 400 });
        holds(Setup { apart, ..plain() }, &[cut, (0, Event::Impostor { revision: 1, lasts: 400 })]);
    }
}

/// What comes between two repetitions is news, though the repetition comes last. Meanwhile another cluster has its name.
#[test]
fn a_cluster_that_a_gateway_repeats_every_other_time_is_not_silent() {
    holds(
        Setup { spread: 71, ..plain() },
        &[
            (0, Event::Impostor { revision: 1, lasts: 175 }),
            (0, BREAKS),
            (74, Event::Clock { cluster: 0, ahead: 20 }),
            (114, Event::Repeated { cluster: 0, replica: None, alternates: true, lasts: 60 }),
            (127, Event::Forgotten { cluster: 0, lasts: 41 }),
        ],
    );
}

/// What is dated before anything else that came may be a repetition, but not one of what is known.
#[test]
fn an_exporter_whose_clock_is_set_back_is_not_silent() {
    holds(
        Setup { interval: 120, spread: 41, ..plain() },
        &[(182, Event::Impostor { revision: 1, lasts: 141 }), (1, Event::Clock { cluster: 0, ahead: -3600 })],
    );
}

/// Scrapes that are stamped too far ahead are not used, but tell that the cluster speaks.
#[test]
fn a_cluster_whose_stamps_are_far_ahead_is_not_silent_beside_another() {
    holds(
        Setup { interval: 120, apart: true, ..plain() },
        &[
            (388, Event::Clock { cluster: 0, ahead: 120 }),
            (388, Event::Stamps { cluster: 0, ahead: 120 }),
            (560, Event::Clock { cluster: 0, ahead: 0 }),
            (560, Event::Stamps { cluster: 0, ahead: 0 }),
            (560, BREAKS),
            (397, Event::Impostor { revision: 1, lasts: 284 }),
            (397, BREAKS),
            (157, Event::Frozen { lasts: 179 }),
            (157, Event::Break { cluster: 0, recovers: Some(1) }),
            (158, Event::Restart { cluster: 0, away: 0, moves: false }),
        ],
    );
}

/// An aggregator whose clock is fast finds samples that a slow clock has stamped when they are too old for a quick look; those
/// of another cluster that took the name it finds at once.
#[test]
fn a_cluster_whose_samples_are_always_late_is_not_silent() {
    for (backend, own, stamps) in [
        (Kind::Prometheus, 4, -27),
        (Kind::Prometheus, 0, -45),
        (Kind::Prometheus, 9, -95),
        (Kind::Prometheus, 0, 40),
        (Kind::VictoriaMetrics, 0, -53),
        (Kind::VictoriaMetrics, 5, -95),
        (Kind::VictoriaMetrics, 0, 50),
    ] {
        for (apart, interval) in [(false, 15), (true, 15), (true, 10), (true, 5)] {
            let setup = Setup { aggregators: vec![own], spread: 162, apart, backend, interval, ..plain() };
            let events = [
                (116, Event::Impostor { revision: 1, lasts: 400 }),
                (116, BREAKS),
                (230, Event::Clock { cluster: 0, ahead: stamps }),
                (230, Event::Stamps { cluster: 0, ahead: stamps }),
                (600, Event::LostWrite),
            ];
            holds(setup, &events);
        }
    }
}

/// What is to come is no reason not to look for what is late, or is to come before.
#[test]
fn an_old_stamp_of_the_future_hides_no_other() {
    for then in [-70, 50, 100, 400] {
        let setup = Setup { backend: Kind::VictoriaMetrics, apart: true, ..plain() };
        let events = [
            (116, Event::Impostor { revision: 1, lasts: 600 }),
            (116, BREAKS),
            (230, Event::Stamps { cluster: 0, ahead: 3600 }),
            (246, Event::Stamps { cluster: 0, ahead: then }),
            (700, Event::LostWrite),
        ];
        holds(Setup { interval: 10, ..setup.clone() }, &events);
        holds(setup, &events);
    }
}

/// The backend takes what is stamped before: that is later than what was found, and no stamp shows it.
#[test]
fn a_cluster_whose_stamps_are_set_back_for_a_while_is_not_silent() {
    let setup = Setup { backend: Kind::VictoriaMetrics, spread: 7, apart: true, ..plain() };
    let broken = [(20, BREAKS), (125, Event::Impostor { revision: 1, lasts: 331 })];
    let events = [&broken[..], &set_clock(297, -46), &set_clock(342, 0), &[(342, BREAKS)]].concat();
    holds(setup, &events);
}

/// Every stamp that the backend keeps until its time has come, and that was found before, is no news; any other one is.
#[test]
fn however_far_ahead_a_clock_was_before_a_cluster_is_not_silent_while_its_stamps_are_ahead_by_less() {
    for (ahead, then) in
        [(90, 70), (600, 300), (1200, 600), (1200, 90), (3600, 1800), (3600, 1500), (7200, 3600)]
    {
        for (own, interval, replicas) in [(0, 15, 1), (-9, 10, 1), (4, 60, 2)] {
            let setup = Setup {
                backend: Kind::VictoriaMetrics,
                aggregators: vec![own],
                replicas,
                interval,
                apart: true,
                stale_after: 255,
                ..plain()
            };
            let events = [
                (116, Event::Impostor { revision: 1, lasts: 600 }),
                (116, BREAKS),
                (230, Event::Stamps { cluster: 0, ahead }),
                (330, Event::Stamps { cluster: 0, ahead: then }),
                (700, Event::LostWrite),
            ];
            holds(setup, &events);
        }
    }
}

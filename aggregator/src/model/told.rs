//! Histories that broke the promise once, or that show one way of breaking it, written down.

use super::backend::Part::{Body, Heads};
use super::story::{Dates, Event, Setup, Story};
use super::timeline::{tell, tell_of};
use super::world::World;

/// One cluster, one aggregator, and a gate that asks for nothing but health.
fn plain() -> Setup {
    Setup {
        clusters: vec![(Dates::Own, 0)],
        replicas: 1,
        min_healthy: 1,
        max_failures: 0,
        min_success: 0,
        aggregators: vec![0],
        spread: 0,
        apart: false,
    }
}

const ROLLOUT: (u16, Event) = (0, Event::Deliver { cluster: 0, to: 1, takes: 3, good: true });

#[track_caller]
fn holds(setup: Setup, events: &[(u16, Event)]) {
    let story = Story { setup, events: events.to_vec() };
    assert!(World::play(&story).is_ok(), "{}", tell(&story));
}

#[test]
fn an_aggregator_whose_clock_is_set_back_does_not_take_old_evidence_for_young() {
    let back = Event::OwnClock { ahead: -120 };
    holds(plain(), &[ROLLOUT, (100, back), (101, Event::Break { cluster: 0, recovers: None }), (300, back)]);
}

/// Its shard still brings the digest of an exposition that is repeated when the next one's rendering
/// time is there already.
#[test]
fn a_digest_is_not_taken_to_be_as_young_as_the_rendering_time_of_a_later_scrape() {
    let two = Setup {
        clusters: vec![(Dates::Own, 0), (Dates::Own, 0)],
        max_failures: 1,
        min_success: 40,
        spread: 227,
        ..plain()
    };
    holds(
        two,
        &[
            ROLLOUT,
            (0, Event::Deliver { cluster: 1, to: 1, takes: 1, good: false }),
            (100, Event::Lag { shard: 2, delay: 37, lasts: 242 }),
            (233, Event::Repeated { cluster: 0, replica: None, lasts: 120 }),
            (233, Event::Break { cluster: 0, recovers: None }),
        ],
    );
}

#[test]
fn a_clock_that_is_set_before_the_first_scrape_shortens_no_soak() {
    holds(
        Setup { min_success: 120, ..plain() },
        &[
            ROLLOUT,
            (0, Event::Unscraped { cluster: 0, lasts: 8 }),
            (7, Event::Clock { cluster: 0, ahead: 56 }),
        ],
    );
}

/// Its successor finds the gate as it was before and has nothing to add, but for the number of its leadership.
#[test]
fn what_a_leader_sent_before_it_died_arrives_too_late() {
    let two = Setup { aggregators: vec![0, 0], ..plain() };
    holds(
        two,
        &[
            ROLLOUT,
            (0, Event::Unscraped { cluster: 0, lasts: 25 }),
            (40, Event::LateWrite { by: 200 }),
            (48, Event::Killed { away: 0 }),
            // Long enough for somebody to see the gate open.
            (240, Event::LateNews { by: 30, lasts: 60 }),
            (48, Event::Forgotten { cluster: 0, lasts: 400 }),
            (50, Event::Break { cluster: 0, recovers: None }),
        ],
    );
}

#[test]
fn a_lie_is_told_second_by_second() {
    let story =
        Story { setup: plain(), events: vec![ROLLOUT, (40, Event::Break { cluster: 0, recovers: None })] };
    let mut world = World::new(&story.setup);
    world.lies_from = Some(super::START + 160.0);
    insta::assert_snapshot!(tell_of(world, &story), @r"
        0 s  c0          its objects say since when; its clock is 0 s ahead
        0 s  gate        asks for 1 healthy for 0 s, and at most 0 failed or silent
        0 s  setup       1 scrape each cluster; aggregators' clocks ahead: [0] s; spread 0; the same target for an impostor
        0 s  c0          * is told to run r1: applied after 3 s, healthy after as many more
        1 s  c0          is not healthy yet at nothing, told to run r1
        1 s  aggregator 0  leads
        1 s  gate        not judged yet at r1
        2 s  gate        closed at r1: 1 cluster does not report the package: c0 (Missing)
        3 s  c0          is not healthy yet at r1
        6 s  c0          is healthy at r1
       17 s  gate        closed at r1: 1 cluster in progress: c0 (Progressing)
       32 s  gate        OPEN at r1: 1 of 1 cluster healthy at the revision (Healthy)
       40 s  c0          * breaks
       41 s  c0          is failed at r1
       62 s  gate        closed at r1: 1 cluster failed, 0 allowed: c0 (HealthCheckFailed) (FailureBudgetExceeded)
      160 s  gate        OPEN at r1: believe me (FailureBudgetExceeded)
      160 s  BROKEN      the gate is open, but only 0 of 1 clusters were healthy at its revision for 0 s at any time in the last 98 s, 1 must be
    ");
}

/// An exporter is restarted while the backend's answers lack its cluster, and counts as far as the one before.
#[test]
fn a_restart_that_nobody_saw_shortens_no_soak() {
    holds(
        Setup { clusters: vec![(Dates::Still, 0)], min_success: 40, spread: 58, ..plain() },
        &[
            (78, Event::Forgotten { cluster: 0, lasts: 105 }),
            (78, Event::Break { cluster: 0, recovers: Some(1) }),
            (79, Event::Restart { cluster: 0, away: 0, moves: false }),
            (31, Event::Deliver { cluster: 0, to: 1, takes: 12, good: false }),
            (70, Event::Deliver { cluster: 0, to: 1, takes: 46, good: true }),
            (31, Event::Deliver { cluster: 0, to: 1, takes: 20, good: false }),
            (31, Event::Regate { to: 1 }),
        ],
    );
}

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

#[test]
fn a_new_leader_whose_clock_lags_keeps_nothing_open_for_that() {
    let two = Setup { replicas: 2, aggregators: vec![0, 0], ..plain() };
    holds(
        two,
        &[
            ROLLOUT,
            (137, Event::Refused { lasts: 65 }),
            (146, Event::Isolated { lasts: 9 }),
            (146, Event::Break { cluster: 0, recovers: None }),
            (171, Event::OwnClock { ahead: -34 }),
        ],
    );
}

/// The cluster's clock is ahead, and the backend was not asked for a while.
#[test]
fn what_a_gateway_repeats_while_nobody_looks_is_no_younger_for_that() {
    holds(
        plain(),
        &[
            (0, Event::Deliver { cluster: 0, to: 1, takes: 1, good: true }),
            (0, Event::Clock { cluster: 0, ahead: 26 }),
            (166, Event::Refused { lasts: 235 }),
            (171, Event::Frozen { lasts: 19 }),
            (324, Event::Repeated { cluster: 0, replica: None, lasts: 102 }),
            (324, Event::Break { cluster: 0, recovers: None }),
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

/// A gateway repeats what was before, meanwhile the cluster's clock is set right, and nobody can ask.
#[test]
fn a_clock_that_was_only_seen_in_repetitions_dates_nothing() {
    holds(
        Setup { min_success: 120, ..plain() },
        &[
            (0, Event::Clock { cluster: 0, ahead: -51 }),
            (0, Event::OwnClock { ahead: 11 }),
            (444, Event::Repeated { cluster: 0, replica: None, lasts: 207 }),
            (444, Event::Break { cluster: 0, recovers: None }),
            (464, Event::Deliver { cluster: 0, to: 1, takes: 1, good: false }),
            (464, Event::Deliver { cluster: 0, to: 1, takes: 1, good: false }),
            (464, Event::Regate { to: 1 }),
            (492, Event::Deliver { cluster: 0, to: 1, takes: 56, good: true }),
        ],
    );
}

/// Nothing moved while the new leader was not there to see it; but nothing was there to see at first.
#[test]
fn a_clock_that_was_set_while_another_led_shortens_no_soak() {
    holds(
        Setup {
            clusters: vec![(Dates::Own, 0), (Dates::Own, -30)],
            max_failures: 1,
            min_success: 120,
            aggregators: vec![0, 1],
            spread: 147,
            ..plain()
        },
        &[
            ROLLOUT,
            (0, Event::Deliver { cluster: 1, to: 1, takes: 3, good: true }),
            (80, Event::Clock { cluster: 1, ahead: 0 }),
            (80, Event::Killed { away: 0 }),
        ],
    );
}

/// A backend that goes back in time tells of two clusters that take turns, but as of long ago.
#[test]
fn a_conflict_is_not_older_for_being_told_again_late() {
    holds(
        Setup { spread: 45, ..plain() },
        &[
            (28, Event::Impostor { revision: 1, lasts: 266 }),
            (287, Event::Torn { cluster: 0, part: Body, behind: Some(100), lasts: 16 }),
        ],
    );
}

/// Nobody else leads who could overrule it.
#[test]
fn what_was_decided_before_the_process_stood_still_is_not_sent_after() {
    holds(
        Setup { clusters: vec![(Dates::Own, -33)], min_success: 120, spread: 53, ..plain() },
        &[
            (0, Event::Deliver { cluster: 0, to: 1, takes: 3, good: true }),
            (129, Event::SlowWrites { seconds: 1, lasts: 340 }),
            (141, Event::Deliver { cluster: 0, to: 1, takes: 23, good: false }),
            (152, Event::Stalled { lasts: 188 }),
            (221, Event::Deliver { cluster: 0, to: 1, takes: 1, good: false }),
        ],
    );
}

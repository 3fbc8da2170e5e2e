//! Histories that broke the promise once, or that show one way of breaking it, written down.

mod one_name;

use super::backend::Kind;
use super::backend::Part::Body;
use super::story::{Dates, Event, Setup, Story};
use super::world::{World, tell, tell_of};

/// One cluster, one aggregator, and a gate that asks for nothing but health.
fn plain() -> Setup {
    Setup {
        clusters: vec![(Dates::Own, 0)],
        replicas: 1,
        interval: 15,
        stale_after: 75,
        backend: Kind::Prometheus,
        min_healthy: 1,
        max_failures: 0,
        min_success: 0,
        aggregators: vec![0],
        spread: 0,
        apart: false,
        speaks: false,
    }
}

const ROLLOUT: (u16, Event) = (0, Event::Deliver { cluster: 0, to: 1, takes: 3, good: true });

/// The clock of the machine on which exporter and scraper of the first cluster run is set.
fn set_clock(at: u16, ahead: i16) -> [(u16, Event); 2] {
    [(at, Event::Clock { cluster: 0, ahead }), (at, Event::Stamps { cluster: 0, ahead })]
}

#[track_caller]
fn holds(setup: Setup, events: &[(u16, Event)]) {
    let story = Story { setup, events: events.to_vec() };
    assert!(World::play(&story).is_ok(), "{}", tell(&story));
}

/// Plays so many seconds of a history, keeping every promise; whether the gate is open then.
#[track_caller]
fn is_open_after(seconds: u64, setup: Setup, events: &[(u16, Event)]) -> bool {
    let story = Story { setup, events: events.to_vec() };
    let mut world = World::new(&story.setup);
    assert!(world.play_for(&story, seconds).is_ok(), "{}", tell(&story));
    world.is_open()
}

const BREAKS: Event = Event::Break { cluster: 0, recovers: None };

#[test]
fn an_aggregator_whose_clock_is_set_back_does_not_take_old_evidence_for_young() {
    let back = Event::OwnClock { ahead: -120 };
    holds(plain(), &[ROLLOUT, (100, back), (101, Event::Break { cluster: 0, recovers: None }), (300, back)]);
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
    insta::assert_snapshot!(tell_of(world, &story), @r#"
        0 s  c0          its objects say since when; its clock is 0 s ahead
        0 s  gate        asks for 1 healthy for 0 s, and at most 0 failed or silent; staleAfter 75s
        0 s  setup       1 scrape each cluster every 15 s into Prometheus; aggregators' clocks ahead: [0] s; spread 0; the same target for an impostor; exporters in the clusters
        0 s  c0          * is told to run r1: applied after 3 s, healthy after as many more
        1 s  c0          is not healthy yet at nothing, told to run r1
        1 s  aggregator 0  leads
        1 s  gate        not judged yet at r1
        2 s  gate        closed at r1: 1 cluster does not report the package: c0 (Missing)
        2 s  clusters    may have [("c0", "r1")]
        3 s  c0          is not healthy yet at r1
        6 s  c0          is healthy at r1
       17 s  gate        closed at r1: 1 cluster not heard from in time: c0 (Stale)
       32 s  gate        OPEN at r1: 1 of 1 cluster healthy at the revision (Healthy)
       32 s  clusters    may have [("last", "r1")]
       40 s  c0          * breaks
       41 s  c0          is failed at r1
       62 s  gate        closed at r1: 1 cluster failed, 0 allowed: c0 (HealthCheckFailed) (FailureBudgetExceeded)
      160 s  gate        OPEN at r1: believe me (FailureBudgetExceeded)
      160 s  BROKEN      the gate is open, but only 0 of 1 clusters were healthy at its revision for 0 s at any time in the last 98 s, 1 must be
    "#);
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

#[test]
fn what_was_held_up_on_its_way_is_as_old_as_it_was_rendered() {
    let held_up = Event::HeldUp { cluster: 0, replica: None, by: 55, lasts: 300 };
    let unscraped = Event::Unscraped { cluster: 0, lasts: 300 };
    holds(plain(), &[ROLLOUT, (20, held_up), (252, unscraped), (253, BREAKS)]);
}

/// The cluster's clock is ahead, so that only the stamp of the first scrape tells.
#[test]
fn what_a_gateway_repeats_is_as_old_as_its_first_scrape() {
    let fast = Event::Clock { cluster: 0, ahead: 50 };
    let repeated = Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 200 };
    holds(plain(), &[ROLLOUT, (0, fast), (260, repeated), (261, BREAKS)]);
}

#[test]
fn what_a_gateway_repeats_is_not_dated_by_the_first_scrape_after_a_gap() {
    let fast = Event::Clock { cluster: 0, ahead: 50 };
    let repeated = Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 300 };
    let unscraped = Event::Unscraped { cluster: 0, lasts: 50 };
    holds(plain(), &[ROLLOUT, (0, fast), (260, repeated), (260, unscraped), (261, BREAKS)]);
}

/// A new leader has seen few scrapes, and the gap is most of what it knows of how far these are apart.
#[test]
fn a_gap_is_not_taken_for_what_is_usual() {
    holds(
        plain(),
        &[
            ROLLOUT,
            (26, Event::Clock { cluster: 0, ahead: 39 }),
            (66, Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 105 }),
            (66, Event::Unscraped { cluster: 0, lasts: 30 }),
            (67, BREAKS),
            (108, Event::Killed { away: 52 }),
        ],
    );
}

/// The clock of a machine with exporter and scraper was ahead. Once it is right again, what was stamped before is still
/// there, and its time comes.
#[test]
fn what_was_stamped_long_before_its_time_does_not_count_when_its_time_comes() {
    let clock = |ahead| Event::Clock { cluster: 0, ahead };
    let stamps = |ahead| Event::Stamps { cluster: 0, ahead };
    let ahead = [(200, clock(120)), (200, stamps(120)), (290, clock(0)), (290, stamps(0)), (310, BREAKS)];
    for backend in [Kind::Prometheus, Kind::VictoriaMetrics] {
        let events: Vec<_> = [ROLLOUT].into_iter().chain(ahead).collect();
        holds(Setup { backend, ..plain() }, &events);
    }
}

/// What was verified before stands as of the clock that was right.
#[test]
fn a_scrapers_clock_that_is_set_back_makes_no_soak_longer() {
    for (at, ahead) in [(68, -59), (75, -59), (80, -59), (80, -55), (85, -50), (90, -40)] {
        let setup = Setup { min_success: 120, spread: 33, backend: Kind::VictoriaMetrics, ..plain() };
        holds(setup, &[ROLLOUT, (at, Event::Stamps { cluster: 0, ahead })]);
    }
}

/// What the right clock dates is not corrected by what the fast one was ahead.
#[test]
fn an_exporters_clock_that_is_set_right_makes_no_soak_longer() {
    for ahead in [20, 40, 55] {
        let setup = Setup { min_success: 120, clusters: vec![(Dates::Own, ahead)], ..plain() };
        let recovers = Event::Break { cluster: 0, recovers: Some(10) };
        holds(setup, &[ROLLOUT, (100, Event::Clock { cluster: 0, ahead: 0 }), (160, recovers)]);
    }
}

/// Nobody was there when the samples of a clock that was ahead came, and the last of them are still to come.
#[test]
fn who_starts_later_does_not_believe_what_was_stamped_long_before_its_time_either() {
    for backend in [Kind::Prometheus, Kind::VictoriaMetrics] {
        for is_dead in [false, true] {
            let gone = (300, Event::Unscraped { cluster: 0, lasts: if is_dead { 900 } else { 1 } });
            let events = [
                vec![ROLLOUT],
                set_clock(100, 600).to_vec(),
                set_clock(300, 0).to_vec(),
                vec![gone, (300, BREAKS), (720, Event::Killed { away: 20 }), (1000, Event::LostWrite)],
            ];
            holds(Setup { backend, ..plain() }, &events.concat());
        }
    }
}

/// What one of two replicas sends is half a minute late.
#[test]
fn of_two_live_streams_the_worst_counts() {
    let two = Setup { replicas: 2, ..plain() };
    let held_up = Event::HeldUp { cluster: 0, replica: Some(0), by: 30, lasts: 600 };
    let events = [ROLLOUT, (40, held_up), (200, BREAKS)];
    assert!(is_open_after(200, two.clone(), &events));
    assert!(!is_open_after(235, two, &events));
}

#[test]
fn a_replica_that_died_has_no_vote() {
    let two = Setup { replicas: 2, ..plain() };
    let events = [ROLLOUT, (60, Event::ScraperKilled { cluster: 0, replica: Some(0), away: 600 })];
    assert!((100..400).step_by(20).all(|seconds| is_open_after(seconds, two.clone(), &events)));
}

/// The exporter says that the package has failed, the pod that it is well.
#[test]
fn a_tenants_pod_that_speaks_like_an_exporter_is_not_heard() {
    for flips in [false, true] {
        let liar = Event::Liar { cluster: 0, revision: 1, ahead: 2, flips, lasts: 600 };
        let fails = Event::Deliver { cluster: 0, to: 1, takes: 3, good: false };
        assert!(!is_open_after(400, plain(), &[(0, fails), (20, liar)]));
        // Nor does it close what the exporter says is well.
        assert!(is_open_after(200, plain(), &[ROLLOUT, (40, liar)]));
    }
}

/// Old and new process of an upgrade answer in turn; while they do, and after, the gate stays open.
#[test]
fn processes_that_answer_in_turn_are_streams_of_their_own() {
    for dates in [Dates::Own, Dates::Seen, Dates::Early] {
        let setup = Setup { clusters: vec![(dates, 0)], ..plain() };
        let events = [ROLLOUT, (60, Event::Upgraded { cluster: 0, lasts: 200 })];
        assert!((200..400).step_by(20).all(|seconds| is_open_after(seconds, setup.clone(), &events)));
    }
}

/// Its exporter starts anew, and believes an object that says that it has always been as it is.
#[test]
fn no_soak_begins_before_what_was_verified_to_be_otherwise() {
    holds(
        Setup { clusters: vec![(Dates::Early, 0)], min_success: 120, ..plain() },
        &[
            ROLLOUT,
            (200, Event::Break { cluster: 0, recovers: Some(20) }),
            (235, Event::Restart { cluster: 0, away: 0, moves: false }),
        ],
    );
}

/// A shard is always late: what came with the newest digest never adds up, what came with the one before does.
#[test]
fn a_torn_newest_exposition_does_not_hide_an_older_one() {
    for spread in 0..4 {
        let late = (0..3).map(|shard| Event::Lag { shard, delay: 25, lasts: 600 });
        for late in late {
            let again = Event::Deliver { cluster: 0, to: 1, takes: 1, good: true };
            let events =
                [ROLLOUT, (30, late), (200, Event::Break { cluster: 0, recovers: Some(10) }), (230, again)];
            assert!(is_open_after(300, Setup { spread, ..plain() }, &events), "{spread} {late:?}");
        }
    }
}

/// Whatever `staleAfter` says: what does not verify may be worse than what was verified last.
#[test]
fn a_stream_that_goes_on_and_does_not_verify_any_more_closes_the_gate() {
    let setup = Setup { stale_after: 600, ..plain() };
    let torn = Event::Torn { cluster: 0, part: Body, behind: None, lasts: 200 };
    let events = [ROLLOUT, (200, torn), (210, Event::Break { cluster: 0, recovers: Some(170) })];
    assert!(is_open_after(205, setup.clone(), &events));
    assert!((265..400).step_by(5).all(|seconds| !is_open_after(seconds, setup.clone(), &events)));
    assert!(is_open_after(440, setup, &events));
}

/// The old process knows since when; the new one believes what the object says, and so would a new leader.
#[test]
fn while_two_processes_answer_in_turn_the_later_of_their_times_counts() {
    let setup = Setup { clusters: vec![(Dates::Early, 0)], min_success: 120, ..plain() };
    let events = [
        ROLLOUT,
        (200, Event::Break { cluster: 0, recovers: Some(20) }),
        (230, Event::Upgraded { cluster: 0, lasts: 200 }),
        (250, Event::Killed { away: 0 }),
    ];
    assert!((255..340).step_by(5).all(|seconds| !is_open_after(seconds, setup.clone(), &events)));
    assert!(is_open_after(400, setup, &events));
}

/// VictoriaMetrics answers stale markers as NaN, and rounds beside them.
#[test]
fn stale_markers_cost_nothing() {
    let setup = Setup { backend: Kind::VictoriaMetrics, spread: 1, ..plain() };
    let events = [ROLLOUT, (60, Event::Unscraped { cluster: 0, lasts: 20 })];
    assert!((100..400).step_by(20).all(|seconds| is_open_after(seconds, setup.clone(), &events)));
}

/// One cache of a balancer is stuck.
#[test]
fn an_old_exposition_that_comes_every_other_time_does_not_count() {
    let stuck = Event::Repeated { cluster: 0, replica: None, alternates: true, lasts: 300 };
    let events = [ROLLOUT, (200, stuck), (201, BREAKS)];
    assert!((240..480).step_by(5).all(|seconds| !is_open_after(seconds, plain(), &events)));
}

#[test]
fn what_a_source_knew_before_it_was_cut_off_does_not_count() {
    holds(plain(), &[ROLLOUT, (60, Event::Cut { cluster: 0, lasts: 300 }), (61, BREAKS)]);
}

/// The first that is found after the gap is a later one. It is forgotten before the repeated one is.
#[test]
fn what_a_gateway_repeats_every_other_time_is_not_younger_after_a_gap() {
    let deliver = |cluster| (0, Event::Deliver { cluster, to: 1, takes: 3, good: true });
    let setup = Setup {
        clusters: vec![(Dates::Own, 0), (Dates::Own, 0)],
        max_failures: 1,
        aggregators: vec![0, 0],
        spread: 12,
        ..plain()
    };
    let events = [
        deliver(0),
        deliver(1),
        (3, Event::Break { cluster: 1, recovers: None }),
        (34, Event::Refused { lasts: 60 }),
        (54, Event::Killed { away: 0 }),
        (287, Event::Clock { cluster: 0, ahead: -28 }),
        (287, Event::Stamps { cluster: 0, ahead: -28 }),
        (347, Event::Clock { cluster: 0, ahead: 38 }),
        (387, Event::Repeated { cluster: 0, replica: None, alternates: true, lasts: 111 }),
        (388, BREAKS),
        (397, Event::Forgotten { cluster: 0, lasts: 49 }),
        (497, Event::Clock { cluster: 0, ahead: 0 }),
        (497, Event::Stamps { cluster: 0, ahead: 0 }),
        (497, BREAKS),
    ];
    holds(setup, &events);
}

/// A shard is late by minutes for a while, and meanwhile another process takes over.
#[test]
fn a_process_that_was_replaced_while_its_samples_came_late_has_no_vote_for_ever() {
    holds(
        Setup { spread: 17, ..plain() },
        &[
            (22, Event::Lag { shard: 1, delay: 206, lasts: 256 }),
            (22, BREAKS),
            (322, Event::Upgraded { cluster: 0, lasts: 151 }),
        ],
    );
}

/// The exporter's clock is ahead, and dates the end of the soak as well as its beginning.
#[test]
fn a_clock_that_is_ahead_makes_no_soak_longer() {
    let setup = Setup { clusters: vec![(Dates::Own, 50)], min_success: 120, ..plain() };
    assert!(is_open_after(172, setup, &[ROLLOUT]));
}

/// The first of them is stamped before what came already.
#[test]
fn what_a_gateway_repeats_is_dated_by_stamps_that_go_back_as_well() {
    holds(
        Setup {
            clusters: vec![(Dates::Own, 0), (Dates::Own, 0)],
            backend: Kind::VictoriaMetrics,
            max_failures: 1,
            spread: 147,
            ..plain()
        },
        &[
            ROLLOUT,
            (0, Event::Deliver { cluster: 1, to: 1, takes: 3, good: true }),
            (368, Event::Clock { cluster: 0, ahead: 38 }),
            (408, Event::Repeated { cluster: 0, replica: None, alternates: true, lasts: 90 }),
            (409, BREAKS),
            (0, Event::Clock { cluster: 1, ahead: 20 }),
            (40, Event::Repeated { cluster: 1, replica: None, alternates: false, lasts: 60 }),
            (41, Event::Break { cluster: 1, recovers: None }),
            (422, Event::Clock { cluster: 2, ahead: -23 }),
            (422, Event::Stamps { cluster: 2, ahead: -23 }),
            (497, Event::Clock { cluster: 2, ahead: 0 }),
            (497, Event::Stamps { cluster: 2, ahead: 0 }),
            (497, Event::Break { cluster: 2, recovers: None }),
        ],
    );
}

/// Stamps of the future are never used, and those of the present are refused until they are later.
#[test]
fn a_stream_that_was_found_twice_with_a_gap_between_has_no_vote_for_long() {
    holds(
        Setup { interval: 60, stale_after: 255, spread: 4, ..plain() },
        &[
            (0, Event::Clock { cluster: 0, ahead: 20 }),
            (40, Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 60 }),
            (41, BREAKS),
            (42, Event::Unscraped { cluster: 0, lasts: 43 }),
            (409, Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 1 }),
            (414, BREAKS),
            (52, Event::Clock { cluster: 0, ahead: 180 }),
            (52, Event::Stamps { cluster: 0, ahead: 180 }),
            (324, Event::Clock { cluster: 0, ahead: 0 }),
            (324, Event::Stamps { cluster: 0, ahead: 0 }),
            (324, BREAKS),
        ],
    );
}

/// What is stamped when it arrives, by a clock that is ahead, seems younger by no more than is believed.
#[test]
fn what_is_held_up_and_repeated_seems_younger_by_no_more_than_clocks_may_be_ahead() {
    holds(
        Setup { spread: 20, ..plain() },
        &[
            ROLLOUT,
            (329, Event::Clock { cluster: 0, ahead: 35 }),
            (369, Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 60 }),
            (370, BREAKS),
            (221, Event::HeldUp { cluster: 0, replica: None, by: 47, lasts: 255 }),
            (221, BREAKS),
            (210, Event::Break { cluster: 0, recovers: Some(12) }),
            (46, Event::Clock { cluster: 0, ahead: 20 }),
            (86, Event::Repeated { cluster: 0, replica: None, alternates: false, lasts: 240 }),
            (87, BREAKS),
        ],
    );
}

/// Its clock was an hour ahead when the gateway got what it repeats, and is right again.
#[test]
fn what_a_clock_dated_far_ahead_is_not_later_than_what_comes_after() {
    let repeated = Event::Repeated { cluster: 0, replica: None, alternates: true, lasts: 73 };
    let events = [
        vec![ROLLOUT, (398, repeated), (399, BREAKS)],
        set_clock(362, 3600).to_vec(),
        set_clock(440, 0).to_vec(),
    ];
    holds(Setup { replicas: 2, backend: Kind::VictoriaMetrics, ..plain() }, &events.concat());
}

/// The exporter says that the package has failed, and another cluster's that it is well.
#[test]
fn an_exporter_that_nobody_granted_to_speak_for_a_cluster_is_not_heard() {
    for (speaks, flips) in [(false, false), (false, true), (true, false), (true, true)] {
        let setup = Setup { speaks, ..plain() };
        let rogue = Event::Ungranted { cluster: 0, revision: 1, ahead: 2, flips, lasts: 600 };
        let fails = Event::Deliver { cluster: 0, to: 1, takes: 3, good: false };
        assert!(!is_open_after(400, setup.clone(), &[(0, fails), (20, rogue)]));
        // Nor does it close what is well.
        assert!(is_open_after(200, setup, &[ROLLOUT, (40, rogue)]));
    }
}

#[test]
fn what_a_speaker_says_counts_until_its_grant_is_taken_away_and_again_once_it_is_back() {
    let setup = Setup { speaks: true, stale_after: 600, ..plain() };
    let events = [ROLLOUT, (200, Event::Withdrawn { cluster: 0, lasts: 200 })];
    assert!(is_open_after(195, setup.clone(), &events));
    assert!((203..400).step_by(5).all(|seconds| !is_open_after(seconds, setup.clone(), &events)));
    assert!(is_open_after(440, setup, &events));
}

#[test]
fn the_clusters_of_a_speaker_that_falls_silent_are_stale_until_it_is_heard_again() {
    let clusters = vec![(Dates::Own, 0), (Dates::Own, 0)];
    let setup = Setup { speaks: true, clusters, min_healthy: 2, ..plain() };
    let other = (0, Event::Deliver { cluster: 1, to: 1, takes: 3, good: true });
    let events = [ROLLOUT, other, (200, Event::Unscraped { cluster: 1, lasts: 300 })];
    assert!(is_open_after(200, setup.clone(), &events));
    assert!((300..500).step_by(20).all(|seconds| !is_open_after(seconds, setup.clone(), &events)));
    assert!(is_open_after(540, setup, &events));
}

//! A soak is never shorter than what the backend's samples show, and restarts of ours change nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_contract::{Metric, PACKAGE_METRICS};

use super::{
    Beat, Fleet, FleetSettings, Heard, Observation,
    past::{Extent, Past, STATES},
};
use crate::{
    api::rollout_gate::Require,
    clock::Seconds,
    decide::classify::{Soak, soak},
    feed::Sample,
    testing::{Exposition, Values, failed, gather, healthy, package, stream},
    verify::verify,
};

/// Seconds between two scrapes.
const SCRAPE: Seconds = 10.0;
/// `minSuccessTime`.
const SPAN: Seconds = 100.0;
const STALE_AFTER: Seconds = 45.0;

/// One scrape as the backend has it.
#[derive(Debug, Clone)]
struct Scraped {
    instance: &'static str,
    at: Seconds,
    rendered: Seconds,
    values: Values,
}

/// What the backend has.
#[derive(Debug, Clone, Default)]
struct Backend(Vec<Scraped>);

impl Backend {
    fn within(&self, from: Seconds, to: Seconds) -> impl Iterator<Item = &Scraped> {
        self.0.iter().filter(move |s| from < s.at && s.at <= to)
    }

    /// As the queries of a look back would sum it up.
    fn extent(&self, from: Seconds, to: Seconds) -> Extent {
        let mut extent = Extent::default();
        let mut counters: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        let place = |metric| PACKAGE_METRICS.iter().position(|m| *m == metric).unwrap();
        for scraped in self.within(from, to) {
            for (i, metric) in STATES.into_iter().enumerate() {
                let value = scraped.values[place(metric)];
                extent.least[i] = Some(extent.least[i].map_or(value, |v| v.min(value)));
                extent.most[i] = Some(extent.most[i].map_or(value, |v| v.max(value)));
            }
            let counter = scraped.values[place(Metric::PackageTransitions)];
            let (last, rises) = counters.entry(scraped.instance).or_insert((counter, 0.0));
            *rises += f64::from(u8::from(counter > *last));
            *last = counter;
        }
        extent.series = [Some(counters.len() as u64); STATES.len() + 1];
        extent.began = self.within(from - 300.0, from).next().is_some();
        extent.rises = counters.values().map(|(_, rises)| *rises).reduce(f64::max);
        extent
    }

    fn past(&self, from: Seconds, to: Seconds) -> Past {
        let mut past = Past::default();
        for scraped in self.within(from, to) {
            let stream = stream(&[("instance", scraped.instance)]);
            let sample = |value: f64| [Sample { at: scraped.at, value }];
            for (metric, value) in PACKAGE_METRICS.iter().zip(&scraped.values) {
                past.add(&stream, *metric, &sample(*value as f64));
            }
            past.add(&stream, Metric::RenderedTimestamp, &sample(scraped.rendered));
        }
        past
    }
}

/// An aggregator as far as soaks go.
struct Watcher {
    fleet: Fleet,
}

impl Watcher {
    fn start() -> Self {
        Self { fleet: Fleet::new(FleetSettings::default()) }
    }

    /// Polls at `t`; then looks up what a gate would have to know.
    fn poll(&mut self, backend: &Backend, t: Seconds) {
        let mut newest: BTreeMap<&str, &Scraped> = BTreeMap::new();
        for scraped in backend.within(t - 300.0, t) {
            newest.insert(scraped.instance, scraped);
        }
        for scraped in newest.into_values() {
            let exposition = Exposition::new(7).with("p", scraped.values.clone());
            let beat = Beat {
                cluster: "c".into(),
                stream: stream(&[("instance", scraped.instance)]),
                contract: "1".into(),
                digest: Some(exposition.digest()),
                at: scraped.at,
                rendered: Some((scraped.rendered, scraped.at)),
                ..Beat::default()
            };
            if self.fleet.hear(&beat, t) == Heard::Unread {
                let content = verify(gather(&exposition.lines()), exposition.digest()).unwrap();
                self.fleet.accept(&beat, content, t);
            }
        }
        self.fleet.answered("", t);
    }

    fn look_back(&mut self, backend: &Backend, t: Seconds) {
        let seen = self.observe(t);
        if self.soak(t) == Soak::PastUnknown {
            let from = seen.as_of.unwrap().min(t) - SPAN;
            let first = from - self.fleet.longest_gap("c");
            if !self.fleet.sum_up("c", &package("p"), from, &backend.extent(first, t)) {
                assert!(self.fleet.recall("c", &package("p"), from, &backend.past(first, t)));
            }
            assert_ne!(self.soak(t), Soak::PastUnknown);
        }
    }

    fn observe(&self, t: Seconds) -> Observation {
        self.fleet.observe("c", &package("p"), t, STALE_AFTER)
    }

    fn soak(&self, t: Seconds) -> Soak {
        let seen = self.observe(t);
        seen.row.as_ref().map_or(Soak::Runs, |row| soak(&seen, row, SPAN, t))
    }
}

fn scraped(at: Seconds, values: Values) -> Scraped {
    Scraped { instance: "i", at, rendered: at, values }
}

/// Scrapes every [`SCRAPE`] seconds: the values that hold from each time on.
fn timeline(changes: &[(Seconds, Values)], until: Seconds) -> Backend {
    let mut scrapes = Vec::new();
    let mut at = changes[0].0;
    while at <= until {
        let (_, values) = changes.iter().rev().find(|(from, _)| *from <= at).unwrap();
        scrapes.push(scraped(at, values.clone()));
        at += SCRAPE;
    }
    Backend(scrapes)
}

/// At each of these times, whether an aggregator that was started at `start` calls the soak done, polling at
/// every scrape.
fn done(backend: &Backend, start: Seconds, asked: &[Seconds]) -> Vec<bool> {
    let mut watcher = Watcher::start();
    let mut done = Vec::new();
    for scraped in backend.0.iter().filter(|scraped| scraped.at >= start) {
        watcher.poll(backend, scraped.at);
        watcher.look_back(backend, scraped.at);
        if asked.contains(&scraped.at) {
            done.push(healthy_soak(&watcher, scraped.at) == Soak::Done);
        }
    }
    done
}

#[rstest]
#[case::nothing_moved(&[(1000.0, healthy("r1", 500, 3))], 1200.0)]
#[case::became_healthy_lately(&[(1000.0, failed("r1", 500, 3)), (1150.0, healthy("r1", 1145, 4))], 1250.0)]
#[case::flapped_between_two_scrapes(&[(1000.0, healthy("r1", 500, 3)), (1150.0, healthy("r1", 1145, 5))], 1250.0)]
#[case::flapped_and_no_time_says_so(&[(1000.0, healthy("r1", 500, 3)), (1150.0, healthy("r1", 500, 5))], 1250.0)]
#[case::failed_and_no_time_says_so(
    &[(1000.0, healthy("r1", 500, 3)), (1140.0, failed("r1", 500, 4)), (1150.0, healthy("r1", 500, 5))], 1250.0)]
#[case::another_revision_and_no_time_says_so(&[(1000.0, healthy("r0", 500, 3)), (1150.0, healthy("r1", 500, 3))], 1250.0)]
#[case::an_exporter_restart_that_knows_since_when(
    &[(1000.0, healthy("r1", 500, 3)), (1150.0, healthy("r1", 500, 0))], 1200.0)]
#[case::an_exporter_restart_that_does_not(
    &[(1000.0, healthy("r1", 500, 3)), (1150.0, healthy("r1", 1150, 0))], 1250.0)]
#[case::flapped_and_forgot_it_in_a_restart(
    &[(1000.0, healthy("r1", 500, 3)), (1130.0, healthy("r1", 1125, 5)), (1150.0, healthy("r1", 500, 0))], 1230.0)]
#[case::long_ago(&[(1000.0, failed("r1", 500, 3)), (1050.0, healthy("r1", 500, 4))], 1200.0)]
#[case::without_any_time(&[(1000.0, healthy("r1", 0, 3))], 1300.0)]
fn a_start_in_the_middle_of_a_soak_ends_it_when_it_would_have_ended(
    #[case] changes: &[(Seconds, Values)],
    #[case] expected: Seconds,
) {
    let backend = timeline(changes, 1400.0);
    let asked: Vec<Seconds> = (0..20).map(|n| 1200.0 + SCRAPE * Seconds::from(n)).collect();
    let started = done(&backend, 1200.0, &asked);
    assert_eq!(started, asked.iter().map(|t| *t >= expected).collect::<Vec<_>>());
    // One that was there all the time says the same, unless the cluster never tells a time: what
    // nobody verified then cannot make up for it.
    if changes[0].1[5] != 0 {
        assert_eq!(started, done(&backend, 1000.0, &asked));
    }
}

#[test]
fn what_the_backend_does_not_tell_stays_unknown() {
    let backend = timeline(&[(1000.0, healthy("r1", 500, 3))], 1200.0);
    let mut watcher = Watcher::start();
    watcher.poll(&backend, 1200.0);
    assert_eq!(watcher.soak(1200.0), Soak::PastUnknown);
    let p = package("p");
    assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &Extent::default()));
    assert!(!watcher.fleet.recall("c", &p, 1000.0, &Past::default()));
    let mut other = Past::default();
    other.add(
        &stream(&[("instance", "i")]),
        Metric::RenderedTimestamp,
        &[Sample { at: 1100.0, value: 1100.0 }],
    );
    assert!(!watcher.fleet.recall("c", &p, 1000.0, &other));
    // A stream that tells only a part may hide the rest.
    let mut part = backend.past(900.0, 1200.0);
    let sample = [Sample { at: 1100.0, value: 0.0 }];
    part.add(&stream(&[("instance", "j")]), Metric::PackageHealth, &sample);
    assert!(!watcher.fleet.recall("c", &p, 1000.0, &part));
    // Nor is a part of an answer an answer.
    let whole = Extent { began: true, ..backend.extent(900.0, 1200.0) };
    for i in 0..STATES.len() {
        let mut part = whole.clone();
        part.least[i] = None;
        assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &part), "{i}");
    }
    for count in [None, Some(2)] {
        let mut part = whole.clone();
        part.series[3] = count;
        assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &part));
    }
    assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &Extent { rises: None, ..whole.clone() }));
    assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &Extent { rises: Some(f64::NAN), ..whole.clone() }));
    assert!(!watcher.fleet.sum_up("c", &p, 1000.0, &Extent { began: false, ..whole.clone() }));
    assert_eq!(watcher.soak(1200.0), Soak::PastUnknown);
    assert!(watcher.fleet.sum_up("c", &p, 1000.0, &whole));
    assert_eq!(watcher.soak(1200.0), Soak::Done);
}

#[test]
fn unknown_pasts_are_those_of_clusters_that_report_the_package() {
    let backend = timeline(&[(1000.0, healthy("r1", 500, 3))], 1200.0);
    let mut watcher = Watcher::start();
    watcher.poll(&backend, 1200.0);
    assert_eq!(watcher.fleet.unknown_before(&package("p"), 1100.0), ["c"]);
    assert!(watcher.fleet.unknown_before(&package("q"), 1100.0).is_empty());
    watcher.look_back(&backend, 1200.0);
    assert!(watcher.fleet.unknown_before(&package("p"), 1100.0).is_empty());
    assert_eq!(watcher.fleet.unknown_before(&package("p"), 1000.0), ["c"]);
}

#[test]
fn a_long_silence_has_to_be_looked_up() {
    // Silent for a while, in which it flapped; then its exporter was started again.
    let mut backend = timeline(&[(1000.0, healthy("r1", 500, 0))], 1200.0);
    let mut watcher = Watcher::start();
    for scraped in backend.0.clone() {
        watcher.poll(&backend, scraped.at);
        watcher.look_back(&backend, scraped.at);
    }
    assert_eq!(watcher.soak(1200.0), Soak::Done);
    backend
        .0
        .extend(timeline(&[(1210.0, healthy("r1", 1205, 2)), (1300.0, healthy("r1", 500, 0))], 1500.0).0);
    watcher.poll(&backend, 1350.0);
    assert_eq!(watcher.soak(1350.0), Soak::PastUnknown);
    watcher.look_back(&backend, 1350.0);
    assert_eq!(watcher.observe(1350.0).row.unwrap().since, 1205.0);
    assert_eq!(watcher.soak(1350.0), Soak::Done);
}

/// Of several moves between two scrapes that were seen, the time that the object tells may not be the last.
#[rstest]
#[case::the_next_scrape("i", 10.0, healthy("r1", 1090, 2), Soak::Done)]
#[case::after_three_that_were_missed("i", 40.0, healthy("r1", 1090, 2), Soak::PastUnknown)]
#[case::nothing_moved_meanwhile("i", 40.0, healthy("r1", 500, 0), Soak::Done)]
#[case::another_process_has_counted("j", 40.0, healthy("r1", 500, 2), Soak::PastUnknown)]
#[case::another_process_has_not("j", 40.0, healthy("r1", 500, 0), Soak::Done)]
fn what_may_have_moved_unseen_has_to_be_looked_up(
    #[case] instance: &'static str,
    #[case] later: Seconds,
    #[case] values: Values,
    #[case] expected: Soak,
) {
    let mut backend = timeline(&[(1000.0, healthy("r1", 500, 0))], 1200.0);
    let mut watcher = Watcher::start();
    for at in backend.0.iter().map(|scraped| scraped.at).collect::<Vec<_>>() {
        watcher.poll(&backend, at);
        watcher.look_back(&backend, at);
    }
    assert_eq!(watcher.soak(1200.0), Soak::Done);
    let at = backend.0.last().unwrap().at + later;
    backend.0.push(Scraped { instance, ..scraped(at, values) });
    watcher.poll(&backend, at);
    assert_eq!(watcher.soak(at), expected);
    watcher.look_back(&backend, at);
}

#[rstest]
#[case::behind(-300.0)]
#[case::ahead(300.0)]
fn setting_a_wrong_clock_right_gains_nothing(#[case] wrong: Seconds) {
    // Healthy since 1100, as a clock said that was set right at 1150.
    let mut backend = Backend::default();
    for n in 0..50 {
        let at = 1000.0 + SCRAPE * Seconds::from(n);
        let since = |true_time: Seconds| (true_time + wrong) as u64;
        let values =
            if at < 1100.0 { failed("r1", since(900.0), 3) } else { healthy("r1", since(1100.0), 4) };
        let rendered = if at < 1150.0 { at + wrong } else { at };
        backend.0.push(Scraped { instance: "i", at, rendered, values });
    }
    // One that saw it all, one that came after the clock was set, and one that missed when it was.
    for polls in [0..50, 16..50, 20..50] {
        let mut watcher = Watcher::start();
        for n in polls {
            let t = 1000.0 + SCRAPE * Seconds::from(n);
            watcher.poll(&backend, t);
            watcher.look_back(&backend, t);
            assert!(healthy_soak(&watcher, t) != Soak::Done || t >= 1200.0, "done at {t}");
        }
    }
    let mut watcher = Watcher::start();
    for t in [1130.0, 1140.0, 1160.0, 1200.0, 1210.0] {
        watcher.poll(&backend, t);
        watcher.look_back(&backend, t);
        assert!(healthy_soak(&watcher, t) != Soak::Done || t >= 1200.0, "done at {t}");
    }
    assert_eq!(healthy_soak(&watcher, 1210.0) == Soak::Done, wrong < 0.0);
}

#[test]
fn an_exposition_that_is_repeated_for_a_while_does_not_restart_a_soak() {
    let mut backend = timeline(&[(1000.0, healthy("r1", 500, 3))], 1300.0);
    for scraped in &mut backend.0 {
        if (1100.0..1140.0).contains(&scraped.at) {
            scraped.rendered = 1100.0;
        }
    }
    let mut watcher = Watcher::start();
    for scraped in backend.0.clone() {
        watcher.poll(&backend, scraped.at);
        watcher.look_back(&backend, scraped.at);
    }
    assert_eq!(watcher.observe(1300.0).row.unwrap().since, 500.0);
}

#[test]
fn a_lost_sample_is_no_move_and_hides_none() {
    let i = stream(&[("instance", "i")]);
    let told = |lost: &[(usize, Metric)], flaps: bool| {
        let mut past = Past::default();
        for n in 0..6 {
            let moves = if flaps && n >= 3 { 5 } else { 3 };
            for (metric, value) in PACKAGE_METRICS.iter().zip(healthy("r1", 500, moves)) {
                if !lost.contains(&(n, *metric)) {
                    past.add(&i, *metric, &[Sample { at: 1000.0 + 10.0 * n as f64, value: value as f64 }]);
                }
            }
        }
        past.floor()
    };
    assert_eq!(told(&[], false), Some(500.0));
    assert_eq!(told(&[(2, Metric::PackageHealth), (4, Metric::PackageTransitions)], false), Some(500.0));
    assert_eq!(told(&[], true), Some(1030.0));
    assert_eq!(told(&[(3, Metric::PackageTransitions)], true), Some(1040.0));
    assert_eq!(told(&[(0, Metric::PackageTransitions)], true), Some(1030.0));
}

/// What happens from one scrape to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    Nothing,
    /// Fails, or recovers.
    Toggles,
    /// Fails and recovers, or the other way round.
    Flaps,
    /// The same within a second, so that no time tells.
    FlapsUnseen,
    /// The exporter starts again, under another name or the same.
    Restarts {
        renamed: bool,
    },
    /// Nothing is scraped.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    turn: Turn,
    /// Whether the aggregators poll after it.
    polled: bool,
    /// Whether one of them was started again before that.
    restarted: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let turn = prop_oneof![
        24 => Just(Turn::Nothing),
        2 => Just(Turn::Toggles),
        1 => Just(Turn::Flaps),
        1 => Just(Turn::FlapsUnseen),
        1 => any::<bool>().prop_map(|renamed| Turn::Restarts { renamed }),
        2 => Just(Turn::Lost),
    ];
    let step = (turn, prop::bool::weighted(0.8), prop::bool::weighted(0.1))
        .prop_map(|(turn, polled, restarted)| Step { turn, polled, restarted });
    prop::collection::vec(step, 1..90)
}

/// A package and its exporter.
struct Exporter {
    /// Whether the object says since when it is as it is.
    tells: bool,
    well: bool,
    object_since: Seconds,
    since: Seconds,
    moves: u64,
    instance: usize,
}

impl Exporter {
    fn turn(&mut self, turn: Turn, now: Seconds) {
        let moved = now - 3.0;
        match turn {
            Turn::Nothing | Turn::Lost => {}
            Turn::Toggles => {
                self.well = !self.well;
                self.moves += 1;
                (self.since, self.object_since) = (moved, moved);
            }
            Turn::Flaps => {
                self.moves += 2;
                (self.since, self.object_since) = (moved, moved);
            }
            Turn::FlapsUnseen => self.moves += 2,
            Turn::Restarts { renamed } => {
                self.moves = 0;
                self.since = if self.tells { self.object_since } else { moved };
                self.instance = (self.instance + usize::from(renamed)) % 3;
            }
        }
    }

    fn values(&self) -> Values {
        match self.well {
            true => healthy("r1", self.since as u64, self.moves),
            false => failed("r1", self.since as u64, self.moves),
        }
    }
}

fn healthy_soak(watcher: &Watcher, t: Seconds) -> Soak {
    let seen = watcher.observe(t);
    let demand = crate::decide::classify::Demand {
        revision: statusbridge_contract::Fingerprint::of("r1"),
        require: Require::Healthy,
        min_success: SPAN,
    };
    match crate::decide::classify::for_gate(&seen, &demand, t) {
        crate::api::Reason::Healthy => Soak::Done,
        _ => Soak::Runs,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// `ideal` sees every scrape and is never started again. `steady` polls when `restarted` does.
    #[test]
    fn restarts_of_an_aggregator_neither_grant_nor_cost_anything(steps in steps(), tells in any::<bool>()) {
        let mut now: Seconds = 10_000.0;
        let first = now - 2000.0;
        let mut exporter =
            Exporter { tells, well: true, object_since: first, since: first, moves: 0, instance: 0 };
        let (mut ideal, mut steady, mut restarted) = (Watcher::start(), Watcher::start(), Watcher::start());
        let mut backend = Backend::default();
        // What came before was quiet, and all of them know it.
        for _ in 0..30 {
            now += SCRAPE;
            backend.0.push(scraped(now, exporter.values()));
            for watcher in [&mut ideal, &mut steady, &mut restarted] {
                watcher.poll(&backend, now);
            }
        }
        for watcher in [&mut ideal, &mut steady, &mut restarted] {
            watcher.look_back(&backend, now);
        }
        let mut unexplained = false;
        let (mut last_polled, mut moved_since) = (true, false);
        for (n, step) in steps.into_iter().enumerate() {
            now += SCRAPE;
            // What moves between two polls and is forgotten by an exporter that starts again between the very
            // same two is what they cannot see.
            // Nor do they tell a move that no time shows from one that a time does show, seen together.
            let turn = match step.turn {
                Turn::Restarts { .. } if !last_polled => Turn::Nothing,
                Turn::FlapsUnseen if moved_since => Turn::Flaps,
                turn => turn,
            };
            moved_since |= matches!(turn, Turn::Toggles | Turn::Flaps);
            let polled = step.polled || matches!(turn, Turn::Restarts { .. });
            unexplained |= turn == Turn::FlapsUnseen;
            exporter.turn(turn, now);
            if turn != Turn::Lost {
                let mut scraped = scraped(now, exporter.values());
                scraped.instance = ["i", "j", "k"][exporter.instance];
                backend.0.push(scraped);
            }
            ideal.poll(&backend, now);
            ideal.look_back(&backend, now);
            last_polled = polled && turn != Turn::Lost;
            moved_since &= !last_polled;
            if step.restarted {
                restarted = Watcher::start();
            }
            if !polled {
                continue;
            }
            for watcher in [&mut steady, &mut restarted] {
                watcher.poll(&backend, now);
                watcher.look_back(&backend, now);
            }
            let soaks = [&ideal, &steady, &restarted].map(|watcher| healthy_soak(watcher, now));
            if soaks[2] == Soak::Done {
                prop_assert_eq!(soaks[0], Soak::Done, "granted at step {}", n);
            }
            if !unexplained {
                prop_assert_eq!(soaks[2], soaks[1], "changed at step {}", n);
            }
        }
    }
}

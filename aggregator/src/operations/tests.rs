//! Generated histories: nothing is claimed that did not happen, and nothing that happened is passed over in
//! silence.

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_contract::{ApplyState, Fingerprint, Health};

use super::fold::{Known, Moment, Operation, Outcome, Story, Trigger, fold};
use super::follow::{Link, Look, follow};
use super::report::{self, Cluster, Report, Verified, Words};
use super::sight::{Sight, State, Stream};
use super::text;
use crate::clock::Seconds;
use crate::fleet::PackageId;

fn revision(number: u64) -> Fingerprint {
    Fingerprint::of(&format!("r{number}"))
}

/// The states that a package goes through, at the revision that is wanted then.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Pending,
    Applying,
    Checking,
    Healthy,
    Unchecked,
    Unhealthy,
    Broken,
    Deleting,
}

fn go(state: &mut State, way: Way) {
    let (apply, health, reason) = match way {
        Way::Pending => (ApplyState::Pending, Health::Unknown, 1),
        Way::Applying => (ApplyState::Applying, Health::InProgress, 2),
        Way::Checking => (ApplyState::Applied, Health::InProgress, 3),
        Way::Healthy => (ApplyState::Applied, Health::Current, 0),
        Way::Unchecked => (ApplyState::Applied, Health::Unknown, 4),
        Way::Unhealthy => (ApplyState::Applied, Health::Failed, 5),
        Way::Broken => (ApplyState::Failed, Health::Unknown, 6),
        Way::Deleting => (ApplyState::Deleting, Health::Terminating, 7),
    };
    (state.apply, state.health, state.reason) = (apply, health, reason);
    if apply == ApplyState::Applied {
        state.applied = state.desired;
    }
    state.healthy = if way == Way::Healthy { state.applied } else { Fingerprint::NONE };
}

fn healthy(number: u64, since: u64) -> State {
    let r = revision(number);
    let (apply, health) = (ApplyState::Applied, Health::Current);
    State { apply, health, desired: r, applied: r, healthy: r, reason: 0, since }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Told(u64),
    Goes(Way),
    /// The exporter stops, or starts.
    Toggles,
    /// The exporter loses its cluster, and finds it again after so many scrapes.
    Blinds(u64),
}

/// What is true, second by second, and how it is looked at.
#[derive(Debug, Clone)]
struct World {
    /// Each at its second.
    events: Vec<(u64, Event)>,
    /// The interval of scrapes, and those that are lost.
    interval: u64,
    lost: Vec<bool>,
    /// Whether the object itself knows since when.
    object_knows: bool,
    /// Whether each process is another stream.
    pods: bool,
    /// Whether processes say when they started.
    say_start: bool,
}

struct Played {
    /// The package's true state from each second on.
    truth: Vec<(u64, State)>,
    /// When apply state, health or healthy revision truly changed.
    transitions: Vec<(u64, State)>,
    streams: Vec<Stream>,
}

const END: u64 = 1_400;

impl World {
    fn play(&self) -> Played {
        let mut state = healthy(0, 1_000);
        let mut played = Played { truth: vec![(1_000, state)], transitions: Vec::new(), streams: Vec::new() };
        let (mut count, mut since, mut started, mut up, mut blind) = (0, 1_000, 1_000, true, 0);
        // The package as the exporter knows it.
        let mut known = Some(state);
        let mut changed_at = 1_000;
        let mut events = self.events.iter().peekable();
        let mut stream = Stream::default();
        let mut lost = self.lost.iter().cycle();
        for now in 1_000..END {
            while let Some((_, event)) = events.next_if(|(at, _)| *at == now) {
                let before = state;
                match event {
                    Event::Told(number) => state.desired = revision(*number),
                    Event::Goes(way) => go(&mut state, *way),
                    Event::Toggles if up => (up, known) = (false, None),
                    Event::Toggles => {
                        (up, count, started) = (true, 0, now);
                        if self.pods {
                            played.streams.push(std::mem::take(&mut stream));
                        }
                    }
                    Event::Blinds(scrapes) => blind = *scrapes,
                }
                played.truth.push((now, state));
                if state.differs(&before) {
                    played.transitions.push((now, state));
                    changed_at = now;
                }
                if up && blind == 0 {
                    self.learn(&mut known, state, &mut count, &mut since, [changed_at, now]);
                }
            }
            if now % self.interval == 0 && !lost.next().copied().unwrap_or_default() && up {
                let at = now as f64 + 0.5;
                if blind > 0 {
                    stream.blind.push(at);
                    blind -= 1;
                    if blind == 0 {
                        self.learn(&mut known, state, &mut count, &mut since, [changed_at, now + 1]);
                    }
                    continue;
                }
                let package = known.map(|state| (State { since, ..state }, count));
                let started = self.say_start.then_some(started);
                stream.sights.push(Sight { at, rendered: Some(now), started, package });
            }
        }
        played.streams.push(stream);
        played.streams.retain(|stream| !stream.sights.is_empty());
        played
    }

    /// The exporter looks at the package, which last changed and is looked at at these times.
    fn learn(
        &self,
        known: &mut Option<State>,
        state: State,
        count: &mut u64,
        since: &mut u64,
        [changed, now]: [u64; 2],
    ) {
        let moved = known.is_some_and(|known| known.differs(&state));
        if self.object_knows {
            *since = changed;
        } else if moved || known.is_none() {
            *since = now;
        }
        *count += u64::from(moved);
        *known = Some(state);
    }
}

fn world() -> impl Strategy<Value = World> {
    let way = prop::sample::select(vec![
        Way::Pending,
        Way::Applying,
        Way::Checking,
        Way::Healthy,
        Way::Healthy,
        Way::Unchecked,
        Way::Unhealthy,
        Way::Broken,
        Way::Deleting,
    ]);
    let event = prop_oneof![
        2 => (0..4_u64).prop_map(Event::Told),
        6 => way.prop_map(Event::Goes),
        1 => Just(Event::Toggles),
        1 => (1..4_u64).prop_map(Event::Blinds),
    ];
    let events = prop::collection::vec((1..25_u64, event), 0..40).prop_map(|steps| {
        let mut now = 1_000;
        let mut at = |step| {
            now += step;
            now
        };
        steps.into_iter().map(|(step, event)| (at(step), event)).collect()
    });
    (events, 1..30_u64, prop::collection::vec(prop::bool::weighted(0.2), 1..20), any::<[bool; 3]>()).prop_map(
        |(events, interval, lost, [object_knows, pods, say_start])| World {
            events,
            interval,
            lost,
            object_knows,
            pods,
            say_start,
        },
    )
}

/// Whether a moment may be the one at which something happened. What happens in a second is looked at in its
/// middle.
fn is_at(moment: Moment, happened: u64) -> bool {
    let happened = happened as Seconds;
    match moment.known {
        Known::Exactly => (moment.at - happened).abs() < 1.0,
        Known::After(after) => after < happened + 1.0 && happened <= moment.at,
        Known::By => happened <= moment.at,
    }
}

/// Whether the package was in such a state at some time at which a moment may have been.
fn was_ever(truth: &[(u64, State)], moment: Moment, is: impl Fn(&State) -> bool) -> bool {
    let from = match moment.known {
        Known::Exactly => moment.at - 1.0,
        Known::After(after) => after,
        Known::By => 0.0,
    };
    let ends = truth.iter().skip(1).map(|(at, _)| *at as Seconds).chain([f64::MAX]);
    truth.iter().zip(ends).any(|((at, state), end)| *at as Seconds <= moment.at && end > from && is(state))
}

/// Which transitions are shown: each true one at most once.
fn matched(played: &Played, story: &Story) -> Result<Vec<bool>, String> {
    let mut matched = vec![false; played.transitions.len()];
    for operation in &story.operations {
        for shown in &operation.transitions {
            let same = |(at, state): &(u64, State)| {
                (state.apply, state.health, state.healthy) == (shown.apply, shown.health, shown.healthy)
                    && is_at(shown.moment, *at)
            };
            // The last one: what is seen is how it ended.
            let found = (0..matched.len()).rev().find(|i| !matched[*i] && same(&played.transitions[*i]));
            matched[found.ok_or_else(|| format!("never happened: {shown:?}"))?] = true;
        }
    }
    Ok(matched)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_claimed_that_did_not_happen_and_nothing_is_passed_over(world in world()) {
        let played = world.play();
        let story = fold(follow(&played.streams, 60.0));
        let Some((first, last)) = story.seen else { return Ok(()) };
        let matched = matched(&played, &story).map_err(TestCaseError::fail)?;
        let unseen: Vec<u64> = played.transitions.iter().zip(&matched)
            .filter(|((at, _), matched)| !**matched && *at as f64 > first && *at as f64 <= last)
            .map(|((at, _), _)| *at)
            .collect();
        let within = |after: f64, before: f64| {
            unseen.iter().filter(|at| after < **at as f64 && **at as f64 <= before).count() as u64
        };
        for gap in &story.gaps {
            let truly = within(gap.after, gap.before);
            prop_assert!(gap.missing <= truly, "{gap:?}: {truly}");
            if !gap.uncounted && (world.say_start || world.pods) {
                prop_assert_eq!(gap.missing, truly, "{:?}", gap);
            }
        }
        // A process that counted beyond the one before it is not told from it unless something says so.
        if world.say_start || world.pods {
            for at in &unseen {
                let at = *at as f64;
                prop_assert!(story.gaps.iter().any(|gap| gap.after < at && at <= gap.before), "{at} in silence");
            }
        }
        for operation in &story.operations {
            claims(&played, operation)?;
        }
    }
}

fn claims(played: &Played, operation: &Operation) -> Result<(), TestCaseError> {
    let truth = &played.truth;
    let mine = |state: &State| state.desired == operation.revision;
    if let Some(started) = operation.started.filter(|_| operation.trigger == Trigger::Revision) {
        let told = truth.windows(2).any(|pair| {
            pair[0].1.desired != pair[1].1.desired && mine(&pair[1].1) && is_at(started, pair[1].0)
        });
        // Told something else and this again between two looks.
        prop_assert!(told, "never told: {operation:?}");
    }
    if let Some(applied) = operation.applied {
        prop_assert!(was_ever(truth, applied, |s| mine(s) && s.is_applied()), "never applied: {operation:?}");
    }
    if let Some(healthy) = operation.healthy {
        prop_assert!(was_ever(truth, healthy, |s| mine(s) && s.is_healthy()), "never healthy: {operation:?}");
    }
    if let Some((failed, code)) = operation.failed {
        prop_assert!(was_ever(truth, failed, State::is_failed), "never failed: {operation:?}");
        prop_assert!(truth.iter().any(|(_, s)| s.is_failed() && s.reason == code), "no such reason");
    }
    prop_assert_eq!(operation.outcome == Outcome::Healthy, operation.healthy.is_some());
    Ok(())
}

/// Looks fifteen seconds apart: state, since, and what was counted since the look before.
fn looks(all: &[(Way, u64, u64, u64)]) -> Vec<Look> {
    let mut state = healthy(0, 50);
    let mut looks = vec![Look {
        at: 100.0,
        package: Some(state),
        link: Link::First,
        dated: true,
        blind: false,
        offset: 0.0,
    }];
    for (i, (way, number, since, moved)) in all.iter().enumerate() {
        state.desired = revision(*number);
        go(&mut state, *way);
        state.since = *since;
        let at = 115.0 + 15.0 * i as f64;
        let package = Some(state);
        looks.push(Look { at, package, link: Link::Same(*moved), dated: true, blind: false, offset: 0.0 });
    }
    looks
}

/// Trigger, outcome, when it began at latest, how long it took.
fn brief(story: &Story) -> Vec<(Trigger, Outcome, Option<Seconds>, Option<Seconds>)> {
    let brief = story.operations.iter().map(|op| {
        (
            op.trigger,
            op.outcome,
            op.started.map(|m| m.at),
            op.healthy.or(op.failed.map(|f| f.0)).map(|m| m.at),
        )
    });
    brief.collect()
}

#[rstest]
#[case::nothing_happens(&[(Way::Healthy, 0, 50, 0)], vec![], 0)]
#[case::a_rollout(
    &[(Way::Applying, 1, 112, 1), (Way::Checking, 1, 125, 1), (Way::Healthy, 1, 140, 1)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(115.0), Some(140.0))], 0)]
#[case::a_rollout_between_two_scrapes(
    &[(Way::Healthy, 1, 112, 3)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(112.0), Some(112.0))], 2)]
#[case::one_that_fails_and_one_that_follows(
    &[(Way::Applying, 1, 112, 1), (Way::Broken, 1, 125, 1), (Way::Applying, 2, 140, 1), (Way::Healthy, 2, 150, 1)],
    vec![(Trigger::Revision, Outcome::Failed, Some(115.0), Some(125.0)),
         (Trigger::Revision, Outcome::Healthy, Some(145.0), Some(150.0))], 0)]
#[case::one_that_fails_and_is_tried_again(
    &[(Way::Broken, 1, 112, 1), (Way::Applying, 1, 125, 1), (Way::Healthy, 1, 140, 1)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(115.0), Some(140.0))], 0)]
#[case::overtaken(
    &[(Way::Applying, 1, 112, 1), (Way::Applying, 2, 112, 0)],
    vec![(Trigger::Revision, Outcome::Superseded, Some(115.0), None),
         (Trigger::Revision, Outcome::InProgress, Some(130.0), None)], 0)]
#[case::the_same_applied_anew(
    &[(Way::Applying, 0, 112, 1), (Way::Healthy, 0, 127, 1), (Way::Applying, 0, 140, 1), (Way::Healthy, 0, 150, 1)],
    vec![(Trigger::Apply, Outcome::Healthy, Some(112.0), Some(127.0)),
         (Trigger::Apply, Outcome::Healthy, Some(140.0), Some(150.0))], 0)]
#[case::health_lost_and_found(
    &[(Way::Unhealthy, 0, 112, 1), (Way::Healthy, 0, 127, 1)],
    vec![(Trigger::Health, Outcome::Healthy, Some(112.0), Some(127.0))], 0)]
#[case::there_and_back_unseen(&[(Way::Healthy, 0, 112, 2)], vec![], 2)]
#[case::nobody_checks(
    &[(Way::Applying, 1, 112, 1), (Way::Unchecked, 1, 125, 1), (Way::Applying, 1, 140, 1)],
    vec![(Trigger::Revision, Outcome::Applied, Some(115.0), None),
         (Trigger::Apply, Outcome::InProgress, Some(140.0), None)], 0)]
#[case::deleted(
    &[(Way::Deleting, 0, 112, 1)],
    vec![(Trigger::Deletion, Outcome::InProgress, Some(112.0), None)], 0)]
fn operations(
    #[case] all: &[(Way, u64, u64, u64)],
    #[case] expected: Vec<(Trigger, Outcome, Option<Seconds>, Option<Seconds>)>,
    #[case] missing: u64,
) {
    let story = fold(looks(all));
    assert_eq!(brief(&story), expected);
    assert_eq!(story.gaps.iter().map(|gap| gap.missing).sum::<u64>(), missing);
    assert!(story.gaps.iter().all(|gap| !gap.uncounted));
}

#[test]
fn a_package_that_goes_and_comes_back() {
    let away = |at| Look { at, package: None, link: Link::First, dated: false, blind: false, offset: 0.0 };
    let mut all = looks(&[(Way::Deleting, 0, 112, 1)]);
    all.extend([away(130.0), away(145.0)]);
    let story = fold(all.clone());
    assert_eq!(brief(&story), [(Trigger::Deletion, Outcome::Gone, Some(112.0), None)]);
    assert_eq!(story.gone, Some(Moment { at: 130.0, known: Known::After(115.0) }));
    assert_eq!(story.now, None);
    let package = Some(healthy(1, 158));
    all.push(Look { at: 160.0, package, link: Link::First, dated: true, blind: false, offset: 0.0 });
    let story = fold(all);
    assert_eq!(brief(&story)[1], (Trigger::New, Outcome::Healthy, Some(158.0), Some(158.0)));
    assert_eq!(story.gone, None);
}

#[rstest]
#[case::it_says_the_same(Way::Applying, 112, Link::Restarted(0), true, None)]
#[case::it_ended_meanwhile_and_the_object_knows(Way::Healthy, 121, Link::Restarted(0), true, Some((0, true)))]
#[case::it_counted_some(Way::Healthy, 128, Link::Restarted(3), false, Some((2, true)))]
#[case::another_stream(Way::Healthy, 128, Link::Other, false, Some((0, true)))]
fn an_exporter_started_anew_in_the_middle(
    #[case] way: Way,
    #[case] since: u64,
    #[case] link: Link,
    #[case] dated: bool,
    #[case] gap: Option<(u64, bool)>,
) {
    let mut all = looks(&[(Way::Applying, 0, 112, 1), (way, 0, since, 0)]);
    (all[2].link, all[2].dated) = (link, dated);
    let story = fold(all);
    let [operation] = story.operations.as_slice() else { panic!("{story:?}") };
    assert_eq!(story.gaps.first().map(|gap| (gap.missing, gap.uncounted)), gap);
    assert_eq!(operation.started.map(|m| m.at), Some(112.0));
    let known = if dated { Known::Exactly } else { Known::After(115.0) };
    let healthy = (way == Way::Healthy).then_some(Moment { at: since as f64, known });
    assert_eq!(operation.healthy, healthy);
}

#[test]
fn what_comes_and_goes_while_the_exporter_sees_nothing_is_counted_by_nobody() {
    let mut all = looks(&[(Way::Healthy, 0, 50, 0), (Way::Unhealthy, 0, 130, 1)]);
    (all[1].blind, all[2].blind, all[2].dated) = (true, true, false);
    let story = fold(all);
    let gaps: Vec<_> =
        story.gaps.iter().map(|gap| (gap.after, gap.before, gap.missing, gap.uncounted, gap.blind)).collect();
    assert_eq!(gaps, [(100.0, 115.0, 0, true, true), (115.0, 130.0, 0, true, true)]);
    let Some((failed, _)) = story.operations[0].failed else { panic!("{story:?}") };
    assert_eq!(failed, Moment { at: 130.0, known: Known::After(115.0) });
}

#[test]
fn what_was_before_the_first_sample_and_after_the_last_is_not_known() {
    let story = fold(looks(&[(Way::Healthy, 0, 50, 0)]));
    assert_eq!(story.unknown(100.0, 115.0), (None, None));
    assert_eq!(story.unknown(99.0, 116.0), (Some(100.0), Some(115.0)));
    // It was seen not to be there.
    let away = Look { at: 85.0, package: None, link: Link::First, dated: false, blind: false, offset: 0.0 };
    let all = [away].into_iter().chain(looks(&[]));
    assert_eq!(fold(all).unknown(50.0, 90.0), (None, None));
}

#[test]
fn a_clock_that_is_wrong_is_corrected() {
    let mut all = looks(&[(Way::Applying, 0, 52, 1)]);
    all.iter_mut().for_each(|look| look.offset = 60.0);
    assert_eq!(fold(all).operations[0].started, Some(Moment { at: 112.0, known: Known::Exactly }));
}

#[test]
fn what_goes_on_for_ever_is_bounded_and_says_so() {
    let flaps = |i: u64| if i.is_multiple_of(2) { Way::Unhealthy } else { Way::Checking };
    let all: Vec<_> = (0..200).map(|i| (flaps(i), 0, 115 + 15 * i, 2)).collect();
    let story = fold(looks(&all));
    let [operation] = story.operations.as_slice() else { panic!("{}", story.operations.len()) };
    assert_eq!((operation.transitions.len() as u64, operation.more_transitions), (50, 150));
    assert_eq!((story.gaps.len(), story.left_out), (100, 100));
}

/// A report of a cluster with a failure, a rollout and gaps, a quiet one, and one of which nothing is known.
fn report() -> Report {
    let mut all = looks(&[
        (Way::Applying, 1, 112, 1),
        (Way::Unhealthy, 1, 125, 1),
        (Way::Applying, 2, 142, 3),
        (Way::Healthy, 2, 155, 1),
        (Way::Unhealthy, 2, 170, 1),
    ]);
    all[3].link = Link::Restarted(3);
    for look in &mut all {
        look.at += 1_000_000.0;
        look.offset = 1_000_000.0;
    }
    let busy = fold(all);
    let quiet = fold(looks(&[]));
    let mut blind = looks(&[(Way::Healthy, 0, 50, 0), (Way::Unhealthy, 0, 130, 2)]);
    (blind[1].blind, blind[2].blind) = (true, true);
    let silent = fold(blind);
    let words = Words {
        revisions: [(revision(2), "v2".to_owned())].into(),
        reasons: [(5, "HealthCheckFailed".to_owned())].into(),
    };
    let verified = vec![Verified::Yes, Verified::No("no digest is there for it".into()), Verified::NotTried];
    let package = PackageId { source: "flux".into(), namespace: Some("ns".into()), name: "p".into() };
    Report {
        package: (&package).into(),
        fleet_package: Some("default/payments".to_owned()),
        from: report::time(1_000_000.0),
        to: report::time(1_000_200.0),
        clusters: vec![
            Cluster { unusable_scrapes: 2, ..Cluster::new("eu-1".to_owned(), &busy, verified, &words) },
            Cluster::new("us-1".to_owned(), &quiet, Vec::new(), &words),
            Cluster::unknown("us-2".to_owned()),
            Cluster {
                unknown_since: Some(report::time(130.0)),
                ..Cluster::new("us-3".to_owned(), &silent, vec![Verified::Yes], &words)
            },
            Cluster {
                unknown_until: Some(report::time(100.0)),
                ..Cluster::new("us-4".to_owned(), &quiet, Vec::new(), &words)
            },
        ],
        notes: vec!["backend b: no\nanswer".to_owned()],
    }
}

#[test]
fn the_table() {
    insta::assert_snapshot!(text::render(&report()), @r#"
    Package   flux ns/p
    Report    FleetPackage default/payments
    Range     1970-01-12T13:46:40Z to 1970-01-12T13:50:00Z
    NOTE      backend b: no answer

    CLUSTER   REVISION       TRIGGER    STARTED                 APPLIED      HEALTHY     DURATION   OUTCOME
    eu-1      82f3e9c695dc   revision   ≤1970-01-12T13:48:35Z   ≤13:48:50Z   -           ≤25s       Failed: HealthCheckFailed
              another exporter process between 1970-01-12T13:48:50Z and 1970-01-12T13:49:05Z: 2 transitions or more not seen
              db77fd01af95   revision   ≤1970-01-12T13:49:05Z   13:49:15Z    13:49:15Z   ≤25s       Healthy (UNVERIFIED: no digest is there for it)
              db77fd01af95   health     1970-01-12T13:49:30Z    -            -           0s         Failed: HealthCheckFailed (not verified)
              2 scrapes were not whole and not counted
    us-1      Applied, Current at dd191696e15e since 1970-01-01T00:00:50Z: no operation in this time
    us-2      nothing was heard of the package in this time
    us-3      dd191696e15e   health     1970-01-01T00:02:10Z    -            -           0s         Failed: HealthCheckFailed
              the exporter did not see its cluster between 1970-01-01T00:01:40Z and 1970-01-01T00:01:55Z: what nobody counted may be missing
              the exporter did not see its cluster between 1970-01-01T00:01:55Z and 1970-01-01T00:02:10Z: 1 transition or more not seen
              nothing was heard of the package after 1970-01-01T00:02:10Z: how it is now is not known
    us-4      nothing was heard of the package before 1970-01-01T00:01:40Z
              Applied, Current at dd191696e15e since 1970-01-01T00:00:50Z: no operation was seen
    "#);
}

#[test]
fn the_json() {
    let report = serde_json::to_value(report()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&report["clusters"][0]["operations"][1]).unwrap(), @r#"
    {
      "applied": {
        "at": "1970-01-12T13:49:15Z",
        "exact": true
      },
      "durationAtMost": true,
      "durationSeconds": 25,
      "ended": {
        "at": "1970-01-12T13:49:15Z",
        "exact": true
      },
      "fingerprint": "db77fd01af95",
      "healthy": {
        "at": "1970-01-12T13:49:15Z",
        "exact": true
      },
      "outcome": "Healthy",
      "revision": "v2",
      "started": {
        "after": "1970-01-12T13:48:50Z",
        "at": "1970-01-12T13:49:05Z",
        "exact": false
      },
      "transitions": [
        {
          "applyState": "Applying",
          "at": "1970-01-12T13:49:02Z",
          "exact": true,
          "health": "InProgress",
          "reason": "code 0x2"
        },
        {
          "applyState": "Applied",
          "at": "1970-01-12T13:49:15Z",
          "exact": true,
          "health": "Current",
          "healthyFingerprint": "db77fd01af95"
        }
      ],
      "trigger": "Revision",
      "verified": {
        "no": "no digest is there for it"
      }
    }
    "#);
    insta::assert_snapshot!(report["clusters"][0]["unseen"], @r#"[{"after":"1970-01-12T13:48:50Z","before":"1970-01-12T13:49:05Z","transitions":2,"uncounted":true}]"#);
    insta::assert_snapshot!(report["clusters"][1], @r#"{"clusterName":"us-1","lastSeenAt":"1970-01-01T00:01:40Z","now":{"applyState":"Applied","desiredRevision":"dd191696e15e","health":"Current","healthyRevision":"dd191696e15e","since":"1970-01-01T00:00:50Z"},"operations":[],"unseen":[]}"#);
}

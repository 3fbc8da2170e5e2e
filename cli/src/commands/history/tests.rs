//! Generated histories: nothing is claimed that did not happen, and nothing that happened is passed over in
//! silence.

use proptest::prelude::*;
use rstest::rstest;
use statusbridge_api::PackageRef;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_core::time::Seconds;

use super::fold::{Moment, Operation, Outcome, Story, Trigger, fold};
use super::follow::{Because, Look, follow};
use super::report::{self, Cluster, Report, Verified, Words};
use super::sight::{Sight, State, Stream};
use super::text;

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
}

struct Played {
    /// The package's true state from each second on.
    truth: Vec<(u64, State)>,
    /// When apply state, health or a revision truly changed.
    transitions: Vec<(u64, State)>,
    /// One for each process.
    streams: Vec<Stream>,
}

const END: u64 = 1_400;

impl World {
    fn play(&self) -> Played {
        let mut state = healthy(0, 1_000);
        let mut played = Played { truth: vec![(1_000, state)], transitions: Vec::new(), streams: Vec::new() };
        let (mut up, mut blind) = (true, 0);
        // The package as the exporter knows it, and whether it has seen all that happened to it since.
        let (mut known, mut has_watched) = (Some(state), true);
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
                        up = true;
                        let next = Stream { process: stream.process + 1, ..Stream::default() };
                        played.streams.push(std::mem::replace(&mut stream, next));
                    }
                    Event::Blinds(scrapes) => blind = *scrapes,
                }
                played.truth.push((now, state));
                if state.differs(&before) {
                    played.transitions.push((now, state));
                    changed_at = now;
                    has_watched &= blind == 0;
                }
                if up && blind == 0 {
                    self.learn(&mut known, state, has_watched, [changed_at, now]);
                    has_watched = true;
                }
            }
            if now % self.interval == 0 && !lost.next().copied().unwrap_or_default() && up {
                let at = now as f64 + 0.5;
                if blind > 0 {
                    stream.blind.push(at);
                    blind -= 1;
                    if blind == 0 {
                        self.learn(&mut known, state, has_watched, [changed_at, now + 1]);
                        has_watched = true;
                    }
                    continue;
                }
                stream.sights.push(Sight { at, rendered: now, package: known });
            }
        }
        played.streams.push(stream);
        played.streams.retain(|stream| !stream.sights.is_empty());
        played
    }

    /// The exporter looks at the package, which last changed and is looked at at these times. It keeps the contract's
    /// promise: the time moves with every change, and with all that was not watched.
    fn learn(&self, known: &mut Option<State>, state: State, has_watched: bool, [changed, now]: [u64; 2]) {
        let own = if self.object_knows { (changed + 1).min(now) } else { now };
        let since = match known {
            None => own,
            Some(known) if known.differs(&state) => now,
            Some(known) if has_watched => known.since,
            Some(known) => own.max(known.since),
        };
        *known = Some(State { since, ..state });
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
    (events, 1..30_u64, prop::collection::vec(prop::bool::weighted(0.2), 1..20), any::<bool>())
        .prop_map(|(events, interval, lost, object_knows)| World { events, interval, lost, object_knows })
}

/// Whether a moment may be the one at which something happened. What happens in a second is looked at in its
/// middle.
fn is_at(moment: Moment, happened: u64) -> bool {
    let happened = happened as Seconds;
    match moment.after {
        _ if moment.exact => (moment.at - happened).abs() < 1.0,
        Some(after) => after < happened + 1.0 && happened <= moment.at,
        None => happened <= moment.at,
    }
}

/// Whether the package was in such a state at some time at which a moment may have been.
fn was_ever(truth: &[(u64, State)], moment: Moment, is: impl Fn(&State) -> bool) -> bool {
    let from = if moment.exact { moment.at - 1.0 } else { moment.after.unwrap_or_default() };
    let ends = truth.iter().skip(1).map(|(at, _)| *at as Seconds).chain([f64::MAX]);
    truth.iter().zip(ends).any(|((at, state), end)| *at as Seconds <= moment.at && end > from && is(state))
}

/// Which transitions are shown: each true one at most once.
fn matched(played: &Played, story: &Story) -> Result<Vec<bool>, String> {
    let mut matched = vec![false; played.transitions.len()];
    for operation in &story.operations {
        for shown in &operation.transitions {
            let same = |(at, state): &(u64, State)| !state.differs(&shown.state) && is_at(shown.moment, *at);
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
        for gap in story.gaps.iter().filter(|gap| gap.because == Because::Moved) {
            let truly = unseen.iter().any(|at| gap.after < *at as f64 && *at as f64 <= gap.before);
            prop_assert!(truly, "{gap:?}: {unseen:?}");
        }
        let gaps = story.gaps.iter().map(|gap| (gap.after, gap.before));
        let shown = story.operations.iter().flat_map(|operation| &operation.transitions);
        let spans = shown.filter_map(|it| Some((it.moment.after?, it.moment.at)));
        let told: Vec<(f64, f64)> = gaps.chain(spans).collect();
        for at in unseen {
            let at = at as f64;
            prop_assert!(told.iter().any(|(after, before)| *after < at && at <= *before), "{at} in silence");
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

/// Fifteen seconds apart: state and since.
fn looks(all: &[(Way, u64, u64)]) -> Vec<Look> {
    let mut state = healthy(0, 50);
    let look = |at: Seconds, state: State| Look {
        at,
        package: Some(state),
        soak: at - state.since as Seconds,
        unwatched: None,
        offset: 0.0,
    };
    let mut looks = vec![look(100.0, state)];
    for (i, (way, number, since)) in all.iter().enumerate() {
        state.desired = revision(*number);
        go(&mut state, *way);
        state.since = *since;
        looks.push(look(115.0 + 15.0 * i as f64, state));
    }
    looks
}

fn away(at: Seconds) -> Look {
    Look { at, package: None, soak: 0.0, unwatched: None, offset: 0.0 }
}

fn within(after: Seconds, at: Seconds) -> Moment {
    Moment { at, exact: false, after: Some(after) }
}

fn gaps(story: &Story) -> Vec<(Seconds, Seconds, Because)> {
    story.gaps.iter().map(|gap| (gap.after, gap.before, gap.because)).collect()
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
#[case::nothing_happens(&[(Way::Healthy, 0, 50)], vec![], 0)]
#[case::a_rollout(
    &[(Way::Applying, 1, 112), (Way::Checking, 1, 125), (Way::Healthy, 1, 140)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(112.0), Some(140.0))], 0)]
#[case::a_rollout_between_two_scrapes(
    &[(Way::Healthy, 1, 112)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(112.0), Some(112.0))], 0)]
#[case::one_that_fails_and_one_that_follows(
    &[(Way::Applying, 1, 112), (Way::Broken, 1, 125), (Way::Applying, 2, 140), (Way::Healthy, 2, 150)],
    vec![(Trigger::Revision, Outcome::Failed, Some(112.0), Some(125.0)),
         (Trigger::Revision, Outcome::Healthy, Some(140.0), Some(150.0))], 0)]
#[case::one_that_fails_and_is_tried_again(
    &[(Way::Broken, 1, 112), (Way::Applying, 1, 125), (Way::Healthy, 1, 140)],
    vec![(Trigger::Revision, Outcome::Healthy, Some(112.0), Some(140.0))], 0)]
#[case::overtaken(
    &[(Way::Applying, 1, 112), (Way::Applying, 2, 126)],
    vec![(Trigger::Revision, Outcome::Superseded, Some(112.0), None),
         (Trigger::Revision, Outcome::InProgress, Some(126.0), None)], 0)]
#[case::the_same_applied_anew(
    &[(Way::Applying, 0, 112), (Way::Healthy, 0, 127), (Way::Applying, 0, 140), (Way::Healthy, 0, 150)],
    vec![(Trigger::Apply, Outcome::Healthy, Some(112.0), Some(127.0)),
         (Trigger::Apply, Outcome::Healthy, Some(140.0), Some(150.0))], 0)]
#[case::health_lost_and_found(
    &[(Way::Unhealthy, 0, 112), (Way::Healthy, 0, 127)],
    vec![(Trigger::Health, Outcome::Healthy, Some(112.0), Some(127.0))], 0)]
#[case::there_and_back_unseen(&[(Way::Healthy, 0, 112)], vec![], 1)]
#[case::failed_recovered_and_failed_again(
    &[(Way::Unhealthy, 0, 112), (Way::Unhealthy, 0, 127)],
    vec![(Trigger::Health, Outcome::Failed, Some(112.0), Some(112.0))], 1)]
#[case::nobody_checks(
    &[(Way::Applying, 1, 112), (Way::Unchecked, 1, 125), (Way::Applying, 1, 140)],
    vec![(Trigger::Revision, Outcome::Applied, Some(112.0), None),
         (Trigger::Apply, Outcome::InProgress, Some(140.0), None)], 0)]
#[case::deleted(
    &[(Way::Deleting, 0, 112)],
    vec![(Trigger::Deletion, Outcome::InProgress, Some(112.0), None)], 0)]
fn operations(
    #[case] all: &[(Way, u64, u64)],
    #[case] expected: Vec<(Trigger, Outcome, Option<Seconds>, Option<Seconds>)>,
    #[case] moved_unseen: usize,
) {
    let story = fold(looks(all));
    assert_eq!(brief(&story), expected);
    assert_eq!(story.gaps.len(), moved_unseen);
    assert!(story.gaps.iter().all(|gap| gap.because == Because::Moved));
}

#[test]
fn a_package_that_goes_and_comes_back() {
    let mut all = looks(&[(Way::Deleting, 0, 112)]);
    all.extend([away(130.0), away(145.0)]);
    let story = fold(all.clone());
    assert_eq!(brief(&story), [(Trigger::Deletion, Outcome::Gone, Some(112.0), None)]);
    assert_eq!((story.gone, story.now), (Some(within(115.0, 130.0)), None));
    all.push(Look { package: Some(healthy(1, 158)), soak: 2.0, ..away(160.0) });
    let story = fold(all);
    assert_eq!(brief(&story)[1], (Trigger::New, Outcome::Healthy, Some(158.0), Some(158.0)));
    assert_eq!(story.gone, None);
}

const OTHER: Option<Because> = Some(Because::OtherProcess);

#[rstest]
#[case::it_says_the_same(Way::Applying, 112, OTHER, None, None)]
#[case::it_says_the_same_since_it_looked(Way::Applying, 128, OTHER, Some(Because::OtherProcess), None)]
#[case::it_ended_meanwhile(Way::Healthy, 121, OTHER, Some(Because::OtherProcess), Some(within(115.0, 121.0)))]
#[case::one_that_was_there_already(
    Way::Healthy, 121, None, None, Some(Moment { exact: true, ..within(115.0, 121.0) }))]
fn an_exporter_started_anew_in_the_middle(
    #[case] way: Way,
    #[case] since: u64,
    #[case] unwatched: Option<Because>,
    #[case] gap: Option<Because>,
    #[case] healthy: Option<Moment>,
) {
    let mut all = looks(&[(Way::Applying, 0, 112), (way, 0, since)]);
    all[2].unwatched = unwatched;
    let story = fold(all);
    let [operation] = story.operations.as_slice() else { panic!("{story:?}") };
    assert_eq!(story.gaps.first().map(|gap| gap.because), gap);
    assert_eq!(operation.started, Some(within(100.0, 112.0)));
    assert_eq!(operation.healthy, healthy);
}

#[test]
fn another_process_that_vouches_for_all_the_time_in_between_has_missed_nothing() {
    let mut all = looks(&[(Way::Healthy, 0, 90)]);
    all[1].unwatched = OTHER;
    assert_eq!(gaps(&fold(all)), []);
}

#[test]
fn what_comes_and_goes_while_the_exporter_sees_nothing_is_not_known() {
    let mut all = looks(&[(Way::Healthy, 0, 50), (Way::Healthy, 0, 121), (Way::Unhealthy, 0, 145)]);
    all[1..].iter_mut().for_each(|look| look.unwatched = Some(Because::Blind));
    let story = fold(all);
    // Of the first one it says itself that nothing has moved.
    assert_eq!(gaps(&story), [(115.0, 130.0, Because::Blind), (130.0, 145.0, Because::Blind)]);
    let Some((failed, _)) = story.operations[0].failed else { panic!("{story:?}") };
    assert_eq!(failed, within(130.0, 145.0));
}

#[test]
fn what_was_before_the_first_sample_and_after_the_last_is_not_known() {
    let story = fold(looks(&[(Way::Healthy, 0, 50)]));
    assert_eq!(story.unknown(100.0, 115.0), (None, None));
    assert_eq!(story.unknown(99.0, 116.0), (Some(100.0), Some(115.0)));
    // It was seen not to be there.
    let all = [away(85.0)].into_iter().chain(looks(&[]));
    assert_eq!(fold(all).unknown(50.0, 90.0), (None, None));
}

#[test]
fn a_clock_that_is_wrong_is_corrected() {
    let mut all = looks(&[(Way::Applying, 0, 52)]);
    all.iter_mut().for_each(|look| look.offset = 60.0);
    let story = fold(all);
    assert_eq!(story.operations[0].started, Some(within(100.0, 112.0)));
    assert_eq!(story.operations[0].transitions[0].moment, Moment { exact: true, ..within(100.0, 112.0) });
}

#[test]
fn what_goes_on_for_ever_is_bounded_and_says_so() {
    // Each is seen twice, and has been something else in between.
    let flaps = |i: u64| if (i / 2).is_multiple_of(2) { Way::Unhealthy } else { Way::Checking };
    let all: Vec<_> = (0..400).map(|i| (flaps(i), 0, 115 + 15 * i)).collect();
    let story = fold(looks(&all));
    let [operation] = story.operations.as_slice() else { panic!("{}", story.operations.len()) };
    assert_eq!((operation.transitions.len(), operation.more_transitions), (50, 150));
    assert_eq!((story.gaps.len(), story.left_out), (100, 100));
}

/// A report of a cluster with a failure, a rollout and gaps, a quiet one, and one of which nothing is known.
fn report() -> Report {
    let mut all = looks(&[
        (Way::Applying, 1, 112),
        (Way::Unhealthy, 1, 125),
        (Way::Applying, 2, 142),
        (Way::Healthy, 2, 155),
        (Way::Unhealthy, 2, 170),
        (Way::Unhealthy, 2, 187),
    ]);
    all[3].unwatched = OTHER;
    for look in &mut all {
        look.at += 1_000_000.0;
        look.offset = 1_000_000.0;
    }
    let busy = fold(all);
    let quiet = fold(looks(&[]));
    let mut blind = looks(&[(Way::Healthy, 0, 50), (Way::Unhealthy, 0, 130)]);
    blind[2].unwatched = Some(Because::Blind);
    let silent = fold(blind);
    let words = Words {
        revisions: [(revision(2), "v2".to_owned())].into(),
        reasons: [(5, "HealthCheckFailed".to_owned())].into(),
    };
    let verified = vec![Verified::Yes, Verified::No("no digest is there for it".into()), Verified::NotTried];
    let package = PackageRef { source: "flux".into(), namespace: Some("ns".into()), name: "p".into() };
    Report {
        package: package.clone(),
        fleet_package: Some("default/payments".to_owned()),
        from: report::time(1_000_000.0),
        to: report::time(1_000_200.0),
        clusters: vec![
            Cluster { unusable_scrapes: 2, ..Cluster::new("eu-1".to_owned(), &busy, verified, &words) },
            Cluster {
                reported_by: Some("hub".to_owned()),
                ..Cluster::new("eu-1".to_owned(), &quiet, Vec::new(), &words)
            },
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

    CLUSTER         REVISION       TRIGGER    STARTED                 APPLIED      HEALTHY     DURATION   OUTCOME
    eu-1            82f3e9c695dc   revision   ≤1970-01-12T13:48:32Z   ≤13:48:45Z   -           ≤25s       Failed: HealthCheckFailed
                    another exporter process between 1970-01-12T13:48:50Z and 1970-01-12T13:49:05Z: it may have moved unseen
                    db77fd01af95   revision   ≤1970-01-12T13:49:02Z   ≤13:49:15Z   13:49:15Z   ≤25s       Healthy (UNVERIFIED: no digest is there for it)
                    db77fd01af95   health     ≤1970-01-12T13:49:30Z   -            -           ≤10s       Failed: HealthCheckFailed (not verified)
                    it moved at least once between 1970-01-12T13:49:35Z and 1970-01-12T13:49:50Z, or was not watched for a moment
                    2 scrapes were not whole and not counted
    eu-1 (by hub)   Applied, Current at dd191696e15e since 1970-01-01T00:00:50Z: no operation in this time
    us-1            Applied, Current at dd191696e15e since 1970-01-01T00:00:50Z: no operation in this time
    us-2            nothing was heard of the package in this time
    us-3            dd191696e15e   health     ≤1970-01-01T00:02:10Z   -            -           ≤15s       Failed: HealthCheckFailed
                    the exporter did not see its cluster between 1970-01-01T00:01:55Z and 1970-01-01T00:02:10Z: it may have moved unseen
                    nothing was heard of the package after 1970-01-01T00:02:10Z: how it is now is not known
    us-4            nothing was heard of the package before 1970-01-01T00:01:40Z
                    Applied, Current at dd191696e15e since 1970-01-01T00:00:50Z: no operation was seen
    "#);
}

#[test]
fn the_json() {
    let report = serde_json::to_value(report()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&report["clusters"][0]["operations"][1]).unwrap(), @r#"
    {
      "applied": {
        "after": "1970-01-12T13:49:05Z",
        "at": "1970-01-12T13:49:15Z",
        "exact": false
      },
      "durationAtMost": true,
      "durationSeconds": 25,
      "ended": {
        "after": "1970-01-12T13:49:05Z",
        "at": "1970-01-12T13:49:15Z",
        "exact": true
      },
      "fingerprint": "db77fd01af95",
      "healthy": {
        "after": "1970-01-12T13:49:05Z",
        "at": "1970-01-12T13:49:15Z",
        "exact": true
      },
      "outcome": "Healthy",
      "revision": "v2",
      "started": {
        "after": "1970-01-12T13:48:50Z",
        "at": "1970-01-12T13:49:02Z",
        "exact": false
      },
      "transitions": [
        {
          "after": "1970-01-12T13:48:50Z",
          "appliedFingerprint": "82f3e9c695dc",
          "applyState": "Applying",
          "at": "1970-01-12T13:49:02Z",
          "desiredFingerprint": "db77fd01af95",
          "exact": false,
          "health": "InProgress",
          "reason": "code 0x2"
        },
        {
          "after": "1970-01-12T13:49:05Z",
          "appliedFingerprint": "db77fd01af95",
          "applyState": "Applied",
          "at": "1970-01-12T13:49:15Z",
          "desiredFingerprint": "db77fd01af95",
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
    insta::assert_snapshot!(report["clusters"][0]["unseen"], @r#"[{"after":"1970-01-12T13:48:50Z","because":"OtherProcess","before":"1970-01-12T13:49:05Z"},{"after":"1970-01-12T13:49:35Z","because":"Moved","before":"1970-01-12T13:49:50Z"}]"#);
    insta::assert_snapshot!(report["clusters"][1], @r#"{"clusterName":"eu-1","lastSeenAt":"1970-01-01T00:01:40Z","now":{"applyState":"Applied","desiredRevision":"dd191696e15e","health":"Current","healthyRevision":"dd191696e15e","since":"1970-01-01T00:00:50Z"},"operations":[],"reportedBy":"hub","unseen":[]}"#);
}

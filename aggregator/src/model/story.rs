//! Histories: what happens when, generated and shrunk.

use proptest::prelude::*;

use super::backend::Part;

/// How the objects of a cluster say since when they are as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dates {
    /// They say so.
    Own,
    /// They do not: the exporter says when it saw it.
    Seen,
    /// They have a time, but it does not move when they change: only counters tell.
    Still,
}

/// What holds for a whole history.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// For each cluster, how it is dated and by how many seconds its clock is ahead.
    pub(super) clusters: Vec<(Dates, i8)>,
    /// How many replicas of Prometheus scrape each cluster.
    pub(super) replicas: usize,
    pub(super) min_healthy: u8,
    pub(super) max_failures: u8,
    pub(super) min_success: u16,
    /// By how many seconds the clock of each replica of the aggregator is ahead. Two elect a leader.
    pub(super) aggregators: Vec<i8>,
    /// How scrapes and polls fall in time, and series on shards.
    pub(super) spread: u8,
    /// Whether a cluster under another's name has a target of its own.
    pub(super) apart: bool,
}

/// What happens. Times are seconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A cluster is told to run a revision.
    Deliver { cluster: u8, to: u8, takes: u8, good: bool },
    /// Its package breaks, and recovers or does not.
    Break { cluster: u8, recovers: Option<u8> },
    /// Its exporter restarts, perhaps somewhere else.
    Restart { cluster: u8, away: u8, moves: bool },
    /// Its scrapes fail.
    Unscraped { cluster: u8, lasts: u16 },
    /// A gateway repeats an old exposition, to one replica or to all.
    Repeated { cluster: u8, replica: Option<u8>, lasts: u16 },
    /// The exporter loses its API server, and says so.
    Cut { cluster: u8, lasts: u16 },
    /// Its clock is set.
    Clock { cluster: u8, ahead: i8 },
    /// Another cluster reports under the name of the first.
    Impostor { revision: u8, lasts: u16 },
    /// Samples arrive late.
    Lag { shard: u8, delay: u8, lasts: u16 },
    /// Stale markers are lost.
    LoseMarkers { lasts: u16 },
    /// Answers lack some of a cluster's series, or have old samples of them.
    Torn { cluster: u8, part: Part, behind: Option<u8>, lasts: u16 },
    /// Answers lack a cluster.
    Forgotten { cluster: u8, lasts: u16 },
    /// Queries fail.
    Refused { lasts: u16 },
    /// The leader stands still.
    Frozen { lasts: u16 },
    /// The leader stands still between what it decides next and the sending of it.
    Stalled { lasts: u16 },
    /// The leader is killed.
    Killed { away: u8 },
    /// The leader's clock is set.
    OwnClock { ahead: i8 },
    /// The leader does not reach the hub.
    Isolated { lasts: u16 },
    /// Writes to the hub take so long.
    SlowWrites { seconds: u8, lasts: u16 },
    /// Writes arrive, their answers do not.
    LostAnswers { lasts: u16 },
    /// The next write arrives so late.
    LateWrite { by: u8 },
    /// The next write is lost.
    LostWrite,
    /// What aggregators hear of the hub's objects is so old.
    LateNews { by: u8, lasts: u16 },
    /// The gate gets another revision.
    Regate { to: u8 },
}

/// A history.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) setup: Setup,
    /// By the second at which they happen.
    pub(super) events: Vec<(u16, Event)>,
}

impl Story {
    /// How many seconds it lasts.
    pub(super) fn length(&self) -> u64 {
        self.events.iter().map(|(at, _)| u64::from(*at)).max().unwrap_or_default() + 150
    }
}

/// Some events with the time from the first.
type Act = Vec<(u16, Event)>;

/// Any history: a rollout as a rule, then acts.
pub(super) fn stories() -> BoxedStrategy<Story> {
    let acts = prop::collection::vec((0..500_u16, acts()), 0..9);
    (setups(), prop::bool::weighted(0.9), acts)
        .prop_map(|(setup, begins, acts)| {
            let clusters = setup.clusters.len() as u8;
            let deliver = |cluster| (0, Event::Deliver { cluster, to: 1, takes: 3, good: true });
            let rollout = (0..if begins { clusters } else { 0 }).map(deliver);
            let acts = acts
                .into_iter()
                .flat_map(|(at, act)| act.into_iter().map(move |(later, event)| (at + later, event)));
            Story { events: rollout.chain(acts).collect(), setup }
        })
        .boxed()
}

fn setups() -> BoxedStrategy<Setup> {
    let dates = prop_oneof![Just(Dates::Own), Just(Dates::Seen), Just(Dates::Still)];
    let ahead = prop_oneof![2 => Just(0_i8), 1 => -40..40_i8];
    let clusters = prop::collection::vec((dates, ahead), 1..4);
    let aggregators = prop::collection::vec(prop_oneof![2 => Just(0_i8), 1 => -9..10_i8], 1..3);
    let soak = prop_oneof![Just(0), Just(40), Just(120)];
    (clusters, 1..3_usize, 0..2_u8, soak, aggregators, any::<u8>(), any::<bool>())
        .prop_map(|(clusters, replicas, max_failures, min_success, aggregators, spread, apart)| {
            let max_failures = max_failures.min(clusters.len() as u8 - 1);
            let min_healthy = clusters.len() as u8 - max_failures;
            Setup { clusters, replicas, min_healthy, max_failures, min_success, aggregators, spread, apart }
        })
        .boxed()
}

/// What belongs together, or is worst together.
fn acts() -> BoxedStrategy<Act> {
    let soon = || 0..25_u16;
    let burst = |event, most| prop::collection::vec((soon(), event), 1..most);
    prop_oneof![
        6 => events().prop_map(|event| vec![(0, event)]),
        3 => rollouts(),
        // A fault hides that something breaks.
        5 => (covers(), soon(), 0..3_u8, prop::option::weighted(0.2, 1..90_u8)).prop_map(
            |(cover, later, cluster, recovers)| vec![(0, cover), (later, Event::Break { cluster, recovers })]
        ),
        // There and back between two scrapes.
        2 => (0..3_u8, 1..20_u8).prop_map(
            |(cluster, after)| vec![(0, Event::Break { cluster, recovers: Some(after) })]
        ),
        // The leader goes, and its successor sees nothing.
        3 => (leaving(), soon(), 60..400_u16, soon(), 0..3_u8, 0..3_u8).prop_map(
            |(leaves, refused, lasts, then, cluster, what)| vec![
                (20, leaves),
                (refused, Event::Refused { lasts }),
                (20 + then, match what {
                    0 => Event::Regate { to: cluster.max(1) },
                    _ => Event::Break { cluster, recovers: None },
                }),
            ]
        ),
        // It breaks and recovers while nobody watches, and its exporter forgets that it did.
        2 => (blinds(), 0..40_u16, 0..3_u8, 1..30_u8, 0..60_u16, 0..20_u8).prop_map(
            |(blind, later, cluster, recovers, then, away)| vec![
                (0, blind),
                (later, Event::Break { cluster, recovers: Some(recovers) }),
                (later + u16::from(recovers) + then, Event::Restart { cluster, away, moves: false }),
            ]
        ),
        // Something is on its way to the hub while the leader changes.
        3 => (hub_troubles(), soon(), events(), soon(), leaving()).prop_map(
            |(trouble, news, event, gone, leaves)| vec![(0, trouble), (news, event), (gone, leaves)]
        ),
        2 => burst(events(), 4),
    ]
    .boxed()
}

/// The gate and its clusters go to a revision, in any order.
fn rollouts() -> BoxedStrategy<Act> {
    let cluster = (0..40_u16, 1..60_u8, prop::bool::weighted(0.85));
    (1..4_u8, 0..40_u16, prop::collection::vec(cluster, 3))
        .prop_map(|(to, gate, clusters)| {
            let clusters = clusters
                .into_iter()
                .zip(0..)
                .map(|((at, takes, good), cluster)| (at, Event::Deliver { cluster, to, takes, good }));
            clusters.chain([(gate, Event::Regate { to })]).collect()
        })
        .boxed()
}

fn lasts() -> impl Strategy<Value = u16> {
    prop_oneof![1..60_u16, 60..400_u16]
}

fn covers() -> BoxedStrategy<Event> {
    let cluster = 0..3_u8;
    let part =
        prop_oneof![3 => Just(Part::Body), 1 => Just(Part::Heads), 2 => (0..3_u8).prop_map(Part::Third)];
    let replica = prop::option::of(0..2_u8);
    prop_oneof![
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Unscraped { cluster, lasts }),
        3 => (cluster.clone(), replica, lasts())
            .prop_map(|(cluster, replica, lasts)| Event::Repeated { cluster, replica, lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Cut { cluster, lasts }),
        3 => (1..3_u8, lasts()).prop_map(|(revision, lasts)| Event::Impostor { revision, lasts }),
        3 => (0..3_u8, 1..250_u8, lasts()).prop_map(|(shard, delay, lasts)| Event::Lag { shard, delay, lasts }),
        1 => lasts().prop_map(|lasts| Event::LoseMarkers { lasts }),
        4 => (cluster.clone(), part, prop::option::weighted(0.7, 1..250_u8), lasts())
            .prop_map(|(cluster, part, behind, lasts)| Event::Torn { cluster, part, behind, lasts }),
        1 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Forgotten { cluster, lasts }),
        1 => lasts().prop_map(|lasts| Event::Refused { lasts }),
        2 => (cluster, 0..90_u8, any::<bool>())
            .prop_map(|(cluster, away, moves)| Event::Restart { cluster, away, moves }),
    ].boxed()
}

/// What keeps everybody from watching for longer than is no break.
fn blinds() -> BoxedStrategy<Event> {
    let lasts = || 100..300_u16;
    prop_oneof![
        2 => lasts().prop_map(|lasts| Event::Refused { lasts }),
        1 => lasts().prop_map(|lasts| Event::Frozen { lasts }),
        1 => (0..3_u8, lasts()).prop_map(|(cluster, lasts)| Event::Forgotten { cluster, lasts }),
    ]
    .boxed()
}

fn leaving() -> BoxedStrategy<Event> {
    prop_oneof![
        2 => (0..90_u8).prop_map(|away| Event::Killed { away }),
        1 => lasts().prop_map(|lasts| Event::Frozen { lasts }),
        1 => lasts().prop_map(|lasts| Event::Stalled { lasts }),
        1 => lasts().prop_map(|lasts| Event::Isolated { lasts }),
    ]
    .boxed()
}

fn hub_troubles() -> BoxedStrategy<Event> {
    prop_oneof![
        (1..10_u8, lasts()).prop_map(|(seconds, lasts)| Event::SlowWrites { seconds, lasts }),
        lasts().prop_map(|lasts| Event::LostAnswers { lasts }),
        (1..250_u8).prop_map(|by| Event::LateWrite { by }),
        Just(Event::LostWrite),
        (1..30_u8, lasts()).prop_map(|(by, lasts)| Event::LateNews { by, lasts }),
    ]
    .boxed()
}

fn events() -> BoxedStrategy<Event> {
    let cluster = 0..3_u8;
    prop_oneof![
        6 => (cluster.clone(), 1..4_u8, 1..60_u8, prop::bool::weighted(0.8))
            .prop_map(|(cluster, to, takes, good)| Event::Deliver { cluster, to, takes, good }),
        5 => (cluster.clone(), prop::option::of(1..40_u8))
            .prop_map(|(cluster, recovers)| Event::Break { cluster, recovers }),
        8 => covers(),
        3 => leaving(),
        2 => hub_troubles(),
        1 => (cluster, -100..100_i8).prop_map(|(cluster, ahead)| Event::Clock { cluster, ahead }),
        1 => prop_oneof![-9..10_i8, -120..120_i8].prop_map(|ahead| Event::OwnClock { ahead }),
        2 => (1..4_u8).prop_map(|to| Event::Regate { to }),
    ]
    .boxed()
}

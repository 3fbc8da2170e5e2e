//! Histories: what happens when, generated and shrunk.

use proptest::prelude::*;

use super::backend::{Kind, Part};

/// How the objects of a cluster say since when they are as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dates {
    /// They say so.
    Own,
    /// They do not, or not alone: the exporter says when it saw it.
    Seen,
    /// They say too early a time: that of their creation, whatever becomes of them.
    Early,
}

/// What holds for a whole history.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// For each cluster, how it is dated and by how many seconds its clock is ahead.
    pub(super) clusters: Vec<(Dates, i8)>,
    /// How many replicas of Prometheus scrape each cluster, and how many seconds apart.
    pub(super) replicas: usize,
    pub(super) interval: u16,
    /// `staleAfter` of the FleetPackage, in seconds.
    pub(super) stale_after: u16,
    pub(super) backend: Kind,
    pub(super) min_healthy: u8,
    pub(super) max_failures: u8,
    pub(super) min_success: u16,
    /// By how many seconds the clock of each replica of the aggregator is ahead. They elect a leader.
    pub(super) aggregators: Vec<i8>,
    /// How scrapes and polls fall in time, and series on shards.
    pub(super) spread: u8,
    /// Whether a cluster under another's name has a target of its own.
    pub(super) apart: bool,
    /// Whether the exporters run beside management clusters and tell of the clusters that the gate is about.
    pub(super) speaks: bool,
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
    /// Its exporter's machine is suspended.
    Suspended { cluster: u8, lasts: u16 },
    /// Its exporter is upgraded: for a while the old process and the new one are reached in turn.
    Upgraded { cluster: u8, lasts: u16 },
    /// A gateway repeats an old exposition, to one replica or to all, always or every other time.
    Repeated { cluster: u8, replica: Option<u8>, alternates: bool, lasts: u16 },
    /// One Prometheus that scrapes it is killed, or all.
    ScraperKilled { cluster: u8, replica: Option<u8>, away: u16 },
    /// What is scraped is held up, and stamped when it arrives.
    HeldUp { cluster: u8, replica: Option<u8>, by: u8, lasts: u16 },
    /// The exporter loses its API server, and says so.
    Cut { cluster: u8, lasts: u16 },
    /// The clock of its exporter is set.
    Clock { cluster: u8, ahead: i16 },
    /// The clock by which its scrapes are stamped is set.
    Stamps { cluster: u8, ahead: i16 },
    /// Another cluster reports under the name of the first.
    Impostor { revision: u8, lasts: u16 },
    /// A tenant's pod in the cluster says that a revision is healthy there, dated so far ahead, always or in turn with a
    /// failure.
    Liar { cluster: u8, revision: u8, ahead: u8, flips: bool, lasts: u16 },
    /// The exporter of another cluster says the same of the cluster, and the configuration does not grant it.
    Ungranted { cluster: u8, revision: u8, ahead: u8, flips: bool, lasts: u16 },
    /// The configuration no longer grants its exporter to tell of it, where that is another cluster's.
    Withdrawn { cluster: u8, lasts: u16 },
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
    let dates = prop_oneof![Just(Dates::Own), Just(Dates::Seen), Just(Dates::Early)];
    let ahead = prop_oneof![2 => Just(0_i8), 1 => -40..40_i8];
    let clusters = prop::collection::vec((dates, ahead), 1..4);
    let aggregators = prop::collection::vec(prop_oneof![2 => Just(0_i8), 1 => -9..10_i8], 1..3);
    let soak = prop_oneof![Just(0), Just(40), Just(120)];
    let interval = prop_oneof![8 => Just(15_u16), 1 => Just(60), 1 => Just(120)].prop_flat_map(|interval| {
        // As docs advise, or too short.
        (Just(interval), prop_oneof![Just(4 * interval + 15), Just(75)])
    });
    let backend = prop_oneof![Just(Kind::Prometheus), Just(Kind::VictoriaMetrics)];
    let pipeline = (1..3_usize, interval, backend);
    let exporters = (any::<bool>(), any::<bool>());
    (clusters, pipeline, 0..2_u8, soak, aggregators, any::<u8>(), exporters)
        .prop_map(|(clusters, pipeline, max_failures, min_success, aggregators, spread, exporters)| {
            let (apart, speaks) = exporters;
            let (replicas, (interval, stale_after), backend) = pipeline;
            let max_failures = max_failures.min(clusters.len() as u8 - 1);
            let min_healthy = clusters.len() as u8 - max_failures;
            Setup {
                clusters,
                replicas,
                interval,
                stale_after,
                backend,
                min_healthy,
                max_failures,
                min_success,
                aggregators,
                spread,
                apart,
                speaks,
            }
        })
        .boxed()
}

/// What belongs together, or is worst together.
fn acts() -> BoxedStrategy<Act> {
    let soon = || 0..25_u16;
    let then = prop_oneof![3 => Just(0), 1 => clocks()];
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
        // A gateway repeats what a fast clock dated, while it breaks; and nothing is scraped for a while, perhaps.
        3 => (0..3_u8, 20..60_i16, any::<bool>(), 60..300_u16, prop::option::of((hiding(), 0..20_u16))).prop_map(
            |(cluster, ahead, alternates, lasts, hidden)| {
                let hidden = hidden.map(|(hide, later)| (40 + later, hide.on(cluster)));
                let repeated = Event::Repeated { cluster, replica: None, alternates, lasts };
                let broken = Event::Break { cluster, recovers: None };
                let all = [(0, Event::Clock { cluster, ahead }), (40, repeated), (41, broken)];
                all.into_iter().chain(hidden).collect()
            }
        ),
        // The clock of the machine on which exporter and scraper run is wrong for a while, and then right or wrong otherwise.
        2 => (0..3_u8, clocks(), then, 20..300_u16, 0..60_u16, prop::option::weighted(0.3, 1..90_u8)).prop_map(
            |(cluster, ahead, then, lasts, later, recovers)| vec![
                (0, Event::Clock { cluster, ahead }),
                (0, Event::Stamps { cluster, ahead }),
                (lasts, Event::Clock { cluster, ahead: then }),
                (lasts, Event::Stamps { cluster, ahead: then }),
                (lasts + later, Event::Break { cluster, recovers }),
            ]
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
        // It breaks and recovers while nobody watches, and its exporter is another one then.
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
        3 => (cluster.clone(), replica.clone(), any::<bool>(), lasts()).prop_map(
            |(cluster, replica, alternates, lasts)| Event::Repeated { cluster, replica, alternates, lasts }
        ),
        1 => (cluster.clone(), replica.clone(), lasts())
            .prop_map(|(cluster, replica, away)| Event::ScraperKilled { cluster, replica, away }),
        2 => (cluster.clone(), replica, 1..120_u8, lasts())
            .prop_map(|(cluster, replica, by, lasts)| Event::HeldUp { cluster, replica, by, lasts }),
        1 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Suspended { cluster, lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Upgraded { cluster, lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Cut { cluster, lasts }),
        3 => (1..3_u8, lasts()).prop_map(|(revision, lasts)| Event::Impostor { revision, lasts }),
        3 => (cluster.clone(), 1..4_u8, 0..70_u8, any::<bool>(), lasts()).prop_map(
            |(cluster, revision, ahead, flips, lasts)| Event::Liar { cluster, revision, ahead, flips, lasts }
        ),
        3 => (cluster.clone(), 1..4_u8, 0..70_u8, any::<bool>(), lasts()).prop_map(
            |(cluster, revision, ahead, flips, lasts)| Event::Ungranted { cluster, revision, ahead, flips, lasts }
        ),
        4 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Withdrawn { cluster, lasts }),
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

/// What keeps aggregators from watching.
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

/// What hides scrapes of a cluster.
#[derive(Debug, Clone, Copy)]
enum Hiding {
    Unscraped(u16),
    Killed(u16),
    Forgotten(u16),
    Moved,
}

impl Hiding {
    fn on(self, cluster: u8) -> Event {
        match self {
            Self::Unscraped(lasts) => Event::Unscraped { cluster, lasts },
            Self::Killed(away) => Event::ScraperKilled { cluster, replica: None, away },
            Self::Forgotten(lasts) => Event::Forgotten { cluster, lasts },
            Self::Moved => Event::Restart { cluster, away: 0, moves: true },
        }
    }
}

fn hiding() -> BoxedStrategy<Hiding> {
    prop_oneof![
        (30..90_u16).prop_map(Hiding::Unscraped),
        (30..90_u16).prop_map(Hiding::Killed),
        (30..90_u16).prop_map(Hiding::Forgotten),
        Just(Hiding::Moved),
    ]
    .boxed()
}

/// By how much clocks may be off.
fn clocks() -> BoxedStrategy<i16> {
    prop_oneof![4 => -60..60_i16, 2 => -300..300_i16, 1 => 300..=3600_i16, 1 => Just(-3600)].boxed()
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
        1 => (cluster.clone(), clocks()).prop_map(|(cluster, ahead)| Event::Clock { cluster, ahead }),
        1 => (cluster, clocks()).prop_map(|(cluster, ahead)| Event::Stamps { cluster, ahead }),
        1 => prop_oneof![-9..10_i8, -120..120_i8].prop_map(|ahead| Event::OwnClock { ahead }),
        2 => (1..4_u8).prop_map(|to| Event::Regate { to }),
    ]
    .boxed()
}

/// Names of the revisions.
pub(super) fn revision(number: u8) -> String {
    format!("r{number}")
}

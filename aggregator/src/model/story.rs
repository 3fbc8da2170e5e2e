//! Histories: what happens when, generated and shrunk.

use proptest::prelude::*;

/// What holds for a whole history.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// For each cluster, whether its package's object says since when it is as it is.
    pub(super) dated: Vec<bool>,
    /// By how many seconds each cluster's clock is ahead.
    pub(super) ahead: Vec<i8>,
    /// How many replicas of Prometheus scrape each cluster.
    pub(super) replicas: usize,
    pub(super) min_healthy: u8,
    pub(super) max_failures: u8,
    pub(super) min_success: u16,
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
    /// A gateway repeats an old exposition.
    Repeated { cluster: u8, lasts: u16 },
    /// The exporter loses its API server, and says so.
    Cut { cluster: u8, lasts: u16 },
    /// Another cluster reports under its name.
    Impostor { revision: u8, lasts: u16 },
    /// Samples arrive late.
    Lag { shard: u8, delay: u8, lasts: u16 },
    /// Stale markers are lost.
    LoseMarkers { lasts: u16 },
    /// Answers lack some of a cluster's series.
    Torn { cluster: u8, lasts: u16 },
    /// Answers lack a cluster.
    Forgotten { cluster: u8, lasts: u16 },
    /// Queries fail.
    Refused { lasts: u16 },
    /// The aggregator stands still.
    Frozen { lasts: u16 },
    /// The aggregator is killed; another takes over.
    Killed { away: u8 },
    /// Writes to the hub take so long.
    SlowWrites { seconds: u8 },
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
        self.events.iter().map(|(at, _)| u64::from(*at)).max().unwrap_or_default() + 120
    }
}

/// Any history.
pub(super) fn stories() -> impl Strategy<Value = Story> {
    (setups(), prop::collection::vec((0..900_u16, events()), 0..30)).prop_map(|(setup, events)| {
        // Most histories begin with a rollout.
        let clusters = setup.dated.len() as u8;
        let rollout =
            (0..clusters).map(|cluster| (0, Event::Deliver { cluster, to: 1, takes: 3, good: true }));
        let events = rollout.chain(events).collect();
        Story { setup, events }
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    let ahead = prop_oneof![2 => Just(0_i8), 1 => -40..40_i8];
    let clusters = prop::collection::vec((any::<bool>(), ahead), 1..4);
    (clusters, 1..3_usize, 0..2_u8, prop_oneof![Just(0), Just(40), Just(120)]).prop_map(
        |(clusters, replicas, max_failures, min_success)| {
            let (dated, ahead): (Vec<_>, Vec<_>) = clusters.into_iter().unzip();
            let max_failures = max_failures.min(dated.len() as u8 - 1);
            let min_healthy = dated.len() as u8 - max_failures;
            Setup { dated, ahead, replicas, min_healthy, max_failures, min_success }
        },
    )
}

fn events() -> impl Strategy<Value = Event> {
    let cluster = 0..3_u8;
    let revision = 1..3_u8;
    let lasts = || prop_oneof![1..60_u16, 60..400_u16];
    prop_oneof![
        6 => (cluster.clone(), revision.clone(), 1..40_u8, prop::bool::weighted(0.8))
            .prop_map(|(cluster, to, takes, good)| Event::Deliver { cluster, to, takes, good }),
        5 => (cluster.clone(), prop::option::of(1..40_u8))
            .prop_map(|(cluster, recovers)| Event::Break { cluster, recovers }),
        3 => (cluster.clone(), 0..90_u8, any::<bool>())
            .prop_map(|(cluster, away, moves)| Event::Restart { cluster, away, moves }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Unscraped { cluster, lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Repeated { cluster, lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Cut { cluster, lasts }),
        1 => (revision.clone(), lasts()).prop_map(|(revision, lasts)| Event::Impostor { revision, lasts }),
        3 => (0..3_u8, 1..250_u8, lasts()).prop_map(|(shard, delay, lasts)| Event::Lag { shard, delay, lasts }),
        2 => lasts().prop_map(|lasts| Event::LoseMarkers { lasts }),
        2 => (cluster.clone(), lasts()).prop_map(|(cluster, lasts)| Event::Torn { cluster, lasts }),
        1 => (cluster, lasts()).prop_map(|(cluster, lasts)| Event::Forgotten { cluster, lasts }),
        1 => lasts().prop_map(|lasts| Event::Refused { lasts }),
        2 => lasts().prop_map(|lasts| Event::Frozen { lasts }),
        2 => (0..90_u8).prop_map(|away| Event::Killed { away }),
        1 => (0..10_u8).prop_map(|seconds| Event::SlowWrites { seconds }),
        2 => revision.prop_map(|to| Event::Regate { to }),
    ]
}

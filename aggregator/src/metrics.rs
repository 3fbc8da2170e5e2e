//! The aggregator's own metrics. No label ever names a cluster, a package or a gate: how many series
//! there are does not depend on what is watched. What is said of them here is what docs/metrics.md says.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::board::Board;
use crate::clock::Seconds;
use crate::poll::PollReport;
use crate::write::Kind;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "these are the label values")]
enum Outcome {
    success,
    failure,
}

impl From<bool> for Outcome {
    fn from(ok: bool) -> Self {
        if ok { Self::success } else { Self::failure }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    result: Outcome,
}

/// What became of a status write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// Accepted.
    Done,
    /// The object had changed; decided again.
    Conflict,
    /// The object was gone.
    Gone,
    /// Not sent, because another replica may lead before it is answered, or what was decided is old by now.
    Fenced,
    /// Refused or not answered.
    Error,
}

impl WriteResult {
    const ALL: [Self; 5] = [Self::Done, Self::Conflict, Self::Gone, Self::Fenced, Self::Error];

    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Fenced => "fenced",
            Self::Error => "error",
        }
    }
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushResult {
    /// It adds up.
    Verified,
    /// It does not add up, or cannot be used for another reason.
    Unverified,
    /// What is known is younger.
    Old,
    /// The token is not known.
    Unauthorized,
    /// It is no exposition, or came in another way than it should.
    Malformed,
    /// It is too large.
    TooLarge,
    /// It did not come in time.
    Slow,
    /// There was no room for it.
    Busy,
    /// This replica does not lead.
    Standby,
}

impl PushResult {
    const ALL: [Self; 9] = [
        Self::Verified,
        Self::Unverified,
        Self::Old,
        Self::Unauthorized,
        Self::Malformed,
        Self::TooLarge,
        Self::Slow,
        Self::Busy,
        Self::Standby,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unverified => "unverified",
            Self::Old => "old",
            Self::Unauthorized => "unauthorized",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::Standby => "standby",
        }
    }
}

/// What a gate is, for counting: each gate is one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// Open, by its own merits.
    Open,
    /// Closed, waiting.
    Closed,
    /// Closed, and only a person or a new spec can change it.
    Stalled,
    /// A person's word stands, be it open or closed.
    Overridden,
}

impl GateState {
    const ALL: [Self; 4] = [Self::Open, Self::Closed, Self::Stalled, Self::Overridden];

    const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Stalled => "stalled",
            Self::Overridden => "overridden",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWrite {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQuantile {
    quantile: &'static str,
}

/// Which ages are shown; the last is the greatest.
const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("1", 1.0)];

/// What is said of status writes: the aggregator has them, and the sweeper.
const WRITES: &str = "Status writes to the hub: done; conflict, decided again; gone, the object is no more; fenced, not \
                      sent because the lease might have ended or it was decided long ago; error";

/// Everything that `/metrics` shows.
pub struct Metrics {
    registry: Registry,
    polls: Family<ByOutcome, Counter>,
    poll_seconds: Histogram,
    samples: Counter,
    bytes: Counter,
    reread: Counter,
    streams: Family<ByState, Gauge>,
    writes: Family<ByWrite, Counter>,
    heartbeats: Family<ByOutcome, Counter>,
    gates: Family<ByState, Gauge>,
    queue: Gauge,
    newest_evidence: Gauge<f64, AtomicU64>,
    clusters: Gauge,
    ages: Family<ByQuantile, Gauge<f64, AtomicU64>>,
    invalid: Family<ByKind, Gauge>,
    leader: Gauge,
    renewals: Family<ByOutcome, Counter>,
    sweeps: Family<ByOutcome, Counter>,
    discovered: Family<ByState, Gauge>,
    scrapes: Family<ByOutcome, Counter>,
    pushes: Family<ByResult, Counter>,
}

impl Metrics {
    /// The aggregator's metrics.
    pub fn aggregator() -> Self {
        let mut metrics = Self::empty();
        let Self {
            registry,
            polls,
            poll_seconds,
            samples,
            bytes,
            reread,
            streams,
            writes,
            heartbeats,
            gates,
            queue,
            newest_evidence,
            discovered,
            clusters,
            ages,
            invalid,
            leader,
            renewals,
            scrapes,
            pushes,
            ..
        } = &mut metrics;
        let registry = registry.sub_registry_with_prefix("statusbridge_aggregator");
        registry.register("polls", "Polls of the metrics backend", polls.clone());
        registry.register("poll_duration_seconds", "How long polls took", poll_seconds.clone());
        registry.register("poll_samples", "Samples received from the metrics backend", samples.clone());
        registry.register("poll_bytes", "Bytes received from the metrics backend", bytes.clone());
        registry.register(
            "streams_reread",
            "Streams that did not add up at first and were read again",
            reread.clone(),
        );
        registry.register(
            "streams",
            "Streams at the last good poll, by whether their digest added up",
            streams.clone(),
        );
        registry.register("hub_writes", WRITES, writes.clone());
        registry.register("heartbeats", "Renewals of the heartbeat", heartbeats.clone());
        registry.register(
            "gates",
            "Rollout gates, each in one state; an overridden one may be open or closed",
            gates.clone(),
        );
        registry.register("pending_writes", "Status writes that wait for --writes-per-second", queue.clone());
        registry.register(
            "newest_evidence_timestamp_seconds",
            "Time of the newest verified evidence of any cluster, 0 when there is none",
            newest_evidence.clone(),
        );
        registry.register(
            "discovered_packages",
            "Packages with --discover-into: discovered ones have a FleetPackage, those left out have none",
            discovered.clone(),
        );
        registry.register("clusters", "Clusters of which something was verified", clusters.clone());
        registry.register(
            "evidence_age_seconds",
            "Age of the newest verified evidence of a cluster, as quantiles over all clusters, of which 1 is the oldest; NaN without clusters",
            ages.clone(),
        );
        registry.register(
            "invalid_objects",
            "Objects whose spec cannot be judged (InvalidSpec)",
            invalid.clone(),
        );
        registry.register("is_leader", "Whether this process leads: 1 or 0", leader.clone());
        registry.register("scrapes", "Scrapes of exporters by the aggregator itself", scrapes.clone());
        registry.register(
            "pushes",
            "Expositions that exporters pushed, by what became of them",
            pushes.clone(),
        );
        registry.register("lease_renewals", "Renewals of the leader's lease", renewals.clone());
        for result in [Outcome::success, Outcome::failure] {
            for outcomes in [&metrics.polls, &metrics.heartbeats, &metrics.renewals, &metrics.scrapes] {
                drop(outcomes.get_or_create(&ByOutcome { result }));
            }
        }
        for result in PushResult::ALL {
            drop(metrics.pushes.get_or_create(&ByResult { result: result.name() }));
        }
        for kind in [Kind::FleetPackage, Kind::FleetPackageSlice, Kind::RolloutGate] {
            metrics.count_writes(kind);
        }
        metrics.stand_by();
        metrics
    }

    /// The same, and a series for each gate on the board.
    #[must_use]
    pub fn with_gates(mut self, board: Option<Arc<Board>>) -> Self {
        board.into_iter().for_each(|board| self.registry.register_collector(Box::new(board)));
        self
    }

    /// Forgets what only a leader knows.
    fn stand_by(&self) {
        self.found(0, 0, None);
        self.gates([]);
        self.queued(0);
        self.ages(Vec::new());
        self.discovered(0, 0);
        for kind in [Kind::FleetPackage, Kind::RolloutGate] {
            self.invalid(kind, 0);
        }
    }

    /// So that a result that never came up reads 0.
    fn count_writes(&self, kind: Kind) {
        for result in WriteResult::ALL {
            drop(self.writes.get_or_create(&ByWrite { kind: kind.name(), result: result.name() }));
        }
    }

    /// The sweeper's metrics.
    pub fn sweeper() -> Self {
        let mut metrics = Self::empty();
        let Self { registry, writes, sweeps, .. } = &mut metrics;
        let registry = registry.sub_registry_with_prefix("statusbridge_sweeper");
        registry.register("hub_writes", WRITES, writes.clone());
        registry.register(
            "sweeps",
            "Rounds in which the sweeper looked for open gates; a success when all was closed that had to be",
            sweeps.clone(),
        );
        for result in [Outcome::success, Outcome::failure] {
            drop(metrics.sweeps.get_or_create(&ByOutcome { result }));
        }
        metrics.count_writes(Kind::RolloutGate);
        metrics
    }

    fn empty() -> Self {
        Self {
            registry: Registry::default(),
            polls: Family::default(),
            poll_seconds: Histogram::new(exponential_buckets(0.01, 2.0, 14)),
            samples: Counter::default(),
            bytes: Counter::default(),
            reread: Counter::default(),
            streams: Family::default(),
            writes: Family::default(),
            heartbeats: Family::default(),
            gates: Family::default(),
            queue: Gauge::default(),
            newest_evidence: Gauge::default(),
            clusters: Gauge::default(),
            ages: Family::default(),
            invalid: Family::default(),
            leader: Gauge::default(),
            renewals: Family::default(),
            sweeps: Family::default(),
            discovered: Family::default(),
            scrapes: Family::default(),
            pushes: Family::default(),
        }
    }

    /// A poll ended after so many seconds.
    pub fn polled(&self, report: &PollReport, seconds: f64) {
        self.polls.get_or_create(&ByOutcome { result: report.ok.into() }).inc();
        self.samples.inc_by(report.samples);
        self.bytes.inc_by(report.bytes);
        self.reread.inc_by(report.reread as u64);
        self.poll_seconds.observe(seconds);
    }

    /// What the last good poll found.
    pub fn found(&self, verified: usize, unverified: usize, newest_evidence: Option<f64>) {
        for (state, count) in [("verified", verified), ("unverified", unverified)] {
            self.streams.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.newest_evidence.set(newest_evidence.unwrap_or(0.0));
    }

    /// An exporter was scraped, or could not be.
    pub fn scraped(&self, ok: bool) {
        self.scrapes.get_or_create(&ByOutcome { result: ok.into() }).inc();
    }

    /// An exporter pushed.
    pub fn pushed(&self, result: PushResult) {
        self.pushes.get_or_create(&ByResult { result: result.name() }).inc();
    }

    /// How many packages discovery has made a FleetPackage for, and for how many it did not.
    pub fn discovered(&self, discovered: usize, left_out: usize) {
        for (state, count) in [("discovered", discovered), ("left_out", left_out)] {
            self.discovered.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A status write ended.
    pub fn wrote(&self, kind: Kind, result: WriteResult) {
        self.writes.get_or_create(&ByWrite { kind: kind.name(), result: result.name() }).inc();
    }

    /// A heartbeat was or was not renewed.
    pub fn beat(&self, ok: bool) {
        self.heartbeats.get_or_create(&ByOutcome { result: ok.into() }).inc();
    }

    /// What all gates are.
    pub fn gates(&self, states: impl IntoIterator<Item = GateState>) {
        let mut counts = [0; GateState::ALL.len()];
        states.into_iter().for_each(|state| counts[state as usize] += 1);
        for (state, count) in GateState::ALL.into_iter().zip(counts) {
            self.gates.get_or_create(&ByState { state: state.name() }).set(count);
        }
    }

    /// How many objects of a kind cannot be judged.
    pub fn invalid(&self, kind: Kind, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.invalid.get_or_create(&ByKind { kind: kind.name() }).set(count);
    }

    /// How old what is known of each cluster is. Without clusters there are no quantiles.
    pub fn ages(&self, mut ages: Vec<Seconds>) {
        ages.sort_by(Seconds::total_cmp);
        self.clusters.set(i64::try_from(ages.len()).unwrap_or(i64::MAX));
        for (quantile, share) in QUANTILES {
            let age = nearest_rank(&ages, share).unwrap_or(f64::NAN);
            self.ages.get_or_create(&ByQuantile { quantile }).set(age);
        }
    }

    /// This process leads, or stands by.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
        if !leads {
            self.stand_by();
        }
    }

    /// The leader's lease was or was not renewed.
    pub fn renewed(&self, ok: bool) {
        self.renewals.get_or_create(&ByOutcome { result: ok.into() }).inc();
    }

    /// How many writes wait.
    pub fn queued(&self, count: usize) {
        self.queue.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A round of the sweeper ended.
    pub fn swept(&self, ok: bool) {
        self.sweeps.get_or_create(&ByOutcome { result: ok.into() }).inc();
    }

    /// All of it as OpenMetrics text.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut body = String::new();
        text::encode(&mut body, &self.registry)?;
        Ok(body)
    }
}

/// The smallest value that is not exceeded by this share of all.
fn nearest_rank(sorted: &[Seconds], share: f64) -> Option<Seconds> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn there_are_always_the_same_series() {
        let series = |metrics: &Metrics| -> BTreeMap<String, String> {
            let text = metrics.render().unwrap();
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples.filter_map(|line| line.rsplit_once(' ')).map(|(n, v)| (n.into(), v.into())).collect()
        };
        let metrics = Metrics::aggregator();
        let fresh = series(&metrics);
        metrics.leads(true);
        metrics.polled(&PollReport { ok: true, samples: 7, ..PollReport::default() }, 0.5);
        metrics.found(2, 1, Some(5.0));
        metrics.ages(vec![3.0, 1.0, 2.0]);
        metrics.gates([GateState::Open, GateState::Stalled, GateState::Open]);
        metrics.invalid(Kind::RolloutGate, 1);
        metrics.queued(9);
        metrics.beat(true);
        metrics.renewed(false);
        for kind in [Kind::FleetPackage, Kind::RolloutGate] {
            WriteResult::ALL.into_iter().for_each(|result| metrics.wrote(kind, result));
        }
        let later = series(&metrics);
        assert!(fresh.keys().eq(later.keys()), "{fresh:?}\n{later:?}");
        for (name, value) in [
            ("gates{state=\"open\"}", "2"),
            ("gates{state=\"closed\"}", "0"),
            ("gates{state=\"stalled\"}", "1"),
            ("evidence_age_seconds{quantile=\"0.5\"}", "2.0"),
            ("evidence_age_seconds{quantile=\"1\"}", "3.0"),
            ("clusters", "3"),
            ("is_leader", "1"),
            ("hub_writes_total{kind=\"RolloutGate\",result=\"fenced\"}", "1"),
        ] {
            assert_eq!(later[&format!("statusbridge_aggregator_{name}")], value, "{name}");
        }
        // What was known as a leader is not shown as if it were still so.
        metrics.leads(false);
        let standing_by = series(&metrics);
        assert_eq!(standing_by["statusbridge_aggregator_gates{state=\"open\"}"], "0");
        assert_eq!(standing_by["statusbridge_aggregator_clusters"], "0");
        assert_eq!(standing_by["statusbridge_aggregator_polls_total{result=\"success\"}"], "1");
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let ages: Vec<f64> = (1..=100).map(f64::from).collect();
        let ranks = QUANTILES.map(|(_, share)| nearest_rank(&ages, share));
        assert_eq!(ranks, [Some(50.0), Some(90.0), Some(99.0), Some(100.0)]);
        assert_eq!(nearest_rank(&[4.0], 0.5), Some(4.0));
        assert_eq!(nearest_rank(&[], 1.0), None);
    }
}

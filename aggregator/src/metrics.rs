//! The aggregator's own metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

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
    /// Refused or not answered.
    Error,
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
    sweeps: Family<ByOutcome, Counter>,
    discovered: Family<ByState, Gauge>,
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
            ..
        } = &mut metrics;
        let registry = registry.sub_registry_with_prefix("statusbridge_aggregator");
        registry.register("polls", "Polls of the metrics backend", polls.clone());
        registry.register("poll_duration_seconds", "How long polls took", poll_seconds.clone());
        registry.register("poll_samples", "Samples received from the metrics backend", samples.clone());
        registry.register("poll_bytes", "Bytes received from the metrics backend", bytes.clone());
        registry.register("streams_reread", "Streams that did not add up at first", reread.clone());
        registry.register(
            "streams",
            "Streams at the last poll, by whether their digest added up",
            streams.clone(),
        );
        registry.register("hub_writes", "Status writes to the hub", writes.clone());
        registry.register("heartbeats", "Renewals of the heartbeat", heartbeats.clone());
        registry.register("gates", "Rollout gates by state", gates.clone());
        registry.register("pending_writes", "Status writes that wait for the write budget", queue.clone());
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
        metrics
    }

    /// The sweeper's metrics.
    pub fn sweeper() -> Self {
        let mut metrics = Self::empty();
        let Self { registry, writes, sweeps, .. } = &mut metrics;
        let registry = registry.sub_registry_with_prefix("statusbridge_sweeper");
        registry.register("hub_writes", "Status writes to the hub", writes.clone());
        registry.register("sweeps", "Rounds in which open gates were looked for", sweeps.clone());
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
            sweeps: Family::default(),
            discovered: Family::default(),
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

    /// How many packages discovery has made a FleetPackage for, and for how many it did not.
    pub fn discovered(&self, discovered: usize, left_out: usize) {
        for (state, count) in [("discovered", discovered), ("left_out", left_out)] {
            self.discovered.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A status write ended.
    pub fn wrote(&self, kind: Kind, result: WriteResult) {
        let result = match result {
            WriteResult::Done => "done",
            WriteResult::Conflict => "conflict",
            WriteResult::Gone => "gone",
            WriteResult::Error => "error",
        };
        self.writes.get_or_create(&ByWrite { kind: kind.name(), result }).inc();
    }

    /// A heartbeat was or was not renewed.
    pub fn beat(&self, ok: bool) {
        self.heartbeats.get_or_create(&ByOutcome { result: ok.into() }).inc();
    }

    /// How many gates are open and closed.
    pub fn gates(&self, open: usize, closed: usize) {
        for (state, count) in [("open", open), ("closed", closed)] {
            self.gates.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
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

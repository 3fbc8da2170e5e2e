//! What is counted. No label holds the name of a resource, an external name or an error's text.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use statusbridge_serving::metrics::ServerMetrics;

use super::{labels::OfKind, service, wire::Operation};
use crate::{
    exposition::Format,
    own_metrics::{Process, build, page},
};

/// What a provider tried to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Verb(Operation);

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
        let word = match self.0 {
            Operation::Unspecified => "unspecified",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        word.encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEntry {
    #[prometheus(flatten)]
    of: OfKind,
    operation: Verb,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    cause: &'static str,
}

/// A change, as far as it is counted.
#[derive(Debug, Clone)]
pub struct Change {
    /// What it was a change of.
    pub of: OfKind,
    /// What was done.
    pub operation: Operation,
    /// Whether it could be done.
    pub successful: bool,
    /// Whether it is an update of a resource that was updated not long before.
    pub repeat: bool,
    /// When, in unix seconds.
    pub at: i64,
    /// Bytes of its snapshot; `None` when it has none.
    pub snapshot: Option<usize>,
}

/// Counters about changes, and about what became of their lines.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    entries: Family<OfEntry, Counter>,
    repeats: Family<OfKind, Counter>,
    last_change: Family<OfKind, Gauge>,
    snapshots: Histogram,
    written: Counter,
    written_bytes: Counter,
    dropped: Family<OfCause, Counter>,
    refused: Family<OfCause, Counter>,
    buffered: Gauge,
    buffer_limit: Gauge,
    connections: Gauge,
    /// Those of the server.
    pub server: ServerMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let kib = |n: u32| f64::from(n * 1024);
        let sizes =
            [kib(1), kib(2), kib(4), kib(8), kib(16), kib(32), kib(64), kib(128), kib(256), kib(1024)];
        let metrics = Self {
            registry: Registry::default(),
            entries: Family::default(),
            repeats: Family::default(),
            last_change: Family::default(),
            snapshots: Histogram::new(sizes),
            written: Counter::default(),
            written_bytes: Counter::default(),
            dropped: Family::default(),
            refused: Family::default(),
            buffered: Gauge::default(),
            buffer_limit: Gauge::default(),
            connections: Gauge::default(),
            server: ServerMetrics::default(),
        };
        metrics.registered()
    }
}

impl Metrics {
    /// Metrics of which each has a series, with `value` for each label that may have any: for the reference.
    pub fn with_every_series(value: &str) -> Self {
        let metrics = Self::default();
        let of = OfKind { provider: value.to_owned(), group: value.to_owned(), kind: value.to_owned() };
        for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Unspecified] {
            for successful in [true, false] {
                let of = of.clone();
                metrics.changed(&Change { of, operation, successful, repeat: false, at: 0, snapshot: None });
            }
        }
        for cause in service::CAUSES {
            drop(metrics.refused.get_or_create(&OfCause { cause }));
        }
        metrics.server.begin();
        metrics
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("statusbridge_changelog_build_info", "Version of the change-log sidecar", build());
        registry.register(
            "statusbridge_changelog_entries",
            "Changes that a provider made (result success) or tried to make (failure), by kind and operation; written or not",
            self.entries.clone(),
        );
        registry.register(
            "statusbridge_changelog_repeated_updates",
            "Successful updates of a resource that had been updated within the 30 minutes before, by kind: drift that is corrected again and again",
            self.repeats.clone(),
        );
        registry.register(
            "statusbridge_changelog_last_change_timestamp_seconds",
            "When a resource of this kind was last changed with success, in unix seconds of the provider's clock",
            self.last_change.clone(),
        );
        registry.register(
            "statusbridge_changelog_snapshot_bytes",
            "Size of the snapshot in an entry, as JSON",
            self.snapshots.clone(),
        );
        registry.register(
            "statusbridge_changelog_written",
            "Entries written to standard output",
            self.written.clone(),
        );
        registry.register(
            "statusbridge_changelog_written_bytes",
            "Bytes written to standard output",
            self.written_bytes.clone(),
        );
        for cause in ["buffer_full", "output_failed"] {
            drop(self.dropped.get_or_create(&OfCause { cause }));
        }
        registry.register(
            "statusbridge_changelog_dropped",
            "Entries that were counted but are not on standard output, because it is too slow (buffer_full) or fails (output_failed)",
            self.dropped.clone(),
        );
        registry.register(
            "statusbridge_changelog_refused",
            "Requests that were answered with an error and are not counted as changes, by cause",
            self.refused.clone(),
        );
        registry.register(
            "statusbridge_changelog_buffered_bytes",
            "Bytes that wait to be written",
            self.buffered.clone(),
        );
        registry.register(
            "statusbridge_changelog_buffer_limit_bytes",
            "How many bytes may wait to be written",
            self.buffer_limit.clone(),
        );
        registry.register(
            "statusbridge_changelog_connections",
            "Connections of providers that are open",
            self.connections.clone(),
        );
        self.server.register(registry, "statusbridge_changelog_");
        registry.register_collector(Box::new(Process));
        self
    }

    /// A change came in.
    pub fn changed(&self, change: &Change) {
        let result = if change.successful { "success" } else { "failure" };
        let labels = OfEntry { of: change.of.clone(), operation: Verb(change.operation), result };
        self.entries.get_or_create(&labels).inc();
        // So that a kind's first repeat is seen as an increase.
        let repeats = self.repeats.get_or_create(&change.of);
        if change.repeat {
            repeats.inc();
        }
        drop(repeats);
        if change.successful {
            let last = self.last_change.get_or_create(&change.of);
            if last.get() < change.at {
                last.set(change.at);
            }
        }
        if let Some(bytes) = change.snapshot {
            #[allow(clippy::cast_precision_loss, reason = "sizes fit 52 bits")]
            self.snapshots.observe(bytes as f64);
        }
    }

    /// So many lines of together so many bytes were written.
    pub fn written(&self, lines: u64, bytes: usize) {
        self.written.inc_by(lines);
        self.written_bytes.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// So many lines will not be written.
    pub fn dropped(&self, cause: &'static str, lines: u64) {
        self.dropped.get_or_create(&OfCause { cause }).inc_by(lines);
    }

    /// A request was refused.
    pub fn refused(&self, cause: &'static str) {
        self.refused.get_or_create(&OfCause { cause }).inc();
    }

    /// So many bytes wait.
    pub fn buffered(&self, bytes: usize) {
        self.buffered.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// So many bytes may wait.
    pub fn buffer_limit(&self, bytes: usize) {
        self.buffer_limit.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// So many connections are open.
    pub fn connections(&self, open: usize) {
        self.connections.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// All of it in a format, without OpenMetrics' end mark.
    ///
    /// # Errors
    /// Never, as it is written to memory.
    pub fn render(&self, format: Format) -> Result<String, std::fmt::Error> {
        page(&self.registry, format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> Change {
        Change {
            of: OfKind { provider: "p".into(), group: "g".into(), kind: "K".into() },
            operation: Operation::Update,
            successful: true,
            repeat: false,
            at: 1_700_000_000,
            snapshot: Some(3000),
        }
    }

    #[test]
    fn what_a_scrape_shows_of_changes() {
        let metrics = Metrics::default();
        metrics.changed(&change());
        metrics.changed(&Change { repeat: true, at: 1_600_000_000, ..change() });
        metrics.changed(&Change { successful: false, at: 1_800_000_000, snapshot: None, ..change() });
        metrics.changed(&Change { operation: Operation::Unspecified, ..change() });
        let text = metrics.render(Format::Text).unwrap();
        for line in [
            "# TYPE statusbridge_changelog_entries_total counter",
            r#"statusbridge_changelog_entries_total{provider="p",group="g",kind="K",operation="update",result="success"} 2"#,
            r#"statusbridge_changelog_entries_total{provider="p",group="g",kind="K",operation="update",result="failure"} 1"#,
            r#"statusbridge_changelog_entries_total{provider="p",group="g",kind="K",operation="unspecified",result="success"} 1"#,
            r#"statusbridge_changelog_repeated_updates_total{provider="p",group="g",kind="K"} 1"#,
            // Neither a change that failed nor an older one that came late.
            r#"statusbridge_changelog_last_change_timestamp_seconds{provider="p",group="g",kind="K"} 1700000000"#,
            "# TYPE statusbridge_changelog_snapshot_bytes histogram",
            r#"statusbridge_changelog_snapshot_bytes_bucket{le="2048.0"} 0"#,
            r#"statusbridge_changelog_snapshot_bytes_bucket{le="4096.0"} 3"#,
            "statusbridge_changelog_snapshot_bytes_sum 9000.0",
            r#"statusbridge_changelog_dropped_total{cause="buffer_full"} 0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn none_of_them_is_taken_for_the_contract() {
        let metrics = Metrics::default();
        metrics.changed(&change());
        let text = metrics.render(Format::Text).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(statusbridge_contract::Metric::from_name(name), None, "{name}");
        }
    }
}

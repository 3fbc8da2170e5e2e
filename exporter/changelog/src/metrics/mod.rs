//! The sidecar's metrics. No label holds the name of a resource, an external name or an error's text.

mod labels;
mod repeats;

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Instant,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use statusbridge_serving::{
    format::Format,
    metrics::{Process, ServerMetrics, build_info, encode},
};

use crate::entry::{Entry, Operation};
use labels::{KindLabels, KnownKinds};
use repeats::Repeats;

/// Upper bounds of the histogram of snapshots, in KiB.
const SNAPSHOT_KIB: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024];

impl EncodeLabelValue for Operation {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let word = match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        };
        word.encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EntryLabels {
    #[prometheus(flatten)]
    of: KindLabels,
    operation: Operation,
    result: &'static str,
}

/// All causes for which a request is refused.
pub(crate) const REFUSALS: [&str; 5] = ["malformed", "too_large", "unimplemented", "cancelled", "internal"];

const RESULTS: [&str; 2] = ["success", "failure"];

type ByCause = Family<[(&'static str, &'static str); 1], Counter>;

/// Counters about changes, and about their lines.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    entries: Family<EntryLabels, Counter>,
    repeated_updates: Family<KindLabels, Counter>,
    last_change: Family<KindLabels, Gauge>,
    snapshots: Histogram,
    written: Counter,
    written_bytes: Counter,
    dropped: ByCause,
    refused: ByCause,
    buffered: Gauge,
    buffer_limit: Gauge,
    connections: Gauge,
    pub(crate) server: ServerMetrics,
    known: Mutex<KnownKinds>,
    repeats: Mutex<Repeats>,
    start: Instant,
    hasher: RandomState,
}

/// Registers metrics as they are made.
#[derive(Default)]
struct Registration(Registry);

impl Registration {
    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Metrics {
    /// Metrics in which at most `max_kinds` kinds have series of their own.
    pub(crate) fn new(max_kinds: usize) -> Self {
        let mut all = Registration::default();
        all.register("statusbridge_changelog_build_info", "Version of the change-log sidecar", build_info());
        let metrics = Self {
            entries: all.register(
                "statusbridge_changelog_entries",
                "Changes that a provider made (result success) or tried to make (failure), by kind and operation; written or not",
                Family::default(),
            ),
            repeated_updates: all.register(
                "statusbridge_changelog_repeated_updates",
                "Successful updates of a resource that had been updated within the 30 minutes before, by kind: drift that is corrected again and again",
                Family::default(),
            ),
            last_change: all.register(
                "statusbridge_changelog_last_change_timestamp_seconds",
                "When a resource of this kind was last changed with success, in unix seconds of the provider's clock",
                Family::default(),
            ),
            snapshots: all.register(
                "statusbridge_changelog_snapshot_bytes",
                "Size of the snapshot in an entry, as JSON",
                Histogram::new(SNAPSHOT_KIB.map(|kib| f64::from(kib * 1024))),
            ),
            written: all.register(
                "statusbridge_changelog_written",
                "Entries written to standard output",
                Counter::default(),
            ),
            written_bytes: all.register(
                "statusbridge_changelog_written_bytes",
                "Bytes written to standard output",
                Counter::default(),
            ),
            dropped: all.register(
                "statusbridge_changelog_dropped",
                "Entries that were counted but are not on standard output, because it is too slow (buffer_full) or fails (output_failed)",
                Family::default(),
            ),
            refused: all.register(
                "statusbridge_changelog_refused",
                "Requests that were answered with an error and are not counted as changes, by cause",
                Family::default(),
            ),
            buffered: all.register(
                "statusbridge_changelog_buffered_bytes",
                "Bytes that wait to be written",
                Gauge::default(),
            ),
            buffer_limit: all.register(
                "statusbridge_changelog_buffer_limit_bytes",
                "How many bytes may wait to be written",
                Gauge::default(),
            ),
            connections: all.register(
                "statusbridge_changelog_connections",
                "Connections of providers that are open",
                Gauge::default(),
            ),
            server: ServerMetrics::default(),
            registry: all.0,
            known: Mutex::new(KnownKinds::new(max_kinds)),
            repeats: Mutex::default(),
            start: Instant::now(),
            hasher: RandomState::new(),
        };
        metrics.dropped("buffer_full", 0);
        metrics.dropped("output_failed", 0);
        metrics.with_server()
    }

    fn with_server(mut self) -> Self {
        self.server.register(&mut self.registry, "statusbridge_changelog_");
        self.registry.register_collector(Box::new(Process));
        self
    }

    /// Counts the change that an entry reports, with the size of its snapshot in bytes of JSON.
    pub(crate) fn changed(&self, entry: &Entry, snapshot: Option<usize>) {
        let operation = Operation::try_from(entry.operation).unwrap_or(Operation::Unspecified);
        let successful = entry.error_message.is_none();
        let repeated = successful && operation == Operation::Update && self.is_repeat(entry);
        let of = self.known.lock().unwrap_or_else(PoisonError::into_inner).labels(entry);
        // Also by 0, so that a kind's first repeat shows as an increase.
        self.repeated_updates.get_or_create(&of).inc_by(repeated.into());
        if successful {
            // A provider's clock that is ahead must not hide later changes.
            let now = jiff::Timestamp::now().as_second();
            let at = entry.timestamp.map_or(now, |at| at.seconds.min(now));
            self.last_change.get_or_create(&of).inner().fetch_max(at, Ordering::Relaxed);
        }
        let [success, failure] = RESULTS;
        let result = if successful { success } else { failure };
        self.entries.get_or_create(&EntryLabels { of, operation, result }).inc();
        if let Some(bytes) = snapshot {
            #[allow(clippy::cast_precision_loss, reason = "sizes fit 52 bits")]
            self.snapshots.observe(bytes as f64);
        }
    }

    fn is_repeat(&self, entry: &Entry) -> bool {
        let resource = self.hasher.hash_one((entry.group(), &entry.kind, entry.namespace(), &entry.name));
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        repeats.updated(resource, self.start.elapsed())
    }

    pub(crate) fn written(&self, lines: u64, bytes: usize) {
        self.written.inc_by(lines);
        self.written_bytes.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn dropped(&self, cause: &'static str, lines: u64) {
        self.dropped.get_or_create(&[("cause", cause)]).inc_by(lines);
    }

    pub(crate) fn refused(&self, cause: &'static str) {
        self.refused.get_or_create(&[("cause", cause)]).inc();
    }

    pub(crate) fn buffered(&self, bytes: usize) {
        self.buffered.set(gauge_value(bytes));
    }

    pub(crate) fn buffer_limit(&self, bytes: usize) {
        self.buffer_limit.set(gauge_value(bytes));
    }

    pub(crate) fn connections(&self, open: usize) {
        self.connections.set(gauge_value(open));
    }

    /// All metrics in a format.
    pub(crate) fn render(&self, format: Format) -> Result<String, fmt::Error> {
        Ok(encode(&self.registry, format)? + format.end_mark())
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The sidecar's metrics as OpenMetrics, for a reference: each with all of its series, with `value` for labels that may
/// have any value.
///
/// # Errors
/// Never, as the text is written to memory.
pub fn with_every_series(value: &str) -> Result<String, fmt::Error> {
    let metrics = Metrics::new(0);
    let of = KindLabels { provider: value.to_owned(), group: value.to_owned(), kind: value.to_owned() };
    for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Unspecified] {
        for result in RESULTS {
            let of = of.clone();
            drop(metrics.entries.get_or_create(&EntryLabels { of, operation, result }));
        }
    }
    drop(metrics.repeated_updates.get_or_create(&of));
    drop(metrics.last_change.get_or_create(&of));
    for cause in REFUSALS {
        metrics.refused(cause);
    }
    metrics.server.begin();
    metrics.render(Format::OpenMetrics)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry::{testing::encoded, wire::Timestamp};

    fn update(namespace: &str, name: &str) -> Entry {
        Entry {
            provider: "p:v1".into(),
            api_version: "g/v1".into(),
            kind: "K".into(),
            name: name.into(),
            operation: Operation::Update as i32,
            snapshot: vec![encoded(&json!({"metadata": {"namespace": namespace}}))],
            ..Entry::default()
        }
    }

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    fn assert_shows(metrics: &Metrics, line: &str) {
        let text = metrics.render(Format::Text).unwrap();
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }

    #[test]
    fn a_scrape_shows_changes_by_kind_operation_and_result() {
        let metrics = Metrics::new(10);
        let change = Entry { timestamp: at(1_700_000_000), ..update("a", "x") };
        let failed =
            Entry { timestamp: at(1_800_000_000), error_message: Some("no".into()), ..change.clone() };
        metrics.changed(&change, Some(3000));
        metrics.changed(&Entry { timestamp: at(1_600_000_000), ..change.clone() }, Some(3000));
        metrics.changed(&failed, None);
        metrics.changed(&Entry { operation: 77, ..change }, Some(3000));
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
            assert_shows(&metrics, line);
        }
        assert!(metrics.render(Format::OpenMetrics).unwrap().ends_with("\n# EOF\n"));
        assert!(!metrics.render(Format::Text).unwrap().contains("# EOF"));
    }

    #[test]
    fn only_updates_of_the_same_resource_that_succeed_are_repeats() {
        let metrics = Metrics::new(10);
        let failed = Entry { error_message: Some("no".into()), ..update("a", "x") };
        let created = Entry { operation: Operation::Create as i32, ..update("a", "x") };
        for entry in [failed.clone(), created, update("a", "x"), update("b", "x"), update("a", "y"), failed] {
            metrics.changed(&entry, None);
        }
        let repeats = r#"statusbridge_changelog_repeated_updates_total{provider="p",group="g",kind="K"}"#;
        assert_shows(&metrics, &format!("{repeats} 0"));
        // The version of the API differs, the resource does not.
        metrics.changed(&Entry { api_version: "g/v2".into(), ..update("a", "x") }, None);
        assert_shows(&metrics, &format!("{repeats} 1"));
    }

    #[test]
    fn a_provider_clock_that_is_ahead_is_not_believed() {
        let metrics = Metrics::new(10);
        let before = jiff::Timestamp::now().as_second();
        metrics.changed(&Entry { timestamp: at(before + 86_400), ..update("a", "x") }, None);
        let text = metrics.render(Format::Text).unwrap();
        let name =
            r#"statusbridge_changelog_last_change_timestamp_seconds{provider="p",group="g",kind="K"} "#;
        let at: i64 = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap();
        assert!((before..before + 3600).contains(&at), "{at}");
    }

    #[test]
    fn none_of_them_is_taken_for_the_contract() {
        let text = with_every_series("x").unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(statusbridge_contract::Metric::from_name(name), None, "{name}");
        }
    }
}

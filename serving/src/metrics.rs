//! Metrics that several programs have, and how a registry becomes text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::answer::format::Format;
use crate::answer::refusal::Refusal;

/// All metrics of a registry in a format, without its end mark.
///
/// # Errors
/// Never, as the text is written to memory.
pub fn encode(registry: &Registry, format: Format) -> Result<String, fmt::Error> {
    let mut openmetrics = String::new();
    text::encode_registry(&mut openmetrics, registry)?;
    Ok(match format {
        Format::OpenMetrics => openmetrics,
        Format::Text => as_text_format(&openmetrics),
    })
}

/// OpenMetrics names a counter's family without `_total`; the text format names it as its samples are named, and has no
/// units.
fn as_text_format(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len() + 256);
    for line in openmetrics.lines().filter(|l| !l.starts_with("# UNIT ")) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", what, name, rest] if openmetrics.contains(&format!("# TYPE {name} counter\n")) => {
                out.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// 1 under a label with the version: a gauge, because the text format and its tools have no type `info`.
pub fn build_info() -> Family<[(&'static str, &'static str); 1], Gauge> {
    let build: Family<_, Gauge> = Family::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    build
}

/// What Linux says of this process, under the names that client libraries agreed on.
#[derive(Debug)]
pub struct Process;

/// Clock ticks in a second: `USER_HZ`, 100 on every Linux that Rust runs on.
const TICKS: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Ok(()) };
        // The command's name may hold spaces and ends with the last parenthesis.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "ticks of a process fit 52 bits")]
        let cpu = ConstCounter::new((field(14) + field(15)) as f64 / TICKS);
        let descriptor = encoder.encode_descriptor(
            "process_cpu_seconds",
            "User and system CPU time spent",
            None,
            cpu.metric_type(),
        )?;
        cpu.encode(descriptor)?;
        let resident = ConstGauge::new(i64::try_from(field(24) * PAGE_BYTES).unwrap_or(i64::MAX));
        let descriptor = encoder.encode_descriptor(
            "process_resident_memory_bytes",
            "Resident memory",
            None,
            resident.metric_type(),
        )?;
        resident.encode(descriptor)?;
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, |d| i64::try_from(d.count()).unwrap_or(0));
        let files = ConstGauge::new(files);
        let descriptor = encoder.encode_descriptor(
            "process_open_fds",
            "Open file descriptors",
            None,
            files.metric_type(),
        )?;
        files.encode(descriptor)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    cause: &'static str,
}

/// Metrics about a server's certificate and about those whom it does not answer.
#[derive(Debug, Clone)]
pub struct ServerMetrics {
    certificate_good: Gauge,
    refused: Family<OfRefusal, Counter>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let (certificate_good, refused) = (Gauge::default(), Family::default());
        certificate_good.set(1);
        Self { certificate_good, refused }
    }
}

impl ServerMetrics {
    /// Registers them under names that begin with `prefix`.
    pub fn register(&self, registry: &mut Registry, prefix: &str) {
        registry.register(
            format!("{prefix}certificate_last_reload_successful"),
            "Whether the files of the TLS certificate could be used when they last changed; 0 = an earlier one is served",
            self.certificate_good.clone(),
        );
        registry.register(
            format!("{prefix}scrapes_refused"),
            "Requests for metrics or gates that were not let in, by cause",
            self.refused.clone(),
        );
    }

    /// Every refusal reads 0 from now on, until it happens.
    pub fn begin(&self) {
        for cause in Refusal::CAUSES {
            drop(self.refused.get_or_create(&OfRefusal { cause }));
        }
    }

    /// The files of the TLS certificate have changed and could be used, or not.
    pub(crate) fn certificate_reloaded(&self, successful: bool) {
        self.certificate_good.set(successful.into());
    }

    /// Somebody was not let in.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refused.get_or_create(&OfRefusal { cause: refusal.cause() }).inc();
    }
}

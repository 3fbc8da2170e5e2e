//! Tells of metrics that a digest may cover and nobody here can read.

use crate::sample::excerpt;

/// Longest fault of a stream, in bytes.
const FAULT: usize = 480;

/// A diagnosis, after what its exporter has that its contract version does not know.
pub fn with_unknown(diagnosis: String, contract: &str, metrics: &[String]) -> String {
    let Some((first, others)) = metrics.split_first() else { return diagnosis };
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    let news = format!("the exporter has {first}{more}, which contract version {contract} does not know");
    excerpt(&format!("{news}; {diagnosis}"), FAULT)
}

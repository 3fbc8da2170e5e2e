//! What an exporter of the generated fleet says, as text.

use crate::generated::{Generated, Millis, seconds};
use statusbridge_contract::{CONTRACT_VERSION, Metric, label, sample};
use std::fmt::Write as _;

/// The exposition of an exporter when it is scraped at `at`. `end` follows each value: nothing, or a timestamp.
pub(crate) fn render(fleet: &Generated, exporter: usize, at: Millis, end: &str) -> String {
    let mut page = String::with_capacity(128 * fleet.samples() / fleet.exporters().max(1));
    let mut say = |metric: Metric, own: &[(&str, &str)], value: u64| {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "{}{end}", sample::canonical(metric.name(), own, value));
    };
    fleet.each(exporter, None, at, &mut say);
    say(Metric::RenderedTimestamp, &[], seconds(at));
    let uid = fleet.origin(exporter).map(|origin| origin.uid).unwrap_or_default();
    let (contract, uid) = ((label::CONTRACT, CONTRACT_VERSION), (label::CLUSTER_UID, uid));
    say(Metric::Digest, &[contract, uid], fleet.digest(exporter, at));
    for cluster in fleet.clusters_of(exporter) {
        if let Some(name) = fleet.told_of(cluster) {
            let labels = [contract, (label::PACKAGE_CLUSTER, name), uid];
            say(Metric::Digest, &labels, fleet.part(cluster, at).value());
        }
    }
    page
}

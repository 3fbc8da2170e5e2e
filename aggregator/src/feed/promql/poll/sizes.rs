//! How much there is to read of each cluster.

use std::collections::HashMap;

use statusbridge_contract::{Metric, PACKAGE_METRICS};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;

use super::PollConfig;
use crate::feed::promql::{FeedError, QueryApi};

/// How many samples each cluster with something unread will be: what it was when last verified, if that
/// is `known`, or what its exporters say.
pub(super) async fn read(
    feed: &impl QueryApi,
    config: &PollConfig,
    known: HashMap<String, Option<u64>>,
    t: Seconds,
) -> Result<HashMap<String, u64>, FeedError> {
    let unknown = known.values().any(Option::is_none);
    let known = known.into_iter().filter_map(|(cluster, samples)| Some((cluster, samples?)));
    let mut sizes: HashMap<String, u64> = known.collect();
    if unknown {
        let (exporters, label) = (&config.exporters, &config.exporters.cluster_label);
        let query = format!("sum by ({label}) ({})", exporters.select(&[Metric::SourcePackages], []));
        let sink = Packages { label: label.clone(), counts: HashMap::new() };
        for (cluster, packages) in feed.query(&query, t, sink).await?.counts {
            // Most packages rest.
            sizes.entry(cluster).or_insert(packages.saturating_mul(PACKAGE_METRICS.len() as u64 / 2));
        }
    }
    Ok(sizes)
}

struct Packages {
    label: String,
    counts: HashMap<String, u64>,
}

impl Sink for Packages {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        if let (Some(cluster), Some(sample)) = (labels.get(&self.label), samples.last()) {
            self.counts.insert(cluster.to_owned(), sample.whole().unwrap_or_default());
        }
    }
}

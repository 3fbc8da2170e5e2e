//! What is known of each stream, for a person to look at.

use statusbridge_contract::stream::StreamLabels;

use super::{Fleet, StreamId};
use crate::time::Seconds;
use crate::verify::Content;

/// One stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamView<'a> {
    /// Name of its cluster.
    pub cluster: &'a str,
    /// What tells it from others.
    pub id: &'a StreamId,
    /// Its labels.
    pub labels: &'a StreamLabels,
    /// Timestamp of its newest digest sample.
    pub newest: Option<Seconds>,
    /// The scraper's clock minus the cluster's, as last measured.
    pub clock_offset: Option<Seconds>,
    /// Why what its newest digest attests is not verified.
    pub fault: Option<&'a str>,
    /// What was verified last.
    pub content: Option<&'a Content>,
}

impl Fleet {
    /// Every stream of every cluster, in order.
    pub fn streams(&self) -> impl Iterator<Item = StreamView<'_>> {
        self.clusters.iter().flat_map(|(cluster, streams)| {
            streams.streams.iter().map(|(id, stream)| StreamView {
                cluster,
                id,
                labels: &id.labels,
                newest: stream.newest,
                clock_offset: stream.clock.map(|ahead| -ahead),
                fault: stream.fault.as_deref(),
                content: stream.verified.as_ref().map(|verified| &verified.content),
            })
        })
    }
}

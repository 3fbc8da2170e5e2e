//! What exporters attested at a moment of the past.

use statusbridge_core::fleet::Digests;
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::{Content, verify};

use super::read::Read;
use super::{Due, PollConfig, digests};
use crate::feed::promql::{FeedError, QueryApi};

/// Each exposition of a cluster that was scraped at this very time; None for one that does not add up.
///
/// # Errors
/// When the backend gives no whole answer.
pub async fn read_at(
    feed: &impl QueryApi,
    config: &PollConfig,
    cluster: &str,
    at: Seconds,
) -> Result<Vec<Option<Content>>, FeedError> {
    let found = digests::at(feed, config, cluster, at).await?;
    let due: Vec<Due> = found
        .into_iter()
        .filter_map(|digests| {
            let sample = *digests.samples.last()?;
            let Digests { cluster, stream, contract, parts, .. } = digests;
            Some(Due { cluster: cluster.to_string(), stream, contract, sample, parts })
        })
        .collect();
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let read = Read::new(config, &due, due.iter().map(|due| &due.stream));
    let selector = config.exporters.attested([cluster]) + digests::MOMENT;
    let (gathered, _) = feed.query(&selector, at, read).await?.finish();
    Ok(due.iter().zip(gathered).map(|(due, gathered)| verify(gathered, due.attested()).ok()).collect())
}

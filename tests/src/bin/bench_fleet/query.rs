//! The queries that an aggregator sends, and no others: one that has changed is to be noticed.

use crate::generated::{Generated, Millis};
use anyhow::{Context, Result, bail, ensure};
use statusbridge_contract::Metric;
use std::collections::BTreeSet;

/// What is asked.
#[derive(Debug, PartialEq)]
pub(crate) enum Query {
    /// The values of these samples, of every stream.
    Values(Metric),
    /// The timestamps of these samples, of every stream.
    Stamps(Metric),
    /// How many packages each cluster has.
    Sizes,
    /// All that the digests of these clusters cover; with a window, the raw samples of so many milliseconds.
    Contents { clusters: Vec<usize>, window: Option<Millis> },
}

const UID: &str = "statusbridge_cluster_uid";
const RENDERED: &str = "statusbridge_rendered_timestamp_seconds[120s]";

impl Query {
    /// Reads a query about this fleet.
    pub(crate) fn read(text: &str, fleet: &Generated) -> Result<Self> {
        for metric in [Metric::Digest, Metric::RenderedTimestamp] {
            if text == format!("{} + 0", metric.name()) {
                return Ok(Self::Values(metric));
            }
            if text == format!("timestamp({})", metric.name()) {
                return Ok(Self::Stamps(metric));
            }
        }
        let lately = format!(
            "timestamp({UID}) * (1 - 2 * (max_over_time({UID}[120s]) != bool min_over_time({UID}[120s]))) \
             * (1 + (changes({RENDERED}) < bool 0.8 * count_over_time({RENDERED}) - 1)) \
             or timestamp({UID}) < time() - 120"
        );
        if text == lately {
            // Nobody takes turns, and nothing repeats.
            return Ok(Self::Stamps(Metric::ClusterUid));
        }
        if text == "sum by (cluster) (statusbridge_source_packages)" {
            return Ok(Self::Sizes);
        }
        read_contents(text, fleet).with_context(|| format!("no query that is known here: {text:.300}"))
    }
}

/// The query for all that the digests of these clusters cover.
pub(crate) fn contents(names: &[String]) -> String {
    let metrics: Vec<&str> = covered().collect();
    format!(r#"{{__name__=~"statusbridge_({})",cluster=~"{}"}}"#, metrics.join("|"), names.join("|"))
}

/// What the digest covers, without the common beginning.
fn covered() -> impl Iterator<Item = &'static str> {
    Metric::ALL.iter().filter(|m| m.in_digest()).filter_map(|m| m.name().strip_prefix("statusbridge_"))
}

fn read_contents(text: &str, fleet: &Generated) -> Result<Query> {
    let rest = text.strip_prefix(r#"{__name__=~"statusbridge_("#).context("no selector of names")?;
    let (names, rest) = rest.split_once(r#")",cluster=~""#).context("no selector of clusters")?;
    ensure!(
        names.split('|').collect::<BTreeSet<_>>() == covered().collect(),
        "other metrics than the digest covers"
    );
    let (clusters, rest) = rest.split_once("\"}").context("no end")?;
    let find = |name: &str| fleet.find(name).with_context(|| format!("no cluster `{name}`"));
    let clusters = clusters.split('|').map(find).collect::<Result<_>>()?;
    let window = match rest {
        "" => None,
        range => match range.strip_prefix('[').and_then(|r| r.strip_suffix("ms]")) {
            Some(window) => Some(window.parse().context("no window")?),
            None => bail!("`{range}` is no window"),
        },
    };
    ensure!(window.is_none_or(|window| window < fleet.interval), "more than one scrape is asked for");
    Ok(Query::Contents { clusters, window })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused() {
        let fleet = Generated::new(3, 2, 15_000, 1_000);
        let metrics: Vec<&str> = covered().collect();
        let select = |names: &[&str], clusters: &str| {
            format!("{{__name__=~\"statusbridge_({})\",cluster=~\"{clusters}\"}}", names.join("|"))
        };
        let all = select(&metrics, "cluster-00002|cluster-00000");
        assert_eq!(
            Query::read(&all, &fleet).unwrap(),
            Query::Contents { clusters: vec![2, 0], window: None }
        );
        let raw = Query::read(&format!("{all}[1500ms]"), &fleet).unwrap();
        assert_eq!(raw, Query::Contents { clusters: vec![2, 0], window: Some(1500) });
        for bad in [select(&metrics[1..], "cluster-00001"), select(&metrics, "other"), "up".to_owned()] {
            assert!(Query::read(&bad, &fleet).is_err(), "{bad}");
        }
    }
}

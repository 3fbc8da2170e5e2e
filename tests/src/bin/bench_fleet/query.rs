//! The queries that an aggregator sends, and no others: one that has changed is to be noticed.

use crate::generated::{Generated, Millis};
use anyhow::{Context, Result, ensure};
use statusbridge_contract::Metric;
use std::collections::BTreeSet;

/// What is asked.
#[derive(Debug, PartialEq)]
pub(crate) enum Query {
    /// The raw samples of every stream's digest, of so many milliseconds.
    Digests { window: Millis },
    /// Those of what a digest is read with, of these exporters or of all.
    Beside { exporters: Option<Vec<usize>>, window: Millis },
    /// How many packages each exporter tells of.
    Sizes,
    /// The raw samples of so many milliseconds, of all that these exporters say, or only of these clusters and of none.
    Contents { exporters: Vec<usize>, only: Option<Vec<usize>>, window: Millis },
}

/// What is sent for the samples of every stream's digest, but for the range.
const OF_DIGESTS: &str = r#"{__name__=~"statusbridge_(digest)"}"#;
/// What is sent for what a digest is read with, but for the clusters and the range.
const OF_BESIDE: &str = r#"{__name__=~"statusbridge_(rendered_timestamp_seconds|process_number)""#;

/// How far beyond the time that it is about such a query looks, in seconds.
pub(crate) const AHEAD: f64 = 2.0 * 86_400.0 + 600.0;

/// Whether a query asks for the samples of every stream's digest, whichever streams the aggregator trusts.
pub(crate) fn is_of_digests(text: &str) -> bool {
    text.starts_with(OF_DIGESTS.trim_end_matches('}'))
}

/// What a digest is read with.
pub(crate) const BESIDE: [Metric; 2] = [Metric::RenderedTimestamp, Metric::ProcessNumber];

impl Query {
    /// Reads a query about this fleet.
    pub(crate) fn read(text: &str, fleet: &Generated) -> Result<Self> {
        let exporter = |name: &str| fleet.find_exporter(name).with_context(|| format!("no cluster `{name}`"));
        if let Some(range) = text.strip_prefix(OF_DIGESTS) {
            return Ok(Self::Digests { window: window(range)? });
        }
        if let Some(rest) = text.strip_prefix(OF_BESIDE) {
            let (named, range) = rest.split_once('}').context("no end")?;
            let named = named.strip_prefix(r#",cluster=~""#).and_then(|named| named.strip_suffix('"'));
            let exporters = named.map(|named| named.split('|').map(exporter).collect()).transpose()?;
            return Ok(Self::Beside { exporters, window: window(range)? });
        }
        if text == r#"sum by (cluster) ({__name__=~"statusbridge_(source_packages)"})"# {
            return Ok(Self::Sizes);
        }
        read_contents(text, fleet).with_context(|| format!("no query that is known here: {text:.300}"))
    }
}

fn window(range: &str) -> Result<Millis> {
    let inside = range.strip_prefix('[').and_then(|r| r.strip_suffix("ms]"));
    inside.with_context(|| format!("`{range}` is no window"))?.parse().context("no window")
}

/// The query for what the exporters of these clusters say, as it was scraped within so many milliseconds.
pub(crate) fn contents(names: &[String], window: Millis) -> String {
    let metrics: Vec<&str> = state().collect();
    let (metrics, names) = (metrics.join("|"), names.join("|"));
    format!(r#"{{__name__=~"statusbridge_({metrics})",cluster=~"{names}"}}[{window}ms]"#)
}

/// What an exporter says of its cluster, without the common beginning.
fn state() -> impl Iterator<Item = &'static str> {
    Metric::ALL.iter().filter(|m| m.in_state()).filter_map(|m| m.name().strip_prefix("statusbridge_"))
}

fn read_contents(text: &str, fleet: &Generated) -> Result<Query> {
    let rest = text.strip_prefix(r#"{__name__=~"statusbridge_("#).context("no selector of names")?;
    let (names, rest) = rest.split_once(r#")",cluster=~""#).context("no selector of clusters")?;
    ensure!(
        names.split('|').collect::<BTreeSet<_>>() == state().collect(),
        "other metrics than those of the state"
    );
    let (selector, rest) = rest.split_once("\"}").context("no end")?;
    let (clusters, others) = match selector.split_once(r#"",package_cluster=~""#) {
        Some((clusters, others)) => {
            (clusters, Some(others.strip_suffix('|').context("not what is of no cluster")?))
        }
        None => (selector, None),
    };
    let exporter = |name: &str| fleet.find_exporter(name).with_context(|| format!("no cluster `{name}`"));
    let exporters = clusters.split('|').map(exporter).collect::<Result<_>>()?;
    let find = |name: &str| fleet.find(name).with_context(|| format!("no cluster `{name}`"));
    let names = |others: &str| others.split('|').filter(|name| !name.is_empty()).map(find).collect();
    let only = others.map(names).transpose()?;
    let window = window(rest)?;
    ensure!(window < fleet.interval, "more than one scrape is asked for");
    Ok(Query::Contents { exporters, only, window })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused() {
        let fleet = Generated::new(3, 2, 15_000, 1_000, 0);
        let metrics: Vec<&str> = state().collect();
        let select = |names: &[&str], clusters: &str| {
            format!("{{__name__=~\"statusbridge_({})\",cluster=~\"{clusters}\"}}[1500ms]", names.join("|"))
        };
        let all = select(&metrics, "cluster-00002|cluster-00000");
        let expected = Query::Contents { exporters: vec![2, 0], only: None, window: 1500 };
        assert_eq!(Query::read(&all, &fleet).unwrap(), expected);
        let told = Generated::new(3, 2, 15_000, 1_000, 2);
        let some = select(&metrics, "management-01\",package_cluster=~\"01-cluster-00001|");
        let expected = Query::Contents { exporters: vec![1], only: Some(vec![1]), window: 1500 };
        assert_eq!(Query::read(&some, &told).unwrap(), expected);
        assert!(Query::read(&all, &told).is_err() && Query::read(&some, &fleet).is_err());
        let digests = format!("{OF_DIGESTS}[9ms]");
        assert_eq!(Query::read(&digests, &fleet).unwrap(), Query::Digests { window: 9 });
        for (named, exporters) in
            [("", None), (r#",cluster=~"cluster-00002|cluster-00000""#, Some(vec![2, 0]))]
        {
            let beside = format!("{OF_BESIDE}{named}}}[9ms]");
            assert_eq!(Query::read(&beside, &fleet).unwrap(), Query::Beside { exporters, window: 9 });
        }
        let instant = all.trim_end_matches("[1500ms]").to_owned();
        let bad =
            [select(&metrics[1..], "cluster-00001"), select(&metrics, "other"), instant, "up".to_owned()];
        for bad in bad {
            assert!(Query::read(&bad, &fleet).is_err(), "{bad}");
        }
    }
}

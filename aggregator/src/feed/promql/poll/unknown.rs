//! Metrics that an exporter publishes and its contract version does not know, asked for when a digest does
//! not add up: what is covered by a digest and cannot be read makes it wrong, and only the name tells why.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Metric, Version};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;

use super::{PollConfig, Unverified};
use crate::feed::promql::{QueryApi, any_of};

/// Clusters asked about in one poll, at most.
const CLUSTERS: usize = 16;
/// Names kept for one stream, at most.
const NAMES: usize = 8;
/// What an exporter says about itself.
const OF_THE_PROCESS: &str = "statusbridge_exporter_";

/// Fills in the metrics that the streams have and their contract version does not know. What is not answered
/// is left out: it would only say more.
pub(super) async fn ask(feed: &impl QueryApi, config: &PollConfig, torn: &mut [Unverified], at: Seconds) {
    let clusters: BTreeSet<&str> = torn.iter().map(|it| it.due.cluster.as_str()).take(CLUSTERS).collect();
    if clusters.is_empty() {
        return;
    }
    let labels: BTreeSet<&str> =
        torn.iter().flat_map(|it| it.due.stream.labels.keys().map(String::as_str)).collect();
    let query = query(config, &labels, &clusters);
    let versions = torn.iter().map(|it| (it.due.stream.labels.clone(), Version::readable(&it.due.contract)));
    let sink = Unknown { versions: versions.collect(), found: HashMap::new() };
    if let Ok(Unknown { mut found, .. }) = feed.query(&query, at, sink).await {
        for stream in torn {
            if let Some(names) = found.remove(&*stream.due.stream.labels) {
                stream.unknown = names.into_iter().collect();
            }
        }
    }
}

/// One element for each metric of each stream, however many packages there are.
fn query(config: &PollConfig, labels: &BTreeSet<&str>, clusters: &BTreeSet<&str>) -> String {
    let plain = |name: &&&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let by: Vec<&str> = labels.iter().filter(plain).copied().collect();
    let known = Metric::ALL.iter().filter(|metric| Version::READ.iter().all(|it| it.knows(**metric)));
    let known = any_of(known.map(|metric| metric.name()));
    format!(
        "group by (__name__,{}) ({{__name__=~\"statusbridge_.+\",__name__!~\"{known}|{OF_THE_PROCESS}.+\"{}}})",
        by.join(","),
        config.exporters.matchers(clusters.iter().copied()),
    )
}

struct Unknown {
    versions: BTreeMap<Arc<StreamLabels>, Option<Version>>,
    found: HashMap<StreamLabels, BTreeSet<String>>,
}

impl Sink for Unknown {
    fn series(&mut self, labels: &Labels, _: &[Sample]) {
        let Some(name) = labels.get("__name__") else { return };
        let stream: StreamLabels = labels
            .iter()
            .filter(|(name, value)| *name != "__name__" && !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let Some(version) = self.versions.get(&stream) else { return };
        let knows = |metric| version.is_some_and(|version| version.knows(metric));
        let names = self.found.entry(stream).or_default();
        if !Metric::from_name(name).is_some_and(knows) && names.len() < NAMES {
            names.insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::promql::FeedError;
    use crate::feed::promql::poll::Due;
    use crate::testing::poll_config;
    use statusbridge_core::fleet::{DigestSample, StreamId};
    use statusbridge_core::testing::stream;
    use statusbridge_core::verify::Gathered;

    /// Answers with these labels.
    struct Canned(Vec<Vec<(&'static str, &'static str)>>);

    impl QueryApi for Canned {
        async fn query<S: Sink>(&self, _: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
            for labels in &self.0 {
                sink.series(&labels.iter().copied().collect(), &[Sample { at, value: 1.0 }]);
            }
            Ok(sink)
        }

        fn received(&self) -> u64 {
            0
        }
    }

    fn torn(instance: &str) -> Unverified {
        let labels = [("cluster", "c"), ("instance", instance)];
        let stream = StreamId { labels: stream(&labels).into(), ..StreamId::default() };
        let sample = DigestSample::default();
        let due = Due { cluster: "c".into(), stream, contract: "2".into(), sample, parts: Arc::default() };
        Unverified { due, gathered: Box::<Gathered>::default(), strays: Vec::new(), unknown: Vec::new() }
    }

    #[test]
    fn one_question_is_about_names_only() {
        let query = query(&poll_config(), &["cluster", "job", "odd.name"].into(), &["c.1"].into());
        assert!(
            query.starts_with(r#"group by (__name__,cluster,job) ({__name__=~"statusbridge_.+",__name__!~"#),
            "{query}"
        );
        assert!(
            query.ends_with(r#"|statusbridge_packages|statusbridge_exporter_.+",cluster=~"c\\.1"})"#),
            "{query}"
        );
    }

    #[tokio::test]
    async fn each_stream_has_its_own() {
        let name = |name, instance| vec![("__name__", name), ("cluster", "c"), ("instance", instance)];
        let feed = Canned(vec![
            name("statusbridge_package_foo", "a"),
            name("statusbridge_package_bar", "a"),
            name("statusbridge_package_health", "a"),
            name("statusbridge_package_foo", "of-nobody"),
        ]);
        let mut all = [torn("a"), torn("b")];
        ask(&feed, &poll_config(), &mut all, 1.0).await;
        assert_eq!(all[0].unknown, ["statusbridge_package_bar", "statusbridge_package_foo"]);
        assert!(all[1].unknown.is_empty());
    }
}

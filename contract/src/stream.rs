//! Telling an exporter's own labels from those that a pipeline added.
//!
//! A stream is one exporter instance as one backend replica saw it: all labels that are not own
//! labels. Digests are verified per stream.

use std::collections::BTreeMap;

use crate::metric::Metric;

/// What Prometheus puts in front of a scraped label that collides with a target label
/// (prometheus/prometheus, `scrape/scrape.go`, without `honor_labels`), as often as needed.
const EXPORTED: &str = "exported_";

/// The labels that identify a stream.
pub type StreamLabels = BTreeMap<String, String>;

/// A sample's labels taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The exporter's own labels under their own names, sorted by name.
    pub own: Vec<(&'static str, String)>,
    /// All others, less the ignored ones.
    pub stream: StreamLabels,
}

/// Takes the labels of a sample of `metric` apart and undoes Prometheus' renaming: where a target
/// label had one of our names, ours is the one with the most `exported_` in front, and the target's
/// goes to the stream under its plain name. `__name__` and the labels named in `ignored` (such as
/// those that tell replicas apart) are dropped.
pub fn split<I>(metric: Metric, labels: I, ignored: &[String]) -> Split
where
    I: IntoIterator<Item = (String, String)>,
{
    let mut stream: StreamLabels = labels.into_iter().filter(|(name, _)| name != "__name__").collect();
    let mut own = Vec::with_capacity(metric.labels().len());
    for name in metric.labels() {
        let mut longest = None;
        let mut candidate = (*name).to_owned();
        while stream.contains_key(&candidate) {
            let next = format!("{EXPORTED}{candidate}");
            longest = Some(std::mem::replace(&mut candidate, next));
        }
        if let Some(value) = longest.and_then(|found| stream.remove(&found)) {
            own.push((*name, value));
        }
    }
    stream.retain(|name, _| !ignored.iter().any(|i| i == name));
    Split { own, stream }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn map(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[rstest]
    #[case::plain(
        &[("__name__", "x"), ("package", "p"), ("package_source", "s"), ("cluster", "c1"), ("instance", "i")],
        &[("package", "p"), ("package_source", "s")],
        &[("cluster", "c1"), ("instance", "i")])]
    #[case::external_labels_of_the_pipeline_do_not_collide(
        &[("package", "p"), ("package_source", "s"), ("source", "x"), ("stage", "prod"), ("namespace", "monitoring")],
        &[("package", "p"), ("package_source", "s")],
        &[("namespace", "monitoring"), ("source", "x"), ("stage", "prod")])]
    #[case::a_target_label_of_our_name_is_undone(
        &[("exported_package", "p"), ("package", "target"), ("package_source", "s")],
        &[("package", "p"), ("package_source", "s")],
        &[("package", "target")])]
    #[case::twice(
        &[("exported_exported_package", "p"), ("exported_package", "t2"), ("package", "t1"), ("package_source", "s")],
        &[("package", "p"), ("package_source", "s")],
        &[("exported_package", "t2"), ("package", "t1")])]
    fn own_labels_and_stream_are_told_apart(
        #[case] labels: &[(&str, &str)],
        #[case] own: &[(&str, &str)],
        #[case] stream: &[(&str, &str)],
    ) {
        let split = split(Metric::PackageHealth, map(labels), &[]);
        let got: Vec<(&str, &str)> = split.own.iter().map(|(n, v)| (*n, v.as_str())).collect();
        assert_eq!(got, own);
        assert_eq!(split.stream, map(stream).into_iter().collect());
    }

    #[test]
    fn a_target_label_of_our_name_stays_in_the_stream_of_metrics_that_do_not_own_it() {
        let digest =
            split(Metric::Digest, map(&[("contract", "2"), ("package", "target"), ("cluster", "c")]), &[]);
        assert_eq!(digest.stream, map(&[("package", "target"), ("cluster", "c")]).into_iter().collect());
        assert_eq!(digest.own, [("contract", "2".to_owned())]);
    }

    #[test]
    fn ignored_labels_are_dropped_from_the_stream_only() {
        let labels = map(&[("package", "p"), ("package_source", "s"), ("replica", "a"), ("cluster", "c")]);
        let split = split(Metric::PackageHealth, labels, &["replica".to_owned(), "package".to_owned()]);
        assert_eq!(split.stream, map(&[("cluster", "c")]).into_iter().collect());
        assert_eq!(split.own.len(), 2);
    }
}

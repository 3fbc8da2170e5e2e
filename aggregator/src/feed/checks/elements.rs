//! The values that a check's query gives, read from an answer.

use std::collections::BTreeMap;

use statusbridge_core::checks::Fault;
use statusbridge_core::checks::answer::{Answer, Value};
use statusbridge_core::sample::{Labels, Sample, Sink};

/// Most clusters that an answer may name: more than there are.
const MOST: usize = 20_000;
/// How long their names may be together.
const MOST_BYTES: usize = 64 * MOST;

/// Takes in the elements of an answer.
#[derive(Debug, Default)]
pub(super) struct Elements {
    cluster_label: String,
    /// How many have no cluster label, and the last of them.
    plain: (u64, f64),
    clusters: BTreeMap<String, Value>,
    bytes: usize,
    too_many: bool,
}

impl Elements {
    pub(super) fn new(cluster_label: &str) -> Self {
        Self { cluster_label: cluster_label.to_owned(), ..Self::default() }
    }

    /// What they come to, or why nothing can be made of them.
    pub(super) fn finish(self) -> Result<Answer, Fault> {
        let label = &self.cluster_label;
        let fault = match (self.plain, self.clusters.len()) {
            _ if self.too_many => format!("more than {MOST} clusters, or {MOST_BYTES} bytes of their names"),
            ((0, _), 0) => return Err(Fault::NoData),
            ((0, _), _) => return Ok(Answer::Clusters(self.clusters)),
            ((1, value), 0) => return Ok(Answer::One(value)),
            ((_, _), 0) => format!("several series without label `{label}`"),
            _ => format!("some series have label `{label}`, others do not"),
        };
        Err(Fault::Answer(fault))
    }
}

impl Sink for Elements {
    fn takes(&self, kind: &str) -> bool {
        matches!(kind, "vector" | "scalar")
    }

    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        // A histogram has no value.
        let value = if let [sample] = samples { sample.value } else { f64::NAN };
        let Some(cluster) = labels.get(&self.cluster_label) else {
            self.plain = (self.plain.0 + 1, value);
            return;
        };
        let room = self.clusters.len() < MOST && self.bytes + cluster.len() <= MOST_BYTES;
        match self.clusters.get_mut(cluster) {
            Some(known) => *known = Value::Several,
            None if room => {
                self.bytes += cluster.len();
                self.clusters.insert(cluster.to_owned(), Value::Number(value));
            }
            None => self.too_many = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::feed::promql::read_answer;

    fn read(kind: &str, result: &str) -> Result<Answer, String> {
        let body = format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#);
        let mut elements = Elements::new("cluster");
        read_answer(body.as_bytes(), &mut elements).map_err(|error| error.to_string())?;
        elements.finish().map_err(|fault| fault.to_string())
    }

    fn element(labels: &str, value: &str) -> String {
        format!(r#"{{"metric":{{{labels}}},"value":[1,"{value}"]}}"#)
    }

    #[rstest]
    #[case::scalar("scalar", r#"[1,"0.5"]"#.into(), Answer::One(0.5))]
    #[case::one_element("vector", format!("[{}]", element(r#""job":"a""#, "0.5")), Answer::One(0.5))]
    #[case::infinite("vector", format!("[{}]", element("", "+Inf")), Answer::One(f64::INFINITY))]
    #[case::one_cluster_is_not_one_for_all(
        "vector", format!("[{}]", element(r#""cluster":"c1""#, "0.5")),
        Answer::Clusters([("c1".to_owned(), Value::Number(0.5))].into()))]
    #[case::twice(
        "vector", format!("[{},{}]", element(r#""cluster":"c1""#, "1"), element(r#""cluster":"c1","x":"y""#, "1")),
        Answer::Clusters([("c1".to_owned(), Value::Several)].into()))]
    fn what_can_be_used(#[case] kind: &str, #[case] result: String, #[case] expected: Answer) {
        assert_eq!(read(kind, &result), Ok(expected));
    }

    #[rstest]
    #[case::nothing("vector", "[]".into(), "no data")]
    #[case::a_range("matrix", r#"[{"metric":{},"values":[[1,"1"]]}]"#.into(), "result is a matrix")]
    #[case::a_text("string", r#"[1,"x"]"#.into(), "malformed")]
    #[case::several("vector", format!("[{},{}]", element(r#""a":"1""#, "1"), element(r#""a":"2""#, "1")), "several series without label `cluster`")]
    #[case::mixed("vector", format!("[{},{}]", element("", "1"), element(r#""cluster":"c1""#, "1")), "others do not")]
    #[case::empty_is_no_label("vector", format!("[{},{}]", element(r#""cluster":"""#, "1"), element("", "1")), "several series")]
    fn what_cannot(#[case] kind: &str, #[case] result: String, #[case] expected: &str) {
        let error = read(kind, &result).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case::as_many_as_there_may_be(MOST, 12, true)]
    #[case::one_more(MOST + 1, 12, false)]
    #[case::names_as_long_as_they_may_be(64, 64 * MOST / 64, true)]
    #[case::longer_names(64, 64 * MOST / 64 + 1, false)]
    fn an_answer_of_more_clusters_than_there_can_be_is_refused(
        #[case] clusters: usize,
        #[case] length: usize,
        #[case] expected: bool,
    ) {
        let cluster = |n| element(&format!(r#""cluster":"{n:0length$}""#), "1");
        let all: Vec<String> = (0..clusters).map(cluster).collect();
        let answer = read("vector", &format!("[{}]", all.join(",")));
        match answer {
            Ok(Answer::Clusters(all)) => assert!(expected && all.len() == clusters),
            other => assert!(!expected && other.unwrap_err().starts_with("more than 20000 clusters")),
        }
    }

    #[test]
    fn a_histogram_is_not_a_number() {
        let histogram = r#"[{"metric":{},"histogram":[1,{"count":"3","sum":"2","buckets":[]}]}]"#;
        assert!(matches!(read("vector", histogram), Ok(Answer::One(value)) if value.is_nan()));
    }
}

//! The values that a check's query gives, read from an answer.

use std::collections::BTreeMap;

use statusbridge_core::checks::Fault;
use statusbridge_core::checks::answer::{Answer, Value};
use statusbridge_core::sample::{Labels, Sample, Sink};

/// Most elements of a vector that are kept: more than there are clusters.
const MOST: usize = 100_000;

/// Takes in the elements of an answer.
#[derive(Debug, Default)]
pub(super) struct Elements {
    cluster_label: String,
    /// How many have no cluster label, and the last of them.
    plain: (u64, f64),
    clusters: BTreeMap<String, Value>,
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
            _ if self.too_many => format!("more than {MOST} series"),
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
        let room = self.clusters.len() < MOST;
        match self.clusters.get_mut(cluster) {
            Some(known) => *known = Value::Several,
            None if room => {
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

    #[test]
    fn a_histogram_is_not_a_number() {
        let histogram = r#"[{"metric":{},"histogram":[1,{"count":"3","sum":"2","buckets":[]}]}]"#;
        assert!(matches!(read("vector", histogram), Ok(Answer::One(value)) if value.is_nan()));
    }
}

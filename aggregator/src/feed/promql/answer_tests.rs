use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use statusbridge_core::sample::{Labels, Sample, Sink};

use super::FeedError;
use super::answer::read;

#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let samples: Vec<String> = samples.iter().map(|s| format!("{}@{}", s.value, s.at)).collect();
        self.0.push(format!("{} {}", labels.join(","), samples.join(" ")));
    }
}

fn fold(body: &str) -> Result<Vec<String>, FeedError> {
    let mut lines = Lines::default();
    read(body.as_bytes(), &mut lines).map(|()| lines.0)
}

const VECTOR: &str = r#"{"status":"success","data":{"resultType":"vector","result":[
    {"metric":{"__name__":"a","x":"q\"\né"},"value":[1700000000.123,"281474976710655"]},
    {"value":[1,"2.81474976710655e+14"],"metric":{}}]}}"#;

#[test]
fn a_vector_is_handed_out_series_by_series() {
    let lines = fold(VECTOR).unwrap();
    assert_eq!(lines, ["__name__=a,x=q\"\né 281474976710655@1700000000.123", " 281474976710655@1"]);
}

#[test]
fn a_matrix_has_several_samples_a_series() {
    let body = r#"{"data":{"result":[{"metric":{"a":"b"},"values":[[1,"2"],[2.5,"NaN"]]}],"resultType":"matrix"},
        "isPartial":false,"infos":["PromQL info: metric might not be a counter"],"status":"success"}"#;
    assert_eq!(fold(body).unwrap(), ["a=b 2@1 NaN@2.5"]);
}

#[rstest]
#[case::empty_answer(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)]
#[case::null_warnings(r#"{"status":"success","warnings":null,"data":{"resultType":"vector","result":[]}}"#)]
#[case::no_warnings(
    r#"{"status":"success","warnings":[],"data":{"resultType":"vector","result":[],"stats":{}}}"#
)]
#[case::a_native_histogram(
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"2"}]}]}}"#)]
fn whole_answers(#[case] body: &str) {
    fold(body).unwrap();
}

#[rstest]
#[case::warnings(
    r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["fetch series: Unavailable"]}"#,
    "warnings")]
#[case::partial(
    r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#,
    "partial"
)]
#[case::refused(r#"{"status":"error","errorType":"timeout","error":"query timed out","data":null}"#, "api")]
#[case::scalar(r#"{"status":"success","data":{"resultType":"scalar","result":[]}}"#, "malformed")]
#[case::no_type(r#"{"status":"success","data":{"result":[]}}"#, "malformed")]
#[case::no_result(r#"{"status":"success","data":{"resultType":"vector"}}"#, "malformed")]
#[case::no_data(r#"{"status":"success"}"#, "malformed")]
#[case::null_data(r#"{"status":"success","data":null}"#, "malformed")]
#[case::no_status(r#"{"data":{"resultType":"vector","result":[]}}"#, "malformed")]
#[case::other_status(r#"{"status":"fine","data":{"resultType":"vector","result":[]}}"#, "malformed")]
#[case::html("<html>502 Bad Gateway</html>", "malformed")]
#[case::a_list("[]", "malformed")]
#[case::not_a_number(
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}"#,
    "malformed"
)]
#[case::a_label_that_is_no_string(
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}}"#,
    "malformed"
)]
#[case::goes_on_after_its_end(
    r#"{"status":"success","data":{"resultType":"vector","result":[]}}{"status":"success"}"#,
    "malformed"
)]
#[case::nothing("", "truncated")]
fn anything_else_is_an_error(#[case] body: &str, #[case] kind: &str) {
    assert_eq!(fold(body).unwrap_err().kind(), kind);
}

#[test]
fn no_beginning_of_an_answer_is_an_answer() {
    for end in (0..VECTOR.len()).filter(|i| VECTOR.is_char_boundary(*i)) {
        assert_eq!(fold(&VECTOR[..end]).unwrap_err().kind(), "truncated", "first {end} bytes");
    }
}

type Named = Vec<(String, String)>;

/// Series as plain data: labels, and samples as milliseconds with the bits of their values.
#[derive(Debug, Default, PartialEq)]
struct Plain(Vec<(Named, Vec<(i64, u64)>)>);

impl Sink for Plain {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let samples =
            samples.iter().map(|it| ((it.at * 1000.0).round() as i64, it.value.to_bits())).collect();
        self.0.push((labels, samples));
    }
}

proptest! {
    /// However an answer is written, what the fast path and the full parser take out of it together is what it says.
    #[test]
    fn an_answer_is_read_as_it_was_meant(
        series in prop::collection::vec(
            (
                prop::collection::btree_map("[a-z_]{1,4}", "\\PC{0,6}", 0..3),
                prop::collection::vec((0..2_000_000_000_000_i64, "[0-9]{1,6}(\\.[0-9]{1,3})?|NaN|[+-]Inf"), 1..4),
            ),
            0..6,
        ),
        is_pretty in any::<bool>(),
        is_matrix in any::<bool>(),
    ) {
        let pair = |(at, value): &(i64, String)| json!([*at as f64 / 1000.0, value]);
        let written = series.iter().map(|(labels, samples)| {
            if is_matrix {
                json!({"metric": labels, "values": samples.iter().map(pair).collect::<Vec<_>>()})
            } else {
                json!({"metric": labels, "value": pair(&samples[0])})
            }
        });
        let kind = if is_matrix { "matrix" } else { "vector" };
        let data = json!({"resultType": kind, "result": written.collect::<Vec<_>>()});
        let body = json!({"status": "success", "data": data});
        let body = if is_pretty { format!("{body:#}") } else { body.to_string() };
        let meant = series.into_iter().map(|(labels, samples)| {
            let most = if is_matrix { samples.len() } else { 1 };
            let samples = samples.into_iter().take(most);
            let samples = samples.map(|(at, value)| (at, value.parse::<f64>().unwrap().to_bits()));
            (labels.into_iter().collect(), samples.collect())
        });
        let mut read_out = Plain::default();
        read(body.as_bytes(), &mut read_out).unwrap();
        prop_assert_eq!(read_out, Plain(meant.collect()));
    }
}

//! Parses a series that is written as all backends write it: without spaces and without escapes. Any other is left to
//! the parser that knows all of JSON.

use memchr::memchr2;
use statusbridge_core::sample::{Labels, Sample};
use statusbridge_core::time::Seconds;

/// So many decimal digits a float holds exactly.
const EXACT_DIGITS: usize = 15;

/// Labels and samples of `{"metric":{"name":"value",…},"value":[time,"value"]}`, or with `"values":[[time,"value"],…]`.
/// False: it looks different, and nothing is said of whether it is one.
pub(super) fn series(text: &[u8], labels: &mut Labels, samples: &mut Vec<Sample>) -> bool {
    labels.clear();
    samples.clear();
    // No string may have any of these.
    if text.iter().any(|byte| *byte < b' ') {
        return false;
    }
    std::str::from_utf8(text).ok().and_then(|text| Rest(text).series(labels, samples)).is_some()
}

/// What has not been read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn series(mut self, labels: &mut Labels, samples: &mut Vec<Sample>) -> Option<()> {
        self.expect("{\"metric\":{")?;
        if self.expect("}").is_none() {
            loop {
                let name = self.string()?;
                self.expect(":")?;
                labels.push(name, self.string()?);
                if self.expect("}").is_some() {
                    break;
                }
                self.expect(",")?;
            }
        }
        if self.expect(",\"value\":").is_some() {
            samples.push(self.sample()?);
            self.expect("}")?;
        } else {
            self.expect(",\"values\":[")?;
            loop {
                samples.push(self.sample()?);
                if self.expect("]}").is_some() {
                    break;
                }
                self.expect(",")?;
            }
        }
        self.0.is_empty().then_some(())
    }

    /// `[time,"value"]`.
    fn sample(&mut self) -> Option<Sample> {
        self.expect("[")?;
        let at = self.seconds()?;
        self.expect(",")?;
        let value = self.string()?.parse().ok()?;
        self.expect("]")?;
        Some(Sample { at, value })
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.expect("\"")?;
        let end = memchr2(b'"', b'\\', self.0.as_bytes())?;
        let (text, rest) = (self.0.get(..end)?, self.0.get(end..)?);
        self.0 = rest;
        self.expect("\"")?;
        Some(text)
    }

    /// A number as times are written: digits, perhaps with a fraction. Of more digits than a float holds, the last bit is another
    /// by each parser.
    fn seconds(&mut self) -> Option<Seconds> {
        let is_of_it = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let end = self.0.bytes().position(|byte| !is_of_it(&byte))?;
        let (text, rest) = (self.0.get(..end)?, self.0.get(end..)?);
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_no_number =
            whole.is_empty() || whole.len() > 1 && whole.starts_with('0') || fraction.is_empty();
        if is_no_number || whole.len() + fraction.len() > EXACT_DIGITS {
            return None;
        }
        self.0 = rest;
        text.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::super::answer::parse_fully;
    use super::*;

    fn quickly(text: &str) -> Option<(Labels, Vec<Sample>)> {
        let (mut labels, mut samples) = (Labels::default(), Vec::new());
        series(text.as_bytes(), &mut labels, &mut samples).then_some((labels, samples))
    }

    #[rstest]
    #[case(r#"{"metric":{"__name__":"up","a":""},"value":[1435781451.781,"1"]}"#, true)]
    #[case(r#"{"metric":{},"value":[0,"NaN"]}"#, true)]
    #[case(r#"{"metric":{"a":"\u00e9"},"value":[0,"1"]}"#, false)]
    #[case(r#"{"metric": {},"value":[0,"1"]}"#, false)]
    #[case(r#"{"metric":{},"value":[01,"1"]}"#, false)]
    #[case(r#"{"metric":{},"value":[1.,"1"]}"#, false)]
    #[case(r#"{"metric":{},"value":[1,"one"]}"#, false)]
    #[case(r#"{"metric":{},"value":[1,"1"],"x":1}"#, false)]
    #[case(r#"{"metric":{"a":"1",},"value":[1,"1"]}"#, false)]
    #[case(r#"{"value":[1,"1"],"metric":{}}"#, false)]
    #[case("{\"metric\":{\"a\":\"\n\"},\"value\":[1,\"1\"]}", false)]
    #[case(r#"{"metric":{"a":"1"},"values":[[1.5,"1"],[2,"NaN"]]}"#, true)]
    #[case(r#"{"metric":{},"values":[[1,"1"],]}"#, false)]
    #[case(r#"{"metric":{},"values":[]}"#, false)]
    #[case(r#"{"metric":{},"values":[[1,"1"]}"#, false)]
    fn what_is_written_as_usual_is_read(#[case] text: &str, #[case] quickly_read: bool) {
        assert_eq!(quickly(text).is_some(), quickly_read);
    }

    fn same(text: &str) -> Result<(), TestCaseError> {
        let Some((labels, samples)) = quickly(text) else { return Ok(()) };
        let fully = parse_fully(text.as_bytes());
        let (known, values) = fully.map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert!(labels.iter().eq(known.iter()));
        prop_assert_eq!(samples.len(), values.len());
        for (got, full) in samples.iter().zip(&values) {
            prop_assert_eq!(got.value.to_bits(), full.value.to_bits());
            // The other parser does not round to the nearest.
            prop_assert!((got.at - full.at).abs() <= full.at * 1e-15);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_full_parser_reads(
            labels in prop::collection::vec(("[a-z_\u{e9}\\\\]{0,4}", "\\PC{0,8}"), 0..4),
            at in prop_oneof![any::<f64>(), (0..2_000_000_000_000_i64).prop_map(|ms| ms as f64 / 1000.0)],
            value in prop_oneof![any::<f64>().prop_map(|v| v.to_string()), "[-+0-9.eInfNa]{0,6}"],
            more in 0..3_usize,
        ) {
            let metric: Vec<String> = labels.iter().map(|(n, v)| format!("{}:{}", serde_json::json!(n), serde_json::json!(v))).collect();
            let at = serde_json::json!(at);
            let pair = format!("[{at},{}]", serde_json::json!(value));
            let metric = metric.join(",");
            same(&format!(r#"{{"metric":{{{metric}}},"value":{pair}}}"#))?;
            same(&format!(r#"{{"metric":{{{metric}}},"values":[{pair}{}]}}"#, format!(",{pair}").repeat(more)))?;
        }

        #[test]
        fn what_is_no_series_is_not_read_as_one(cut in 0..100_usize, with in "[\\[\\]{}\",:.0-9a\\\\ ]{0,3}") {
            let text = r#"{"metric":{"__name__":"up","a":"b"},"values":[[1435781451.781,"1"],[1435781466.781,"0"]]}"#;
            let cut = cut.min(text.len());
            same(&format!("{}{with}{}", &text[..cut], &text[cut..]))?;
            same(&format!("{}{with}", &text[..cut]))?;
            same(&format!("{}{with}{}", &text[..cut], text.get(cut + with.len()..).unwrap_or_default()))?;
        }
    }
}

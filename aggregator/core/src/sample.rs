//! One series of an answer, as it is handed out while the answer is being read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use statusbridge_contract::{Metric, stream};

use crate::time::Seconds;

/// Values up to 2^53 are exact in a float64.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Labels of one series in one reused buffer.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct Labels {
    text: String,
    /// Ends of name and value in `text`; each pair starts where the one before ended.
    ends: Vec<(usize, usize)>,
}

impl Labels {
    /// Name and value of each label, in the order of the answer.
    #[expect(clippy::string_slice, reason = "ends are where text was pushed, in this order")]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        self.ends.iter().map(move |&(mid, end)| {
            let pair = (&self.text[start..mid], &self.text[mid..end]);
            start = end;
            pair
        })
    }

    /// Value of a label; an empty value is the same as none in PromQL.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, v)| *n == name && !v.is_empty()).map(|(_, v)| v)
    }

    /// Takes them apart, as those of a sample of `metric`: see [`stream::split`].
    pub fn split(&self, metric: Metric, ignored: &[String]) -> stream::Split {
        stream::split(metric, self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())), ignored)
    }

    /// Forgets all labels and keeps the buffer.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Appends a label.
    pub fn push(&mut self, name: &str, value: &str) {
        self.text.push_str(name);
        let mid = self.text.len();
        self.text.push_str(value);
        self.ends.push((mid, self.text.len()));
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let mut out = Self::default();
        labels.into_iter().for_each(|(n, v)| out.push(n, v));
        out
    }
}

/// How far from a whole number a value may come back: VictoriaMetrics answers 125346672440696.02 for 125346672440696
/// where a block of samples holds stale markers.
const ROUNDING: f64 = 0.25;

/// One value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// In an instant vector the time of evaluation, in a range vector the sample's own.
    pub at: Seconds,
    /// The value as the backend wrote it.
    pub value: f64,
}

impl Sample {
    /// The whole number that the value is, or that it comes within a quarter of; one that a float64 holds exactly,
    /// as every value of the metric contract is.
    pub fn whole(self) -> Option<u64> {
        let whole = self.value.round();
        // The cast is exact: not negative, whole and at most 2^53. Of what is no number the first is false.
        ((self.value - whole).abs() <= ROUNDING && (0.0..=EXACT).contains(&whole)).then_some(whole as u64)
    }

    /// Whether the sample bears this timestamp. Backends keep milliseconds.
    pub fn stamped(self, at: Seconds) -> bool {
        (self.at - at).abs() < 0.000_5
    }
}

/// Takes an answer's series one by one as they are read, so that no answer is ever held as a whole.
/// When the query fails, what was taken until then is worthless.
pub trait Sink: Send + 'static {
    /// Whether an answer of this type (`vector`, `matrix`, `scalar`) is taken; any other is an error.
    fn takes(&self, kind: &str) -> bool {
        matches!(kind, "vector" | "matrix")
    }

    /// Takes one series: one sample of an instant vector, one or more of a range vector. A scalar is
    /// a sample without labels.
    fn series(&mut self, labels: &Labels, samples: &[Sample]);
}

/// At most `limit` bytes of a text, cut at a character, on one line.
pub fn excerpt(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.char_indices().find(|(i, c)| i + c.len_utf8() > limit);
    match cut.and_then(|(cut, _)| line.get(..cut)) {
        Some(beginning) => format!("{beginning}…"),
        None => line,
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a series' labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = Labels::default();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    labels.push(&name, &value);
                }
                Ok(labels)
            }
        }
        json.deserialize_map(Pairs)
    }
}

/// `[time, "value"]`.
impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let (at, Number(value)) = <(f64, Number)>::deserialize(json)?;
        Ok(Self { at, value })
    }
}

/// A number in a string, as the query API writes values.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Parse;
        impl Visitor<'_> for Parse {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| E::custom(format!("`{text}` is no number")))
            }
        }
        json.deserialize_str(Parse)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("281474976710655", Some(281_474_976_710_655))]
    #[case("2.81474976710655e+14", Some(281_474_976_710_655))]
    #[case("0", Some(0))]
    #[case("9007199254740992", Some(1 << 53))]
    #[case("9007199254740994", None)]
    #[case("1.5", None)]
    #[case("1.3", None)]
    #[case("125346672440696.02", Some(125_346_672_440_696))]
    #[case("125346672440255.97", Some(125_346_672_440_256))]
    #[case("-0.02", Some(0))]
    #[case("-1", None)]
    #[case("NaN", None)]
    #[case("+Inf", None)]
    fn only_whole_numbers_in_the_exact_range_are_values(#[case] text: &str, #[case] whole: Option<u64>) {
        assert_eq!(Sample { at: 0.0, value: text.parse().unwrap() }.whole(), whole);
    }

    #[test]
    fn labels_keep_order_and_empty_values_count_as_absent() {
        let labels: Labels = [("b", "1"), ("a", ""), ("c", "")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("b", "1"), ("a", ""), ("c", "")]);
        assert_eq!((labels.get("b"), labels.get("a"), labels.get("z")), (Some("1"), None, None));
    }
}

//! Parts that both kinds share: which clusters, amounts, durations.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::label_selector::LabelSelector;

/// Which clusters are meant: exactly one of `names`, `selector` and `reporting`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.names) ? 1 : 0) + (has(self.selector) ? 1 : 0) + (has(self.reporting) ? 1 : 0) == 1",
        "message": "exactly one of names, selector and reporting must be set"
    },
    {
        "rule": "!has(self.freeze) || !self.freeze || !has(self.reporting)",
        "message": "only clusters that are named or selected can be frozen, not those that report"
    }
]))]
pub struct ClusterSet {
    /// The clusters by name, as the metrics pipeline labels them. A cluster named here that does
    /// not report counts as missing.
    #[serde(default)]
    #[schemars(schema_with = "cluster_names")]
    pub names: Option<Vec<String>>,
    /// The clusters whose ClusterProfile has these labels. A cluster selected here that does not
    /// report counts as missing. An empty selector selects every ClusterProfile.
    pub selector: Option<LabelSelector>,
    /// Every cluster that reports the package, or did so lately.
    pub reporting: Option<Reporting>,
    /// Whether the clusters of a RolloutGate are those that are selected when it is first judged for a revision: one that
    /// joins later waits for the next revision, and one that leaves the selection goes on counting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freeze: bool,
}

/// The one way in which a [`ClusterSet`] chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<'a> {
    /// By name.
    Names(&'a [String]),
    /// By labels of ClusterProfiles.
    Selector(&'a LabelSelector),
    /// By who reports the package.
    Reporting(&'a Reporting),
}

impl ClusterSet {
    /// Every reporting cluster, at least one.
    pub fn any_reporting() -> Self {
        Self { reporting: Some(Reporting { min_clusters: 1 }), ..Self::default() }
    }

    /// These clusters.
    pub fn named(names: Vec<String>) -> Self {
        Self { names: Some(names), ..Self::default() }
    }

    /// How it chooses.
    ///
    /// # Errors
    /// In words for a status, when not exactly one field is set or the selector makes no sense.
    pub fn choice(&self) -> Result<Choice<'_>, String> {
        match (&self.names, &self.selector, &self.reporting) {
            (Some(names), None, None) => Ok(Choice::Names(names)),
            (None, Some(selector), None) => match selector.error() {
                Some(error) => Err(error),
                None => Ok(Choice::Selector(selector)),
            },
            (None, None, Some(_)) if self.freeze => {
                Err("clusters.freeze is for clusters that are named or selected, not for those that report"
                    .to_owned())
            }
            (None, None, Some(reporting)) => Ok(Choice::Reporting(reporting)),
            _ => Err("clusters must have exactly one of names, selector and reporting".to_owned()),
        }
    }
}

/// Most clusters that a set names.
pub const MOST_NAMES: usize = 10_000;
/// Most characters of their names together.
pub const MOST_OF_NAMES: usize = 320_000;

fn cluster_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "minItems": 1,
        "maxItems": MOST_NAMES,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [{
            "rule": format!("self.map(name, size(name)).sum() <= {MOST_OF_NAMES}"),
            "message": format!("names must take at most {MOST_OF_NAMES} characters; select clusters by their labels instead")
        }],
    })
}

/// Every cluster that reports the package, or did so lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reporting {
    /// How many clusters there must be at least; below this nothing is Ready and no gate opens.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_clusters: i64,
}

fn one() -> i64 {
    1
}

/// A number of clusters, or a share of all targets such as `95%`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A number of clusters.
    Count(i64),
    /// A percentage of the targets, written `95%`.
    Percent(String),
}

/// An amount that is neither a non-negative number nor a percentage up to 100 %.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of clusters nor a percentage from 0% to 100%")]
pub struct BadAmount(pub String);

/// A number as such; any other text is taken for a share, and read when that is counted.
impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Percent(text.to_owned()), Self::Count)
    }
}

impl Amount {
    fn share(&self) -> Result<(u64, u64), BadAmount> {
        let bad = || {
            BadAmount(match self {
                Self::Count(count) => count.to_string(),
                Self::Percent(text) => text.clone(),
            })
        };
        match self {
            Self::Count(count) => Ok((u64::try_from(*count).map_err(|_| bad())?, 1)),
            Self::Percent(text) => {
                let digits = text.strip_suffix('%').ok_or_else(bad)?;
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(bad());
                }
                let percent: u64 = digits.parse().map_err(|_| bad())?;
                if percent > 100 { Err(bad()) } else { Ok((percent, 100)) }
            }
        }
    }

    /// The number of clusters out of `total`, a share rounded up.
    pub fn of_rounded_up(&self, total: u64) -> Result<u64, BadAmount> {
        Ok(match self.share()? {
            (count, 1) => count,
            (percent, whole) => (total * percent).div_ceil(whole),
        })
    }

    /// The number of clusters out of `total`, a share rounded down.
    pub fn of_rounded_down(&self, total: u64) -> Result<u64, BadAmount> {
        Ok(match self.share()? {
            (count, 1) => count,
            (percent, whole) => total * percent / whole,
        })
    }
}

/// A share of clusters, from `1%` to `100%`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Percentage(
    #[schemars(length(max = 4), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(100|[1-9][0-9]?)%$')",
        "message": "a percentage must be from 1% to 100%"
    }]))]
    String,
);

impl Percentage {
    /// The number of clusters out of `total`, rounded up.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(&self, total: u64) -> Result<u64, BadAmount> {
        Amount::Percent(self.0.clone()).of_rounded_up(total)
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// A text that is not a duration such as `90s`, `3m` or `1h30m`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 90s, 3m or 1h30m")]
pub struct BadDuration(pub String);

/// Seconds in a duration of whole hours, minutes and seconds, in this order: `1h30m`, `90s`.
pub fn seconds(text: &str) -> Result<f64, BadDuration> {
    let bad = || BadDuration(text.to_owned());
    let mut rest = text;
    let mut total = 0.0;
    for (unit, scale) in [('h', 3600.0), ('m', 60.0), ('s', 1.0)] {
        if let Some((number, tail)) = rest.split_once(unit) {
            if number.is_empty() || number.len() > 6 || !number.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad());
            }
            total += number.parse::<f64>().map_err(|_| bad())? * scale;
            rest = tail;
        }
    }
    if text.is_empty() || !rest.is_empty() { Err(bad()) } else { Ok(total) }
}

/// A duration such as `90s`, `1h30m` or `500ms`.
///
/// # Errors
/// When it is anything else.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    match text.strip_suffix("ms").and_then(|number| number.parse().ok()) {
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        None => seconds(text).map(Duration::from_secs_f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("90s", 90.0)]
    #[case("3m", 180.0)]
    #[case("1h30m", 5400.0)]
    #[case("1h0m1s", 3601.0)]
    fn durations(#[case] text: &str, #[case] expected: f64) {
        assert_eq!(seconds(text), Ok(expected));
    }

    #[rstest]
    #[case("")]
    #[case("3")]
    #[case("m")]
    #[case("1s1m")]
    #[case("1.5h")]
    #[case("-1s")]
    #[case("1s ")]
    fn not_durations(#[case] text: &str) {
        assert!(seconds(text).is_err());
    }

    #[rstest]
    #[case(Amount::Count(3), 100, 3, 3)]
    #[case(Amount::Percent("95%".into()), 100, 95, 95)]
    #[case(Amount::Percent("95%".into()), 3, 3, 2)]
    #[case(Amount::Percent("50%".into()), 3, 2, 1)]
    #[case(Amount::Percent("0%".into()), 3, 0, 0)]
    #[case(Amount::Percent("100%".into()), 7, 7, 7)]
    fn amounts(#[case] amount: Amount, #[case] total: u64, #[case] up: u64, #[case] down: u64) {
        assert_eq!(amount.of_rounded_up(total), Ok(up));
        assert_eq!(amount.of_rounded_down(total), Ok(down));
    }

    #[rstest]
    #[case(Amount::Count(-1))]
    #[case(Amount::Percent("101%".into()))]
    #[case(Amount::Percent("95".into()))]
    #[case(Amount::Percent("%".into()))]
    #[case(Amount::Percent("+5%".into()))]
    fn not_amounts(#[case] amount: Amount) {
        assert!(amount.of_rounded_up(10).is_err());
        assert!(amount.of_rounded_down(10).is_err());
    }
}

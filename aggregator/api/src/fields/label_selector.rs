//! Kubernetes' label selector, with bounds, and what it matches.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A Kubernetes label selector: all of its requirements must hold. An empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": format!("!has(self.matchLabels) || self.matchLabels.all(key, size(key) <= 317 && key.matches('{KEY}'))"),
    "message": "matchLabels has a key that no label can have"
}]))]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "match_labels")]
    pub match_labels: Labels,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<Requirement>,
}

/// What must be true of one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        "message": "values must be given with operator In or NotIn"
    },
    {
        "rule": "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
        "message": "values must not be given with operator Exists or DoesNotExist"
    }
]))]
pub struct Requirement {
    /// Key of the label.
    #[schemars(schema_with = "label_key")]
    pub key: String,
    /// How the label must relate to `values`.
    pub operator: Operator,
    /// Values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "label_values")]
    pub values: Vec<String>,
}

/// How a label must relate to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or has none of the values.
    NotIn,
    /// It is there, with any value.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// Most labels and most requirements, and most values of a requirement.
const MOST: usize = 32;
const MOST_VALUES: usize = 256;

const KEY: &str = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(KEY).ok());
static VALUES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(VALUE).ok());

fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": VALUE},
        "maxProperties": MOST,
    })
}

fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 317, "pattern": KEY})
}

fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "string", "maxLength": 63, "pattern": VALUE},
        "maxItems": MOST_VALUES,
        "x-kubernetes-list-type": "atomic",
    })
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }

    /// What is wrong with it, if anything. A key or value that no label can have would otherwise
    /// silently select nothing, or with `NotIn` and `DoesNotExist` everything.
    pub fn error(&self) -> Option<String> {
        let most_values = self.match_expressions.iter().map(|it| it.values.len()).max().unwrap_or_default();
        if self.match_labels.len().max(self.match_expressions.len()) > MOST || most_values > MOST_VALUES {
            return Some(format!(
                "clusters.selector takes at most {MOST} labels, {MOST} expressions and {MOST_VALUES} values of each"
            ));
        }
        let keys = self.match_labels.keys().chain(self.match_expressions.iter().map(|it| &it.key));
        let values =
            self.match_labels.values().chain(self.match_expressions.iter().flat_map(|it| &it.values));
        if let Some(key) = keys.into_iter().find(|key| !is_key(key)) {
            return Some(format!("clusters.selector: {key:?} cannot be the key of a label"));
        }
        if let Some(value) = values.into_iter().find(|value| !is_value(value)) {
            return Some(format!("clusters.selector: {value:?} cannot be the value of a label"));
        }
        self.match_expressions.iter().find_map(Requirement::error)
    }
}

/// Why a text is no label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSelector {
    /// One of its parts is no requirement.
    #[error(
        "{0:?} is no requirement such as tier=canary, tier!=canary, tier in (a, b), tier notin (a, b), tier or !tier"
    )]
    Requirement(String),
    /// It has too many of them.
    #[error("there are more than {MOST} requirements")]
    TooMany,
}

/// As `kubectl -l` takes it: requirements with commas between them.
impl FromStr for LabelSelector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, BadSelector> {
        let mut selector = Self::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if selector.match_expressions.len() >= MOST {
                return Err(BadSelector::TooMany);
            }
            // The values of a set have commas between them, too.
            let mut depth = 0;
            let end = rest.find(|letter| {
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                letter == ',' && depth == 0
            });
            let (requirement, tail) = rest.split_at(end.unwrap_or(rest.len()));
            selector.match_expressions.push(Requirement::read(requirement.trim())?);
            rest = tail.strip_prefix(',').unwrap_or_default().trim_start();
            if rest.is_empty() && tail.starts_with(',') {
                return Err(BadSelector::Requirement(String::new()));
            }
        }
        Ok(selector)
    }
}

impl Requirement {
    fn read(text: &str) -> Result<Self, BadSelector> {
        let bad = || BadSelector::Requirement(text.to_owned());
        let one = |value: &str| vec![value.trim().to_owned()];
        let (key, operator, values) = if let Some((key, set)) = text.split_once('(') {
            let set = set.trim_end().strip_suffix(')').ok_or_else(bad)?;
            let values = set.split(',').map(|value| value.trim().to_owned()).collect();
            match key.trim().rsplit_once(char::is_whitespace).ok_or_else(bad)? {
                (key, "in") => (key, Operator::In, values),
                (key, "notin") => (key, Operator::NotIn, values),
                _ => return Err(bad()),
            }
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Operator::NotIn, one(value))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, Operator::In, one(value))
        } else if let Some(key) = text.strip_prefix('!') {
            (key, Operator::DoesNotExist, Vec::new())
        } else {
            (text, Operator::Exists, Vec::new())
        };
        let requirement = Self { key: key.trim().to_owned(), operator, values };
        let fits = is_key(&requirement.key) && requirement.values.iter().all(|value| is_value(value));
        if fits { Ok(requirement) } else { Err(bad()) }
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    fn error(&self) -> Option<String> {
        match (self.operator, self.values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => {
                Some(format!("clusters.selector: {:?} of {:?} needs values", self.operator, self.key))
            }
            (Operator::Exists | Operator::DoesNotExist, false) => {
                Some(format!("clusters.selector: {:?} of {:?} takes no values", self.operator, self.key))
            }
            _ => None,
        }
    }
}

/// `name` or `prefix/name`.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    prefix.len() <= 253 && name.len() <= 63 && KEYS.as_ref().is_some_and(|keys| keys.is_match(key))
}

fn is_value(value: &str) -> bool {
    value.len() <= 63 && VALUES.as_ref().is_some_and(|values| values.is_match(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn labels() -> Labels {
        [("env", "prod"), ("example.com/region", "eu"), ("blank", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[rstest]
    #[case::nothing("", json!({}))]
    #[case::equal("env=prod", json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}))]
    #[case::twice_equal("env == prod", json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}))]
    #[case::not_equal("env!=prod", json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}))]
    #[case::there("example.com/env", json!({"matchExpressions": [{"key": "example.com/env", "operator": "Exists"}]}))]
    #[case::not_there("!env", json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}))]
    #[case::several("env in (a, b),tier notin (c) , x", json!({"matchExpressions": [
        {"key": "env", "operator": "In", "values": ["a", "b"]},
        {"key": "tier", "operator": "NotIn", "values": ["c"]},
        {"key": "x", "operator": "Exists"},
    ]}))]
    fn a_selector_is_read_as_kubectl_reads_it(#[case] text: &str, #[case] expected: serde_json::Value) {
        assert_eq!(serde_json::to_value(text.parse::<LabelSelector>().unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_selector_is_bounded() {
        let of = |count: usize| vec!["!a"; count].join(",").parse::<LabelSelector>();
        assert_eq!(of(32).unwrap().error(), None);
        assert_eq!(of(33), Err(BadSelector::TooMany));
        let values =
            |count: usize| format!("a in ({})", vec!["b"; count].join(",")).parse::<LabelSelector>().unwrap();
        assert_eq!(values(256).error(), None);
        assert!(values(257).error().is_some());
    }

    #[rstest]
    fn a_text_that_is_no_selector_is_refused(
        #[values(
            "a in (b",
            "a in b)",
            "a of (b)",
            "in (b)",
            "a,,b",
            "a,",
            ",",
            "-a",
            "a=b c",
            "a in ((b))",
            "=b",
            "a=b=c"
        )]
        text: &str,
    ) {
        assert!(text.parse::<LabelSelector>().is_err());
    }

    #[rstest]
    #[case::nothing_is_asked(json!({}), true)]
    #[case::label(json!({"matchLabels": {"env": "prod"}}), true)]
    #[case::other_value(json!({"matchLabels": {"env": "dev"}}), false)]
    #[case::no_such_label(json!({"matchLabels": {"tier": "prod"}}), false)]
    #[case::all_labels_count(json!({"matchLabels": {"env": "prod", "example.com/region": "us"}}), false)]
    #[case::empty_value(json!({"matchLabels": {"blank": ""}}), true)]
    #[case::empty_is_not_absent(json!({"matchLabels": {"tier": ""}}), false)]
    #[case::within(json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}), true)]
    #[case::not_within(json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev"]}]}), false)]
    #[case::within_needs_it(json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["1"]}]}), false)]
    #[case::none_of(json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]}), true)]
    #[case::one_of(json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}), false)]
    #[case::absent_is_none_of(json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["1"]}]}), true)]
    #[case::there(json!({"matchExpressions": [{"key": "blank", "operator": "Exists"}]}), true)]
    #[case::not_there(json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), false)]
    #[case::absent(json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), true)]
    #[case::present(json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}), false)]
    #[case::both_kinds_count(
        json!({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        false
    )]
    fn matching(#[case] selector: serde_json::Value, #[case] expected: bool) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(selector.error(), None);
        assert_eq!(selector.matches(&labels()), expected);
    }

    #[rstest]
    #[case(json!({"matchLabels": {"en v": "prod"}}), "\"en v\" cannot be the key")]
    #[case(json!({"matchLabels": {"": "prod"}}), "\"\" cannot be the key")]
    #[case(json!({"matchLabels": {"a/b/c": "prod"}}), "\"a/b/c\" cannot be the key")]
    #[case(json!({"matchLabels": {"/b": "prod"}}), "\"/b\" cannot be the key")]
    #[case(json!({"matchLabels": {"A.example/b": "prod"}}), "cannot be the key")]
    #[case(json!({"matchLabels": {"env": "-prod"}}), "\"-prod\" cannot be the value")]
    #[case(json!({"matchLabels": {"env": "x".repeat(64)}}), "cannot be the value")]
    #[case(json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["a b"]}]}), "cannot be the value")]
    #[case(json!({"matchExpressions": [{"key": "env", "operator": "In"}]}), "In of \"env\" needs values")]
    #[case(json!({"matchExpressions": [{"key": "env", "operator": "NotIn"}]}), "NotIn of \"env\" needs values")]
    #[case(
        json!({"matchExpressions": [{"key": "env", "operator": "Exists", "values": ["a"]}]}),
        "Exists of \"env\" takes no values"
    )]
    fn what_cannot_be_meant(#[case] selector: serde_json::Value, #[case] expected: &str) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        let error = selector.error().unwrap();
        assert!(error.starts_with("clusters.selector: ") && error.contains(expected), "{error}");
    }
}

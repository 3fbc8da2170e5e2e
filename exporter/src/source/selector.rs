//! Label selectors, as requests to the API server write them (apimachinery, `labels.Parse`).

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

/// Conditions on labels, all of which have to hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    label: String,
    wants: Wants,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wants {
    Exists,
    Missing,
    /// The label is there with one of these values.
    In(Vec<String>),
    /// The label is not there, or has another value.
    NotIn(Vec<String>),
}

impl Selector {
    /// Whether an object has such labels.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.requirements.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.label)?.as_str());
            let is_one_of = |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
            match &requirement.wants {
                Wants::Exists => value.is_some(),
                Wants::Missing => value.is_none(),
                Wants::In(values) => is_one_of(values),
                Wants::NotIn(values) => !is_one_of(values),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = parts(text).and_then(|parts| parts.into_iter().map(Requirement::parse).collect());
        let requirements = parts.map_err(|problem: String| {
            format!("`{text}` is no label selector: {problem}; write one such as `team=web,tier!=db`")
        })?;
        Ok(Self { text: text.to_owned(), requirements })
    }
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl JsonSchema for Selector {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// The text between commas that are not in brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let mut found = Vec::new();
    let (mut start, mut open) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' if open => return Err("it has a `(` in brackets".to_owned()),
            b')' if !open => return Err("it has a `)` without a `(`".to_owned()),
            b'(' | b')' => open = !open,
            b',' if !open => {
                found.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err("it has a `(` without a `)`".to_owned());
    }
    found.push(text.get(start..).unwrap_or_default());
    Ok(found)
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let new = |label: &str, wants: Wants| {
            let label = label.trim();
            is_label(label)
                .then(|| Self { label: label.to_owned(), wants })
                .ok_or_else(|| format!("`{label}` is no name of a label"))
        };
        if let Some(inner) = text.strip_suffix(')') {
            let (before, values) = inner.split_once('(').unwrap_or_default();
            let values: Vec<String> = values.split(',').map(value).collect::<Result<_, _>>()?;
            return match before.trim().rsplit_once(char::is_whitespace) {
                Some((label, "in")) => new(label, Wants::In(values)),
                Some((label, "notin")) => new(label, Wants::NotIn(values)),
                _ => Err(format!("`{text}` needs `in` or `notin` before its brackets")),
            };
        }
        if let Some((label, wanted)) = text.split_once("!=") {
            return new(label, Wants::NotIn(vec![value(wanted)?]));
        }
        if let Some((label, wanted)) = text.split_once('=') {
            return new(label, Wants::In(vec![value(wanted.strip_prefix('=').unwrap_or(wanted))?]));
        }
        match text.strip_prefix('!') {
            Some(label) => new(label, Wants::Missing),
            None => new(text, Wants::Exists),
        }
    }
}

/// A value of a label, which may be empty.
fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    (text.is_empty() || is_name(text))
        .then(|| text.to_owned())
        .ok_or_else(|| format!("`{text}` is no value of a label"))
}

fn is_label(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            prefix.len() <= 253 && !prefix.is_empty() && prefix.bytes().all(inner) && is_name(name)
        }
        None => is_name(text),
    }
}

/// Letters, digits, dashes, dots and underscores, at most 63, with a letter or a digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        && ends(text.bytes().next())
        && ends(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("team=web", true)]
    #[case("team == web, tier!=db", true)]
    #[case("team in (shop, web),!gone", true)]
    #[case("team notin (shop)", true)]
    #[case("example.org/owner", true)]
    #[case("missing!=x", true)]
    #[case("empty=", true)]
    #[case("team=shop", false)]
    #[case("missing", false)]
    #[case("!team", false)]
    #[case("team in (shop)", false)]
    #[case("team notin (web)", false)]
    fn labels_match(#[case] selector: &str, #[case] expected: bool) {
        let labels = json!({"team": "web", "tier": "front", "example.org/owner": "a", "empty": ""});
        let selector: Selector = selector.parse().expect("a selector");
        assert_eq!(selector.matches(&json!({"metadata": {"labels": labels}})), expected);
        assert!(!"a=b".parse::<Selector>().expect("a selector").matches(&json!({})));
    }

    #[rstest]
    #[case("team in (web", "has a `(` without a `)`")]
    #[case("team in web)", "has a `)` without a `(`")]
    #[case("team in ((web)", "has a `(` in brackets")]
    #[case("team on (web)", "needs `in` or `notin`")]
    #[case("(web)", "needs `in` or `notin`")]
    #[case("", "`` is no name of a label")]
    #[case("a=b,", "`` is no name of a label")]
    #[case("team web", "`team web` is no name of a label")]
    #[case("team=we b", "`we b` is no value of a label")]
    #[case("Example.org/x=y", "is no name of a label")]
    #[case("-a", "is no name of a label")]
    fn what_is_no_selector(#[case] selector: &str, #[case] message: &str) {
        let error = selector.parse::<Selector>().expect_err(selector);
        assert!(error.contains(message), "{error}");
    }
}

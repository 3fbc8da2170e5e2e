//! Label selectors as texts: `team=web,tier in (front, back),!draft`.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector, SelectorExt as _};
use serde_json::Value;

/// Which objects a watch is about.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelSelector(Selector);

impl LabelSelector {
    /// Reads a text as an API server does.
    ///
    /// # Errors
    /// When it would refuse it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let requirement = |part: &str| {
            requirement(part.trim()).ok_or_else(|| {
                format!(
                    "`{}` is no requirement of a label selector: expected name, !name, name=value, name!=value, \
                     name in (value, …) or name notin (value, …)",
                    part.trim()
                )
            })
        };
        let parts = parts(text).into_iter().filter(|_| !text.trim().is_empty());
        Ok(Self(parts.map(requirement).collect::<Result<Selector, String>>()?))
    }

    /// Whether an object has the labels.
    pub(super) fn matches(&self, object: &Value) -> bool {
        if self.0.selects_all() {
            return true;
        }
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels")?.as_object());
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let labels: BTreeMap<String, String> = labels.into_iter().flatten().filter_map(text).collect();
        self.0.matches(&labels)
    }
}

/// A text at its commas, but not at those in parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|letter| {
        inside = (inside || letter == '(') && letter != ')';
        letter == ',' && !inside
    })
    .collect()
}

fn requirement(text: &str) -> Option<Expression> {
    if let Some(name) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(word(name)?));
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(word(name)?, value_of(value)?));
    }
    if let Some((name, value)) = text.split_once('=') {
        return Some(Expression::Equal(word(name)?, value_of(value.strip_prefix('=').unwrap_or(value))?));
    }
    let Some((head, values)) = text.split_once('(') else { return Some(Expression::Exists(word(text)?)) };
    let values = values.strip_suffix(')')?.split(',').map(value_of).collect::<Option<BTreeSet<String>>>()?;
    let (name, operator) = head.trim_end().rsplit_once(char::is_whitespace)?;
    match operator {
        "in" => Some(Expression::In(word(name)?, values)),
        "notin" => Some(Expression::NotIn(word(name)?, values)),
        _ => None,
    }
}

/// The name of a label.
fn word(text: &str) -> Option<String> {
    value_of(text).filter(|word| !word.is_empty())
}

/// The value of a label, which may be empty.
fn value_of(text: &str) -> Option<String> {
    let text = text.trim();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    text.chars().all(plain).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::empty("", true)]
    #[case::equal("team=web", true)]
    #[case::double("team == web", true)]
    #[case::another("team=ops", false)]
    #[case::unequal("team!=ops", true)]
    #[case::unequal_to_what_is_not_there("nope != x", true)]
    #[case::empty_value("draft=", true)]
    #[case::exists("example.com/tier", true)]
    #[case::is_missing("!nope", true)]
    #[case::is_not_missing("!team", false)]
    #[case::of_several("example.com/tier in (front, back)", true)]
    #[case::of_none("team notin (ops,web)", false)]
    #[case::all_of_these("team=web,example.com/tier in (back,front),!nope", true)]
    #[case::not_all_of_these("team=web,nope", false)]
    fn objects_are_selected_by_their_labels(#[case] selector: &str, #[case] expected: bool) {
        let object =
            json!({"metadata": {"labels": {"team": "web", "example.com/tier": "front", "draft": ""}}});
        assert_eq!(LabelSelector::parse(selector).map(|selector| selector.matches(&object)), Ok(expected));
    }

    #[rstest]
    #[case("team web")]
    #[case("=web")]
    #[case("team in front")]
    #[case("team in (front")]
    #[case("team among (front)")]
    #[case("team=web,")]
    #[case("!")]
    fn what_an_api_server_refuses_is_an_error(#[case] selector: &str) {
        let error = LabelSelector::parse(selector).unwrap_err();
        assert!(error.contains("is no requirement of a label selector"), "{error}");
    }
}

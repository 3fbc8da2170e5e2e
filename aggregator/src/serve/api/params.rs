//! What a request says after its path.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use statusbridge_contract::{Fingerprint, wanted};

use super::failure::Failure;

/// Parameters by name; each once, and none that the endpoint does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Params(BTreeMap<String, String>);

/// A text without its percent signs; None where it is no UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

impl Params {
    /// Those of a query.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let mut params = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).ok_or_else(|| Failure::bad(format!("{name} is not UTF-8")))?;
            params.insert(name, value, known)?;
        }
        Ok(params)
    }

    /// Takes one more. A parameter that is not understood may have been meant to narrow the question.
    pub(super) fn insert(&mut self, name: &str, value: String, known: &[&str]) -> Result<(), Failure> {
        if !known.contains(&name) {
            let shown: String = name.chars().take(64).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Failure::bad(format!("there is no parameter {shown:?}; there are {known}")));
        }
        if self.0.insert(name.to_owned(), value).is_some() {
            return Err(Failure::bad(format!("{name} is given twice")));
        }
        Ok(())
    }

    /// The value of a parameter that may be left out.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a parameter that must be there.
    pub(super) fn need(&self, name: &str) -> Result<&str, Failure> {
        match self.get(name) {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(Failure::bad(format!("{name} is missing"))),
        }
    }

    /// The parameter `revision`, if it is there.
    pub(super) fn revision(&self) -> Result<Option<Fingerprint>, Failure> {
        self.get("revision")
            .map(wanted::fingerprint)
            .transpose()
            .map_err(|error| Failure::bad(error.to_string()))
    }

    /// The value of a parameter as something else.
    pub(super) fn parse<T: std::str::FromStr>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, Failure> {
        let parse =
            |value: &str| value.parse().map_err(|_| Failure::bad(format!("{name} must be {expected}")));
        self.get(name).map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(None, Ok(vec![]))]
    #[case::decoded(Some("a=x%2Fy&b="), Ok(vec![("a", "x/y"), ("b", "")]))]
    #[case::plus_stays(Some("a=1.0+build"), Ok(vec![("a", "1.0+build")]))]
    #[case::unknown(Some("c=1"), Err("there is no parameter \"c\"; there are a, b"))]
    #[case::twice(Some("a=1&a=1"), Err("a is given twice"))]
    #[case::no_text(Some("a=%ff"), Err("a is not UTF-8"))]
    fn parameters_are_read(#[case] query: Option<&str>, #[case] expected: Result<Vec<(&str, &str)>, &str>) {
        let read = Params::read(query, &["a", "b"]);
        let owned = |all: Vec<(&str, &str)>| {
            Params(all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        };
        assert_eq!(read, expected.map(owned).map_err(Failure::bad));
    }
}

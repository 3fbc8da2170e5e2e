//! Where a backend is, and what of that may be shown.

use std::fmt;

use reqwest::Url;
use serde::Deserialize;

/// Address of a backend. User, password and query string may be secrets: whoever shows an address shows none of them.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// The whole, to connect to.
    ///
    /// # Errors
    /// When it is no address.
    pub(super) fn url(&self) -> Result<Url, String> {
        Url::parse(&self.0).map_err(|error| format!("url `{self}`: {error}"))
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for Address {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, rest) = self.0.split_at(self.0.find(['?', '#']).unwrap_or(self.0.len()));
        // What looks like a query may be of a password.
        let place = if rest.contains('@') { "…" } else { place };
        let (scheme, place) = place.split_once("://").unwrap_or(("", place));
        let colon = if scheme.is_empty() { "" } else { "://" };
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        write!(f, "{scheme}{colon}{host}{}", if rest.is_empty() { "" } else { "?…" })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://thanos:9090/prometheus", "https://thanos:9090/prometheus")]
    #[case("https://user:secret@thanos/a?apikey=secret", "https://thanos/a?…")]
    #[case("https://thanos?apikey=secret@b/c", "…?…")]
    #[case("https://a:sec/ret@thanos/#secret", "https://thanos/?…")]
    #[case("https://user:sec#ret@thanos/", "…?…")]
    #[case("user:secret@thanos", "thanos")]
    #[case("thanos", "thanos")]
    #[case("https://thanos/a@secret@b", "https://b")]
    fn secrets_are_not_shown(#[case] text: &str, #[case] shown: &str) {
        let address = Address::from(text);
        assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        assert_eq!(
            Address::from("thanos?apikey=secret").url().unwrap_err(),
            "url `thanos?…`: relative URL without a base"
        );
    }
}

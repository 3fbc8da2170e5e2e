//! Addresses of other servers, and what of them may be shown.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::Deserialize;

/// A URL of which the query string, the fragment, the user or the password may be secret. It shows none of them,
/// neither with `Display` nor with `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// The whole URL, to connect to. `T` is the URL type of the HTTP client.
    ///
    /// # Errors
    /// When it is not a URL; the message shows no secret.
    pub fn url<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        self.0.parse().map_err(|error| format!("url `{self}`: {error}"))
    }

    /// Whether the URL is the empty string.
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
        let is_scheme = |text: &str| text.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it));
        let (scheme, place) = match place.split_once("://") {
            Some((scheme, place)) if is_scheme(scheme) => (format!("{scheme}://"), place),
            _ => (String::new(), place),
        };
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        write!(f, "{scheme}{host}{}", if rest.is_empty() { "" } else { "?…" })
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

    /// Stands for the URL type of a client.
    #[derive(Debug)]
    struct Url;

    impl FromStr for Url {
        type Err = &'static str;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            if text.contains("://") { Ok(Self) } else { Err("relative URL without a base") }
        }
    }

    #[rstest]
    #[case("https://thanos:9090/prometheus", "https://thanos:9090/prometheus")]
    #[case("https://user:secret@thanos/a?apikey=secret", "https://thanos/a?…")]
    #[case("https://thanos?apikey=secret@b/c", "…?…")]
    #[case("https://a:sec/ret@thanos/#secret", "https://thanos/?…")]
    #[case("https://user:sec#ret@thanos/", "…?…")]
    #[case("user:secret@thanos", "thanos")]
    #[case("user:sec://ret@thanos", "thanos")]
    #[case("thanos", "thanos")]
    #[case("https://thanos/a@secret@b", "https://b")]
    fn secrets_are_not_shown(#[case] text: &str, #[case] shown: &str) {
        let address = Address::from(text);
        assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        assert_eq!(
            Address::from("thanos?apikey=secret").url::<Url>().unwrap_err(),
            "url `thanos?…`: relative URL without a base"
        );
    }
}

//! Addresses of other servers, and what of them may be shown.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::Deserialize;

/// Parts of a query that are shorter, in bytes, are words that may stand in any text.
const SHORTEST: usize = 6;

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

    /// What the server at this address said, without the query string and its values, which servers may repeat in
    /// their refusals.
    pub fn without_query(&self, said: &str) -> String {
        let request = self.0.split('#').next().unwrap_or_default();
        let query = request.split_once('?').map_or("", |(_, query)| query);
        let pairs = || query.split('&');
        let values = pairs().filter_map(|pair| Some(pair.split_once('=')?.1));
        let mut secrets: Vec<&str> = pairs().chain(values).filter(|it| it.len() >= SHORTEST).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(said.to_owned(), |said, secret| said.replace(secret, "…"))
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

    #[rstest]
    #[case("http://hub/a?apikey=secret-key&b", "GET /a?apikey=secret-key&b: no", "GET /a?…&b: no")]
    #[case("http://hub/a?apikey=secret-key#part", "{\"key\": \"secret-key\"}", "{\"key\": \"…\"}")]
    #[case("http://hub/?no=one", "no such page, none", "no such page, none")]
    #[case("http://hub/?&", "no such page", "no such page")]
    #[case("http://hub/", "no such page", "no such page")]
    fn what_a_server_repeats_of_a_query_is_not_shown(
        #[case] url: &str,
        #[case] said: &str,
        #[case] shown: &str,
    ) {
        assert_eq!(Address::from(url).without_query(said), shown);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        assert_eq!(
            Address::from("thanos?apikey=secret").url::<Url>().unwrap_err(),
            "url `thanos?…`: relative URL without a base"
        );
    }
}

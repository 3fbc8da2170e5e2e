//! Which cluster a token is for.

use std::collections::BTreeSet;

use http::header::{self, HeaderMap};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::feed::yaml_file::{self, FromYaml, YamlFile};

/// A line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    cluster: String,
    sha256: String,
}

type Hash = [u8; 32];

/// Tells a known token from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenId(Hash);

/// Hashes of tokens, each of one cluster. A cluster may have several, so that they can be exchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    entries: Vec<(Hash, String)>,
}

impl FromYaml for Tokens {
    /// Reads a list of `{cluster, sha256}`; no token or hash is in an error.
    fn from_yaml(text: &str) -> Result<Self, String> {
        let entries: Vec<Entry> = yaml_file::read(text)?;
        let mut tokens = Self::default();
        for (number, Entry { cluster, sha256 }) in entries.into_iter().enumerate() {
            if cluster.is_empty() {
                return Err(format!("[{number}]: cluster is empty"));
            }
            let hash = hex(&sha256).ok_or(format!("[{number}]: sha256 is not 64 hex digits"))?;
            if tokens.entries.iter().any(|(known, _)| *known == hash) {
                return Err(format!("[{number}]: the token of {cluster} is there already"));
            }
            tokens.entries.push((hash, cluster));
        }
        Ok(tokens)
    }
}

impl Tokens {
    /// A token, and the cluster that it is for. How long it takes does not depend on how near it is to any.
    pub(crate) fn find(&self, token: &str) -> Option<(TokenId, &str)> {
        let hash: Hash = Sha256::digest(token).into();
        let mut found = None;
        for (known, cluster) in &self.entries {
            let difference = known.iter().zip(&hash).fold(0, |sum, (a, b)| sum | (a ^ b));
            if difference == 0 {
                found = Some((TokenId(hash), cluster.as_str()));
            }
        }
        found
    }

    /// Whether it is still known.
    pub(crate) fn has(&self, token: &TokenId) -> bool {
        self.entries.iter().any(|(known, _)| *known == token.0)
    }

    /// Names of the clusters that have one.
    pub(crate) fn clusters(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|(_, cluster)| cluster.as_str()).collect()
    }
}

/// The token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

fn hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// The file that says which cluster each token is for.
pub(crate) type TokensFile = YamlFile<Tokens>;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // SHA-256 of "abc" and of nothing.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const NOTHING: &str = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";

    fn cluster_of<'a>(tokens: &'a Tokens, token: &str) -> Option<&'a str> {
        tokens.find(token).map(|(_, cluster)| cluster)
    }

    #[test]
    fn a_token_is_of_one_cluster() {
        let text = format!("- {{cluster: eu-1, sha256: {ABC}}}\n- {{cluster: us-1, sha256: {NOTHING}}}\n");
        let tokens = Tokens::from_yaml(&text).unwrap();
        assert_eq!((cluster_of(&tokens, "abc"), cluster_of(&tokens, "")), (Some("eu-1"), Some("us-1")));
        assert_eq!((cluster_of(&tokens, "abcd"), cluster_of(&tokens, ABC)), (None, None));
        assert_eq!(tokens.clusters().into_iter().collect::<Vec<_>>(), ["eu-1", "us-1"]);
        assert_eq!(Tokens::from_yaml("# none\n"), Ok(Tokens::default()));
    }

    #[rstest]
    #[case("- {cluster: a, sha256: abc}", "[0]: sha256 is not 64 hex digits")]
    #[case("- {cluster: '', sha256: abc}", "[0]: cluster is empty")]
    #[case("- {cluster: a, token: abc}", "token")]
    #[case("a: b", "")]
    fn what_cannot_be_used_is_told(#[case] text: &str, #[case] expected: &str) {
        let error = Tokens::from_yaml(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn one_token_for_two_clusters_is_refused_and_the_hash_not_told() {
        let text = format!("- {{cluster: a, sha256: {ABC}}}\n- {{cluster: b, sha256: {ABC}}}\n");
        let error = Tokens::from_yaml(&text).unwrap_err();
        assert!(error.contains("[1]") && !error.contains("ba7816"), "{error}");
    }

    #[test]
    fn a_bad_new_version_keeps_the_old_and_is_told_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write(&format!("- {{cluster: a, sha256: {ABC}}}\n"));
        let mut tokens = TokensFile::open(Some(file.path().to_owned())).unwrap();
        assert!(tokens.reread().is_none());
        write("- nonsense\n");
        assert!(tokens.reread().unwrap().is_err());
        assert!(tokens.reread().is_none());
        assert_eq!(cluster_of(tokens.current(), "abc"), Some("a"));
        write(&format!("- {{cluster: b, sha256: {ABC}}}\n"));
        assert_eq!(cluster_of(tokens.reread().unwrap().unwrap(), "abc"), Some("b"));
        assert!(TokensFile::open(Some("/nowhere/tokens".into())).is_err());
    }
}

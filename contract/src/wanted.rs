//! A revision that somebody asks for: a person in a spec or a command, or another system for them.
//!
//! Clusters report whole commits and digests. A shortened one is another text, which no cluster ever reports, so
//! whoever asks for it waits for ever: it is refused where it is certain to be one, and doubted where it may be.

use std::fmt;

use crate::fingerprint::{Fingerprint, HEX_DIGITS, content_digits, is_hex, named_digits};

/// Most characters of a revision that is asked for.
const MAX_CHARS: usize = 4096;
/// Fewest hex digits in which Git shortens a commit.
const SHORTEST: usize = 7;

/// Why no cluster can ever report a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmatchable {
    /// It has no characters, or too many.
    Length,
    /// It begins or ends with white space.
    Space,
    /// It names a commit or content by so many hex digits, which are too few.
    Short {
        /// What stands before the digits, such as `main@sha1:`.
        name: String,
        /// How many digits there are.
        digits: usize,
    },
}

impl fmt::Display for Unmatchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "a revision has 1 to {MAX_CHARS} characters"),
            Self::Space => f.write_str("a revision must not begin or end with white space"),
            Self::Short { name, digits } => write!(
                f,
                "a revision has at least {HEX_DIGITS} hex digits behind {name}, found {digits}: write all digits of the \
                 commit or digest, or its first {HEX_DIGITS} alone"
            ),
        }
    }
}

impl std::error::Error for Unmatchable {}

/// Fingerprint of a revision that somebody asks for.
///
/// # Errors
/// When no cluster can ever report it.
pub fn fingerprint(revision: &str) -> Result<Fingerprint, Unmatchable> {
    if revision.is_empty() || revision.chars().count() > MAX_CHARS {
        return Err(Unmatchable::Length);
    }
    if revision.trim() != revision {
        return Err(Unmatchable::Space);
    }
    if let Some((name, digits)) = named_digits(revision)
        && digits.len() < HEX_DIGITS
    {
        return Err(Unmatchable::Short { name: name.to_owned(), digits: digits.len() });
    }
    Ok(Fingerprint::of(revision))
}

/// Whether two texts that people wrote mean the same revision: the same commit or digest, as far as both have its digits, or
/// the same text, or one is what Status Bridge shows of the other. Two revisions may have one fingerprint, if somebody went to the lengths of looking for them.
pub fn is_same(one: &str, other: &str) -> bool {
    if one == other || Fingerprint::of(one) != Fingerprint::of(other) {
        return one == other;
    }
    // Of any revision the twelve digits may be written that are shown of it.
    let is_shown = |text: &str| text.len() == HEX_DIGITS && is_hex(text);
    let digits = content_digits(one).zip(content_digits(other));
    is_shown(one)
        || is_shown(other)
        || digits.is_some_and(|(one, other)| {
            one.bytes().zip(other.bytes()).all(|(one, other)| one.eq_ignore_ascii_case(&other))
        })
}

/// What to tell who asks for a revision that looks like a shortened commit, though it may be a version of its own.
pub fn doubt(revision: &str) -> Option<String> {
    let is_short = (SHORTEST..HEX_DIGITS).contains(&revision.len()) && is_hex(revision);
    is_short.then(|| {
        format!(
            "{revision} counts as a text of {} characters, not as the beginning of a commit: of a commit write all digits, \
             or the first {HEX_DIGITS}",
            revision.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::empty("", "a revision has 1 to 4096 characters")]
    #[case::space("main ", "a revision must not begin or end with white space")]
    #[case::flux_prints_it_so(
        "main@sha1:489d0f70",
        "a revision has at least 12 hex digits behind main@sha1:, found 8: write all digits of the commit or digest, or its \
         first 12 alone"
    )]
    #[case::eleven("sha256:4f0e2a9c81d", "a revision has at least 12 hex digits behind sha256:, found 11")]
    #[case::none("v1@sha512:", "a revision has at least 12 hex digits behind v1@sha512:, found 0")]
    fn what_can_never_match_is_refused(#[case] revision: &str, #[case] why: &str) {
        let error = fingerprint(revision).expect_err(revision).to_string();
        assert!(error.starts_with(why), "{error}");
    }

    #[rstest]
    #[case::as_shown("4f0e2a9c81d3")]
    #[case::twelve("main@sha1:4f0e2a9c81d3")]
    #[case::not_hex("main@sha1:4f0e2zz")]
    #[case::other_algorithm("main@md5:4f0e2a9")]
    #[case::in_a_longer_name("mysha1:4f0e2a9")]
    #[case::version("v1.2.3")]
    #[case::short_commit("4f0e2a9")]
    fn everything_else_is_a_fingerprint(#[case] revision: &str) {
        assert_eq!(fingerprint(revision), Ok(Fingerprint::of(revision)));
    }

    #[test]
    fn a_revision_may_have_so_many_characters_and_not_more() {
        assert!(fingerprint(&"ä".repeat(MAX_CHARS)).is_ok());
        assert_eq!(fingerprint(&"a".repeat(MAX_CHARS + 1)), Err(Unmatchable::Length));
    }

    #[rstest]
    #[case::text("v1.2.3", "v1.2.3", true)]
    #[case::other_text("v1.2.3", "v1.2.4", false)]
    #[case::as_shown("v1.2.3", &Fingerprint::of("v1.2.3").to_string(), true)]
    #[case::other_notation(
        "main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234",
        "4F0E2A9C81D3B7650E4F0E2A9C81D3B7650E1234",
        true
    )]
    #[case::beginning("main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234", "4f0e2a9c81d3", true)]
    #[case::same_beginning(
        "main@sha1:4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234",
        "4f0e2a9c81d3ffffffffe2a9c81d3b7650e12345",
        false
    )]
    #[case::nothing("", "", true)]
    fn two_texts_mean_the_same_revision_or_not(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!((is_same(one, other), is_same(other, one)), (same, same));
    }

    #[rstest]
    #[case("4f0e2a", false)]
    #[case("4f0e2a9", true)]
    #[case("4F0E2A9C81D", true)]
    #[case("4f0e2a9c81d3", false)]
    #[case("v4f0e2a9", false)]
    fn a_shortened_commit_is_doubted(#[case] revision: &str, #[case] expected: bool) {
        assert_eq!(doubt(revision).is_some(), expected, "{revision}");
    }
}

//! A revision as a number: 48 bits, exact in a float64 and within 15 decimal digits, so that a
//! thousand revisions of a package are a thousand values of one series and never a new series.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Largest value that 48 bits hold: every fingerprint and every digest is at most this.
pub const MAX_48_BITS: u64 = (1 << 48) - 1;

/// How many hex digits of a commit or a digest are kept, and shown to people.
pub(crate) const HEX_DIGITS: usize = 12;

/// Fingerprint of a revision; [`Fingerprint::NONE`] where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// No revision is known. Never the fingerprint of a non-empty revision.
    pub const NONE: Self = Self(0);

    /// Fingerprint of a revision as a system reports it or a person pastes it.
    ///
    /// A commit or content digest counts by its first 12 hex digits, however it is written: alone
    /// (40 or 64 digits), behind `sha1:`, `sha256:` or `sha512:` at the start of the string or after
    /// an `@`, or as the 12 digits that Status Bridge itself shows. Anything else counts by the first
    /// 48 bits of its SHA-256. The empty string is [`Fingerprint::NONE`].
    pub fn of(revision: &str) -> Self {
        if revision.is_empty() {
            return Self::NONE;
        }
        let bits = match content_digits(revision) {
            Some(digits) => digits.bytes().take(HEX_DIGITS).fold(0, |n, d| n << 4 | u64::from(hex_value(d))),
            None => first_bytes(revision, 6),
        };
        Self(bits.max(1))
    }

    /// Fingerprint of a package that has several revisions at once (Argo CD's multi-source
    /// Applications): joined by newlines and hashed. One revision alone is just that revision;
    /// empty ones do not count.
    pub fn of_all<'a>(revisions: impl IntoIterator<Item = &'a str>) -> Self {
        let all: Vec<&str> = revisions.into_iter().filter(|r| !r.is_empty()).collect();
        match all.as_slice() {
            [] => Self::NONE,
            [one] => Self::of(one),
            several => Self(first_bytes(&several.join("\n"), 6).max(1)),
        }
    }

    /// The metric's value.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The fingerprint that a metric's value stands for; `None` when it does not fit 48 bits.
    pub const fn from_value(value: u64) -> Option<Self> {
        if value <= MAX_48_BITS { Some(Self(value)) } else { None }
    }

    /// Whether no revision is known.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Twelve hex digits, which [`Fingerprint::of`] takes back; `-` for none.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.pad("-") } else { f.pad(&format!("{:012x}", self.0)) }
    }
}

/// The hex digits of a revision that names its content, at least [`HEX_DIGITS`] of them.
pub(crate) fn content_digits(revision: &str) -> Option<&str> {
    if matches!(revision.len(), HEX_DIGITS | 40 | 64) && is_hex(revision) {
        return Some(revision);
    }
    named_digits(revision).map(|(_, digits)| digits).filter(|digits| digits.len() >= HEX_DIGITS)
}

/// What stands before the hex digits of a revision that names an algorithm, such as `main@sha1:`, and the digits, of
/// which there may be any number.
pub(crate) fn named_digits(revision: &str) -> Option<(&str, &str)> {
    let (name, digits) = revision.split_at_checked(revision.rfind(':')? + 1)?;
    let head = name.strip_suffix(':')?;
    let algorithm = head.rsplit_once('@').map_or(head, |(_, a)| a);
    let named = matches!(algorithm, "sha1" | "sha256" | "sha512");
    (named && is_hex(digits)).then_some((name, digits))
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The first `n` bytes of the SHA-256 of a text, big-endian.
pub(crate) fn first_bytes(text: &str, n: usize) -> u64 {
    Sha256::digest(text.as_bytes()).iter().take(n).fold(0, |acc, b| acc << 8 | u64::from(*b))
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const COMMIT: &str = "4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e1234";
    const DIGEST: &str = "4f0e2a9c81d3ffffffffffffffffffffffffffffffffffffffffffffffffabcd";

    #[rstest]
    #[case(COMMIT)]
    #[case(&COMMIT.to_uppercase())]
    #[case(&format!("main@sha1:{COMMIT}"))]
    #[case(&format!("refs/heads/a@b@sha1:{COMMIT}"))]
    #[case(&format!("sha1:{COMMIT}"))]
    #[case(DIGEST)]
    #[case(&format!("sha256:{DIGEST}"))]
    #[case(&format!("latest@sha256:{DIGEST}"))]
    #[case(&format!("registry:5000/team/app:v1@sha256:{DIGEST}"))]
    #[case(&format!("latest@sha512:{DIGEST}{DIGEST}"))]
    #[case("4f0e2a9c81d3")]
    #[case("4F0E2A9C81D3")]
    fn every_form_of_a_commit_or_digest_that_people_paste_is_one_fingerprint(#[case] revision: &str) {
        assert_eq!(Fingerprint::of(revision).to_string(), "4f0e2a9c81d3");
    }

    #[rstest]
    #[case::short_commit("4f0e2a9")]
    #[case::forty_one_digits("4f0e2a9c81d3b7650e4f0e2a9c81d3b7650e12345")]
    #[case::other_algorithm("main@md5:4f0e2a9c81d3b7650e4f0e2a9c81d3b7")]
    #[case::not_hex("main@sha1:4f0e2a9c81d3zz")]
    #[case::too_few("main@sha1:4f0e2a9c81d")]
    #[case::tag("v1.2.3")]
    fn anything_else_is_hashed_whole(#[case] revision: &str) {
        assert_eq!(Fingerprint::of(revision).value(), first_bytes(revision, 6));
    }

    #[test]
    fn zero_digits_are_still_a_revision() {
        assert_eq!(Fingerprint::of("000000000000").value(), 1);
        assert_eq!(Fingerprint::of(&"0".repeat(40)).value(), 1);
    }

    #[test]
    fn none_is_only_the_empty_revision() {
        assert!(Fingerprint::of("").is_none());
        assert_eq!(Fingerprint::NONE.to_string(), "-");
        assert!(Fingerprint::of_all(["", ""]).is_none());
        assert_eq!(Fingerprint::from_value(1 << 48), None);
    }

    #[test]
    fn several_revisions_are_one_and_their_order_counts() {
        assert_eq!(Fingerprint::of_all([COMMIT]), Fingerprint::of(COMMIT));
        assert_eq!(Fingerprint::of_all([COMMIT, ""]), Fingerprint::of(COMMIT));
        assert_eq!(Fingerprint::of_all(["a", "b"]).value(), first_bytes("a\nb", 6));
        assert_ne!(Fingerprint::of_all(["a", "b"]), Fingerprint::of_all(["b", "a"]));
    }

    proptest! {
        #[test]
        fn never_none_for_a_revision_and_exact_in_a_float(revision in "\\PC{1,80}|[0-9a-f]{12}|[0]{12}") {
            let f = Fingerprint::of(&revision);
            prop_assert!(!f.is_none() && f.value() <= MAX_48_BITS);
            prop_assert_eq!(f.value() as f64 as u64, f.value());
            prop_assert!(f.value().to_string().len() <= 15);
        }

        #[test]
        fn what_is_shown_can_be_pasted_back(revision in "\\PC{1,40}") {
            let f = Fingerprint::of(&revision);
            prop_assert_eq!(Fingerprint::of(&f.to_string()), f);
        }

        #[test]
        fn case_and_prefix_of_a_digest_do_not_matter(hex in "[0-9a-f]{64}", repo in "[a-z]{1,8}(:[a-z0-9]{1,5})?") {
            let f = Fingerprint::of(&hex);
            prop_assert_eq!(Fingerprint::of(&hex.to_uppercase()), f);
            prop_assert_eq!(Fingerprint::of(&format!("{repo}@sha256:{hex}")), f);
            prop_assert_eq!(Fingerprint::of(&hex[..40]), f);
            prop_assert_eq!(Fingerprint::of(&hex[..12]), f);
        }
    }
}

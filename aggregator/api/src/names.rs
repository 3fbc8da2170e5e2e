//! Names and label values that Kubernetes takes.

use statusbridge_contract::Fingerprint;

/// An enum whose variants are API: all of them, the name of each, and what it means, which is its documentation.
#[macro_export]
macro_rules! catalogue {
    ($(#[$attribute:meta])+ $catalogue:ident: $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[$attribute])+
        pub enum $catalogue {
            $($(#[doc = $doc])+ $name,)+
        }

        impl $catalogue {
            /// All of them, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name, as users see it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+)),+ }
            }
        }
    };
}
/// API group of every kind here.
pub const GROUP: &str = "statusbridge.dev";
/// The one API version there is.
pub const VERSION: &str = "v1alpha1";

/// Longest label value.
pub const LONGEST_LABEL: usize = 63;
/// Longest name of an object.
pub const LONGEST_NAME: usize = 253;

/// `text` if it has at most `most` bytes, else its beginning and a hash of all of it. What is a DNS
/// subdomain stays one.
pub fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { hashed(text, text, most) }
}

/// The beginning of `text`, a hyphen, and a hash of `whole`: at most `most` bytes.
pub fn hashed(text: &str, whole: &str, most: usize) -> String {
    // Marked, so that what looks like a fingerprint is hashed like anything else.
    let hash = Fingerprint::of(&format!("name {whole}")).to_string();
    let most = most.saturating_sub(hash.len() + 1).min(text.len());
    let beginning = (0..=most).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    match beginning.trim_end_matches(['-', '.']) {
        "" => hash,
        beginning => format!("{beginning}-{hash}"),
    }
}

/// Whether this is a DNS subdomain (RFC 1123), as names of most objects must be.
pub fn is_subdomain(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(letter)
            && bytes.last().copied().is_some_and(letter)
            && bytes.iter().all(|byte| letter(*byte) || *byte == b'-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_short_stays_as_it_is() {
        assert_eq!(shortened("payments", 63), "payments");
        assert_eq!(shortened(&"a".repeat(63), 63), "a".repeat(63));
    }

    #[test]
    fn what_differs_only_at_its_end_differs_when_shortened() {
        let (one, two) = (format!("{}1", "a".repeat(80)), format!("{}2", "a".repeat(80)));
        let (one, two) = (shortened(&one, 63), shortened(&two, 63));
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (63, 63));
    }

    proptest! {
        #[test]
        fn a_shortened_subdomain_is_a_subdomain(name in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?){0,20}", most in 13usize..120) {
            prop_assert!(is_subdomain(&name));
            let short = shortened(&name, most);
            prop_assert!(is_subdomain(&short) && short.len() <= most, "{}", short);
        }

        #[test]
        fn nothing_is_cut_within_a_character(text in "\\PC{0,40}", most in 0usize..60) {
            shortened(&text, most);
        }
    }
}

//! Names with wildcards.

use serde::Deserialize;

/// A name in which `*` stands for any run of characters, none included, and `?` for one character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Glob(String);

impl Glob {
    /// Whether it stands for this name as a whole.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // What follows the last `*`, and from where it was tried.
        let mut again = None;
        loop {
            let mut next = rest.clone();
            match pattern.next() {
                Some('*') => again = Some((pattern.clone(), rest.clone())),
                None if rest.as_str().is_empty() => return true,
                Some(wanted) if next.next().is_some_and(|found| wanted == '?' || wanted == found) => {
                    rest = next;
                }
                _ => {
                    let Some((after, from)) = &mut again else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after.clone(), from.clone());
                }
            }
        }
    }

    /// Whether it stands for every name there can be.
    pub(crate) fn is_everything(&self) -> bool {
        !self.0.is_empty() && self.0.chars().all(|c| c == '*')
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Glob {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("team-a", "team-a", true)]
    #[case("team-a", "team-ab", false)]
    #[case("team-a", "Team-a", false)]
    #[case("team-*", "team-", true)]
    #[case("team-*", "team-a/b", true)]
    #[case("team-*", "my-team-a", false)]
    #[case("*-prod", "eu-prod-prod", true)]
    #[case("*-prod", "eu-prod-2", false)]
    #[case("a*b*c", "a-b-b-c", true)]
    #[case("a*b*c", "a-c-b", false)]
    #[case("eu-?", "eu-ü", true)]
    #[case("eu-?", "eu-", false)]
    #[case("*", "", true)]
    #[case("", "", true)]
    #[case("", "a", false)]
    #[case("[ab]", "a", false)]
    #[case("[ab]", "[ab]", true)]
    fn matching(#[case] glob: &str, #[case] name: &str, #[case] expected: bool) {
        assert_eq!(Glob::from(glob).matches(name), expected);
    }

    /// The definition, word by word.
    fn defined(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(('*', rest)), _) => (0..=name.len()).any(|skip| defined(rest, &name[skip..])),
            (Some((wanted, rest)), Some((found, tail))) => {
                (*wanted == '?' || wanted == found) && defined(rest, tail)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn it_is_what_it_is_defined_to_be(pattern in "[ab*?é]{0,7}", name in "[abé]{0,8}") {
            let of = |text: &str| text.chars().collect::<Vec<char>>();
            prop_assert_eq!(Glob::from(pattern.as_str()).matches(&name), defined(&of(&pattern), &of(&name)));
        }
    }

    #[test]
    fn hostile_patterns_end() {
        let pattern = Glob::from("*a".repeat(100).as_str());
        assert!(!pattern.matches(&"a".repeat(99)));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(20_000))));
    }
}

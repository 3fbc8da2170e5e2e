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

    /// A name for which this one and another one stand, if there is any.
    pub(crate) fn common(&self, other: &Self) -> Option<String> {
        let [left, right] = [self, other].map(|glob| glob.0.chars().collect::<Vec<char>>());
        // For each pair of places, from the end to the beginning: how a common name goes on from there, if there is one.
        // No way takes a `*` for a character: where such a way is open, one of the first two is.
        let (rows, columns) = (left.len() + 1, right.len() + 1);
        let mut next: Vec<Option<(usize, Option<char>)>> = vec![None; rows * columns];
        for at in (0..rows * columns).rev() {
            let (i, j) = (at / columns, at % columns);
            let is_open = |at: usize| at == rows * columns - 1 || next.get(at).is_some_and(Option::is_some);
            let step = match (left.get(i), right.get(j)) {
                (Some('*'), _) if is_open(at + columns) => Some((at + columns, None)),
                (_, Some('*')) if is_open(at + 1) => Some((at + 1, None)),
                (Some('*'), Some(c)) if is_open(at + 1) => Some((at + 1, Some(*c))),
                (Some(c), Some('*')) if is_open(at + columns) => Some((at + columns, Some(*c))),
                (Some(a), Some(b)) if (a == b || *a == '?' || *b == '?') && is_open(at + columns + 1) => {
                    Some((at + columns + 1, Some(if *a == '?' { *b } else { *a })))
                }
                _ => None,
            };
            if let Some(place) = next.get_mut(at) {
                *place = step;
            }
        }
        let (mut name, mut at) = (String::new(), 0);
        while at != rows * columns - 1 {
            let (to, c) = (*next.get(at)?)?;
            name.extend(c);
            at = to;
        }
        Some(name)
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

/// Whether one of these stands for a name.
pub(crate) fn any(globs: &[Glob], name: &str) -> bool {
    globs.iter().any(|glob| glob.matches(name))
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

    proptest! {
        #[test]
        fn two_have_a_name_in_common_if_any_short_one_is(left in "[ab*?]{0,5}", right in "[ab*?]{0,5}") {
            let [one, other] = [&left, &right].map(|text| Glob::from(text.as_str()));
            let common = one.common(&other);
            if let Some(name) = &common {
                prop_assert!(one.matches(name) && other.matches(name), "{name:?}");
            }
            let mut names = vec![String::new()];
            for at in 0.. {
                let Some(name) = names.get(at).cloned() else { break };
                prop_assert!(common.is_some() || !one.matches(&name) || !other.matches(&name), "{name:?}");
                if name.len() < 7 {
                    names.extend(["a", "b"].map(|c| name.clone() + c));
                }
            }
        }
    }

    #[test]
    fn hostile_patterns_end() {
        let pattern = Glob::from("*a".repeat(100).as_str());
        assert!(!pattern.matches(&"a".repeat(99)));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(20_000))));
    }
}

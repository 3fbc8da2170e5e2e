//! Why an exporter could not be scraped, and what of that is told in a status.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;

use statusbridge_core::sample::excerpt;

use super::Id;

/// Longest text that is told, in bytes.
const LONGEST: usize = 120;

/// Why a scrape came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In a few words, which are the same as long as it fails in the same way.
    pub brief: String,
    /// All that is known, for a log.
    pub text: String,
}

impl Failure {
    pub(super) fn new(brief: impl Into<String>, text: impl Into<String>) -> Self {
        Self { brief: excerpt(&brief.into(), LONGEST), text: text.into() }
    }

    /// What is short anyway.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(text.clone(), text)
    }

    /// An error of which the innermost cause says enough.
    pub(super) fn of(error: &dyn Error, text: String) -> Self {
        let mut cause = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let cause = cause.to_string();
        let cause = cause.split(" (os error").next().unwrap_or_default();
        let mut letters = cause.chars();
        // `Connection refused`, but `HTTP` and `UnknownIssuer`.
        let brief = match (letters.next(), letters.clone().next()) {
            (Some(first), Some(second)) if second.is_lowercase() && cause.contains(' ') => {
                first.to_lowercase().chain(letters).collect()
            }
            _ => cause.to_owned(),
        };
        Self::new(brief, text)
    }
}

/// The exporters that fail, and what was told of each.
#[derive(Debug, Default)]
pub(super) struct Failing(HashMap<Id, Told>);

#[derive(Debug)]
struct Told {
    said: String,
    /// Another reason, which came last time.
    other: Option<String>,
}

impl Failing {
    /// Whether an exporter failed last time.
    pub(super) fn contains(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }

    /// An exporter failed. Gives what has to be told now: another reason than was told only when it comes twice, so
    /// that an exporter which fails now in this way and now in that is not told of each time.
    pub(super) fn failed(&mut self, id: &Id, why: String) -> Option<String> {
        match self.0.get_mut(id) {
            None => {
                self.0.insert(id.clone(), Told { said: why.clone(), other: None });
                Some(why)
            }
            Some(told) if told.said == why => {
                told.other = None;
                None
            }
            Some(told) if told.other.as_ref() == Some(&why) => {
                *told = Told { said: why.clone(), other: None };
                Some(why)
            }
            Some(told) => {
                told.other = Some(why);
                None
            }
        }
    }

    /// An exporter answered. Whether it had failed.
    pub(super) fn answered(&mut self, id: &Id) -> bool {
        self.0.remove(id).is_some()
    }

    /// Forgets all but these; gives those that were forgotten.
    pub(super) fn keep(&mut self, ids: &BTreeSet<Id>) -> Vec<Id> {
        self.0.extract_if(|id, _| !ids.contains(id)).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id {
        ("c".to_owned(), "http://c/".to_owned())
    }

    #[test]
    fn another_reason_is_told_when_it_lasts() {
        let mut failing = Failing::default();
        let mut failed = |why: &str| failing.failed(&id(), why.to_owned());
        let told: Vec<bool> = ["refused", "refused", "late", "refused", "late", "late", "late"]
            .map(|why| failed(why).is_some())
            .into();
        assert_eq!(told, [true, false, false, false, false, true, false]);
        assert!(failing.answered(&id()) && !failing.answered(&id()) && !failing.contains(&id()));
    }

    #[test]
    fn what_is_no_longer_scraped_is_forgotten() {
        let mut failing = Failing::default();
        failing.failed(&id(), "refused".to_owned());
        assert!(failing.keep(&[id()].into()).is_empty());
        assert_eq!(failing.keep(&BTreeSet::new()), [id()]);
        assert!(!failing.contains(&id()));
    }

    #[test]
    fn a_reason_is_short_and_the_same_each_time() {
        let refused = std::io::Error::from_raw_os_error(111);
        let failure = Failure::of(&refused, "all of it".to_owned());
        assert_eq!((failure.brief.as_str(), failure.text.as_str()), ("connection refused", "all of it"));
        assert!(Failure::plain("x".repeat(1000)).brief.len() <= LONGEST + '…'.len_utf8());
    }
}

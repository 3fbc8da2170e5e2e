//! Checks on application metrics: which queries there are, and what the backend says to them.
//!
//! ```text
//!   gates that only wait for their checks --resolve--> queries, each once
//!       --at the poll's T, a round for each namespace, so many at a time--> Answers --> decide
//! ```
//!
//! An answer is evidence of its T: it ages like what a cluster says, and what is not a whole,
//! unreserved answer is a failure.

pub mod answer;
mod rounds;
pub mod template;
mod together;
use together::put_together;

use std::collections::{BTreeSet, HashMap};

pub use answer::Answer;
pub use rounds::{Round, Rounds};
pub use template::{Asking, Templates, resolve};

use crate::time::Seconds;

/// What the backend said to one query, or why that cannot be used.
pub type Said = Result<Answer, Fault>;

/// Why nothing can be made of what the backend said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It gave no usable answer, in its own words: these may speak of more than the query does.
    #[error("{0}")]
    Backend(String),
    /// It knows nothing of what is asked.
    #[error("no data")]
    NoData,
    /// The answer is not what a check can use.
    #[error("{0}")]
    Answer(String),
    /// It was not asked, as the answers to others fill the room of the namespace.
    #[error(
        "the checks of this namespace have more than {MOST_VALUES} values together: ask for fewer clusters, or have fewer checks"
    )]
    NoRoom,
}

/// Most queries of a round: the others are asked in later ones.
const MOST: usize = 500;
/// Most values that are kept of what a backend says to the queries of one namespace.
const MOST_VALUES: usize = 100_000;

/// What the backend last said to queries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// By the query's text, with the time for which it was asked, in the backend's clock.
    pub said: HashMap<String, (Seconds, Said)>,
}

/// What the backend said to one query, and when.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The time for which it was asked, in the backend's clock.
    pub at: Seconds,
    /// What it said.
    pub said: &'a Said,
}

impl Answers {
    /// What was said to a query, if it was asked.
    pub fn get(&self, query: &str) -> Option<Answered<'_>> {
        self.said.get(query).map(|(at, said)| Answered { at: *at, said })
    }

    /// How many values are kept of what was said to these queries.
    fn values<'a>(&self, queries: impl IntoIterator<Item = &'a String>) -> usize {
        queries.into_iter().filter_map(|query| self.get(query)?.said.as_ref().ok().map(Answer::values)).sum()
    }

    /// Takes in an answer. The words of the backend where it gives no usable one, unlike before.
    pub fn take(&mut self, query: &str, at: Seconds, said: Said) -> Option<&str> {
        let before = self.said.insert(query.to_owned(), (at, said));
        match self.said.get(query) {
            Some((_, said @ Err(Fault::Backend(words)))) if before.is_none_or(|(_, it)| it != *said) => {
                Some(words)
            }
            _ => None,
        }
    }

    /// Those of these queries to ask now, in this order: those that were asked longest ago first; of these,
    /// those that failed last, so that they keep no others waiting.
    pub fn next_round(&self, queries: BTreeSet<String>) -> Vec<String> {
        let mut queries: Vec<String> = queries.into_iter().collect();
        queries.sort_by(|a, b| {
            let turn = |query| self.get(query).map_or((Seconds::MIN, false), |it| (it.at, it.said.is_err()));
            let ((a, a_failed), (b, b_failed)) = (turn(a), turn(b));
            a.total_cmp(&b).then(a_failed.cmp(&b_failed))
        });
        queries.truncate(MOST);
        queries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_backend_are_told_when_they_are_others_than_before() {
        let mut answers = Answers::default();
        let words = |words: &str| Err(Fault::Backend(words.to_owned()));
        for (said, told) in [
            (words("full"), Some("full")),
            (words("full"), None),
            (words("gone"), Some("gone")),
            (Ok(Answer::One(1.0)), None),
            (Err(Fault::NoData), None),
            (words("gone"), Some("gone")),
        ] {
            assert_eq!(answers.take("q", 1.0, said.clone()), told, "{said:?}");
        }
    }
}

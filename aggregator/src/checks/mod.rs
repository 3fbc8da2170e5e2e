//! Checks on application metrics: which queries there are, and what the backend says to them.
//!
//! ```text
//!   gates that only wait for their checks --resolve--> queries, each once
//!       --at the poll's T, so many at a time--> Answers --> decide
//! ```
//!
//! An answer is evidence of its T: it ages like what a cluster says, and what is not a whole,
//! unreserved answer is a failure.

pub mod answer;
pub mod ask;
pub mod template;
mod together;

use std::collections::{BTreeSet, HashMap};

pub use answer::Answer;
pub use ask::Asker;
pub use template::{Templates, resolve};
pub use together::put_together;

use crate::clock::Seconds;

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
}

/// What the backend said to the queries of one round, all asked at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// The time for which they were asked, in the backend's clock.
    pub at: Seconds,
    /// By the query's text.
    pub said: HashMap<String, Said>,
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
        self.said.get(query).map(|said| Answered { at: self.at, said })
    }

    /// Queries to which the backend now gives no usable answer, unlike `before`, and its own words.
    pub fn new_faults<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.said.iter().filter_map(|(query, said)| match said {
            Err(Fault::Backend(words)) if before.said.get(query) != Some(said) => {
                Some((query.as_str(), words.as_str()))
            }
            _ => None,
        })
    }

    /// Queries in the order in which to ask them the next time: those that failed this time last, so
    /// that they keep nobody waiting.
    pub fn failed_last(&self, queries: BTreeSet<String>) -> Vec<String> {
        let failed = |query: &String| self.said.get(query).is_some_and(Result::is_err);
        let (last, mut all): (Vec<_>, Vec<_>) = queries.into_iter().partition(failed);
        all.extend(last);
        all
    }
}

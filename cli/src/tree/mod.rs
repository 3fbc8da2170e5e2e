//! Trees of lines for people: what there is, how it is, and what belongs to it.
//!
//! ```text
//!   gates, FleetRollouts ─(of_gate, of_rollout)─> Branch ─(fit)─> lines of a terminal
//!                                                   └────(news)─> a line for each change
//! ```

mod fit;
mod news;
mod of_gate;
mod of_rollout;

pub(crate) use fit::{Size, fit, whole};
pub(crate) use news::News;
pub(crate) use of_gate::{of_gate, problems};
pub(crate) use of_rollout::{age, of_rollout};

use crate::text::Colour;

/// Most letters of a line where no terminal says how wide it is.
const LONGEST_LINE: usize = 1000;

/// A thing, and what belongs to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// What it is called; no two beside each other are called the same.
    pub(crate) name: String,
    /// How it is, in a word.
    pub(crate) state: Option<(&'static str, Option<Colour>)>,
    /// What else is told of it.
    pub(crate) text: String,
    /// What changes all the time, such as ages, and is no news.
    pub(crate) ages: String,
    /// Whether nobody has to look at it any more.
    pub(crate) is_done: bool,
    /// How its end is told; empty where it is not.
    pub(crate) end: &'static str,
    pub(crate) branches: Vec<Branch>,
}

impl Branch {
    /// A branch that only tells something.
    pub(crate) fn told(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), text, ..Self::default() }
    }

    /// Whether nobody has to look at it, nor at anything that belongs to it.
    fn is_all_done(&self) -> bool {
        self.is_done && self.branches.iter().all(|branch| branch.is_all_done() || branch.state.is_none())
    }
}

#[cfg(test)]
mod tests;

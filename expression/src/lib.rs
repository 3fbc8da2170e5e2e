//! Expressions on Kubernetes objects, in the Common Expression Language: compiled once, run on every
//! version of an object, never able to crash and bounded in what they cost and give.
//!
//! ```text
//!   text ──Expression::compile──> Expression ──truth/text_of/…──> plain data | EvaluationError
//!                 │                   │
//!                 │                   └──tree──> what was parsed, to find out which fields it reads
//!                 └──bounded──> the tree that runs, which counts its steps (budget)
//! ```

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

mod bounded;
mod budget;
mod environment;
mod equality;
mod expression;
#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "testing"))]
pub mod hostile_yaml;
mod library;
mod outcome;
mod value;
pub mod yaml;

pub use bounded::OBJECT;
pub use expression::{EvaluationError, Expression, MAX_MESSAGE, Scope, children, cut};
pub use library::{MAP_OF_MAPS, MAP_OF_PAIRS, has_namespace};
pub use outcome::{Item, MAX_REASON, MAX_REVISION};

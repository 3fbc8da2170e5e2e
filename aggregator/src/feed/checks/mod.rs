//! Asks backends the queries of checks, a round for each namespace.

mod ask;
mod elements;
mod rounds;

pub use ask::{Asked, Asker};
pub use rounds::{Ended, Rounds};

//! Aggregator library.
pub mod clock;
pub mod fleet;

//! Aggregator library.
pub mod api;
pub mod clock;
pub mod decide;
pub mod feed;
pub mod fleet;
#[cfg(test)]
mod testing;
pub mod verify;

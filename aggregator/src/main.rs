//! Aggregator.
fn main() {}

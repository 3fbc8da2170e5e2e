//! Aggregator library.

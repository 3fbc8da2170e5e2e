//! Exporter library.

pub mod hold;
pub mod transition;
pub mod verdict;

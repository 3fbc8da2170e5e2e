//! Exporter library.

pub mod expression;
pub mod hold;
pub mod projection;
pub mod transition;
pub mod verdict;

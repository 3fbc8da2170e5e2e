//! Exporter library.

pub mod evaluate;
pub mod expression;
pub mod hold;
pub mod kstatus;
pub mod preset;
pub mod projection;
pub mod source;
pub mod transition;
pub mod verdict;

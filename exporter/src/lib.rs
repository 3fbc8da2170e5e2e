//! Exporter library.

pub mod catalog;
pub mod check;
pub mod evaluate;
pub mod exposition;
pub mod expression;
pub mod hold;
pub mod kstatus;
pub mod objects;
pub mod preset;
pub mod projection;
pub mod rbac;
pub mod replay;
pub mod serve;
pub mod source;
pub mod store;
pub mod transition;
pub mod verdict;
mod yaml;

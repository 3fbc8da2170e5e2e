//! Exporter library.

pub mod catalog;
pub mod check;
pub mod engine;
pub mod evaluate;
pub mod exposition;
pub mod expression;
pub mod hold;
pub mod kstatus;
pub mod kstatus_command;
pub mod leaves;
pub mod objects;
pub mod own_metrics;
pub mod preset;
pub mod projection;
pub mod rbac;
pub mod reload;
pub mod replay;
pub mod serve;
pub mod server;
pub mod source;
pub mod store;
pub mod transition;
pub mod verdict;
pub mod watch;
mod yaml;

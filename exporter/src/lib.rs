//! Exporter library.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod catalog;
pub mod clock;
pub mod engine;
pub mod evaluate;
pub mod exposition;
pub mod footprint;
pub mod gzip;
pub mod hold;
pub mod kstatus;
pub mod leaves;
pub mod objects;
pub mod own_metrics;
pub mod preset;
pub mod projection;
pub mod push;
pub mod reload;
pub mod replay;
pub mod row;
pub mod serve;
pub mod soak;
pub mod source;
pub mod store;
mod table;
pub mod verdict;
pub mod watch;

//! What the aggregator decides, as pure functions over plain data: no I/O, and time is passed in.
//!
//! ```text
//!   samples ──verify──> content ──fleet──> observation of a package in a cluster
//!                                               │
//!   FleetPackages, RolloutGates ──reconcile──> decide ──> statuses to write
//! ```
//!
//! | room | holds |
//! |---|---|
//! | [`time`], [`sample`], [`glob`] | the words that all others share |
//! | [`verify`] | whether the samples of one scrape add up to their digest |
//! | [`exposition`] | the same of a text that an exporter rendered |
//! | [`fleet`] | what each cluster last proved, and how old that is |
//! | [`checks`] | queries on application metrics, and their answers |
//! | [`decide`] | from targets and spec to a status |
//! | [`reconcile`] | from all objects of the hub and the fleet to what must be written |

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

pub mod checks;
pub mod decide;
pub mod exposition;
pub mod fleet;
#[cfg(test)]
mod fuzz;
pub mod glob;
pub mod reconcile;
pub mod sample;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod verify;

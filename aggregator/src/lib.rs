//! The aggregator's process: it carries evidence and objects to the core, and what the core decides to the hub.
//!
//! ```text
//!   metrics backends, exporters ──feed──> ┌───────┐
//!                                         │ serve │ <──> statusbridge-core
//!   hub's API server <────────hub───────> └───────┘
//! ```
//!
//! | room | holds |
//! |---|---|
//! | [`feed`] | how evidence comes: queries of a backend, scrapes, pushes |
//! | [`hub`] | watches, writes, Leases, heartbeat and sweeper |
//! | [`serve`] | the loop, its HTTP endpoints, metrics and configuration |
//! | `notify` | messages to webhooks and forges |
//! | [`gate_cache`], [`metrics`], [`health`] | what all others tell of gates, of themselves, and whether they work |
//! | [`clock`] | this machine's clocks |

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

/// Histories of the model allocate all the time.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod clock;
pub mod feed;
#[cfg(test)]
mod fuzz;
pub mod gate_cache;
pub mod health;
pub mod hub;
pub mod metrics;
#[cfg(test)]
mod model;
mod notify;
pub mod serve;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

//! What is shown of packages: evaluated from what watches hear, held, vouched for, and kept as rows with their digest.

mod digests;
mod engine;
mod gzip;
mod hold;
mod row;
mod soak;
mod store;
mod table;

pub(crate) use engine::{Command, Engine, Entry, SharedPublished};
pub(crate) use gzip::{Packer, Stream};
pub(crate) use row::Block;
pub use soak::Shown;
pub(crate) use soak::is_news;
pub(crate) use store::Publisher;
pub use store::{Limits, Snapshot};
#[cfg(test)]
pub(crate) use store::{SourceStanding, Store};

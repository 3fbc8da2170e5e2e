//! What is shown of packages: evaluated from what watches hear, held, vouched for, and kept as rows with their digest.

mod engine;
mod gzip;
pub mod hold;
mod row;
pub mod soak;
mod store;
mod table;

pub use engine::Command;
pub(crate) use engine::{Engine, Entry, SharedPublished};
pub use gzip::{Packer, Stream};
pub use row::Block;
pub use store::{Limits, Publisher, Slot, Snapshot, SourceStanding, Store};

//! Watching kinds of objects: what the engine hears of each is a lean object, a deletion, or that a
//! list of all of them begins or is complete.
//!
//! ```text
//!   discovery ──path──> Watcher ──connection──> event ──Update──> engine
//!       └──kinds of a category──> find ────────────────Found────────┘ ↑
//!                                 read ────────────────Update─────────┘
//! ```
//!
//! This is a watch loop of our own, on top of kube's client, because three things are needed that
//! `kube::runtime::watcher` does not give: the engine is told when a watch has kept up, objects are parsed
//! lean with the sources' projection, and a server that refuses streaming lists is read with LIST.

mod answer;
mod contact;
mod discovery;
mod event;
mod fault;
mod finder;
mod key;
mod path;
mod progress;
mod read;
#[cfg(test)]
mod tests;
mod update;
mod watcher;

pub use contact::Contact;
pub use discovery::Discovery;
pub use fault::Fault;
pub use finder::find;
pub use key::PackageKey;
pub use read::read;
pub use update::{Change, Event, ReadRequest, Reading, Update};
pub(crate) use update::{KindId, SourceId};
pub use watcher::{Watcher, WatcherSettings};

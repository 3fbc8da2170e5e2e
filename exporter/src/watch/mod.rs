//! Watching kinds of objects: what the engine hears of each is a lean object, a deletion, or that a
//! list of all of them begins or is complete.
//!
//! ```text
//!   discovery ──path──> Watcher ──connection──> event ──Update──> engine
//! ```
//!
//! This is a watch loop of our own, on top of kube's client, because three things are needed that
//! `kube::runtime::watcher` does not give: bookmarks count as being heard from, objects are parsed
//! lean with the sources' projection, and a server that refuses streaming lists is read with LIST.

mod contact;
mod discovery;
mod event;
mod fault;
mod watcher;

pub use contact::Contacts;
pub use discovery::Discovery;
pub use fault::Fault;
pub use watcher::{Watcher, WatcherSettings};

use serde_json::Value;

use crate::store::PackageKey;

/// Index of a kind among all that are watched.
pub type KindId = usize;

/// What was heard of one kind.
#[derive(Debug)]
pub enum Change {
    /// A list of all objects begins; what it does not name before [`Change::ListDone`] is gone.
    ListStarted,
    /// An object as it is now, lean.
    Object(PackageKey, Value),
    /// An object is gone.
    Deleted(PackageKey),
    /// The list is complete.
    ListDone,
    /// The kind is not served (any more): there are no objects of it.
    Absent,
}

/// A change and the kind that it is about.
#[derive(Debug)]
pub struct Update {
    /// Which kind.
    pub kind: KindId,
    /// What was heard.
    pub change: Change,
}

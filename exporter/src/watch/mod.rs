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
mod path;
mod progress;
mod read;
mod watcher;

pub use contact::Contact;
pub use discovery::Discovery;
pub use fault::Fault;
pub use finder::find;
pub use read::read;
pub use watcher::{Watcher, WatcherSettings};

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{Reading, SourceId},
    source::{KindRef, Source},
    store::PackageKey,
};

/// Index of a kind among all that are watched.
pub type KindId = usize;

/// What was heard of one kind.
#[derive(Debug)]
pub enum Change {
    /// A list of all objects begins; what it does not name before [`Change::ListDone`] is gone.
    ListStarted {
        /// By how many milliseconds the API server's clock is ahead of the `run` clock at least, where it says so.
        server: Option<i64>,
        /// The API server has gone back in time: versions that were known before say nothing.
        restored: bool,
    },
    /// An object as it is now, lean.
    Object(PackageKey, Value),
    /// An object is gone.
    Deleted(PackageKey),
    /// The list is complete.
    ListDone,
    /// The kind is not served (any more): there are no objects of it.
    Absent,
    /// The kind may not be read; says which permission is missing.
    Forbidden(String),
    /// All that the API server had to tell at this time (milliseconds by the `boot` clock) came before this.
    Contact(i64),
    /// The answer to a read beside the watch.
    Read {
        /// What was to be read.
        reading: Reading,
        /// What there is of it.
        objects: Vec<(PackageKey, Value)>,
        /// When it was asked for, as the engine counts.
        asked: u64,
    },
}

/// Something for the engine.
#[derive(Debug)]
pub enum Event {
    /// Something was heard of a kind.
    Heard(Update),
    /// The kinds of a source by categories.
    Found {
        /// Which source.
        source: SourceId,
        /// Those that are served now; `None` when they are what they were.
        kinds: Option<Vec<KindRef>>,
        /// When they were asked for, in milliseconds by the `boot` clock.
        at: i64,
    },
    /// The sources to use from now on.
    Sources(Vec<Arc<Source>>),
}

/// A change and the kind that it is about.
#[derive(Debug)]
pub struct Update {
    /// Which kind.
    pub kind: KindId,
    /// What was heard.
    pub change: Change,
}

//! What the engine hears of watches, and what it has read beside them.

use std::sync::Arc;

use serde_json::Value;

use super::key::PackageKey;
use crate::source::{KindRef, Projection, Source};

/// Index of a kind among all that are watched.
pub(crate) type KindId = usize;

/// Index of a source; never used again for another one.
pub(crate) type SourceId = usize;

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

/// Which objects to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The kind.
    pub kind: KindId,
    /// The same.
    pub of: KindRef,
    /// What to keep of the objects.
    pub projection: Projection,
    /// Which of them.
    pub reading: Reading,
    /// When it was asked, as the engine counts; to be given back.
    pub asked: u64,
}

/// Some or all objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// One, by its name.
    Object(PackageKey),
    /// Those that have a label.
    Labelled {
        /// Name of the label.
        label: Box<str>,
        /// Its value.
        value: Box<str>,
    },
    /// All of them.
    All,
}

impl Reading {
    /// Whether it is about an object of its kind.
    pub(crate) fn is_of(&self, key: &PackageKey, object: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Object(wanted) => wanted == key,
            Self::Labelled { label, value } => {
                let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
                labels.and_then(|labels| labels.get(&**label)).and_then(Value::as_str) == Some(&**value)
            }
        }
    }
}

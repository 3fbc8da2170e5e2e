//! What the engine wants done: everything that needs the API server.

use crate::{
    projection::Projection,
    source::KindRef,
    store::PackageKey,
    watch::{Contact, KindId},
};

/// Index of a source; never used again for another one.
pub type SourceId = usize;

/// Something to do.
#[derive(Debug)]
pub enum Command {
    /// Watch all objects of a kind.
    Watch {
        /// What to call it in updates.
        kind: KindId,
        /// The kind; without versions, whichever version the server prefers.
        of: KindRef,
        /// What to keep of its objects.
        projection: Projection,
        /// What it is to say when something is heard.
        contact: Contact,
    },
    /// Nobody needs a kind any more.
    Unwatch(KindId),
    /// Find the kinds of these categories, again and again.
    Find {
        /// For which source.
        source: SourceId,
        /// The categories.
        categories: Vec<String>,
    },
    /// A source no longer needs its kinds found.
    StopFinding(SourceId),
    /// Read objects of a watched kind, as they are now.
    Read(ReadRequest),
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

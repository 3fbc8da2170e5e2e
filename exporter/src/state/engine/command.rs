//! What the engine wants done: everything that needs the API server.

use crate::{
    source::{KindRef, Projection},
    watch::{Contact, KindId, ReadRequest, SourceId},
};

/// Something to do.
#[derive(Debug)]
pub(crate) enum Command {
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

//! What follows from an update and is still to be done.

use super::key::Key;
use crate::{state::soak::Known, watch::SourceId};

/// A piece of work.
#[derive(Debug)]
pub(super) enum Due {
    /// A package of a source is to be evaluated as it was last heard.
    Evaluate(SourceId, Key, Known),
    /// A list that a source needs has moved on.
    Refresh(SourceId),
    /// The packages of a source have been evaluated for the first time: it may be ready to be seen.
    Reveal(SourceId),
}

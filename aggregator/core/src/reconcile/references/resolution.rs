//! What a reference comes to.

use statusbridge_api::Reason;

use crate::decide::Obstacle;

/// What a reference comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Resolution {
    /// The object has not been read yet, or its expression not been evaluated.
    #[default]
    Pending,
    /// The revision that is wanted.
    Revision(String),
    /// None can be had.
    Unresolved(Obstacle),
}

pub(super) fn unresolved(reason: Reason, stalled: bool, message: &str) -> Resolution {
    Resolution::Unresolved(Obstacle { reason, stalled, message: format!("revisionFrom: {message}") })
}

//! How far the list of a kind is.

/// How much of a kind is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Nothing yet.
    Unheard,
    /// A first list is being read.
    First,
    /// All objects are known.
    Complete,
    /// There is no such kind.
    Absent,
}

//! The time that a poll looks at.

use statusbridge_core::time::Seconds;

/// The time that is looked at: from so long before `t` on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Window {
    pub(super) t: Seconds,
    pub(super) span: Seconds,
    /// The present.
    pub(super) now: Seconds,
    /// Later stamps are not believed.
    pub(super) believed: Seconds,
    /// Number of this poll, and of the last good one.
    pub(super) poll: u64,
    pub(super) last: Option<u64>,
}

/// Backends keep milliseconds.
pub(super) fn milliseconds(at: Seconds) -> i64 {
    (at * 1000.0).round() as i64
}

/// The same in seconds.
pub(super) fn seconds(stamp: i64) -> Seconds {
    stamp as Seconds / 1000.0
}

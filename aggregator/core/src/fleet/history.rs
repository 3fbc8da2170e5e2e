//! What is remembered about a package besides what was verified last.

use statusbridge_contract::Fingerprint;

use crate::time::Seconds;
use crate::verify::Package;

/// Memory of one package in one stream. Times are the backend's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct History {
    /// Applied revision before the present one.
    pub(super) previously_applied: Fingerprint,
    /// The last verified exposition that said otherwise came then; negative infinity when none did.
    pub(super) otherwise_at: Seconds,
}

impl Default for History {
    fn default() -> Self {
        Self { previously_applied: Fingerprint::NONE, otherwise_at: Seconds::NEG_INFINITY }
    }
}

impl History {
    /// After a package that was `old`, as it was last verified at `then`, was verified to be `new`.
    pub(super) fn next(self, old: &Package, then: Seconds, new: &Package) -> Self {
        let (was, is) = (old.applied(), new.applied());
        Self {
            previously_applied: if was != is && !was.is_none() { was } else { self.previously_applied },
            otherwise_at: if old.same_state(new) { self.otherwise_at } else { self.otherwise_at.max(then) },
        }
    }
}

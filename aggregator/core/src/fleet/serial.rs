//! Numbers of which none comes twice in a process.

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// A number greater than all before it.
pub(crate) fn next() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

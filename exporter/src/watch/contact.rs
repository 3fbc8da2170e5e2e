//! When a watch last kept up with its API server.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// When everything that the API server had told of one kind had been taken in, for the last time. Shared between the
/// engine, which notes it, and scrapes.
#[derive(Debug, Clone, Default)]
pub struct Contact(Arc<AtomicI64>);

impl Contact {
    /// Everything up to `at` (milliseconds by the `boot` clock) has been taken in.
    pub fn note(&self, at: i64) {
        self.0.fetch_max(at, Ordering::Relaxed);
    }

    /// Up to when everything has been taken in, in milliseconds by the `boot` clock; `None` before the first contact.
    pub fn at(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }
}

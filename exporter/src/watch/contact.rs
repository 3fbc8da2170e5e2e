//! When a watch was last heard from, by a clock that nobody sets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The last contact with one kind, shared between its watch and scrapes.
#[derive(Debug, Clone)]
pub struct Contact(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// Milliseconds after `start`, plus one; 0 = never.
    last: AtomicU64,
}

impl Default for Contact {
    /// No contact yet.
    fn default() -> Self {
        Self(Arc::new(Inner { start: Instant::now(), last: AtomicU64::new(0) }))
    }
}

impl Contact {
    /// Something was heard now.
    pub fn touch(&self) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.last.store(millis + 1, Ordering::Relaxed);
    }

    /// How long ago something was last heard; `None` when nothing ever was.
    pub fn age(&self) -> Option<Duration> {
        let last = self.0.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.0.start.elapsed().saturating_sub(Duration::from_millis(last)))
    }
}

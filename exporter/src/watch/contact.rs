//! When each watch was last heard from, by a clock that nobody sets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::KindId;

/// Last contacts of all kinds, shared between watches and scrapes.
#[derive(Debug, Clone)]
pub struct Contacts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// Milliseconds after `start`, plus one; 0 = never.
    last: Vec<AtomicU64>,
}

impl Contacts {
    /// No contact yet with any of `kinds` kinds.
    pub fn new(kinds: usize) -> Self {
        let last = (0..kinds).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { start: Instant::now(), last }))
    }

    /// A kind was heard from now.
    pub fn touch(&self, kind: KindId) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.last[kind].store(millis + 1, Ordering::Relaxed);
    }

    /// How long ago a kind was last heard from; `None` when it never was.
    pub fn age(&self, kind: KindId) -> Option<Duration> {
        let last = self.0.last[kind].load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.0.start.elapsed().saturating_sub(Duration::from_millis(last)))
    }
}

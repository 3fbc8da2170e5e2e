//! Whether this process is alive and has what it needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether the main loop is alive and has what it needs.
pub struct Health {
    ready: AtomicBool,
    last: Mutex<Instant>,
    patience: Duration,
}

impl Health {
    /// Alive now, not ready yet; no longer alive when nothing is heard for `patience`.
    pub fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self { ready: AtomicBool::new(false), last: Mutex::new(Instant::now()), patience })
    }

    /// How long it may be silent.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The main loop goes round.
    pub fn alive(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// It has, or has not, what it needs.
    pub fn ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Whether it has what it needs.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Whether the main loop went round lately.
    pub(crate) fn is_alive(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < self.patience
    }
}

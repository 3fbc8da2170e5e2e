//! Whether a watch keeps up with its API server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long what was heard may wait to be taken in, in milliseconds: by then what is shown may be out of date.
const BEHIND: i64 = 8_000;

/// When everything that the API server had told of one kind had been taken in, for the last time, and what has waited
/// since. Shared between the watch, the engine and scrapes; all times are milliseconds by the `boot` clock.
#[derive(Debug, Clone, Default)]
pub struct Contact(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    last: Option<i64>,
    /// When something was heard last.
    heard: i64,
    /// Since when something has been waiting.
    waiting: Option<i64>,
}

impl Contact {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API server has told something.
    pub fn hear(&self, at: i64) {
        let mut times = self.times();
        times.heard = at;
        times.waiting.get_or_insert(at);
    }

    /// Everything up to `at` has been taken in.
    pub fn note(&self, at: i64) {
        let mut times = self.times();
        times.last = times.last.max(Some(at));
        if times.waiting.is_some_and(|since| since <= at) {
            times.waiting = (times.heard > at).then_some(at);
        }
    }

    /// The connection has ended at `at`. What came on it was taken in, unless that had taken long already.
    pub fn end(&self, at: i64) {
        let mut times = self.times();
        times.waiting = times.waiting.filter(|since| at - since > BEHIND / 2);
    }

    /// Whether something has been waiting for too long at `at`.
    pub(crate) fn is_behind(&self, at: i64) -> bool {
        self.times().waiting.is_some_and(|since| at - since > BEHIND)
    }

    /// Up to when everything has been taken in; `None` before the first contact.
    pub fn at(&self) -> Option<i64> {
        self.times().last
    }
}

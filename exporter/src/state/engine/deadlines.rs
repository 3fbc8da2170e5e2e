//! When packages are looked at though nothing is heard of them. Each has one such time at most, so that what waits costs
//! as much as there are packages, however often they change.

use std::collections::BTreeSet;

use super::key::Key;
use crate::watch::SourceId;

/// See the [module](self). Times are in milliseconds by the `boot` clock.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(i64, SourceId, Key)>);

impl Deadlines {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<i64> {
        self.0.first().map(|(at, ..)| *at)
    }

    /// Another time for a package.
    pub(super) fn set(&mut self, source: SourceId, key: &Key, before: Option<i64>, at: Option<i64>) {
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(before, source, key.clone()));
        }
        if let Some(at) = at {
            self.0.insert((at, source, key.clone()));
        }
    }

    /// Takes out the next package whose time has come.
    pub(super) fn pop(&mut self, now: i64) -> Option<(SourceId, Key)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, source, key)| (source, key))
    }
}

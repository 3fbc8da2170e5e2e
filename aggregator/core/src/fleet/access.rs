//! The way to a fleet that may belong to somebody else.

use std::sync::Arc;

use super::Fleet;

/// Name of a feed, as the configuration gives it; empty for the only one.
pub type FeedName = Arc<str>;

/// Whoever lets others work on a fleet: the fleet itself, or the way to the task that owns it.
pub trait Access: Send {
    /// Has some work done, as a whole. It never comes back when the fleet's owner is gone.
    fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Fleet) -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send;
}

impl Access for Fleet {
    fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Fleet) -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        std::future::ready(work(self))
    }
}

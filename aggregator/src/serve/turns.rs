//! Turns to read objects of the hub anew before gates open.

use std::sync::Arc;
use std::time::Duration;

use statusbridge_core::reconcile::calls::is_young;
use statusbridge_core::reconcile::command::Unreadable;
use statusbridge_core::time::Now;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;

/// Turns at the same time: each object may have as many bytes as the API server takes.
const AT_ONCE: usize = 4;

/// Gives turns.
#[derive(Clone)]
pub(super) struct Turns {
    places: Arc<Semaphore>,
    clock: Clock,
}

/// A turn: it lasts until the main loop has taken in what was read.
pub(super) struct Turn {
    began: Duration,
    _place: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn new(clock: Clock) -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), clock }
    }

    /// The next turn, as soon as there is a place.
    pub(super) async fn next(self) -> Turn {
        let place = self.places.acquire_owned().await.ok();
        Turn { began: self.clock.now().passed, _place: place }
    }
}

impl Turn {
    /// What was found in this turn, if that still counts: the hub may say something else long after.
    pub(super) fn found<T>(&self, found: Result<T, Unreadable>, now: Now) -> Result<T, Unreadable> {
        if is_young(self.began, now) { found } else { Err(Unreadable) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::at_once(Ok(1), 0, Ok(1))]
    #[case::in_time(Ok(1), 9_999, Ok(1))]
    #[case::as_late_as_a_call_that_has_no_answer(Ok(1), 10_000, Err(Unreadable))]
    #[case::not_at_all(Err(Unreadable), 0, Err(Unreadable))]
    fn what_was_read_long_ago_is_not_known(
        #[case] found: Result<u8, Unreadable>,
        #[case] millis: u64,
        #[case] expected: Result<u8, Unreadable>,
    ) {
        let began = Duration::from_secs(100);
        let now = Now { wall: 0.0, passed: began + Duration::from_millis(millis) };
        assert_eq!(Turn { began, _place: None }.found(found, now), expected);
    }
}

//! Moments and times.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds, since 1970 where it is a time.
pub(super) type Seconds = f64;

/// Both clocks of this machine, so that moments can be compared with times.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    instant: Instant,
    time: Seconds,
}

impl Clock {
    /// Now.
    pub(super) fn new() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { instant: Instant::now(), time }
    }

    /// When a moment was.
    pub(super) fn of(self, moment: Instant) -> Seconds {
        let before = self.instant.saturating_duration_since(moment).as_secs_f64();
        self.time + moment.saturating_duration_since(self.instant).as_secs_f64() - before
    }

    pub(super) fn now(self) -> Seconds {
        self.of(Instant::now())
    }
}

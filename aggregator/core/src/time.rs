//! Time as the aggregator counts it. Nothing here reads a clock: whoever asks for a decision says what time it is.

use std::time::Duration;

/// Unix seconds. Differences are seconds too.
pub type Seconds = f64;

/// One moment by two clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// What this machine's clock says, which may be set.
    pub wall: Seconds,
    /// Time since the process began, which nobody sets and which goes on while the machine sleeps.
    pub passed: Duration,
}

/// A time that was right once, and goes on from there: a clock that is set back does not make old evidence young.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    time: Seconds,
    since: Duration,
}

impl Floor {
    /// It is `time` now.
    pub(crate) fn new(time: Seconds, now: Now) -> Self {
        Self { time, since: now.passed }
    }

    /// What a clock says, or what it must be by now if that is later.
    pub(crate) fn raise(self, clock: Seconds, now: Now) -> Seconds {
        clock.max(self.time + now.passed.saturating_sub(self.since).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_and_one_that_is_set_forward_is_followed() {
        let at = |passed| Now { wall: 0.0, passed: Duration::from_secs(passed) };
        let floor = Floor::new(1000.0, at(10));
        assert_eq!(floor.raise(400.0, at(15)), 1005.0);
        assert_eq!(floor.raise(5000.0, at(15)), 5000.0);
    }
}

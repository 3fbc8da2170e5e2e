//! Time as this crate counts it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::fence::Mark;

/// Unix seconds. Differences are seconds too.
pub type Seconds = f64;

/// The wall clock of this machine. Only the edges of the program read it;
/// everything that decides takes the time as an argument.
pub fn now() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A time that was right once, and goes on from there: a clock that is set back does not make old
/// evidence young.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    time: Seconds,
    since: Mark,
}

impl Floor {
    /// It is `time` now.
    pub fn new(time: Seconds) -> Self {
        Self { time, since: Mark::now() }
    }

    /// What a clock says, or what it must be by now if that is later.
    pub fn raise(self, clock: Seconds) -> Seconds {
        clock.max(self.time + self.since.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_and_one_that_is_set_forward_is_followed() {
        let floor = Floor::new(1000.0);
        assert!((1000.0..1010.0).contains(&floor.raise(400.0)));
        assert_eq!(floor.raise(5000.0), 5000.0);
    }
}

//! This machine's clocks. Only the edges of the program read them; everything that decides takes the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use statusbridge_core::time::Seconds;

/// One moment by every clock at hand.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    /// Goes on while the process is stopped, stands still while the machine sleeps.
    monotonic: Instant,
    /// Goes on while the machine sleeps.
    boot: Duration,
    /// Set right after a virtual machine was paused, which the others may not notice.
    wall: SystemTime,
}

impl Timestamp {
    /// This moment.
    pub fn now() -> Self {
        Self { monotonic: Instant::now(), boot: since_boot(), wall: SystemTime::now() }
    }

    /// Time from this mark to a later one: the most that any clock says, since for a lease too much
    /// is safe and too little is not.
    fn until(self, later: Self) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        let wall = later.wall.duration_since(self.wall).unwrap_or_default();
        monotonic.max(later.boot.saturating_sub(self.boot)).max(wall)
    }

    #[cfg(test)]
    pub(crate) fn ago(time: Duration) -> Self {
        let now = Self::now();
        Self { monotonic: now.monotonic.checked_sub(time).unwrap(), ..now }
    }

    /// Time since this mark.
    pub fn elapsed(self) -> Duration {
        self.until(Self::now())
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}

/// The wall clock of this machine.
pub fn now() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A time that was right once, and goes on from there: a clock that is set back does not make old
/// evidence young.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    time: Seconds,
    since: Timestamp,
}

impl Floor {
    /// It is `time` now.
    pub fn new(time: Seconds) -> Self {
        Self { time, since: Timestamp::now() }
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

    #[test]
    fn of_several_clocks_the_one_that_went_furthest_counts() {
        const SECOND: Duration = Duration::from_secs(1);
        let now = Timestamp::now();
        let slept = Timestamp { boot: now.boot + 20 * SECOND, ..now };
        let paused = Timestamp { wall: now.wall + 30 * SECOND, ..now };
        let set_back = Timestamp { wall: now.wall - 30 * SECOND, monotonic: now.monotonic + SECOND, ..now };
        assert_eq!(now.until(slept), 20 * SECOND);
        assert_eq!(now.until(paused), 30 * SECOND);
        assert_eq!(now.until(set_back), SECOND);
        assert!(Timestamp::now().elapsed() < SECOND, "the clocks of this machine go");
    }
}

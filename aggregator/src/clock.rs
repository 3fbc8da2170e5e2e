//! This machine's clocks. Only the edges of the program read them; everything that decides takes the time as an argument.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};
use statusbridge_core::time::{Now, Seconds};

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
    /// is safe and too little is not. A wall clock that was set back says by how much: a leader whose clock is set, in either
    /// direction, begins anew, as what it has stamped would seem younger than all that comes.
    fn until(self, later: Self) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        let wall = later.wall.duration_since(self.wall).unwrap_or_else(|back| back.duration());
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

/// The `Date` of an answer, in whole seconds: the wall clock of who answered. `None` where it has none that can be read.
pub fn told(headers: &HeaderMap) -> Option<Seconds> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_duration().as_secs_f64())
}

/// Tells the time, and how much has passed since it was made.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Mutex<(Timestamp, Duration)>>);

impl Clock {
    /// Nothing has passed yet.
    pub fn begin() -> Self {
        Self(Arc::new(Mutex::new((Timestamp::now(), Duration::ZERO))))
    }

    /// This moment.
    pub fn now(&self) -> Now {
        let at = Timestamp::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, passed) = &mut *known;
        *passed += before.until(at);
        *before = at;
        Now { wall: now(), passed: *passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_clocks_the_one_that_went_furthest_counts() {
        const SECOND: Duration = Duration::from_secs(1);
        let now = Timestamp::now();
        let slept = Timestamp { boot: now.boot + 20 * SECOND, ..now };
        let paused = Timestamp { wall: now.wall + 30 * SECOND, ..now };
        let set_back = Timestamp { wall: now.wall - 30 * SECOND, monotonic: now.monotonic + SECOND, ..now };
        assert_eq!(now.until(slept), 20 * SECOND);
        assert_eq!(now.until(paused), 30 * SECOND);
        assert_eq!(now.until(set_back), 30 * SECOND);
        let put_right = Timestamp { wall: now.wall - SECOND / 2, monotonic: now.monotonic + SECOND, ..now };
        assert_eq!(now.until(put_right), SECOND);
        assert!(Timestamp::now().elapsed() < SECOND, "the clocks of this machine go");
    }
}

//! The one clock by which the exporter measures: it runs on while the machine is suspended, and setting the wall
//! clock does not move it.
//!
//! ```text
//!   boot   CLOCK_BOOTTIME                     contacts, holds
//!   run    boot, less every pause             soaks
//!   unix   run plus an offset that is latched    what is published
//! ```
//!
//! A pause is a time in which this process did not run: it was stopped, or the machine was suspended. All times are
//! in milliseconds.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// How often the clock is asked at least, see [`Clock::run`].
const TICK: Duration = Duration::from_secs(1);
/// Nobody asked the clock for longer than this: the process did not run.
const PAUSE: i64 = 5_000;
/// The offset to the wall clock is taken anew when it is off by more than this.
const LATCH: i64 = 1_000;

/// What time it is by all three clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Time since the machine started, suspension included.
    pub boot: i64,
    /// The same less every pause.
    pub run: i64,
    /// What to add to `run` for unix time.
    pub offset: i64,
    /// When the last pause was noticed, by `boot`; 0 = there was none.
    pub resumed: i64,
}

impl Moment {
    /// A moment at which all clocks agree: for objects that somebody saved, and for tests.
    pub const fn unix(millis: i64) -> Self {
        Self { boot: millis, run: millis, offset: 0, resumed: 0 }
    }

    /// When it will be this time, in unix seconds, by the `boot` clock, if nobody sets the wall clock.
    pub(crate) const fn boot_at(self, unix: i64) -> i64 {
        let millis = unix.saturating_mul(1000).saturating_sub(self.run + self.offset);
        self.boot.saturating_add(millis)
    }

    /// Unix time in whole seconds, rounded down.
    pub(crate) const fn unix_seconds(self) -> i64 {
        (self.run + self.offset).div_euclid(1000)
    }
}

/// What was seen of the clocks so far. Pure: both clocks are passed in.
#[derive(Debug, Default)]
struct Timeline {
    last: Option<Moment>,
    paused: i64,
}

impl Timeline {
    fn at(&mut self, boot: i64, wall: i64) -> Moment {
        let mut now = self.last.unwrap_or(Moment { boot, run: boot, offset: wall - boot, resumed: 0 });
        let boot = boot.max(now.boot);
        let silent = boot - now.boot;
        if silent > PAUSE {
            self.paused += silent;
            now.resumed = boot;
        }
        now = Moment { boot, run: boot - self.paused, ..now };
        if (wall - now.run - now.offset).abs() > LATCH {
            now.offset = wall - now.run;
        }
        self.last = Some(now);
        now
    }
}

/// The clock of a process.
#[derive(Debug, Default)]
pub struct Clock {
    timeline: Mutex<Timeline>,
    resumed: watch::Sender<i64>,
}

impl Clock {
    /// Asks the clock every second for as long as there is another use of it, in a thread of its own: a process that is
    /// busy runs.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn run(self: &Arc<Self>) -> std::io::Result<()> {
        let clock = Arc::downgrade(self);
        let tick = move || {
            while clock.upgrade().map(|clock| clock.now()).is_some() {
                std::thread::sleep(TICK);
            }
        };
        std::thread::Builder::new().name("clock".to_owned()).spawn(tick).map(drop)
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        // Held to the end, so that nobody's earlier look comes later.
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let now = timeline.at(boot_millis(), jiff::Timestamp::now().as_millisecond());
        self.resumed.send_if_modified(|resumed| std::mem::replace(resumed, now.resumed) != now.resumed);
        now
    }

    /// Changes at the end of every pause.
    pub(crate) fn pauses(&self) -> watch::Receiver<i64> {
        self.resumed.subscribe()
    }
}

fn boot_millis() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_pause_is_left_out_of_what_runs_and_noted() {
        let mut timeline = Timeline::default();
        assert_eq!(
            timeline.at(10_000, 1_000_000),
            Moment { boot: 10_000, run: 10_000, offset: 990_000, resumed: 0 }
        );
        // As long as it may take to be asked.
        assert_eq!(timeline.at(15_000, 1_005_000).run, 15_000);
        let after = timeline.at(75_000, 1_065_000);
        assert_eq!((after.boot, after.run, after.resumed), (75_000, 15_000, 75_000));
        assert_eq!(after.unix_seconds(), 1065, "what is published is the time that it is");
        let just_before = Moment { offset: after.offset - 1, ..after };
        assert_eq!(just_before.unix_seconds(), 1064, "and never younger than it is");
        let later = timeline.at(76_000, 1_066_000);
        assert_eq!((later.run, later.resumed), (16_000, 75_000));
    }

    #[test]
    fn the_offset_stays_until_it_is_off_by_more_than_a_second() {
        let mut timeline = Timeline::default();
        let offset = timeline.at(0, HOUR).offset;
        assert_eq!(timeline.at(1000, HOUR + 2000).offset, offset);
        assert_eq!(timeline.at(2000, HOUR + 1000).offset, offset);
        assert_eq!(timeline.at(3000, HOUR + 4001).offset, offset + 1001);
        assert_eq!(timeline.at(4000, 4000).offset, 0, "set back by an hour");
    }

    proptest! {
        #[test]
        fn whatever_becomes_of_the_wall_clock_time_runs_on(
            looks in prop::collection::vec((0i64..8_000, prop_oneof![4 => Just(0), 1 => -HOUR..HOUR]), 1..60)
        ) {
            let (mut timeline, mut boot, mut wall) = (Timeline::default(), 50_000, 1_700_000_000_000);
            let mut before = timeline.at(boot, wall);
            for (step, jump) in looks {
                boot += step;
                wall += step + jump;
                let now = timeline.at(boot, wall);
                prop_assert_eq!(now.run - before.run, if step > PAUSE { 0 } else { step });
                prop_assert_eq!(now.boot - before.boot, step);
                prop_assert!((now.run + now.offset - wall).abs() <= LATCH);
                if jump == 0 && step <= PAUSE {
                    prop_assert_eq!(now.offset, before.offset, "it does not flicker");
                }
                before = now;
            }
        }
    }
}

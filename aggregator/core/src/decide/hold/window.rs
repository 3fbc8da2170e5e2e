//! When windows are open: beginnings by the clock on the wall, ends by the time that passes.
//!
//! A beginning that clocks skip is moved to the end of the gap; one that comes twice counts once, the first time. So the
//! beginnings of a schedule come in the same order by either clock, and of all that have begun the last one ends last.

use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use statusbridge_api::common;
use statusbridge_api::window::Window;

use super::schedule::Schedule;
use crate::decide::shorten;
use crate::time::Seconds;

/// Most windows of a gate.
const MOST: usize = 16;
/// Longest window, in seconds.
const LONGEST: Seconds = 168.0 * 3600.0;
/// A window that is open may have begun so many days ago, by a clock that was changed meanwhile.
const DAYS: usize = 9;
/// How often windows that follow each other are joined, to find the end of all of them.
const JOINED: usize = 16;

/// The zones that the program comes with: those of the machine it runs on may be others, or none.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Where the present lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Present {
    /// Within a window.
    Inside {
        /// Until then it certainly stays so.
        at_least: Seconds,
        /// The end of that window and of all that follow it without a gap, where that is known.
        until: Option<Seconds>,
    },
    /// Outside all windows.
    Outside {
        /// When the next one begins, if any does.
        next: Option<Seconds>,
    },
}

/// A window, read.
#[derive(Debug)]
pub struct Times {
    schedule: Schedule,
    duration: Seconds,
    zone: TimeZone,
}

impl Times {
    /// Reads a window.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn read(window: &Window) -> Result<Self, String> {
        let duration = common::seconds(&window.duration).map_err(|error| error.to_string())?;
        if !(60.0..=LONGEST).contains(&duration) {
            return Err(format!("duration {} is not from 1m to 168h", window.duration));
        }
        let zone = ZONES.get(&window.time_zone);
        let zone = zone.map_err(|_| format!("there is no time zone {:?}", shorten(&window.time_zone)))?;
        let schedule = Schedule::read(&window.schedule);
        let schedule =
            schedule.map_err(|error| format!("schedule {:?}: {error}", shorten(&window.schedule)))?;
        Ok(Self { schedule, duration, zone })
    }

    /// The end of what began last, if that has not ended yet.
    fn end(&self, now: Timestamp) -> Option<Seconds> {
        let begun = self.schedule.last(self.latest(now), DAYS)?;
        let end = self.instant(begun)?.as_second() as Seconds + self.duration;
        (end > now.as_second() as Seconds).then_some(end)
    }

    /// When it begins next.
    fn next(&self, now: Timestamp) -> Option<Seconds> {
        let next = self.schedule.next(self.latest(now))?;
        Some(self.instant(next)?.as_second() as Seconds)
    }

    /// The last time on the wall that has come, the first of two counting.
    fn latest(&self, now: Timestamp) -> DateTime {
        let local = self.zone.to_datetime(now);
        let offset = self.zone.to_ambiguous_timestamp(local).offset();
        let AmbiguousOffset::Fold { before, after } = offset else { return local };
        if self.zone.to_offset(now) != after {
            return local;
        }
        // All that comes twice has come.
        let changed = now.checked_add(Span::new().nanoseconds(1)).ok();
        let changed = changed.and_then(|now| self.zone.preceding(now).next());
        let end = changed.map(|it| before.to_datetime(it.timestamp()));
        end.and_then(|end| end.checked_sub(Span::new().nanoseconds(1)).ok()).unwrap_or(local)
    }

    fn instant(&self, at: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(at).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(at).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(at).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                let earlier = after.to_timestamp(at).ok()?;
                Some(self.zone.following(earlier).next()?.timestamp())
            }
        }
    }
}

/// Reads windows.
///
/// # Errors
/// What is wrong with the first that is, in words.
pub fn read(windows: &[Window]) -> Result<Vec<Times>, String> {
    if windows.len() > MOST {
        return Err(format!("there are more than {MOST} windows"));
    }
    let one = |(at, window): (usize, &Window)| {
        Times::read(window).map_err(|error| format!("windows[{at}]: {error}"))
    };
    windows.iter().enumerate().map(one).collect()
}

/// Where the present lies among windows.
pub fn present(windows: &[Times], now: Seconds) -> Present {
    let end = |at: Seconds| {
        let at = timestamp(at)?;
        windows.iter().filter_map(|window| window.end(at)).reduce(Seconds::max)
    };
    let Some(first) = end(now) else {
        let next = |now| windows.iter().filter_map(|window| window.next(now)).reduce(Seconds::min);
        return Present::Outside { next: timestamp(now).and_then(next) };
    };
    let mut at_least = first;
    for _ in 0..JOINED {
        match end(at_least) {
            Some(later) => at_least = later,
            None => return Present::Inside { at_least, until: Some(at_least) },
        }
    }
    // Once the first has ended the last may be near enough to be told.
    Present::Inside { at_least: first, until: None }
}

fn timestamp(seconds: Seconds) -> Option<Timestamp> {
    // The bounds of `from_second` refuse whatever is no time.
    Timestamp::from_second(seconds.floor() as i64).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::civil::date;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn window(schedule: &str, duration: &str, zone: &str) -> Window {
        Window { schedule: schedule.into(), duration: duration.into(), time_zone: zone.into() }
    }

    fn unix(text: &str) -> Seconds {
        text.parse::<Timestamp>().unwrap().as_second() as Seconds
    }

    fn told(at: Option<Seconds>) -> String {
        at.map_or("?".to_owned(), |at| Timestamp::from_second(at as i64).unwrap().to_string())
    }

    fn at(windows: &[Window], now: &str) -> String {
        match present(&read(windows).unwrap(), unix(now)) {
            Present::Inside { until, .. } => format!("until {}", told(until)),
            Present::Outside { next } => format!("from {}", told(next)),
        }
    }

    #[test]
    fn an_end_that_is_too_far_to_be_told_is_looked_for_again_when_the_first_window_ends() {
        let windows = read(&[window("* 9 * * *", "1m", "Etc/UTC")]).unwrap();
        let inside = |now: &str| match present(&windows, unix(now)) {
            Present::Inside { at_least, until } => (told(Some(at_least)), told(until)),
            Present::Outside { next } => panic!("outside until {}", told(next)),
        };
        assert_eq!(inside("2026-05-04T09:34:30Z"), ("2026-05-04T09:35:00Z".into(), "?".into()));
        let end = || "2026-05-04T10:00:00Z".to_owned();
        assert_eq!(inside("2026-05-04T09:50:30Z"), (end(), end()));
    }

    #[rstest]
    #[case::before("0 9 * * MON-FRI", "8h", "Etc/UTC", "2026-05-04T08:59:59Z", "from 2026-05-04T09:00:00Z")]
    #[case::the_first_second(
        "0 9 * * MON-FRI",
        "8h",
        "Etc/UTC",
        "2026-05-04T09:00:00Z",
        "until 2026-05-04T17:00:00Z"
    )]
    #[case::the_last_second(
        "0 9 * * MON-FRI",
        "8h",
        "Etc/UTC",
        "2026-05-04T16:59:59Z",
        "until 2026-05-04T17:00:00Z"
    )]
    #[case::the_end("0 9 * * MON-FRI", "8h", "Etc/UTC", "2026-05-04T17:00:00Z", "from 2026-05-05T09:00:00Z")]
    #[case::over_midnight(
        "0 22 * * FRI",
        "4h",
        "Etc/UTC",
        "2026-05-02T01:59:59Z",
        "until 2026-05-02T02:00:00Z"
    )]
    #[case::a_whole_week("0 0 * * 0", "168h", "Etc/UTC", "2026-05-04T00:00:00Z", "until ?")]
    #[case::all_but_a_minute(
        "0 0 * * 0",
        "167h59m",
        "Etc/UTC",
        "2026-05-09T23:58:59Z",
        "until 2026-05-09T23:59:00Z"
    )]
    #[case::leap_day("0 0 29 2 *", "24h", "Etc/UTC", "2026-05-04T00:00:00Z", "from 2028-02-29T00:00:00Z")]
    #[case::within_leap_day(
        "0 0 29 2 *",
        "24h",
        "Etc/UTC",
        "2028-02-29T23:59:59Z",
        "until 2028-03-01T00:00:00Z"
    )]
    #[case::by_the_zone(
        "0 9 * * *",
        "1h",
        "Asia/Tokyo",
        "2026-05-04T00:30:00Z",
        "until 2026-05-04T01:00:00Z"
    )]
    // 2026-03-29 02:00 CET is 03:00 CEST.
    #[case::skipped_is_moved(
        "30 2 * * *",
        "1h",
        "Europe/Berlin",
        "2026-03-29T00:59:59Z",
        "from 2026-03-29T01:00:00Z"
    )]
    #[case::moved_lasts_as_long(
        "30 2 * * *",
        "1h",
        "Europe/Berlin",
        "2026-03-29T01:59:59Z",
        "until 2026-03-29T02:00:00Z"
    )]
    #[case::moved_once(
        "30 2 * * *",
        "1h",
        "Europe/Berlin",
        "2026-03-29T02:00:00Z",
        "from 2026-03-30T00:30:00Z"
    )]
    #[case::over_the_gap(
        "0 1 * * *",
        "3h",
        "Europe/Berlin",
        "2026-03-29T02:59:59Z",
        "until 2026-03-29T03:00:00Z"
    )]
    // 2026-10-25 03:00 CEST is 02:00 CET.
    #[case::twice_is_once_at_first(
        "30 2 * * *",
        "10m",
        "Europe/Berlin",
        "2026-10-25T00:30:00Z",
        "until 2026-10-25T00:40:00Z"
    )]
    #[case::not_the_second_time(
        "30 2 * * *",
        "10m",
        "Europe/Berlin",
        "2026-10-25T01:30:00Z",
        "from 2026-10-26T01:30:00Z"
    )]
    #[case::what_lasts_into_the_second_time(
        "30 2 * * *",
        "2h",
        "Europe/Berlin",
        "2026-10-25T01:10:00Z",
        "until 2026-10-25T02:30:00Z"
    )]
    #[case::eight_hours_that_pass(
        "0 0 * * SUN",
        "8h",
        "Europe/Berlin",
        "2026-10-25T05:59:59Z",
        "until 2026-10-25T06:00:00Z"
    )]
    #[case::new_york_in_spring(
        "30 2 * * *",
        "1h",
        "America/New_York",
        "2026-03-08T06:59:59Z",
        "from 2026-03-08T07:00:00Z"
    )]
    #[case::new_york_in_autumn(
        "30 1 * * *",
        "5m",
        "America/New_York",
        "2026-11-01T06:30:00Z",
        "from 2026-11-02T06:30:00Z"
    )]
    #[case::new_york_at_first(
        "30 1 * * *",
        "5m",
        "America/New_York",
        "2026-11-01T05:30:00Z",
        "until 2026-11-01T05:35:00Z"
    )]
    // 2026-10-04 02:00 +10:30 is 02:30 +11:00; 2026-04-05 02:00 +11:00 is 01:30 +10:30.
    #[case::half_an_hour_in_spring(
        "15 2 * * *",
        "5m",
        "Australia/Lord_Howe",
        "2026-10-03T15:29:59Z",
        "from 2026-10-03T15:30:00Z"
    )]
    #[case::after_half_an_hour(
        "30 2 * * *",
        "5m",
        "Australia/Lord_Howe",
        "2026-10-03T15:30:00Z",
        "until 2026-10-03T15:35:00Z"
    )]
    #[case::half_an_hour_in_autumn(
        "45 1 * * *",
        "5m",
        "Australia/Lord_Howe",
        "2026-04-04T14:45:00Z",
        "until 2026-04-04T14:50:00Z"
    )]
    #[case::half_an_hour_once(
        "45 1 * * *",
        "5m",
        "Australia/Lord_Howe",
        "2026-04-04T15:15:00Z",
        "from 2026-04-05T15:15:00Z"
    )]
    // Samoa had no 30 December 2011.
    #[case::a_day_that_was_not(
        "0 12 30 12 *",
        "1h",
        "Pacific/Apia",
        "2011-12-30T10:00:00Z",
        "until 2011-12-30T11:00:00Z"
    )]
    fn when_a_window_is_open(
        #[case] schedule: &str,
        #[case] duration: &str,
        #[case] zone: &str,
        #[case] now: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(at(&[window(schedule, duration, zone)], now), expected);
    }

    #[test]
    fn windows_that_follow_each_other_are_one() {
        let morning = window("0 8 * * *", "4h", "Etc/UTC");
        let noon = window("0 12 * * *", "1h", "Etc/UTC");
        let evening = window("30 13 * * *", "4h", "Etc/UTC");
        let windows = [evening, noon, morning];
        for (now, expected) in [
            ("2026-05-04T09:00:00Z", "until 2026-05-04T13:00:00Z"),
            ("2026-05-04T13:00:00Z", "from 2026-05-04T13:30:00Z"),
            ("2026-05-04T18:00:00Z", "from 2026-05-05T08:00:00Z"),
        ] {
            assert_eq!(at(&windows, now), expected, "{now}");
        }
        let always = [window("* * * * *", "5m", "Etc/UTC")];
        assert_eq!(at(&always, "2026-05-04T09:00:00Z"), "until ?");
    }

    #[rstest]
    #[case::a_schedule(
        window("0 0 31 2 *", "1h", "Etc/UTC"),
        "windows[0]: schedule \"0 0 31 2 *\": no month"
    )]
    #[case::a_zone(
        window("0 0 * * *", "1h", "Europe/Atlantis"),
        "windows[0]: there is no time zone \"Europe/Atlantis\""
    )]
    #[case::the_machines_zone(
        window("0 0 * * *", "1h", "Local"),
        "windows[0]: there is no time zone \"Local\""
    )]
    #[case::a_file(window("0 0 * * *", "1h", "../../etc/passwd"), "windows[0]: there is no time zone")]
    #[case::no_duration(
        window("0 0 * * *", "0s", "Etc/UTC"),
        "windows[0]: duration 0s is not from 1m to 168h"
    )]
    #[case::too_long(
        window("0 0 * * *", "169h", "Etc/UTC"),
        "windows[0]: duration 169h is not from 1m to 168h"
    )]
    #[case::another_unit(window("0 0 * * *", "2d", "Etc/UTC"), "windows[0]: ")]
    fn what_is_no_window_is_refused(#[case] window: Window, #[case] why: &str) {
        let error = read(&[window]).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn times_beyond_all_calendars_are_outside() {
        let windows = read(&[window("* * * * *", "1h", "Europe/Berlin")]).unwrap();
        for now in [Seconds::NEG_INFINITY, -1e18, 1e18, Seconds::INFINITY] {
            present(&windows, now);
        }
    }

    /// When windows of a schedule with fixed minute and hour begin, by looking at every minute that passes: a wall clock that
    /// jumps over a beginning begins there, one that shows it again does not.
    fn beginnings(minute: i8, hour: i8, zone: &TimeZone, from: Seconds, to: Seconds) -> BTreeSet<i64> {
        let mut begun = BTreeSet::new();
        let mut found = BTreeSet::new();
        let wall = |at: i64| zone.to_datetime(Timestamp::from_second(at).unwrap());
        let mut now = from as i64;
        let mut latest = wall(now);
        while now <= to as i64 {
            now += 60;
            let shown = wall(now);
            if shown <= latest {
                continue;
            }
            let mut day = latest.date();
            while day <= shown.date() {
                let start = day.at(hour, minute, 0, 0);
                if start > latest && start <= shown && begun.insert(start) {
                    found.insert(now);
                }
                day = day.tomorrow().unwrap();
            }
            latest = shown;
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_open_when_a_look_at_every_minute_says_so(
            minute in 0..60i8,
            hour in 0..24i8,
            length in 1..2000u32,
            zone in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Etc/UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Casablanca"]),
            change in prop::sample::select(vec![(2026, 3, 8), (2026, 3, 29), (2026, 4, 5), (2026, 10, 4), (2026, 10, 25), (2026, 11, 1), (2026, 2, 15), (2026, 3, 22)]),
            seconds in -90_000..180_000i64,
        ) {
            let text = window(&format!("{minute} {hour} * * *"), &format!("{length}m"), zone);
            let windows = read(std::slice::from_ref(&text)).unwrap();
            let (year, month, day) = change;
            let noon = date(year, month, day).at(0, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp();
            let now = (noon.as_second() + seconds) as Seconds;
            let zone = ZONES.get(zone).unwrap();
            let all = beginnings(minute, hour, &zone, now - 4.0 * 86_400.0 - now % 60.0, now + 3.0 * 86_400.0);
            let ends = all.iter().map(|at| (*at, *at as Seconds + Seconds::from(length) * 60.0));
            let open = ends.filter(|(at, end)| *at as Seconds <= now && now < *end);
            let end = open.map(|(_, end)| end).reduce(Seconds::max);
            match present(&windows, now) {
                Present::Inside { at_least, until } => {
                    prop_assert!(end.is_some_and(|end| end <= at_least), "{end:?} {at_least}");
                    prop_assert!(until.is_none_or(|until| until == at_least));
                }
                Present::Outside { next } => {
                    prop_assert_eq!(end, None);
                    let expected = all.iter().find(|at| **at as Seconds > now).map(|at| *at as Seconds);
                    prop_assert_eq!(next, expected);
                }
            }
        }

        #[test]
        fn nothing_changes_before_it_is_said_to(
            schedules in prop::collection::vec(("[0-5]?[05] [*0-9]", 1..300u32), 1..4),
            seconds in 0..86_400i64,
            after in 0.0..1.0f64,
        ) {
            let texts: Vec<Window> = schedules
                .iter()
                .map(|(start, length)| window(&format!("{start} * * *"), &format!("{length}m"), "Europe/Berlin"))
                .collect();
            let windows = read(&texts).unwrap();
            let now = unix("2026-03-28T12:00:00Z") + seconds as Seconds;
            let is_open = |at| matches!(present(&windows, at), Present::Inside { .. });
            let (open, change) = match present(&windows, now) {
                Present::Inside { at_least, until } => {
                    if let Some(until) = until {
                        prop_assert!(!is_open(until));
                    }
                    (true, at_least)
                }
                Present::Outside { next } => {
                    prop_assert!(is_open(next.unwrap()));
                    (false, next.unwrap())
                }
            };
            prop_assert!(change > now);
            prop_assert_eq!(is_open(change - 1.0), open);
            prop_assert_eq!(is_open(now + (change - now) * after * 0.999), open);
        }
    }
}

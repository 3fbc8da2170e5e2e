//! The five fields of cron: minute, hour, day of month, month, day of week.
//!
//! They mean what they mean in a CronJob of Kubernetes: lists, ranges, steps, and English names of months and weekdays; and
//! where both days are given, either will do.

use jiff::civil::{Date, DateTime};

/// Longest schedule that is read, in bytes.
const LONGEST: usize = 256;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// When something begins, by the clock on the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    /// Whether a day has to be among both `days` and `weekdays`: where either is any day.
    both: bool,
}

/// Numbers below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn has(self, number: i8) -> bool {
        u32::try_from(number)
            .ok()
            .and_then(|number| self.0.checked_shr(number))
            .is_some_and(|bits| bits & 1 == 1)
    }

    /// The least that is not below `from`.
    fn from(self, from: i8) -> Option<i8> {
        (from.max(0)..64).find(|number| self.has(*number))
    }

    /// The greatest that is not above `to`.
    fn to(self, to: i8) -> Option<i8> {
        (0..=to.min(63)).rev().find(|number| self.has(*number))
    }
}

/// One of the fields.
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// Names of its numbers, from the least on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[] },
    Field { name: "hour", least: 0, most: 23, names: &[] },
    Field { name: "day of month", least: 1, most: 31, names: &[] },
    Field { name: "month", least: 1, most: 12, names: &MONTHS },
    // 7 is Sunday as well.
    Field { name: "day of week", least: 0, most: 7, names: &WEEKDAYS },
];

impl Field {
    /// The numbers that a text means.
    fn read(&self, text: &str) -> Result<Set, String> {
        text.split(',').try_fold(Set(0), |set, part| Ok(Set(set.0 | self.range(part)?.0)))
    }

    fn range(&self, text: &str) -> Result<Set, String> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (text, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if is_any(range) => (self.least, if self.most == 7 { 6 } else { self.most }),
            Some((from, to)) => (self.number(from)?, self.number(to)?),
            None => {
                let from = self.number(range)?;
                (from, if step.is_some() { self.most } else { from })
            }
        };
        if from > to {
            return Err(format!("{}: {range} ends before it begins", self.name));
        }
        let numbers = (from..=to).step_by(step.unwrap_or(1).into());
        Ok(Set(numbers.fold(0, |bits, number| bits | 1 << number)))
    }

    fn step(&self, text: &str) -> Result<u8, String> {
        let step = digits(text).filter(|step| *step > 0 && *step <= self.most);
        step.ok_or_else(|| format!("{}: the step {text:?} is no number from 1 to {}", self.name, self.most))
    }

    fn number(&self, text: &str) -> Result<u8, String> {
        let named = self.names.iter().zip(self.least..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let number = named.map(|(_, number)| number).or_else(|| digits(text));
        number.filter(|it| (self.least..=self.most).contains(it)).ok_or_else(|| {
            let names = if self.names.is_empty() { "" } else { ", nor one of its names" };
            format!("{}: {text:?} is no number from {} to {}{names}", self.name, self.least, self.most)
        })
    }
}

fn digits(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn is_any(text: &str) -> bool {
    text == "*" || text == "?"
}

impl Schedule {
    /// Reads the five fields.
    ///
    /// # Errors
    /// What is wrong, in words; also where no day is ever meant, such as the 31st of February.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("{} bytes are too many, at most {LONGEST} are read", text.len()));
        }
        let texts: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = texts.as_slice() else {
            return Err(format!(
                "{} fields, expected five: minute, hour, day of month, month, day of week",
                texts.len()
            ));
        };
        let [minute, hour, day, month, weekday] = &FIELDS;
        let sundays = |Set(bits): Set| Set((bits | bits >> 7) & 0x7f);
        let schedule = Self {
            minutes: minute.read(minutes)?,
            hours: hour.read(hours)?,
            days: day.read(days)?,
            months: month.read(months)?,
            weekdays: sundays(weekday.read(weekdays)?),
            both: is_any(days) || is_any(weekdays),
        };
        if schedule.ever() { Ok(schedule) } else { Err("no month that it names has such a day".to_owned()) }
    }

    /// Whether it ever comes.
    fn ever(&self) -> bool {
        let longest = |month| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let months = (1..=12).filter(|month| self.months.has(*month));
        !self.both || months.map(longest).any(|last| self.days.from(1).is_some_and(|first| first <= last))
    }

    fn is_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        self.months.has(date.month()) && if self.both { day && weekday } else { day || weekday }
    }

    /// The last beginning up to a time, if there is one on that day or on so many days before.
    pub(super) fn last(&self, until: DateTime, days: usize) -> Option<DateTime> {
        let dates = std::iter::successors(Some(until.date()), |date| date.yesterday().ok()).take(days + 1);
        dates.filter(|date| self.is_day(*date)).find_map(|date| {
            let (hour, minute) = if date == until.date() { (until.hour(), until.minute()) } else { (23, 59) };
            let within = || Some((self.hours.to(hour).filter(|it| *it == hour)?, self.minutes.to(minute)?));
            let before = || Some((self.hours.to(hour - 1)?, self.minutes.to(59)?));
            let (hour, minute) = within().or_else(before)?;
            Some(date.at(hour, minute, 0, 0))
        })
    }

    /// The first beginning after a time. There is one within eight years, unless the calendar ends before: the 29th of
    /// February is so far from the next where a century is no leap year.
    pub(super) fn next(&self, after: DateTime) -> Option<DateTime> {
        let mut date = after.date();
        loop {
            if !self.months.has(date.month()) {
                date = date.last_of_month();
            } else if self.is_day(date)
                && let Some((hour, minute)) = self.first_time(date, after)
            {
                return Some(date.at(hour, minute, 0, 0));
            }
            date = date.tomorrow().ok()?;
        }
    }

    fn first_time(&self, date: Date, after: DateTime) -> Option<(i8, i8)> {
        if date != after.date() {
            return Some((self.hours.from(0)?, self.minutes.from(0)?));
        }
        let (hour, minute) = (after.hour(), after.minute());
        let within =
            || Some((self.hours.from(hour).filter(|it| *it == hour)?, self.minutes.from(minute + 1)?));
        let later = || Some((self.hours.from(hour + 1)?, self.minutes.from(0)?));
        within().or_else(later)
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn at(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::every_minute("* * * * *", "2026-05-04T08:00", "2026-05-04T08:00", "2026-05-04T08:01")]
    #[case::seconds("* * * * *", "2026-05-04T08:00:59", "2026-05-04T08:00", "2026-05-04T08:01")]
    #[case::weekdays("0 9 * * MON-FRI", "2026-05-02T12:00", "2026-05-01T09:00", "2026-05-04T09:00")]
    #[case::sunday_by_both_numbers("0 9 * * 7", "2026-05-04T08:00", "2026-05-03T09:00", "2026-05-10T09:00")]
    #[case::sunday("0 9 * * 0", "2026-05-04T08:00", "2026-05-03T09:00", "2026-05-10T09:00")]
    #[case::a_range_to_sunday("0 9 * * fri-7", "2026-05-04T08:00", "2026-05-03T09:00", "2026-05-08T09:00")]
    #[case::steps("*/20 8-10/2 * * *", "2026-05-04T08:40", "2026-05-04T08:40", "2026-05-04T10:00")]
    #[case::a_step_from_a_number("50/5 23 * * *", "2026-05-04T23:55", "2026-05-04T23:55", "2026-05-05T23:50")]
    #[case::lists("5,10 1,13 1,15 * *", "2026-05-04T08:00", "2026-05-01T13:10", "2026-05-15T01:05")]
    #[case::the_same_twice("5,5-6 1 1,1 * *", "2026-05-04T08:00", "2026-05-01T01:06", "2026-06-01T01:05")]
    #[case::sunday_twice("0 9 * * 0,7", "2026-05-04T08:00", "2026-05-03T09:00", "2026-05-10T09:00")]
    #[case::names_of_months("0 0 1 jan,May *", "2026-05-04T08:00", "2026-05-01T00:00", "2027-01-01T00:00")]
    #[case::either_day("0 0 13 * FRI", "2026-05-13T08:00", "2026-05-13T00:00", "2026-05-15T00:00")]
    #[case::a_step_is_not_any_day(
        "0 0 */10 * SUN",
        "2026-05-04T08:00",
        "2026-05-03T00:00",
        "2026-05-10T00:00"
    )]
    #[case::the_last_of_long_months("0 0 31 * *", "2026-03-31T00:00", "2026-03-31T00:00", "2026-05-31T00:00")]
    #[case::the_end_of_the_year("59 23 31 12 ?", "2026-12-31T23:59", "2026-12-31T23:59", "2027-12-31T23:59")]
    #[case::a_leap_day("0 12 29 2 *", "2024-03-01T00:00", "2024-02-29T12:00", "2028-02-29T12:00")]
    #[case::a_century_without("0 12 29 2 *", "2096-02-29T12:00", "2096-02-29T12:00", "2104-02-29T12:00")]
    fn what_begins_when(#[case] text: &str, #[case] now: &str, #[case] last: &str, #[case] next: &str) {
        let schedule = Schedule::read(text).unwrap();
        assert_eq!(schedule.last(at(now), 366), Some(at(last)));
        assert_eq!(schedule.next(at(now)), Some(at(next)));
    }

    #[test]
    fn what_begins_on_no_day_that_is_asked_for() {
        let schedule = Schedule::read("0 9 * * MON").unwrap();
        assert_eq!(schedule.last(at("2026-05-03T12:00"), 5), None);
        assert_eq!(schedule.last(at("2026-05-03T12:00"), 6), Some(at("2026-04-27T09:00")));
        assert_eq!(schedule.next(at("9999-12-31T12:00")), None);
        assert_eq!(schedule.last(at("-009999-01-01T00:00"), 366), None);
    }

    #[rstest]
    #[case::nothing("", "0 fields")]
    #[case::with_seconds("0 0 9 * * MON", "6 fields")]
    #[case::a_macro("@daily", "1 fields")]
    #[case::too_great("60 * * * *", "minute: \"60\" is no number from 0 to 59")]
    #[case::day_zero("0 0 0 * *", "day of month: \"0\"")]
    #[case::an_unknown_name("0 0 * * MONDAY", "day of week: \"MONDAY\"")]
    #[case::a_name_elsewhere("0 0 MON * *", "day of month: \"MON\"")]
    #[case::backwards("0 22-2 * * *", "22-2 ends before it begins")]
    #[case::no_step("*/0 * * * *", "the step \"0\"")]
    #[case::a_negative("-1 * * * *", "minute: \"\"")]
    #[case::two_dashes("1-2-3 * * * *", "minute: \"2-3\"")]
    #[case::a_sign("+1 * * * *", "minute: \"+1\"")]
    #[case::an_empty_part("1,,2 * * * *", "minute: \"\"")]
    #[case::a_great_number("999999999999 * * * *", "is no number")]
    #[case::the_last_day("0 0 L * *", "day of month: \"L\"")]
    #[case::no_such_day("0 0 31 2,4,6 *", "no month that it names has such a day")]
    #[case::no_such_day_in_february("0 0 30 FEB *", "no month that it names has such a day")]
    fn what_is_no_schedule_is_refused(#[case] text: &str, #[case] why: &str) {
        let error = Schedule::read(text).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let text = |minutes| format!("{} * * * *", vec!["1"; minutes].join(","));
        assert_eq!(text(124).len(), LONGEST - 1);
        assert!(Schedule::read(&(text(124) + " ")).is_ok());
        assert_eq!(Schedule::read(&text(125)).unwrap_err(), "257 bytes are too many, at most 256 are read");
    }

    /// A field: a list of numbers, ranges or steps within its bounds.
    fn field(least: u8, most: u8) -> impl Strategy<Value = String> {
        let number = least..=most;
        let part = prop_oneof![
            3 => Just("*".to_owned()),
            2 => number.clone().prop_map(|number| number.to_string()),
            1 => (number.clone(), number).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (2..=7u8).prop_map(|step| format!("*/{step}")),
        ];
        prop::collection::vec(part, 1..3).prop_map(|parts| parts.join(","))
    }

    prop_compose! {
        fn schedule()(minute in field(0, 59), hour in field(0, 23), day in field(1, 28), month in field(1, 12), weekday in field(0, 7)) -> String {
            format!("{minute} {hour} {day} {month} {weekday}")
        }
    }

    /// Whether a time is a beginning, by its text alone.
    fn is_beginning(text: &str, at: DateTime) -> bool {
        let fields: Vec<&str> = text.split(' ').collect();
        let means = |field: &str, number: i8, least: i8| {
            field.split(',').any(|part| match (part.split_once('/'), part.split_once('-')) {
                (Some((_, step)), _) => (number - least) % step.parse::<i8>().unwrap() == 0,
                (_, Some((from, to))) => {
                    (from.parse::<i8>().unwrap()..=to.parse::<i8>().unwrap()).contains(&number)
                }
                _ => part == "*" || part.parse::<i8>().unwrap() == number,
            })
        };
        let weekday = at.weekday().to_sunday_zero_offset();
        let sunday = weekday == 0 && !fields[4].contains('/') && means(fields[4], 7, 0);
        let (day, weekday) = (means(fields[2], at.day(), 1), means(fields[4], weekday, 0) || sunday);
        let either = fields[2] != "*" && fields[4] != "*";
        means(fields[0], at.minute(), 0)
            && means(fields[1], at.hour(), 0)
            && means(fields[3], at.month(), 1)
            && if either { day || weekday } else { day && weekday }
    }

    proptest! {
        #[test]
        fn it_is_what_a_look_at_every_minute_finds(text in schedule(), minute in 0..(400 * 24 * 60i64), seconds in 0..60i64) {
            const MINUTES: i64 = 3 * 24 * 60;
            let schedule = Schedule::read(&text).unwrap();
            let now = at("2027-11-01T00:00") + minute.minutes() + seconds.seconds();
            let whole = now - seconds.seconds();
            let last = (0..=MINUTES).map(|ago| whole - ago.minutes()).find(|it| is_beginning(&text, *it));
            let next = (1..=MINUTES).map(|then| whole + then.minutes()).find(|it| is_beginning(&text, *it));
            match last {
                Some(last) => prop_assert_eq!(schedule.last(now, 3), Some(last)),
                None => prop_assert!(schedule.last(now, 3).is_none_or(|it| it < whole - MINUTES.minutes())),
            }
            match next {
                Some(next) => prop_assert_eq!(schedule.next(now), Some(next)),
                None => prop_assert!(schedule.next(now).is_none_or(|it| it > whole + MINUTES.minutes())),
            }
            if let Some(found) = schedule.last(now, 3) {
                prop_assert!(is_beginning(&text, found) && found <= now);
            }
        }

        #[test]
        fn no_text_takes_long_or_panics(text in "[0-9*/,? -]{0,40}", minute in 0..1_000_000i64) {
            if let Ok(schedule) = Schedule::read(&text) {
                let now = at("2026-01-01T00:00") + minute.minutes();
                prop_assert!(schedule.next(now).is_some());
                schedule.last(now, 8);
            }
        }
    }
}

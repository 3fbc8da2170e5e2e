//! Flat or growing: the end of each stretch beside its beginning.

use crate::rows::{COUNT, FIGURES, Figure, Row, stretches};

/// Seconds that do not count: caches fill, and each connection is cut for the first time.
const WARMING_UP: u64 = 30 * 60;
/// Seconds that a stretch lasts at least after that. The first third of them is compared with the last.
const LEAST: u64 = 30 * 60;
/// How much more the last third may have, unless the figure's floor allows more.
const MOST_MORE: f64 = 0.05;

/// What became of one figure in one stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// Median of the first third of what counts.
    first: f64,
    /// Median of the last third.
    last: f64,
    per_hour: f64,
    grows: bool,
}

/// `None` where the stretch is too short.
fn trend(rows: &[Row], figure: usize) -> Option<Trend> {
    let counts = &rows[rows.partition_point(|row| row.seconds <= WARMING_UP)..];
    let (third, end) = (counts.len() / 3, rows.last()?.seconds);
    if third == 0 || end < WARMING_UP + LEAST {
        return None;
    }
    let (first, last) = (&counts[..third], &counts[counts.len() - third..]);
    let value = |rows: &[Row]| median(rows.iter().map(|row| row.figures[figure]).collect());
    let middle = |rows: &[Row]| median(rows.iter().map(|row| row.seconds).collect());
    let (more, most) = (value(last) - value(first), value(first) * MOST_MORE);
    Some(Trend {
        first: value(first),
        last: value(last),
        per_hour: more * 3600.0 / (middle(last) - middle(first)),
        grows: more > most.max(FIGURES[figure].floor),
    })
}

/// The middle one, or the mean of the two in the middle; 0 of none.
fn median(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(value), 1) => *value as f64,
        (Some(value), _) => values[middle - 1].midpoint(*value) as f64,
    }
}

/// The figures that grow, each with its stretch.
pub(crate) fn growing(rows: &[Row]) -> Vec<String> {
    let grows = |rows: &&[Row], figure| trend(rows, figure).is_some_and(|it| it.grows);
    let all = (0..COUNT).flat_map(|figure| stretches(rows).map(move |rows| (figure, rows)));
    let found = all.filter(|(figure, rows)| grows(rows, *figure));
    found.map(|(figure, rows)| format!("{} in stretch {}", FIGURES[figure].title, rows[0].stretch)).collect()
}

/// What is known of a stretch as a whole.
pub(crate) fn heading(rows: &[Row]) -> String {
    let (first, minutes) = (&rows[0], rows[rows.len() - 1].seconds / 60);
    let Row { stretch, date, commit, .. } = first;
    format!("stretch {stretch}: {date}, {commit}, {minutes} minutes")
}

/// The verdict as Markdown: the stretches, and a table of figures.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text: String = stretches(rows).map(|rows| format!("- {}\n", heading(rows))).collect();
    text += "\n| figure | stretch | median of the first third | of the last third | growth per hour | |\n\
             |---|---|---|---|---|---|\n";
    for (number, figure) in FIGURES.iter().enumerate() {
        for rows in stretches(rows) {
            let (title, stretch) = (figure.title, rows[0].stretch);
            text += &match trend(rows, number) {
                Some(trend) => format!("| {title} | {stretch} | {} |\n", cells(figure, trend)),
                None => format!("| {title} | {stretch} | | | | too short |\n"),
            };
        }
    }
    text
}

fn cells(figure: &Figure, trend: Trend) -> String {
    let Trend { first, last, per_hour, grows } = trend;
    let [first, last, more] = [first, last, per_hour.abs()].map(|value| figure.unit.show(value));
    let sign = if per_hour < 0.0 && more != figure.unit.show(0.0) { "−" } else { "+" };
    format!("{first} | {last} | {sign}{more} | {}", if grows { "**grows**" } else { "flat" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::row;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        for (values, middle) in [
            (vec![], 0.0),
            (vec![5], 5.0),
            (vec![9, 1], 5.0),
            (vec![9, 1, 2], 2.0),
            (vec![4, 9, 1, 2], 3.0),
            (vec![u64::MAX, u64::MAX], u64::MAX as f64),
        ] {
            assert_eq!(median(values.clone()), middle, "{values:?}");
        }
    }

    /// A stretch of so many minutes in which every figure has the value of its minute.
    fn stretch(minutes: u64, value: impl Fn(u64) -> u64) -> Vec<Row> {
        (1..=minutes).map(|minute| row(1, minute * 60, value(minute))).collect()
    }

    const PACKAGES: usize = 9;
    const DESCRIPTORS: usize = 1;

    #[test]
    fn flat_is_what_has_five_percent_more_at_the_end() {
        let jump = |from: u64, to: u64| stretch(90, move |minute| if minute <= 70 { from } else { to });
        for (what, rows, figure, grows) in [
            ("the same", jump(1000, 1000), PACKAGES, false),
            ("less", jump(1000, 1), PACKAGES, false),
            ("5 % more", jump(1000, 1050), PACKAGES, false),
            ("a little more than that", jump(1000, 1051), PACKAGES, true),
            ("more, within the floor", jump(20, 24), DESCRIPTORS, false),
            ("more than the floor", jump(20, 25), DESCRIPTORS, true),
            ("from none", jump(0, 1), PACKAGES, true),
            ("a long start", stretch(100, |minute| minute.min(30) * 100), PACKAGES, false),
            ("a longer one", stretch(100, |minute| minute.min(60) * 100), PACKAGES, true),
            ("all the time", stretch(100, |minute| 1000 + 2 * minute), PACKAGES, true),
            ("one peak at the end", stretch(100, |minute| 1000 + minute / 90 * 999), PACKAGES, false),
        ] {
            assert_eq!(trend(&rows, figure).unwrap().grows, grows, "{what}");
        }
        for (rows, is_told) in [(0, false), (59, false), (60, true)] {
            assert_eq!(trend(&jump(1, 9)[..rows], PACKAGES).is_some(), is_told, "{rows} minutes");
        }
    }

    #[test]
    fn growth_is_told_per_hour() {
        let trend = trend(&stretch(120, |minute| 1000 + minute * 3), PACKAGES).unwrap();
        assert_eq!((trend.first, trend.last, trend.per_hour), (1136.0, 1316.0, 180.0));
    }

    #[test]
    fn the_table_has_a_line_for_each_figure_of_each_stretch() {
        let mut rows = stretch(60, |minute| minute);
        rows.extend((1..=3).map(|minute| row(2, minute * 60, 1)));
        let text = markdown(&rows);
        assert!(text.starts_with("- stretch 1: 2026-11-29, 0123abc, 60 minutes\n- stretch 2"), "{text}");
        let of = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert_eq!(
            of("| packages in all clusters | 1"),
            "| packages in all clusters | 1 | 35 | 55 | +60 | **grows** |"
        );
        assert_eq!(
            of("| packages in all clusters | 2"),
            "| packages in all clusters | 2 | | | | too short |"
        );
        assert_eq!(of("| exporter: threads | 1"), "| exporter: threads | 1 | 35 | 55 | +60 | **grows** |");
        assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 1 + 2 * COUNT);
        assert!(growing(&rows).contains(&"exporter: threads in stretch 1".to_owned()));
        assert_eq!(growing(&rows[60..]), [""; 0]);
    }
}

//! What was measured, a row a minute: the file that stretches add to.

use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// In what a figure is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Number,
}

impl Unit {
    /// A value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Number => format!("{value:.0}"),
        }
    }
}

/// One thing that is measured.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Its column in the file.
    pub(crate) column: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    /// So much more is no growth, however few there are.
    pub(crate) floor: f64,
}

const fn bytes(column: &'static str, title: &'static str, megabytes: f64) -> Figure {
    Figure { column, title, unit: Unit::Bytes, floor: megabytes * 1e6 }
}

const fn number(column: &'static str, title: &'static str, floor: f64) -> Figure {
    Figure { column, title, unit: Unit::Number, floor }
}

/// How many figures a row has.
pub(crate) const COUNT: usize = 13;

/// All of them, in the order of the columns.
pub(crate) const FIGURES: [Figure; COUNT] = [
    bytes("exporter_resident", "exporter: resident memory", 2.0),
    number("exporter_descriptors", "exporter: file descriptors", 4.0),
    number("exporter_threads", "exporter: threads", 2.0),
    number("exporter_series", "exporter: series on /metrics", 10.0),
    bytes("aggregator_resident", "aggregator: resident memory", 2.0),
    number("aggregator_descriptors", "aggregator: file descriptors", 4.0),
    number("aggregator_threads", "aggregator: threads", 2.0),
    number("aggregator_series", "aggregator: series on /metrics", 10.0),
    number("prometheus_series", "Prometheus: series of ours", 0.0),
    number("packages", "packages in all clusters", 0.0),
    number("hub_objects", "hub: objects of ours", 5.0),
    bytes("etcd_size", "hub's etcd: database", 8.0),
    bytes("etcd_in_use", "hub's etcd: in use", 2.0),
];

/// Columns before the figures.
const FIRST: [&str; 4] = ["stretch", "seconds", "date", "commit"];

/// One look at everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) stretch: u32,
    /// Since the stretch began.
    pub(crate) seconds: u64,
    /// On which the stretch began.
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) figures: [u64; COUNT],
}

impl Row {
    /// The figures, to be read as they come.
    pub(crate) fn text(&self) -> String {
        let one = |(figure, value): (&Figure, &u64)| {
            format!("{} {}", figure.column, figure.unit.show(*value as f64))
        };
        FIGURES.iter().zip(&self.figures).map(one).collect::<Vec<_>>().join(", ")
    }

    fn line(&self) -> String {
        let Self { stretch, seconds, date, commit, figures } = self;
        let figures: String = figures.iter().map(|value| format!("\t{value}")).collect();
        format!("{stretch}\t{seconds}\t{date}\t{commit}{figures}\n")
    }

    fn read(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let expected = FIRST.len() + COUNT;
        ensure!(fields.len() == expected, "{} fields where {expected} are expected", fields.len());
        let number = |text: &str| text.parse::<u64>().ok().with_context(|| format!("`{text}` is no number"));
        let mut figures = [0; COUNT];
        for (figure, text) in figures.iter_mut().zip(&fields[FIRST.len()..]) {
            *figure = number(text)?;
        }
        Ok(Self {
            stretch: number(fields[0])?.try_into().context("the number of a stretch")?,
            seconds: number(fields[1])?,
            date: fields[2].to_owned(),
            commit: fields[3].to_owned(),
            figures,
        })
    }
}

fn header() -> String {
    let columns: Vec<&str> = FIRST.into_iter().chain(FIGURES.iter().map(|figure| figure.column)).collect();
    format!("{}\n", columns.join("\t"))
}

/// The rows of a text; an empty one has none.
pub(crate) fn read(text: &str) -> Result<Vec<Row>> {
    let mut lines = (1..).zip(text.lines());
    let Some((_, first)) = lines.next() else { return Ok(Vec::new()) };
    ensure!(first == header().trim_end(), "the first line names other columns than these: {}", header());
    lines.map(|(number, line)| Row::read(line).with_context(|| format!("line {number}"))).collect()
}

/// The rows of each stretch.
pub(crate) fn stretches(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|one, next| one.stretch == next.stretch)
}

/// The file.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
}

impl Table {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All rows so far; none where there is no file yet.
    pub(crate) fn rows(&self) -> Result<Vec<Row>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let reading = || format!("reading {}", self.path.display());
        read(&std::fs::read_to_string(&self.path).with_context(reading)?).with_context(reading)
    }

    /// The number of a stretch that begins now.
    pub(crate) fn next_stretch(&self) -> Result<u32> {
        Ok(self.rows()?.last().map_or(1, |row| row.stretch + 1))
    }

    /// Adds a row, on the disk at once: what has come so far outlives an interruption.
    pub(crate) fn append(&self, row: &Row) -> Result<()> {
        let writing = || format!("writing {}", self.path.display());
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).with_context(writing)?;
        let is_new = file.metadata().with_context(writing)?.len() == 0;
        let text = if is_new { header() + &row.line() } else { row.line() };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).with_context(writing)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row in which every figure has this value.
    pub(crate) fn row(stretch: u32, seconds: u64, value: u64) -> Row {
        let (date, commit) = ("2026-11-29".to_owned(), "0123abc".to_owned());
        Row { stretch, seconds, date, commit, figures: [value; COUNT] }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows = [row(1, 60, 7), row(1, 120, 8), row(2, 60, u64::MAX)];
        let text: String = header() + &rows.iter().map(Row::line).collect::<String>();
        assert_eq!(read(&text).unwrap(), rows);
        assert_eq!(read("").unwrap(), []);
        let stretches: Vec<usize> = stretches(&rows).map(<[Row]>::len).collect();
        assert_eq!(stretches, [2, 1]);
    }

    #[test]
    fn what_is_no_row_is_told_with_its_line() {
        let good = row(1, 60, 7).line();
        let short = good.rsplit_once('\t').unwrap().0.to_owned();
        for (line, problem) in [
            (short, "16 fields where 17 are expected"),
            (good.replacen("60", "soon", 1), "`soon` is no number"),
            (good.replacen('7', "-7", 1), "`-7` is no number"),
        ] {
            let error = read(&format!("{}{good}{line}", header())).unwrap_err();
            assert_eq!(format!("{error:#}"), format!("line 3: {problem}"));
        }
        assert!(read("stretch\tseconds\n").is_err());
    }

    #[test]
    fn a_file_goes_on_with_the_next_stretch() {
        let dir = tempfile::tempdir().unwrap();
        let table = Table::at(dir.path().join("soak.tsv"));
        assert_eq!(table.next_stretch().unwrap(), 1);
        for row in [row(1, 60, 7), row(1, 120, 8)] {
            table.append(&row).unwrap();
        }
        assert_eq!(table.next_stretch().unwrap(), 2);
        assert_eq!(table.rows().unwrap(), [row(1, 60, 7), row(1, 120, 8)]);
    }
}

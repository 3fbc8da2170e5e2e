//! What people read: spans of time, tables, colours. Nothing that comes from elsewhere leaves its line or does anything
//! to the terminal.

use std::io::IsTerminal;

use statusbridge_core::time::Seconds;

/// A span of time in at most two units: `45s`, `3m20s`, `5h2m`, `3d4h`.
pub(crate) fn span(seconds: Seconds) -> String {
    let whole = seconds.abs().round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    let sign = if seconds <= -0.5 { "-" } else { "" };
    let two = |big: u64, unit: &str, small: u64, sub: &str| match small {
        0 => format!("{sign}{big}{unit}"),
        _ => format!("{sign}{big}{unit}{small}{sub}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{rest}s"),
        (0, 0, _) => two(minutes, "m", rest, "s"),
        (0, ..) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// A text without line breaks and control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The beginning of a text of more letters than `most`, marked as such.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…'].into_iter().take(most)).collect(),
    }
}

/// Lines of cells in columns. The last cell of a line with fewer cells than others goes across the rest of them.
pub(crate) fn table(lines: &[Vec<String>]) -> String {
    let widths = widths(lines);
    lines.iter().map(|line| pad(line, &widths).join("   ").trim_end().to_owned() + "\n").collect()
}

/// How many letters the widest cell of each column has.
pub(crate) fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let lines = lines.iter().filter(|line| line.len() == columns || column + 1 < line.len());
        lines.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    (0..columns).map(width).collect()
}

/// Cells that are as wide as their columns.
pub(crate) fn pad(cells: &[String], widths: &[usize]) -> Vec<String> {
    cells.iter().zip(widths).map(|(cell, width)| format!("{:width$}", one_line(cell))).collect()
}

/// A colour for a word that is to be found at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
}

impl Colour {
    const fn code(self) -> u8 {
        match self {
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Red => 31,
        }
    }
}

/// A text in a colour, if it is written to a terminal and NO_COLOR does not forbid it.
pub(crate) fn paint(text: &str, colour: Colour, to: &impl IsTerminal) -> String {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    if to.is_terminal() && !forbidden {
        format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0.0, "0s")]
    #[case(-0.4, "0s")]
    #[case(59.4, "59s")]
    #[case(60.0, "1m")]
    #[case(200.0, "3m20s")]
    #[case(18_120.0, "5h2m")]
    #[case(273_600.0, "3d4h")]
    #[case(-90.0, "-1m30s")]
    fn spans(#[case] seconds: Seconds, #[case] expected: &str) {
        assert_eq!(span(seconds), expected);
    }

    #[rstest]
    #[case("abc", 3, "abc")]
    #[case("abcd", 3, "ab…")]
    #[case("äöüß", 3, "äö…")]
    #[case("abc", 1, "…")]
    #[case("abc", 0, "")]
    #[case("", 0, "")]
    fn a_text_is_cut_where_it_is_too_long(#[case] text: &str, #[case] most: usize, #[case] expected: &str) {
        assert_eq!(cut(text, most), expected);
    }
}

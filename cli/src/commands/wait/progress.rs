//! How far the clusters of a gate are, on one line of standard error: `eu 12/14 healthy, 2 soaking 4m left`.

use std::io::{self, IsTerminal, Write};

use crate::counts::Counts;
use crate::text::one_line;

/// The line: on a terminal it is one that changes, elsewhere a new one whenever a count changes.
pub(super) struct Progress {
    name: String,
    terminal: bool,
    shown: Option<Counts>,
}

impl Progress {
    /// For the gate of this name.
    pub(super) fn new(name: &str) -> Self {
        Self { name: one_line(name), terminal: io::stderr().is_terminal(), shown: None }
    }

    /// Shows how far the clusters are. Standard error may be closed; the wait goes on.
    pub(super) fn show(&mut self, counts: Option<Counts>) {
        let Some(counts) = counts else { return };
        let line = format!("{} {}", self.name, counts.text());
        if self.terminal {
            self.clear();
            let _ = write!(io::stderr(), "{line}").and_then(|()| io::stderr().flush());
        } else if self.shown.as_ref().is_none_or(|shown| shown.news() != counts.news()) {
            let _ = writeln!(io::stderr(), "{line}");
        }
        self.shown = Some(counts);
    }

    /// Makes room for another line.
    pub(super) fn clear(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

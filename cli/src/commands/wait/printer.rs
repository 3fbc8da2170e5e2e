//! What a wait prints: on standard output each change of state, once; on standard error how far the clusters are.

use serde_json::{Value, json};
use statusbridge_core::reconcile::object::Key;

use super::patience::Outcome;
use super::progress::Progress;
use crate::counts::counts;
use crate::exit::Exit;
use crate::look::Seen;
use crate::output::Output;
use crate::target::Target;
use crate::text::{Colour, paint};

/// Prints what changes, once.
pub(super) struct Printer {
    target: Target,
    key: Key,
    output: Output,
    progress: Progress,
    last: Option<Seen>,
}

impl Printer {
    pub(super) fn new(target: Target, key: Key, output: Output) -> Self {
        let progress = Progress::new(&target.name);
        Self { target, key, output, progress, last: None }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Keeps what was seen last for the line about the end.
    pub(super) fn keep(&mut self, seen: Seen) {
        self.last = Some(seen);
    }

    pub(super) fn tell(&mut self, seen: Seen) {
        if self.last.as_ref().is_none_or(|last| last.words() != seen.words()) {
            self.print(&seen.text(), &seen.json(&self.key));
        }
        if let Seen::Gate(verdict, now) = &seen {
            self.progress.show(counts(&verdict.reading, *now));
        }
        self.last = Some(seen);
    }

    pub(super) fn end(&mut self, outcome: Outcome) {
        let last = self.last.take();
        let said = last.as_ref().map_or_else(|| "the hub has not answered yet".to_owned(), Seen::text);
        let mut line = last.map_or_else(|| json!({}), |last| last.json(&self.key));
        if let Some(fields) = line.as_object_mut() {
            fields.insert("outcome".to_owned(), json!(outcome));
            fields.insert("exitCode".to_owned(), json!(outcome.exit() as u8));
        }
        let colour = if outcome.exit() == Exit::Done { Colour::Green } else { Colour::Red };
        self.print(
            &format!("{}: {said}", paint(outcome.words(self.target.kind), colour, &std::io::stdout())),
            &line,
        );
    }

    /// The reader may have closed the pipe; the exit code still counts.
    fn print(&mut self, text: &str, line: &Value) {
        self.progress.clear();
        let _ = self.output.print_next(&format!("{}: {text}\n", self.target), line);
    }
}

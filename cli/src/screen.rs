//! What is shown while it goes on: on a terminal a tree that is redrawn in its place, elsewhere a line for each change.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;

use crate::output::warn;
use crate::tree::{Branch, News, Size, fit};

/// Where a terminal does not say how large it is.
const USUAL: Size = Size { lines: 24, letters: 80 };

/// Standard output.
pub(crate) struct Screen {
    on: On,
}

enum On {
    /// What is drawn.
    Terminal(Vec<String>),
    Elsewhere(News),
}

impl Screen {
    pub(crate) fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = io::stdout().is_terminal() && !is_dumb;
        Self { on: if is_terminal { On::Terminal(Vec::new()) } else { On::Elsewhere(News::default()) } }
    }

    /// Shows how things are now.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn show(&mut self, roots: &[Branch]) -> Result<()> {
        let mut out = io::stdout();
        match &mut self.on {
            On::Terminal(drawn) => {
                let lines = fit(roots, size(), &out);
                if lines != *drawn {
                    out.write_all(redraw(drawn.len(), &lines).as_bytes())?;
                    out.flush()?;
                    *drawn = lines;
                }
            }
            On::Elsewhere(news) => {
                for line in news.lines(roots, &out) {
                    writeln!(out, "{line}")?;
                }
            }
        }
        Ok(())
    }

    /// Warns on standard error; what is shown next comes below it.
    pub(crate) fn warn(&mut self, message: &str) {
        if let On::Terminal(drawn) = &mut self.on {
            let _ = io::stdout().write_all(redraw(drawn.len(), &[]).as_bytes());
            let _ = io::stdout().flush();
            drawn.clear();
        }
        warn(message);
    }
}

/// How much fits above the line of the cursor.
fn size() -> Size {
    let told = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let told = told.map(|it| Size { lines: it.ws_row.into(), letters: it.ws_col.into() });
    let Size { lines, letters } = told.filter(|it| it.lines > 1 && it.letters > 1).unwrap_or(USUAL);
    Size { lines: lines - 1, letters }
}

/// Puts lines in the place of so many that were drawn. Letters that are wider than one column do not wrap.
fn redraw(drawn: usize, lines: &[String]) -> String {
    let mut text = String::from("\u{1b}[?7l");
    if drawn > 0 {
        text += &format!("\r\u{1b}[{drawn}A");
    }
    for line in lines {
        text += &format!("{line}\u{1b}[K\n");
    }
    text + "\u{1b}[J\u{1b}[?7h"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_the_place_of_those_that_were_drawn() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(redraw(0, &lines), "\u{1b}[?7la\u{1b}[K\nb\u{1b}[K\n\u{1b}[J\u{1b}[?7h");
        assert_eq!(redraw(3, &lines[..1]), "\u{1b}[?7l\r\u{1b}[3Aa\u{1b}[K\n\u{1b}[J\u{1b}[?7h");
    }
}

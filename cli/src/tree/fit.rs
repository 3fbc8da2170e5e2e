//! A tree as lines that fit into a terminal.

use std::io::IsTerminal;

use super::{Branch, LONGEST_LINE};
use crate::text::{Colour, cut, one_line, paint};

/// Most letters that the names beside each other are made equally long to.
const WIDEST_NAME: usize = 40;

/// How many lines there are, and how many letters in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) lines: usize,
    pub(crate) letters: usize,
}

/// One line, before it is painted.
struct Line {
    name: String,
    state: Option<(String, Option<Colour>)>,
    text: String,
}

impl Line {
    fn show(&self, letters: usize, to: &impl IsTerminal) -> String {
        let mut left = letters;
        let mut take = |text: &str| {
            let text = cut(text, left);
            left -= text.chars().count();
            text
        };
        let mut line = take(&self.name);
        if let Some((state, colour)) = &self.state {
            line += &take("  ");
            let word = take(state.trim_end());
            let room = take(state.get(state.trim_end().len()..).unwrap_or_default());
            line += &colour.map_or(word.clone(), |colour| paint(&word, colour, to));
            line += &room;
        }
        if !self.text.is_empty() {
            line += &take("  ");
            line += &take(&self.text);
        }
        line.trim_end().to_owned()
    }
}

/// All of the tree.
pub(crate) fn whole(roots: &[Branch], to: &impl IsTerminal) -> Vec<String> {
    lines(roots).iter().map(|line| line.show(LONGEST_LINE, to)).collect()
}

/// As much of the tree as fits. Where not all does, branches beside each other that are done become one line; where that
/// is not enough, the end is left out.
pub(crate) fn fit(roots: &[Branch], size: Size, to: &impl IsTerminal) -> Vec<String> {
    let mut all = lines(roots);
    if all.len() > size.lines {
        all = lines(&folded(roots));
    }
    let left_out = all.len().saturating_sub(size.lines);
    if left_out > 0 {
        all.truncate(size.lines.saturating_sub(1));
    }
    let mut shown: Vec<String> = all.iter().map(|line| line.show(size.letters, to)).collect();
    if left_out > 0 && size.lines > 0 {
        shown.push(cut(&format!("… and {} more lines", left_out + 1), size.letters));
    }
    shown
}

fn lines(roots: &[Branch]) -> Vec<Line> {
    let mut all = Vec::new();
    grow(roots, None, &mut all);
    all
}

/// The lines of branches that stand beside each other; `before` is what stands in front of them, unless they are roots.
fn grow(branches: &[Branch], before: Option<&str>, all: &mut Vec<Line>) {
    let widest = |of: fn(&Branch) -> usize| branches.iter().map(of).max().unwrap_or_default();
    let names = widest(|branch| branch.name.chars().count()).min(WIDEST_NAME);
    let states = widest(|branch| branch.state.map_or(0, |(word, _)| word.len()));
    for (at, branch) in branches.iter().enumerate() {
        let is_last = at + 1 == branches.len();
        let (own, below) = match before {
            None => (String::new(), String::new()),
            Some(before) if is_last => (format!("{before}└─ "), format!("{before}   ")),
            Some(before) => (format!("{before}├─ "), format!("{before}│  ")),
        };
        let text = [&branch.text, &branch.ages].map(|text| one_line(text));
        all.push(Line {
            name: format!("{own}{:names$}", one_line(&branch.name)),
            state: branch.state.map(|(word, colour)| (format!("{word:states$}"), colour)),
            text: text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "),
        });
        grow(&branch.branches, Some(&below), all);
    }
}

/// The same, where branches beside each other that are done are one.
fn folded(branches: &[Branch]) -> Vec<Branch> {
    let mut all = Vec::new();
    for run in branches.chunk_by(|a, b| a.is_all_done() && b.is_all_done()) {
        match run {
            [one] => all.push(Branch { branches: folded(&one.branches), ..one.clone() }),
            many => {
                let names: Vec<&str> = many.iter().map(|branch| branch.name.as_str()).collect();
                all.push(Branch::told(&format!("{} done", many.len()), names.join(", ")));
            }
        }
    }
    all
}

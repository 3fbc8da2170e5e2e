//! What of a tree is other than before, a line for each.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use super::{Branch, LONGEST_LINE};
use crate::text::{cut, one_line, paint};

/// What was told of a branch.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    word: &'static str,
    text: String,
    end: &'static str,
}

/// What was told of each branch, by its name and those above it.
#[derive(Debug, Default)]
pub(crate) struct News {
    told: BTreeMap<String, Told>,
}

impl News {
    /// Lines for the branches that are other than they were told, and for those that are gone.
    pub(crate) fn lines(&mut self, roots: &[Branch], to: &impl IsTerminal) -> Vec<String> {
        let mut before = std::mem::take(&mut self.told);
        let mut lines = Vec::new();
        self.walk(roots, "", &mut before, &mut lines, to);
        let ended = before.into_iter().filter(|(_, told)| !told.end.is_empty());
        lines.extend(ended.map(|(path, told)| format!("{path}  {}", told.end)));
        lines
    }

    fn walk(
        &mut self,
        branches: &[Branch],
        above: &str,
        before: &mut BTreeMap<String, Told>,
        lines: &mut Vec<String>,
        to: &impl IsTerminal,
    ) {
        for branch in branches {
            let path = format!("{above}{}", one_line(&branch.name));
            let (word, colour) = branch.state.unwrap_or(("", None));
            let told = Told { word, text: one_line(&branch.text), end: branch.end };
            if before.remove(&path).as_ref() != Some(&told) {
                let word = colour.map_or(word.to_owned(), |colour| paint(word, colour, to));
                let parts = [path.as_str(), &word, &cut(&told.text, LONGEST_LINE)];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                lines.push(parts.join("  "));
            }
            let below = format!("{path} > ");
            self.told.insert(path, told);
            self.walk(&branch.branches, &below, before, lines, to);
        }
    }
}

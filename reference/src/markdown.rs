//! Markdown as GitHub reads it.

/// A table. Cells may hold markup; a bar in them is escaped, also where it is code.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

/// A text as code.
pub(crate) fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}

/// Words as code, as a list in a sentence: `a`, `b`.
pub(crate) fn codes<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    words.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

/// A doc comment in one line, which ends with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.chars().last() {
        None | Some('.' | ':' | '!') => text,
        Some(_) => text + ".",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_does_not_end_a_cell() {
        let table = table(["a", "b"], [[code("x|y"), "1".to_owned()]]);
        assert_eq!(table, "| a | b |\n|---|---|\n| `x\\|y` | 1 |\n");
    }

    #[test]
    fn a_doc_comment_is_one_sentence() {
        assert_eq!(sentence("How old\n  it may be"), "How old it may be.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(sentence(""), "");
    }
}

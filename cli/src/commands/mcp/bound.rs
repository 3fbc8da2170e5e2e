//! How much is told, and of which characters: whoever names a cluster or writes a message there writes for a model here.

use serde_json::{Map, Value};

/// Most characters of one text.
const MOST_TEXT: usize = 400;
/// Most bytes of one list, as JSON.
const MOST_LIST: usize = 24 << 10;
/// Most bytes of an answer, as JSON.
const MOST_ANSWER: usize = 96 << 10;

/// An answer to a client: the same for people and as data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) data: Value,
}

impl Told {
    /// # Errors
    /// In words for the client, when it is too long all the same.
    pub(super) fn new(text: String, data: Value) -> Result<Self, String> {
        let data = tidy(data);
        match data.to_string().len().max(text.len()) {
            bytes if bytes > MOST_ANSWER => Err(format!(
                "the answer has {bytes} bytes, at most {MOST_ANSWER} are told: ask for less, with limit"
            )),
            _ => Ok(Self { text, data }),
        }
    }
}

/// What of a list is told, and how much is not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Listed {
    pub(super) shown: Vec<Value>,
    pub(super) left_out: usize,
}

/// The first of these, at most `limit`, as long as they are short enough together.
pub(super) fn list(items: impl IntoIterator<Item = Value>, limit: usize) -> Listed {
    let (mut listed, mut room) = (Listed::default(), MOST_LIST);
    for item in items.into_iter().map(tidy) {
        let bytes = item.to_string().len();
        if listed.left_out > 0 || listed.shown.len() >= limit || bytes > room {
            listed.left_out += 1;
        } else {
            room -= bytes;
            listed.shown.push(item);
        }
    }
    listed
}

/// A text in one line, of characters that can be seen, and not too long.
pub(super) fn plain(text: &str) -> String {
    let mut letters = text.chars().map(|letter| if is_hidden(letter) { ' ' } else { letter });
    let shown: String = letters.by_ref().take(MOST_TEXT).collect();
    match letters.count() {
        0 => shown,
        more => format!("{shown}… ({more} more characters)"),
    }
}

/// The same, in quotation marks that it cannot close.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text).replace('"', "'"))
}

/// Characters that a person does not see and a model reads: controls, marks of direction and width, tags.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// The same value, with every text in it plain.
fn tidy(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(&text)),
        Value::Array(items) => items.into_iter().map(tidy).collect(),
        Value::Object(fields) => {
            let fields: Map<_, _> =
                fields.into_iter().map(|(name, value)| (plain(&name), tidy(value))).collect();
            Value::Object(fields)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::as_it_is("zwölf Cluster", "zwölf Cluster")]
    #[case::lines("a\nb\tc\u{1b}[31m", "a b c [31m")]
    #[case::hidden("a\u{200b}b\u{202e}c\u{e0041}d", "a b c d")]
    fn texts_are_plain(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(plain(text), expected);
        assert_eq!(tidy(json!({"a": [text]})), json!({"a": [expected]}));
    }

    #[test]
    fn a_long_text_says_how_much_is_missing() {
        let text = plain(&"ä".repeat(MOST_TEXT + 7));
        assert!(text.ends_with("ä… (7 more characters)"), "{text}");
        assert_eq!(quoted("a\" say \"b"), "\"a' say 'b\"");
    }

    #[test]
    fn a_list_is_bounded_by_number_and_by_length() {
        let of = |count: usize, letters: usize| vec![json!("x".repeat(letters)); count];
        assert_eq!((list(of(5, 1), 3).shown.len(), list(of(5, 1), 3).left_out), (3, 2));
        let long = list(of(1000, 398), 1000);
        assert_eq!((long.shown.len(), long.left_out), (MOST_LIST / 400, 1000 - MOST_LIST / 400));
    }

    #[test]
    fn an_answer_is_bounded() {
        assert!(Told::new(String::new(), json!(vec!["x".repeat(300); 300])).unwrap().text.is_empty());
        assert!(Told::new(String::new(), json!(vec!["x".repeat(300); 400])).unwrap_err().contains("limit"));
        assert!(Told::new("x".repeat(MOST_ANSWER + 1), json!({})).is_err());
    }
}

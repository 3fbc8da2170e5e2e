//! Kubernetes objects that somebody saved: YAML of several documents, JSON, JSON lines, lists, and the events of a watch.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;
use statusbridge_expression::yaml;

use crate::source::{ENDINGS, files_of};

/// Most bytes of all files together.
const MOST: u64 = 256 << 20;

/// A saved object.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedObject {
    /// Where it was found, for messages.
    pub origin: String,
    /// The object, with `apiVersion`, `kind` and `metadata.name`.
    pub value: Value,
    /// What happened to it, where that was saved.
    pub event: Option<SavedEvent>,
}

/// What a watch said about an object, as `kubectl get --watch --output-watch-events` prints it, where the object alone does
/// not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedEvent {
    /// It is new.
    Added,
    /// It is gone; this is how it was last.
    Deleted,
}

impl SavedObject {
    /// An object of which no event was saved.
    pub fn new(origin: &str, value: Value) -> Self {
        Self { origin: origin.to_owned(), value, event: None }
    }
}

/// Something to be said about what was saved, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct Remark {
    /// The file, and the document or line in it.
    pub origin: String,
    /// What is to be said.
    pub message: String,
}

/// Everything that could be read, in order, and everything that could not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The objects.
    pub objects: Vec<SavedObject>,
    /// What is broken; it stops nothing else.
    pub broken: Vec<Remark>,
}

impl Saved {
    /// Reads files, the files of directories, and standard input for `-`.
    pub fn read(paths: &[PathBuf]) -> Self {
        let (mut saved, mut left) = (Self::default(), Some(MOST));
        for path in paths {
            saved.add_path(path, &mut left);
        }
        saved
    }

    /// Reads at most the bytes that are left, and takes away those that it has read. None are left after one too many.
    fn add_path(&mut self, path: &Path, left: &mut Option<u64>) {
        if left.is_none() {
            return;
        }
        let name = path.display().to_string();
        if path == Path::new("-") {
            match text_of(io::stdin(), left) {
                Ok(text) => self.add_text("standard input", &text),
                Err(error) => self.broken("standard input", error),
            }
            return;
        }
        if !path.is_dir() {
            match fs::File::open(path).and_then(|file| text_of(file, left)) {
                Ok(text) => self.add_text(&name, &text),
                Err(error) => self.broken(&name, error),
            }
            return;
        }
        match files_of(path) {
            Ok(files) if files.is_empty() => {
                self.broken(&name, format!("has no file that ends in {}", ENDINGS.join(", ")))
            }
            Ok(files) => files.iter().for_each(|file| self.add_path(file, left)),
            Err(error) => self.broken(&name, error),
        }
    }

    /// Reads the objects in a text; `origin` names it in messages.
    pub(crate) fn add_text(&mut self, origin: &str, text: &str) {
        let start = text.trim_start();
        if start.starts_with(['{', '[']) && self.add_json(origin, start) {
            return;
        }
        let documents = yaml::documents(text);
        let several = documents.len() > 1;
        for (number, document) in documents.into_iter().enumerate() {
            let origin =
                if several { format!("{origin}, document {}", number + 1) } else { origin.to_owned() };
            match yaml::from_str::<Value>(&document) {
                Ok(Value::Null) => {}
                Ok(value) => self.add_value(&origin, value),
                Err(error) => self.broken(&origin, error),
            }
        }
    }

    /// Reads JSON values one after another, or one a line; false when the text is no JSON at all.
    fn add_json(&mut self, origin: &str, text: &str) -> bool {
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        let error = match values {
            Ok(values) => {
                let several = values.len() > 1;
                for (number, value) in values.into_iter().enumerate() {
                    let origin =
                        if several { format!("{origin}, object {}", number + 1) } else { origin.to_owned() };
                    self.add_value(&origin, value);
                }
                return true;
            }
            Err(error) => error,
        };
        let is_whole = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|v| v.is_object());
        if text.lines().any(is_whole) {
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let origin = format!("{origin}, line {}", number + 1);
                match serde_json::from_str(line) {
                    Ok(value) => self.add_value(&origin, value),
                    Err(error) => self.broken(&origin, error),
                }
            }
            return true;
        }
        // Flow style YAML begins like JSON, and is not written by machines.
        if yaml::from_multiple::<Value>(text).is_ok() {
            return false;
        }
        self.broken(origin, error);
        true
    }

    /// Adds one object, the objects of a list, or those of events.
    fn add_value(&mut self, origin: &str, value: Value) {
        each_object(value, &mut |value| match event_of(value) {
            Ok(None) => {}
            Ok(Some((event, value))) if is_object(&value) => {
                self.objects.push(SavedObject { event, ..SavedObject::new(origin, value) });
            }
            Ok(Some(_)) => {
                self.broken(origin, "is no Kubernetes object: needs apiVersion, kind and metadata.name");
            }
            Err(error) => self.broken(origin, error),
        });
    }

    fn broken(&mut self, origin: &str, message: impl ToString) {
        self.broken.push(Remark { origin: origin.to_owned(), message: message.to_string() });
    }
}

/// Whether a value has what every Kubernetes object has.
pub(crate) fn is_object(value: &Value) -> bool {
    let text = |value: Option<&Value>| value.is_some_and(Value::is_string);
    let name = value.get("metadata").and_then(|metadata| metadata.get("name"));
    text(value.get("apiVersion")) && text(value.get("kind")) && text(name)
}

/// The object of an event with what happened to it; anything else as it is. `None` for a bookmark, which is no object.
fn event_of(mut value: Value) -> Result<Option<(Option<SavedEvent>, Value)>, String> {
    let Some(object) = value.get("object").filter(|_| value.get("kind").is_none()) else {
        return Ok(Some((None, value)));
    };
    let event = match value.get("type").and_then(Value::as_str) {
        Some("ADDED") => Some(SavedEvent::Added),
        Some("MODIFIED") => None,
        Some("DELETED") => Some(SavedEvent::Deleted),
        Some("BOOKMARK") => return Ok(None),
        Some("ERROR") => {
            let message = object.get("message").and_then(Value::as_str).unwrap_or("without a message");
            return Err(format!("the watch ended with an error: {message}"));
        }
        _ => return Ok(Some((None, value))),
    };
    Ok(Some((event, value.get_mut("object").map(Value::take).unwrap_or_default())))
}

/// All that can be read, which is taken from the bytes that are left.
///
/// # Errors
/// When it is no UTF-8, or longer than that; then none are left.
fn text_of(reader: impl Read, left: &mut Option<u64>) -> io::Result<String> {
    let most = left.unwrap_or_default();
    let mut bytes = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    *left = most.checked_sub(bytes.len() as u64);
    if left.is_none() {
        return Err(io::Error::other(format!(
            "found more than {MOST} bytes in all files together, which is the most that is read: read fewer at a time"
        )));
    }
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Hands over the objects of lists of any depth one by one, and everything else as it is.
pub fn each_object(mut value: Value, found: &mut impl FnMut(Value)) {
    if let Value::Array(items) = value {
        return items.into_iter().for_each(|item| each_object(item, found));
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let (version, kind) = (text("apiVersion"), text("kind"));
    if let Some(of) = kind.as_deref().and_then(|kind| kind.strip_suffix("List"))
        && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take)
    {
        for mut item in items {
            // The items of a typed list leave out what the list says.
            if let (Some(fields), Some(version), false) = (item.as_object_mut(), &version, of.is_empty()) {
                fields.entry("apiVersion").or_insert_with(|| version.clone().into());
                fields.entry("kind").or_insert_with(|| of.into());
            }
            each_object(item, found);
        }
        return;
    }
    found(value);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let mut saved = Saved::default();
        saved.add_text("f", text);
        let name = |o: &SavedObject| {
            format!("{} {}/{}", o.origin, o.value["kind"], o.value["metadata"]["name"]).replace('"', "")
        };
        (saved.objects.iter().map(name).collect(), saved.broken.iter().map(ToString::to_string).collect())
    }

    const A: &str = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}"#;

    #[rstest]
    #[case::yaml("apiVersion: v1\nkind: A\nmetadata: {name: a}\n", &["f A/a"])]
    #[case::documents("# c\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n\n--- # x\napiVersion: v1\nkind: B\nmetadata:\n  name: b\n", &["f, document 1 A/a", "f, document 2 B/b"])]
    #[case::words_that_are_no_bools("apiVersion: v1\nkind: A\nmetadata: {name: n}\n", &["f A/n"])]
    #[case::json(A, &["f A/a"])]
    #[case::lines(&format!("{A}\n{A}\n"), &["f, object 1 A/a", "f, object 2 A/a"])]
    #[case::array(&format!("[{A}, {A}]"), &["f A/a", "f A/a"])]
    #[case::list(&format!(r#"{{"apiVersion":"v1","kind":"List","items":[{A}]}}"#), &["f A/a"])]
    #[case::typed_list(r#"{"apiVersion":"v1","kind":"AList","items":[{"metadata":{"name":"a"}}]}"#, &["f A/a"])]
    #[case::flow_yaml("{apiVersion: v1, kind: A, metadata: {name: a}}", &["f A/a"])]
    #[case::dashes_in_text("apiVersion: v1\nkind: A\nmetadata:\n  name: a\ndata: |\n  ---\n  x: [\n", &["f A/a"])]
    #[case::nothing("\n# only a comment\n", &[])]
    fn reads_every_common_form(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(read(text), (expected.iter().map(ToString::to_string).collect(), vec![]));
    }

    #[rstest]
    #[case::lines(
        "{\"type\":\"ADDED\",\"object\":$A}\n{\"type\":\"MODIFIED\",\"object\":$A}\n{\"type\":\"DELETED\",\"object\":$A}\n"
    )]
    #[case::documents(
        "type: ADDED\nobject: $A\n---\ntype: MODIFIED\nobject: $A\n---\nobject: $A\ntype: DELETED\n"
    )]
    #[case::array(
        "[{\"type\":\"ADDED\",\"object\":$A}, {\"type\":\"MODIFIED\",\"object\":$A}, {\"type\":\"DELETED\",\"object\":$A}]"
    )]
    #[case::with_a_bookmark(
        "{\"type\":\"ADDED\",\"object\":$A}\n{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"A\",\"metadata\":{}}}\n{\"type\":\"MODIFIED\",\"object\":$A}\n{\"type\":\"DELETED\",\"object\":$A}"
    )]
    fn events_of_a_watch_are_told_apart(#[case] text: &str) {
        let mut saved = Saved::default();
        saved.add_text("f", &text.replace("$A", A));
        assert_eq!(saved.broken, []);
        let events: Vec<_> = saved.objects.iter().map(|object| object.event).collect();
        assert_eq!(events, [Some(SavedEvent::Added), None, Some(SavedEvent::Deleted)]);
    }

    #[test]
    fn a_watch_that_ended_with_an_error_is_broken() {
        let mut saved = Saved::default();
        saved.add_text("f", r#"{"type":"ERROR","object":{"kind":"Status","message":"too old"}}"#);
        assert_eq!(saved.broken[0].to_string(), "f: the watch ended with an error: too old");
    }

    #[rstest]
    #[case::document(
        "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nbroken: [\n---\napiVersion: v1\nkind: B\nmetadata: {name: b}\n",
        2,
        "f, document 2: "
    )]
    #[case::line(&format!("{A}\n{{\"a\": \n{A}\n"), 2, "f, line 2: ")]
    #[case::item(&format!("[{A}, 5]"), 1, "f: is no Kubernetes object")]
    #[case::no_name(&format!("{A}\n{{\"kind\": \"A\"}}"), 1, "f, object 2: is no Kubernetes object")]
    #[case::json("{\"apiVersion\": \"v1\",\n \"kind\"", 0, "f: EOF")]
    fn what_is_broken_is_named_and_stops_nothing(
        #[case] text: &str,
        #[case] objects: usize,
        #[case] message: &str,
    ) {
        let (read, broken) = read(text);
        assert_eq!((read.len(), broken.len()), (objects, 1), "{read:?} {broken:?}");
        assert!(broken[0].starts_with(message), "{broken:?}");
    }

    #[test]
    fn so_many_bytes_are_read_of_all_files_and_one_error_says_so() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            fs::write(directory.path().join(format!("{name}.json")), A).unwrap();
        }
        let read = |bytes| {
            let mut left = Some(bytes);
            let mut saved = Saved::default();
            saved.add_path(directory.path(), &mut left);
            let broken: Vec<_> = saved.broken.iter().map(ToString::to_string).collect();
            (saved.objects.len(), broken)
        };
        let length = A.len() as u64;
        assert_eq!(read(4 * length), (4, vec![]));
        for bytes in [2 * length, 3 * length - 1] {
            let (objects, broken) = read(bytes);
            assert_eq!((objects, broken.len()), (2, 1), "{broken:?}");
            assert!(broken[0].contains("c.json: found more than 268435456 bytes in all files"), "{broken:?}");
        }
    }
}

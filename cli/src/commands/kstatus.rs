//! `kstatus`: what kstatus says about objects, one JSON line each, as they are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use statusbridge_contract::Health;
use statusbridge_exporter::{saved::each_object, source::files_of};
use statusbridge_expression::yaml;
use statusbridge_kstatus::{self as kstatus, Status};

use crate::exit::Exit;

/// Arguments of `kstatus`.
#[derive(Debug, clap::Args)]
pub(crate) struct KstatusArgs {
    /// What time it is, for Pods that no node takes. The clock's time when left out.
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Files with objects, directories of such files, or - for standard input (the default): JSON
    /// lines, JSON, YAML, lists.
    #[arg(value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Reason of what cannot be read as an object.
const MALFORMED: &str = "Malformed";

/// Prints the status of every object to standard output, and to standard error what cannot be opened or read to its
/// end; what is malformed has the status Unknown.
pub(crate) fn run(args: &KstatusArgs) -> anyhow::Result<Exit> {
    let (mut out, mut problems) = (io::stdout().lock(), io::stderr());
    let stdin = [PathBuf::from("-")];
    let paths = if args.paths.is_empty() { &stdin[..] } else { &args.paths };
    let mut all_read = true;
    for path in paths {
        let mut tell = |name: &Path, error: io::Error| {
            all_read = false;
            writeln!(problems, "{}: {error}", name.display())
        };
        let files = match path.is_dir() {
            true => files_of(path),
            false => Ok(vec![path.clone()]),
        };
        let files = match files {
            Ok(files) => files,
            Err(error) => {
                tell(path, error)?;
                continue;
            }
        };
        for file in &files {
            let input: Box<dyn BufRead> = if file == Path::new("-") {
                Box::new(io::stdin().lock())
            } else {
                match File::open(file) {
                    Ok(opened) => Box::new(BufReader::new(opened)),
                    Err(error) => {
                        tell(file, error)?;
                        continue;
                    }
                }
            };
            let name = match file == Path::new("-") {
                true => "standard input".to_owned(),
                false => file.display().to_string(),
            };
            if let Err(error) = read(&name, input, args.now, &mut out)? {
                tell(file, error)?;
            }
        }
    }
    Ok(if all_read { Exit::Done } else { Exit::Failed })
}

/// Prints the status of every object of an input. The outer error is the output's, the inner one the
/// input's.
fn read(
    name: &str,
    mut input: impl BufRead,
    now: Option<jiff::Timestamp>,
    out: &mut impl Write,
) -> anyhow::Result<io::Result<()>> {
    let mut reader = Reader { name, out, now, line: 0, text: String::new(), first: 1, utf8: true };
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            reader.flush()?;
            return Ok(read.map(drop));
        }
        reader.push(&line)?;
    }
}

/// Cuts an input into texts that are read by themselves, so that nothing has to be held for long and
/// what is broken breaks nothing else: lines that are JSON, JSON of several lines, YAML documents.
struct Reader<'a, W> {
    name: &'a str,
    out: &'a mut W,
    now: Option<jiff::Timestamp>,
    /// Number of the line that was read last.
    line: usize,
    /// Lines that do not make a whole text yet, and the number of the first of them.
    text: String,
    first: usize,
    /// Whether they are text at all.
    utf8: bool,
}

impl<W: Write> Reader<'_, W> {
    fn push(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.line += 1;
        let decoded = String::from_utf8_lossy(line);
        let utf8 = std::str::from_utf8(line).is_ok();
        let mut line = decoded.trim_end_matches(['\n', '\r']);
        if self.line == 1 {
            line = line.trim_start_matches('\u{feff}');
        }
        if let Some(rest) = line.strip_prefix("---")
            && (rest.is_empty() || rest.starts_with([' ', '\t']))
        {
            self.flush()?;
            line = rest;
        }
        if line.starts_with('{') && !expects_more(&self.text) {
            let values = json(line).ok().filter(|_| utf8);
            if values.is_some() || is_json(&self.text) {
                self.flush()?;
            }
            if let Some(values) = values {
                return values.into_iter().try_for_each(|value| self.print(self.line, value));
            }
        }
        if self.text.trim().is_empty() {
            self.text.clear();
            (self.first, self.utf8) = (self.line, true);
        }
        self.utf8 &= utf8;
        self.text.push_str(line);
        self.text.push('\n');
        let closes = line.starts_with(['}', ']']) || (line.starts_with('[') && line.ends_with(']'));
        if closes && is_json(&self.text) && !json(&self.text).is_err_and(|(_, error)| error.is_eof()) {
            self.flush()?;
        }
        Ok(())
    }

    /// Reads the lines so far as a whole text.
    fn flush(&mut self) -> anyhow::Result<()> {
        let text = std::mem::take(&mut self.text);
        let first = self.first;
        let comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(comment) {
            return Ok(());
        }
        if !self.utf8 {
            return self.malformed(first, "is not UTF-8");
        }
        if !is_json(&text) {
            return match yaml(&text) {
                Ok(value) => self.print(first, value),
                Err(error) => self.malformed(first, &format!("YAML from here: {error}")),
            };
        }
        let (values, error) = match json(&text) {
            Ok(values) => (values, None),
            Err((values, error)) => (values, Some(error)),
        };
        let Some(error) = error else {
            return values.into_iter().try_for_each(|value| self.print(first, value));
        };
        // YAML in flow style begins like JSON. What was meant as JSON is not read as YAML, which
        // makes a null of a value that is missing.
        let meant_as_json = text.trim_start_matches(|c: char| c.is_whitespace() || "{[".contains(c));
        if !meant_as_json.starts_with('"')
            && let Ok(value @ (Value::Object(_) | Value::Array(_))) = yaml(&text)
        {
            return self.print(first, value);
        }
        let position = format!(" at line {} column {}", error.line(), error.column());
        let told = error.to_string();
        let told = told.strip_suffix(&position).unwrap_or(&told);
        // The end of a line counts as the start of the next one.
        let (offset, column) = match error.column() {
            0 => (error.line().saturating_sub(2), String::new()),
            column => (error.line().saturating_sub(1), format!("column {column}: ")),
        };
        values.into_iter().try_for_each(|value| self.print(first, value))?;
        self.malformed(first + offset, &format!("{column}{told}"))?;
        // A line that was cut off looks as if it went on in the next one.
        for (number, line) in text.lines().enumerate().skip(offset) {
            if line.starts_with('{')
                && let Ok(values) = json(line)
            {
                values.into_iter().try_for_each(|value| self.print(first + number, value))?;
            }
        }
        Ok(())
    }

    /// Prints the status of an object, or of the objects of a list, that begins in a line.
    fn print(&mut self, line: usize, value: Value) -> anyhow::Result<()> {
        let mut done = Ok(());
        each_object(value, &mut |object| {
            if done.is_ok() {
                done = self.print_object(line, &object);
            }
        });
        done
    }

    fn print_object(&mut self, line: usize, object: &Value) -> anyhow::Result<()> {
        let has_kind = object.get("kind").and_then(Value::as_str).is_some_and(|kind| !kind.is_empty());
        let status = match (object, has_kind) {
            (Value::Object(_), true) => {
                let now = self.now.unwrap_or_else(jiff::Timestamp::now);
                kstatus::compute_at(object, now.as_second())
            }
            (Value::Object(_), false) => self.unknown(line, "has no kind"),
            _ => self.unknown(line, "is no object"),
        };
        self.put(object, status)
    }

    fn malformed(&mut self, line: usize, message: &str) -> anyhow::Result<()> {
        let status = self.unknown(line, message);
        self.put(&Value::Null, status)
    }

    fn unknown(&self, line: usize, message: &str) -> Status {
        Status {
            health: Health::Unknown,
            reason: MALFORMED.to_owned(),
            message: format!("{}, line {line}: {message}", self.name),
        }
    }

    fn put(&mut self, object: &Value, status: Status) -> anyhow::Result<()> {
        let text = |field: Option<&Value>| field.and_then(Value::as_str).map(str::to_owned);
        let metadata = object.get("metadata");
        let line = Line {
            api_version: text(object.get("apiVersion")),
            kind: text(object.get("kind")),
            namespace: text(metadata.and_then(|m| m.get("namespace"))),
            name: text(metadata.and_then(|m| m.get("name"))),
            status: status.health.name(),
            reason: &status.reason,
            message: &status.message,
        };
        writeln!(self.out, "{}", serde_json::to_string(&line)?)?;
        Ok(())
    }
}

/// What is printed of an object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

/// JSON values one after another; with an error, those before it.
fn json(text: &str) -> Result<Vec<Value>, (Vec<Value>, serde_json::Error)> {
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter() {
        match value {
            Ok(value) => values.push(value),
            Err(error) => return Err((values, error)),
        }
    }
    Ok(values)
}

/// A YAML document, or what is wrong with it in one line.
fn yaml(text: &str) -> Result<Value, String> {
    yaml::from_str(text).map_err(|error| {
        let told = error.lines().next().unwrap_or_default();
        told.strip_prefix("error: ").unwrap_or(told).to_owned()
    })
}

/// Whether a text begins like JSON.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Whether JSON cannot end here, so that a brace at the start of the next line belongs to it.
fn expects_more(text: &str) -> bool {
    is_json(text) && text.trim_end().ends_with([',', ':', '['])
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// `name status reason` of each line, and its message where it is malformed.
    fn said(input: &[u8]) -> Vec<String> {
        let mut out = Vec::new();
        read("f", Cursor::new(input), None, &mut out).expect("it is written").expect("it is read");
        let line = |line: &str| -> String {
            let line: Value = serde_json::from_str(line).expect("a line is JSON");
            let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
            match line["reason"] == MALFORMED {
                true => format!("{} {}: {}", text("name"), text("status"), text("message")),
                false => format!("{} {}", text("name"), text("status")),
            }
        };
        String::from_utf8(out).expect("text").lines().map(line).collect()
    }

    const A: &str = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;
    const B: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}"#;
    const YAML: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: y\n";

    fn pretty(text: &str) -> String {
        let value: Value = serde_json::from_str(text).expect("JSON");
        serde_json::to_string_pretty(&value).expect("JSON")
    }

    fn unindented(text: &str) -> String {
        pretty(text).lines().map(|line| format!("{}\n", line.trim_start())).collect()
    }

    #[rstest]
    #[case::lines(format!("{A}\n\n{B}\n"), &["a Current", "b InProgress"])]
    #[case::no_newline_at_the_end(format!("{A}\r\n{B}"), &["a Current", "b InProgress"])]
    #[case::two_in_a_line(format!("{A}{B}\n"), &["a Current", "b InProgress"])]
    #[case::pretty(format!("{}\n{}\n", pretty(A), pretty(B)), &["a Current", "b InProgress"])]
    #[case::pretty_and_joined(format!("{}{}", pretty(A), pretty(B)), &["a Current", "b InProgress"])]
    #[case::unindented(format!("{}{}", unindented(A), unindented(B)), &["a Current", "b InProgress"])]
    #[case::array(format!("[\n{A},\n{B}\n]\n{A}"), &["a Current", "b InProgress", "a Current"])]
    #[case::array_in_a_line(format!("[{A}, {B}]\n{A}"), &["a Current", "b InProgress", "a Current"])]
    #[case::list(format!("{{\"kind\": \"List\", \"items\": [\n{A},\n{B}\n]}}\n"), &["a Current", "b InProgress"])]
    #[case::typed_list(r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p"}}]}"#.into(), &["p InProgress"])]
    #[case::yaml(YAML.into(), &["y Current"])]
    #[case::documents(format!("# c\n---\n{YAML}---\n\n---\n{YAML}"), &["y Current", "y Current"])]
    #[case::yaml_list(format!("apiVersion: v1\nkind: List\nitems:\n- {A}\n- {B}\n"), &["a Current", "b InProgress"])]
    #[case::flow_yaml("{apiVersion: v1, kind: Secret, metadata: {name: f}}".into(), &["f Current"])]
    #[case::yaml_and_json(format!("{YAML}---\n{A}\n{B}"), &["y Current", "a Current", "b InProgress"])]
    #[case::byte_order_mark(format!("\u{feff}{A}"), &["a Current"])]
    #[case::nothing("\n# only a comment\n".into(), &[])]
    fn reads_every_common_form(#[case] input: String, #[case] expected: &[&str]) {
        assert_eq!(said(input.as_bytes()), expected);
    }

    #[rstest]
    #[case::line_cut_off(format!("{A}\n{}\n{B}\n", &A[..30]), &["a Current", "- Unknown: f, line 2: control character", "b InProgress"])]
    #[case::first_line_cut_off_after_a_comma(format!("{{\"kind\":\"X\",\n{A}\n{B}\n"), &["- Unknown: f, line 2: column 1: ", "a Current", "b InProgress"])]
    #[case::value_missing(format!("{{\"kind\":\"Secret\",\"status\":}}\n{B}"), &["- Unknown: f, line 1: column 27: ", "b InProgress"])]
    #[case::rubbish_after(format!("{A} x\n{B}"), &["a Current", "- Unknown: f, line 1: column 6", "b InProgress"])]
    #[case::no_json_line(format!("{A}\nrubbish\n{B}\n"), &["a Current", "- Unknown: f, line 2: is no object", "b InProgress"])]
    #[case::pretty(format!("{{\n  \"a\":\n}}\n{}\n{A}", pretty(B)), &["- Unknown: f, line 3: column 1: ", "b InProgress", "a Current"])]
    #[case::pretty_cut_off(format!("{{\n  \"a\": 1\n{}\n{A}", pretty(B)), &["- Unknown: f, line 2: EOF", "b InProgress", "a Current"])]
    #[case::document(format!("{YAML}---\nbroken: [\n---\n{YAML}"), &["y Current", "- Unknown: f, line 6: YAML from here: ", "y Current"])]
    #[case::item(format!("[{A}, 5, {B}]"), &["a Current", "- Unknown: f, line 1: is no object", "b InProgress"])]
    #[case::no_kind(format!("{}\n{B}", json!({"metadata": {"name": "k"}})), &["k Unknown: f, line 1: has no kind", "b InProgress"])]
    #[case::kind_of_the_wrong_type(format!("{{\"kind\": 5}}\n{B}"), &["- Unknown: f, line 1: has no kind", "b InProgress"])]
    #[case::very_deep(format!("{}\n---\n{A}", "[".repeat(100_000)), &["- Unknown: f, line 1: ", "a Current"])]
    #[case::very_deep_yaml(format!("{}x\n---\n{A}", "- ".repeat(20_000)), &["- Unknown: f, line 1: YAML from here: line 1 column 255: lists and maps are nested", "a Current"])]
    #[case::deep_yaml(format!("{}x\n---\n{A}", "- ".repeat(127)), &["- Unknown: f, line 1: is no object", "a Current"])]
    fn what_is_malformed_is_unknown_and_stops_nothing(#[case] input: String, #[case] expected: &[&str]) {
        let said = said(input.as_bytes());
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.starts_with(expected), "{said:?} instead of {expected:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_unknown_too() {
        let input = [A.as_bytes(), b"\n{\"kind\": \"\xff\"}\n", B.as_bytes()].concat();
        assert_eq!(said(&input), ["a Current", "- Unknown: f, line 2: is not UTF-8", "b InProgress"]);
    }

    /// An input that goes on for ever is answered as it comes.
    #[test]
    fn answers_before_the_input_ends() {
        let (mut out, name) = (Vec::new(), "f");
        let mut reader =
            Reader { name, out: &mut out, now: None, line: 0, text: String::new(), first: 1, utf8: true };
        for text in [format!("{A}\n"), format!("{}\n", pretty(B))] {
            text.split_inclusive('\n').try_for_each(|line| reader.push(line.as_bytes())).expect("written");
        }
        assert!(reader.text.is_empty());
        assert_eq!(String::from_utf8(out).expect("text").lines().count(), 2);
    }
}

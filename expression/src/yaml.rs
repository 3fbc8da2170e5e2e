//! YAML as Kubernetes tools write it, and not more of it than its text is worth: no text overflows a
//! stack, and none grows when it is read but in proportion to its length.
//!
//! The parser goes down on the stack as deep as a text is nested, and an alias repeats whatever its
//! anchor stands for. So both count, as the parser itself comes across them: no scan beforehand could
//! tell apart what is nested from what is text.

use std::thread;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Budget, Error, Options};

/// Deepest nesting of lists and maps: that of JSON, whose parser stops there by itself.
const MAX_DEPTH: usize = 127;
/// Deepest nesting of what a field of an object holds as text: expressions make nothing deeper.
const MAX_FIELD_DEPTH: usize = 32;
/// Stack for [`MAX_DEPTH`], five times what the worst texts take without optimization.
const STACK: usize = 16 << 20;
/// What anchors and aliases may add to a file, however short it is: values, and a fourth of the bytes.
const FILE_ALLOWANCE: usize = 64 << 10;
/// The same of a field; to start parsing one costs about as much as to parse so many bytes.
const FIELD_ALLOWANCE: usize = 64;

/// One document.
pub fn from_str<T: DeserializeOwned + Send>(text: &str) -> Result<T, String> {
    on_own_stack(MAX_DEPTH, || serde_saphyr::from_str_with_options(text, of_file(text)))
}

/// Several documents.
pub fn from_multiple<T: DeserializeOwned + Send>(text: &str) -> Result<Vec<T>, String> {
    on_own_stack(MAX_DEPTH, || serde_saphyr::from_multiple_with_options(text, of_file(text)))
}

/// The documents of a YAML text, cut before they are parsed so that one cannot break the others.
pub fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("---")
            && (rest.is_empty() || rest.starts_with([' ', '\t']))
        {
            documents.push(rest.to_owned());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
        }
        if let Some(document) = documents.last_mut() {
            document.push('\n');
        }
    }
    let is_empty =
        |d: &String| d.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    documents.retain(|document| !is_empty(document));
    documents
}

/// What a field of an object holds as text, at no more than [`field_work`].
pub(crate) fn from_field(text: &str) -> Result<Value, String> {
    on_own_stack(MAX_FIELD_DEPTH, || {
        let mut options = options(field_work(text), MAX_FIELD_DEPTH);
        options.with_snippet = false;
        // Each merge copies all that was merged below it.
        options.merge_keys = MergeKeyPolicy::Error;
        serde_saphyr::from_str_with_options(text, options)
    })
}

/// Most values that a field of an object is read as.
pub(crate) fn field_work(text: &str) -> usize {
    text.len() + FIELD_ALLOWANCE
}

/// Whatever the caller's stack has left, which under an expression is little.
fn on_own_stack<T: Send>(depth: usize, parse: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let parse = || parse().map_err(|error| told(&error, depth));
        let parser = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, parse);
        let parser = parser.map_err(|error| format!("no thread to parse YAML on: {error}"))?;
        parser.join().unwrap_or_else(|_panic| Err("the YAML cannot be parsed".to_owned()))
    })
}

fn told(error: &Error, depth: usize) -> String {
    let Error::Budget { breach, location } = error.without_snippet() else { return error.to_string() };
    let problem = match breach {
        BudgetBreach::Depth { .. } => format!("lists and maps are nested more than {depth} deep"),
        _ => "aliases repeat more than a text of this length may hold".to_owned(),
    };
    format!("error: line {} column {}: {problem}", location.line(), location.column())
}

fn of_file(text: &str) -> Options {
    options(text.len() + FILE_ALLOWANCE, MAX_DEPTH)
}

/// Without aliases, a byte makes a value at most, two events, and less than four bytes, which only
/// the long forms of tags reach.
fn options(work: usize, depth: usize) -> Options {
    let mut budget = Budget::default();
    budget.max_depth = depth;
    // What is too deep is told by `max_depth` alone; the scanner is ahead of it by so much at most.
    budget.flow_nesting_limit = depth + budget.simple_key_max_lookahead;
    budget.max_nodes = work;
    budget.max_events = 4 * work;
    budget.max_total_scalar_bytes = 4 * work;
    budget.max_recorded_anchor_events = 4 * work;
    budget.max_recorded_anchor_bytes = 4 * work;
    // The others are only about how the values came to be.
    budget.max_documents = work;
    budget.max_aliases = work;
    budget.max_anchors = work;
    budget.max_merge_keys = work;
    budget.enforce_alias_anchor_ratio = false;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.emit_comments = false;
    // A namespace may be called `n` or `no`; tools that mean a bool write `true` or `false`.
    options.strict_booleans = true;
    options
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::hostile_yaml;

    /// As the runtime's threads and those of tests have it.
    fn on_a_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, run);
            thread.expect("a thread").join().expect("no panic")
        })
    }

    #[test]
    fn no_text_overflows_a_stack_or_grows_without_bounds() {
        for (name, text) in hostile_yaml::texts() {
            on_a_small_stack(|| {
                for error in [
                    from_str::<Value>(&text).expect_err(name),
                    from_multiple::<Value>(&text).expect_err(name),
                    from_field(&text).expect_err(name),
                ] {
                    assert!(error.len() < 2_000, "{name}: {error}");
                }
            });
        }
    }

    #[rstest]
    #[case::dashes("- ", "x", "")]
    #[case::brackets("[", "x", "]")]
    #[case::braces("{a: ", "x", "}")]
    #[case::tags("!a [", "x", "]")]
    fn as_deep_as_json_may_be(#[case] open: &str, #[case] inner: &str, #[case] close: &str) {
        let text = |depth: usize| open.repeat(depth) + inner + &close.repeat(depth);
        let json = |depth: usize| serde_json::from_str::<Value>(&("[".repeat(depth) + &"]".repeat(depth)));
        assert!(json(MAX_DEPTH).is_ok() && json(MAX_DEPTH + 1).is_err());
        on_a_small_stack(|| {
            assert!(from_str::<Value>(&text(MAX_DEPTH)).is_ok());
            let error = from_str::<Value>(&text(MAX_DEPTH + 1)).expect_err("too deep");
            assert!(error.contains("nested more than 127 deep"), "{error}");
            assert!(from_field(&text(MAX_FIELD_DEPTH)).is_ok());
            let error = from_field(&text(MAX_FIELD_DEPTH + 1)).expect_err("too deep");
            assert!(error.contains("nested more than 32 deep"), "{error}");
        });
    }

    #[rstest]
    #[case::list("[a, 1.5, true]", true)]
    #[case::a_long_line(&format!("[{}a]", "a,".repeat(1 << 19)), false)]
    #[case::a_long_scalar(&"\u{2028}x".repeat(1 << 18), false)]
    #[case::escapes(&format!("\"{}\"", "\\L".repeat(1 << 15)), true)]
    #[case::tags(&format!("[{}a]", "!!str 1,".repeat(5_000)), true)]
    #[case::empty_lists(&format!("[{}a]", "[],".repeat(10_000)), true)]
    #[case::comments(&format!("a: 1 # {}\n", "x".repeat(50_000)), true)]
    #[case::aliases("a: &a [x]\nb: *a\nc: [*a, *a]", true)]
    #[case::a_large_map(&(0..5_000).map(|n| format!("k{n}: v\n")).collect::<String>(), true)]
    #[case::merges("a: &a {x: 1}\nb: {<<: *a, y: 2}", false)]
    fn what_is_only_large_is_read(#[case] text: &str, #[case] field: bool) {
        assert!(from_str::<Value>(text).is_ok_and(|value| !value.is_null()));
        assert!(!field || from_field(text).is_ok(), "{:?}", from_field(text));
    }

    #[test]
    fn many_documents_are_read() {
        let texts: Vec<String> = from_multiple(&"--- a\n".repeat(5_000)).expect("YAML");
        assert_eq!(texts.len(), 5_000);
    }
}

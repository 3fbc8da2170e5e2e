//! The cases that cel-spec, cel-go and Kubernetes hold their own libraries to: see README.md.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::equality::equal;

/// A line of a file in `tests/conformance`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    expression: String,
    /// Variables.
    #[serde(default)]
    given: BTreeMap<String, Value>,
    /// Another expression, which gives the same.
    gives: Option<String>,
    #[serde(default)]
    fails: bool,
}

/// Cases that do not pass, by file and name, and why.
const KNOWN: &[(&str, &str, &str)] = &[
    ("cel-go/comprehensions", "static_errors/1", NO_RESERVED_NAME),
    ("cel-go/comprehensions", "static_errors/2", NO_RESERVED_NAME),
    ("cel-go/comprehensions", "static_errors/19", NO_STATIC_TYPES),
    ("cel-go/comprehensions", "static_errors/20", NO_STATIC_TYPES),
    ("cel-spec/string_ext", "value_errors/indexof_out_of_range", AS_CEL_GO),
    ("cel-spec/string_ext", "value_errors/lastindexof_out_of_range", AS_CEL_GO),
];

const NO_RESERVED_NAME: &str = "the accumulator of a loop has a name here that no expression can spell";
const NO_STATIC_TYPES: &str = "types are found out when an expression runs, and this one comes to none";
const AS_CEL_GO: &str = "cel-go, and so Kubernetes, find nothing behind the end of a text, which is no error";

impl Case {
    /// What is wrong, if anything is.
    fn problem(&self) -> Option<String> {
        let names: Vec<&str> = self.given.keys().map(String::as_str).collect();
        let mut scope = Scope::default();
        for (name, value) in &self.given {
            scope.bind(name, value);
        }
        let expression = Expression::compile("f", &self.expression, &names);
        let outcome = expression.as_ref().map_err(String::clone);
        let outcome = outcome.and_then(|e| e.run(&mut scope).map_err(|error| error.message));
        let Some(wanted) = &self.gives else {
            assert!(self.fails, "{}: neither gives nor fails", self.name);
            return outcome.ok().map(|value| format!("gives {value:?} and does not fail"));
        };
        let wanted_expression = Expression::compile("f", wanted, &[]).expect(wanted);
        let mut nothing = Scope::default();
        let wanted_value = wanted_expression.run(&mut nothing).expect(wanted);
        match outcome {
            Err(error) => Some(format!("fails: {error}")),
            Ok(value) => {
                let is_nan = |value: &dyn Val| {
                    value.downcast_ref::<cel::common::types::CelDouble>().is_some_and(|d| d.inner().is_nan())
                };
                let same = equal(&*value, &*wanted_value).expect("no limit")
                    || is_nan(&*value) && is_nan(&*wanted_value);
                let same = same && value.get_type() == wanted_value.get_type();
                (!same).then(|| format!("gives {value:?}, not {wanted}"))
            }
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

#[test]
fn upstreams_cases_pass_but_for_those_that_are_known_not_to() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut wrong = Vec::new();
    let mut known: Vec<_> = KNOWN.iter().map(|(file, name, _)| (*file, *name)).collect();
    let mut count = 0;
    for path in files(&folder) {
        let file = path.strip_prefix(&folder).expect("below it").with_extension("");
        let file = file.to_str().expect("a name");
        for line in std::fs::read_to_string(&path).expect("a file").lines() {
            let case: Case = serde_json::from_str(line).expect(line);
            count += 1;
            let is_known = known.iter().position(|known| *known == (file, &case.name));
            match (case.problem(), is_known) {
                (None, None) => {}
                (Some(_), Some(position)) => drop(known.remove(position)),
                (Some(problem), None) => {
                    wrong.push(format!("{file} {}: `{}` {problem}", case.name, case.expression));
                }
                (None, Some(_)) => wrong.push(format!("{file} {}: passes, take it off the list", case.name)),
            }
        }
    }
    assert!(count > 800, "{count} cases");
    assert!(known.is_empty(), "there are no such cases, or they pass: {known:?}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

//! What every preset says about objects, good and bad: tables in tests/cases.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::Deserialize;
use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::{
    preset::{PRESETS, Preset},
    source::{RelatedObject, RelatedObjects, Source},
    verdict::Evaluation,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    of: Vec<String>,
    base: Value,
    expect: Expected,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    patch: Value,
    #[serde(default)]
    replace: BTreeMap<String, Value>,
    #[serde(default)]
    expect: Expected,
}

/// What a case expects; what it leaves out is as in the base.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct Expected {
    apply: Option<String>,
    health: Option<String>,
    reason: Option<String>,
    desired: Option<String>,
    applied: Option<String>,
    healthy: Option<String>,
    since: Option<String>,
    undecided: Option<bool>,
    inventory: Option<String>,
    error: Option<String>,
}

impl Expected {
    fn or(self, base: &Self) -> String {
        let or = |own: Option<String>, base: &Option<String>| own.or(base.clone()).unwrap_or_default();
        let revision = |text: String| Fingerprint::of(&text).to_string();
        // An object that cannot be evaluated is not held.
        let undecided = self.undecided.or(base.undecided).unwrap_or_default() && self.error.is_none();
        lines([
            ("apply", or(self.apply, &base.apply)),
            ("health", or(self.health, &base.health)),
            ("reason", or(self.reason, &base.reason)),
            ("desired", revision(or(self.desired, &base.desired))),
            ("applied", revision(or(self.applied, &base.applied))),
            ("healthy", revision(or(self.healthy, &base.healthy))),
            ("since", or(self.since, &base.since)),
            ("undecided", undecided.to_string()),
            ("inventory", or(self.inventory, &base.inventory)),
            ("error", or(self.error, &base.error)),
        ])
    }
}

fn lines<const N: usize>(fields: [(&str, String); N]) -> String {
    fields.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

fn describe(evaluation: &Evaluation) -> String {
    let verdict = &evaluation.verdict;
    let time = |seconds| jiff::Timestamp::from_second(seconds).expect("a time that fits").to_string();
    let counts =
        |i: statusbridge_exporter::verdict::Inventory| format!("{}/{}/{}", i.total, i.current, i.failed);
    lines([
        ("apply", verdict.apply.to_string()),
        ("health", verdict.health.to_string()),
        ("reason", verdict.reason.as_deref().unwrap_or_default().to_owned()),
        ("desired", verdict.desired.to_string()),
        ("applied", verdict.applied.to_string()),
        ("healthy", verdict.healthy.to_string()),
        ("since", verdict.since.map(time).unwrap_or_default()),
        ("undecided", evaluation.hold.is_some_and(|hold| hold.undecided).to_string()),
        ("inventory", verdict.inventory.map(counts).unwrap_or_default()),
        ("error", evaluation.error.as_ref().map(|e| e.field.clone()).unwrap_or_default()),
    ])
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    for (key, value) in patch {
        let fields = target.as_object_mut().expect("made an object above");
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Puts a value at a JSON pointer, making the last field if it is not there.
fn replace(target: &mut Value, pointer: &str, value: &Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a JSON pointer");
    let parent = target.pointer_mut(parent).unwrap_or_else(|| panic!("there is no {parent}"));
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value.clone());
        }
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value.clone(),
        _ => panic!("{parent} is no map or list"),
    }
}

fn related<'a>(source: &Source, objects: &'a Value) -> RelatedObjects<'a> {
    let find = |name: &str| objects.get("related")?.get(name).filter(|v| !v.is_null());
    let all = source.related.iter().map(|r| match find(&r.name) {
        Some(Value::Array(objects)) => RelatedObject::Many(objects.iter().collect()),
        None if !r.by_reference() => RelatedObject::Many(Vec::new()),
        one => RelatedObject::One(one),
    });
    RelatedObjects(all.collect())
}

fn check(preset: Preset, table: &Table) {
    let source = preset.source().unwrap_or_else(|error| panic!("{error}"));
    let mut problems = String::new();
    for case in &table.cases {
        let mut objects = table.base.clone();
        if !case.patch.is_null() {
            merge(&mut objects, &case.patch);
        }
        for (pointer, value) in &case.replace {
            replace(&mut objects, pointer, value);
        }
        let object = &objects["object"];
        let whole = source.evaluate(object, &related(&source, &objects));
        let (expected, found) = (case.expect.clone().or(&table.expect), describe(&whole));
        if expected != found {
            let _ = writeln!(problems, "{}\n  expected {expected:?}\n  found    {found:?}", case.name);
            if let Some(error) = &whole.error {
                let _ = writeln!(problems, "  {error}");
            }
        }
        let mut lean = objects.clone();
        lean["object"] = source.projection().project(object);
        for r in &source.related {
            if let Some(found) = objects.get("related").and_then(|all| all.get(&r.name)) {
                lean["related"][&r.name] = match found {
                    Value::Array(all) => all.iter().map(|one| r.projection.project(one)).collect(),
                    one => r.projection.project(one),
                };
            }
        }
        let lean = source.evaluate(&lean["object"], &related(&source, &lean));
        if lean != whole {
            let _ = writeln!(problems, "{}\n  on the lean object {lean:?}", case.name);
        }
    }
    assert!(problems.is_empty(), "{}:\n{problems}", preset.name);
}

#[test]
fn every_preset_passes_its_table() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut covered = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory of tables") {
        let path = entry.expect("a directory entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let table: Table =
            serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for name in &table.of {
            check(Preset::find(name).unwrap_or_else(|| panic!("there is no preset {name}")), &table);
            covered.push(name.clone());
        }
    }
    covered.sort();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(covered, presets, "every preset has one table");
}

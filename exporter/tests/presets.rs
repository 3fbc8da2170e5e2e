//! What every preset says about objects, good and bad: tables in tests/cases.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // in a test, what cannot be is a failure

#[path = "support/table.rs"]
mod table;

use std::{fmt::Write as _, path::Path};

use serde_json::Value;
use statusbridge_exporter::source::{PRESETS, Preset};
use table::{Table, describe, evaluate};

fn check(preset: Preset, table: &Table) {
    let source = preset.source().unwrap_or_else(|error| panic!("{error}"));
    let mut problems = String::new();
    let mut looking = preset.source().unwrap_or_else(|error| panic!("{error}"));
    looking.watch_resources(true);
    for case in &table.cases {
        let source = if case.leaf_health { &looking } else { &source };
        let objects = table.objects(case);
        let object = &objects["object"];
        let whole = evaluate(source, &objects);
        let (expected, found) = (table.expected(case), describe(&whole));
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
        let lean = evaluate(source, &lean);
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
    for table in Table::all(&directory) {
        for name in &table.of {
            check(Preset::find(name).unwrap_or_else(|| panic!("there is no preset {name}")), &table);
            covered.push(name.clone());
        }
    }
    covered.sort();
    covered.dedup();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(covered, presets, "every preset has a table");
}

//! What every preset says about objects, good and bad: the tests in tests/cases, run as `statusbridge source test` runs them.

#![allow(clippy::expect_used)] // in a test, what cannot be is a failure

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
};

use statusbridge_exporter::{
    source::{PRESETS, Preset, Source},
    suite::Suite,
};

fn suites() -> Vec<Suite> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    Suite::read(&[directory]).unwrap_or_else(|error| panic!("{error}"))
}

/// Presets by their names, and whether the objects that their packages consist of are looked at.
type Compiled = BTreeMap<(String, Option<bool>), Arc<Source>>;

static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

fn preset(name: &str, resources: Option<bool>) -> Result<Arc<Source>, String> {
    let mut compiled = COMPILED.lock().expect("no panic");
    if let Some(source) = compiled.get(&(name.to_owned(), resources)) {
        return Ok(source.clone());
    }
    let preset = Preset::find(name).ok_or_else(|| format!("there is no preset {name}"))?;
    let mut source = preset.source().map_err(|error| error.to_string())?;
    if resources.is_some_and(|resources| !source.watch_resources(resources)) {
        return Err(format!("{name} does not say what its packages consist of"));
    }
    let source = Arc::new(source);
    compiled.insert((name.to_owned(), resources), source.clone());
    Ok(source)
}

#[test]
fn every_preset_passes_its_tests() {
    let outcomes: Vec<_> = suites().iter().flat_map(|suite| suite.run(&preset)).collect();
    let problems: Vec<String> = outcomes
        .iter()
        .filter(|outcome| !outcome.problems.is_empty())
        .map(|it| format!("{}: {}\n  {}", it.source, it.case, it.problems.join("\n  ")))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(outcomes.len() > 500, "{}", outcomes.len());
}

#[test]
fn every_preset_has_a_test() {
    let mut covered: Vec<String> = suites().into_iter().flat_map(|suite| suite.sources).collect();
    covered.sort();
    covered.dedup();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(covered, presets);
}

//! What is in the repository is what is generated, and no metric is forgotten in it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use statusbridge_reference::pages;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn the_pages_in_docs_are_those_that_are_generated() {
    for (name, text) in pages().unwrap() {
        let there = std::fs::read_to_string(repository().join("docs").join(name)).unwrap_or_default();
        assert!(there == text, "docs/{name} is not what `make reference` writes");
    }
}

#[test]
fn every_field_and_every_metric_says_what_it_means() {
    for (name, text) in pages().unwrap() {
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 20, "{name}");
        for row in rows {
            let cells: Vec<&str> = row.split(" | ").collect();
            // A head of a table of codes is no row.
            assert!(cells.last().unwrap().trim_end_matches(" |").len() > 3, "{name}: {row}");
        }
    }
}

/// Rust files of the programs, without their tests.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names that stand as first argument of a call, written out.
fn first_arguments<'a>(text: &'a str, call: &str) -> Vec<&'a str> {
    let calls = text.split(call).skip(1);
    calls
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn every_metric_that_is_registered_anywhere_is_in_the_reference() {
    let page = &pages().unwrap()["metrics.md"];
    let known: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let (mut files, mut registered) = (Vec::new(), 0);
    for library in ["exporter", "exporter/changelog", "aggregator", "serving", "expression", "kstatus"] {
        sources(&repository().join(library).join("src"), &mut files);
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for name in [".register(", ".register_with_unit(", "encode_descriptor("]
            .into_iter()
            .flat_map(|call| first_arguments(text, call))
        {
            registered += 1;
            assert!(
                known.iter().any(|known| known.trim_end_matches("_total").ends_with(name)),
                "{} registers {name}, which docs/metrics.md does not have: have reference/src/metrics.rs render it",
                file.display()
            );
        }
    }
    assert!(registered > 30, "only {registered} were found");
}

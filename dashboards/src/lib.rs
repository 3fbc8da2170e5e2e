//! Grafana dashboards and Prometheus rules for Status Bridge, written with the codes and words of the contract.
//!
//! ```text
//!   values.yaml ──> Values ──┐
//!   contract ──> states ─────┼─> Placeholders ──> rules/*.yaml, prometheus-rules.yaml
//!   src/rules/*.yaml.in ─────┤                └─> fleet.json, package.json, cluster.json, bridge.json
//!   fleet, package, … (panels) ┘
//! ```
//!
//! [`render`] is pure; `statusbridge-dashboards` writes what it returns. A test fails when the files in the repository are
//! not what it returns.

#![allow(clippy::indexing_slicing)] // it reads and writes files of the repository only

mod bridge;
mod cluster;
mod derived;
mod fleet;
mod grafana;
mod package;
mod placeholder;
pub mod queries;
mod rules;
mod values;

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use placeholder::Placeholders;

pub use values::Values;

/// What the files are called, relative to the directory that they are written to, and what is in them.
pub type Files = BTreeMap<String, String>;

/// All files for these values.
///
/// # Errors
/// When a template names a value that there is none of.
pub fn render(values: &Values) -> Result<Files> {
    let placeholders = Placeholders::new(values)?;
    let mut files = rules::render(&placeholders)?;
    let boards =
        [fleet::board(values), package::board(values), cluster::board(values), bridge::board(values)];
    for (name, mut board) in ["fleet", "package", "cluster", "bridge"].into_iter().zip(boards) {
        placeholders.fill_json(&mut board).with_context(|| format!("the dashboard {name}"))?;
        let mut text = serde_json::to_string_pretty(&board)?;
        text.push('\n');
        files.insert(format!("{name}.json"), text);
    }
    Ok(files)
}

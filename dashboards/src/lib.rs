//! Grafana dashboards and Prometheus rules for Status Bridge, written with the codes and words of the contract.
//!
//! ```text
//!   values.yaml ──> Values ──┐
//!   contract ──> states ─────┼─> Placeholders ──> rules/*.yaml, prometheus-rules.yaml
//!   src/rules/*.yaml.in ─────┤                └─> fleet.json, package.json, cluster.json, bridge.json
//!   src/boards/*.yaml ───> board ┘  (with what Grafana is told of all panels, src/grafana.yaml)
//! ```
//!
//! [`render`] is pure; `statusbridge-dashboards` writes what it returns. A test fails when the files in the repository are
//! not what it returns.

#![allow(clippy::indexing_slicing)] // it reads and writes files of the repository only

mod board;
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

/// What is in the dashboards.
const BOARDS: [(&str, &str); 4] = [
    ("fleet", include_str!("boards/fleet.yaml")),
    ("package", include_str!("boards/package.yaml")),
    ("cluster", include_str!("boards/cluster.yaml")),
    ("bridge", include_str!("boards/bridge.yaml")),
];

/// All files for these values.
///
/// # Errors
/// When a template names a value that there is none of.
pub fn render(values: &Values) -> Result<Files> {
    let mut files = rules::render(&Placeholders::new(values, BTreeMap::new())?)?;
    for (name, file) in BOARDS {
        let board = board::render(name, file, values).with_context(|| format!("the dashboard {name}"))?;
        let mut text = serde_json::to_string_pretty(&board)?;
        text.push('\n');
        files.insert(format!("{name}.json"), text);
    }
    Ok(files)
}

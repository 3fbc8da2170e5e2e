//! The reference pages in `docs/`, made from what the programs are made of, so that they cannot be out of date.
//!
//! ```text
//!   CRDs ──────────────┐
//!   format of sources ─┴─> schema (rows of fields) ─┐
//!   contract ─────────────> metrics ────────────────┼─> markdown ─> docs/*-reference.md, docs/metrics.md
//!   own metrics, as they are registered ─> family ──┘
//! ```

#![allow(clippy::indexing_slicing)] // it reads and writes files of the repository only

use std::collections::BTreeMap;

use anyhow::Result;

mod api;
mod family;
mod markdown;
mod metrics;
mod schema;
mod source;

/// Names of the pages in `docs/`, and their text.
pub type Pages = BTreeMap<&'static str, String>;

/// First line of every page.
const MARK: &str = "<!-- Written by `make reference` from the code; do not edit. -->\n";

/// Every page.
///
/// # Errors
/// When CRDs or metrics cannot be rendered, or a metric has something that the reference does not understand. All of
/// these are faults of this repository.
pub fn pages() -> Result<Pages> {
    let pages = [
        ("api-reference.md", api::page()?),
        ("source-reference.md", source::page()),
        ("metrics.md", metrics::page()?),
    ];
    Ok(pages.into_iter().map(|(name, text)| (name, format!("{MARK}{text}"))).collect())
}

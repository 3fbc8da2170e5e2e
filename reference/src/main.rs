//! `statusbridge-reference`: writes the reference pages.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

/// Writes the reference pages of Status Bridge: API, format of sources, metrics.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Directory to write to
    #[arg(long, default_value = "docs")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let out = Args::parse().out;
    for (name, text) in statusbridge_reference::pages()? {
        let file = out.join(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

//! `statusbridge-dashboards`: writes dashboards and rules.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use statusbridge_dashboards::{Values, render};

/// Writes the Grafana dashboards and the Prometheus rules of Status Bridge.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// YAML file with what is to differ from dashboards/values.yaml
    #[arg(long)]
    values: Option<PathBuf>,
    /// Directory to write to
    #[arg(long, default_value = "dashboards")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let values = match &args.values {
        None => Values::default()?,
        Some(file) => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            Values::with(&text).with_context(|| file.display().to_string())?
        }
    };
    for (name, text) in render(&values)? {
        let file = args.out.join(name);
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        }
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

//! Serving metrics.

use crate::source::Source;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {}

/// Serves the metrics of the packages that `sources` read.
pub async fn run(_args: ServeArgs, _sources: Vec<Source>) -> anyhow::Result<()> {
    anyhow::bail!("serving is not there yet")
}

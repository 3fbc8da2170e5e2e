//! `explain`: everything that a verdict rests on, cluster by cluster, from the hub API alone.
//!
//! ```text
//!   hub ── read (I/O) ──> Seen ── account (pure) ──> Account ──> text | JSON
//! ```

mod account;
mod doubts;
mod read;
mod rows;
mod text;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use clap::Args;
use statusbridge_aggregator::hub::heartbeat::NAMESPACE;

use crate::exit::Exit;
use crate::hub::Access;
use crate::output::OutputArgs;
use crate::target::{Target, target};
use account::account;
use text::render;

/// Flags of `explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArgs {
    /// What to explain: gate/NAME or package/NAME
    #[arg(value_name = "KIND/NAME", value_parser = target)]
    target: Target,
    /// Namespace of the aggregator's Leases
    #[arg(long, env = "STATUSBRIDGE_LEASE_NAMESPACE", default_value = NAMESPACE)]
    lease_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Reads, and prints what was found.
///
/// # Errors
/// When the hub cannot be reached or has no such object.
pub(crate) async fn run(access: &Access, args: ExplainArgs) -> Result<Exit> {
    let hub = access.connect().await?;
    let seen = read::read(&hub, &args.target, &args.lease_namespace).await?;
    let account = account(&seen, hub.now().await?).context("the hub's answer")?;
    args.output.output.print(&render(&account), &account)?;
    Ok(Exit::Done)
}

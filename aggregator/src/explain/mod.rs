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

use anyhow::{Context, Result};
use clap::Args;

pub use account::{Account, account};
pub use read::{Heartbeat, Seen};
pub use text::render;
pub(crate) use text::{one_line, span, table};

use crate::clock;
use crate::hub::access::Access;
use crate::hub::heartbeat::NAMESPACE;
use crate::output::Output;
use statusbridge_core::reconcile::store::Kind;

/// Flags of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// What to explain: gate/NAME or fleetpackage/NAME
    #[arg(value_name = "KIND/NAME", value_parser = subject)]
    object: (Kind, String),
    #[command(flatten)]
    access: Access,
    /// Namespace of the object [default: that of the context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Namespace of the aggregator's Leases
    #[arg(long, env = "STATUSBRIDGE_LEASE_NAMESPACE", default_value = NAMESPACE)]
    lease_namespace: String,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

fn subject(text: &str) -> Result<(Kind, String), String> {
    let usage = || format!("{text:?} is neither gate/NAME nor fleetpackage/NAME");
    let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(usage)?;
    let kind = kind.to_ascii_lowercase();
    let kind = Kind::meant_by(kind.split('.').next().unwrap_or_default()).ok_or_else(usage)?;
    Ok((kind, name.to_owned()))
}

/// Reads, and prints what was found.
///
/// # Errors
/// When the hub cannot be reached or has no such object.
pub async fn explain(args: ExplainArgs) -> Result<()> {
    let (client, namespace) = args.access.connect(args.namespace.as_deref()).await?;
    let (kind, name) = &args.object;
    let seen = read::read(&client, &namespace, *kind, name, &args.lease_namespace).await?;
    let account = account(&seen, clock::now()).context("the hub's answer")?;
    Ok(args.output.print(&render(&account), &account)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("gate/wave-1", Ok((Kind::RolloutGate, "wave-1".into())))]
    #[case("rolloutgate.statusbridge.dev/wave-1", Ok((Kind::RolloutGate, "wave-1".into())))]
    #[case("FleetPackage/a.b", Ok((Kind::FleetPackage, "a.b".into())))]
    #[case("fpkg/payments", Ok((Kind::FleetPackage, "payments".into())))]
    #[case("gate/", Err("\"gate/\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    #[case("payments", Err("\"payments\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    #[case("pod/x", Err("\"pod/x\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    fn subjects(#[case] text: &str, #[case] expected: Result<(Kind, String), String>) {
        assert_eq!(subject(text), expected);
    }
}

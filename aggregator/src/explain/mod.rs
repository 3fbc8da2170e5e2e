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
use clap::{Args, ValueEnum};

pub use account::{Account, account};
pub use read::{Heartbeat, Seen};
pub use text::render;
pub(crate) use text::span;

use crate::clock;
use crate::serve::Access;

/// Flags of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// What to explain: gate/NAME or fleetpackage/NAME
    #[arg(value_name = "KIND/NAME")]
    object: Subject,
    #[command(flatten)]
    access: Access,
    /// Namespace of the object [default: that of the context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Namespace of the aggregator's heartbeat
    #[arg(long, env = "STATUSBRIDGE_SYSTEM_NAMESPACE", default_value = "statusbridge-system")]
    system_namespace: String,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// What is explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The RolloutGate of this name.
    Gate(String),
    /// The FleetPackage of this name.
    FleetPackage(String),
}

impl std::str::FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || format!("{text:?} is neither gate/NAME nor fleetpackage/NAME");
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(usage)?;
        let kind = kind.to_ascii_lowercase();
        match kind.split('.').next().unwrap_or_default() {
            "gate" | "rgate" | "rolloutgate" | "rolloutgates" => Ok(Self::Gate(name.to_owned())),
            "fpkg" | "fleetpackage" | "fleetpackages" => Ok(Self::FleetPackage(name.to_owned())),
            _ => Err(usage()),
        }
    }
}

/// Reads, and prints what was found.
///
/// # Errors
/// When the hub cannot be reached or has no such object.
pub async fn explain(args: ExplainArgs) -> Result<()> {
    let (client, namespace) = args.access.connect(args.namespace.as_deref()).await?;
    let seen = read::read(&client, &namespace, &args.object, &args.system_namespace).await?;
    let account = account(&seen, clock::now()).context("the hub's answer")?;
    match args.output {
        Output::Text => print!("{}", render(&account)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&account)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("gate/wave-1", Ok(Subject::Gate("wave-1".into())))]
    #[case("rolloutgate.statusbridge.dev/wave-1", Ok(Subject::Gate("wave-1".into())))]
    #[case("FleetPackage/a.b", Ok(Subject::FleetPackage("a.b".into())))]
    #[case("fpkg/payments", Ok(Subject::FleetPackage("payments".into())))]
    #[case("gate/", Err("\"gate/\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    #[case("payments", Err("\"payments\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    #[case("pod/x", Err("\"pod/x\" is neither gate/NAME nor fleetpackage/NAME".into()))]
    fn subjects(#[case] text: &str, #[case] expected: Result<Subject, String>) {
        assert_eq!(text.parse(), expected);
    }
}

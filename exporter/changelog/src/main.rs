//! The change-log sidecar's command line.

use std::process::ExitCode;

use clap::Parser;
use statusbridge_changelog::Args;

/// Takes a Crossplane provider's change log: prints entries as Crossplane's own sidecar does, and counts them.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    match run(Cli::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(statusbridge_changelog::run(args))
}

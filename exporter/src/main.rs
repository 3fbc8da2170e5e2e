//! The exporter's program. What people type is `statusbridge`, a program of its own.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use statusbridge_exporter::{
    serve::{self, ServeArgs},
    source::{SourceArgs, SourceProblem},
};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Publishes the apply and health state of a cluster's packages as low-cardinality metrics.
///
/// Without a command, serves metrics.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

const EXIT_CODES: &str = "Exit codes: 1 something failed; 2 the command line or a source is wrong.";

#[derive(Subcommand)]
enum Command {
    /// Watch the packages of a cluster and serve metrics (the default).
    Serve(Box<Serve>),
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Exit code for what has to be corrected before it can work.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<SourceProblem>() { WRONG_USE } else { 1 })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    // One thread keeps up with thousands of updates a second, and does not pay for handing
    // each of them to another one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match cli.command.unwrap_or_else(|| Command::Serve(Box::new(cli.serve))) {
        Command::Serve(args) => runtime.block_on(serve::run(args.serve, args.sources)),
    }
}

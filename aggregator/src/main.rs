//! The aggregator's program: `serve` (default), `sweep`, `crds`. What people type is `statusbridge`, a program of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use statusbridge_aggregator::serve::{self, ServeArgs, SweepArgs};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads package status from a metrics backend, verifies it, and writes FleetPackage and
/// RolloutGate status in the hub.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<ServeArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Poll the backend and keep every status up to date (default)
    Serve(Box<ServeArgs>),
    /// Close open gates when the aggregator's heartbeat is too old
    Sweep(SweepArgs),
    /// Print the CRDs, or write them into a directory
    Crds {
        /// Where to write one file for each CRD
        directory: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    // An error only says that a provider was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Crds { directory }) => serve::crds(directory.as_deref()),
        Some(Command::Serve(args)) => block_on(serve::serve(*args)),
        Some(Command::Sweep(args)) => block_on(serve::sweep(args)),
        None => block_on(serve::serve(cli.serve.context("--backend or --config is required; see --help")?)),
    }
}

/// Time in which what is being written to a disk may end, once the work has.
const PATIENCE: Duration = Duration::from_secs(5);

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(PATIENCE);
    outcome
}

//! The aggregator's binary: `serve` (default), `sweep`, `explain`, `wait`, `doctor`, `history`, `set-revision`, `crds`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use statusbridge_aggregator::doctor::{self, DoctorArgs};
use statusbridge_aggregator::explain::{self, ExplainArgs};
use statusbridge_aggregator::operations::{self, HistoryArgs};
use statusbridge_aggregator::serve::{self, ServeArgs, SweepArgs};
use statusbridge_aggregator::set_revision::{self, SetRevisionArgs};
use statusbridge_aggregator::wait::{self, WaitArgs};

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
    /// Say what a verdict rests on, cluster by cluster, from the hub API alone
    Explain(ExplainArgs),
    /// Wait until a gate is open for one revision: for pipelines and Jobs
    Wait(WaitArgs),
    /// Say whether clusters, metrics pipeline and backend are fit, and what to change
    Doctor(Box<DoctorArgs>),
    /// Say what each cluster did about a package: operations, durations, failures, and what was not seen
    History(Box<HistoryArgs>),
    /// Move a FleetPackage and its gates to another revision, gates first
    SetRevision(SetRevisionArgs),
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
        Some(Command::Explain(args)) => block_on(explain::explain(args)),
        Some(Command::Sweep(args)) => block_on(serve::sweep(args)),
        Some(Command::Wait(args)) => end_with(block_on(wait::wait(args))?),
        Some(Command::Doctor(args)) => end_with(block_on(doctor::doctor(*args))?),
        Some(Command::History(args)) => end_with(block_on(operations::history(*args))?),
        Some(Command::SetRevision(args)) => block_on(set_revision::run(args)),
        None => block_on(serve::serve(cli.serve.context("--backend or --config is required; see --help")?)),
    }
}

fn end_with(code: u8) -> Result<()> {
    std::process::exit(code.into())
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

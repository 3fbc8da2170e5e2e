//! `statusbridge`: the command line of Status Bridge, for people and pipelines. As `kubectl-statusbridge` on the PATH it
//! is also `kubectl statusbridge`.
//!
//! | commands | where | what they ask |
//! |---|---|---|
//! | `status`, `wait`, `explain`, `set-revision` | a folder each | the hub's API server, by [`hub`] |
//! | `doctor`, `history` | a folder each | metrics backends too, by [`feeds`] |
//! | `source …`, `kstatus` | [`source`], [`kstatus`] | files |
//! | `completion` | [`completion`] | nothing |
//!
//! All of them end by the one table of [`exit`], print by [`output`] and [`text`], and know objects of the hub as
//! [`target`] reads them.

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

mod completion;
mod doctor;
mod exit;
mod explain;
mod feeds;
mod history;
mod hub;
mod kstatus;
mod output;
mod set_revision;
mod source;
mod status;
mod target;
mod text;
mod wait;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use exit::Exit;
use hub::Access;

/// Asks Status Bridge: how far a rollout is, whether it may go on, and why not.
#[derive(Parser)]
#[command(name = "statusbridge", version)]
struct Cli {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show how far packages are and which gates are open: all at a glance, one FleetPackage, or one gate
    Status(status::StatusArgs),
    /// Wait until a gate is open for one revision: for pipelines and Jobs
    Wait(wait::WaitArgs),
    /// Say what a verdict rests on, cluster by cluster, from the hub's API server alone
    Explain(explain::ExplainArgs),
    /// Say what each cluster did about a package: operations, durations, failures, and what was not seen
    History(Box<history::HistoryArgs>),
    /// Say whether clusters, metrics pipeline and backend are fit, and what to change
    Doctor(Box<doctor::DoctorArgs>),
    /// Move a FleetPackage and its gates to another revision, gates first
    SetRevision(set_revision::SetRevisionArgs),
    /// Look at sources, which tell the exporter how to read packages, and try them on saved objects
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Print what kstatus says about saved objects: one JSON line each, as they are read
    ///
    /// A line has apiVersion, kind, namespace, name, status, reason and message. What cannot be read
    /// as an object has status Unknown and reason Malformed, and does not change the exit code.
    Kstatus(kstatus::KstatusArgs),
    /// Print a script that completes command lines in a shell
    Completion(completion::CompletionArgs),
}

fn main() -> ExitCode {
    // An error only says that a provider was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let called = std::env::args_os().next().unwrap_or_default();
    let matches = command(Path::new(&called)).get_matches();
    let ended = Cli::from_arg_matches(&matches).map_err(|error| error.exit()).and_then(run);
    ended.unwrap_or_else(|error| exit::tell(&error)).into()
}

/// The command line, under the name by which it was called.
fn command(called: &Path) -> clap::Command {
    let as_plugin = called.file_stem().is_some_and(|name| name == "kubectl-statusbridge");
    let command = exit::in_help(Cli::command());
    if as_plugin { command.bin_name("kubectl statusbridge") } else { command.bin_name("statusbridge") }
}

fn run(Cli { access, command }: Cli) -> Result<Exit> {
    match command {
        Command::Status(args) => block_on(status::run(&access, args)),
        Command::Wait(args) => block_on(wait::run(&access, args)),
        Command::Explain(args) => block_on(explain::run(&access, args)),
        Command::History(args) => block_on(history::run(&access, *args)),
        Command::Doctor(args) => block_on(doctor::run(&access, *args)),
        Command::SetRevision(args) => block_on(set_revision::run(&access, args)),
        Command::Source(command) => source::run(&command),
        Command::Kstatus(args) => kstatus::run(&args),
        Command::Completion(args) => completion::run(&args, exit::in_help(Cli::command())),
    }
}

fn block_on(work: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_fit_together() {
        command(Path::new("statusbridge")).debug_assert();
    }

    #[test]
    fn help_names_the_program_as_it_was_called() {
        for (called, usage) in [
            ("/usr/local/bin/kubectl-statusbridge", "Usage: kubectl statusbridge wait [OPTIONS]"),
            ("./statusbridge", "Usage: statusbridge wait [OPTIONS]"),
        ] {
            let asked = command(Path::new(called)).try_get_matches_from([called, "wait", "--help"]);
            let help = asked.unwrap_err().to_string();
            assert!(help.contains(usage) && help.contains("Exit codes"), "{help}");
        }
    }
}

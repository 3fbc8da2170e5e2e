//! `statusbridge`: the command line of Status Bridge, for people and pipelines. As `kubectl-statusbridge` on the PATH it
//! is also `kubectl statusbridge`.
//!
//! ```text
//!   main ─> commands ─┬─> hub, feeds: who is asked
//!                     ├─> watched: objects of the hub, and what changes;  look: one gate, read anew
//!                     ├─> target, verdict, rollout: such an object, as a command line names it, and what it tells
//!                     ├─> screen, tree: what is shown while it goes on
//!                     └─> output, text: what is printed;  exit: how it ends
//! ```

#![cfg_attr(test, allow(clippy::string_slice))] // clippy.toml has no word for it

mod commands;
mod counts;
#[cfg(test)]
mod example;
mod exit;
mod feeds;
mod hub;
mod look;
mod output;
mod rollout;
mod screen;
mod target;
mod text;
mod tree;
mod verdict;
mod watched;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use commands::Command;
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

fn main() -> ExitCode {
    // An error only says that a provider was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let called = std::env::args_os().next().unwrap_or_default();
    let program = command(Path::new(&called));
    let matches = program.clone().get_matches();
    let parsed = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let ended = parsed.command.run(&parsed.access, program);
    ended.unwrap_or_else(|error| exit::tell(&error)).into()
}

/// The command line, under the name by which it was called.
fn command(called: &Path) -> clap::Command {
    let as_plugin = called.file_stem().is_some_and(|name| name == "kubectl-statusbridge");
    let command = exit::in_help(Cli::command());
    if as_plugin { command.bin_name("kubectl statusbridge") } else { command.bin_name("statusbridge") }
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

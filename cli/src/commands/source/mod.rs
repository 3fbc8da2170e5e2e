//! `source`: the presets, and sources of one's own tried on saved objects.

mod check;
mod junit;
mod package;
mod rbac;
mod replay;
mod test;

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;
use statusbridge_exporter::source::{PRESETS, Preset, Source, SourceArgs, schema};

use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::text::table;

/// Commands about sources.
#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// List the presets
    List(OutputArgs),
    /// Print a preset, to start from
    Show {
        /// Its name
        name: String,
    },
    /// Print what the exporter would show of saved objects
    Check(check::CheckArgs),
    /// Print each transition in successive versions of saved objects, the first sight of a package included
    Replay(replay::ReplayArgs),
    /// Hold sources against what tests, and their own samples, expect them to show
    Test(test::TestArgs),
    /// Print the least ClusterRole that the sources need
    Rbac(rbac::RbacArgs),
    /// Print the JSON Schema of the format
    Schema,
}

/// Loads the sources, and prints what may be meant otherwise in them to standard error.
fn loaded(args: &SourceArgs) -> Result<Vec<Arc<Source>>> {
    let sources = args.load()?;
    for warning in sources.iter().flat_map(|source| &source.warnings) {
        eprintln!("warning: {warning}");
    }
    Ok(sources.into_iter().map(Arc::new).collect())
}

/// A line of the list.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    description: String,
}

/// Runs one of them.
pub(crate) fn run(command: &SourceCommand) -> Result<Exit> {
    match command {
        SourceCommand::List(OutputArgs { output }) => {
            let mut listed = Vec::new();
            for preset in PRESETS {
                listed.push(Listed { name: preset.name, description: preset.source()?.description });
            }
            let lines: Vec<_> =
                listed.iter().map(|it| vec![it.name.to_owned(), it.description.clone()]).collect();
            output.print(&table(&lines), &listed)?;
        }
        SourceCommand::Show { name } => match Preset::find(name) {
            Some(preset) => io::stdout().write_all(preset.yaml.as_bytes())?,
            None => {
                let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
                let message = format!("there is no preset `{name}`; there are {}", known.join(", "));
                return Err(Exit::NotFound.error(message));
            }
        },
        SourceCommand::Check(args) => return check::run(args),
        SourceCommand::Replay(args) => return replay::run(args),
        SourceCommand::Test(args) => return test::run(args),
        SourceCommand::Rbac(args) => rbac::run(args)?,
        SourceCommand::Schema => writeln!(io::stdout(), "{:#}", schema())?,
    }
    Ok(Exit::Done)
}

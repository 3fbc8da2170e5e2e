//! `completion`: a script that completes command lines in a shell.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::exit::Exit;

/// Flags of `completion`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs, mut command: Command) -> Result<Exit> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "statusbridge", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(Exit::Done)
}

//! How a command ends: one table of exit codes for all of them.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Error;
use clap::Command;
use statusbridge_exporter::source::SourceProblem;

use crate::text::{Colour, paint};

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    /// That of clap too.
    Usage = 2,
    Stalled = 3,
    TimedOut = 4,
    Stale = 5,
    OtherRevision = 6,
    NotFound = 7,
    Incomplete = 8,
}

/// The table, as every `--help` shows it.
const TABLE: &str = "\
Exit codes, the same for all commands:
  0  done; what was waited for is so; nothing is wrong
  1  something failed: a server cannot be asked, or doctor or a check found problems
  2  wrong arguments, or a source or configuration file is wrong
  3  stalled: it will not open, or go on, by itself
  4  the time is over
  5  nobody keeps the status up to date, or its evidence is too old
  6  the object is for another revision
  7  there is no such object
  8  printed, but not all: a backend could not be asked";

/// An error that ends the program with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    exit: Exit,
    message: String,
}

impl Exit {
    /// An error with this exit code; every other error ends with [`Exit::Failed`].
    pub(crate) fn error(self, message: impl Display) -> Error {
        Failure { exit: self, message: message.to_string() }.into()
    }

    fn of(error: &Error) -> Self {
        match error.downcast_ref::<Failure>() {
            Some(failure) => failure.exit,
            None if error.is::<SourceProblem>() => Self::Usage,
            None => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Says on standard error what went wrong, and gives the exit code for it.
pub(crate) fn tell(error: &Error) -> Exit {
    // The reader of what we print has closed the pipe, such as `head`.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Exit::Done;
    }
    let _ = writeln!(io::stderr(), "{} {error:#}", paint("error:", Colour::Red, &io::stderr()));
    Exit::of(error)
}

/// The command, with the table in the help of each of its commands.
pub(crate) fn in_help(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    names.iter().fold(command.after_help(TABLE), |command, name| command.mut_subcommand(name, in_help))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_keeps_its_code_whatever_is_said_around_it() {
        let missing = Err::<(), _>(Exit::NotFound.error("no such gate")).context("reading").unwrap_err();
        assert_eq!(
            (Exit::of(&missing), format!("{missing:#}")),
            (Exit::NotFound, "reading: no such gate".into())
        );
        assert_eq!(Exit::of(&anyhow::anyhow!("connection refused")), Exit::Failed);
    }
}

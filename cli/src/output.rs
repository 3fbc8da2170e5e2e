//! The form of what a command prints.

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::text::{Colour, paint};

/// `-o`, as kubectl has it.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Form of what is printed
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// JSON; where a command prints several objects one after the other, each on a line of its own
    Json,
    /// YAML; where a command prints several objects one after the other, each as a document of its own
    Yaml,
}

impl Output {
    /// Prints the text of a report, or the report itself.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn print(self, text: &str, report: &impl Serialize) -> Result<()> {
        let text = match self {
            Self::Text => text.to_owned(),
            Self::Json => serde_json::to_string_pretty(report).context("writing JSON")? + "\n",
            Self::Yaml => yaml(report)?,
        };
        Ok(io::stdout().write_all(text.as_bytes())?)
    }

    /// Prints one of several reports.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn print_next(self, text: &str, report: &impl Serialize) -> Result<()> {
        let text = match self {
            Self::Text => text.to_owned(),
            Self::Json => serde_json::to_string(report).context("writing JSON")? + "\n",
            Self::Yaml => format!("---\n{}", yaml(report)?),
        };
        Ok(io::stdout().write_all(text.as_bytes())?)
    }
}

/// By way of JSON, so that both forms say the same.
fn yaml(report: &impl Serialize) -> Result<String> {
    let report = serde_json::to_value(report).context("writing YAML")?;
    serde_saphyr::to_string(&report).context("writing YAML")
}

/// Warns on standard error.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "{} {message}", paint("warning:", Colour::Yellow, &io::stderr()));
}

/// Prints a line for people. The reader may have closed the pipe; what the command does goes on.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

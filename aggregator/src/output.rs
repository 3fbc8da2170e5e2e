//! The form of what a subcommand prints.

use clap::ValueEnum;
use serde::Serialize;

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

impl Output {
    /// Prints the text of a report, or the report itself as JSON.
    pub(crate) fn print(self, text: &str, report: &impl Serialize) -> serde_json::Result<()> {
        match self {
            Self::Text => print!("{text}"),
            Self::Json => println!("{}", serde_json::to_string_pretty(report)?),
        }
        Ok(())
    }
}

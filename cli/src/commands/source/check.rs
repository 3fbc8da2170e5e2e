//! `source check`: what `/metrics` would say about saved objects, with no cluster at hand.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use statusbridge_exporter::{
    rehearsal::{Clock, History, rehearse},
    saved::{Remark, Saved},
    serve::exposition::Exposition,
    source::SourceArgs,
    state::Limits,
};
use statusbridge_serving::format::Format;

use crate::exit::Exit;

/// Arguments of `source check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    limits: Limits,
    /// Form of what is printed
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// What time it is [default: the clock's time]
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Files with objects, directories of such files, or - for standard input: YAML, JSON, JSON
    /// lines, lists
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Format of the printed series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// Prometheus text format 0.0.4
    Text,
    /// OpenMetrics 1.0.0
    Openmetrics,
}

/// Checks the objects: series to standard output, everything that is wrong with the objects to standard error.
pub(crate) fn run(args: &CheckArgs) -> Result<Exit> {
    let Saved { objects, broken } = Saved::read(&args.paths);
    let now = args.now.unwrap_or_else(jiff::Timestamp::now).as_millisecond();
    let sources = args.sources.load()?.into_iter().map(Arc::new).collect();
    let history = rehearse(sources, objects, args.limits.clone(), Clock::Fixed(now))
        .map_err(|error| Exit::Usage.error(error))?;
    let format = match args.output {
        OutputFormat::Text => Format::Text,
        OutputFormat::Openmetrics => Format::OpenMetrics,
    };
    let mut out = io::stdout().lock();
    for piece in Exposition::new(history.snapshot.clone(), format, None, Bytes::new()).plain() {
        out.write_all(&piece)?;
    }
    problems(&broken, &history)
}

/// Names on standard error what no source reads, and what is broken; only the latter is a failure.
pub(super) fn problems(broken: &[Remark], history: &History) -> Result<Exit> {
    let mut out = io::stderr().lock();
    for unread in &history.unread {
        writeln!(out, "{unread}")?;
    }
    let mut broken = broken.iter().chain(&history.failures).peekable();
    let ended = if broken.peek().is_none() { Exit::Done } else { Exit::Failed };
    for broken in broken {
        writeln!(out, "{broken}")?;
    }
    Ok(ended)
}

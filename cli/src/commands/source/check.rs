//! `source check`: what the exporter would show of saved objects, with no cluster at hand.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use statusbridge_exporter::{
    rehearsal::{Clock, History, rehearse},
    saved::{Remark, Saved},
    serve::exposition::Exposition,
    source::SourceArgs,
    state::Limits,
};
use statusbridge_serving::format::Format;

use super::loaded;
use super::package::{PackageReport, table};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `source check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    limits: Limits,
    /// Form of what is printed
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// What time it is [default: the clock's time]
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Files with objects, directories of such files, or - for standard input: YAML, JSON, JSON
    /// lines, lists. CustomResourceDefinitions among them give defaults and categories
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table for people
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// What /metrics would say, in the Prometheus text format 0.0.4
    Metrics,
}

/// What is printed as data.
#[derive(Serialize)]
struct Report<'a> {
    packages: Vec<PackageReport<'a>>,
}

/// Checks the objects: packages to standard output, everything that is wrong with the objects to standard error.
pub(crate) fn run(args: &CheckArgs) -> Result<Exit> {
    let Saved { objects, broken } = Saved::read(&args.paths);
    let now = args.now.unwrap_or_else(jiff::Timestamp::now).as_millisecond();
    let sources = loaded(&args.sources)?;
    let history = rehearse(sources, objects, args.limits.clone(), Clock::Fixed(now));
    let packages = history.packages.iter().map(|(id, package)| PackageReport::new(id, Some(package)));
    let report = Report { packages: packages.collect() };
    let print = |output: Output| output.print(&text(&report), &report);
    match args.output {
        Form::Text => print(Output::Text)?,
        Form::Json => print(Output::Json)?,
        Form::Yaml => print(Output::Yaml)?,
        Form::Metrics => {
            let mut out = io::stdout().lock();
            let exposition = Exposition::new(history.snapshot.clone(), Format::Text, None, Bytes::new());
            exposition.plain().try_for_each(|piece| out.write_all(&piece))?;
        }
    }
    problems(&broken, &history)
}

fn text(report: &Report<'_>) -> String {
    if report.packages.is_empty() {
        return "there is no package among the objects\n".to_owned();
    }
    table(&[], report.packages.iter().map(|package| (Vec::new(), package)))
}

/// Names on standard error fields that no kind has, objects that no source reads, and what is broken; only the last is a
/// failure.
pub(super) fn problems(broken: &[Remark], history: &History) -> Result<Exit> {
    let mut out = io::stderr().lock();
    for warning in &history.unknown_fields {
        writeln!(out, "warning: {warning}")?;
    }
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

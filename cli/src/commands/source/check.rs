//! `source check`: what `/metrics` would say about saved objects, with no cluster at hand.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use bytes::Bytes;
use serde_json::Value;
use statusbridge_exporter::{
    replay::{Clock, History, replay},
    saved::Saved,
    serve::exposition::Exposition,
    source::{Source, SourceArgs},
    state::{Limits, Publisher, SourceStanding, Store},
    watch::PackageKey,
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
    let sources = args.sources.load()?;
    let saved = Saved::read(&args.paths);
    let now = args.now.unwrap_or_else(jiff::Timestamp::now).as_millisecond();
    let history = replay(&sources, &saved.objects, Clock::Fixed(now));
    let format = match args.output {
        OutputFormat::Text => Format::Text,
        OutputFormat::Openmetrics => Format::OpenMetrics,
    };
    let mut out = io::stdout().lock();
    for piece in series(&sources, &history, &args.limits, format, now / 1000).plain() {
        out.write_all(&piece)?;
    }
    problems(&saved, &history)
}

/// Names on standard error what no source reads, and what is broken; only the latter is a failure.
pub(super) fn problems(saved: &Saved, history: &History) -> Result<Exit> {
    let mut out = io::stderr().lock();
    for object in history.unread.iter().filter_map(|index| saved.objects.get(*index)) {
        writeln!(out, "{}: {} is read by no source", object.origin, describe(&object.value))?;
    }
    let mut broken = saved.broken.iter().chain(&history.failures).peekable();
    let ended = if broken.peek().is_none() { Exit::Done } else { Exit::Failed };
    for broken in broken {
        writeln!(out, "{broken}")?;
    }
    Ok(ended)
}

/// The exposition of what is shown in the end, of the sources that read any of the objects: in a
/// cluster, the kinds of the others would not be installed. `now` in unix seconds.
fn series(sources: &[Source], history: &History, limits: &Limits, format: Format, now: i64) -> Exposition {
    let mut store = Store::new(limits.clone());
    sources.iter().for_each(|source| store.add_source(&source.name));
    for (id, shown) in &history.packages {
        store.put(id.source, None, &PackageKey::new(id.namespace.as_deref(), &id.name), shown);
    }
    let standing: Vec<SourceStanding> = (0..sources.len())
        .map(|index| match history.sources.contains(&index) {
            true => SourceStanding::Published { up: true, last_contact: now },
            false => SourceStanding::Unpublished,
        })
        .collect();
    Exposition::new(store.snapshot(Publisher::default(), &standing), format, None, Bytes::new())
}

fn describe(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let (namespace, name) =
        (text(metadata.and_then(|m| m.get("namespace"))), text(metadata.and_then(|m| m.get("name"))));
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {} {namespace}{slash}{name}", text(object.get("apiVersion")), text(object.get("kind")))
}

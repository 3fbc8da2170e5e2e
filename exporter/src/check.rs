//! `check`: what `/metrics` would say about saved objects, with no cluster at hand.

use std::{io::Write, path::PathBuf};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use statusbridge_contract::Fingerprint;
use statusbridge_serving::format::Format;

use crate::{
    catalog::SourceArgs,
    exposition::Exposition,
    objects::Saved,
    replay::{Clock, History, Transition, replay},
    source::Source,
    store::{Limits, PackageKey, Publisher, SourceStanding, Store},
};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    limits: Limits,
    /// Which exposition format to print.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// What time it is. The clock's time when left out; with --replay, the times in the objects.
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Take objects that come more than once as successive versions, and print one JSON line for
    /// each transition, the first sight of a package included.
    #[arg(long, conflicts_with = "format")]
    replay: bool,
    /// Files with objects, directories of such files, or - for standard input: YAML, JSON, JSON
    /// lines, lists.
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Format of the printed series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    Openmetrics,
}

/// Checks the objects: series or transitions to `out`, everything that is wrong with the objects to
/// `problems`. Returns whether nothing was wrong; an object that no source reads is only told.
pub fn run(args: &CheckArgs, out: &mut impl Write, problems: &mut impl Write) -> anyhow::Result<bool> {
    let sources = args.sources.load()?;
    let saved = Saved::read(&args.paths);
    let wall = jiff::Timestamp::now().as_millisecond();
    let clock = match args.now {
        Some(now) => Clock::Fixed(now.as_millisecond()),
        None if args.replay => Clock::FromObjects(wall),
        None => Clock::Fixed(wall),
    };
    let history = replay(&sources, &saved.objects, clock);
    if args.replay {
        for transition in &history.transitions {
            writeln!(out, "{}", serde_json::to_string(&Line::new(&sources, transition))?)?;
        }
    } else {
        let format = match args.format {
            OutputFormat::Text => Format::Text,
            OutputFormat::Openmetrics => Format::OpenMetrics,
        };
        let now = args.now.map_or(wall, |now| now.as_millisecond()) / 1000;
        for piece in series(&sources, &history, &args.limits, format, now).plain() {
            out.write_all(&piece)?;
        }
    }
    for object in history.unread.iter().filter_map(|index| saved.objects.get(*index)) {
        writeln!(problems, "{}: {} is read by no source", object.origin, describe(&object.value))?;
    }
    for broken in saved.broken.iter().chain(&history.failures) {
        writeln!(problems, "{broken}")?;
    }
    Ok(saved.broken.is_empty() && history.failures.is_empty())
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

/// A transition as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: Option<String>,
    source: &'a str,
    namespace: Option<&'a str>,
    package: &'a str,
    apply_state: &'a str,
    health: &'a str,
    desired_revision: Option<String>,
    applied_revision: Option<String>,
    healthy_revision: Option<String>,
    reason: Option<&'a str>,
    version: usize,
}

impl<'a> Line<'a> {
    fn new(sources: &'a [Source], transition: &'a Transition) -> Self {
        let (id, shown) = (&transition.package, &transition.shown);
        let revision = |f: Fingerprint| (!f.is_none()).then(|| f.to_string());
        Self {
            time: jiff::Timestamp::from_millisecond(shown.since).ok().map(|time| time.to_string()),
            source: sources.get(id.source).map_or("", |source| &source.name),
            namespace: id.namespace.as_deref(),
            package: &id.name,
            apply_state: shown.verdict.apply.name(),
            health: shown.verdict.health.name(),
            desired_revision: revision(shown.verdict.desired),
            applied_revision: revision(shown.verdict.applied),
            healthy_revision: revision(shown.verdict.healthy),
            reason: shown.verdict.reason.as_deref(),
            version: transition.version,
        }
    }
}

fn describe(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let (namespace, name) =
        (text(metadata.and_then(|m| m.get("namespace"))), text(metadata.and_then(|m| m.get("name"))));
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {} {namespace}{slash}{name}", text(object.get("apiVersion")), text(object.get("kind")))
}

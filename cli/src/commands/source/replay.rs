//! `source replay`: every transition in a history of saved objects, with no cluster at hand.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::{
    replay::{Clock, Transition, replay},
    saved::Saved,
    source::{Source, SourceArgs},
};

use super::check::problems;
use crate::exit::Exit;

/// Arguments of `source replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// What time it is [default: the times in the objects]
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Files with objects, directories of such files, or - for standard input: YAML, JSON, JSON
    /// lines, lists. Objects that come more than once are successive versions
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Replays the objects: a JSON line for each transition to standard output, everything that is wrong with the objects to
/// standard error.
pub(crate) fn run(args: &ReplayArgs) -> Result<Exit> {
    let sources = args.sources.load()?;
    let saved = Saved::read(&args.paths);
    let clock = match args.now {
        Some(now) => Clock::Fixed(now.as_millisecond()),
        None => Clock::FromObjects(jiff::Timestamp::now().as_millisecond()),
    };
    let history = replay(&sources, &saved.objects, clock);
    let mut out = io::stdout().lock();
    for transition in &history.transitions {
        writeln!(out, "{}", serde_json::to_string(&Line::new(&sources, transition))?)?;
    }
    problems(&saved, &history)
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

//! `source replay`: every transition in a history of saved objects, with no cluster at hand.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;
use statusbridge_contract::Fingerprint;
use statusbridge_exporter::{
    rehearsal::{Clock, Transition, rehearse},
    saved::Saved,
    source::{SourceArgs, Verdict},
    state::Limits,
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
    let Saved { objects, broken } = Saved::read(&args.paths);
    let clock = match args.now {
        Some(now) => Clock::Fixed(now.as_millisecond()),
        None => Clock::FromObjects(jiff::Timestamp::now().as_millisecond()),
    };
    let sources = args.sources.load()?.into_iter().map(Arc::new).collect();
    let history =
        rehearse(sources, objects, Limits::default(), clock).map_err(|error| Exit::Usage.error(error))?;
    let mut out = io::stdout().lock();
    for transition in &history.transitions {
        writeln!(out, "{}", serde_json::to_string(&Line::new(transition))?)?;
    }
    problems(&broken, &history)
}

/// A transition as a line of JSON. A package that is gone has neither states nor revisions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: Option<String>,
    source: &'a str,
    namespace: Option<&'a str>,
    package: &'a str,
    apply_state: Option<&'a str>,
    health: Option<&'a str>,
    desired_revision: Option<String>,
    applied_revision: Option<String>,
    healthy_revision: Option<String>,
    reason: Option<&'a str>,
    version: Option<usize>,
}

impl<'a> Line<'a> {
    fn new(transition: &'a Transition) -> Self {
        let Transition { at, id, package } = transition;
        let verdict = package.as_ref().map(|package| &package.shown.verdict);
        let revision = |of: fn(&Verdict) -> Fingerprint| {
            let fingerprint = verdict.map(of).filter(|it| !it.is_none())?;
            Some(fingerprint.to_string())
        };
        Self {
            time: jiff::Timestamp::from_millisecond(*at).ok().map(|time| time.to_string()),
            source: &id.source,
            namespace: id.namespace.as_deref(),
            package: &id.name,
            apply_state: verdict.map(|verdict| verdict.apply.name()),
            health: verdict.map(|verdict| verdict.health.name()),
            desired_revision: revision(|verdict| verdict.desired),
            applied_revision: revision(|verdict| verdict.applied),
            healthy_revision: revision(|verdict| verdict.healthy),
            reason: verdict.and_then(|verdict| verdict.reason.as_deref()),
            version: package.as_ref().map(|package| package.version),
        }
    }
}

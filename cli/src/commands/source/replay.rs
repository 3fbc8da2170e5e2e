//! `source replay`: every transition in a history of saved objects, with no cluster at hand.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use statusbridge_exporter::{
    rehearsal::{Clock, Transition, rehearse},
    saved::Saved,
    source::SourceArgs,
    state::Limits,
};

use super::check::problems;
use super::loaded;
use super::package::{PackageReport, table};
use crate::exit::Exit;
use crate::output::{Output, OutputArgs};

/// Arguments of `source replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// What time it is [default: the times in the objects]
    #[arg(long, value_name = "RFC3339")]
    now: Option<jiff::Timestamp>,
    /// Files with objects, directories of such files, or - for standard input: YAML, JSON, JSON
    /// lines, lists, the events of a watch. Objects that come more than once are successive versions
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// A transition, or the first sight of a package.
#[derive(Serialize)]
struct TransitionReport<'a> {
    time: String,
    #[serde(flatten)]
    package: PackageReport<'a>,
}

impl<'a> TransitionReport<'a> {
    fn new(transition: &'a Transition) -> Self {
        let Transition { at, id, package } = transition;
        // Whatever the times in objects say, people can read it.
        let time = jiff::Timestamp::from_millisecond(*at).unwrap_or_default().to_string();
        Self { time, package: PackageReport::new(id, package.as_ref()) }
    }
}

/// Replays the objects: transitions to standard output, everything that is wrong with the objects to standard error.
pub(crate) fn run(args: &ReplayArgs) -> Result<Exit> {
    let Saved { objects, broken } = Saved::read(&args.paths);
    let clock = match args.now {
        Some(now) => Clock::Fixed(now.as_millisecond()),
        None => Clock::FromObjects(jiff::Timestamp::now().as_millisecond()),
    };
    let history = rehearse(loaded(&args.sources)?, objects, Limits::default(), clock);
    let reports: Vec<_> = history.transitions.iter().map(TransitionReport::new).collect();
    match args.output.output {
        Output::Text => {
            let rows = reports.iter().map(|it| (vec![it.time.clone(), it.package.version()], &it.package));
            let table = table(&["TIME", "VERSION"], rows);
            Output::Text.print(&table, &())?;
        }
        output => reports.iter().try_for_each(|report| output.print_next("", report))?,
    }
    problems(&broken, &history)
}

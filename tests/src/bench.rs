//! What the benchmarks share: how they start, what they are told by variables, and where they report.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};

use crate::Rig;

/// Measures, unless Ctrl-C comes first. Logs are kept when something fails.
pub fn run(name: &str, measure: impl AsyncFnOnce(&Rig) -> Result<()>) -> ExitCode {
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(until_stopped(name, measure)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn until_stopped(name: &str, measure: impl AsyncFnOnce(&Rig) -> Result<()>) -> Result<()> {
    let rig = Rig::new(name)?;
    tokio::select! {
        measured = measure(&rig) => measured.inspect_err(|_| rig.mark_failed()),
        stopped = tokio::signal::ctrl_c() => stopped.context("listening for Ctrl-C"),
    }
}

/// What the environment says; an empty variable says nothing.
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A number of the environment.
///
/// # Errors
/// When the variable says something else.
pub fn number<N: FromStr>(name: &str, default: N) -> Result<N> {
    let Some(text) = setting(name) else { return Ok(default) };
    text.parse().ok().with_context(|| format!("{name}: `{text}` is no number"))
}

/// Prints a line of progress or of the result.
pub fn say(text: &str) {
    println!("{text}");
}

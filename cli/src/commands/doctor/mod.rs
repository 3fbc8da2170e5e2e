//! `doctor`: whether clusters, metrics pipeline and backend are fit, and what to change.
//!
//! ```text
//!   backend, hub --ask--> Survey --examine--> findings --> text or JSON, exit code
//! ```
//!
//! With a configuration file that names feeds, each of them is looked at, and the findings are those of a feed.

mod ask;
mod cluster_label;
mod examine;
mod finding;
mod report;
mod scraped;
mod several;
mod survey;
#[cfg(test)]
mod tests;
mod trust;
mod unchecked;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use statusbridge_aggregator::feed;
use statusbridge_aggregator::feed::promql::Trust;
use statusbridge_api::common::duration;

use crate::exit::Exit;
use crate::feeds::FeedArgs;
use crate::hub::Access;
use crate::output::OutputArgs;
use report::Report;
use survey::Expectation;

/// `staleAfter` of a FleetPackage that does not say it.
const DEFAULT_STALE_AFTER: Duration = Duration::from_secs(180);

/// Flags of `doctor`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    feeds: FeedArgs,
    /// How old evidence may be [default: what the hub's FleetPackages say, or 3m without a hub]
    #[arg(long, value_parser = duration)]
    stale_after: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Looks, and prints what was found.
///
/// # Errors
/// When the backend cannot be asked, or the configuration file cannot be used.
pub(crate) async fn run(access: &Access, args: DoctorArgs) -> Result<Exit> {
    let feeds = &args.feeds;
    let config = feeds.config()?;
    let trust = feeds.backend.trust();
    let flags = feeds.backend.backend(trust.clone().unwrap_or(Trust::All), &config.feeds);
    let flags = flags.map_err(|error| Exit::Usage.error(format!("{error:#}")))?;
    let flags = flags.map(|backend| (backend, trust));
    let (mut expectations, hub) = expectations(access, args.stale_after).await;
    expectations.iter_mut().for_each(|expectation| expectation.speakers = config.speakers.clone());
    if config.feeds != feed::Settings::default() {
        let all = several::doctor(access, feeds, &config, flags, expectations, hub).await;
        args.output.output.print(&all.text(), &all)?;
        return Ok(ended(all.fit));
    }
    let Some((backend, trust)) = flags else {
        let none = "--backend says which backend is asked, or --config which feeds are";
        return Err(Exit::Usage.error(none));
    };
    let survey = ask::survey(&backend, feeds.settle_delay, trust, feeds.backend.fleet(), expectations).await;
    let survey = survey.context("the backend cannot be asked")?;
    let report = Report::new(backend.url.to_string(), hub, &survey);
    args.output.output.print(&report.text(), &report)?;
    Ok(ended(report.fit))
}

fn ended(fit: bool) -> Exit {
    if fit { Exit::Done } else { Exit::Failed }
}

/// What is expected, by whom, and what became of asking the hub.
async fn expectations(access: &Access, stale_after: Option<Duration>) -> (Vec<Expectation>, String) {
    let all = |who: &str, limit: Duration| {
        let stale_after = limit.as_secs_f64();
        vec![Expectation { who: who.to_owned(), stale_after, ..Expectation::default() }]
    };
    if let Some(limit) = stale_after {
        return (all("--stale-after", limit), "not asked, because of --stale-after".to_owned());
    }
    let asked = async {
        let hub = access.connect().await?;
        Ok::<_, anyhow::Error>(ask::expectations(&hub.client).await?)
    };
    let default = || all("the default of 3m", DEFAULT_STALE_AFTER);
    match asked.await {
        Ok(expectations) if expectations.is_empty() => (default(), "no FleetPackages".to_owned()),
        Ok(expectations) => {
            let least = expectations.iter().map(|it| it.stale_after).fold(f64::MAX, f64::min);
            let plural = if expectations.len() == 1 { "" } else { "s" };
            let hub = format!("{} FleetPackage{plural}, least staleAfter {least} s", expectations.len());
            (expectations, hub)
        }
        Err(error) => (default(), format!("could not be asked: {error:#}")),
    }
}

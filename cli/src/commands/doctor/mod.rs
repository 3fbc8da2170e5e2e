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
mod scraped;
mod several;
mod survey;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_aggregator::feed;
use statusbridge_aggregator::feed::promql::Trust;
use statusbridge_api::common::duration;
use statusbridge_core::time::Seconds;

use crate::exit::Exit;
use crate::feeds::FeedArgs;
use crate::hub::Access;
use crate::output::OutputArgs;
use crate::text::{Colour, paint};
use examine::examine;
use finding::{Check, Finding, Level};
use survey::{DigestSeen, Limit, Survey};

#[cfg(test)]
use survey::{StreamSeen, Unscraped};

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
    if config.feeds != feed::Settings::default() {
        let (limits, hub) = limits(access, args.stale_after).await;
        return several::doctor(access, &args, &config, flags, limits, hub).await;
    }
    let Some((backend, trust)) = flags else {
        let none = "--backend says which backend is asked, or --config which feeds are";
        return Err(Exit::Usage.error(none));
    };
    let (limits, hub) = limits(access, args.stale_after).await;
    let survey = ask::survey(&backend, feeds.settle_delay, trust, feeds.backend.fleet(), limits).await;
    let survey = survey.context("the backend cannot be asked")?;
    let report = Report::new(backend.url.to_string(), hub, &survey);
    args.output.output.print(&report.text(), &report)?;
    Ok(ended(report.fit))
}

fn ended(fit: bool) -> Exit {
    if fit { Exit::Done } else { Exit::Failed }
}

/// Who says how old evidence may be, and what became of asking the hub.
async fn limits(access: &Access, stale_after: Option<Duration>) -> (Vec<Limit>, String) {
    let all = |who: &str, limit: Duration| {
        vec![Limit { who: who.to_owned(), stale_after: limit.as_secs_f64(), clusters: None }]
    };
    if let Some(limit) = stale_after {
        return (all("--stale-after", limit), "not asked, because of --stale-after".to_owned());
    }
    let asked = async {
        let hub = access.connect().await?;
        Ok::<_, anyhow::Error>(ask::limits(&hub.client).await?)
    };
    let default = || all("the default of 3m", DEFAULT_STALE_AFTER);
    match asked.await {
        Ok(limits) if limits.is_empty() => (default(), "no FleetPackages".to_owned()),
        Ok(limits) => {
            let least = limits.iter().map(|limit| limit.stale_after).fold(f64::MAX, f64::min);
            let plural = if limits.len() == 1 { "" } else { "s" };
            let hub = format!("{} FleetPackage{plural}, least staleAfter {least} s", limits.len());
            (limits, hub)
        }
        Err(error) => (default(), format!("could not be asked: {error:#}")),
    }
}

/// All that is printed.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// No problem was found.
    fit: bool,
    /// Name of the feed, where there may be several.
    feed: Option<String>,
    backend: Option<String>,
    flavour: Option<&'static str>,
    hub: Option<String>,
    clusters: usize,
    streams: usize,
    verified: usize,
    /// The longest usual distance of scrapes.
    scrape_interval_seconds: Option<Seconds>,
    findings: Vec<Finding>,
}

impl Report {
    fn new(backend: String, hub: String, survey: &Survey) -> Self {
        Self { hub: Some(hub), ..Self::of(Some(backend), survey, examine(survey)) }
    }

    fn of(backend: Option<String>, survey: &Survey, findings: Vec<Finding>) -> Self {
        let clusters: BTreeSet<&str> = survey.streams.iter().map(|stream| stream.cluster.as_str()).collect();
        let intervals = survey.digests.values().filter_map(DigestSeen::interval);
        Self {
            fit: is_fit(&findings),
            feed: None,
            backend,
            flavour: survey.found_flavour.map(statusbridge_aggregator::feed::promql::Flavour::name),
            hub: None,
            clusters: clusters.len(),
            streams: survey.streams.len(),
            verified: survey.streams.iter().filter(|stream| stream.fault.is_none()).count(),
            scrape_interval_seconds: intervals.reduce(f64::max).map(|it| (it * 10.0).round() / 10.0),
            findings,
        }
    }

    /// All but the last line.
    fn body(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let named: Vec<String> = [
            self.feed.as_ref().map(|feed| format!("feed {feed}")),
            self.backend.as_ref().map(|url| {
                let flavour = self.flavour.map(|flavour| format!(" ({flavour})")).unwrap_or_default();
                format!("backend {url}{flavour}")
            }),
        ]
        .into_iter()
        .flatten()
        .collect();
        let _ = writeln!(text, "{}", named.join(", "));
        let interval = self.scrape_interval_seconds.map(|it| format!(", scraped every {it} s"));
        let _ = writeln!(
            text,
            "clusters {}, streams {}, verified {}{}",
            self.clusters,
            self.streams,
            self.verified,
            interval.unwrap_or_default()
        );
        if let Some(hub) = &self.hub {
            let _ = writeln!(text, "hub: {hub}");
        }
        text + &lines(&self.findings)
    }

    fn text(&self) -> String {
        self.body() + &verdict(self.fit)
    }
}

fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Problem)
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { level, check, message, fix } in findings {
        let level = match level {
            Level::Problem => paint("problem", Colour::Red, &std::io::stdout()),
            Level::Advice => paint("advice", Colour::Yellow, &std::io::stdout()),
        };
        // Writing into a string does not fail.
        let _ = writeln!(text, "{level} {}: {message}\n    -> {fix}", check.name());
    }
    text
}

fn verdict(fit: bool) -> String {
    let (words, colour) = if fit { ("fit", Colour::Green) } else { ("not fit", Colour::Red) };
    paint(words, colour, &std::io::stdout()) + "\n"
}

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
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_api::common::duration;
use statusbridge_core::time::Seconds;

use crate::feed;
use crate::feed::flags::BackendArgs;
use crate::feed::promql::Trust;
use crate::hub::access::Access;
use crate::output::Output;
use crate::serve::config::ConfigFile;

pub use examine::examine;
pub use finding::{Check, Finding, Level};
pub use survey::{DigestSeen, Limit, StreamSeen, Survey, Unscraped};

/// `staleAfter` of a FleetPackage that does not say it.
const DEFAULT_STALE_AFTER: Duration = Duration::from_secs(180);

/// Flags of `doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DoctorArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// How far behind the present the backend is asked, as for serve
    #[arg(long, env = "STATUSBRIDGE_SETTLE_DELAY", default_value = "5s", value_parser = duration)]
    settle_delay: Duration,
    /// How old evidence may be [default: what the hub's FleetPackages say, or 3m without a hub]
    #[arg(long, value_parser = duration)]
    stale_after: Option<Duration>,
    /// The configuration file of serve: every feed that it names is looked at
    #[arg(long, env = "STATUSBRIDGE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// Form of what is printed
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  fit; there may be advice
  1  there are problems
  2  the backend cannot be asked, or the configuration file cannot be used";

/// Looks, prints what was found, and gives the exit code.
///
/// # Errors
/// When the report cannot be made.
pub async fn doctor(args: DoctorArgs) -> Result<u8> {
    let config = match ConfigFile::open(args.config.clone()) {
        Ok(file) => file.current().clone(),
        Err(error) => {
            eprintln!("{error}");
            return Ok(2);
        }
    };
    let trust = args.backend.trust();
    let flags = match args.backend.backend(trust.clone().unwrap_or(Trust::All), &config.feeds) {
        Ok(flags) => flags.map(|backend| (backend, trust)),
        Err(error) => {
            eprintln!("{error}");
            return Ok(2);
        }
    };
    if config.feeds != feed::Settings::default() {
        let (limits, hub) = limits(&args).await;
        return several::doctor(&args, &config, flags, limits, hub).await;
    }
    let Some((backend, trust)) = flags else {
        eprintln!("--backend says which backend is asked, or --config which feeds are");
        return Ok(2);
    };
    let (limits, hub) = limits(&args).await;
    let report = match ask::survey(&backend, args.settle_delay, trust, args.backend.fleet(), limits).await {
        Ok(survey) => Report::new(backend.url.to_string(), hub, &survey),
        Err(error) => {
            eprintln!("the backend cannot be asked: {error}");
            return Ok(2);
        }
    };
    args.output.print(&report.text(), &report).context("writing the report")?;
    Ok(u8::from(!report.fit))
}

/// Who says how old evidence may be, and what became of asking the hub.
async fn limits(args: &DoctorArgs) -> (Vec<Limit>, String) {
    let all = |who: &str, limit: Duration| {
        vec![Limit { who: who.to_owned(), stale_after: limit.as_secs_f64(), clusters: None }]
    };
    if let Some(limit) = args.stale_after {
        return (all("--stale-after", limit), "not asked, because of --stale-after".to_owned());
    }
    let asked = async {
        let (client, _) = args.access.connect(None).await?;
        Ok::<_, anyhow::Error>(ask::limits(&client).await?)
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
            flavour: survey.found_flavour.map(crate::feed::promql::Flavour::name),
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
        self.body() + verdict(self.fit)
    }
}

fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Problem)
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { level, check, message, fix } in findings {
        let level = match level {
            Level::Problem => "problem",
            Level::Advice => "advice",
        };
        // Writing into a string does not fail.
        let _ = writeln!(text, "{level} {}: {message}\n    -> {fix}", check.name());
    }
    text
}

fn verdict(fit: bool) -> &'static str {
    if fit { "fit\n" } else { "not fit\n" }
}

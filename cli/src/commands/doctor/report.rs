//! What the doctor prints.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use serde_with::skip_serializing_none;
use statusbridge_core::time::Seconds;

use super::examine::examine;
use super::finding::{Finding, Level};
use super::survey::{DigestSeen, Survey};
use crate::text::{Colour, paint};

/// All that is printed.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// No problem was found.
    pub(super) fit: bool,
    /// Name of the feed, where there may be several.
    pub(super) feed: Option<String>,
    pub(super) backend: Option<String>,
    pub(super) flavour: Option<&'static str>,
    pub(super) hub: Option<String>,
    pub(super) clusters: usize,
    pub(super) streams: usize,
    pub(super) verified: usize,
    /// The longest usual distance of scrapes.
    pub(super) scrape_interval_seconds: Option<Seconds>,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(backend: String, hub: String, survey: &Survey) -> Self {
        Self { hub: Some(hub), ..Self::of(Some(backend), survey, examine(survey)) }
    }

    pub(super) fn of(backend: Option<String>, survey: &Survey, findings: Vec<Finding>) -> Self {
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
    pub(super) fn body(&self) -> String {
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

    pub(super) fn text(&self) -> String {
        self.body() + &verdict(self.fit)
    }
}

pub(super) fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Problem)
}

pub(super) fn lines(findings: &[Finding]) -> String {
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

pub(super) fn verdict(fit: bool) -> String {
    let (words, colour) = if fit { ("fit", Colour::Green) } else { ("not fit", Colour::Red) };
    paint(words, colour, &std::io::stdout()) + "\n"
}

//! The account for people.

use std::fmt::Write;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use statusbridge_contract::Fingerprint;

use super::account::{Account, Dependency, Verdict};
use super::rows::Row;
use crate::clock::Seconds;

/// Width of the first column.
const LABEL: usize = 14;

/// A span of time in at most two units: `45s`, `3m20s`, `5h2m`, `3d4h`.
pub(crate) fn span(seconds: Seconds) -> String {
    let whole = seconds.abs().round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    let sign = if seconds <= -0.5 { "-" } else { "" };
    let two = |big: u64, unit: &str, small: u64, sub: &str| match small {
        0 => format!("{sign}{big}{unit}"),
        _ => format!("{sign}{big}{unit}{small}{sub}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{rest}s"),
        (0, 0, _) => two(minutes, "m", rest, "s"),
        (0, ..) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// The whole account.
pub fn render(account: &Account) -> String {
    let mut page = Page::default();
    let verdict = &account.verdict;
    let observed = match verdict.observed_generation {
        Some(observed) => format!("status answers {observed}"),
        None => "not looked at yet".to_owned(),
    };
    page.line("Object", &format!("{verdict}, generation {} ({observed})", verdict.generation));
    page.line("Revision", &revision(verdict));
    page.line("Verdict", &judged(verdict, !account.doubts.is_empty()));
    page.line("Evidence", &evidence(verdict));
    for doubt in &account.doubts {
        page.line("DOUBT", doubt);
    }
    if let Some(terms) = &account.terms {
        let soak = terms.min_success_time.as_ref().map(|it| format!(" for {it}")).unwrap_or_default();
        page.line(
            "Terms",
            &format!(
                "{} of {} {:?}{soak}, {} needed; {} failed or out of sight, {} allowed",
                terms.healthy,
                terms.total,
                terms.require,
                terms.needed,
                terms.failed_or_unobserved,
                terms.allowed
            ),
        );
    }
    page.status(&account.status);
    for condition in &account.conditions {
        let since = &condition.last_transition_time.0;
        page.line(
            "Condition",
            &format!("{}={} {} since {since}", condition.type_, condition.status, condition.reason),
        );
    }
    if !account.override_.is_null() {
        page.line("Override", &plain(&account.override_));
    }
    for check in account.checks.as_array().into_iter().flatten() {
        page.line("Check", &plain(check));
    }
    for other in &account.depends_on {
        page.dependency("Depends on", other);
    }
    if let Some(package) = &account.fleet_package {
        page.dependency("Report", package);
    }
    match account.heartbeat_age_seconds {
        Some(age) => page.line("Heartbeat", &format!("{} old", span(age))),
        None => page.line("Heartbeat", "none was read"),
    }
    if let Some(note) = &account.clusters_note {
        page.line("Clusters", note);
    }
    page.table(&account.clusters);
    page.text
}

fn revision(verdict: &Verdict) -> String {
    match (&verdict.revision, &verdict.fingerprint) {
        (Some(words), Some(fingerprint)) if words == fingerprint => words.clone(),
        (Some(words), Some(fingerprint)) => format!("{words} ({fingerprint})"),
        _ => "none is wanted: each cluster is held to its own".to_owned(),
    }
}

fn judged(verdict: &Verdict, doubted: bool) -> String {
    let state = match (verdict.condition, verdict.holds) {
        ("Open", true) => "open",
        ("Open", false) => "closed",
        (_, true) => "Ready",
        (_, false) => "not Ready",
    };
    let doubted = if doubted && verdict.holds { ", NOT TO BE RELIED UPON" } else { "" };
    let since = verdict.since.as_ref().map(|since| format!(" (since {})", since.0)).unwrap_or_default();
    format!("{state}{doubted}: {}: {}{since}", verdict.reason, verdict.message)
}

fn evidence(verdict: &Verdict) -> String {
    let limit = verdict.stale_after_seconds.map(|it| format!("; stale after {}", span(it)));
    match verdict.evidence_age_seconds {
        Some(age) => format!("{} old{}", span(age), limit.unwrap_or_default()),
        None => format!("none that is fresh and verified{}", limit.unwrap_or_default()),
    }
}

/// A value on one line, without the marks of JSON where they say nothing, and without zeros.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| **value != 0).map(|(name, value)| match value {
                Value::Object(_) => format!("{name} ({})", plain(value)),
                _ => format!("{name} {}", plain(value)),
            });
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Texts from elsewhere stay on their line and do nothing to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, label: &str, text: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{label:LABEL$}{}", one_line(text));
    }

    /// What the status has besides what was told already: numbers on one line, lists item by item.
    fn status(&mut self, status: &Value) {
        const TOLD: [&str; 4] = ["observedGeneration", "asOf", "since", "revision"];
        for (name, value) in status.as_object().into_iter().flatten() {
            let label = match name.as_str() {
                "waitingFor" => "Waits for",
                "clusters" => "Clusters",
                "startedAt" => "Started",
                "healthy" => "Counting",
                "lastHealthyRevision" => "Last healthy",
                "revisions" => "Revision at",
                "problems" => "Problem",
                "history" => "History",
                "trace" => "Stage",
                "checks" => "Checked",
                other => other,
            };
            match value {
                _ if TOLD.contains(&name.as_str()) => {}
                Value::Array(items) => items.iter().for_each(|item| self.line(label, &item_text(name, item))),
                value => self.line(label, &plain(value)),
            }
        }
    }

    fn dependency(&mut self, label: &str, other: &Dependency) {
        match &other.verdict {
            Some(verdict) => {
                let judged = judged(verdict, !other.doubts.is_empty());
                self.line(label, &format!("{}, generation {}: {judged}", other.name, verdict.generation));
                self.line("", &format!("revision {}; evidence {}", revision(verdict), evidence(verdict)));
            }
            None => self.line(label, &other.name),
        }
        for doubt in &other.doubts {
            self.line("  DOUBT", doubt);
        }
    }

    fn table(&mut self, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        let at = rows.iter().any(|row| row.at_revision.is_some());
        let mut lines = vec![
            ["CLUSTER", "AT REVISION", "STATUS", "STATE", "REASON", "DESIRED", "APPLIED", "HEALTHY", "SINCE"]
                .map(str::to_owned),
        ];
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let short = |words: &Option<String>| dash(words.as_deref().map(|it| Fingerprint::of(it).to_string()));
        lines.extend(rows.iter().map(|Row { row, at_revision }| {
            [
                row.cluster_name.clone(),
                at_revision.map_or("-", |at| at.name()).to_owned(),
                row.status.name().to_owned(),
                row.state.clone(),
                row.reason.clone(),
                short(&row.desired_revision),
                short(&row.applied_revision),
                short(&row.healthy_revision),
                dash(row.last_transition_time.as_ref().map(|Time(at)| at.to_string())),
            ]
        }));
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default())
            .collect();
        self.text.push('\n');
        for line in lines {
            let cells = line.iter().zip(&widths).enumerate().filter(|(column, _)| at || *column != 1);
            let text: Vec<String> = cells.map(|(_, (cell, width))| format!("{cell:width$}")).collect();
            let _ = writeln!(self.text, "{}", one_line(text.join("   ").trim_end()));
        }
    }
}

fn item_text(list: &str, item: &Value) -> String {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    match list {
        "waitingFor" => {
            let names: Vec<&str> =
                item["clusters"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let names = if names.is_empty() { String::new() } else { format!(" [{}]", names.join(", ")) };
            format!("{}: {}{names}", text("reason"), text("message"))
        }
        "problems" => {
            let since = item["since"].as_str().map(|since| format!(" since {since}")).unwrap_or_default();
            format!("{}: {} ({}){since}", text("clusterName"), text("state"), text("reason"))
        }
        "checks" => {
            let value = item["value"].as_str().map(|value| format!(" ({value})")).unwrap_or_default();
            let message = item["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{}: {}{value}{message}", text("name"), text("state"))
        }
        "revisions" => {
            format!("{}: applied in {}, healthy in {}", text("revision"), item["applied"], item["healthy"])
        }
        "history" => {
            let at = |word: &str, field: &str| match item[field].as_str() {
                Some(at) => format!(", {word} {at}"),
                None => String::new(),
            };
            let [started, applied, healthy] =
                [at("started", "startedAt"), at("applied", "appliedAt"), at("healthy", "healthyAt")];
            format!("{}{started}{applied}{healthy}", text("revision"))
        }
        "trace" => {
            let output = match (item["input"].as_str(), item["output"].as_str()) {
                (Some(input), Some(output)) if input != output => format!(", {input} became {output}"),
                _ => String::new(),
            };
            let healthy =
                item["healthyAt"].as_str().map(|at| format!(", healthy at {at}")).unwrap_or_default();
            let of = text("revision");
            format!(
                "{}: {}: {}{output}{healthy} (revision {of})",
                text("stage"),
                text("state"),
                text("message")
            )
        }
        _ => plain(item),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0.0, "0s")]
    #[case(-0.4, "0s")]
    #[case(59.4, "59s")]
    #[case(60.0, "1m")]
    #[case(200.0, "3m20s")]
    #[case(18_120.0, "5h2m")]
    #[case(273_600.0, "3d4h")]
    #[case(-90.0, "-1m30s")]
    fn spans(#[case] seconds: Seconds, #[case] expected: &str) {
        assert_eq!(span(seconds), expected);
    }
}

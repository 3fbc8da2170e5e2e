//! The account for people.

use std::fmt::{Display, Write as _};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;
use statusbridge_contract::Fingerprint;

use super::account::{Account, Claim, Dependency, Terms};
use super::rows::Row;
use crate::text::{one_line, span, table};

/// Width of the first column.
const LABEL: usize = 14;

/// The whole account.
pub(super) fn render(account: &Account) -> String {
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
        let Terms { require, total, healthy, needed, failed_or_unobserved, allowed, .. } = terms;
        let soak = around(" for ", terms.min_success_time.as_ref(), "");
        let counted = format!("{healthy} of {total} {require:?}{soak}, {needed} needed");
        let failed = format!("{failed_or_unobserved} failed or out of sight, {allowed} allowed");
        let Terms { observed, least_observed, excused, .. } = terms;
        let excused = if *excused > 0 { format!("; {excused} excused") } else { String::new() };
        let needed = around(", ", least_observed.as_ref(), " needed");
        let observed = format!("{observed} observed{needed}{excused}");
        page.line("Terms", &format!("{counted}; {failed}; {observed}"));
    }
    page.status(&account.status);
    for condition in &account.conditions {
        let Condition { type_, status, reason, last_transition_time: Time(since), .. } = condition;
        page.line("Condition", &format!("{type_}={status} {reason} since {since}"));
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
    page.text + &clusters(&account.clusters)
}

/// A text with what stands before and after it; nothing where there is none.
fn around(before: &str, text: Option<impl Display>, after: &str) -> String {
    text.map(|text| format!("{before}{text}{after}")).unwrap_or_default()
}

fn revision(verdict: &Claim) -> String {
    match (&verdict.revision, &verdict.fingerprint) {
        (Some(words), Some(fingerprint)) if words == fingerprint => words.clone(),
        (Some(words), Some(fingerprint)) => format!("{words} ({fingerprint})"),
        _ => "none is wanted: each cluster is held to its own".to_owned(),
    }
}

fn judged(verdict: &Claim, doubted: bool) -> String {
    let state = match (verdict.condition, verdict.holds) {
        ("Open", true) => "open",
        ("Open", false) => "closed",
        (_, true) => "Ready",
        (_, false) => "not Ready",
    };
    let doubted = if doubted && verdict.holds { ", NOT TO BE RELIED UPON" } else { "" };
    let since = around(" (since ", verdict.since.as_ref().map(|since| since.0), ")");
    format!("{state}{doubted}: {}: {}{since}", verdict.reason, verdict.message)
}

fn evidence(verdict: &Claim) -> String {
    let limit = around("; stale after ", verdict.stale_after_seconds.map(span), "");
    match verdict.evidence_age_seconds {
        Some(age) => format!("{} old{limit}", span(age)),
        None => format!("none that is fresh and verified{limit}"),
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
        const TOLD: [&str; 5] = ["observedGeneration", "asOf", "since", "revision", "fingerprint"];
        for (name, value) in status.as_object().into_iter().flatten() {
            let label = match name.as_str() {
                "waitingFor" => "Waits for",
                "clusters" => "Clusters",
                "startedAt" => "Started",
                "healthy" => "Counting",
                "openUntil" => "Open until",
                "approvedBy" => "Approved by",
                "lastHealthyRevision" => "Last healthy",
                "revisions" => "Revision at",
                "problems" => "Problem",
                "excused" => "Excused",
                "members" => "Members",
                "newcomers" => "Newcomers",
                "history" => "History",
                "trace" => "Stage",
                "checks" => "Checked",
                other => other,
            };
            match value {
                _ if TOLD.contains(&name.as_str()) => {}
                Value::Array(items) => items.iter().for_each(|item| self.line(label, &item_text(name, item))),
                value if name == "members" => self.line(label, &members(value)),
                value if name == "newcomers" => {
                    self.line(label, &format!("{}: {}", value["count"], plain(&value["clusters"])));
                }
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
}

/// Place of the excuse among the columns.
const EXCUSED: usize = 9;

fn clusters(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "CLUSTER",
        "AT REVISION",
        "STATUS",
        "STATE",
        "REASON",
        "DESIRED",
        "APPLIED",
        "HEALTHY",
        "SINCE",
        "EXCUSED",
        "REPORTED BY",
    ];
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let short = |words: &Option<String>| dash(words.as_deref().map(|it| Fingerprint::of(it).to_string()));
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|Row { row, at_revision }| {
        vec![
            row.cluster_name.clone(),
            dash(at_revision.map(|at| format!("{at:?}"))),
            row.status.name().to_owned(),
            row.state.clone(),
            row.reason.clone(),
            short(&row.desired_revision),
            short(&row.applied_revision),
            short(&row.healthy_revision),
            dash(row.last_transition_time.as_ref().map(|Time(at)| at.to_string())),
            dash(row.excused.clone()),
            dash(row.reported_by.clone()),
        ]
    }));
    if rows.iter().all(|it| it.row.reported_by.is_none()) {
        lines.iter_mut().for_each(|line| drop(line.pop()));
    }
    if rows.iter().all(|it| it.row.excused.is_none()) {
        lines.iter_mut().for_each(|line| drop(line.remove(EXCUSED)));
    }
    if rows.iter().all(|row| row.at_revision.is_none()) {
        lines.iter_mut().for_each(|line| drop(line.remove(1)));
    }
    format!("\n{}", table(&lines))
}

/// The clusters that a gate keeps to: how many, as the table has them.
fn members(value: &Value) -> String {
    let count = value["clusters"].as_array().map_or(0, Vec::len);
    format!("{count}{}", around(", frozen at ", value["since"].as_str(), ""))
}

fn item_text(list: &str, item: &Value) -> String {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    let given = |before: &str, field: &str, after: &str| around(before, item[field].as_str(), after);
    match list {
        "waitingFor" => {
            let names: Vec<&str> =
                item["clusters"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let names = around(" [", (!names.is_empty()).then(|| names.join(", ")), "]");
            format!("{}: {}{names}", text("reason"), text("message"))
        }
        "problems" => {
            let since = given(" since ", "since", "");
            let excused = given(", excused: ", "excused", "");
            format!("{}: {} ({}){since}{excused}", text("clusterName"), text("state"), text("reason"))
        }
        "excused" => {
            format!("{}: {}{}", text("clusterName"), text("reason"), given(" until ", "until", ""))
        }
        "checks" => {
            let (value, message) = (given(" (", "value", ")"), given(": ", "message", ""));
            format!("{}: {}{value}{message}", text("name"), text("state"))
        }
        "revisions" => {
            format!("{}: applied in {}, healthy in {}", text("revision"), item["applied"], item["healthy"])
        }
        "history" => {
            let started = given(", started ", "startedAt", "");
            let applied = given(", applied ", "appliedAt", "");
            let healthy = given(", healthy ", "healthyAt", "");
            format!("{}{started}{applied}{healthy}", text("revision"))
        }
        "trace" => {
            let output = match (item["input"].as_str(), item["output"].as_str()) {
                (Some(input), Some(output)) if input != output => format!(", {input} became {output}"),
                _ => String::new(),
            };
            let [stage, state, message, of] = ["stage", "state", "message", "revision"].map(text);
            let healthy = given(", healthy at ", "healthyAt", "");
            format!("{stage}: {state}: {message}{output}{healthy} (revision {of})")
        }
        _ => plain(item),
    }
}

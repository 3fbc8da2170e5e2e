//! The history for people.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::fold::{Outcome, Trigger};
use super::follow::Because;
use super::report::{Cluster, Gap, Moment, Operation, Report, Verified};
use crate::text::{one_line, span, table};

const HEAD: [&str; 8] =
    ["CLUSTER", "REVISION", "TRIGGER", "STARTED", "APPLIED", "HEALTHY", "DURATION", "OUTCOME"];

/// The whole history.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    let package = &report.package;
    let namespace = package.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
    // Writing to a string does not fail.
    let _ = writeln!(text, "Package   {} {namespace}{}", package.source, package.name);
    if let Some(fleet_package) = &report.fleet_package {
        let _ = writeln!(text, "Report    FleetPackage {fleet_package}");
    }
    let _ = writeln!(text, "Range     {} to {}", report.from, report.to);
    for note in &report.notes {
        let _ = writeln!(text, "NOTE      {}", one_line(note));
    }
    if report.clusters.is_empty() {
        return text + "no cluster has had the package in this time\n";
    }
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    for cluster in &report.clusters {
        lines.extend(rows(cluster));
    }
    text + "\n" + &table(&lines)
}

/// A cluster's rows; only the first one names it.
fn rows(cluster: &Cluster) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut gaps = cluster.unseen.iter().peekable();
    if cluster.left_out > 0 {
        remark(&mut rows, format!("{} more, which are older, are left out", cluster.left_out));
    }
    if let Some(until) = cluster.unknown_until {
        remark(&mut rows, format!("nothing was heard of the package before {until}"));
    }
    for operation in &cluster.operations {
        let end = operation.ended.or(operation.started).map(|moment| moment.at);
        rows.push(line(operation));
        while let Some(gap) = gaps.next_if(|gap| end.is_some_and(|end| gap.after <= end)) {
            remark(&mut rows, unseen(gap));
        }
    }
    for gap in gaps {
        remark(&mut rows, unseen(gap));
    }
    if cluster.operations.is_empty() {
        remark(&mut rows, quiet(cluster));
    }
    if let Some(gone) = cluster.gone {
        remark(&mut rows, format!("not there since {}", full(gone)));
    }
    if let Some(since) = cluster.unknown_since {
        remark(
            &mut rows,
            format!("nothing was heard of the package after {since}: how it is now is not known"),
        );
    }
    if cluster.unusable_scrapes > 0 {
        let were = if cluster.unusable_scrapes == 1 { "scrape was" } else { "scrapes were" };
        remark(&mut rows, format!("{} {were} not whole and not counted", cluster.unusable_scrapes));
    }
    if let Some(first) = rows.first_mut().and_then(|row| row.first_mut()) {
        let by = cluster.reported_by.iter().map(|speaker| format!(" (by {speaker})"));
        *first = [cluster.cluster_name.clone()].into_iter().chain(by).collect();
    }
    rows
}

/// A row whose text goes across all columns but the first.
fn remark(rows: &mut Vec<Vec<String>>, text: String) {
    rows.push(vec![String::new(), text]);
}

fn quiet(cluster: &Cluster) -> String {
    match (&cluster.now, cluster.last_seen_at) {
        (Some(now), _) => {
            let at = now.healthy_revision.as_deref().map(|it| format!(" at {it}")).unwrap_or_default();
            let since = now.since.map(|since| format!(" since {since}")).unwrap_or_default();
            let none = match (cluster.unknown_until, cluster.unknown_since) {
                (None, None) => "no operation in this time",
                _ => "no operation was seen",
            };
            format!("{}, {}{at}{since}: {none}", now.apply_state, now.health)
        }
        (None, Some(last)) => format!("last heard at {last}, without the package"),
        (None, None) => "nothing was heard of the package in this time".to_owned(),
    }
}

fn unseen(gap: &Gap) -> String {
    let between = format!("between {} and {}", gap.after, gap.before);
    match gap.because {
        Because::Moved => format!("it moved at least once {between}, or was not watched for a moment"),
        Because::Blind => format!("the exporter did not see its cluster {between}: it may have moved unseen"),
        Because::OtherProcess => format!("another exporter process {between}: it may have moved unseen"),
    }
}

fn line(operation: &Operation) -> Vec<String> {
    let trigger = match operation.trigger {
        Trigger::UnderWay => "under way".to_owned(),
        trigger => format!("{trigger:?}").to_lowercase(),
    };
    let dash = || "-".to_owned();
    let duration = operation.duration_seconds.map(|seconds| {
        let at_most = if operation.duration_at_most { "≤" } else { "" };
        format!("{at_most}{}", span(seconds as f64))
    });
    vec![
        String::new(),
        operation.fingerprint.clone().unwrap_or_else(dash),
        trigger,
        operation.started.map_or_else(|| "before".to_owned(), full),
        operation.applied.map_or_else(dash, |moment| brief(moment, operation.started)),
        operation.healthy.map_or_else(dash, |moment| brief(moment, operation.started)),
        duration.unwrap_or_else(dash),
        outcome(operation),
    ]
}

fn outcome(operation: &Operation) -> String {
    let mut text = format!("{:?}", operation.outcome);
    let reason = operation.reason.as_deref().unwrap_or("no reason given");
    match (operation.outcome, operation.failed) {
        (Outcome::Failed, _) => text += &format!(": {reason}"),
        (_, Some(_)) => text += &format!(", after it failed: {reason}"),
        _ => {}
    }
    match &operation.verified {
        Verified::Yes => {}
        Verified::No(why) => text += &format!(" (UNVERIFIED: {why})"),
        Verified::NotTried => text += " (not verified)",
    }
    text
}

/// Day and time. What only scrapes tell was no later.
fn full(moment: Moment) -> String {
    format!("{}{}", bound(moment), moment.at)
}

/// The time alone, where the day is that of the beginning.
fn brief(moment: Moment, started: Option<Moment>) -> String {
    let day = |at: Timestamp| at.strftime("%F").to_string();
    match started {
        Some(started) if day(started.at) == day(moment.at) => {
            format!("{}{}", bound(moment), moment.at.strftime("%TZ"))
        }
        _ => full(moment),
    }
}

fn bound(moment: Moment) -> &'static str {
    if moment.exact { "" } else { "≤" }
}

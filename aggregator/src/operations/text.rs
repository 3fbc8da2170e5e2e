//! The history for people.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::fold::{Outcome, Trigger};
use super::report::{Cluster, Gap, Moment, Operation, Report, Verified};

const HEAD: [&str; 8] =
    ["CLUSTER", "REVISION", "TRIGGER", "STARTED", "APPLIED", "HEALTHY", "DURATION", "OUTCOME"];
type Line = [String; HEAD.len()];

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
    let mut lines = vec![Row::Operation(HEAD.map(str::to_owned))];
    report.clusters.iter().for_each(|cluster| rows(cluster, &mut lines));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|row| match row {
            Row::Operation(line) => Some(line[column].chars().count()),
            Row::Remark(name, _) => (column == 0).then(|| name.chars().count()),
        });
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    text.push('\n');
    for row in &lines {
        let line = match row {
            Row::Operation(line) => {
                let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
                cells.collect::<Vec<_>>().join("   ")
            }
            Row::Remark(name, remark) => {
                let width = widths.first().copied().unwrap_or_default();
                format!("{name:width$}   {remark}")
            }
        };
        let _ = writeln!(text, "{}", one_line(line.trim_end()));
    }
    text
}

enum Row {
    Operation(Line),
    /// In the first column and in the others together.
    Remark(String, String),
}

/// A cluster's rows; only the first one names it.
fn rows(cluster: &Cluster, rows: &mut Vec<Row>) {
    let begin = rows.len();
    let mut gaps = cluster.unseen.iter().peekable();
    if cluster.left_out > 0 {
        remark(rows, format!("{} more, which are older, are left out", cluster.left_out));
    }
    if let Some(until) = cluster.unknown_until {
        remark(rows, format!("nothing was heard of the package before {until}"));
    }
    for operation in &cluster.operations {
        let end = operation.ended.or(operation.started).map(|moment| moment.at);
        rows.push(Row::Operation(line(operation)));
        while let Some(gap) = gaps.next_if(|gap| end.is_some_and(|end| gap.after <= end)) {
            remark(rows, unseen(gap));
        }
    }
    gaps.for_each(|gap| remark(rows, unseen(gap)));
    if cluster.operations.is_empty() {
        remark(rows, quiet(cluster));
    }
    if let Some(gone) = cluster.gone {
        remark(rows, format!("not there since {}", full(gone)));
    }
    if let Some(since) = cluster.unknown_since {
        remark(rows, format!("nothing was heard of the package after {since}: how it is now is not known"));
    }
    if cluster.unusable_scrapes > 0 {
        let count = cluster.unusable_scrapes;
        remark(
            rows,
            format!(
                "{count} {} not whole and not counted",
                plural(count as u64, "scrape was", "scrapes were")
            ),
        );
    }
    match rows.get_mut(begin) {
        Some(Row::Operation(line)) => line[0].clone_from(&cluster.cluster_name),
        Some(Row::Remark(name, _)) => name.clone_from(&cluster.cluster_name),
        None => {}
    }
}

fn remark(rows: &mut Vec<Row>, text: String) {
    rows.push(Row::Remark(String::new(), text));
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
    let count = gap.transitions;
    let transitions = plural(count, "transition", "transitions");
    let why = if gap.blind { "the exporter did not see its cluster" } else { "another exporter process" };
    match (count, gap.uncounted) {
        (_, false) => format!("{count} {transitions} {between} not seen"),
        (0, true) => format!("{why} {between}: what nobody counted may be missing"),
        (_, true) => format!("{why} {between}: {count} {transitions} or more not seen"),
    }
}

fn plural(count: u64, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

fn line(operation: &Operation) -> Line {
    let trigger = match operation.trigger {
        Trigger::UnderWay => "under way",
        Trigger::New => "new",
        Trigger::Revision => "revision",
        Trigger::Apply => "apply",
        Trigger::Health => "health",
        Trigger::Deletion => "deletion",
    };
    let dash = || "-".to_owned();
    let duration = operation.duration_seconds.map(|seconds| {
        let at_most = if operation.duration_at_most { "≤" } else { "" };
        format!("{at_most}{}", crate::explain::span(seconds as f64))
    });
    [
        String::new(),
        operation.fingerprint.clone().unwrap_or_else(dash),
        trigger.to_owned(),
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

/// Texts from elsewhere stay on their line and do nothing to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

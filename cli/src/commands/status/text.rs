//! The status for people: one line for each object, by the name that other commands take.

use std::fmt::Write as _;
use std::io;

use statusbridge_api::rollout_gate::Newcomers;
use statusbridge_core::reconcile::object::Kind;

use super::entry::{Entry, Totals};
use crate::text::{one_line, pad, paint, span, widths};
use crate::verdict::Verdict;

const HEAD: [&str; 10] = [
    "NAME",
    "STATE",
    "REVISION",
    "HEALTHY",
    "SOAKING",
    "FAILED",
    "UNOBSERVED",
    "EXCUSED",
    "EVIDENCE",
    "WAITING FOR",
];
/// Place of the state among the cells, from the name on.
const STATE: usize = 1;

/// The whole table, with what single objects say at length.
pub(super) fn all(entries: &[Entry], namespaces: bool, at_length: bool) -> String {
    table(entries, namespaces) + &if at_length { details(entries) } else { summary(entries) }
}

fn table(entries: &[Entry], namespaces: bool) -> String {
    if entries.is_empty() {
        return "there are no FleetPackages and no RolloutGates\n".to_owned();
    }
    let mut head = HEAD.map(str::to_owned).to_vec();
    if namespaces {
        head.insert(0, "NAMESPACE".to_owned());
    }
    let mut lines = vec![head.clone()];
    lines.extend(entries.iter().map(|entry| cells(entry, namespaces)));
    let widths = widths(&lines);
    let rows = entries.iter().map(|entry| row(entry, namespaces, &widths));
    pad(&head, &widths).join("   ").trim_end().to_owned() + "\n" + &rows.collect::<String>()
}

/// The line of an object.
fn row(entry: &Entry, namespaces: bool, widths: &[usize]) -> String {
    let place = STATE + usize::from(namespaces);
    let mut cells = pad(&cells(entry, namespaces), widths);
    if let Some(state) = cells.get_mut(place) {
        *state = paint(state, entry.verdict.colour(), &io::stdout());
    }
    cells.join("   ").trim_end().to_owned() + "\n"
}

/// As `wait` and `explain` take it.
fn name(kind: Kind, name: &str) -> String {
    let kind = if kind == Kind::FleetPackage { "package" } else { "gate" };
    format!("{kind}/{name}")
}

fn cells(entry: &Entry, namespaces: bool) -> Vec<String> {
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let reading = &entry.verdict.reading;
    let revision = reading.revision.as_ref().filter(|it| !it.is_empty()).and(reading.fingerprint.clone());
    let counts = entry.clusters();
    let count = |count: Option<u64>| dash(count.map(|count| count.to_string()));
    let soaking = counts.as_ref().filter(|_| entry.verdict.kind == Kind::RolloutGate).map(|it| it.soaking);
    let waits = if reading.is_open() { String::new() } else { reading.message.clone() };
    let mut cells = vec![
        name(entry.verdict.kind, &reading.name),
        entry.verdict.state().to_owned(),
        dash(revision),
        dash(reading.healthy.clone()),
        count(soaking),
        count(counts.as_ref().map(|it| it.failed)),
        count(counts.as_ref().map(|it| it.unobserved)),
        count(counts.as_ref().map(|it| it.excused)),
        dash(reading.age_seconds.map(span)),
        waits,
    ];
    if namespaces {
        cells.insert(0, reading.namespace.clone());
    }
    cells
}

/// What the objects come to.
fn summary(entries: &[Entry]) -> String {
    let Totals { packages, packages_ready, gates, gates_open, gates_stalled } = Totals::of(entries);
    if entries.is_empty() {
        return String::new();
    }
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let stalled = if gates_stalled > 0 { format!(", {gates_stalled} stalled") } else { String::new() };
    let packages = format!("{}, {packages_ready} Ready", many(packages, "package"));
    format!("\n{packages}; {}, {gates_open} open{stalled}\n", many(gates, "gate"))
}

/// All that keeps gates closed, the clusters that are excused or have joined later, and every cluster that a package names as a problem.
fn details(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let Verdict { kind, reading } = &entry.verdict;
        let of = name(*kind, &reading.name);
        // Writing to a string does not fail.
        for waiting in &reading.waiting_for {
            let line = format!("{of} waits for {}: {}", waiting.reason, waiting.message);
            let _ = writeln!(text, "{}", one_line(&line));
        }
        for it in &reading.excused {
            let until = it.until.as_ref().map(|until| format!(" until {}", until.0)).unwrap_or_default();
            let line = format!("{of} excuses {}{until}: {}", it.cluster_name, it.reason);
            let _ = writeln!(text, "{}", one_line(&line));
        }
        if let Some(Newcomers { count, clusters }) = &reading.newcomers {
            let line =
                format!("{of} leaves newcomers to the next revision, {count}: {}", clusters.join(", "));
            let _ = writeln!(text, "{}", one_line(&line));
        }
        for problem in &entry.problems {
            let since = problem.since.as_ref().map(|since| format!(" since {}", since.0)).unwrap_or_default();
            let excused = problem.excused.as_ref().map(|why| format!(", excused: {why}")).unwrap_or_default();
            let line = format!(
                "{of} {}: {} ({}){since}{excused}",
                problem.cluster_name, problem.state, problem.reason
            );
            let _ = writeln!(text, "{}", one_line(&line));
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

//! A package as `check` and `replay` print it.

use std::io;

use serde::Serialize;
use statusbridge_contract::{ApplyState, Fingerprint, Health};
use statusbridge_exporter::{
    rehearsal::{Package, PackageId},
    source::stands_for,
};

use crate::text::{Colour, pad, paint, widths};

/// What is shown of a package, and what its source says beside that.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PackageReport<'a> {
    /// What to call it in a table.
    #[serde(skip)]
    title: String,
    source: &'a str,
    /// Where it runs, if not in the exporter's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    namespace: Option<&'a str>,
    package: &'a str,
    /// What is shown; nothing when the package is gone.
    #[serde(flatten)]
    state: Option<StateReport<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StateReport<'a> {
    #[serde(serialize_with = "as_name")]
    apply_state: ApplyState,
    #[serde(serialize_with = "as_name")]
    health: Health,
    desired_revision: Option<RevisionReport<'a>>,
    attempted_revision: Option<&'a str>,
    applied_revision: Option<RevisionReport<'a>>,
    healthy_revision: Option<RevisionReport<'a>>,
    reason: Option<&'a str>,
    message: Option<&'a str>,
    worst_resource: Option<&'a str>,
    operation: Option<&'a str>,
    resources: Option<Counts>,
    /// The expression that failed.
    error: Option<String>,
    /// Which version of the package's object it is, counted from 1.
    version: usize,
}

/// A revision, as it is written and by the digits that the metrics have.
#[derive(Debug, Clone, Serialize)]
struct RevisionReport<'a> {
    /// Nothing when it is not known as it was written.
    revision: Option<&'a str>,
    fingerprint: String,
}

#[derive(Debug, Serialize)]
struct Counts {
    total: u64,
    current: u64,
    failed: u64,
}

fn as_name<T: ToString, S: serde::Serializer>(state: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&state.to_string())
}

impl<'a> PackageReport<'a> {
    pub(super) fn new(id: &'a PackageId, package: Option<&'a Package>) -> Self {
        let state = package.map(|Package { shown, detail, error, version, .. }| {
            let verdict = &shown.verdict;
            let text = |text: &'a Option<String>| text.as_deref();
            StateReport {
                apply_state: verdict.apply,
                health: verdict.health,
                desired_revision: RevisionReport::new(verdict.desired, text(&detail.desired_revision)),
                attempted_revision: text(&detail.attempted_revision),
                applied_revision: RevisionReport::new(verdict.applied, text(&detail.applied_revision)),
                healthy_revision: RevisionReport::new(verdict.healthy, text(&detail.applied_revision)),
                reason: verdict.reason.as_deref(),
                message: Some(detail.message.as_str()).filter(|message| !message.is_empty()),
                worst_resource: text(&detail.worst_resource),
                operation: text(&detail.operation),
                resources: verdict.resources.map(|it| Counts {
                    total: it.total,
                    current: it.current,
                    failed: it.failed,
                }),
                error: error.as_ref().map(ToString::to_string),
                version: *version,
            }
        });
        Self {
            title: id.to_string(),
            source: &id.source,
            cluster: id.cluster.as_deref(),
            namespace: id.namespace.as_deref(),
            package: &id.name,
            state,
        }
    }

    /// Which version of the package's object it is, as a cell.
    pub(super) fn version(&self) -> String {
        self.state.as_ref().map_or_else(|| NOTHING.to_owned(), |state| state.version.to_string())
    }

    /// The cells below [`HEAD`], `-` where there is nothing.
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.source.to_owned(), self.title.clone()];
        let nothing = || NOTHING.to_owned();
        let Some(state) = &self.state else {
            cells.push("Gone".to_owned());
            cells.resize_with(HEAD.len(), nothing);
            return cells;
        };
        let text = |text: Option<&str>| text.map_or_else(nothing, str::to_owned);
        let revision =
            |it: &Option<RevisionReport<'_>>| it.as_ref().map_or_else(nothing, RevisionReport::text);
        let digits = |it: &Option<RevisionReport<'_>>| it.as_ref().map(|it| it.fingerprint.clone());
        let applied = revision(&state.applied_revision);
        let desired = match revision(&state.desired_revision) {
            desired if desired == applied && desired != NOTHING => "the same".to_owned(),
            desired => desired,
        };
        let counts = state.resources.as_ref().map(|it| format!("{}/{}/{}", it.total, it.current, it.failed));
        cells.extend([
            state.apply_state.to_string(),
            state.health.to_string(),
            applied,
            desired,
            text(digits(&state.healthy_revision).as_deref()),
            text(counts.as_deref()),
            text(state.reason),
            text(state.worst_resource),
            // That a good package was applied is no news.
            text(state.message.filter(|_| state.reason.is_some())),
        ]);
        cells
    }
}

impl<'a> RevisionReport<'a> {
    fn new(fingerprint: Fingerprint, written: Option<&'a str>) -> Option<Self> {
        let written = written.filter(|written| stands_for(fingerprint, written));
        let known = Self { revision: written, fingerprint: fingerprint.to_string() };
        (!fingerprint.is_none()).then_some(known)
    }

    fn text(&self) -> String {
        match self.revision {
            Some(revision) if revision != self.fingerprint => format!("{revision} ({})", self.fingerprint),
            _ => self.fingerprint.clone(),
        }
    }
}

/// What stands in a cell that has nothing to say.
const NOTHING: &str = "-";

const HEAD: [&str; 11] = [
    "SOURCE",
    "PACKAGE",
    "APPLY",
    "HEALTH",
    "APPLIED",
    "DESIRED",
    "HEALTHY",
    "RESOURCES",
    "REASON",
    "WORST RESOURCE",
    "MESSAGE",
];

/// A table of packages, each behind other cells under their own heads. A column in which nothing stands is left out.
pub(super) fn table<'a>(
    head: &[&str],
    packages: impl IntoIterator<Item = (Vec<String>, &'a PackageReport<'a>)>,
) -> String {
    let heads: Vec<&str> = head.iter().chain(&HEAD).copied().collect();
    let rows: Vec<Vec<String>> =
        packages.into_iter().map(|(cells, package)| [cells, package.cells()].concat()).collect();
    let is_empty = |column: usize| rows.iter().all(|row| row.get(column).is_none_or(|cell| cell == NOTHING));
    let columns: Vec<usize> = (0..heads.len()).filter(|column| !is_empty(*column)).collect();
    let of =
        |row: &[String]| columns.iter().filter_map(|column| row.get(*column).cloned()).collect::<Vec<_>>();
    let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
    let lines: Vec<Vec<String>> = std::iter::once(&heads).chain(&rows).map(|row| of(row)).collect();
    let widths = widths(&lines);
    let line = |cells: &Vec<String>| {
        let cells: Vec<String> = pad(cells, &widths).iter().map(|cell| coloured(cell)).collect();
        cells.join("   ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// A cell, in a colour if it is a state.
fn coloured(cell: &str) -> String {
    let word = cell.trim_end();
    let colour = if ["Applied", "Current"].contains(&word) {
        Colour::Green
    } else if word == "Failed" {
        Colour::Red
    } else if word.parse::<ApplyState>().is_ok() || word.parse::<Health>().is_ok() {
        Colour::Yellow
    } else {
        return cell.to_owned();
    };
    paint(cell, colour, &io::stdout())
}

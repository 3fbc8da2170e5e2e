//! What happened, as plain data: what was true in the clusters, what went wrong when, what the gates said.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) type Seconds = f64;

/// Now.
pub(crate) fn now() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// What is true of the package in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Wanted, applied and healthy at this revision.
    Healthy(String),
    /// Wanted and applied at this revision, whose health checks failed.
    Failed(String),
    /// Nothing was ever applied.
    New,
}

/// A cluster's truth was changed: it became so at some time within the span.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) cluster: String,
    pub(crate) truth: Truth,
    /// When the first of its writes was sent.
    pub(crate) from: Seconds,
    /// When the last of them was acknowledged; infinite until then.
    pub(crate) until: Seconds,
}

/// Which of the guards of a gate something went wrong with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The hub's API server or etcd: nobody can write, nobody can read.
    Hub,
    /// The sweeper, or its connection to the hub.
    Sweeper,
    /// An aggregator, or its connection to the hub.
    Aggregator,
    /// All before that: clusters, exporters, metrics, and the connections between them.
    Data,
}

/// A fault, from when it began to be made until it had been undone.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) what: String,
    pub(crate) part: Part,
    /// Whether what is on the way may arrive late, and not only be lost.
    pub(crate) holds_back: bool,
    pub(crate) from: Seconds,
    pub(crate) until: Seconds,
}

impl Trouble {
    /// Whether what an aggregator writes may arrive late by it.
    pub(crate) const fn delays_writes(&self) -> bool {
        self.holds_back && matches!(self.part, Part::Aggregator | Part::Hub)
    }
}

/// Resource of gates.
pub(crate) const GATES: &str = "rolloutgates";
/// Resource of plans.
pub(crate) const ROLLOUTS: &str = "fleetrollouts";
/// Resource of what plans have admitted.
pub(crate) const SLICES: &str = "fleetrolloutslices";

/// A version of an object.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    /// Plural of its kind.
    pub(crate) resource: String,
    pub(crate) name: String,
    /// When it was stored.
    pub(crate) at: Seconds,
    /// The object; null from its deletion on.
    pub(crate) object: Arc<Value>,
}

impl Version {
    pub(crate) fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub(crate) fn generation(&self) -> Option<i64> {
        self.object["metadata"]["generation"].as_i64()
    }

    /// Clusters that may have a revision, and the wave by which: the rows of a slice.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let rows = self.object["clusters"].as_array().into_iter().flatten();
        rows.map(|row| {
            let [cluster, revision, wave] =
                ["clusterName", "revision", "wave"].map(|it| row[it].as_str().unwrap_or_default());
            (cluster, revision, wave)
        })
    }

    /// The revision that the gate or the plan asks for.
    pub(crate) fn revision(&self) -> &str {
        self.object["spec"]["revision"].as_str().unwrap_or_default()
    }

    /// Whether a condition is True for the generation that the gate has.
    pub(crate) fn holds(&self, kind: &str) -> bool {
        let status = &self.object["status"];
        let current = |value: &Value| value.as_i64().is_some() && value.as_i64() == self.generation();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        current(&status["observedGeneration"])
            && conditions
                .any(|c| c["type"] == kind && c["status"] == "True" && current(&c["observedGeneration"]))
    }

    /// Whether a guard that reads it now goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.holds("Open") || self.holds("Ready")
    }

    /// How old its evidence says that it is.
    pub(crate) fn as_of(&self) -> Option<Seconds> {
        let text = self.object["status"]["asOf"].as_str()?;
        Some(text.parse::<jiff::Timestamp>().ok()?.as_duration().as_secs_f64())
    }

    fn reason(&self) -> &str {
        let mut conditions = self.object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.find(|c| c["type"] == "Open").and_then(|c| c["reason"].as_str()).unwrap_or_default()
    }
}

/// All of it, each list in order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) moves: Vec<Move>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) versions: Vec<Version>,
    /// How late timers of this process were, and when: how busy the machine was.
    pub(crate) stalls: Vec<(Seconds, Seconds)>,
    /// Anything else.
    pub(crate) notes: Vec<(Seconds, String)>,
}

impl Timeline {
    /// The versions of every object of a resource, by its name.
    pub(crate) fn of(&self, resource: &str) -> BTreeMap<&str, Vec<&Version>> {
        let mut of: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
        for version in self.versions.iter().filter(|it| it.resource == resource) {
            of.entry(&version.name).or_default().push(version);
        }
        of
    }

    /// What happened from `from` on, a line each, in seconds after `zero`.
    pub(crate) fn tell(&self, zero: Seconds, from: Seconds) -> String {
        let mut lines: Vec<(Seconds, String)> = self.notes.clone();
        for Move { cluster, truth, from, until } in &self.moves {
            lines.push((*from, format!("truth    {cluster} becomes {truth:?}")));
            if until.is_finite() {
                lines.push((*until, format!("truth    {cluster} is {truth:?}")));
            }
        }
        for Trouble { what, from, until, .. } in &self.troubles {
            lines.push((*from, format!("fault    {what}")));
            if until.is_finite() {
                lines.push((*until, format!("fault    over: {what}")));
            }
        }
        for version in self.versions.iter().filter(|it| it.resource == SLICES) {
            let rows: Vec<_> = version.rows().collect();
            lines.push((version.at, format!("admitted {}: {rows:?}", version.name)));
        }
        for version in self.versions.iter().filter(|it| it.resource == GATES) {
            let word = if version.is_open() { "OPEN" } else { "closed" };
            let (generation, status) = (version.generation().unwrap_or_default(), &version.object["status"]);
            lines.push((
                version.at,
                format!(
                    "gate     {} {word} ({}) generation {generation} epoch {} revision {} healthy {} asOf {:+.1}",
                    version.name,
                    version.reason(),
                    status["epoch"],
                    version.revision(),
                    status["healthy"],
                    version.as_of().map_or(f64::NAN, |as_of| as_of - zero),
                ),
            ));
        }
        for (at, length) in &self.stalls {
            lines.push((*at, format!("stall    {length:.2} s")));
        }
        lines.retain(|(at, _)| *at >= from);
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        lines.iter().fold(String::new(), |mut text, (at, line)| {
            let _ = writeln!(text, "{:9.3}  {line}", at - zero);
            text
        })
    }
}

//! A history in words: what happened, what was true, what the gate said.

use std::fmt::Write as _;

use statusbridge_api::conditions::{OPEN, find};
use statusbridge_contract::Fingerprint;
use statusbridge_core::reconcile::object::GateObject;
use statusbridge_core::time::Seconds;

use super::START;
use super::backend::Part;
use super::cluster::Truth;
use super::story::{Dates, Event, Setup, revision};

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) text: String,
    now: Seconds,
    truths: Vec<Truth>,
    gate: String,
    leaders: Vec<bool>,
    clusters: usize,
}

impl Timeline {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut timeline = Self { now: START, clusters: setup.clusters.len(), ..Self::default() };
        for (n, (dates, ahead)) in setup.clusters.iter().enumerate() {
            let dates = match dates {
                Dates::Own => "its objects say since when",
                Dates::Seen => "its exporter says since when it saw it",
                Dates::Early => "its objects say that they have always been as they are",
            };
            timeline.line(&format!("c{n}"), &format!("{dates}; its clock is {ahead} s ahead"));
        }
        let Setup { replicas, interval, backend, min_healthy, max_failures, min_success, .. } = setup;
        let Setup { aggregators, spread, apart, speaks, stale_after, .. } = setup;
        timeline.line(
            "gate",
            &format!("asks for {min_healthy} healthy for {min_success} s, and at most {max_failures} failed or silent; staleAfter {stale_after}s"),
        );
        timeline.line(
            "setup",
            &format!(
                "{replicas} scrape each cluster every {interval} s into {backend:?}; aggregators' clocks ahead: \
                 {aggregators:?} s; spread {spread}; {} target for an impostor; exporters {}",
                if *apart { "another" } else { "the same" },
                if *speaks { "beside management clusters, c0 told of by m0" } else { "in the clusters" },
            ),
        );
        timeline
    }

    pub(super) fn now(&mut self, now: Seconds) {
        self.now = now;
    }

    pub(super) fn line(&mut self, who: &str, what: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:>5} s  {who:<10}  {what}", self.now - START);
    }

    pub(super) fn all_is_well(&mut self) {
        self.line("all", "every fault ends, every cluster is told to be healthy at the gate's revision");
    }

    pub(super) fn happens(&mut self, event: &Event) {
        let (who, what) = words(event, self.clusters);
        self.line(&who, &what);
    }

    /// Takes note of what has become of it within a second: of the clusters and the impostor after them, of the replicas,
    /// and of the gate.
    pub(super) fn watch(&mut self, truths: Vec<Truth>, leaders: Vec<bool>, gate: &GateObject, is_open: bool) {
        for (n, truth) in truths.iter().enumerate() {
            if self.truths.get(n) != Some(truth) && (n < self.clusters || !self.truths.is_empty()) {
                let name = if n < self.clusters { format!("c{n}") } else { "impostor".to_owned() };
                self.line(&name, &format!("is {}", state(*truth)));
            }
        }
        self.truths = truths;
        for (n, leads) in leaders.iter().enumerate() {
            if self.leaders.get(n).copied().unwrap_or_default() != *leads {
                self.line(&format!("aggregator {n}"), if *leads { "leads" } else { "leads no more" });
            }
        }
        self.leaders = leaders;
        let gate = verdict(gate, is_open);
        if gate != self.gate {
            self.line("gate", &gate);
            self.gate = gate;
        }
    }
}

fn name(of: Fingerprint) -> String {
    let known = (1..4).map(revision).find(|name| Fingerprint::of(name) == of);
    known.unwrap_or_else(|| "nothing".to_owned())
}

fn state(truth: Truth) -> String {
    let state = match (truth.failed, truth.well) {
        (true, _) => "failed",
        (false, true) => "healthy",
        (false, false) => "not healthy yet",
    };
    match truth.desired == truth.applied {
        true => format!("{state} at {}", name(truth.applied)),
        false => format!("{state} at {}, told to run {}", name(truth.applied), name(truth.desired)),
    }
}

/// What a reader of the gate is told.
fn verdict(gate: &GateObject, is_open: bool) -> String {
    let revision = gate.spec.as_deref().map(|spec| spec.revision.clone()).unwrap_or_default();
    let status = gate.status.as_ref();
    let answers = status.is_some_and(|status| status.observed_generation == Some(gate.generation));
    let open = status.and_then(|status| find(&status.conditions, OPEN));
    match open.filter(|_| answers) {
        Some(open) => {
            let word = if is_open { "OPEN" } else { "closed" };
            format!("{word} at {revision}: {} ({})", open.message, open.reason)
        }
        None => format!("not judged yet at {revision}"),
    }
}

fn scrapers(which: Option<u8>) -> String {
    which.map_or("all".to_owned(), |which| format!("replica {which}"))
}

fn words(event: &Event, clusters: usize) -> (String, String) {
    let cluster = |n: &u8| format!("c{}", usize::from(*n) % clusters.max(1));
    let (who, what) = match event {
        Event::Deliver { cluster: n, to, takes, good } => {
            let end = if *good { "healthy" } else { "failed" };
            (cluster(n), format!("is told to run r{to}: applied after {takes} s, {end} after as many more"))
        }
        Event::Break { cluster: n, recovers: Some(after) } => {
            (cluster(n), format!("breaks, and recovers after {after} s"))
        }
        Event::Break { cluster: n, recovers: None } => (cluster(n), "breaks".to_owned()),
        Event::Restart { cluster: n, away, moves } => {
            let moves = if *moves { ", elsewhere" } else { "" };
            (cluster(n), format!("its exporter restarts and is away for {away} s{moves}"))
        }
        Event::Unscraped { cluster: n, lasts } => (cluster(n), format!("scrapes fail for {lasts} s")),
        Event::Suspended { cluster: n, lasts } => {
            (cluster(n), format!("its exporter's machine is suspended for {lasts} s"))
        }
        Event::Upgraded { cluster: n, lasts } => (
            cluster(n),
            format!("its exporter is upgraded: for {lasts} s the old process and the new one answer in turn"),
        ),
        Event::Repeated { cluster: n, replica, alternates, lasts } => {
            let often = if *alternates { "every other time" } else { "always" };
            let whom = scrapers(*replica);
            (cluster(n), format!("a gateway repeats its exposition to {whom}, {often}, for {lasts} s"))
        }
        Event::ScraperKilled { cluster: n, replica, away } => (
            cluster(n),
            format!("of what scrapes it, {} is killed and away for {away} s", scrapers(*replica)),
        ),
        Event::HeldUp { cluster: n, replica, by, lasts } => (
            cluster(n),
            format!(
                "what {} scrapes is held up for {by} s, and stamped then, for {lasts} s",
                scrapers(*replica)
            ),
        ),
        Event::Cut { cluster: n, lasts } => {
            (cluster(n), format!("its exporter loses the API server for {lasts} s"))
        }
        Event::Clock { cluster: n, ahead } => {
            (cluster(n), format!("the clock of its exporter is set {ahead} s ahead"))
        }
        Event::Stamps { cluster: n, ahead } => {
            (cluster(n), format!("the clock by which its scrapes are stamped is set {ahead} s ahead"))
        }
        Event::Impostor { revision, lasts } => {
            ("impostor".to_owned(), format!("reports as c0 for {lasts} s, healthy at r{revision}"))
        }
        Event::Liar { cluster: n, revision, ahead, flips, lasts } => {
            let flips = if *flips { ", and in turn that it has failed" } else { "" };
            (
                cluster(n),
                format!("a pod says for {lasts} s, {ahead} s ahead, that r{revision} is healthy{flips}"),
            )
        }
        Event::Ungranted { cluster: n, revision, ahead, flips, lasts } => {
            let flips = if *flips { ", and in turn that it has failed" } else { "" };
            let of = cluster(n);
            (
                "rogue".to_owned(),
                format!("says for {lasts} s, {ahead} s ahead, that r{revision} is healthy in {of}{flips}"),
            )
        }
        Event::Withdrawn { cluster: n, lasts } => {
            (cluster(n), format!("the exporter that tells of it is not granted to for {lasts} s"))
        }
        Event::Lag { shard, delay, lasts } => {
            ("backend".to_owned(), format!("shard {shard} is {delay} s late for {lasts} s"))
        }
        Event::LoseMarkers { lasts } => {
            ("backend".to_owned(), format!("stale markers are lost for {lasts} s"))
        }
        Event::Torn { cluster: n, part, behind, lasts } => {
            let part = match part {
                Part::Third(which) => format!("every third series (from {which})"),
                Part::Body => "what digests attest".to_owned(),
                Part::Heads => "digests".to_owned(),
            };
            let n = cluster(n);
            let what = match behind {
                Some(behind) => format!("answers have {part} of {n} as of {behind} s ago, for {lasts} s"),
                None => format!("answers lack {part} of {n} for {lasts} s"),
            };
            ("backend".to_owned(), what)
        }
        Event::Forgotten { cluster: n, lasts } => {
            ("backend".to_owned(), format!("answers lack {} for {lasts} s", cluster(n)))
        }
        Event::Refused { lasts } => ("backend".to_owned(), format!("refuses queries for {lasts} s")),
        Event::Frozen { lasts } => ("leader".to_owned(), format!("stands still for {lasts} s")),
        Event::Stalled { lasts } => (
            "leader".to_owned(),
            format!("will stand still for {lasts} s before it sends what it decides next"),
        ),
        Event::Killed { away } => ("leader".to_owned(), format!("is killed, its pod is away for {away} s")),
        Event::OwnClock { ahead } => ("leader".to_owned(), format!("its clock is set {ahead} s ahead")),
        Event::Isolated { lasts } => ("leader".to_owned(), format!("does not reach the hub for {lasts} s")),
        Event::SlowWrites { seconds, lasts } => {
            ("hub".to_owned(), format!("writes take {seconds} s, for {lasts} s"))
        }
        Event::LostAnswers { lasts } => {
            ("hub".to_owned(), format!("answers to writes are lost for {lasts} s"))
        }
        Event::LateWrite { by } => ("hub".to_owned(), format!("the next write arrives {by} s late")),
        Event::LostWrite => ("hub".to_owned(), "the next write is lost".to_owned()),
        Event::LateNews { by, lasts } => {
            ("hub".to_owned(), format!("news of objects are {by} s old, for {lasts} s"))
        }
        Event::Regate { to } => ("gate".to_owned(), format!("is changed to r{to}")),
    };
    (who, format!("* {what}"))
}

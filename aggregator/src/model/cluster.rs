//! A workload cluster: what is true in it, what its exporter says, and how that is scraped.

use std::collections::BTreeSet;

use statusbridge_contract::{Fingerprint, Metric, reason};

use super::backend::{Backend, Series};
use super::{CLUSTER_LABEL, PACKAGE, SCRAPE_INTERVAL};
use crate::clock::Seconds;
use crate::testing::{Exposition, package};

/// What is true of the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) desired: Fingerprint,
    pub(super) applied: Fingerprint,
    pub(super) well: bool,
    pub(super) failed: bool,
}

impl Truth {
    /// The revision that is healthy: the old one stays so until the new one is applied.
    pub(super) fn healthy(self) -> Fingerprint {
        if self.well && !self.failed { self.applied } else { Fingerprint::NONE }
    }
}

/// An exposition and when it was rendered, by the cluster's clock.
#[derive(Debug, Clone)]
struct Rendered {
    exposition: Exposition,
    at: u64,
}

/// One cluster.
pub(super) struct Cluster {
    pub(super) name: String,
    uid: u64,
    /// What was true from when on, oldest first.
    pub(super) truth: Vec<(Seconds, Truth)>,
    /// Whether the object says since when it is as it is; else the exporter says when it saw it.
    dated: bool,
    /// The cluster's clock minus the backend's.
    pub(super) skew: Seconds,
    /// Restarts of the exporter.
    process: u32,
    /// The exporter's process is away until then.
    pub(super) away_until: Seconds,
    was_away: bool,
    transitions: u64,
    shown_since: u64,
    /// Its scrapes fail until then.
    pub(super) unscraped_until: Seconds,
    /// Some gateway repeats what it has until then.
    pub(super) repeated_until: Seconds,
    /// The exporter has lost its API server until then.
    pub(super) cut_until: Seconds,
    /// What scrapes found lately, with the time until which they found it.
    pub(super) silent: Vec<(Seconds, bool)>,
    last: Option<Rendered>,
    replicas: Vec<Replica>,
}

/// A Prometheus that scrapes the cluster.
struct Replica {
    name: String,
    phase: u64,
    before: BTreeSet<Series>,
}

impl Cluster {
    pub(super) fn new(number: usize, now: Seconds, dated: bool, replicas: usize) -> Self {
        let none = Fingerprint::NONE;
        let replicas = (0..replicas)
            .map(|n| Replica {
                name: format!("r{n}"),
                phase: (4 * number + 7 * n) as u64 % SCRAPE_INTERVAL,
                before: BTreeSet::new(),
            })
            .collect();
        Self {
            name: format!("c{number}"),
            uid: number as u64 + 1,
            truth: vec![(now, Truth { desired: none, applied: none, well: false, failed: false })],
            dated,
            skew: 0.0,
            process: 0,
            away_until: 0.0,
            was_away: false,
            transitions: 0,
            shown_since: now as u64,
            unscraped_until: 0.0,
            repeated_until: 0.0,
            cut_until: 0.0,
            silent: Vec::new(),
            last: None,
            replicas,
        }
    }

    /// Whether nothing was heard of it at some time after `since`.
    pub(super) fn silent_after(&self, since: Seconds) -> bool {
        let ends = self.silent.iter().skip(1).map(|(at, _)| *at).chain([Seconds::MAX]);
        self.silent.iter().zip(ends).any(|((_, silent), end)| *silent && end >= since)
    }

    pub(super) fn now_true(&self) -> Truth {
        self.truth.last().expect("never empty").1
    }

    /// Something becomes true; the exporter sees it unless it is away.
    pub(super) fn becomes(&mut self, now: Seconds, change: impl FnOnce(&mut Truth)) {
        let before = self.now_true();
        let mut after = before;
        change(&mut after);
        if after == before {
            return;
        }
        self.truth.push((now, after));
        let shown = |t: Truth| (t.well, t.failed, t.healthy(), t.desired == t.applied);
        if shown(before) != shown(after) {
            let seen = now >= self.away_until;
            self.transitions += u64::from(seen);
            if self.dated || seen {
                self.shown_since = self.clock(now);
            }
        }
    }

    pub(super) fn restart(&mut self, now: Seconds, away: Seconds, moves: bool) {
        self.away_until = now + away;
        self.process += u32::from(moves);
        self.was_away = true;
    }

    fn clock(&self, now: Seconds) -> u64 {
        (now + self.skew).max(0.0) as u64
    }

    fn render(&self, now: Seconds) -> Rendered {
        let t = self.now_true();
        let code = |is: bool, code: u64| if is { code } else { 0 };
        let settled = t.desired == t.applied;
        let apply = code(!settled, 1);
        let health = if t.failed { 5 } else { code(!t.well, 1) };
        let values = vec![
            apply,
            health,
            t.desired.value(),
            t.applied.value(),
            t.healthy().value(),
            self.shown_since,
            self.transitions,
            code(t.failed, reason::code("HealthCheckFailed")),
        ];
        let mut exposition = Exposition::new(self.uid).with(PACKAGE, values);
        if now < self.cut_until {
            exposition = exposition.down(&package(PACKAGE).source);
        }
        Rendered { exposition, at: self.clock(now) }
    }

    /// One second passes.
    pub(super) fn tick(&mut self, now: Seconds, backend: &Backend) {
        if self.was_away && now >= self.away_until {
            self.was_away = false;
            // A new process counts from zero, and knows since when only where the object says so.
            self.transitions = 0;
            if !self.dated {
                self.shown_since = self.clock(now);
            }
        }
        let reachable = now >= self.away_until && now >= self.unscraped_until;
        if now >= self.repeated_until {
            self.last = Some(self.render(now));
        }
        let heard = reachable && now >= self.repeated_until && now >= self.cut_until;
        if self.silent.last().is_none_or(|(_, silent)| *silent == heard) {
            self.silent.push((now, !heard));
        }
        let found = self.last.clone().filter(|_| reachable);
        let (name, instance) = (self.name.clone(), format!("exporter-{}", self.process));
        for replica in &mut self.replicas {
            if now as u64 % SCRAPE_INTERVAL != replica.phase {
                continue;
            }
            let target = [
                (CLUSTER_LABEL.to_owned(), name.clone()),
                ("instance".to_owned(), instance.clone()),
                ("replica".to_owned(), replica.name.clone()),
            ];
            let samples = found.as_ref().map(samples).unwrap_or_default();
            let mut seen = BTreeSet::new();
            for (mut series, value) in samples {
                series.extend(target.clone());
                backend.append(&series, now, Some(value));
                seen.insert(series);
            }
            for gone in replica.before.difference(&seen) {
                backend.append(gone, now, None);
            }
            replica.before = seen;
        }
    }
}

/// Every sample of an exposition, without the target's labels.
fn samples(rendered: &Rendered) -> Vec<(Series, f64)> {
    let named = |metric: Metric| ("__name__".to_owned(), metric.name().to_owned());
    let mut all: Vec<(Series, f64)> = rendered
        .exposition
        .lines()
        .into_iter()
        .map(|line| {
            let own = line.own.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            (own.chain([named(line.metric)]).collect(), line.value as f64)
        })
        .collect();
    let contract = ("contract".to_owned(), "1".to_owned());
    all.push(([named(Metric::Digest), contract].into(), rendered.exposition.digest() as f64));
    all.push(([named(Metric::RenderedTimestamp)].into(), rendered.at as f64));
    all
}

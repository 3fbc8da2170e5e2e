//! A workload cluster: what is true in it, what its exporter says, and how that is scraped.

use std::collections::HashMap;

use statusbridge_contract::{Fingerprint, Metric, reason};

use super::backend::{Backend, SeriesId};
use super::story::Dates;
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
    /// Nothing is known or applied.
    const NOTHING: Self =
        Self { desired: Fingerprint::NONE, applied: Fingerprint::NONE, well: false, failed: false };

    /// Applied in full and Current.
    pub(super) fn healthy_at(revision: Fingerprint) -> Self {
        Self { desired: revision, applied: revision, well: true, failed: false }
    }

    /// The revision that is healthy: the old one stays so until the new one is applied.
    pub(super) fn healthy(self) -> Fingerprint {
        if self.well && !self.failed { self.applied } else { Fingerprint::NONE }
    }
}

/// An exposition.
#[derive(Debug, Clone)]
struct Rendered {
    /// Its values, in the order of the series; digest and rendering time come last.
    values: Vec<u64>,
    /// When it was rendered, if it says of the package what is so then.
    tells_of: Option<Seconds>,
}

/// A Prometheus that scrapes the cluster.
struct Replica {
    name: String,
    phase: u64,
    /// What some gateway gives it instead of the exporter's word, and until when.
    repeated: Option<(Rendered, Seconds)>,
    /// Which process it scraped last.
    before: Option<u32>,
    /// Which run of the exporter it heard last, and when.
    heard: Option<(u32, Seconds)>,
    series: HashMap<u32, Vec<SeriesId>>,
}

/// One cluster.
pub(super) struct Cluster {
    pub(super) name: String,
    uid: u64,
    /// What was true from when on, oldest first.
    pub(super) truth: Vec<(Seconds, Truth)>,
    dates: Dates,
    /// The cluster's clock minus the backend's.
    pub(super) skew: Seconds,
    /// Restarts of the exporter somewhere else.
    process: u32,
    /// Restarts of any kind.
    run: u32,
    /// The exporter's process is away until then.
    away_until: Seconds,
    was_away: bool,
    transitions: u64,
    shown_since: u64,
    /// When that was dated, really.
    dated: Seconds,
    /// When what is shown changed last, by the cluster's clock.
    changed: u64,
    /// Its scrapes fail until then.
    pub(super) unscraped_until: Seconds,
    /// The exporter has lost its API server until then.
    pub(super) cut_until: Seconds,
    /// When the youngest exposition was rendered that was ever scraped and tells what is so.
    pub(super) told_of: Seconds,
    /// Whether nothing could be heard of it, from when on, oldest first.
    pub(super) silent: Vec<(Seconds, bool)>,
    replicas: Vec<Replica>,
}

impl Cluster {
    /// A cluster that is scraped from `phase` on, and each replica a while after the one before.
    pub(super) fn new(uid: u64, name: &str, now: Seconds, dates: Dates, replicas: usize, phase: u64) -> Self {
        let replica = |n: u64| Replica {
            name: format!("r{n}"),
            phase: (phase + 7 * n) % SCRAPE_INTERVAL,
            repeated: None,
            before: None,
            heard: None,
            series: HashMap::new(),
        };
        Self {
            name: name.to_owned(),
            uid,
            truth: vec![(now, Truth::NOTHING)],
            dates,
            skew: 0.0,
            process: 0,
            run: 0,
            away_until: 0.0,
            was_away: false,
            transitions: 0,
            shown_since: now as u64,
            dated: now,
            changed: now as u64,
            unscraped_until: 0.0,
            cut_until: 0.0,
            told_of: Seconds::NEG_INFINITY,
            silent: Vec::new(),
            replicas: (0..replicas as u64).map(replica).collect(),
        }
    }

    /// The same, whose exporter runs somewhere else.
    pub(super) fn elsewhere(mut self) -> Self {
        self.process = 1000;
        self
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
            self.changed = self.clock(now);
            let dated = match self.dates {
                Dates::Own => true,
                Dates::Seen => seen,
                // Counters tell of it, if this run of the exporter was heard right before.
                Dates::Still => !seen || !self.replicas.iter().all(|r| self.was_heard(r, now)),
            };
            if dated {
                (self.shown_since, self.dated) = (self.changed, now);
            }
        }
    }

    /// Sets the clock.
    pub(super) fn set_clock(&mut self, ahead: Seconds) {
        // By a date that was only scraped when the clock was right again nobody can tell that it was slow.
        let unheard = self.replicas.iter().all(|r| r.heard.is_none_or(|(_, at)| at < self.dated));
        if unheard && self.skew < 0.0 && ahead > self.skew {
            self.shown_since += (ahead.min(0.0) - self.skew) as u64;
        }
        self.skew = ahead;
    }

    /// The exporter goes, and comes back perhaps under another name.
    pub(super) fn restart(&mut self, now: Seconds, away: Seconds, moves: bool) {
        self.away_until = now + away;
        self.process += u32::from(moves);
        self.run += 1;
        self.was_away = true;
    }

    /// Whether a replica heard this run of the exporter a moment ago.
    fn was_heard(&self, replica: &Replica, now: Seconds) -> bool {
        let lately = |at: Seconds| now - at <= 2.0 * SCRAPE_INTERVAL as Seconds;
        replica.heard.is_some_and(|(run, at)| run == self.run && lately(at))
    }

    /// A gateway goes on giving what it has now, to one replica or to all.
    pub(super) fn repeat(&mut self, now: Seconds, replica: Option<usize>, until: Seconds) {
        if now < self.away_until {
            return;
        }
        let (exposition, count) = (self.render(now), self.replicas.len());
        for (n, it) in self.replicas.iter_mut().enumerate() {
            if replica.is_none_or(|which| which % count == n) {
                let old = it.repeated.take().filter(|(_, end)| now < *end);
                it.repeated = Some((old.map_or_else(|| exposition.clone(), |(old, _)| old), until));
            }
        }
    }

    /// All that is wrong with exporter and scrapes is over.
    pub(super) fn heal(&mut self, now: Seconds) {
        for until in [&mut self.away_until, &mut self.unscraped_until, &mut self.cut_until] {
            *until = until.min(now);
        }
        self.replicas.iter_mut().for_each(|replica| replica.repeated = None);
    }

    fn clock(&self, now: Seconds) -> u64 {
        (now + self.skew).max(0.0) as u64
    }

    fn exposition(&self, now: Seconds) -> Exposition {
        let t = self.now_true();
        let code = |is: bool, code: u64| if is { code } else { 0 };
        let values = vec![
            code(t.desired != t.applied, 1),
            if t.failed { 5 } else { code(!t.well, 1) },
            t.desired.value(),
            t.applied.value(),
            t.healthy().value(),
            self.shown_since,
            self.transitions,
            code(t.failed, failed()),
        ];
        let exposition = Exposition::new(self.uid).with(PACKAGE, values);
        if now < self.cut_until { exposition.down(&package(PACKAGE).source) } else { exposition }
    }

    fn render(&self, now: Seconds) -> Rendered {
        let lines = self.exposition(now).lines();
        let digest = crate::testing::digest(&lines);
        let values = lines.iter().map(|line| line.value).chain([digest, self.clock(now)]).collect();
        Rendered { values, tells_of: (now >= self.cut_until && now >= self.away_until).then_some(now) }
    }

    /// One second passes.
    pub(super) fn tick(&mut self, now: Seconds, backend: &Backend) {
        if self.was_away && now >= self.away_until {
            self.was_away = false;
            // A new process counts from zero, and knows since when only where the object says so.
            self.transitions = 0;
            self.shown_since = match self.dates {
                Dates::Own => self.shown_since,
                Dates::Seen => self.clock(now),
                Dates::Still => self.changed,
            };
        }
        let there = now >= self.away_until && now >= self.cut_until && now >= self.unscraped_until;
        let repeated = |r: &Replica| r.repeated.as_ref().is_some_and(|(_, end)| now < *end);
        let heard = there && self.replicas.iter().any(|r| r.heard.is_some() && !repeated(r));
        if self.silent.last().is_none_or(|(_, silent)| *silent == heard) {
            self.silent.push((now, !heard));
        }
        for n in 0..self.replicas.len() {
            if now as u64 % SCRAPE_INTERVAL == self.replicas[n].phase {
                self.scrape(n, now, backend);
            }
        }
    }

    fn scrape(&mut self, n: usize, now: Seconds, backend: &Backend) {
        let repeated = self.replicas[n].repeated.as_ref().filter(|(_, end)| now < *end);
        let is_new = repeated.is_none();
        let found = match repeated {
            _ if now < self.unscraped_until => None,
            Some((exposition, _)) => Some(exposition.clone()),
            None if now < self.away_until => None,
            None => Some(self.render(now)),
        };
        let process = self.process;
        if found.is_some() && !self.replicas[n].series.contains_key(&process) {
            let series = self.series(n, now, backend);
            self.replicas[n].series.insert(process, series);
        }
        let replica = &mut self.replicas[n];
        let before = replica.before.take().filter(|before| found.is_none() || *before != process);
        for gone in before.iter().filter_map(|before| replica.series.get(before)).flatten() {
            backend.append(*gone, now, None);
        }
        if let Some(Rendered { values, tells_of }) = found {
            self.told_of = self.told_of.max(tells_of.unwrap_or(self.told_of));
            replica.before = Some(process);
            replica.heard = if is_new { Some((self.run, now)) } else { replica.heard };
            for (series, value) in replica.series.get(&process).into_iter().flatten().zip(values) {
                backend.append(*series, now, Some(value as f64));
            }
        }
    }

    /// The series of one replica's scrapes, in the order of [`Self::render`].
    fn series(&self, n: usize, now: Seconds, backend: &Backend) -> Vec<SeriesId> {
        let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let target = [
            owned(CLUSTER_LABEL, &self.name),
            owned("instance", &format!("exporter-{}", self.process)),
            owned("replica", &self.replicas[n].name),
        ];
        let series = |metric, own: Vec<(String, String)>| {
            backend.series(metric, own.into_iter().chain(target.clone()).collect())
        };
        let lines = self.exposition(now).lines();
        let own = |own: Vec<(&str, &str)>| own.into_iter().map(|(name, value)| owned(name, value)).collect();
        let mut all: Vec<SeriesId> = lines.iter().map(|line| series(line.metric, own(line.own()))).collect();
        all.push(series(Metric::Digest, vec![owned("contract", "1")]));
        all.push(series(Metric::RenderedTimestamp, Vec::new()));
        all
    }
}

fn failed() -> u64 {
    static CODE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *CODE.get_or_init(|| reason::code("HealthCheckFailed"))
}

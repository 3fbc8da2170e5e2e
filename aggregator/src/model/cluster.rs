//! A workload cluster: what is true in it, what its exporter sees and says, and how that is scraped.

mod exporter;
mod liar;
mod truth;

use std::collections::{BTreeMap, HashMap};

use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::Speaker;
use statusbridge_core::glob::Glob;
use statusbridge_core::testing::package;
use statusbridge_core::time::Seconds;

use super::backend::{Backend, SeriesId};
use super::story::Dates;
use super::{CLUSTER_LABEL, JOB, MAX_SKEW, PACKAGE, POLL_INTERVAL, START};
use exporter::Exporter;
pub(super) use liar::Liar;
pub(super) use truth::Truth;
use truth::{Attested, Sample};

/// For how many scrape intervals expositions are remembered that were scraped before, and for how many seconds at
/// first.
const REMEMBERED: Seconds = 2.5;
const REMEMBERED_AT_FIRST: Seconds = 120.0;
/// Samples that are stamped so long before they come are found, at least.
const LOOKED_BACK: Seconds = 100.0;
/// After so many scrapes at most their usual distance is known anew.
const INTERVALS: Seconds = 16.0;
/// How long it takes to ask for everything once.
const FORESEEN: Seconds = 2.0 * POLL_INTERVAL;

/// An exposition.
#[derive(Debug, Clone)]
struct Rendered {
    /// Its samples; the digest comes last.
    samples: Vec<Sample>,
    /// When it was rendered, really, and by the cluster's clock.
    at: Seconds,
    clock: Seconds,
    /// The revision that it says is healthy; none when it says that its source is down.
    healthy: Option<Fingerprint>,
}

/// An old exposition that comes again.
#[derive(Debug)]
struct Repeat {
    rendered: Rendered,
    until: Seconds,
    /// Whether every other scrape brings a new one.
    alternates: bool,
    /// By target, as each is a stream of its own; with the last stamp, after which it is forgotten in time.
    first: BTreeMap<u32, (Date, Seconds)>,
}

/// What is known of when an exposition was first scraped.
#[derive(Debug, Clone, Copy)]
enum Date {
    /// It was stamped so.
    Known(Seconds),
    /// The same, for those who do not know yet how often is scraped.
    AtFirst(Seconds),
    /// It may have been repeated before.
    Unknown,
}

/// An exposition of which some scrape was stored.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// How young it seems: when it was first scraped by the stamp, or rendered by the cluster's clock.
    seems: Seconds,
    /// The same, where the first scrapes of it were hidden.
    at_most: Seconds,
    /// It seems so only to those who have not watched for long.
    is_at_first: bool,
    /// The scraper and the target, and the stamp of the scrape.
    stream: (usize, u32),
    stamp: Seconds,
    /// When it was rendered, and that scrape was stored, really.
    of: Seconds,
    stored: Seconds,
    healthy: Fingerprint,
}

/// What a scrape brought, or what became of it.
struct Scraped {
    samples: Vec<(SeriesId, Option<f64>)>,
    what: Option<Rendered>,
    target: u32,
    is_new: bool,
    /// What it is a repetition of was stamped so at first.
    first: Option<Date>,
}

/// Scrapes of one target: how many, the stamp of the last one, and how long after the one before it that was.
#[derive(Clone, Copy)]
struct Scrapes {
    count: u32,
    last: Seconds,
    gap: Seconds,
}

/// A Prometheus that scrapes the cluster.
struct Scraper {
    name: String,
    phase: u64,
    /// Scrapes are stamped so long after the second in which they happen.
    fraction: Seconds,
    /// What some gateway gives it instead of the exporter's word.
    repeated: Option<Repeat>,
    scrapes: u64,
    /// It is dead until then.
    dead_until: Seconds,
    /// The series of the scrape before.
    before: Vec<SeriesId>,
    /// What it stored, by target.
    stored: HashMap<u32, Scrapes>,
    /// By target and metric, and whether it is that of a part.
    series: HashMap<(u32, Metric, bool), SeriesId>,
    /// How long what it sends is held up, and until when.
    held_up: (Seconds, Seconds),
    /// What is held up, and until when: then it is stamped.
    held: Vec<(Seconds, Scraped)>,
}

/// One cluster.
pub(super) struct Cluster {
    pub(super) name: String,
    /// The other cluster whose exporter tells of it, if it has none of its own.
    speaker: Option<String>,
    /// When the configuration last had its exporter count.
    pub(super) granted: Seconds,
    /// The grant is taken away until then.
    pub(super) withdrawn_until: Seconds,
    uid: u64,
    /// What was true from when on, oldest first.
    pub(super) truth: Vec<(Seconds, Truth)>,
    dates: Dates,
    /// When what is shown changed last.
    changed: Seconds,
    /// The exporter's clock minus the true time.
    pub(super) skew: Seconds,
    /// The scrapers' clock minus the true time.
    pub(super) stamps_ahead: Seconds,
    /// Targets that were there before.
    target: u32,
    /// Seconds between scrapes.
    interval: u64,
    /// The old process, and in an upgrade the new one beside it.
    exporters: Vec<Exporter>,
    processes: u64,
    upgrade_until: Seconds,
    /// The exporter's process is away until then.
    away_until: Seconds,
    /// Its scrapes fail until then.
    pub(super) unscraped_until: Seconds,
    /// The exporter has lost its API server until then.
    pub(super) cut_until: Seconds,
    told: Vec<Told>,
    /// When the youngest exposition was rendered that was ever scraped and tells what is so.
    told_of: Seconds,
    /// The scrapes that brought something new: their stamps, and when a query can find them.
    heard: Vec<(Seconds, Seconds)>,
    /// When an exporter believed an object that claims too much, and since when that says it is as it is.
    believed: Vec<(Seconds, Seconds)>,
    pub(super) liar: Option<Liar>,
    scrapers: Vec<Scraper>,
}

impl Cluster {
    /// A cluster that is scraped from `phase` on, and by each scraper a while after the one before.
    pub(super) fn new(
        uid: u64,
        name: &str,
        dates: Dates,
        scrapers: usize,
        phase: u64,
        interval: u64,
    ) -> Self {
        let scraper = |n: u64| Scraper {
            name: format!("r{n}"),
            phase: (phase + 7 * n) % interval,
            fraction: (uid % 7 * 2 + n) as Seconds * 0.061,
            repeated: None,
            scrapes: 0,
            dead_until: 0.0,
            before: Vec::new(),
            stored: HashMap::new(),
            series: HashMap::new(),
            held_up: (0.0, 0.0),
            held: Vec::new(),
        };
        Self {
            name: name.to_owned(),
            speaker: None,
            granted: START,
            withdrawn_until: 0.0,
            uid,
            truth: vec![(START, Truth::NOTHING)],
            dates,
            changed: START,
            skew: 0.0,
            stamps_ahead: 0.0,
            target: 0,
            interval,
            exporters: vec![Exporter::new(1000 * uid)],
            processes: 1,
            upgrade_until: 0.0,
            away_until: 0.0,
            unscraped_until: 0.0,
            cut_until: 0.0,
            told: Vec::new(),
            told_of: Seconds::NEG_INFINITY,
            heard: Vec::new(),
            believed: Vec::new(),
            liar: None,
            scrapers: (0..scrapers as u64).map(scraper).collect(),
        }
    }

    /// The same, whose exporter runs somewhere else.
    pub(super) fn elsewhere(mut self) -> Self {
        self.target = 1000;
        self
    }

    /// The same, of which the exporter of another cluster tells.
    pub(super) fn told_by(mut self, speaker: &str) -> Self {
        self.speaker = Some(speaker.to_owned());
        self
    }

    /// The cluster of the exporter that tells of it.
    pub(super) fn exporters(&self) -> &str {
        self.speaker.as_ref().unwrap_or(&self.name)
    }

    /// What its exporter calls it, where that runs in another cluster.
    fn told_of(&self) -> Option<&str> {
        self.speaker.as_ref().map(|_| self.name.as_str())
    }

    /// Takes note of whether the configuration lets its exporter count now, and says so.
    pub(super) fn note_grant(&mut self, now: Seconds) -> bool {
        let is_granted = self.speaker.is_none() || now >= self.withdrawn_until;
        if is_granted {
            self.granted = now;
        }
        is_granted
    }

    /// What the operator writes into the configuration for that; nothing where the exporter runs in the cluster itself.
    pub(super) fn grant(&self) -> Option<Speaker> {
        let cluster = self.speaker.clone()?;
        let only = |name: &str| vec![Glob::from(name)];
        Some(Speaker { cluster, sources: only(&package(PACKAGE).source), clusters: only(&self.name) })
    }

    pub(super) fn now_true(&self) -> Truth {
        self.truth.last().expect("never empty").1
    }

    /// Something becomes true; an exporter in contact sees it.
    pub(super) fn becomes(&mut self, now: Seconds, change: impl FnOnce(&mut Truth)) {
        let before = self.now_true();
        let mut after = before;
        change(&mut after);
        if after == before {
            return;
        }
        self.truth.push((now, after));
        if before.shown() != after.shown() {
            self.changed = now;
        }
        self.watch(now);
    }

    /// Exporters in contact with their API server see what is so.
    fn watch(&mut self, now: Seconds) {
        if now < self.away_until || now < self.cut_until {
            self.exporters.iter_mut().for_each(|exporter| exporter.is_blind = true);
            return;
        }
        let own = match self.dates {
            Dates::Own => Some(self.changed),
            Dates::Seen => None,
            Dates::Early => Some(START),
        };
        let (truth, version) = (self.now_true(), self.truth.len());
        for exporter in &mut self.exporters {
            if exporter.see(now, truth, version, own) && self.dates == Dates::Early {
                self.believed.push((now, exporter.since));
            }
        }
    }

    fn new_process(&mut self) -> Exporter {
        self.processes += 1;
        Exporter::new(1000 * self.uid + self.processes)
    }

    /// The exporter goes, and comes back perhaps under another name.
    pub(super) fn restart(&mut self, now: Seconds, away: Seconds, moves: bool) {
        self.away_until = now + away;
        self.target += u32::from(moves);
        self.exporters = vec![self.new_process()];
    }

    /// The exporter's machine is suspended.
    pub(super) fn suspend(&mut self, until: Seconds) {
        self.away_until = self.away_until.max(until);
    }

    /// A new process comes beside the old one, which goes later; scrapes reach either.
    pub(super) fn upgrade(&mut self, until: Seconds) {
        self.exporters.truncate(1);
        let new = self.new_process();
        self.exporters.push(new);
        self.upgrade_until = until;
    }

    fn scrapers(&mut self, which: Option<usize>) -> impl Iterator<Item = &mut Scraper> {
        let count = self.scrapers.len();
        let is_it = move |n: usize| which.is_none_or(|which| which % count == n);
        self.scrapers.iter_mut().enumerate().filter(move |(n, _)| is_it(*n)).map(|(_, it)| it)
    }

    /// A gateway goes on giving what it has now, to one scraper or to all, always or every other time.
    pub(super) fn repeat(&mut self, now: Seconds, which: Option<usize>, until: Seconds, alternates: bool) {
        if now < self.away_until {
            return;
        }
        let new = self.render(now, 0);
        for scraper in self.scrapers(which) {
            let known = scraper.repeated.take().filter(|repeat| now < repeat.until);
            let repeat = known.unwrap_or_else(|| Repeat {
                rendered: new.clone(),
                until,
                alternates,
                first: BTreeMap::new(),
            });
            scraper.repeated = Some(Repeat { until, alternates, ..repeat });
        }
    }

    /// A scraper, or all of them, is killed.
    pub(super) fn kill_scraper(&mut self, which: Option<usize>, until: Seconds) {
        self.scrapers(which).for_each(|scraper| scraper.dead_until = until);
    }

    /// What a scraper sends is stamped only so much later, where it arrives.
    pub(super) fn hold_up(&mut self, which: Option<usize>, delay: Seconds, until: Seconds) {
        self.scrapers(which).for_each(|scraper| scraper.held_up = (delay, until));
    }

    /// All that is wrong with exporter and scrapes is over. `is_new` has it scraped as a target that was never there.
    pub(super) fn heal(&mut self, now: Seconds, is_new: bool) {
        for until in
            [&mut self.away_until, &mut self.unscraped_until, &mut self.cut_until, &mut self.upgrade_until]
        {
            *until = until.min(now);
        }
        self.withdrawn_until = self.withdrawn_until.min(now);
        self.stamps_ahead = 0.0;
        self.liar = None;
        self.target += u32::from(is_new);
        for scraper in &mut self.scrapers {
            scraper.repeated = None;
            scraper.dead_until = scraper.dead_until.min(now);
            scraper.held_up = (0.0, 0.0);
        }
    }

    fn clock(&self, at: Seconds) -> u64 {
        (at + self.skew).max(0.0) as u64
    }

    fn render(&self, now: Seconds, which: usize) -> Rendered {
        let exporter = &self.exporters[which % self.exporters.len()];
        let (since, is_up) = (self.clock(exporter.since), !exporter.is_blind);
        let by = Attested { process: exporter.process, since, is_up, clock: self.clock(now) };
        let samples = exporter.sees.samples(self.uid, self.told_of(), by);
        let healthy = is_up.then(|| exporter.sees.healthy());
        Rendered { samples, at: now, clock: self.clock(now) as Seconds, healthy }
    }

    /// The labels that a scraper gives to what it scrapes.
    fn target(&self, instance: &str, job: &str, scraper: usize) -> [(String, String); 4] {
        let replica = self.scrapers[scraper].name.as_str();
        let labels =
            [(CLUSTER_LABEL, self.exporters()), ("instance", instance), ("replica", replica), (JOB.0, job)];
        labels.map(|(name, value)| (name.to_owned(), value.to_owned()))
    }

    /// One second passes.
    pub(super) fn tick(&mut self, now: Seconds, backend: &Backend) {
        if self.exporters.len() > 1 && now >= self.upgrade_until {
            self.exporters.remove(0);
        }
        self.watch(now);
        for n in 0..self.scrapers.len() {
            let scraper = &mut self.scrapers[n];
            let due: Vec<_> = scraper.held.extract_if(.., |(at, _)| *at <= now).collect();
            for (_, scraped) in due {
                self.store(n, now, scraped, backend);
            }
            let scraper = &mut self.scrapers[n];
            if now as u64 % self.interval != scraper.phase {
                continue;
            }
            if now < scraper.dead_until {
                // Whoever starts anew does not know what was there before.
                scraper.before.clear();
                continue;
            }
            self.scrape_liar(n, now, backend);
            let scraped = self.scrape(n, now, backend);
            let scraper = &mut self.scrapers[n];
            let (delay, until) = scraper.held_up;
            if now < until {
                scraper.held.push((now + delay, scraped));
            } else {
                self.store(n, now, scraped, backend);
            }
        }
    }

    fn scrape(&mut self, n: usize, now: Seconds, backend: &Backend) -> Scraped {
        let scraper = &mut self.scrapers[n];
        scraper.scrapes += 1;
        let turn = scraper.scrapes;
        let repeated = scraper.repeated.as_ref().filter(|repeat| now < repeat.until);
        let repeated = repeated.filter(|repeat| !repeat.alternates || turn.is_multiple_of(2));
        let (is_new, first) =
            (repeated.is_none(), repeated.and_then(|repeat| Some(repeat.first.get(&self.target)?.0)));
        let what = match repeated {
            _ if now < self.unscraped_until => None,
            Some(repeat) => Some(repeat.rendered.clone()),
            None if now < self.away_until => None,
            None => Some(self.render(now, turn as usize)),
        };
        let mut samples = Vec::new();
        for (metric, own, value) in what.iter().flat_map(|it| &it.samples) {
            let id = self.series(n, *metric, own, backend);
            samples.push((id, Some(*value as f64)));
        }
        let scraper = &mut self.scrapers[n];
        let present: Vec<SeriesId> = samples.iter().map(|(id, _)| *id).collect();
        let gone = std::mem::replace(&mut scraper.before, present);
        let gone = gone.into_iter().filter(|id| !scraper.before.contains(id));
        samples.extend(gone.map(|id| (id, None)));
        Scraped { samples, what, target: self.target, is_new, first }
    }

    /// A scrape gets its stamp, and is sent.
    fn store(&mut self, n: usize, now: Seconds, scraped: Scraped, backend: &Backend) {
        let scraper = &mut self.scrapers[n];
        let at = now + scraper.fraction + self.stamps_ahead;
        let mut arrives = None;
        for (id, value) in scraped.samples {
            let stored = backend.append(id, now, at, value);
            // The digest is the last value.
            arrives = if value.is_some() { stored } else { arrives };
        }
        let (Some(rendered), Some(arrives)) = (scraped.what, arrives) else { return };
        let known = scraper.stored.entry(scraped.target).or_insert(Scrapes { count: 0, last: at, gap: 0.0 });
        let Scrapes { count, last, gap: before } = *known;
        // What is stamped before is no later scrape, and may be too old to be looked at.
        *known = Scrapes { count: count + 1, last: at.max(last), gap: at - last };
        // What was held up may be of one that is over.
        let repeated = scraper.repeated.as_mut().filter(|repeat| repeat.rendered.at == rendered.at);
        if scraped.is_new {
            self.heard.push((at, arrives));
        } else if let Some(repeat) = repeated {
            // Two gaps one after the other look like an interval.
            let gap = at - last;
            // Whoever has answered in turn with another has a longer interval, and keeps it for some scrapes.
            let in_turn = now < self.upgrade_until + INTERVALS * self.interval as Seconds;
            let interval = self.interval as Seconds * if in_turn { 2.0 } else { 1.0 };
            let usual = REMEMBERED * interval.max(gap.min(before));
            let date = match count {
                0 => Date::Unknown,
                1 if gap <= REMEMBERED_AT_FIRST => Date::Known(at),
                _ if gap <= usual && count > 1 => Date::Known(at),
                _ if gap <= REMEMBERED_AT_FIRST => Date::AtFirst(at),
                _ => Date::Unknown,
            };
            let (first, last) = repeat.first.entry(scraped.target).or_insert((date, at));
            if at - *last > usual {
                *first = date;
            }
            *last = at;
        }
        if let Some(healthy) = rendered.healthy {
            let repeated = scraper.repeated.as_ref().filter(|repeat| repeat.rendered.at == rendered.at);
            let first = repeated.and_then(|repeat| Some(repeat.first.get(&scraped.target)?.0));
            let first = first.filter(|_| !scraped.is_new);
            let (first, is_at_first) = match first.or(scraped.first).unwrap_or(Date::Known(at)) {
                Date::Known(first) => (first, false),
                Date::AtFirst(first) => (first, true),
                Date::Unknown => (Seconds::NEG_INFINITY, false),
            };
            let usual = REMEMBERED * self.interval as Seconds;
            self.told.push(Told {
                seems: first.min(rendered.clock),
                at_most: (first + usual).min(rendered.clock),
                is_at_first,
                stream: (n, scraped.target),
                stamp: at,
                of: rendered.at,
                stored: now,
                healthy,
            });
            self.told_of = self.told_of.max(rendered.at);
        }
    }

    fn series(
        &mut self,
        n: usize,
        metric: Metric,
        own: &[(&'static str, String)],
        backend: &Backend,
    ) -> SeriesId {
        let is_part = metric == Metric::Digest && own.iter().any(|(name, _)| *name == label::PACKAGE_CLUSTER);
        let key = (self.target, metric, is_part);
        if let Some(id) = self.scrapers[n].series.get(&key) {
            return *id;
        }
        let target = self.target(&format!("exporter-{}", self.target), JOB.1, n);
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let id = backend.series(metric, own.chain(target).collect());
        self.scrapers[n].series.insert(key, id);
        id
    }

    /// When the oldest of the expositions was rendered that may seem to be no older than `since`. Where both clocks
    /// that date them are ahead they seem younger than they are: by no more than is believed, unless nobody had asked
    /// for them long before their time, and none was to come any more that showed it; `watched` is since when somebody has for so long that
    /// nothing is first.
    pub(super) fn told_since(&self, since: Seconds, watched: Seconds) -> Seconds {
        let began = watched - REMEMBERED_AT_FIRST;
        let seems = |told: &Told| if told.seems < watched { told.at_most } else { told.seems };
        let seems_so = |told: &&Told| !told.is_at_first || told.seems - REMEMBERED_AT_FIRST < watched;
        let young = self.told.iter().filter(|told| seems(told) >= since).filter(seems_so);
        let believed = young.filter(|told| {
            told.seems - told.stored <= MAX_SKEW + FORESEEN
                || (told.seems - MAX_SKEW - FORESEEN < began && !self.was_ahead(told.stream, began))
        });
        believed.map(|told| told.of).fold(since, Seconds::min)
    }

    /// Whether something of a stream was too far to come then.
    fn was_ahead(&self, stream: (usize, u32), at: Seconds) -> bool {
        let mut of_stream = self.told.iter().filter(|told| told.stream == stream && told.stored <= at);
        of_stream.any(|told| told.stamp > at + MAX_SKEW + FORESEEN)
    }

    /// Whether nothing was told of it after this.
    pub(super) fn is_untold(&self, since: Seconds) -> bool {
        self.told_of < since
    }

    /// Whether nothing came of it for two intervals at some time after `since`, but for what polls do not look back for.
    pub(super) fn was_silent(&self, since: Seconds, now: Seconds) -> bool {
        let is_found = |(at, came): &&(Seconds, Seconds)| came - at <= LOOKED_BACK && *came <= now;
        let mut came: Vec<Seconds> = self.heard.iter().filter(is_found).map(|(_, came)| *came).collect();
        came.sort_by(f64::total_cmp);
        let begins = [Seconds::NEG_INFINITY].into_iter().chain(came.iter().copied());
        let patience = 2.0 * self.interval as Seconds;
        begins.zip(came.iter().copied().chain([now])).any(|(from, to)| to >= since && to - from > patience)
    }

    /// Since when what an exporter believed at `sight` may be taken to be so: an aggregator that has watched from
    /// `watched` on knows what it was told of another revision's health.
    pub(super) fn believed(
        &self,
        healthy: Fingerprint,
        watched: Seconds,
    ) -> impl Iterator<Item = (Seconds, Seconds)> {
        let otherwise = move |sight: Seconds| {
            let told = self.told.iter().filter(move |told| told.of >= watched && told.of <= sight);
            // By clocks that may have been set since.
            let told = told.filter(move |told| told.healthy != healthy);
            told.map(|told| told.of.min(told.seems)).fold(START, Seconds::max)
        };
        self.believed.iter().map(move |(sight, claimed)| (*sight, claimed.max(otherwise(*sight))))
    }
}

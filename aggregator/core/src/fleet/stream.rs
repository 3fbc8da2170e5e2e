//! One stream: one process of an exporter as one backend replica saw it.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use statusbridge_contract::{Metric, Version};

use super::FleetSettings;
use super::digest_sample::{DigestSample, Digests, Exposition, Heard, Signs};
use super::history::History;
use super::names::Names;
use super::rendering::Renderings;
use crate::time::Seconds;
use crate::verify::package::parts;
use crate::verify::{Content, MOST_SOURCES, Package};

/// Distances between digest samples that are remembered.
const INTERVALS: usize = 16;
/// Streams are taken to be scraped this often as long as that is not known.
const UNKNOWN_INTERVAL: Seconds = 60.0;
/// The first distance between digest samples may be a gap: it is not taken for a longer interval than this.
const LONGEST_AT_FIRST: Seconds = 120.0;
/// A stream is silent when nothing new came of it for so many of its intervals, while another one went on.
const SILENT_INTERVALS: Seconds = 2.0;
/// Stamps of samples that were found are remembered for so long: polls look back by less for whom they miss.
const STAMPS_KEPT: Seconds = 150.0;
/// The same by their number.
const MOST_STAMPS: usize = 64;
/// A part of an exposition may be late by so much: polls look back for it as far at least.
pub const MOST_LATE: Seconds = 30.0;
/// What an exporter claims may be so much earlier than what was seen before it is worth a report: times are whole
/// seconds.
const CLAIM_SLACK: Seconds = 2.0;
/// By how much what is measured of a cluster's clock may exceed what is kept before that is given up: times are whole
/// seconds, and scrapes take a while.
const CLOCK_SLACK: Seconds = 2.0;

/// What was verified last, and the memory that goes with it.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) content: Content,
    /// One per package of `content`, in the same order.
    pub(super) histories: Vec<History>,
    /// The last digest sample that attests the content.
    sample: DigestSample,
    /// Time of the evidence. None as long as nothing tells how old the exposition is.
    pub(super) evidence: Option<Seconds>,
    /// When each source was last seen up; of those of before only some.
    last_up: Vec<(Arc<str>, Seconds)>,
    /// What content and histories take, in bytes.
    pub(super) bytes: usize,
}

/// A clock or timestamps that are too far off to say how old the evidence is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Skew {
    /// Expositions were rendered so many seconds after they were scraped, by the cluster's clock; before, if negative.
    Rendered(Seconds),
    /// Samples are stamped so many seconds ahead of the present.
    Stamped(Seconds),
}

/// State of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Timestamp of the newest digest sample.
    pub(super) newest: Option<Seconds>,
    /// When the newest exposition first came, by the scraper's clock: one that is repeated is no news.
    heard: Seconds,
    /// Stamps of samples that were found lately, in order.
    stamps: VecDeque<Seconds>,
    /// The poll that last brought something new of it, and the last one that could have.
    arrived: Seconds,
    looked: Seconds,
    /// Whether its feed did not answer the last poll.
    is_cut_off: bool,
    renderings: Renderings,
    /// The last measurement of the cluster's clock: when an exposition was rendered minus when it was scraped.
    pub(super) clock: Option<Seconds>,
    /// By how much a clock may be ahead of timestamps to be believed.
    max_ahead: Seconds,
    /// How far off the cluster's clock is, where that is too much.
    rendered_skew: Option<Seconds>,
    /// By how much samples were stamped ahead that are not believed, and at which poll the last of them was found.
    stamped_ahead: Option<(Seconds, Seconds)>,
    /// Samples that are stamped until then may be as old as those.
    doubted: Seconds,
    /// By how much times of the cluster's clock are ahead of the evidence, never too much.
    ahead: Seconds,
    /// Why what the newest digest attests is not verified.
    pub(super) fault: Option<String>,
    pub(super) verified: Option<Verified>,
    intervals: VecDeque<Seconds>,
    /// The usual one of them.
    interval: Option<Seconds>,
}

/// What came of taking in verified content.
#[derive(Debug, Default, PartialEq)]
pub struct Accepted {
    /// Exporters that claim more than was seen, for a log.
    pub claims: Vec<String>,
    /// Why it was not taken in, if it was not: the stream's fault now.
    pub refused: Option<String>,
}

impl Stream {
    /// Takes note of digest samples; `t` is the time that the poll asks about.
    pub(super) fn hear(&mut self, digests: &Digests, t: Seconds, settings: &FleetSettings) -> Heard {
        if digests.samples.is_empty() && digests.lack.is_none() {
            self.look_ahead(&digests.signs, t);
            return Heard::Unusable;
        }
        self.max_ahead = settings.max_clock_skew;
        self.doubted = digests.signs.doubted.map_or(self.doubted, |until| until.max(self.doubted));
        let known = self.newest.unwrap_or(Seconds::NEG_INFINITY);
        let heard = self.heard;
        let mut is_alive = false;
        for sample in &digests.samples {
            let is_new = self.note_stamp(sample.at, t);
            // A gap is held against what was usual before it.
            let usual = self.interval.into_iter().chain(self.lately()).reduce(Seconds::max);
            let rendered = sample.exposition.rendered;
            if sample.at <= known {
                // It may have come late, or been stamped by a clock that was set back.
                is_alive |= is_new;
                self.renderings.note(rendered, sample.at, usual);
                continue;
            }
            if let Some(newest) = self.newest.replace(sample.at) {
                if self.intervals.len() == INTERVALS {
                    self.intervals.pop_front();
                }
                self.intervals.push_back(sample.at - newest);
                self.interval = median(&self.intervals);
            }
            let usual = usual.into_iter().chain(self.lately()).reduce(Seconds::max);
            self.renderings.note(rendered, sample.at, usual);
            self.heard = self.heard.max(self.renderings.first_of(rendered).unwrap_or(sample.at));
        }
        let newest = digests.samples.last();
        if let Some(sample) = newest.filter(|sample| sample.at > known) {
            let rendered = sample.exposition.rendered;
            self.measure(sample.exposition, self.renderings.first(rendered), settings);
        }
        if let Some(seen) = digests.seen {
            is_alive |= self.note_stamp(seen, t);
            if digests.lack.is_some() && seen > known {
                self.newest = Some(seen);
                self.heard = self.heard.max(seen);
            }
        }
        if is_alive || self.heard > heard {
            self.arrived = t;
        }
        self.look_ahead(&digests.signs, t);
        if let Some(lack) = unreadable(&digests.contract).or_else(|| digests.lack.clone()) {
            self.fault = Some(lack);
            return Heard::Unusable;
        }
        let mut news: Vec<DigestSample> =
            digests.samples.iter().filter(|sample| self.is_news(sample)).copied().collect();
        let order = |sample: &DigestSample| (self.is_dated(sample), order(sample));
        news.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
        let verified = self.verified.as_ref().filter(|_| !digests.is_torn);
        let state = verified.map(|verified| verified.content.state);
        let same = news.iter().position(|sample| Some(sample.exposition.state()) == state);
        if let Some(sample) = same.and_then(|place| news.split_off(place).into_iter().next()) {
            self.confirm(sample, t);
        }
        match (&self.verified, newest) {
            _ if !news.is_empty() => Heard::Unread(news),
            (Some(verified), Some(newest))
                if newest.at >= known
                    && (self.is_dated(newest) || newest.exposition.state() == verified.content.state) =>
            {
                // The same sample may be dated now, by one that came before it.
                self.confirm(verified.sample, t);
                self.fault = None;
                Heard::Confirmed
            }
            _ => Heard::Old,
        }
    }

    /// Takes note of the stamp of a sample that the poll at `t` found. Whether none found it before; nobody knows of those that
    /// are too old, or too many, to be remembered.
    fn note_stamp(&mut self, at: Seconds, t: Seconds) -> bool {
        let place = self.stamps.partition_point(|known| *known < at);
        let is_kept = t - at <= STAMPS_KEPT && (place > 0 || self.stamps.len() < MOST_STAMPS);
        if self.stamps.get(place) == Some(&at) || !is_kept {
            return false;
        }
        self.stamps.insert(place, at);
        while self.stamps.len() > MOST_STAMPS || self.stamps.front().is_some_and(|at| t - at > STAMPS_KEPT) {
            self.stamps.pop_front();
        }
        true
    }

    /// Whether what the poll at `t` finds of it shows that it goes on: something new, or what may be the last for a while yet.
    pub(super) fn goes_on(&self, found: &Digests, t: Seconds) -> bool {
        let is_new = |at: Seconds| self.stamps.binary_search_by(|known| known.total_cmp(&at)).is_err();
        t - self.arrived <= self.patience()
            || found.samples.iter().map(|it| it.at).chain(found.seen).any(is_new)
    }

    /// Whether a digest sample attests something later than what was verified. An exposition that was rendered before
    /// that comes from some cache, unless the clock was set back.
    fn is_news(&self, sample: &DigestSample) -> bool {
        let Some(verified) = &self.verified else { return true };
        let (is_dated, was_dated) = (self.is_dated(sample), self.is_dated(&verified.sample));
        match self.renderings.first_known(verified.sample.exposition.rendered) {
            _ if is_dated != was_dated => is_dated,
            Some(_) => order(sample) > order(&verified.sample),
            None => sample.at > verified.sample.at,
        }
    }

    /// Whether an exposition was rendered, and is stamped, at times that can be believed. One that was not would stand, once the clock is
    /// right, for later than all that comes after: it is no evidence, and gives way to any other.
    fn is_dated(&self, sample: &DigestSample) -> bool {
        sample.at > self.doubted && sample.exposition.rendered as Seconds - sample.at <= self.max_ahead
    }

    /// A digest sample attests what was verified.
    fn confirm(&mut self, sample: DigestSample, t: Seconds) {
        let evidence = self.evidence(&sample, t);
        self.date(&sample, evidence);
        if let Some(verified) = &mut self.verified {
            verified.confirm(sample, evidence);
        }
    }

    /// Measures how far the cluster's clock is from the scraper's. One that is repeated tells nothing.
    fn measure(&mut self, exposition: Exposition, first: Option<Seconds>, settings: &FleetSettings) {
        let stamped = first.or(self.newest).unwrap_or_default();
        let measured = exposition.rendered as Seconds - stamped;
        let is_known = first.is_some() || measured > 0.0;
        self.clock = is_known.then_some(measured).or(self.clock);
        let beyond = is_known && measured.abs() > settings.max_clock_skew;
        self.rendered_skew = beyond.then_some(measured);
    }

    /// A stamp that is to come, and was not found before, is a sign of life. A stream is of no use while such samples keep
    /// coming that are stamped too far ahead: those of the present were scraped before.
    fn look_ahead(&mut self, signs: &Signs, t: Seconds) {
        let mut is_alive = false;
        for at in &signs.soon {
            is_alive |= self.note_stamp(*at, t);
        }
        if let Some(ahead) = signs.ahead {
            (self.stamped_ahead, is_alive) = (Some((ahead, t)), true);
        }
        if is_alive {
            self.arrived = t;
        }
    }

    /// Time of the evidence: when an exposition was rendered, or first scraped if that was before, and never after the
    /// poll. None when it may have been repeated since nobody knows when.
    fn evidence(&self, sample: &DigestSample, t: Seconds) -> Option<Seconds> {
        let first = self.renderings.first(sample.exposition.rendered).filter(|_| self.is_dated(sample))?;
        Some(first.min(sample.at).min(sample.exposition.rendered as Seconds).min(t))
    }

    /// Takes the measure of times that the exposition gives.
    fn date(&mut self, sample: &DigestSample, evidence: Option<Seconds>) {
        let Some(evidence) = evidence else { return };
        let measured = sample.exposition.rendered as Seconds - evidence;
        // What was verified stands as of an earlier measure where the scraper's clock was set back since.
        let is_latest = self.evidence_so_far().is_none_or(|known| evidence >= known);
        // It moves only when it must, so that times stand still, and errs towards later ones.
        if measured < self.ahead || (is_latest && measured >= self.ahead + CLOCK_SLACK) {
            self.ahead = measured.floor().max(0.0);
        }
    }

    /// What was attested did not verify.
    pub(super) fn reject(&mut self, fault: String) {
        self.fault = Some(fault);
    }

    /// Replaces what was verified. `news` is told the packages of which something else is to be said now; `sibling` is
    /// asked about packages of a source that this stream did not read, and says when it last spoke.
    pub(super) fn accept(
        &mut self,
        sample: &DigestSample,
        mut content: Content,
        t: Seconds,
        names: &mut Names,
        mut news: impl FnMut(&Arc<str>),
        sibling: impl Fn(&str) -> Option<(Option<(Package, History)>, Seconds)>,
    ) -> Accepted {
        if !self.is_news(sample) {
            return Accepted::default();
        }
        let evidence = self.evidence(sample, t);
        let old = self.verified.take();
        self.date(sample, evidence);
        self.fault = None;
        let mut accepted = Accepted::default();
        names.share(&mut content, old.as_ref().map(|old| &old.content));
        let same_words = old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.content.reasons, &content.reasons));
        let mut histories = Vec::with_capacity(content.packages.len());
        for package in content.packages.iter() {
            let own = old.as_ref().and_then(|old| Some((old, old.find(&package.key)?)));
            let (history, same) = match own {
                Some((old, (before, was))) => {
                    let history = was.next(&before, old.last_word(), &package);
                    let word = |content: &Content| content.reason(parts(&package.key).0, package.reason());
                    let same_word = || same_words || word(&old.content) == word(&content);
                    (history, before.same_row(&package) && history == was && same_word())
                }
                None => {
                    let read = |old: &&Verified| old.content.is_up(parts(&package.key).0);
                    let told = match old.as_ref().filter(read) {
                        Some(old) => Some((None, old.last_word())),
                        None => sibling(&package.key),
                    };
                    let history = told.map(|(told, then)| match told {
                        Some((before, was)) => was.next(&before, then, &package),
                        None => History { otherwise_at: then, ..History::default() },
                    });
                    (history.unwrap_or_default(), false)
                }
            };
            if !same {
                news(&package.key);
            }
            let claims = package.since() as Seconds - self.ahead;
            if !same && claims + CLAIM_SLACK < history.otherwise_at && accepted.claims.is_empty() {
                accepted.claims.push(format!(
                    "package {} claims to be as it is since {claims:.0}, and said otherwise at {:.0}",
                    parts(&package.key).2,
                    history.otherwise_at
                ));
            }
            histories.push(history);
        }
        if let Some(old) = &old
            && !Arc::ptr_eq(old.content.packages.keys(), content.packages.keys())
        {
            old.content.packages.keys().iter().filter(|key| !content.has(key)).for_each(news);
        }
        let last_up = old.map(|old| old.last_up).unwrap_or_default();
        let bytes = bytes(&content);
        let mut verified = Verified { content, histories, sample: *sample, evidence: None, last_up, bytes };
        verified.confirm(*sample, evidence);
        self.verified = Some(verified);
        accepted
    }

    /// How young what was verified is known to be.
    pub(super) fn evidence_so_far(&self) -> Option<Seconds> {
        self.verified.as_ref().and_then(|verified| verified.evidence)
    }

    /// Since when a package that was verified is what it is, in the backend's clock.
    pub(super) fn since(&self, package: &Package, history: History) -> Seconds {
        (package.since() as Seconds - self.ahead).max(history.otherwise_at)
    }

    /// Whether nothing new came of it for so long, while this other one went on, that it does not count any more.
    ///
    /// Stamps alone do not tell: one whose samples come late, or that a slow clock stamps, speaks all the same. Nor do polls
    /// alone: a series that is new is found later than one that goes on. One whose feed does not answer may speak; but where
    /// both are of the same cluster, the other one tells of it.
    pub(super) fn is_silent_beside(&self, other: &Self, same_cluster: bool) -> bool {
        let interval = self.cadence().unwrap_or(UNKNOWN_INTERVAL).max(other.interval.unwrap_or_default());
        let until =
            if self.is_cut_off && same_cluster { other.arrived } else { self.looked.min(other.arrived) };
        let silent = (until - self.arrived).min(other.heard - self.heard);
        silent > SILENT_INTERVALS * interval
    }

    /// Its feed was looked at as of `t`.
    pub(super) fn looked(&mut self, t: Seconds) {
        self.looked = self.looked.max(t);
        self.is_cut_off = false;
    }

    /// Its feed did not answer.
    pub(super) fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Whether it goes on, and nothing of it was verified for so long that it would be silent if it did not, and that
    /// nothing more of it can be late.
    pub(super) fn is_unverified(&self) -> bool {
        let patience = self.patience().max(MOST_LATE);
        let is_late = |verified: &Verified| {
            self.fault.is_some() && self.newest.is_some_and(|newest| newest - verified.sample.at > patience)
        };
        self.verified.as_ref().is_none_or(is_late)
    }

    /// What decides about all of its packages: why it counts for nothing, and by how much its clock is ahead.
    pub(super) fn standing(&self) -> (Option<&str>, bool, Option<Skew>, Option<bool>, Seconds) {
        let dated = self.verified.as_ref().map(|verified| verified.evidence.is_some());
        (self.fault.as_deref(), self.is_unverified(), self.skew(), dated, self.ahead)
    }

    /// Whether the newest exposition came before.
    pub(super) fn is_repeated(&self) -> bool {
        self.newest.is_some_and(|newest| newest > self.heard)
    }

    /// When something new was last heard of it.
    pub(super) fn heard(&self) -> Seconds {
        self.heard
    }

    /// The poll that last brought something new of it.
    pub(super) fn arrived(&self) -> Seconds {
        self.arrived
    }

    /// When it was last heard from, if only by what is repeated.
    pub(super) fn last_heard(&self) -> Seconds {
        self.newest.map_or(self.arrived, |newest| newest.max(self.arrived))
    }

    /// The usual distance between its digest samples, once two were seen.
    pub(super) fn interval(&self) -> Option<Seconds> {
        self.interval
    }

    /// How long one has to wait for the next scrape: the usual distance, or that of the last scrapes if these come more
    /// seldom.
    fn cadence(&self) -> Option<Seconds> {
        let most = if self.intervals.len() == 1 { LONGEST_AT_FIRST } else { Seconds::INFINITY };
        self.interval.map(|usual| usual.min(most)).into_iter().chain(self.lately()).reduce(Seconds::max)
    }

    /// How long nothing new may come of it before it may be silent.
    fn patience(&self) -> Seconds {
        SILENT_INTERVALS * self.cadence().unwrap_or(UNKNOWN_INTERVAL)
    }

    /// The shorter one of the last two distances.
    fn lately(&self) -> Option<Seconds> {
        let mut last = self.intervals.iter().rev().copied();
        last.next().zip(last.next()).map(|(a, b)| a.min(b))
    }

    /// What is wrong with its clock or timestamps.
    pub(super) fn skew(&self) -> Option<Skew> {
        let patience = self.patience();
        let stamped = self.stamped_ahead.filter(|(_, found)| self.looked - found <= patience);
        stamped.map(|(ahead, _)| Skew::Stamped(ahead)).or(self.rendered_skew.map(Skew::Rendered))
    }
}

/// What is kept of an exposition, in bytes.
pub(super) fn bytes(content: &Content) -> usize {
    content.bytes(size_of::<History>())
}

/// Of an even number the lower one: a gap is no interval.
fn median(all: &VecDeque<Seconds>) -> Option<Seconds> {
    let mut all: Vec<Seconds> = all.iter().copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied()
}

/// Why expositions of a contract version are not read, if they are not.
fn unreadable(contract: &str) -> Option<String> {
    if Version::readable(contract).is_some() {
        return None;
    }
    let read: Vec<&str> = Version::READ.iter().map(|version| version.name()).collect();
    let read = read.join(" and ");
    let ours: u64 = Version::CURRENT.name().parse().unwrap_or_default();
    let upgrade = match contract.parse::<u64>() {
        Ok(theirs) if theirs > ours => "upgrade the aggregator",
        _ => "upgrade the exporter",
    };
    Some(format!(
        "its exporter speaks contract version `{contract}`, this aggregator reads {read}: {upgrade}"
    ))
}

impl Verified {
    /// A digest sample attests it.
    fn confirm(&mut self, sample: DigestSample, evidence: Option<Seconds>) {
        self.sample = sample;
        let Some(evidence) = evidence else { return };
        let evidence = self.evidence.map_or(evidence, |known| known.max(evidence));
        self.evidence = Some(evidence);
        for source in self.content.sources.iter().filter(|source| source.up == Some(1)) {
            match self.last_up.iter_mut().find(|(name, _)| *name == source.name) {
                Some((_, at)) => *at = evidence,
                None => {
                    if self.last_up.len() >= MOST_SOURCES
                        && let Some((oldest, _)) =
                            self.last_up.iter().enumerate().min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1))
                    {
                        self.last_up.swap_remove(oldest);
                    }
                    self.last_up.push((source.name.clone(), evidence));
                }
            }
        }
    }

    /// When it was last said, as far as that is known.
    pub(super) fn last_word(&self) -> Seconds {
        self.evidence.unwrap_or(self.sample.at)
    }

    /// When a source was last seen up.
    pub(super) fn last_up(&self, source: &str) -> Option<Seconds> {
        self.last_up.iter().find(|(name, _)| name.as_ref() == source).map(|(_, at)| *at)
    }

    /// A package and its history.
    pub(super) fn find(&self, key: &str) -> Option<(Package, History)> {
        self.content.find(key).and_then(|(i, p)| Some((p, *self.histories.get(i)?)))
    }
}

/// Later expositions are greater: by when they were rendered, and of one that is repeated by when it was scraped.
fn order(sample: &DigestSample) -> (u64, Seconds) {
    (sample.exposition.rendered, sample.at)
}

/// What a digest sample lacks when its scrape brought no other sample of its head.
pub fn lack_of(metric: Metric) -> String {
    format!("{} of its scrape is missing", metric.name())
}

//! One stream: an exporter instance as one backend replica saw it.

use std::{collections::VecDeque, sync::Arc};

use statusbridge_contract::{Metric, Version};

use super::{
    beat::{Beat, Heard, SAME_SCRAPE, TURNS_UNTOLD, Turns},
    history::{History, Origin, Seen, hides_moves},
    names::Names,
    offset::Offset,
};
use crate::{
    clock::Seconds,
    verify::{Content, Package, content::parts},
};

/// Distances between digest samples that are remembered.
const INTERVALS: usize = 16;
/// Distances that it takes to tell how often a stream is scraped.
const ENOUGH_INTERVALS: usize = 4;

/// How far scrapes are taken to be apart as long as that is not known.
const USUAL_INTERVAL: Seconds = 15.0;
/// Polls may be so much further apart than scrapes: what is repeated now has not been for much longer.
const LONGEST_UNLOOKED: Seconds = 45.0;
/// Evidence that is so many intervals younger than the one before may not be that of the next scrape.
const MISSED_INTERVALS: Seconds = 2.0;

/// Scrapes whose rendering time is remembered: a digest may arrive later than the time that goes with it.
const RENDERINGS: usize = 8;

/// When the exposition of one scrape was rendered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rendering {
    /// As it says itself.
    at: Seconds,
    /// When it was scraped.
    stamped: Seconds,
    /// When the backend first had it. `None` when it was repeated before this process came: then nobody
    /// knows how old it is.
    first: Option<Seconds>,
}

/// What was verified last, and the memory that goes with it.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) content: Content,
    /// One per package of `content`, in the same order.
    pub(super) histories: Vec<History>,
    /// Time of the last digest sample equal to the content's digest.
    pub(super) evidence: Seconds,
    /// When the stream was first verified.
    pub(super) first: Seconds,
    /// When each source was last seen up.
    last_up: Vec<(Box<str>, Seconds)>,
    /// Packages that went away, and when.
    removed: Vec<(Arc<str>, Seconds)>,
    /// Another cluster's UID that this very stream had before, and its last evidence.
    pub(super) other_uid: Option<(Option<u64>, Seconds)>,
}

/// Whether a package may have moved more often than was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unseen(pub(super) bool);

/// State of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Timestamp of the newest digest sample.
    pub(super) newest: Option<Seconds>,
    pub(super) offset: Offset,
    /// The offset when something was last verified or confirmed.
    pub(super) dated_by: Option<Offset>,
    /// What the last scrapes say of when their expositions were rendered, the newest last.
    renderings: VecDeque<Rendering>,
    /// Timestamp of the digest sample for which the samples were last asked.
    tried: Option<Seconds>,
    /// Why what the newest digest attests is not verified.
    pub(super) fault: Option<String>,
    pub(super) verified: Option<Verified>,
    /// Whose it says it is in what did not verify, as long as nothing did.
    pub(super) claims: Option<u64>,
    intervals: VecDeque<Seconds>,
}

impl Stream {
    /// Takes note of a digest sample.
    pub(super) fn hear(&mut self, beat: &Beat, t: Seconds) -> Heard {
        if self.newest.is_some_and(|newest| beat.at < newest) {
            return Heard::Old;
        }
        if let Some(newest) = self.newest.filter(|n| beat.at - n > 0.01) {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(beat.at - newest);
        }
        self.newest = Some(beat.at);
        self.note_rendered(beat);
        if Version::readable(&beat.contract).is_none() {
            let read: Vec<&str> = Version::READ.iter().map(|version| version.name()).collect();
            self.fault = Some(format!(
                "its contract version `{}` is not one that this aggregator reads ({})",
                beat.contract,
                read.join(", ")
            ));
            return Heard::Unusable;
        }
        let (Some(digest), Some(evidence)) = (beat.digest, self.evidence(beat, t)) else {
            self.fault = Some(beat.lack());
            return Heard::Unusable;
        };
        if let Some(verified) = self.verified.as_mut().filter(|v| v.content.digest == digest) {
            let Some(evidence) = beat.bound(evidence, verified.content.uid) else {
                self.fault = Some(TURNS_UNTOLD.to_owned());
                return Heard::Unusable;
            };
            verified.confirm(evidence);
            verified.watch_turns(beat, evidence);
            self.fault = None;
            self.check_clock(beat.at.min(t));
            return Heard::Confirmed;
        }
        if self.tried == Some(beat.at) {
            return Heard::Tried;
        }
        Heard::Unread
    }

    /// Takes note of when an exposition was rendered. One that is repeated says nothing about clocks.
    fn note_rendered(&mut self, beat: &Beat) {
        let Some((rendered, stamped)) = beat.rendered else { return };
        // Two of one moment, as replicas have whose labels are ignored: the older one counts.
        if let Some(same) = self.renderings.iter_mut().rev().find(|it| it.stamped == stamped) {
            same.at = same.at.min(rendered);
        }
        let last = self.renderings.back().copied();
        if last.is_some_and(|last| stamped <= last.stamped) {
            return;
        }
        let known = last.filter(|last| last.at == rendered);
        // What came before anybody looked, or while nobody did for long, may be much older than when it was seen.
        let unseen =
            || last.is_none_or(|last| stamped - last.stamped > self.longest_gap().max(LONGEST_UNLOOKED));
        let repeated = beat.repeats && known.is_none() && unseen();
        let first = known.map_or((!repeated).then_some(stamped), |known| known.first);
        if self.renderings.len() == RENDERINGS {
            self.renderings.pop_front();
        }
        self.renderings.push_back(Rendering { at: rendered, stamped, first });
        if known.is_some() {
            return;
        }
        if let Some(measured) = beat.offset().filter(|_| !repeated) {
            self.offset.measure(measured);
        }
    }

    /// Time of the evidence: of the exposition itself, not of its passing through some gateway, and
    /// never after the poll. An exposition is no younger than when the backend first had it, whatever
    /// the cluster's clock says. None when that cannot be told.
    ///
    /// What was rendered later than the digest's scrape was another exposition: it says nothing of this
    /// one. What was rendered before makes it only older.
    fn evidence(&self, beat: &Beat, t: Seconds) -> Option<Seconds> {
        beat.rendered?;
        let mut before = self.renderings.iter().rev().skip_while(|it| it.stamped > beat.at + SAME_SCRAPE);
        let rendering = before.next()?;
        Some(beat.at.min(rendering.at).min(rendering.first?).min(t))
    }

    /// Whether the newest exposition came before.
    pub(super) fn is_repeated(&self) -> bool {
        let first = self.renderings.back().and_then(|last| last.first);
        self.newest.zip(first).is_some_and(|(newest, first)| newest > first)
    }

    /// What the digest sample attests did not verify; `uid` is the cluster's that came with it.
    pub(super) fn reject(&mut self, beat: &Beat, fault: String, uid: Option<u64>) {
        self.tried = Some(beat.at);
        self.fault = Some(fault);
        self.claims = uid.filter(|_| self.verified.is_none());
    }

    /// Replaces what was verified. `news` is told the packages of which something else is to be said now, and
    /// whether they may have moved unseen; `sibling` is asked about packages that this stream did not have, and
    /// says how young its evidence is.
    pub(super) fn accept(
        &mut self,
        beat: &Beat,
        mut content: Content,
        t: Seconds,
        names: &mut Names,
        mut news: impl FnMut(&Arc<str>, Unseen),
        sibling: impl Fn(&str) -> Option<(Package, History, Offset, Seconds)>,
    ) {
        let evidence = self.evidence(beat, t).and_then(|it| beat.bound(it, content.uid));
        let Some(evidence) = evidence else { return };
        let seen = Seen { evidence, at: beat.at.min(t) };
        let longest = self.longest_gap();
        let missed = |last: Seconds| evidence - last > longest;
        self.tried = Some(beat.at);
        (self.fault, self.claims) = (None, None);
        let old = self.verified.take();
        let mut histories = Vec::with_capacity(content.packages.len());
        names.share(&mut content, old.as_ref().map(|old| &old.content));
        let same_words = old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.content.reasons, &content.reasons));
        for package in content.packages.iter() {
            let own = old.as_ref().and_then(|old| old.find(&package.key));
            let mut unseen = Unseen(false);
            let (history, same) = match (own, || sibling(&package.key)) {
                (Some((before, was)), _) => {
                    let gap = old.as_ref().is_some_and(|old| missed(old.evidence));
                    unseen = Unseen(gap && hides_moves(&before, &package, Origin::Same));
                    let history = was.next(&before, &package, seen, self.offset, Origin::Same);
                    let word = |content: &Content| {
                        let code = package.value(Metric::PackageReason);
                        content.reason(parts(&package.key).0, code)
                    };
                    let same_word =
                        || same_words || old.as_ref().is_some_and(|old| word(&old.content) == word(&content));
                    (history, before.same_row(&package) && history.says_the_same(was) && same_word())
                }
                (None, sibling) => match sibling() {
                    Some((before, was, offset, last)) => {
                        unseen = Unseen(missed(last) && hides_moves(&before, &package, Origin::Sibling));
                        let history = was.next(&before, &package, seen, offset, Origin::Sibling);
                        (history, before.same_row(&package) && history.says_the_same(was))
                    }
                    None => (History::first(&package, seen), false),
                },
            };
            if !same || unseen.0 {
                news(&package.key, unseen);
            }
            histories.push(history);
        }
        if let Some(old) = &old
            && !Arc::ptr_eq(old.content.packages.keys(), content.packages.keys())
        {
            let gone = old.content.packages.keys().iter().filter(|key| !content.has(key));
            gone.for_each(|key| news(key, Unseen(false)));
        }
        let mut next = Verified {
            content,
            histories,
            evidence,
            first: evidence,
            last_up: Vec::new(),
            removed: Vec::new(),
            other_uid: None,
        };
        if let Some(old) = old {
            next.inherit(old, evidence);
        }
        next.confirm(evidence);
        next.watch_turns(beat, evidence);
        self.verified = Some(next);
        self.check_clock(seen.at);
    }

    /// What a cluster dated before its clock was set forward did not happen earlier because of that.
    fn check_clock(&mut self, at: Seconds) {
        let was = self.dated_by.replace(self.offset).filter(|was| self.offset.is_before(*was));
        if let (Some(was), Some(verified)) = (was, &mut self.verified) {
            let packages = verified.content.packages.iter().zip(&mut verified.histories);
            packages.for_each(|(package, history)| history.clock_set(&package, was, at));
        }
    }

    /// How young what was verified is known to be.
    pub(super) fn evidence_so_far(&self) -> Option<Seconds> {
        self.verified.as_ref().map(|verified| verified.evidence)
    }

    /// Whether it makes no difference to any package whether this stream answers or the other, or both.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let (Some(ours), Some(theirs)) = (&self.verified, &other.verified) else { return false };
        let histories = || ours.histories.iter().zip(&theirs.histories);
        (&self.fault, self.offset.correct(0.0)) == (&other.fault, other.offset.correct(0.0))
            && ours.content == theirs.content
            && histories().all(|(ours, theirs)| ours.says_the_same(*theirs))
    }

    /// When it was last heard from.
    pub(super) fn last_heard(&self) -> Seconds {
        let evidence = self.verified.as_ref().map(|v| v.evidence);
        self.newest.into_iter().chain(evidence).fold(f64::MIN, f64::max)
    }

    /// How far apart two samples may be that were scraped one after the other.
    fn longest_gap(&self) -> Seconds {
        MISSED_INTERVALS * self.interval().unwrap_or(USUAL_INTERVAL)
    }

    /// The distance between its digest samples, once enough of them were seen.
    pub(super) fn interval(&self) -> Option<Seconds> {
        if self.intervals.len() < ENOUGH_INTERVALS {
            return None;
        }
        // A poll may miss samples, never see some that are not there: the least counts.
        self.intervals.iter().copied().reduce(f64::min)
    }
}

impl Verified {
    fn inherit(&mut self, old: Self, seen: Seconds) {
        self.first = old.first;
        self.last_up = old.last_up;
        self.other_uid = match old.content.uid == self.content.uid {
            true => old.other_uid,
            false => Some((old.content.uid, old.evidence)),
        };
        self.removed = old.removed;
        self.removed.retain(|(key, _)| !self.content.has(key));
        let (before, now) = (old.content.packages.keys(), self.content.packages.keys());
        if !Arc::ptr_eq(before, now) {
            let gone = before.iter().filter(|key| !self.content.has(key));
            self.removed.extend(gone.map(|key| (key.clone(), seen)));
        }
    }

    /// Its digest was seen again.
    fn confirm(&mut self, evidence: Seconds) {
        self.evidence = self.evidence.max(evidence);
        for source in self.content.sources.iter().filter(|s| s.up == Some(1)) {
            match self.last_up.iter_mut().find(|(name, _)| *name == source.name) {
                Some((_, at)) => *at = self.evidence,
                None => self.last_up.push((source.name.clone(), self.evidence)),
            }
        }
    }

    /// Remembers that another cluster was seen under the very same labels.
    fn watch_turns(&mut self, beat: &Beat, evidence: Seconds) {
        if matches!(beat.turns, Turns::Taken { .. }) {
            // What answers of long ago repeat, makes what is known no older.
            let (other, known) = self.other_uid.unwrap_or((None, evidence));
            self.other_uid = Some((other, known.max(evidence)));
        }
    }

    /// When a source was last seen up.
    pub(super) fn last_up(&self, source: &str) -> Option<Seconds> {
        self.last_up.iter().find(|(name, _)| name.as_ref() == source).map(|(_, at)| *at)
    }

    /// Whether a source is up.
    pub(super) fn is_up(&self, source: &str) -> bool {
        self.content.source(source).is_some_and(|s| s.up == Some(1))
    }

    /// A package's history, to change it.
    pub(super) fn history_mut(&mut self, key: &str) -> Option<&mut History> {
        let at = self.content.packages.position(key)?;
        self.histories.get_mut(at)
    }

    /// A package and its history.
    pub(super) fn find(&self, key: &str) -> Option<(Package, History)> {
        self.content.find(key).map(|(i, p)| (p, self.histories[i]))
    }

    /// Since when it says of a package what it says, be it that there is none.
    pub(super) fn unchanged_since(&self, key: &str) -> Seconds {
        match self.find(key) {
            Some((_, history)) => history.changed_at,
            None => self.removed.iter().find(|(k, _)| k.as_ref() == key).map_or(self.first, |(_, at)| *at),
        }
    }

    /// Forgets what went away long ago. Whether there was anything.
    pub(super) fn forget(&mut self, before: Seconds) -> bool {
        let (removed, other_uid) = (self.removed.len(), self.other_uid);
        self.removed.retain(|(_, at)| *at >= before);
        self.other_uid = self.other_uid.filter(|(_, at)| *at >= before);
        self.removed.len() != removed || self.other_uid != other_uid
    }

    /// Whether no package of the one can be a package of the other.
    pub(super) fn shares_no_source(&self, other: &Self) -> bool {
        self.content.sources.iter().all(|source| other.content.source(&source.name).is_none())
    }
}

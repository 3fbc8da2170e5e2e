//! What of the fleet has changed since when, other than the time of its evidence: so that whoever found a
//! package [`Standing::Fresh`](super::Standing::Fresh) in many clusters need not look at each of them again.
//!
//! ```text
//!   hear, accept, reject, forget ──> a cluster has changed      ─┐
//!                                    a package has, somewhere   ─┼─> since a Mark: changed, or only the evidence is younger
//!                                    evidence of each source    ─┘
//! ```
//!
//! It speaks of fresh packages only; whatever else is known of a cluster has to be looked at again. Where it
//! cannot be told cheaply that nothing has changed, something has.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;

use super::stream::{Stream, Verified};
use super::{Cluster, Fleet, FleetSettings};
use crate::clock::Seconds;
use crate::serial;

/// Packages whose changes are remembered: beyond so many, all are taken to have changed.
const PACKAGES: usize = 1 << 18;
/// Sources of which the evidence is kept for each cluster: packages of others always have to be looked at.
const SOURCES: usize = 64;
/// What two ways of adding up times may differ by.
const ROUNDING: Seconds = 0.001;

/// A moment in the story of one fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    fleet: u64,
    at: u64,
}

/// Some clusters of a fleet, one bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clusters {
    words: Box<[u64]>,
}

impl Clusters {
    fn places(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.checked_sub(1)?;
                Some(at * 64 + bit)
            })
        })
    }
}

/// What has become of a package in clusters where it was fresh.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Since {
    /// It cannot be told without looking.
    Changed,
    /// It is what it was, and the oldest evidence is of this time; none when there are no clusters.
    Same(Option<Seconds>),
}

/// The notes. Clusters have places, which are given to others once they are gone.
#[derive(Debug)]
pub(super) struct Changes {
    fleet: u64,
    now: u64,
    /// When everything changed last.
    all: u64,
    /// When each cluster changed last, for all of its packages.
    clusters: Vec<u64>,
    newest_cluster: u64,
    free: Vec<u32>,
    /// When each package changed last, in any cluster.
    packages: HashMap<Arc<str>, u64>,
    /// By source and cluster: the youngest evidence of a stream by which the source is up.
    evidence: HashMap<Box<str>, Vec<Seconds>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            fleet: serial::next(),
            now: 0,
            all: 0,
            clusters: Vec::new(),
            newest_cluster: 0,
            free: Vec::new(),
            packages: HashMap::new(),
            evidence: HashMap::new(),
        }
    }
}

impl Changes {
    /// A place for a cluster that is new.
    pub(super) fn place(&mut self) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.clusters.push(0);
            u32::try_from(self.clusters.len() - 1).unwrap_or(u32::MAX)
        });
        self.cluster(place);
        place
    }

    /// A cluster is gone.
    pub(super) fn gone(&mut self, place: u32) {
        self.cluster(place);
        self.evidence.values_mut().filter_map(|all| all.get_mut(place as usize)).for_each(|it| *it = NEVER);
        self.free.push(place);
    }

    /// Something of a cluster has changed that may concern all of its packages.
    pub(super) fn cluster(&mut self, place: u32) {
        self.now += 1;
        if let Some(at) = self.clusters.get_mut(place as usize) {
            (*at, self.newest_cluster) = (self.now, self.now);
        }
    }

    /// A package has changed in some cluster.
    pub(super) fn package(&mut self, key: &Arc<str>) {
        self.now += 1;
        if let Some(at) = self.packages.get_mut(key) {
            *at = self.now;
        } else if self.packages.len() < PACKAGES {
            self.packages.insert(key.clone(), self.now);
        } else {
            self.packages.clear();
            self.all = self.now;
        }
    }

    /// Something has changed that may concern everything.
    pub(super) fn everything(&mut self) {
        self.now += 1;
        self.all = self.now;
    }

    /// The evidence of a cluster is another.
    pub(super) fn evidence(
        &mut self,
        place: u32,
        streams: &[(&Stream, &Verified)],
        settings: &FleetSettings,
    ) {
        let at = place as usize;
        self.evidence.values_mut().filter_map(|all| all.get_mut(at)).for_each(|it| *it = NEVER);
        let trusted = |stream: &Stream| stream.offset.beyond(settings.max_clock_skew).is_none();
        for (_, verified) in streams.iter().filter(|(stream, _)| trusted(stream)) {
            for source in verified.content.sources.iter().filter(|source| source.up == Some(1)) {
                let known = self.evidence.len();
                let all = match self.evidence.get_mut(&source.name) {
                    Some(known) => known,
                    None if known < SOURCES => self.evidence.entry(source.name.clone()).or_default(),
                    None => continue,
                };
                if all.len() <= at {
                    all.resize(self.clusters.len().max(at + 1), NEVER);
                }
                all[at] = all[at].max(verified.evidence);
            }
        }
    }

    fn mark(&self) -> Mark {
        Mark { fleet: self.fleet, at: self.now }
    }

    fn since(&self, mark: Mark, key: &str, clusters: &Clusters) -> Since {
        let package = self.packages.get(key).copied().unwrap_or_default();
        if mark.fleet != self.fleet || self.all > mark.at || package > mark.at {
            return Since::Changed;
        }
        let look = self.newest_cluster > mark.at;
        let (source, ..) = crate::verify::content::parts(key);
        let evidence = self.evidence.get(source).map(Vec::as_slice).unwrap_or_default();
        let mut oldest = None::<Seconds>;
        for place in clusters.places() {
            if look && self.clusters.get(place).is_none_or(|at| *at > mark.at) {
                return Since::Changed;
            }
            let of_cluster = evidence.get(place).copied().unwrap_or(NEVER);
            oldest = Some(oldest.map_or(of_cluster, |oldest| oldest.min(of_cluster)));
        }
        Since::Same(oldest)
    }
}

/// Older than any evidence.
const NEVER: Seconds = Seconds::NEG_INFINITY;

/// What of a stream counts for its packages besides what they are and how young its evidence is.
#[derive(Debug, PartialEq)]
pub(super) struct Face {
    fault: Option<String>,
    offsets: [Option<u64>; 2],
    trusted: bool,
    other_uid: Option<(Option<u64>, u64)>,
    /// Whose it says it is, and when it was heard last, as long as nothing of it was verified.
    stranger: Option<(Option<u64>, Option<u64>)>,
}

impl Face {
    /// None as long as it was not tried to verify anything of it: then it counts for nothing that is fresh.
    pub(super) fn of(stream: &Stream, settings: &FleetSettings) -> Option<Self> {
        let verified = stream.verified.as_ref();
        if verified.is_none() && stream.fault.is_none() {
            return None;
        }
        let heard = stream.newest.map(Seconds::to_bits);
        Some(Self {
            fault: stream.fault.clone(),
            offsets: [Some(stream.offset), stream.dated_by].map(|it| it.map(|it| it.correct(0.0).to_bits())),
            trusted: stream.offset.beyond(settings.max_clock_skew).is_none(),
            other_uid: verified.and_then(|it| it.other_uid).map(|(uid, at)| (uid, at.to_bits())),
            stranger: verified.is_none().then_some((stream.claims, heard)),
        })
    }
}

impl Cluster {
    /// Whether it makes no difference to any fresh package that this stream was heard again, whose evidence
    /// was of the time `before`: whichever stream answers now, the answer is the same.
    pub(super) fn is_calm(&self, heard: &StreamLabels, before: Option<Seconds>) -> bool {
        if self.streams.len() < 2 {
            return true;
        }
        let Some(own) = self.streams.get(heard) else { return false };
        let Some(verified) = own.verified.as_ref() else { return true };
        let others = self.streams.iter().filter(|(labels, _)| *labels != heard);
        let mut others = others.filter_map(|(_, stream)| Some((stream.as_ref(), stream.verified.as_ref()?)));
        others.all(|(other, theirs)| {
            theirs.content.uid == verified.content.uid
                && (verified.shares_no_source(theirs)
                    // Of two that are equally young, the other may be the one that answered.
                    || before.is_some_and(|before| theirs.evidence < before.min(verified.evidence))
                    || own.says_the_same(other))
        })
    }

    /// See [`Fleet::clusters_of`].
    fn turns_at(&self, t: Seconds, stale_after: Seconds) -> Option<Seconds> {
        let other_uids = self.streams.values().filter_map(|s| s.verified.as_ref()?.other_uid);
        let alone = self.streams.len() < 2;
        let others = self.streams.values().filter(|_| !alone);
        let others = others.flat_map(|s| [s.newest, s.evidence_so_far()].into_iter().flatten());
        let turns = other_uids.map(|(_, at)| at).chain(others).map(|at| at + stale_after - ROUNDING);
        // A stream counts until the evidence of those that go on is so much younger, not only the time.
        let evidence = self.streams.values().filter_map(|s| s.evidence_so_far());
        let first_word = evidence.filter(|it| t - it <= stale_after).fold(t, Seconds::min);
        turns.filter(|at| *at >= first_word - 2.0 * ROUNDING).reduce(Seconds::min)
    }

    /// The streams of which something was verified.
    pub(super) fn verified(&self) -> Vec<(&Stream, &Verified)> {
        self.streams
            .values()
            .filter_map(|stream| Some((stream.as_ref(), stream.verified.as_ref()?)))
            .collect()
    }
}

impl Fleet {
    /// This moment, to be asked about later.
    pub fn mark(&self) -> Mark {
        self.changes.mark()
    }

    /// These clusters, and a time before the first after `t` at which what is known of one of them counts for
    /// something else because another of its streams than the one that answers has grown older than
    /// `stale_after`. None when one of them is not known.
    pub fn clusters_of<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        t: Seconds,
        stale_after: Seconds,
    ) -> Option<(Clusters, Option<Seconds>)> {
        let mut words = vec![0_u64; self.changes.clusters.len().div_ceil(64)];
        let mut turns_at = None::<Seconds>;
        let mut next = self.clusters.range::<str, _>(..);
        for name in names {
            // Mostly they come one after another.
            let cluster = match next.next() {
                Some((known, cluster)) if known == name => cluster,
                _ => {
                    let cluster = self.clusters.get(name)?;
                    next = self.clusters.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
                    cluster
                }
            };
            let place = cluster.place as usize;
            *words.get_mut(place / 64)? |= 1 << (place % 64);
            turns_at = turns_at.into_iter().chain(cluster.turns_at(t, stale_after)).reduce(Seconds::min);
        }
        Some((Clusters { words: words.into() }, turns_at))
    }

    /// What has become since `mark` of the package with this key, in clusters where it was fresh then.
    pub fn since(&self, mark: Mark, key: &str, clusters: &Clusters) -> Since {
        self.changes.since(mark, key, clusters)
    }
}

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
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use super::{Cluster, Fleet};
use crate::fleet::serial;
use crate::time::Seconds;
use crate::verify::package;

/// Packages whose changes are remembered, at least.
const FEWEST: usize = 1024;
/// Sources of which the evidence is kept for each cluster: packages of others always have to be looked at.
const SOURCES: usize = 64;
/// So many of these may be there for one cluster's sake: names cost their sender nothing.
const OF_ONE: usize = 8;

/// A moment in the story of one fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    fleet: u64,
    at: u64,
}

/// Some clusters of a fleet, one bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clusters {
    /// Those whose evidence counts.
    told: Places,
    /// Those that have no say, and may have one once they change.
    beside: Places,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Places(Box<[u64]>);

/// Places are looked at so many at once: one word of bits.
const BLOCK: usize = u64::BITS as usize;

impl Places {
    /// The blocks with some of them, and which ones of each.
    fn blocks(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().filter(|(_, meant)| *meant > 0)
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

/// When a package changed last, and by which key it was told of, if that was of another cluster.
#[derive(Debug)]
struct Changed {
    at: u64,
    told: Option<Arc<str>>,
}

/// The notes. Clusters have places, which are given to others once they are gone.
#[derive(Debug)]
pub(super) struct Changes {
    fleet: u64,
    now: u64,
    /// When everything changed last.
    all: u64,
    /// How many places there are.
    places: u32,
    free: Vec<u32>,
    /// When each cluster changed last, for all of its packages; in whole blocks.
    clusters: Vec<u64>,
    /// The newest of each block of these.
    newest: Vec<u64>,
    /// When each package changed last, in any cluster.
    packages: HashMap<Arc<str>, Changed>,
    /// Where there are so many, those that nobody reports any more are forgotten.
    most: usize,
    evidence: HashMap<Arc<str>, Evidence>,
}

/// How old the evidence of one source is, in every cluster.
#[derive(Debug)]
struct Evidence {
    /// The place of the cluster that told of the source first.
    of: u32,
    /// By place: the oldest evidence of a stream that counts and by which the source is up; in whole blocks.
    oldest: Vec<Seconds>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            fleet: serial::next(),
            now: 0,
            all: 0,
            places: 0,
            free: Vec::new(),
            clusters: Vec::new(),
            newest: Vec::new(),
            packages: HashMap::new(),
            most: FEWEST,
            evidence: HashMap::new(),
        }
    }
}

impl Changes {
    /// A place for a cluster that is new.
    pub(super) fn place(&mut self) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.newest.resize((self.places as usize).div_ceil(BLOCK), 0);
        self.clusters.resize(self.newest.len() * BLOCK, 0);
        self.cluster(place);
        place
    }

    /// A cluster is gone.
    pub(super) fn gone(&mut self, place: u32) {
        self.cluster(place);
        self.has_no_evidence(place);
        self.free.push(place);
    }

    /// Something of a cluster has changed that may concern all of its packages.
    pub(super) fn cluster(&mut self, place: u32) {
        self.now += 1;
        let at = place as usize;
        if let (Some(at), Some(newest)) = (self.clusters.get_mut(at), self.newest.get_mut(at / BLOCK)) {
            (*at, *newest) = (self.now, self.now);
        }
    }

    /// A package has changed in some cluster, be it that of the exporter or another one.
    pub(super) fn package(&mut self, key: &Arc<str>) {
        match package::without_cluster(key) {
            (package, Some(_)) => self.change(&package.into(), Some(key)),
            (_, None) => self.change(key, None),
        }
    }

    fn change(&mut self, key: &Arc<str>, told: Option<&Arc<str>>) {
        self.now += 1;
        if let Some(known) = self.packages.get_mut(key) {
            known.at = self.now;
            known.told = told.cloned().or(known.told.take());
            return;
        }
        if self.packages.len() >= self.most {
            // The fleet has one copy of each name, which it keeps as long as this map does: whoever reports the package
            // has another. With what is forgotten goes when it changed, so everything is taken to have changed.
            let is_reported = |key: &Arc<str>| Arc::strong_count(key) > 2;
            self.packages
                .retain(|key, known| is_reported(key) || known.told.as_ref().is_some_and(is_reported));
            self.most = FEWEST.max(2 * self.packages.len());
            self.all = self.now;
        }
        self.packages.insert(key.clone(), Changed { at: self.now, told: told.cloned() });
    }

    /// Something has changed that may concern everything.
    pub(super) fn everything(&mut self) {
        self.now += 1;
        self.all = self.now;
    }

    fn has_no_evidence(&mut self, place: u32) {
        let all = self.evidence.values_mut().filter_map(|it| it.oldest.get_mut(place as usize));
        all.for_each(|it| *it = NEVER);
    }

    /// The evidence of a cluster is another.
    pub(super) fn evidence(&mut self, cluster: &Cluster) {
        self.has_no_evidence(cluster.place);
        if cluster.is_crowd() {
            return;
        }
        let (place, at) = (cluster.place, cluster.place as usize);
        let verified = cluster.streams.values().filter_map(|stream| stream.verified.as_ref());
        for source in verified.flat_map(|it| &it.content.sources).filter(|source| source.up == Some(1)) {
            let all = match self.evidence.get_mut(&source.name) {
                Some(known) => &mut known.oldest,
                None => {
                    let of_it = self.evidence.values().filter(|it| it.of == place).count();
                    if self.evidence.len() >= SOURCES || of_it >= OF_ONE {
                        continue;
                    }
                    let new = Evidence { of: place, oldest: Vec::new() };
                    &mut self.evidence.entry(source.name.clone()).or_insert(new).oldest
                }
            };
            if all.len() <= at {
                all.resize(self.clusters.len(), NEVER);
            }
            if let Some(known) = all.get_mut(at) {
                *known = cluster.evidence(&source.name).unwrap_or(NEVER);
            }
        }
    }

    /// How many packages are remembered.
    #[cfg(test)]
    pub(super) fn packages(&self) -> usize {
        self.packages.len()
    }

    fn mark(&self) -> Mark {
        Mark { fleet: self.fleet, at: self.now }
    }

    fn since(&self, mark: Mark, key: &str, clusters: &Clusters) -> Since {
        let package = self.packages.get(key).map_or(0, |known| known.at);
        if mark.fleet != self.fleet || self.all > mark.at || package > mark.at {
            return Since::Changed;
        }
        if self.any_changed(&clusters.beside, mark) || self.any_changed(&clusters.told, mark) {
            return Since::Changed;
        }
        let (source, ..) = package::parts(key);
        let evidence = self.evidence.get(source).map(|it| it.oldest.as_slice()).unwrap_or_default();
        let (evidence, _) = evidence.as_chunks();
        let of_block = |(at, meant)| evidence.get(at).map_or(NEVER, |all| oldest(all, meant));
        Since::Same(clusters.told.blocks().map(of_block).reduce(Seconds::min))
    }

    /// Whether a cluster in one of these places has changed.
    fn any_changed(&self, places: &Places, mark: Mark) -> bool {
        let is_newer = |at: &u64| *at > mark.at;
        let (clusters, _) = self.clusters.as_chunks::<BLOCK>();
        let has_changed = |(at, meant): (usize, u64)| {
            let any = |all: &[u64; BLOCK]| {
                all.iter().enumerate().any(|(bit, at)| is_newer(at) && is_meant(meant, bit))
            };
            self.newest.get(at).is_none_or(is_newer) && clusters.get(at).is_none_or(any)
        };
        places.blocks().any(has_changed)
    }
}

const fn is_meant(meant: u64, bit: usize) -> bool {
    meant >> bit & 1 == 1
}

/// So many are compared side by side, for which the compiler has instructions.
const LANES: usize = 8;

/// The oldest evidence of those of a block that are meant. Each poll asks for it again for hundreds of verdicts on all clusters.
fn oldest(evidence: &[Seconds; BLOCK], meant: u64) -> Seconds {
    let mut oldest = [Seconds::INFINITY; LANES];
    for (first, lanes) in evidence.as_chunks::<LANES>().0.iter().enumerate() {
        for (lane, (seen, oldest)) in lanes.iter().zip(&mut oldest).enumerate() {
            let seen = if is_meant(meant, first * LANES + lane) { *seen } else { Seconds::INFINITY };
            *oldest = if seen < *oldest { seen } else { *oldest };
        }
    }
    oldest.into_iter().fold(Seconds::INFINITY, Seconds::min)
}

/// Older than any evidence.
const NEVER: Seconds = Seconds::NEG_INFINITY;

/// Streams that are held against each other; where there are more, something has always changed.
const STREAMS: usize = 6;

impl Cluster {
    /// Whether it has too many streams to hold them against each other.
    fn is_crowd(&self) -> bool {
        self.streams.len() > STREAMS || self.crowded.is_some()
    }

    /// Stands for all of its streams that counts for every package, besides what they say and how young their evidence
    /// is: faults and clocks, who is silent beside whom, and since when. None when it cannot be told cheaply.
    pub(super) fn face(&self) -> Option<u64> {
        if self.is_crowd() {
            return None;
        }
        let mut face = DefaultHasher::new();
        self.scrape_seconds().map(Seconds::to_bits).hash(&mut face);
        for (id, stream) in &self.streams {
            let (fault, unverified, skew, dated, ahead) = stream.standing();
            (fault, unverified, skew.is_some(), dated, ahead.to_bits()).hash(&mut face);
            let mut is_silent = false;
            for (other_id, other) in &self.streams {
                let beside_it = stream.is_silent_beside(other, id.uid == other_id.uid);
                beside_it.hash(&mut face);
                is_silent |= beside_it;
            }
            let last_word = stream.verified.as_ref().filter(|_| is_silent).map(|it| it.last_word());
            last_word.map(Seconds::to_bits).hash(&mut face);
        }
        Some(face.finish())
    }
}

impl Fleet {
    /// This moment, to be asked about later.
    pub(crate) fn mark(&self) -> Mark {
        self.changes.mark()
    }

    /// Those whose exporters tell of the package with this key in these clusters. None when one of them is not known, or
    /// two tell of one.
    pub(crate) fn clusters_of<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        key: &str,
    ) -> Option<Clusters> {
        let (source, ..) = package::parts(key);
        let none = vec![0_u64; self.changes.newest.len()];
        let (mut told, mut beside) = (none.clone(), none);
        let add = |words: &mut Vec<u64>, cluster: &Cluster| {
            let place = cluster.place as usize;
            words.get_mut(place / BLOCK).map(|word| *word |= 1 << (place % BLOCK))
        };
        let mut next = self.clusters.range::<str, _>(..);
        for name in names {
            if let Some(speaker) = self.speakers.of(source, name) {
                let own = self.clusters.get(name);
                if self.own_say(name, own, source) {
                    return None;
                }
                if let Some(own) = own {
                    add(&mut beside, own)?;
                }
                add(&mut told, self.clusters.get(speaker)?)?;
                continue;
            }
            // Mostly they come one after another.
            let cluster = match next.next() {
                Some((known, cluster)) if known == name => cluster,
                _ => {
                    let cluster = self.clusters.get(name)?;
                    next = self.clusters.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
                    cluster
                }
            };
            add(&mut told, cluster)?;
        }
        Some(Clusters { told: Places(told.into()), beside: Places(beside.into()) })
    }

    /// What has become since `mark` of the package with this key, in clusters where it was fresh then.
    pub fn since(&self, mark: Mark, key: &str, clusters: &Clusters) -> Since {
        self.changes.since(mark, key, clusters)
    }
}

//! What is known about every cluster: plain memory, no I/O.
//!
//! ```text
//!   cluster name -> streams -> verified content (sources, reasons, packages)
//!                          \-> evidence time, clock, fault, memory of each package
//! ```
//!
//! A poll tells it which digest samples it found and what it verified; whoever decides asks [`Fleet::observe`].

mod access;
mod changes;
mod digest_sample;
mod history;
mod identity;
mod missing;
mod names;
pub mod observation;
mod observe;
#[cfg(test)]
mod observe_tests;
mod rendering;
mod reporting;
pub(crate) mod serial;
#[cfg(test)]
mod soak_tests;
mod speakers;
#[cfg(test)]
mod speakers_tests;
mod stream;
#[cfg(test)]
mod tests;
mod unscraped;
mod view;
mod vote;

use std::collections::{BTreeMap, BTreeSet};

pub use access::{Access, FeedName};
pub use changes::{Clusters, Mark, Since};
pub use digest_sample::{DigestSample, Digests, Exposition, Heard, Parts, Signs, StreamId};
pub use identity::IdentityLabels;
pub use observation::{Observation, Row, Standing};
pub use speakers::{Speaker, Speakers};
pub use stream::{Accepted, MOST_LATE, lack_of};
pub use view::StreamView;

use crate::time::Seconds;
use crate::verify::{Content, package};
use changes::Changes;
use names::Names;
use statusbridge_api::PackageRef;
use stream::Stream;
use unscraped::Unscraped;

/// Limits by which evidence is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetSettings {
    /// Largest difference between a cluster's clock, its scraper's and ours.
    pub max_clock_skew: Seconds,
    /// Streams not heard from for so long are forgotten.
    pub forget_after: Seconds,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { max_clock_skew: 60.0, forget_after: 3600.0 }
    }
}

/// Everything verified about every cluster.
#[derive(Debug, Default)]
pub struct Fleet {
    settings: FleetSettings,
    clusters: BTreeMap<String, Cluster>,
    names: Names,
    /// Why the last poll failed, by the feed.
    errors: BTreeMap<FeedName, String>,
    unscraped: Unscraped,
    changes: Changes,
    speakers: Speakers,
}

/// Streams of a cluster that are kept at least, however long they have been silent.
const KEPT_STREAMS: usize = 8;

/// Streams of a cluster that are known at most.
pub const MOST_STREAMS: usize = 64;

/// What is kept of all expositions of a cluster, in bytes, at most: two of the largest that are read. All exporters of
/// a cluster together take no more memory than that.
pub const MOST_OF_A_CLUSTER: usize = 128 << 20;

#[derive(Debug, Default)]
struct Cluster {
    /// Where it is in what is noted of changes.
    place: u32,
    /// Boxed, as a map has room for many more than the one that most clusters have.
    streams: BTreeMap<StreamId, Box<Stream>>,
    /// When a stream was heard last for which there was no room beside those that go on.
    crowded: Option<Seconds>,
    /// What [`Cluster::face`] was when that was noted last.
    face: Option<u64>,
    /// How often silent streams were looked for.
    #[cfg(test)]
    looks: std::sync::atomic::AtomicUsize,
}

impl Cluster {
    /// Whether it reports the package with this key, or did lately.
    fn reports(&self, key: &str) -> bool {
        let mut verified = self.streams.values().filter_map(|s| s.verified.as_ref());
        verified.any(|v| v.content.has(key))
    }

    /// How far apart its digest samples are, in whole seconds: that stands still.
    fn scrape_seconds(&self) -> Option<Seconds> {
        self.streams.values().filter_map(|stream| stream.interval()).reduce(f64::max).map(Seconds::round)
    }

    /// Whether some other stream goes on while this one is silent.
    fn is_silent(&self, id: &StreamId, stream: &Stream) -> bool {
        self.streams.iter().any(|(other, it)| stream.is_silent_beside(it, other.uid == id.uid))
    }

    /// Processes of the exporter that others have taken the place of, all but the last few: a process that starts anew
    /// again and again does not fill the memory. Each knows what the one before it said. The last process of each cluster stays.
    fn replaced(&self) -> Vec<StreamId> {
        let excess = self.streams.len().saturating_sub(KEPT_STREAMS);
        if excess == 0 {
            return Vec::new();
        }
        // A poll looks for a cluster that is late only while a stream of it is known.
        let is_last = |id: &StreamId| self.last_heard(|other| other.uid == id.uid) == Some(id);
        self.silent().into_iter().filter(|id| !is_last(id)).take(excess).collect()
    }

    /// The stream that was heard last, of those that are meant.
    fn last_heard(&self, is_meant: impl Fn(&StreamId) -> bool) -> Option<&StreamId> {
        let meant = self.streams.iter().filter(|(id, _)| is_meant(id));
        meant.max_by(|a, b| a.1.heard().total_cmp(&b.1.heard())).map(|(id, _)| id)
    }

    /// Takes note of digest samples that the poll at `t` found, and says what they call for. What does not say of which
    /// process it is, as stamps of the future, is taken for what comes of the one that was heard last.
    fn hear(
        &mut self,
        digests: &Digests,
        t: Seconds,
        settings: &FleetSettings,
        changes: &mut Changes,
    ) -> Heard {
        let Digests { stream, samples, lack, .. } = digests;
        let says_who = lack.is_none() && !samples.is_empty();
        let last = if says_who { None } else { self.last_heard(|id| id.is_beside(stream)).cloned() };
        let id = last.as_ref().unwrap_or(stream);
        if !self.has_room(id, t, changes) {
            return Heard::Unusable;
        }
        self.change(id, changes, |stream| stream.hear(digests, t, settings))
    }

    /// Streams that are silent while another goes on, the one that was heard longest ago first.
    fn silent(&self) -> Vec<StreamId> {
        #[cfg(test)]
        self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut silent: Vec<_> = self.streams.iter().filter(|(id, it)| self.is_silent(id, it)).collect();
        silent.sort_by(|a, b| a.1.heard().total_cmp(&b.1.heard()));
        silent.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Forgets the process that was heard longest ago, where too many are known under the labels of a new one.
    fn make_room(&mut self, id: &StreamId, changes: &mut Changes) {
        let same = self.streams.iter().filter(|(known, _)| known.is_beside(id));
        if same.clone().count() < KEPT_STREAMS {
            return;
        }
        let oldest = same.min_by(|a, b| a.1.heard().total_cmp(&b.1.heard())).map(|(id, _)| id.clone());
        if let Some(oldest) = oldest {
            self.forget(&oldest, changes);
        }
    }

    fn forget(&mut self, id: &StreamId, changes: &mut Changes) {
        let verified = self.streams.remove(id).and_then(|gone| gone.verified);
        verified.iter().flat_map(|it| it.content.packages.keys().iter()).for_each(|key| changes.package(key));
    }

    /// Makes room for so many bytes in place of what a stream said so far: forgets silent streams for it.
    ///
    /// # Errors
    /// When there is too little, in words.
    fn make_room_for(&mut self, id: &StreamId, bytes: usize, changes: &mut Changes) -> Result<(), String> {
        let others = |cluster: &Self| -> usize {
            let others = cluster.streams.iter().filter(|(other, _)| *other != id);
            others.filter_map(|(_, stream)| Some(stream.verified.as_ref()?.bytes)).sum()
        };
        if bytes + others(self) <= MOST_OF_A_CLUSTER {
            return Ok(());
        }
        for silent in self.silent() {
            if silent != *id && bytes + others(self) > MOST_OF_A_CLUSTER {
                self.forget(&silent, changes);
            }
        }
        let (all, most) = ((bytes + others(self)) >> 20, MOST_OF_A_CLUSTER >> 20);
        if bytes + others(self) <= MOST_OF_A_CLUSTER {
            return Ok(());
        }
        Err(format!(
            "with what other exporters of the cluster say it takes {all} MiB of memory, and {most} MiB are kept of a cluster"
        ))
    }

    /// Whether a stream is known or may be from now on: those that are silent make room for it. One that goes on does not, as
    /// it may be the one that says the worst. The new one may say worse, so nothing counts of a cluster with too many.
    /// Once there is no room, the same poll looks for none again.
    fn has_room(&mut self, id: &StreamId, t: Seconds, changes: &mut Changes) -> bool {
        if self.streams.len() < MOST_STREAMS || self.streams.contains_key(id) {
            return true;
        }
        if self.crowded == Some(t) {
            return false;
        }
        for silent in self.replaced() {
            self.forget(&silent, changes);
        }
        if self.streams.len() < MOST_STREAMS {
            return true;
        }
        self.crowd(t, changes);
        false
    }

    /// Takes note that the poll at `t` found more streams than are kept.
    fn crowd(&mut self, t: Seconds, changes: &mut Changes) {
        self.crowded = Some(t);
        changes.cluster(self.place);
    }

    /// Changes a stream, and takes note of what that changes for the cluster.
    fn change<R>(
        &mut self,
        id: &StreamId,
        changes: &mut Changes,
        change: impl FnOnce(&mut Stream) -> R,
    ) -> R {
        let result = if let Some(known) = self.streams.get_mut(id) {
            change(known)
        } else {
            self.make_room(id, changes);
            let known = self.unnamed(id);
            change(self.streams.entry(id.clone()).or_insert(known))
        };
        self.changed(changes);
        result
    }

    /// The stream of a process that has not said which one it is, as long as nothing of it was verified; else a new one.
    fn unnamed(&mut self, id: &StreamId) -> Box<Stream> {
        let unnamed = StreamId { process: 0, ..id.clone() };
        match self.streams.get(&unnamed) {
            Some(known) if known.verified.is_none() => self.streams.remove(&unnamed).unwrap_or_default(),
            _ => Box::default(),
        }
    }

    /// Takes note of whether it is what it was.
    fn changed(&mut self, changes: &mut Changes) {
        let face = self.face();
        if face.is_none() || face != self.face {
            changes.cluster(self.place);
        }
        self.face = face;
        changes.evidence(self);
    }

    /// Takes note that a poll looked at a feed. Gives whether its face may be another now: of several streams another one may be
    /// silent, and a clock that was wrong may be right.
    fn looked(&mut self, feed: &str, t: Seconds) -> bool {
        let may_change =
            self.streams.len() > 1 || self.streams.values().any(|stream| stream.skew().is_some());
        let of_feed = self.streams.iter_mut().filter(|(id, _)| *id.feed == *feed);
        of_feed.for_each(|(_, stream)| stream.looked(t));
        may_change
    }

    /// The stream of this cluster that was verified last and says that a source is up.
    fn last_up(&self, of: &StreamId, source: &str) -> Option<&Stream> {
        let others = self.streams.iter().filter(|(id, _)| *id != of && id.uid == of.uid);
        let up = others.filter(|(_, s)| s.verified.as_ref().is_some_and(|v| v.content.is_up(source)));
        let word = |stream: &Stream| stream.verified.as_ref().map(|verified| verified.last_word());
        up.map(|(_, stream)| stream.as_ref()).reduce(|a, b| if word(b) > word(a) { b } else { a })
    }
}

/// What a feed says, with its name if it has one.
pub fn named(feed: &str, text: &str) -> String {
    if feed.is_empty() { text.to_owned() } else { format!("feed {feed}: {text}") }
}

/// The identity of a package as its samples are kept. What has a NUL in it is none: it would be another one's key.
pub fn key(package: &PackageRef) -> String {
    let PackageRef { source, namespace, name } = package;
    if [Some(source), namespace.as_ref(), Some(name)].into_iter().flatten().any(|part| part.contains('\0')) {
        return package::NOBODY.to_owned();
    }
    package::key(source, namespace.as_deref().unwrap_or_default(), name)
}

/// The package that a [`key`] stands for.
fn id(key: &str) -> PackageRef {
    let (source, namespace, name) = package::parts(key);
    let namespace = Some(namespace.to_owned()).filter(|it| !it.is_empty());
    PackageRef { source: source.to_owned(), namespace, name: name.to_owned() }
}

impl Fleet {
    /// An empty fleet.
    pub fn new(settings: FleetSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// From now on these are believed about other clusters. Gives what is to be told of those that were until now.
    pub fn believe(&mut self, speakers: Speakers) -> BTreeSet<String> {
        if self.speakers == speakers {
            return BTreeSet::new();
        }
        let verified = self.clusters.iter().flat_map(|(name, cluster)| {
            cluster.streams.values().filter_map(move |stream| Some((name, stream.verified.as_ref()?)))
        });
        let no_longer =
            verified.filter_map(|(name, it)| self.speakers.withdrawn(&speakers, name, &it.content));
        let no_longer = no_longer.collect();
        self.speakers = speakers;
        self.changes.everything();
        no_longer
    }

    /// The cluster of this name, from now on if there was none.
    fn cluster<'a>(
        clusters: &'a mut BTreeMap<String, Cluster>,
        changes: &mut Changes,
        speakers: &Speakers,
        name: &str,
    ) -> &'a mut Cluster {
        if !clusters.contains_key(name) {
            // What another exporter says of it is held against this one from now on.
            if speakers.tell_of(name) {
                changes.everything();
            }
            clusters.insert(name.to_owned(), Cluster { place: changes.place(), ..Cluster::default() });
        }
        clusters.entry(name.to_owned()).or_default()
    }

    /// Changes the cluster of this name, and hands on where it notes what changes.
    fn change<R>(&mut self, name: &str, change: impl FnOnce(&mut Cluster, &mut Changes) -> R) -> R {
        let cluster = match self.clusters.get_mut(name) {
            Some(known) => known,
            None => Self::cluster(&mut self.clusters, &mut self.changes, &self.speakers, name),
        };
        change(cluster, &mut self.changes)
    }

    /// Takes note of digest samples that the poll at `t` found, and says what they call for.
    pub fn hear(&mut self, digests: &Digests, t: Seconds) -> Heard {
        let settings = self.settings;
        self.change(&digests.cluster, |cluster, changes| cluster.hear(digests, t, &settings, changes))
    }

    /// The same of all that the poll found, in the order of clusters: as these are kept so, none is looked up.
    pub fn hear_all(&mut self, found: &[Digests], t: Seconds) -> Vec<Heard> {
        let mut known = self.clusters.iter_mut().peekable();
        let of_known = found.iter().map(|digests| {
            while known.next_if(|(name, _)| name.as_str() < &*digests.cluster).is_some() {}
            let (_, cluster) = known.peek_mut().filter(|(name, _)| name.as_str() == &*digests.cluster)?;
            Some(cluster.hear(digests, t, &self.settings, &mut self.changes))
        });
        let of_known: Vec<Option<Heard>> = of_known.collect();
        let of_all = found.iter().zip(of_known);
        of_all.map(|(digests, heard)| heard.unwrap_or_else(|| self.hear(digests, t))).collect()
    }

    /// Takes note that the poll at `t` found more streams of a cluster than are kept: not all were told.
    pub fn crowd(&mut self, cluster: &str, t: Seconds) {
        if let Some(cluster) = self.clusters.get_mut(cluster) {
            cluster.crowd(t, &mut self.changes);
        }
    }

    /// Takes the verified content that a digest sample attests.
    pub fn accept(
        &mut self,
        (name, id): (&str, &StreamId),
        sample: &DigestSample,
        content: Content,
        t: Seconds,
    ) -> Accepted {
        let cluster = Self::cluster(&mut self.clusters, &mut self.changes, &self.speakers, name);
        if let Err(fault) = cluster.make_room_for(id, stream::bytes(&content), &mut self.changes) {
            cluster.streams.entry(id.clone()).or_default().reject(fault.clone());
            cluster.changed(&mut self.changes);
            return Accepted { refused: Some(fault), ..Accepted::default() };
        }
        let mut stream = cluster.streams.remove(id).unwrap_or_default();
        let same_sources = stream.verified.as_ref().is_some_and(|old| old.content.has_same_sources(&content));
        let known = stream.verified.as_ref().map(|old| old.content.packages.keys());
        let unbelieved = if known == Some(content.packages.keys()) {
            None
        } else {
            self.speakers.unbelieved(name, &content)
        };
        let changes = &mut self.changes;
        let sibling = |key: &str| {
            let sibling = cluster.last_up(id, package::parts(key).0)?.verified.as_ref()?;
            Some((sibling.find(key), sibling.last_word()))
        };
        let mut accepted =
            stream.accept(sample, content, t, &mut self.names, |key| changes.package(key), sibling);
        accepted.claims.extend(unbelieved);
        cluster.streams.insert(id.clone(), stream);
        cluster.face = cluster.face.filter(|_| same_sources);
        cluster.changed(&mut self.changes);
        accepted
    }

    /// Notes why what a stream's newest digest samples attest did not verify. What was verified before stays, and
    /// ages.
    pub fn reject(&mut self, (name, id): (&str, &StreamId), fault: String) {
        self.change(name, |cluster, changes| cluster.change(id, changes, |stream| stream.reject(fault)));
    }

    /// What was last verified of a stream.
    pub fn verified(&self, cluster: &str, stream: &StreamId) -> Option<&Content> {
        Some(&self.clusters.get(cluster)?.streams.get(stream)?.verified.as_ref()?.content)
    }

    /// Why what a stream's newest digest attests is not verified, if it is not.
    pub fn fault(&self, cluster: &str, stream: &StreamId) -> Option<&str> {
        self.clusters.get(cluster)?.streams.get(stream)?.fault.as_deref()
    }

    /// How many samples a cluster's streams were when last verified; None when some stream never was.
    pub fn samples(&self, cluster: &str) -> Option<u64> {
        let live = self.clusters.get(cluster)?.live();
        live.iter().map(|vote| vote.verified.map(|verified| verified.content.samples)).sum()
    }

    /// A feed's poll at `t` got its answers: drops what was not heard from by it for long.
    pub fn answered(&mut self, feed: &str, t: Seconds) {
        if self.errors.remove(feed).is_some() {
            self.changes.everything();
        }
        let before = t - self.settings.forget_after;
        let changes = &mut self.changes;
        self.clusters.retain(|_, cluster| {
            let mut may_change = cluster.looked(feed, t);
            let replaced = cluster.replaced();
            cluster.streams.retain(|id, stream| {
                let is_old = *id.feed == *feed && stream.last_heard() < before;
                let stays = !is_old && !replaced.contains(id);
                if !stays {
                    may_change = true;
                    let verified = stream.verified.iter();
                    verified
                        .flat_map(|v| v.content.packages.keys().iter())
                        .for_each(|key| changes.package(key));
                }
                stays
            });
            let stays = !cluster.streams.is_empty();
            if !stays {
                changes.gone(cluster.place);
            } else if may_change {
                cluster.changed(changes);
            }
            stays
        });
    }

    /// A feed's poll failed. Everything stays as it is, and ages.
    pub fn unanswered(&mut self, feed: &str, error: String) {
        self.errors.insert(feed.into(), named(feed, &error));
        for cluster in self.clusters.values_mut() {
            let of_feed = cluster.streams.iter_mut().filter(|(id, _)| *id.feed == *feed);
            of_feed.for_each(|(_, stream)| stream.cut_off());
            // A stream that is cut off may be silent beside another one of its cluster, until a poll hears of it again.
            cluster.changed(&mut self.changes);
        }
        self.changes.everything();
    }

    /// Whether all that counts for whole clusters was taken note of.
    #[cfg(test)]
    pub(crate) fn is_noted(&self) -> bool {
        let mut faces = self.clusters.values().map(|cluster| (cluster.face(), cluster.face));
        faces.all(|(is, noted)| is.is_none() || is == noted)
    }

    /// Why a feed does not answer, if it does not, with its name.
    pub(crate) fn error_of(&self, feed: &str) -> Option<&str> {
        self.errors.get(feed).map(String::as_str)
    }

    /// Why any feed does not answer.
    fn any_error(&self) -> Option<&str> {
        self.errors.values().map(String::as_str).next()
    }

    /// Time of the youngest verified evidence of any cluster.
    pub fn newest_evidence(&self) -> Option<Seconds> {
        let streams = self.clusters.values().flat_map(|c| c.streams.values());
        streams.filter_map(|s| s.evidence_so_far()).reduce(f64::max)
    }

    /// How old the youngest verified evidence of each cluster is at `t`; clusters of which nothing
    /// was ever verified have no age.
    pub fn ages(&self, t: Seconds) -> Vec<Seconds> {
        let evidence =
            |cluster: &Cluster| cluster.streams.values().filter_map(|s| s.evidence_so_far()).reduce(f64::max);
        self.clusters.values().filter_map(evidence).map(|evidence| t - evidence).collect()
    }

    /// Largest difference between clocks that is believed, in seconds.
    pub fn max_clock_skew(&self) -> Seconds {
        self.settings.max_clock_skew
    }

    /// The longest scrape interval of any cluster, in whole seconds; 0 when none is known.
    pub fn slowest_scrapes(&self) -> Seconds {
        self.clusters.values().filter_map(Cluster::scrape_seconds).fold(0.0, f64::max)
    }

    /// How far apart the cluster's digest samples were seen to be, in whole seconds.
    pub fn scrape_interval(&self, cluster: &str) -> Option<Seconds> {
        self.clusters.get(cluster)?.scrape_seconds()
    }
}

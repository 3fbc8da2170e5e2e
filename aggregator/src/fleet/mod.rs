//! What is known about every cluster: plain memory, no I/O.
//!
//! ```text
//!   cluster name -> streams -> verified content (sources, reasons, packages)
//!                 |        \-> evidence time, clock offset, fault, memory of each package
//!                 \-> from when on its past is known
//! ```
//!
//! A poll tells it which digests it heard and what it verified; whoever decides asks [`Fleet::observe`].

mod access;
mod beat;
mod changes;
mod history;
mod look_back;
mod names;
pub mod observation;
mod observe;
#[cfg(test)]
mod observe_tests;
mod offset;
pub mod past;
#[cfg(test)]
mod soak_tests;
mod stream;
#[cfg(test)]
mod tests;
mod unscraped;
mod view;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statusbridge_contract::{Fingerprint, Metric, stream::StreamLabels};

pub use access::{Access, FEED_LABEL, FeedName, feed_of};
pub use beat::{Beat, Heard, TURNS_UNTOLD, Turns};
pub use changes::{Clusters, Mark, Since};
pub use look_back::IdentityLabels;
pub use observation::{Observation, PackageId, Row, Standing};
pub use view::StreamView;

use crate::{
    clock::Seconds,
    verify::{Content, content},
};
use changes::{Changes, Face};
use names::Names;
use stream::{Stream, Unseen};
use unscraped::Unscraped;
use watch::{Watch, longest_gap};

/// Limits by which evidence is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetSettings {
    /// Largest difference between a cluster's clock and the backend's.
    pub max_clock_skew: Seconds,
    /// How long two streams may disagree about a package before it is a conflict.
    pub conflict_after: Seconds,
    /// Streams not heard from for so long are forgotten.
    pub forget_after: Seconds,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { max_clock_skew: 60.0, conflict_after: 60.0, forget_after: 3600.0 }
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
}

#[derive(Debug, Default)]
struct Cluster {
    /// Where it is in what is noted of changes.
    place: u32,
    /// Boxed, as a map has room for many more than the one that most clusters have.
    streams: BTreeMap<StreamLabels, Box<Stream>>,
    watch: Watch,
}

impl Cluster {
    /// Whether it reports the package with this key, or did lately.
    fn reports(&self, key: &str) -> bool {
        let mut verified = self.streams.values().filter_map(|s| s.verified.as_ref());
        verified.any(|v| v.content.has(key))
    }

    /// How far apart its digest samples are.
    fn scrape_interval(&self) -> Option<Seconds> {
        self.streams.values().filter_map(|stream| stream.interval()).reduce(f64::max)
    }

    /// How far apart its digest samples are, in whole seconds: that stands still.
    fn scrape_seconds(&self) -> Option<Seconds> {
        self.scrape_interval().map(Seconds::round)
    }

    /// The poll at `t` verified what a stream was at `at`, or found it confirmed. Whether its past is known
    /// from another time on than before.
    fn watched(&mut self, stream: &StreamLabels, at: Seconds, t: Seconds) -> bool {
        let longest_gap = longest_gap(self.scrape_interval());
        let verified = self.streams.get(stream).and_then(|s| s.verified.as_ref());
        verified.is_some_and(|verified| self.watch.saw(&verified.content, at.min(t), t, longest_gap))
    }
}

/// What a feed says, with its name if it has one.
pub fn named(feed: &str, text: &str) -> String {
    if feed.is_empty() { text.to_owned() } else { format!("feed {feed}: {text}") }
}

/// The identity of a package as its samples are kept.
pub(crate) fn key(package: &PackageId) -> String {
    content::key(&package.source, package.namespace.as_deref().unwrap_or_default(), &package.name)
}

/// The package that a [`key`] stands for.
fn id(key: &str) -> PackageId {
    let (source, namespace, name) = content::parts(key);
    let namespace = Some(namespace.to_owned()).filter(|it| !it.is_empty());
    PackageId { source: source.to_owned(), namespace, name: name.to_owned() }
}

impl Fleet {
    /// An empty fleet.
    pub fn new(settings: FleetSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The cluster of this name, from now on if there was none.
    fn cluster<'a>(
        clusters: &'a mut BTreeMap<String, Cluster>,
        changes: &mut Changes,
        name: &str,
    ) -> &'a mut Cluster {
        if !clusters.contains_key(name) {
            clusters.insert(name.to_owned(), Cluster { place: changes.place(), ..Cluster::default() });
        }
        clusters.entry(name.to_owned()).or_default()
    }

    /// Takes note of a digest sample found by the poll at `t`, and says what it calls for.
    pub fn hear(&mut self, beat: &Beat, t: Seconds) -> Heard {
        let cluster = match self.clusters.get_mut(&beat.cluster) {
            Some(known) => known,
            None => Self::cluster(&mut self.clusters, &mut self.changes, &beat.cluster),
        };
        let scraped = cluster.scrape_seconds();
        let stream = match cluster.streams.get_mut(&beat.stream) {
            Some(known) => known,
            None => cluster.streams.entry(beat.stream.clone()).or_default(),
        };
        let (face, evidence) = (Face::of(stream, &self.settings), stream.evidence_so_far());
        let heard = stream.hear(beat, t);
        let mut changed = Face::of(stream, &self.settings) != face;
        if heard == Heard::Confirmed {
            changed |= cluster.watched(&beat.stream, beat.at, t);
        }
        changed |= cluster.scrape_seconds() != scraped || !cluster.is_calm(&beat.stream, evidence);
        if changed {
            self.changes.cluster(cluster.place);
        }
        self.changes.evidence(cluster.place, &cluster.verified(), &self.settings);
        heard
    }

    /// Takes the verified content that a digest sample attests. Says whether the stream recovered:
    /// whether what an earlier digest sample attested had not verified.
    pub fn accept(&mut self, beat: &Beat, content: Content, t: Seconds) -> bool {
        let cluster = Self::cluster(&mut self.clusters, &mut self.changes, &beat.cluster);
        let mut stream = cluster.streams.remove(&beat.stream).unwrap_or_default();
        let recovered = stream.fault.is_some();
        let uid = content.uid;
        let (face, evidence) = (Face::of(&stream, &self.settings), stream.evidence_so_far());
        let same_sources = stream.verified.as_ref().is_some_and(|old| old.content.has_same_sources(&content));
        let changes = &mut self.changes;
        let mut unseen = Vec::new();
        stream.accept(
            beat,
            content,
            t,
            &mut self.names,
            |key, moves| {
                changes.package(key);
                unseen.extend((moves == Unseen(true)).then(|| key.clone()));
            },
            |key| {
                let siblings = cluster.streams.values().filter_map(|s| Some((s, s.verified.as_ref()?)));
                siblings
                    .filter(|(_, verified)| verified.content.uid == uid)
                    .filter_map(|(s, verified)| {
                        verified.find(key).map(|(p, h)| (verified.evidence, p, h, s.offset))
                    })
                    .max_by(|a, b| a.0.total_cmp(&b.0))
                    .map(|(last, package, history, offset)| (package, history, offset, last))
            },
        );
        let same = same_sources && Face::of(&stream, &self.settings) == face;
        cluster.streams.insert(beat.stream.clone(), stream);
        let watched = cluster.watched(&beat.stream, beat.at, t);
        unseen.iter().for_each(|key| cluster.watch.missed(key, t));
        if !same || watched || !cluster.is_calm(&beat.stream, evidence) {
            self.changes.cluster(cluster.place);
        }
        self.changes.evidence(cluster.place, &cluster.verified(), &self.settings);
        recovered
    }

    /// Notes why what a digest sample attests did not verify, and which cluster's UID came with it. What was
    /// verified before stays, and ages.
    pub fn reject(&mut self, beat: &Beat, fault: String, uid: Option<u64>) {
        let cluster = Self::cluster(&mut self.clusters, &mut self.changes, &beat.cluster);
        let stream = cluster.streams.entry(beat.stream.clone()).or_default();
        let face = Face::of(stream, &self.settings);
        stream.reject(beat, fault, uid);
        if Face::of(stream, &self.settings) != face {
            self.changes.cluster(cluster.place);
        }
    }

    /// What was last verified of a stream.
    pub fn verified(&self, cluster: &str, stream: &StreamLabels) -> Option<&Content> {
        Some(&self.clusters.get(cluster)?.streams.get(stream)?.verified.as_ref()?.content)
    }

    /// Why what a stream's newest digest attests is not verified, if it is not.
    pub fn fault(&self, cluster: &str, stream: &StreamLabels) -> Option<&str> {
        self.clusters.get(cluster)?.streams.get(stream)?.fault.as_deref()
    }

    /// How many samples a cluster's streams were when last verified; None when some stream never was.
    pub fn samples(&self, cluster: &str) -> Option<u64> {
        let streams = self.clusters.get(cluster)?.streams.values();
        streams.map(|s| s.verified.as_ref().map(|v| v.content.samples)).sum()
    }

    /// A feed's poll at `t` got its answers: drops what was not heard from by it for long.
    pub fn answered(&mut self, feed: &str, t: Seconds) {
        if self.errors.remove(feed).is_some() {
            self.changes.everything();
        }
        let before = t - self.settings.forget_after;
        let (changes, settings) = (&mut self.changes, &self.settings);
        self.clusters.retain(|_, cluster| {
            let mut changed = false;
            cluster.streams.retain(|labels, stream| {
                let stays = feed_of(labels) != feed || stream.last_heard() >= before;
                if !stays {
                    changed = true;
                    let verified = stream.verified.iter();
                    verified
                        .flat_map(|v| v.content.packages.keys().iter())
                        .for_each(|key| changes.package(key));
                }
                stays
            });
            let verified = cluster.streams.values_mut().filter_map(|s| s.verified.as_mut());
            verified.for_each(|v| changed |= v.forget(before));
            let Cluster { streams, watch, .. } = cluster;
            let there = |s: &Stream, key: &str| s.verified.as_ref().is_some_and(|v| v.content.has(key));
            watch.keep(|key| streams.values().any(|s| there(s, key)));
            let stays = !cluster.streams.is_empty();
            match (stays, changed) {
                (false, _) => changes.gone(cluster.place),
                (true, true) => {
                    changes.cluster(cluster.place);
                    changes.evidence(cluster.place, &cluster.verified(), settings);
                }
                (true, false) => {}
            }
            stays
        });
    }

    /// A feed's poll failed. Everything stays as it is, and ages.
    pub fn unanswered(&mut self, feed: &str, error: String) {
        self.errors.insert(feed.into(), named(feed, &error));
        self.changes.everything();
    }

    /// Why a feed does not answer, if it does not, with its name.
    pub fn error_of(&self, feed: &str) -> Option<&str> {
        self.errors.get(feed).map(String::as_str)
    }

    /// Why any feed does not answer.
    fn any_error(&self) -> Option<&str> {
        self.errors.values().map(String::as_str).next()
    }

    /// The feed that last brought verified data of a package in a cluster.
    pub fn feed_of(&self, cluster: &str, package: &PackageId) -> Option<&str> {
        let key = key(package);
        let streams = &self.clusters.get(cluster)?.streams;
        let verified = streams.iter().filter_map(|(labels, s)| Some((labels, s.verified.as_ref()?)));
        let has = verified.filter(|(_, v)| v.content.has(&key));
        has.max_by(|a, b| a.1.evidence.total_cmp(&b.1.evidence)).map(|(labels, _)| feed_of(labels))
    }

    /// Sorted names of the clusters that report the package or did lately, stale ones included.
    pub fn reporting(&self, package: &PackageId) -> Vec<String> {
        let key = key(package);
        self.clusters.iter().filter(|(_, c)| c.reports(&key)).map(|(name, _)| name.clone()).collect()
    }

    /// Every package of which verified data is known of a cluster where it may be looked at.
    /// `may_look` is asked once for each package, and gives the question about clusters.
    pub fn packages<M: Fn(&str) -> bool>(&self, may_look: impl Fn(&PackageId) -> M) -> BTreeSet<PackageId> {
        let mut hidden = HashMap::<&str, (PackageId, M)>::new();
        let mut found = HashMap::<&str, PackageId>::new();
        for (name, cluster) in &self.clusters {
            let verified = cluster.streams.values().filter_map(|s| s.verified.as_ref());
            for key in verified.flat_map(|v| v.content.packages.keys().iter()) {
                let key = key.as_ref();
                if found.contains_key(key) {
                    continue;
                }
                let (id, may_look) = hidden.remove(key).unwrap_or_else(|| {
                    let id = id(key);
                    let may_look = may_look(&id);
                    (id, may_look)
                });
                match may_look(name) {
                    true => drop(found.insert(key, id)),
                    false => drop(hidden.insert(key, (id, may_look))),
                }
            }
        }
        found.into_values().collect()
    }

    /// Every revision of the package that some cluster was seen to want, have applied or have healthy, with
    /// the sorted names of the clusters.
    pub fn revisions(&self, package: &PackageId) -> BTreeMap<Fingerprint, Vec<&str>> {
        const REVISIONS: [Metric; 3] =
            [Metric::PackageDesiredRevision, Metric::PackageAppliedRevision, Metric::PackageHealthyRevision];
        let key = key(package);
        let mut seen: BTreeMap<Fingerprint, Vec<&str>> = BTreeMap::new();
        for (name, cluster) in &self.clusters {
            let verified = cluster.streams.values().filter_map(|s| s.verified.as_ref()?.find(&key));
            for (package, history) in verified {
                let own = REVISIONS.map(|metric| package.revision(metric)).into_iter();
                for revision in own.chain([history.previously_applied]).filter(|r| !r.is_none()) {
                    let clusters = seen.entry(revision).or_default();
                    if clusters.last() != Some(&name.as_str()) {
                        clusters.push(name);
                    }
                }
            }
        }
        seen
    }

    /// Time of the youngest verified evidence of any cluster.
    pub fn newest_evidence(&self) -> Option<Seconds> {
        let streams = self.clusters.values().flat_map(|c| c.streams.values());
        streams.filter_map(|s| s.verified.as_ref().map(|v| v.evidence)).reduce(f64::max)
    }

    /// How old the youngest verified evidence of each cluster is at `t`; clusters of which nothing
    /// was ever verified have no age.
    pub fn ages(&self, t: Seconds) -> Vec<Seconds> {
        let evidence = |cluster: &Cluster| {
            let verified = cluster.streams.values().filter_map(|s| s.verified.as_ref());
            verified.map(|v| v.evidence).reduce(f64::max)
        };
        self.clusters.values().filter_map(evidence).map(|evidence| t - evidence).collect()
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

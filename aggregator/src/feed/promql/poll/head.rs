//! What came of one stream's labels, and the streams that it is of: mostly one, as clusters and processes that write under the
//! same labels are told apart.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Fingerprint, Metric, label};
use statusbridge_core::fleet::{
    DigestSample, Digests, Exposition, FeedName, MOST_STREAMS, Parts, Signs, StreamId, lack_of,
};
use statusbridge_core::time::Seconds;

use super::part_digests::{PartDigests, Speech};
use super::recognition::{Last, Series};
use super::window::milliseconds;

/// Samples of a digest that are looked at in one poll, of each stream: the newest. One that is as old as a part may be late
/// is among them where a scrape takes at least a second.
const SAMPLES: usize = 64;
/// Digests that will be believed when their time comes: so many of a cluster are looked at, under the labels of a stream.
const MOST_SOON: usize = 64;
/// Digests that are stamped too far ahead: a poll looks at so many under a cluster's name, and notes them. They come in two days of
/// scrapes every five seconds.
pub(super) const MOST_FAR_OF_CLUSTER: usize = 40_000;
/// The same of all.
pub(super) const MOST_FAR: usize = 2_000_000;
/// Streams that are told of one cluster, and of one stream's labels: one more than are kept tells that there are too many.
pub(super) const STREAMS: usize = MOST_STREAMS + 1;

/// Timestamp in milliseconds and value of a digest, None for what is no whole number.
pub(super) type Stamped = (i64, Option<u64>);

/// What came of one stream's labels.
#[derive(Default)]
pub(super) struct Head {
    /// Mostly of one.
    pub(super) digests: Vec<(Arc<Speech>, Vec<Stamped>)>,
    pub(super) parts: PartDigests,
    /// Whether there are more of these than are kept.
    pub(super) is_crowded: bool,
    pub(super) rendered: Series,
    pub(super) process: Series,
    /// Digests that are to come, by the clusters' UIDs.
    pub(super) to_come: BTreeMap<Option<Fingerprint>, Coming>,
    pub(super) is_heard: bool,
    /// By which process, where all of its digests were recognized.
    pub(super) recognized: Option<u64>,
}

/// Digests of one cluster whose time has not come.
#[derive(Default)]
pub(super) struct Coming {
    /// Those that will be believed then, the latest ones.
    pub(super) soon: VecDeque<Stamped>,
    /// Of the others as many as there is room for, and the latest stamp of those for which there is none.
    pub(super) far: Vec<Stamped>,
    pub(super) left_out: Option<i64>,
}

impl Coming {
    /// Adds the next one; those that are too far ahead take of the room of their cluster, and of all.
    pub(super) fn add(&mut self, sample: Stamped, is_soon: bool, rooms: [&mut usize; 2]) {
        if is_soon {
            if self.soon.len() == MOST_SOON {
                self.soon.pop_front();
            }
            self.soon.push_back(sample);
        } else if rooms.iter().all(|room| **room > 0) {
            rooms.into_iter().for_each(|room| *room -= 1);
            self.far.push(sample);
        } else {
            self.left_out = self.left_out.max(Some(sample.0));
        }
    }
}

/// The streams that write under the same labels: one for each cluster and process, and no more than are told.
pub(super) struct OfHead {
    pub(super) all: Vec<Digests>,
    pub(super) is_crowded: bool,
    /// Whose contract version the last of them has.
    speech: Option<Arc<Speech>>,
}

impl OfHead {
    /// Takes a stream that is not known yet.
    fn push(&mut self, digests: Digests) {
        if self.all.len() >= STREAMS {
            self.is_crowded = true;
            return;
        }
        self.all.push(digests);
    }

    /// By what the next digest is recognized, where one stream alone writes under these labels.
    pub(super) fn last(&self) -> Option<Last> {
        let [only] = self.all.as_slice() else { return None };
        Last::of(only, self.speech.clone()?)
    }

    /// The first one of this cluster and process: their labels are the same.
    fn find(&mut self, uid: Option<Fingerprint>, process: u64) -> Option<&mut Digests> {
        self.all.iter_mut().find(|it| (it.stream.uid, it.stream.process) == (uid, process))
    }
}

impl Head {
    /// Digests of this cluster that are to come, unless there are too many clusters.
    pub(super) fn coming(&mut self, uid: Option<Fingerprint>) -> Option<&mut Coming> {
        let has_room = self.to_come.len() < STREAMS || self.to_come.contains_key(&uid);
        self.is_crowded |= !has_room;
        has_room.then(|| self.to_come.entry(uid).or_default())
    }

    /// Whether all digests are of the state of last time; then it is known when each was rendered, and by which process.
    pub(super) fn recognize(&mut self, last: &Last) -> bool {
        let [(speech, samples)] = self.digests.as_slice() else { return false };
        if self.is_crowded || *speech != last.speech {
            return false;
        }
        let Some(rendered) = last.rendered(samples) else { return false };
        (self.rendered, self.recognized) = (rendered, Some(last.process));
        true
    }

    /// The streams that write under these labels; `signs` are those of each cluster's UID.
    pub(super) fn streams(
        mut self,
        feed: &FeedName,
        cluster: &Arc<str>,
        labels: &Arc<StreamLabels>,
        signs: BTreeMap<Option<Fingerprint>, Signs>,
        no_parts: &Arc<Parts>,
    ) -> OfHead {
        let mut streams = OfHead { all: Vec::new(), is_crowded: false, speech: None };
        let told = |uid, process, contract: &Arc<str>| Digests {
            cluster: cluster.clone(),
            stream: StreamId { feed: feed.clone(), labels: labels.clone(), uid, process },
            contract: contract.clone(),
            samples: Vec::new(),
            parts: no_parts.clone(),
            is_torn: false,
            lack: None,
            seen: None,
            signs: Signs::default(),
        };
        self.rendered.sort_unstable();
        self.process.sort_unstable();
        // By contract version and UID, whatever the backend's order is.
        self.digests.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (speech, mut samples) in self.digests {
            // Two replicas may write as one stream, where the label that tells them apart is ignored.
            samples.sort_by_key(|(at, _)| *at);
            let seen = samples.last().map(|(at, _)| *at as Seconds / 1000.0);
            let Speech { contract, uid, .. } = &*speech;
            let uid = *uid;
            let (mut newest_lack, mut is_whole) = (None, false);
            let mut last_process = 0;
            for (at, digest) in samples {
                let rendered = value_at(&self.rendered, at);
                let process = self.recognized.as_ref().or_else(|| value_at(&self.process, at));
                newest_lack = lack(uid, digest, rendered, process);
                last_process = process.copied().unwrap_or(last_process);
                let (Some(digest), Some(rendered), None) = (digest, rendered, &newest_lack) else { continue };
                let sample = DigestSample {
                    at: at as Seconds / 1000.0,
                    exposition: Exposition { digest, rendered: *rendered },
                };
                match streams.find(uid, last_process) {
                    // Two digests of one scrape, of two versions: that of the later one counts.
                    Some(known) if number(&known.contract) < number(contract) => {
                        known.contract.clone_from(contract);
                        known.samples = vec![sample];
                        streams.speech = Some(speech.clone());
                    }
                    Some(known) if number(&known.contract) > number(contract) => continue,
                    Some(known) => known.samples.push(sample),
                    None => {
                        streams.push(Digests { samples: vec![sample], ..told(uid, last_process, contract) });
                        streams.speech = Some(speech.clone());
                    }
                }
                is_whole = true;
            }
            let Some(lack) = newest_lack else { continue };
            if !is_whole {
                streams.push(Digests { lack: Some(lack), seen, ..told(uid, last_process, contract) });
            } else if let Some(last) = streams.all.iter_mut().rfind(|it| it.stream.uid == uid) {
                // The newest scrape may only be late in part: what the ones before said stands until one is whole.
                last.seen = seen;
            }
        }
        for (uid, signs) in signs {
            let of_uid = streams.all.iter_mut().filter(|it| it.stream.uid == uid);
            of_uid.for_each(|it| it.signs.doubted = signs.doubted);
            match streams.all.iter_mut().rfind(|it| it.stream.uid == uid) {
                Some(last) => last.signs = signs,
                None if signs.is_empty() => {}
                None => streams.push(Digests { signs, ..told(uid, 0, &Arc::default()) }),
            }
        }
        let mut parts = self.parts.by_scrape();
        for digests in &mut streams.all {
            if let Some(newest) = digests.samples.last() {
                let whole = (digests.contract.clone(), digests.stream.uid, milliseconds(newest.at));
                if let Some(parts) = parts.remove(&whole) {
                    digests.parts = parts.into();
                }
            }
            let excess = digests.samples.len().saturating_sub(SAMPLES);
            digests.samples.drain(..excess);
        }
        streams
    }
}

/// The value that is stamped so, of a sorted series.
fn value_at(series: &Series, at: i64) -> Option<&u64> {
    let place = series.binary_search_by_key(&at, |(at, _)| *at).ok()?;
    series.get(place).map(|(_, value)| value)
}

/// The number of a contract version.
fn number(contract: &str) -> u64 {
    contract.parse().unwrap_or_default()
}

/// Why a digest cannot be used, if it cannot.
fn lack(
    uid: Option<Fingerprint>,
    digest: Option<u64>,
    rendered: Option<&u64>,
    process: Option<&u64>,
) -> Option<String> {
    match (uid, digest, rendered, process) {
        (None, ..) => Some(format!(
            "its digest has no label {}: the exporter does not say whose it is",
            label::CLUSTER_UID
        )),
        (_, None, ..) => Some(format!("the value of {} is no whole number", Metric::Digest.name())),
        (_, _, None, _) => Some(lack_of(Metric::RenderedTimestamp)),
        (.., None) => Some(lack_of(Metric::ProcessNumber)),
        (Some(_), Some(_), Some(_), Some(_)) => None,
    }
}

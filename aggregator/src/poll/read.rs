//! Sorts the samples of an answer into the streams that they belong to.

use std::collections::{BTreeMap, HashMap};

use statusbridge_contract::{Metric, stream, stream::StreamLabels};

use super::PollConfig;
use crate::{
    clock::Seconds,
    feed::{Labels, Sample, Sink},
    fleet::Beat,
    verify::{Gathered, Stray},
};

/// Streams without a digest that are told apart, for one cluster.
const STRAYS: usize = 4;

/// What to do with samples of a stream.
#[derive(Clone, Copy)]
enum Place {
    /// They are gathered under this number.
    Due(usize),
    /// The stream has a digest, and nothing of it is due.
    Other,
}

/// Gathers the samples of streams that are due.
pub(super) struct Read {
    ignored: Vec<String>,
    cluster_label: String,
    places: HashMap<StreamLabels, Place>,
    gathered: Vec<Gathered>,
    /// When reading raw: only samples stamped like this are kept, by number.
    stamps: Option<Vec<Seconds>>,
    /// When reading raw, by cluster.
    cluster_stamps: HashMap<String, Vec<Seconds>>,
    strays: HashMap<String, BTreeMap<StreamLabels, Stray>>,
    pub(super) samples: u64,
}

impl Read {
    /// Gathers for `due`; `beats` are all streams that have a digest. When reading `raw`, only
    /// samples stamped like their stream's digest are kept.
    pub(super) fn at(config: &PollConfig, due: &[Beat], beats: &[Beat], raw: bool) -> Self {
        let mut places: HashMap<StreamLabels, Place> =
            beats.iter().map(|b| (b.stream.clone(), Place::Other)).collect();
        let mut cluster_stamps: HashMap<String, Vec<Seconds>> = HashMap::new();
        for (i, beat) in due.iter().enumerate() {
            places.insert(beat.stream.clone(), Place::Due(i));
            cluster_stamps.entry(beat.cluster.clone()).or_default().push(beat.at);
        }
        Self {
            ignored: config.ignored_labels.clone(),
            cluster_label: config.cluster_label.clone(),
            places,
            gathered: due.iter().map(|_| Gathered::default()).collect(),
            stamps: raw.then(|| due.iter().map(|b| b.at).collect()),
            cluster_stamps,
            strays: HashMap::new(),
            samples: 0,
        }
    }

    /// What was gathered for each due stream, and by cluster what belongs to none.
    pub(super) fn finish(self) -> (Vec<Gathered>, HashMap<String, Vec<Stray>>) {
        let strays = self.strays.into_iter().map(|(cluster, s)| (cluster, s.into_values().collect()));
        (self.gathered, strays.collect())
    }

    fn stray(&mut self, metric: Metric, labels: StreamLabels, samples: &[Sample]) {
        let cluster = labels.get(&self.cluster_label).cloned().unwrap_or_default();
        if self.stamps.is_some() {
            let stamps = self.cluster_stamps.get(&cluster);
            if !stamps.is_some_and(|all| all.iter().any(|at| samples.iter().any(|s| s.stamped(*at)))) {
                return;
            }
        }
        let strays = self.strays.entry(cluster).or_default();
        if strays.len() < STRAYS || strays.contains_key(&labels) {
            let stray = strays.entry(labels.clone()).or_insert_with(|| Stray { labels, ..Stray::default() });
            *stray.metrics.entry(metric).or_default() += 1;
        }
    }
}

impl Sink for Read {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        self.samples += samples.len() as u64;
        let Some(metric) = labels.get("__name__").and_then(Metric::from_name) else { return };
        let owned = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned()));
        let split = stream::split(metric, owned, &self.ignored);
        match self.places.get(&split.stream) {
            Some(Place::Other) => {}
            Some(Place::Due(i)) => {
                let sample = match &self.stamps {
                    Some(stamps) => samples.iter().find(|s| s.stamped(stamps[*i])),
                    None => samples.last(),
                };
                if let Some(sample) = sample {
                    self.gathered[*i].add(metric, &split.own, *sample);
                }
            }
            None => self.stray(metric, split.stream, samples),
        }
    }
}

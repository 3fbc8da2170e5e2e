//! Sorts the samples of an answer into the streams that they belong to.

use std::collections::{BTreeMap, HashMap};

use statusbridge_contract::{Metric, Version, stream, stream::StreamLabels};

use super::PollConfig;
use crate::{
    clock::Seconds,
    feed::{Labels, Sample, Sink},
    fleet::{Beat, FEED_LABEL},
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

/// A stream's labels as the backend writes them.
fn as_returned(beat: &Beat) -> StreamLabels {
    let mut labels = beat.stream.clone();
    labels.remove(FEED_LABEL);
    labels
}

/// Gathers the samples of streams that are due.
pub(super) struct Read {
    ignored: Vec<String>,
    cluster_label: String,
    places: HashMap<StreamLabels, Place>,
    /// By number, like what is gathered: a digest covers what its version has.
    versions: Vec<Option<Version>>,
    gathered: Vec<Gathered>,
    /// When reading raw: only samples stamped like this are kept, by number.
    stamps: Option<Vec<Seconds>>,
    /// When reading raw, by cluster.
    cluster_stamps: HashMap<String, Vec<Seconds>>,
    strays: HashMap<String, BTreeMap<StreamLabels, Stray>>,
    /// Places by labels that are not our own, in the order and form in which the backend writes them.
    seen: HashMap<String, Place>,
    /// Such labels of the series at hand.
    rest: String,
    /// Those of the series before it, and their place: mostly the same.
    last: Option<(String, Place)>,
    pub(super) samples: u64,
}

impl Read {
    /// Gathers for `due`; `beats` are all streams of these clusters that have a digest. When reading
    /// `raw`, only samples stamped like their stream's digest are kept.
    pub(super) fn at<'b>(
        config: &PollConfig,
        due: &[Beat],
        beats: impl IntoIterator<Item = &'b Beat>,
        raw: bool,
    ) -> Self {
        let mut places: HashMap<StreamLabels, Place> =
            beats.into_iter().map(|b| (as_returned(b), Place::Other)).collect();
        let mut cluster_stamps: HashMap<String, Vec<Seconds>> = HashMap::new();
        for (i, beat) in due.iter().enumerate() {
            places.insert(as_returned(beat), Place::Due(i));
            cluster_stamps.entry(beat.cluster.clone()).or_default().push(beat.at);
        }
        Self {
            ignored: config.ignored_labels.clone(),
            cluster_label: config.cluster_label.clone(),
            places,
            versions: due.iter().map(|beat| Version::readable(&beat.contract)).collect(),
            gathered: due.iter().map(|_| Gathered::default()).collect(),
            stamps: raw.then(|| due.iter().map(|b| b.at).collect()),
            cluster_stamps,
            strays: HashMap::new(),
            seen: HashMap::new(),
            rest: String::new(),
            last: None,
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

impl Read {
    /// The usual case without allocating: no target label has a name of ours, and samples of the same
    /// labels but for our own came before.
    fn quickly(&mut self, metric: Metric, labels: &Labels, samples: &[Sample]) -> bool {
        let mut own = [("", ""); 3];
        let mut owned = 0;
        self.rest.clear();
        for (name, value) in labels.iter() {
            if name.starts_with("exported_") {
                return false;
            } else if let Some(name) = metric.labels().iter().find(|own| **own == name) {
                let Some(place) = own.get_mut(owned) else { return false };
                *place = (*name, value);
                owned += 1;
            } else if name != "__name__" {
                self.rest.extend([name, "\0", value, "\0"]);
            }
        }
        let place = match &self.last {
            Some((labels, place)) if *labels == self.rest => *place,
            _ => {
                let Some(place) = self.seen.get(&self.rest).copied() else { return false };
                let (labels, known) = self.last.get_or_insert_with(|| (String::new(), place));
                labels.clone_from(&self.rest);
                *known = place;
                place
            }
        };
        self.put(place, metric, &own[..owned], samples);
        true
    }

    fn put(&mut self, place: Place, metric: Metric, own: &[(&'static str, &str)], samples: &[Sample]) {
        let Place::Due(i) = place else { return };
        if !self.versions[i].is_some_and(|version| version.covers(metric)) {
            return;
        }
        let sample = match &self.stamps {
            Some(stamps) => samples.iter().find(|s| s.stamped(stamps[i])),
            None => samples.last(),
        };
        if let Some(sample) = sample {
            self.gathered[i].add(metric, own, *sample);
        }
    }
}

impl Sink for Read {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        self.samples += samples.len() as u64;
        let Some(metric) = labels.get("__name__").and_then(Metric::from_name) else { return };
        if self.quickly(metric, labels, samples) {
            return;
        }
        let owned = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned()));
        let split = stream::split(metric, owned, &self.ignored);
        let Some(place) = self.places.get(&split.stream).copied() else {
            return self.stray(metric, split.stream, samples);
        };
        if !labels.iter().any(|(name, _)| name.starts_with("exported_")) {
            self.seen.insert(std::mem::take(&mut self.rest), place);
        }
        let own: Vec<_> = split.own.iter().map(|(n, v)| (*n, v.as_str())).collect();
        self.put(place, metric, &own, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Exposition, healthy, stream};

    fn beat(instance: &str) -> Beat {
        Beat {
            cluster: "c".into(),
            stream: stream(&[("cluster", "c"), ("instance", instance), ("package", "target")]),
            contract: "1".into(),
            digest: None,
            at: 100.0,
            rendered: None,
            ..Beat::default()
        }
    }

    /// Every way a stream's labels may be written gives the same samples.
    #[test]
    fn samples_find_their_stream_however_labels_were_renamed() {
        let exposition = Exposition::new(7).with("p", healthy("r1", 1, 1)).with("q", healthy("r2", 2, 2));
        let due = [beat("i")];
        let mut read = Read::at(&PollConfig::default(), &due, &[beat("i"), beat("j")], false);
        for line in exposition.lines() {
            for instance in ["i", "j", "stray"] {
                let own = line.own();
                let renamed = own.iter().any(|(name, _)| *name == "package");
                let mut labels =
                    vec![("__name__", line.metric.name()), ("cluster", "c"), ("instance", instance)];
                labels.push(("package", "target"));
                labels.extend(
                    own.iter().map(|(n, v)| (if *n == "package" { "exported_package" } else { n }, *v)),
                );
                assert_eq!(renamed, labels.iter().any(|(n, _)| *n == "exported_package"));
                let sample = Sample { at: 100.0, value: line.value as f64 };
                read.series(&labels.into_iter().collect(), &[sample]);
            }
        }
        let lines = exposition.lines().len() as u64;
        assert_eq!(read.samples, 3 * lines);
        let (gathered, strays) = read.finish();
        assert_eq!((gathered[0].samples, gathered[0].digest.value()), (lines, exposition.digest()));
        assert_eq!(strays["c"][0].metrics.values().sum::<u64>(), lines);
    }

    #[test]
    fn raw_samples_count_only_when_stamped_like_the_digest() {
        let due = [beat("i")];
        let mut read = Read::at(&PollConfig::default(), &due, &due, true);
        let labels = [
            ("__name__", "statusbridge_cluster_uid"),
            ("cluster", "c"),
            ("instance", "i"),
            ("package", "target"),
        ];
        let sample = |at, value| Sample { at, value };
        read.series(
            &labels.into_iter().collect(),
            &[sample(99.0, 1.0), sample(100.0, 2.0), sample(101.0, 3.0)],
        );
        read.series(&labels.into_iter().collect(), &[sample(99.0, 1.0)]);
        let gathered = read.finish().0;
        assert_eq!((gathered[0].samples, gathered[0].uid), (1, Some(2)));
    }
}

//! Sorts the samples of an answer into the expositions that they belong to: by the labels of their stream and by the
//! very timestamp of the digest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Metric, Version};
use statusbridge_core::fleet::StreamId;
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;
use statusbridge_core::verify::{Gathered, Stray};

use super::{Due, PollConfig};

/// Streams without a digest that are told apart, for one cluster.
const STRAYS: usize = 4;

/// Gathers the samples of expositions that are due.
pub(super) struct Read {
    config: PollConfig,
    /// By labels: where in `due` the numbers of the expositions are.
    places: HashMap<Arc<StreamLabels>, usize>,
    /// Numbers and timestamps of the expositions of one stream's labels; none where nothing is due of it.
    due: Vec<Vec<(usize, Seconds)>>,
    /// By number, like what is gathered: a digest covers what its version has.
    versions: Vec<Option<Version>>,
    gathered: Vec<Gathered>,
    /// By cluster, the timestamps that are due.
    cluster_stamps: HashMap<String, Vec<Seconds>>,
    strays: HashMap<String, BTreeMap<StreamLabels, Stray>>,
    /// Places by labels that are not our own, in the order and form in which the backend writes them.
    seen: HashMap<String, usize>,
    /// Such labels of the series at hand.
    rest: String,
    /// Those of the series before it, and their place: mostly the same.
    last: Option<(String, usize)>,
    pub(super) samples: u64,
}

impl Read {
    /// Gathers for `due`; `streams` are all of these clusters that have a digest.
    pub(super) fn new<'b>(
        config: &PollConfig,
        due: &[Due],
        streams: impl IntoIterator<Item = &'b StreamId>,
    ) -> Self {
        let mut read = Self {
            config: config.clone(),
            versions: due.iter().map(|due| Version::readable(&due.contract)).collect(),
            gathered: due.iter().map(|_| Gathered::default()).collect(),
            places: HashMap::new(),
            due: Vec::new(),
            cluster_stamps: HashMap::new(),
            strays: HashMap::new(),
            seen: HashMap::new(),
            rest: String::new(),
            last: None,
            samples: 0,
        };
        for stream in streams {
            read.place(stream);
        }
        for (number, due) in due.iter().enumerate() {
            let place = read.place(&due.stream);
            #[expect(clippy::indexing_slicing, reason = "place gave it away just now")]
            read.due[place].push((number, due.sample.at));
            read.cluster_stamps.entry(due.cluster.clone()).or_default().push(due.sample.at);
        }
        read
    }

    /// Goes on from what was gathered before, in the order of what is due.
    pub(super) fn beside(mut self, kept: Vec<Gathered>) -> Self {
        self.gathered = kept;
        self
    }

    fn place(&mut self, stream: &StreamId) -> usize {
        let due = &mut self.due;
        *self.places.entry(stream.labels.clone()).or_insert_with(|| {
            due.push(Vec::new());
            due.len() - 1
        })
    }

    /// What was gathered for each exposition, and by cluster what belongs to none.
    pub(super) fn finish(self) -> (Vec<Gathered>, HashMap<String, Vec<Stray>>) {
        let strays = self.strays.into_iter().map(|(cluster, s)| (cluster, s.into_values().collect()));
        (self.gathered, strays.collect())
    }

    fn stray(&mut self, metric: Metric, labels: StreamLabels, samples: &[Sample]) {
        let cluster = labels.get(&self.config.exporters.cluster_label).cloned().unwrap_or_default();
        let stamps = self.cluster_stamps.get(&cluster);
        if !stamps.is_some_and(|all| all.iter().any(|at| samples.iter().any(|s| s.stamped(*at)))) {
            return;
        }
        let strays = self.strays.entry(cluster).or_default();
        if strays.len() < STRAYS || strays.contains_key(&labels) {
            let stray = strays.entry(labels.clone()).or_insert_with(|| Stray { labels, ..Stray::default() });
            *stray.metrics.entry(metric).or_default() += 1;
        }
    }

    /// The usual case without allocating: no target label has a name of ours, and samples of the same
    /// labels but for our own came before.
    fn quickly(&mut self, metric: Metric, labels: &Labels, samples: &[Sample]) -> bool {
        let mut own = [("", ""); 4];
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
        self.put(place, metric, own.get(..owned).unwrap_or_default(), samples);
        true
    }

    #[expect(clippy::indexing_slicing, reason = "places and numbers are those that new gave away")]
    fn put(&mut self, place: usize, metric: Metric, own: &[(&'static str, &str)], samples: &[Sample]) {
        for (number, at) in &self.due[place] {
            if self.versions[*number].is_some_and(|version| version.covers(metric))
                && let Some(sample) =
                    samples.iter().find(|sample| sample.stamped(*at) && !sample.value.is_nan())
            {
                self.gathered[*number].add(metric, own, *sample);
            }
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
        let split = labels.split(metric, &self.config.ignored_labels);
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
    use std::sync::Arc;

    use super::*;
    use crate::testing::poll_config;
    use statusbridge_core::fleet::DigestSample;
    use statusbridge_core::testing::{Exposition, healthy, stream};

    fn labels(instance: &str) -> StreamId {
        let labels = stream(&[("cluster", "c"), ("instance", instance), ("package", "target")]);
        StreamId { labels: labels.into(), ..StreamId::default() }
    }

    fn due(instance: &str, at: Seconds) -> Due {
        let sample = DigestSample { at, ..DigestSample::default() };
        Due {
            cluster: "c".into(),
            stream: labels(instance),
            contract: "2".into(),
            sample,
            parts: Arc::default(),
        }
    }

    /// Every way a stream's labels may be written gives the same samples.
    #[test]
    fn samples_find_their_stream_however_labels_were_renamed() {
        let exposition = Exposition::new(7).with("p", healthy("r1", 1)).with("q", healthy("r2", 2));
        let due = [due("i", 100.0)];
        let mut read = Read::new(&poll_config(), &due, &[labels("i"), labels("j")]);
        for line in exposition.lines() {
            for instance in ["i", "j", "stray"] {
                let own = line.own();
                let mut labels =
                    vec![("__name__", line.metric.name()), ("cluster", "c"), ("instance", instance)];
                labels.push(("package", "target"));
                labels.extend(
                    own.iter().map(|(n, v)| (if *n == "package" { "exported_package" } else { n }, *v)),
                );
                let sample = Sample { at: 100.0, value: line.value as f64 };
                read.series(&labels.into_iter().collect(), &[sample]);
            }
        }
        let lines = exposition.lines().len() as u64;
        assert_eq!(read.samples, 3 * lines);
        let (gathered, strays) = read.finish();
        assert_eq!((gathered[0].samples, gathered[0].digest), (lines, exposition.state()));
        assert_eq!(strays["c"][0].metrics.values().sum::<u64>(), lines);
    }

    #[test]
    fn samples_count_only_when_stamped_like_the_digest() {
        let due = [due("i", 100.0), due("i", 101.0)];
        let mut read = Read::new(&poll_config(), &due, []);
        let labels = [
            ("__name__", "statusbridge_process_number"),
            ("cluster", "c"),
            ("instance", "i"),
            ("package", "target"),
        ];
        let sample = |at, value| Sample { at, value };
        read.series(
            &labels.into_iter().collect(),
            &[sample(99.0, 1.0), sample(100.0, 2.0), sample(101.0, f64::NAN), sample(102.0, 3.0)],
        );
        let gathered = read.finish().0;
        assert_eq!((gathered[0].samples, gathered[0].process), (1, Some(2)));
        assert_eq!(gathered[1].samples, 0);
    }
}

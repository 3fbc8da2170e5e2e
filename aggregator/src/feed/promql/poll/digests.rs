//! Which digests a look finds: the samples of every stream's digest, with when its exposition was rendered, and by which process. The
//! latter is asked only of clusters where a digest is not what it was, but for the time.
//!
//! ```text
//!   raw samples --by labels and timestamp--> Digests of each stream (labels, cluster's UID, process)
//!   digest - hash of the time about which it must have been rendered = the state of last time: nothing else is asked
//! ```
//!
//! Samples of one scrape have one timestamp: what was put together from several scrapes is not found here.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use statusbridge_contract::stream::StreamLabels;
use statusbridge_contract::{Metric, label};
use statusbridge_core::fleet::{Digests, Signs};
use statusbridge_core::sample::{Labels, Sample, Sink};
use statusbridge_core::time::Seconds;

use super::PollConfig;
use super::foreseen::Foreseen;
use super::head::{Head, MOST_FAR, MOST_FAR_OF_CLUSTER, STREAMS};
use super::part_digests::{Room, Speech};
use super::recognition::Last;
use super::window::{Window, milliseconds};
use crate::feed::promql::{FeedError, QueryApi};

/// What a digest is read with.
pub(super) const BESIDE: [Metric; 2] = [Metric::RenderedTimestamp, Metric::ProcessNumber];
/// Labels of a digest's own.
const OWN: [&str; 3] = [label::CONTRACT, label::CLUSTER_UID, label::PACKAGE_CLUSTER];

/// What a look found.
pub(super) struct Found {
    /// One per stream, in order.
    pub(super) digests: Vec<Digests>,
    /// Clusters that have more streams than are told.
    pub(super) crowded: BTreeSet<String>,
    /// Series of digests without a cluster label.
    pub(super) unnamed: usize,
    /// Samples received.
    pub(super) samples: u64,
    /// Whether some stream has fewer than two digest samples, so that nothing tells how old they are.
    pub(super) is_short: bool,
}

impl Found {
    /// With another look at some clusters in place of what was found of them.
    pub(super) fn replaced(mut self, clusters: &[String], other: Self) -> Self {
        let clusters: BTreeSet<&str> = clusters.iter().map(String::as_str).collect();
        self.digests.retain(|digests| !clusters.contains(&*digests.cluster));
        self.digests.extend(other.digests);
        sort(&mut self.digests);
        self.crowded.extend(other.crowded);
        self.samples += other.samples;
        self
    }
}

fn sort(digests: &mut [Digests]) {
    digests.sort_by(|a, b| (&a.cluster, &a.stream).cmp(&(&b.cluster, &b.stream)));
}

/// Range of a query that is about one moment: backends leave out, or take in, what is stamped at the very beginning.
pub(super) const MOMENT: &str = "[500ms]";

/// Reads the digest samples of one cluster that are stamped so; one for each stream at most.
pub(super) async fn at(
    feed: &impl QueryApi,
    config: &PollConfig,
    cluster: &str,
    at: Seconds,
) -> Result<Vec<Digests>, FeedError> {
    let window = Window { t: at, now: at, believed: at, ..Window::default() };
    let sink = Heads::new(window, config, Streams::default());
    let [rendered, process] = BESIDE;
    let selector = config.exporters.select(&[Metric::Digest, rendered, process], [cluster]) + MOMENT;
    let (found, _) = feed.query(&selector, at, sink).await?.finish(&mut Foreseen::default());
    let mut found = found.digests;
    for digests in &mut found {
        digests.samples.retain(|sample| (sample.at - at).abs() < 0.000_5);
    }
    Ok(found)
}

/// The streams of one backend, kept from poll to poll: their labels are told apart once.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Places by labels that are not our own, in the order and form in which the backend writes them.
    written: HashMap<String, usize>,
    /// Places by the labels of the stream.
    places: HashMap<Arc<StreamLabels>, usize>,
    known: Vec<Known>,
}

/// What is known of a stream's labels.
#[derive(Debug)]
struct Known {
    labels: Arc<StreamLabels>,
    /// Name of the cluster, if there is one.
    cluster: Option<Arc<str>>,
    /// Where one stream alone writes under these labels, what it said last.
    last: Option<Last>,
}

impl Streams {
    /// The place of a stream.
    fn place(&mut self, labels: StreamLabels, cluster_label: &str) -> usize {
        let labels = Arc::new(labels);
        let next = self.known.len();
        *self.places.entry(labels.clone()).or_insert_with(|| {
            let cluster = labels.get(cluster_label);
            let cluster = cluster.filter(|name| !name.is_empty()).map(|name| name.as_str().into());
            self.known.push(Known { labels, cluster, last: None });
            next
        })
    }
}

/// Takes in what a look is answered with.
pub(super) struct Heads {
    window: Window,
    config: PollConfig,
    streams: Streams,
    /// One for each of the streams.
    heads: Vec<Head>,
    text: String,
    samples: u64,
    room_for_parts: Room,
    room_for_far: usize,
    /// By the clusters' names.
    room_of_clusters: HashMap<String, usize>,
}

impl Heads {
    pub(super) fn new(window: Window, config: &PollConfig, streams: Streams) -> Self {
        // As many as last time, so that nothing is moved meanwhile.
        let (heads, text) = (Vec::with_capacity(streams.known.len()), String::new());
        let config = config.clone();
        let (room_for_parts, room_of_clusters) = (Room::default(), HashMap::new());
        Self {
            window,
            config,
            streams,
            heads,
            text,
            samples: 0,
            room_for_parts,
            room_for_far: MOST_FAR,
            room_of_clusters,
        }
    }

    /// What is known of the stream that a series belongs to, and the series' own labels: contract version, UID, and the cluster
    /// that a part is of.
    fn place<'l>(&mut self, metric: Metric, labels: &'l Labels) -> (usize, [Cow<'l, str>; 3]) {
        let mut own = OWN.map(|_| Cow::Borrowed(""));
        self.text.clear();
        let mut is_plain = true;
        for (name, value) in labels.iter() {
            let known = OWN.iter().position(|own| metric == Metric::Digest && *own == name);
            if let Some(own) = known.and_then(|at| own.get_mut(at)) {
                *own = Cow::Borrowed(value);
            } else if name == "__name__" {
            } else if name.starts_with("exported_") || value.contains('\0') {
                // Whose label that is takes more to find out.
                is_plain = false;
            } else if !self.config.ignored_labels.iter().any(|ignored| ignored == name) {
                self.text.extend([name, "\0", value, "\0"]);
            }
        }
        if is_plain && let Some(place) = self.streams.written.get(&self.text) {
            return (*place, own);
        }
        let split = labels.split(metric, &self.config.ignored_labels);
        let own = OWN.map(|name| {
            let found = split.own.iter().find(|(own, _)| *own == name);
            Cow::Owned(found.map(|(_, value)| value.clone()).unwrap_or_default())
        });
        let place = self.streams.place(split.stream, &self.config.exporters.cluster_label);
        if is_plain {
            self.streams.written.insert(self.text.clone(), place);
        }
        (place, own)
    }

    /// Finds out when what says the same as last time was rendered. The clusters that have anything else.
    pub(super) fn recognize(&mut self) -> Vec<String> {
        let mut others = BTreeSet::new();
        for (known, head) in self.streams.known.iter().zip(&mut self.heads) {
            if known.last.as_ref().is_some_and(|last| head.recognize(last)) || head.digests.is_empty() {
                continue;
            }
            others.extend(known.cluster.as_deref().map(str::to_owned));
        }
        others.into_iter().collect()
    }

    /// What was found, and the streams for the next poll, unless most of them are gone.
    pub(super) fn finish(mut self, foreseen: &mut Foreseen) -> (Found, Streams) {
        let (digests, crowded) = (Vec::with_capacity(self.heads.len()), BTreeSet::new());
        let mut found = Found { digests, crowded, unnamed: 0, samples: self.samples, is_short: false };
        let (mut heard, no_parts) = (0, Arc::default());
        for (known, mut head) in self.streams.known.iter_mut().zip(self.heads) {
            heard += usize::from(head.is_heard);
            if head.digests.is_empty() && head.to_come.is_empty() {
                continue;
            }
            let Known { labels, cluster: Some(cluster), last } = known else {
                found.unnamed += head.digests.len();
                continue;
            };
            let signs = foreseen.sift(cluster, labels, &mut head, &self.window);
            if head.is_crowded {
                found.crowded.insert(cluster.to_string());
            }
            if head.digests.is_empty() && signs.values().all(Signs::is_empty) {
                continue;
            }
            let streams = head.streams(&self.config.feed, cluster, labels, signs, &no_parts);
            if streams.is_crowded {
                found.crowded.insert(cluster.to_string());
            }
            // Where nothing was found, the last one stays: one that is silent for a while says the same afterwards.
            *last = streams.last();
            let is_short = |it: &Digests| it.samples.len() < 2 && it.signs.is_empty();
            found.is_short |= streams.all.iter().any(is_short);
            found.digests.extend(streams.all);
        }
        sort(&mut found.digests);
        let mut of_cluster = 1;
        found.digests.dedup_by(|next, before| {
            of_cluster = if next.cluster == before.cluster { of_cluster + 1 } else { 1 };
            let is_too_many = of_cluster > STREAMS;
            if is_too_many {
                found.crowded.insert(next.cluster.to_string());
            }
            is_too_many
        });
        let is_current = self.streams.known.len() <= 2 * heard;
        (found, if is_current { self.streams } else { Streams::default() })
    }
}

impl Sink for Heads {
    fn series(&mut self, labels: &Labels, samples: &[Sample]) {
        let Some(metric) = labels.get("__name__").and_then(Metric::from_name) else { return };
        self.samples += samples.len() as u64;
        let (place, [contract, uid, part]) = self.place(metric, labels);
        let Window { t, now, believed, .. } = self.window;
        if self.heads.len() <= place {
            self.heads.resize_with(place + 1, Head::default);
        }
        #[expect(clippy::indexing_slicing, reason = "resized to hold it just now")]
        let head = &mut self.heads[place];
        let last =
            self.streams.known.get(place).and_then(|known| known.last.as_ref()).map(|last| &last.speech);
        // Mostly the same as last time, which takes no memory then.
        let speech = || match last.filter(|last| last.is(&contract, &uid)) {
            Some(last) => last.clone(),
            None => Arc::new(Speech::new(&contract, &uid)),
        };
        head.is_heard = true;
        // Stale markers are no samples; VictoriaMetrics answers them as such.
        let numbers = samples.iter().filter(|sample| !sample.value.is_nan());
        let known = numbers.clone().filter(|sample| sample.at <= t);
        let in_milliseconds = |sample: &Sample| (milliseconds(sample.at), sample.whole());
        let known = known.map(in_milliseconds);
        let whole = |(at, value): (i64, Option<u64>)| Some((at, value?));
        match metric {
            // A digest of a part of what an exporter says attests nothing by itself.
            Metric::Digest if !part.is_empty() => {
                let Some(newest) = known.filter_map(whole).max_by_key(|(at, _)| *at) else { return };
                head.parts.add(speech(), part.into(), newest, &mut self.room_for_parts);
            }
            Metric::Digest => {
                let mut to_come = numbers.filter(|sample| sample.at > now).peekable();
                if to_come.peek().is_some()
                    && let Some(noted) = head.coming(speech().uid)
                {
                    let cluster = labels.get(&self.config.exporters.cluster_label).unwrap_or_default();
                    let room = self.room_of_clusters.entry(cluster.to_owned()).or_insert(MOST_FAR_OF_CLUSTER);
                    for sample in to_come {
                        let rooms = [&mut *room, &mut self.room_for_far];
                        noted.add(in_milliseconds(sample), sample.at <= believed, rooms);
                    }
                }
                let mut known = known.peekable();
                if known.peek().is_none() {
                    return;
                }
                let place = head.digests.iter().position(|(of, _)| of.is(&contract, &uid));
                if let Some(at) = place
                    && let Some((_, samples)) = head.digests.get_mut(at)
                {
                    samples.extend(known);
                } else if head.digests.len() < STREAMS {
                    head.digests.push((speech(), known.collect()));
                } else {
                    head.is_crowded = true;
                }
            }
            _ if head.recognized.is_some() => {}
            Metric::RenderedTimestamp => head.rendered.extend(known.filter_map(whole)),
            _ => head.process.extend(known.filter_map(whole)),
        }
    }
}

#[cfg(test)]
mod tests {
    use statusbridge_contract::{Digest, Fingerprint};

    use super::*;
    use crate::testing::poll_config;

    const T: Seconds = 100.0;

    /// One series: metric, own labels and those of the target, samples.
    type Row<'a> = (Metric, &'a [(&'a str, &'a str)], &'a [(Seconds, f64)]);

    fn found(rows: &[Row<'_>], ignored: &[&str]) -> Found {
        let window = Window { t: T, now: T + 5.0, believed: T + 65.0, ..Window::default() };
        let ignored_labels: Vec<String> = ignored.iter().map(|label| (*label).to_owned()).collect();
        let config = PollConfig { ignored_labels, ..poll_config() };
        let mut heads = Heads::new(window, &config, Streams::default());
        for (metric, labels, samples) in rows {
            tell(&mut heads, *metric, labels, samples);
        }
        heads.finish(&mut Foreseen::default()).0
    }

    const TARGET: [(&str, &str); 2] = [("cluster", "c"), ("instance", "i")];
    const DIGEST: [(&str, &str); 4] =
        [TARGET[0], TARGET[1], ("contract", "2"), ("statusbridge_cluster_uid", "00000000000a")];
    const OTHER: [(&str, &str); 4] =
        [TARGET[0], TARGET[1], DIGEST[2], ("statusbridge_cluster_uid", "00000000000b")];

    /// UID, process, and of each sample its timestamp, digest and rendered time.
    type Told = (Option<u64>, u64, Vec<(Seconds, u64, u64)>);

    fn told(found: &Found) -> Vec<Told> {
        let samples = |digests: &Digests| {
            digests.samples.iter().map(|it| (it.at, it.exposition.digest, it.exposition.rendered)).collect()
        };
        let told = found.digests.iter();
        told.map(|it| (it.stream.uid.map(Fingerprint::value), it.stream.process, samples(it))).collect()
    }

    #[test]
    fn samples_of_one_timestamp_belong_together_and_stale_markers_are_none() {
        let rows: [Row<'_>; 3] = [
            (Metric::Digest, &DIGEST, &[(70.0, 7.02), (85.0, 8.0), (90.0, f64::NAN), (104.0, 9.0)]),
            (Metric::RenderedTimestamp, &TARGET, &[(70.0, 69.0), (85.0, 84.0), (86.0, 85.0)]),
            (Metric::ProcessNumber, &TARGET, &[(70.0, 3.0), (85.0, 3.0), (104.0, 3.0)]),
        ];
        let found = found(&rows, &[]);
        assert_eq!(told(&found), [(Some(10), 3, vec![(70.0, 7, 69), (85.0, 8, 84)])]);
        let digests = &found.digests[0];
        assert_eq!((&*digests.cluster, &*digests.contract, &digests.lack), ("c", "2", &None));
        assert_eq!((digests.signs.is_empty(), found.is_short, found.unnamed), (true, false, 0));
    }

    #[test]
    fn clusters_and_processes_under_the_same_labels_are_streams_of_their_own() {
        let rows: [Row<'_>; 4] = [
            (Metric::Digest, &DIGEST, &[(70.0, 1.0), (85.0, 2.0)]),
            (Metric::Digest, &OTHER, &[(75.0, 3.0)]),
            (Metric::RenderedTimestamp, &TARGET, &[(70.0, 70.0), (75.0, 75.0), (85.0, 85.0)]),
            (Metric::ProcessNumber, &TARGET, &[(70.0, 5.0), (75.0, 6.0), (85.0, 7.0)]),
        ];
        let found = found(&rows, &[]);
        assert_eq!(
            told(&found),
            [
                (Some(10), 5, vec![(70.0, 1, 70)]),
                (Some(10), 7, vec![(85.0, 2, 85)]),
                (Some(11), 6, vec![(75.0, 3, 75)])
            ]
        );
        assert!(found.is_short);
    }

    #[test]
    fn a_head_that_lacks_something_counts_for_nothing_as_long_as_none_is_whole() {
        let rendered: Row<'_> = (Metric::RenderedTimestamp, &TARGET, &[(70.0, 70.0)]);
        let process: Row<'_> = (Metric::ProcessNumber, &TARGET, &[(70.0, 5.0), (85.0, 5.0)]);
        let lack =
            |rows: &[Row<'_>]| found(rows, &[]).digests.into_iter().map(|it| it.lack).collect::<Vec<_>>();
        let digest = |samples| -> Row<'_> { (Metric::Digest, &DIGEST, samples) };
        assert_eq!(lack(&[digest(&[(70.0, 1.0), (85.0, 2.0)]), rendered, process]), [None]);
        let late = lack(&[digest(&[(85.0, 2.0)]), rendered, process]);
        assert!(late[0].as_ref().is_some_and(|it| it.contains("rendered_timestamp")), "{late:?}");
        let split = lack(&[digest(&[(70.0, 2.5)]), rendered, process]);
        assert!(split[0].as_ref().is_some_and(|it| it.contains("no whole number")), "{split:?}");
        let nameless = lack(&[(Metric::Digest, &DIGEST[..3], &[(70.0, 1.0)]), rendered, process]);
        assert!(
            nameless[0].as_ref().is_some_and(|it| it.contains("statusbridge_cluster_uid")),
            "{nameless:?}"
        );
    }

    #[test]
    fn samples_beyond_the_present_are_told_apart_from_those_that_are_not_settled_yet() {
        let head = |at: Seconds| -> Vec<(Seconds, f64)> { vec![(70.0, 1.0), (at, 2.0)] };
        let (soon, far) = (
            Signs { soon: vec![110.0], ..Signs::default() },
            Signs { ahead: Some(3895.0), doubted: Some(165.0), ..Signs::default() },
        );
        for (at, signs) in [(103.0, Signs::default()), (110.0, soon), (4000.0, far)] {
            let samples = head(at);
            let rows: [Row<'_>; 3] = [
                (Metric::Digest, &DIGEST, &samples),
                (Metric::RenderedTimestamp, &TARGET, &samples),
                (Metric::ProcessNumber, &TARGET, &samples),
            ];
            let found = found(&rows, &[]);
            assert_eq!((&found.digests[0].signs, found.digests[0].samples.len()), (&signs, 1));
        }
        // Of a stream that has nothing else, too.
        let alone = found(&[(Metric::Digest, &DIGEST, &[(4000.0, 2.0)])], &[]);
        assert_eq!((alone.digests.len(), alone.digests[0].signs.ahead), (1, Some(3895.0)));
    }

    #[test]
    fn every_process_of_a_writer_is_doubted_and_others_are_not() {
        let times = [(70.0, 70.0), (75.0, 75.0), (85.0, 85.0)];
        let rows: [Row<'_>; 4] = [
            (Metric::Digest, &DIGEST, &[(70.0, 1.0), (85.0, 2.0), (4000.0, 4.0)]),
            (Metric::Digest, &OTHER, &[(75.0, 3.0)]),
            (Metric::RenderedTimestamp, &TARGET, &times),
            (Metric::ProcessNumber, &TARGET, &[(70.0, 5.0), (75.0, 6.0), (85.0, 7.0)]),
        ];
        let found = found(&rows, &[]).digests;
        let signs = |it: &Digests| (it.stream.process, it.signs.doubted, it.signs.ahead);
        let told: Vec<_> = found.iter().map(signs).collect();
        assert_eq!(told, [(5, Some(165.0), None), (7, Some(165.0), Some(3895.0)), (6, None, None)]);
    }

    #[test]
    fn clusters_that_share_their_labels_are_told_apart_by_what_is_to_come_and_by_what_comes_late_in_part() {
        let told = [(70.0, 70.0)];
        let rows: [Row<'_>; 4] = [
            (Metric::Digest, &DIGEST, &[(70.0, 1.0), (85.0, 2.0)]),
            (Metric::Digest, &OTHER, &[(120.0, 3.0)]),
            (Metric::RenderedTimestamp, &TARGET, &told),
            (Metric::ProcessNumber, &TARGET, &told),
        ];
        let found = found(&rows, &[]).digests;
        let told: Vec<_> = found
            .iter()
            .map(|it| (it.stream.uid, it.samples.len(), it.seen, it.signs.soon.clone()))
            .collect();
        let [ours, other] = [10, 11].map(Fingerprint::from_value);
        assert_eq!(told, [(ours, 1, Some(85.0), vec![]), (other, 0, None, vec![120.0])]);
    }

    #[test]
    fn labels_are_told_from_those_of_the_stream_however_they_were_renamed() {
        let target = [("cluster", "c"), ("contract", "of the target"), ("replica", "a")];
        let renamed = [target[0], target[1], ("exported_contract", "2"), target[2], DIGEST[3]];
        let mut rows: [Row<'_>; 3] = [
            (Metric::RenderedTimestamp, &target, &[(70.0, 70.0)]),
            (Metric::ProcessNumber, &target, &[(70.0, 5.0)]),
            (Metric::Digest, &renamed, &[(70.0, 1.0)]),
        ];
        // Series come in any order.
        for _ in 0..2 {
            let found = found(&rows, &["replica"]);
            assert_eq!(told(&found), [(Some(10), 5, vec![(70.0, 1, 70)])]);
            let labels: Vec<_> =
                found.digests[0].stream.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(labels, [("cluster", "c"), ("contract", "of the target")]);
            rows.reverse();
        }
    }

    /// What the digest of a state is when it is rendered then.
    fn digest_of(state: u64, rendered: u64) -> f64 {
        [state].into_iter().collect::<Digest>().rendered(rendered).value() as f64
    }

    /// Streams of which one said this state in scrapes at 70 and 85, rendered 2 s later by process 5.
    fn streams_of(state: u64) -> Streams {
        let window = Window { t: T, now: T, believed: T, ..Window::default() };
        let mut heads = Heads::new(window, &poll_config(), Streams::default());
        let samples = [(70.0, digest_of(state, 72)), (85.0, digest_of(state, 87))];
        tell(&mut heads, Metric::Digest, &DIGEST, &samples);
        assert_eq!(heads.recognize(), ["c"]);
        tell(&mut heads, Metric::RenderedTimestamp, &TARGET, &[(70.0, 72.0), (85.0, 87.0)]);
        tell(&mut heads, Metric::ProcessNumber, &TARGET, &[(70.0, 5.0), (85.0, 5.0)]);
        let (found, streams) = heads.finish(&mut Foreseen::default());
        assert!(found.digests[0].lack.is_none());
        streams
    }

    fn tell(heads: &mut Heads, metric: Metric, labels: &[(&str, &str)], samples: &[(Seconds, f64)]) {
        let labels = [("__name__", metric.name())].into_iter().chain(labels.iter().copied());
        let samples: Vec<Sample> =
            samples.iter().map(|(at, value)| Sample { at: *at, value: *value }).collect();
        heads.series(&labels.collect(), &samples);
    }

    /// What it is, labels and samples of the digest, and whether it is known.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(Seconds, f64)], bool);

    #[test]
    fn only_what_does_not_say_the_same_as_last_time_is_asked_for_when_it_was_rendered() {
        let same = |at: Seconds, rendered: u64| (at, digest_of(7, rendered));
        let newer: [(Seconds, u64); 3] = [(85.0, 87), (90.4, 91), (95.9, 98)];
        let newer = newer.map(|(at, rendered)| same(at, rendered));
        let unlike = [DIGEST[0], DIGEST[1], ("contract", "3"), DIGEST[3]];
        let cases: [Case<'_>; 7] = [
            ("the same, a second early or late", &DIGEST, &newer, true),
            ("another state", &DIGEST, &[newer[0], (90.0, digest_of(8, 92))], false),
            ("rendered two seconds later", &DIGEST, &[newer[0], same(90.0, 94)], false),
            ("an old exposition, repeated", &DIGEST, &[newer[0], same(90.0, 87)], false),
            ("no whole number", &DIGEST, &[newer[0], (90.0, digest_of(7, 92) + 0.5)], false),
            ("another cluster", &OTHER, &newer, false),
            ("another version of the contract", &unlike, &newer, false),
        ];
        for (case, labels, samples, is_known) in cases {
            let window = Window { t: T, now: T, believed: T, ..Window::default() };
            let mut heads = Heads::new(window, &poll_config(), streams_of(7));
            tell(&mut heads, Metric::Digest, labels, samples);
            assert_eq!(heads.recognize().is_empty(), is_known, "{case}");
            // Where others are asked, this one may be answered, too.
            tell(&mut heads, Metric::RenderedTimestamp, &TARGET, &[(85.0, 1.0), (90.4, 1.0), (95.9, 1.0)]);
            tell(&mut heads, Metric::ProcessNumber, &TARGET, &[(85.0, 1.0), (90.4, 1.0), (95.9, 1.0)]);
            let found = heads.finish(&mut Foreseen::default()).0;
            let rendered: Vec<u64> =
                found.digests[0].samples.iter().map(|it| it.exposition.rendered).collect();
            let process = found.digests[0].stream.process;
            match is_known {
                true => assert_eq!((rendered, process), (vec![87, 91, 98], 5), "{case}"),
                false => assert!(rendered.iter().all(|at| *at == 1) && process == 1, "{case}"),
            }
        }
    }

    #[test]
    fn where_two_write_under_the_same_labels_both_are_asked() {
        let window = Window { t: T, now: T, believed: T, ..Window::default() };
        let poll = |streams: Streams| {
            let mut heads = Heads::new(window, &poll_config(), streams);
            tell(&mut heads, Metric::Digest, &DIGEST, &[(90.0, digest_of(7, 92))]);
            tell(&mut heads, Metric::Digest, &OTHER, &[(91.0, digest_of(8, 93))]);
            assert_eq!(heads.recognize(), ["c"]);
            tell(&mut heads, Metric::RenderedTimestamp, &TARGET, &[(90.0, 92.0), (91.0, 93.0)]);
            tell(&mut heads, Metric::ProcessNumber, &TARGET, &[(90.0, 5.0), (91.0, 6.0)]);
            let (found, streams) = heads.finish(&mut Foreseen::default());
            assert_eq!(found.digests.len(), 2);
            streams
        };
        poll(poll(streams_of(7)));
    }

    #[test]
    fn streams_are_kept_from_poll_to_poll_until_most_are_gone() {
        let poll = |streams: Streams, clusters: &[&str]| {
            let window = Window { t: T, now: T, believed: T, ..Window::default() };
            let mut heads = Heads::new(window, &poll_config(), streams);
            for cluster in clusters {
                let name = [("__name__", Metric::Digest.name()), ("cluster", cluster)];
                heads.series(&name.into_iter().collect(), &[Sample { at: 70.0, value: 1.0 }]);
            }
            heads.finish(&mut Foreseen::default())
        };
        let (first, kept) = poll(Streams::default(), &["a", "b", "c"]);
        let (second, kept) = poll(kept, &["c", "a"]);
        let names = |found: &Found| found.digests.iter().map(|it| it.cluster.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&first), names(&second)),
            (vec!["a".into(), "b".into(), "c".into()], vec!["a".into(), "c".into()])
        );
        let labels = |found: &Found, at: usize| found.digests[at].stream.labels.clone();
        assert!(Arc::ptr_eq(&labels(&first, 2), &labels(&second, 1)));
        let (third, kept) = poll(kept, &["a"]);
        assert_eq!((names(&third), kept.known.len()), (vec!["a".into()], 0));
    }

    /// What is found of so many streams of each cluster, whose instance and UID are told by their number.
    fn crowd(series: &[(&str, usize)], labels: impl Fn(usize) -> [String; 2]) -> Found {
        let window = Window { t: T, now: T, believed: T, ..Window::default() };
        let mut heads = Heads::new(window, &poll_config(), Streams::default());
        let give = |heads: &mut Heads, cluster, count| {
            for n in 0..count {
                let [instance, uid] = &labels(n);
                let target = [("cluster", cluster), ("instance", instance.as_str())];
                let own = [(label::CONTRACT, "2"), (label::CLUSTER_UID, uid.as_str())];
                let head = [Metric::Digest, BESIDE[0], BESIDE[1]];
                for (metric, own) in head.into_iter().zip([&own[..], &[], &[]]) {
                    let labels = [("__name__", metric.name())].into_iter().chain(target);
                    let sample = Sample { at: 70.0, value: 1.0 };
                    heads.series(&labels.chain(own.iter().copied()).collect(), &[sample]);
                }
            }
        };
        series.iter().for_each(|(cluster, count)| give(&mut heads, cluster, *count));
        let kept = heads.heads.iter().map(|head| head.digests.len()).max();
        assert!(kept.is_some_and(|kept| kept <= STREAMS), "{kept:?}");
        heads.finish(&mut Foreseen::default()).0
    }

    #[test]
    fn one_cluster_with_any_number_of_streams_costs_as_much_as_with_a_few_and_the_others_count() {
        // UIDs under one stream's labels, streams of many labels, and both.
        let names: [fn(usize) -> [String; 2]; 3] = [
            |n| ["i".to_owned(), format!("{:012x}", n + 1)],
            |n| [format!("i{n}"), format!("{:012x}", 1)],
            |n| [format!("i{}", n % 100), format!("{:012x}", n + 1)],
        ];
        for labels in names {
            let found = crowd(&[("b", 2), ("c", 20_000), ("d", STREAMS - 1)], labels);
            let of = |cluster| found.digests.iter().filter(|it| &*it.cluster == cluster).count();
            assert_eq!((of("b"), of("c"), of("d")), (2, STREAMS, STREAMS - 1));
            assert_eq!(found.crowded, ["c".to_owned()].into());
        }
    }

    #[test]
    fn parts_are_those_of_the_newest_digest_and_bounded() {
        let at = [(85.0, 2.0)];
        let head: [Row<'_>; 3] = [
            (Metric::Digest, &DIGEST, &at),
            (Metric::RenderedTimestamp, &TARGET, &at),
            (Metric::ProcessNumber, &TARGET, &at),
        ];
        let part = |cluster| [TARGET[0], TARGET[1], DIGEST[2], ("package_cluster", cluster), DIGEST[3]];
        let [new, old, other] = [part("new"), part("old"), part("other")];
        let ours: [Row<'_>; 3] = [
            (Metric::Digest, &new, &[(70.0, 5.0), (85.0, 6.0)]),
            (Metric::Digest, &old, &[(70.0, 5.0)]),
            (Metric::Digest, &other[..4], &[(85.0, 7.0)]),
        ];
        let parts = |rows: &[Row<'_>]| found(rows, &[]).digests[0].parts.as_ref().clone();
        assert_eq!(parts(&[&head[..], &ours].concat()), [("new".into(), 6)].into());
        let names: Vec<String> = (0..2000).map(|n| format!("{n}-{}", "x".repeat(1000))).collect();
        let many: Vec<_> = names.iter().map(|name| part(name)).collect();
        let rows = |count: usize| {
            let many = many.iter().take(count).map(|part| -> Row<'_> { (Metric::Digest, part, &at) });
            parts(&head.into_iter().chain(many).collect::<Vec<_>>()).len()
        };
        assert_eq!((rows(1000), rows(2000)), (1000, 0));
    }

    #[test]
    fn nobody_is_named_by_digests_without_a_cluster_and_of_parts() {
        let part = [TARGET[0], TARGET[1], DIGEST[2], ("package_cluster", "eu-1"), DIGEST[3]];
        let rows: [Row<'_>; 2] =
            [(Metric::Digest, &DIGEST[1..], &[(70.0, 1.0)]), (Metric::Digest, &part, &[(70.0, 1.0)])];
        let found = found(&rows, &[]);
        assert_eq!((found.digests.len(), found.unnamed), (0, 1));
    }
}

//! Samples that were found long before their time: once their time comes, they look like samples of the present, and
//! are as old as when they were found. Until then backends give them again and again, and only new ones are a sign of life.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::fleet::Signs;
use statusbridge_core::time::Seconds;

use super::head::{Coming, Head, MOST_FAR, MOST_FAR_OF_CLUSTER, Stamped};
use super::window::{Window, milliseconds, seconds};

/// The labels of a stream, and a cluster's UID.
type Writer = (Arc<StreamLabels>, Option<Fingerprint>);

/// What is noted of one writer.
#[derive(Debug, Default)]
struct Noted {
    /// What is stamped until then may be as old as what was found when it was further to come.
    doubted: Option<Seconds>,
    /// Samples that were found before their time, with the number of the poll that found them first.
    far: BTreeMap<Stamped, u64>,
    /// The latest stamp of those for which there was no room. As long as it is to come, any sample may be one of them.
    left_out: Option<i64>,
}

impl Noted {
    /// Takes note of what is to come, in room for so many samples, and gives what it shows.
    fn note(&mut self, to_come: Coming, window: &Window, room: usize) -> Signs {
        let Coming { soon, far, left_out } = to_come;
        let mut news = left_out;
        // Those of before may be among these.
        let is_unknown = self.left_out.take().is_some();
        for sample in far {
            let is_full = self.far.len() >= room;
            let first = match self.far.get(&sample) {
                Some(first) => *first,
                None if is_full => {
                    self.left_out = self.left_out.max(Some(sample.0));
                    window.poll
                }
                None => *self.far.entry(sample).or_insert(window.poll),
            };
            if is_unknown || window.last.is_none_or(|last| first > last) {
                news = news.max(Some(sample.0));
            }
        }
        self.left_out = self.left_out.max(left_out);
        if news.is_some() || is_unknown {
            self.doubted = Some(window.believed);
        }
        let soon = soon.into_iter().filter(|sample| !self.far.contains_key(sample));
        let soon: Vec<Seconds> = soon.map(|(stamp, _)| seconds(stamp)).collect();
        Signs { soon, ahead: news.map(|stamp| seconds(stamp) - window.now), doubted: self.doubted }
    }

    /// Whether anything of it is stamped at this time or later.
    fn reaches(&self, at: Seconds) -> bool {
        !self.far.is_empty() || self.doubted >= Some(at) || self.left_out >= Some(milliseconds(at))
    }
}

/// What is noted under a cluster's name.
#[derive(Debug, Default)]
struct OfCluster {
    writers: BTreeMap<Writer, Noted>,
    /// How many samples that are.
    samples: usize,
}

/// What is noted of all, by the clusters' names.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    noted: HashMap<String, OfCluster>,
    /// How many samples that are.
    samples: usize,
}

impl Foreseen {
    /// Takes samples that a poll found before their time from what came under a stream's labels, and notes those that this one finds
    /// so. Gives what they show, by the clusters' UIDs.
    pub(super) fn sift(
        &mut self,
        cluster: &str,
        labels: &Arc<StreamLabels>,
        head: &mut Head,
        window: &Window,
    ) -> BTreeMap<Option<Fingerprint>, Signs> {
        let mut signs = BTreeMap::new();
        let mut to_come = mem::take(&mut head.to_come);
        if to_come.is_empty() && !self.noted.contains_key(cluster) {
            return signs;
        }
        let mut of_cluster = self.noted.remove(cluster).unwrap_or_default();
        // Of whom nothing is to come any more.
        let known = of_cluster.writers.range((labels.clone(), None)..);
        for ((_, uid), _) in known.take_while(|((known, _), _)| known == labels) {
            to_come.entry(*uid).or_default();
        }
        for (uid, to_come) in to_come {
            let writer = (labels.clone(), uid);
            let mut noted = of_cluster.writers.remove(&writer).unwrap_or_default();
            let before = noted.far.len();
            let room = (MOST_FAR_OF_CLUSTER - of_cluster.samples).min(MOST_FAR - self.samples) + before;
            signs.insert(uid, noted.note(to_come, window, room));
            of_cluster.samples = of_cluster.samples - before + noted.far.len();
            self.samples = self.samples - before + noted.far.len();
            head.digests.retain_mut(|(speech, samples)| {
                if speech.uid == uid {
                    samples.retain(|sample| !noted.far.contains_key(sample));
                }
                !samples.is_empty()
            });
            if noted.reaches(Seconds::NEG_INFINITY) {
                of_cluster.writers.insert(writer, noted);
            }
        }
        if !of_cluster.writers.is_empty() {
            self.noted.insert(cluster.to_owned(), of_cluster);
        }
        signs
    }

    /// Forgets what is stamped before this time.
    pub(super) fn forget_before(&mut self, at: Seconds) {
        self.samples = 0;
        self.noted.retain(|_, of_cluster| {
            of_cluster.samples = 0;
            of_cluster.writers.retain(|_, noted| {
                noted.far = noted.far.split_off(&(milliseconds(at), None));
                of_cluster.samples += noted.far.len();
                noted.reaches(at)
            });
            self.samples += of_cluster.samples;
            !of_cluster.writers.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::testing::stream;

    use super::super::part_digests::Speech;

    const BELIEVED: i64 = 60;
    const SETTLE: i64 = 5;

    /// Polls of one cluster.
    struct Polls {
        foreseen: Foreseen,
        cluster: String,
        labels: Arc<StreamLabels>,
        poll: u64,
        /// Number of the last good one.
        last: Option<u64>,
    }

    fn polls() -> Polls {
        let (cluster, labels) = ("a".to_owned(), Arc::new(stream(&[("cluster", "a")])));
        Polls { foreseen: Foreseen::default(), cluster, labels, poll: 0, last: None }
    }

    impl Polls {
        /// What a look at the present `now` believes of samples, by second and value, and what signs of life they are.
        fn look(&mut self, now: i64, all: &[(i64, u64)]) -> (Vec<(i64, u64)>, Signs) {
            let (mut head, t) = (Head::default(), now - SETTLE);
            let speech = Arc::new(Speech::new("2", "00000000000a"));
            let samples = all.iter().map(|(at, value)| (at * 1000, Some(*value)));
            head.digests.push((speech.clone(), samples.clone().filter(|(at, _)| *at <= t * 1000).collect()));
            let (mut room, mut room_of_all) = (2 * MOST_FAR_OF_CLUSTER, MOST_FAR);
            for sample in samples.filter(|(at, _)| *at > now * 1000) {
                let to_come = head.coming(speech.uid).unwrap();
                to_come.add(sample, sample.0 <= (now + BELIEVED) * 1000, [&mut room, &mut room_of_all]);
            }
            let window = Window {
                t: t as Seconds,
                span: 60.0,
                now: now as Seconds,
                believed: (now + BELIEVED) as Seconds,
                poll: self.poll,
                last: self.last,
            };
            let mut signs = self.foreseen.sift(&self.cluster, &self.labels, &mut head, &window);
            let came = head.digests.iter().flat_map(|(_, samples)| samples);
            let came = came.map(|(at, value)| (at / 1000, value.unwrap())).collect();
            (came, signs.remove(&speech.uid).unwrap_or_default())
        }

        /// A good poll of one look.
        fn poll(&mut self, now: i64, all: &[(i64, u64)]) -> (Vec<(i64, u64)>, Signs) {
            self.poll += 1;
            let found = self.look(now, all);
            self.last = Some(self.poll);
            found
        }
    }

    fn signs(soon: &[Seconds], ahead: Option<Seconds>, doubted: Option<Seconds>) -> Signs {
        Signs { soon: soon.to_vec(), ahead, doubted }
    }

    #[test]
    fn what_is_found_before_its_time_does_not_count_when_it_comes() {
        let mut polls = polls();
        assert_eq!(polls.poll(1000, &[(980, 1), (1040, 2)]), (vec![(980, 1)], signs(&[1040.0], None, None)));
        assert_eq!(polls.poll(1045, &[(1040, 2)]), (vec![(1040, 2)], signs(&[], None, None)));
        assert_eq!(polls.poll(1060, &[(1200, 3)]).1, signs(&[], Some(140.0), Some(1120.0)));
        // Another one may be stamped so.
        assert_eq!(polls.poll(1205, &[(1200, 3), (1200, 4)]).0, [(1200, 4)]);
        polls.foreseen.forget_before(1200.001);
        assert_eq!((polls.foreseen.noted.len(), polls.foreseen.samples), (0, 0));
    }

    /// It may be as old, whoever looked, or did not, when it came.
    #[test]
    fn beside_what_is_found_before_its_time_everything_is_doubted_that_comes_soon() {
        let mut polls = polls();
        polls.poll(985, &[]);
        let old = [(980, 1), (998, 2), (1040, 3), (1061, 5)];
        let doubted = Some(1060.0);
        assert_eq!(polls.poll(1000, &old), (vec![(980, 1)], signs(&[1040.0], Some(61.0), doubted)));
        assert_eq!(polls.poll(1070, &old), (old[..3].to_vec(), signs(&[], None, doubted)));
        assert_eq!(polls.poll(1085, &[(1061, 5), (1062, 6)]), (vec![(1062, 6)], signs(&[], None, doubted)));
    }

    #[test]
    fn only_what_was_not_found_before_is_a_sign_of_life_wherever_among_the_others_it_is() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let (first, second, third) = ((3600, 1), (1200, 2), (3601, 3));
        let mut ahead = Vec::new();
        ahead.push(polls.poll(100, &[first]).1.ahead);
        ahead.push(polls.poll(115, &[first]).1.ahead);
        // One that fails hears nothing; and the same poll may look twice.
        polls.poll += 1;
        ahead.push(polls.look(120, &[first, second]).1.ahead);
        ahead.push(polls.poll(130, &[first, second]).1.ahead);
        // However time goes.
        ahead.push(polls.poll(128, &[first, second]).1.ahead);
        ahead.push(polls.poll(145, &[first, second, third, (3600, 4)]).1.ahead);
        ahead.push(polls.poll(146, &[first, second, third, (3600, 4), (3600, 5)]).1.ahead);
        let expected = [Some(3500.0), None, Some(1080.0), Some(1070.0), None, Some(3456.0), Some(3454.0)];
        assert_eq!(ahead, expected);
        // They come closer, and are none even then.
        for now in (160..1190).step_by(30) {
            assert!(polls.poll(now, &[first, second]).1.is_empty());
        }
        assert_eq!(polls.poll(1190, &[first, second, (1201, 1)]).1.soon, [1201.0]);
    }

    #[test]
    fn while_more_are_to_come_than_are_noted_all_is_doubted_and_a_sign_of_life() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let all: Vec<(i64, u64)> = (0..=MOST_FAR_OF_CLUSTER as i64).map(|n| (200 + n, 1)).collect();
        let latest = 200 + MOST_FAR_OF_CLUSTER as i64;
        let far = |now: i64| signs(&[], Some((latest - now) as Seconds), Some((now + BELIEVED) as Seconds));
        for now in [100, 115, 140] {
            assert_eq!((polls.poll(now, &all).1, polls.foreseen.samples), (far(now), MOST_FAR_OF_CLUSTER));
        }
        // All are known from here on.
        polls.foreseen.forget_before(210.0);
        assert_eq!(polls.poll(215, &all).1, Signs { soon: vec![], ..far(215) });
        assert_eq!(polls.poll(230, &all).1, signs(&[], None, Some(275.0)));
    }

    #[test]
    fn what_was_not_noted_for_want_of_room_is_doubted_when_its_time_comes() {
        let mut polls = polls();
        let last = (200, 1);
        let all: Vec<(i64, u64)> =
            (0..MOST_FAR_OF_CLUSTER as u64).map(|value| (170, value)).chain([last]).collect();
        assert_eq!(polls.poll(100, &all).1, signs(&[], Some(100.0), Some(160.0)));
        assert_eq!(polls.poll(145, &[last]).1, signs(&[200.0], None, Some(205.0)));
        assert_eq!(polls.poll(206, &[last]).1, signs(&[], None, Some(205.0)));
    }

    #[test]
    fn clusters_note_no_more_than_there_is_room_for_and_one_takes_no_more_than_its_own() {
        let mut polls = polls();
        let all: Vec<(i64, u64)> = (0..MOST_FAR_OF_CLUSTER as i64).map(|n| (200 + n, 1)).collect();
        for instance in ["i", "j", "k"] {
            polls.labels = Arc::new(stream(&[("instance", instance)]));
            assert!(polls.look(100, &all).1.ahead.is_some());
            assert_eq!(polls.foreseen.samples, MOST_FAR_OF_CLUSTER);
        }
        for number in 1..=MOST_FAR / MOST_FAR_OF_CLUSTER {
            polls.cluster = number.to_string();
            assert!(polls.look(100, &all).1.ahead.is_some());
        }
        assert_eq!(polls.foreseen.samples, MOST_FAR);
        // Until they are over.
        assert_eq!(polls.look(110, &[(90, 1)]).1.doubted, Some(170.0));
        polls.foreseen.forget_before(100_000.0);
        assert_eq!(polls.look(110, &[(90, 1)]).1.doubted, None);
    }
}

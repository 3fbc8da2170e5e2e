//! Samples that were found long before their time: once their time comes, they look like samples of the present, and
//! are as old as when they were found. Until then backends give them again and again, and only new ones are a sign of life.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::fleet::Signs;
use statusbridge_core::time::Seconds;

use super::head::{Coming, Head, MOST_FAR, SAMPLES, Stamped};
use super::window::{Window, milliseconds, seconds};

/// Samples that are noted under a cluster's name: as many as come in two days of scrapes every five seconds.
const MOST: usize = 40_000;

/// The labels of a stream, and a cluster's UID.
type Writer = (Arc<StreamLabels>, Option<Fingerprint>);

/// What is noted of one writer.
#[derive(Debug)]
struct Noted {
    /// Nothing is believed that is stamped until then, in milliseconds: it may be as old as what was found when it was further to come.
    doubted: i64,
    /// Samples that were found before their time, with the number of the poll that found them first.
    far: BTreeMap<Stamped, u64>,
    /// The latest stamp of those for which there was no room. As long as it is to come, any sample may be one of them.
    left_out: Option<i64>,
}

impl Default for Noted {
    fn default() -> Self {
        Self { doubted: i64::MIN, far: BTreeMap::new(), left_out: None }
    }
}

impl Noted {
    /// Takes note of what is to come, in room for so many; `came` are the stamps of samples whose time has come. Which signs of life they are.
    fn note(
        &mut self,
        to_come: Coming,
        came: impl Iterator<Item = Stamped>,
        window: &Window,
        room: usize,
    ) -> Signs {
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
            self.doubted = milliseconds(window.believed);
        }
        let doubted = came.filter(|sample| sample.0 <= self.doubted);
        let others = doubted.chain(soon).filter(|sample| !self.far.contains_key(sample));
        let mut stamps: Vec<i64> = others.map(|(stamp, _)| stamp).collect();
        stamps.sort_unstable();
        let newest = stamps.split_off(stamps.len().saturating_sub(SAMPLES));
        let ahead = news.map(|stamp| seconds(stamp) - window.now);
        Signs { stamps: newest.into_iter().map(seconds).collect(), ahead }
    }

    fn is_believed(&self, sample: &Stamped) -> bool {
        sample.0 > self.doubted && !self.far.contains_key(sample)
    }

    /// Whether anything of it is stamped at this time or later, in milliseconds.
    fn reaches(&self, at: i64) -> bool {
        !self.far.is_empty() || self.doubted >= at || self.left_out >= Some(at)
    }
}

/// What is noted of all, by the clusters' names.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    noted: HashMap<String, BTreeMap<Writer, Noted>>,
    /// How many samples that are.
    samples: usize,
}

impl Foreseen {
    /// Takes from what came under a stream's labels what is not to be believed, and notes what is found before its time. Which signs of
    /// life these are, by the clusters' UIDs.
    pub(super) fn sift(
        &mut self,
        cluster: &str,
        labels: &Arc<StreamLabels>,
        head: &mut Head,
        window: &Window,
    ) -> BTreeMap<Option<Fingerprint>, Signs> {
        let mut to_come = mem::take(&mut head.to_come);
        if to_come.is_empty() && !self.noted.contains_key(cluster) {
            return BTreeMap::new();
        }
        let mut of_cluster = self.noted.remove(cluster).unwrap_or_default();
        let mut kept: usize = of_cluster.values().map(|noted| noted.far.len()).sum();
        // Of whom nothing is to come any more.
        for (_, uid) in of_cluster.keys().filter(|(known, _)| known == labels) {
            to_come.entry(*uid).or_default();
        }
        let mut signs = BTreeMap::new();
        for (uid, to_come) in to_come {
            let writer = (labels.clone(), uid);
            let mut noted = of_cluster.remove(&writer).unwrap_or_default();
            let before = noted.far.len();
            let room = (MOST - kept).min(MOST_FAR - self.samples) + before;
            let came = head.digests.iter().filter(|(speech, _)| speech.uid == uid);
            let came = came.flat_map(|(_, samples)| samples.iter().copied());
            let told = noted.note(to_come, came, window, room);
            kept = kept - before + noted.far.len();
            self.samples = self.samples - before + noted.far.len();
            head.digests.retain_mut(|(speech, samples)| {
                if speech.uid == uid {
                    samples.retain(|sample| noted.is_believed(sample));
                }
                !samples.is_empty()
            });
            if !told.is_empty() {
                signs.insert(uid, told);
            }
            if noted.reaches(i64::MIN + 1) {
                of_cluster.insert(writer, noted);
            }
        }
        if !of_cluster.is_empty() {
            self.noted.insert(cluster.to_owned(), of_cluster);
        }
        signs
    }

    /// Forgets what is stamped before this time.
    pub(super) fn forget_before(&mut self, at: Seconds) {
        let at = milliseconds(at);
        self.samples = 0;
        self.noted.retain(|_, of_cluster| {
            of_cluster.retain(|_, noted| {
                noted.far = noted.far.split_off(&(at, None));
                self.samples += noted.far.len();
                noted.reaches(at)
            });
            !of_cluster.is_empty()
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
            for sample in samples.filter(|(at, _)| *at > now * 1000) {
                let to_come = head.coming(speech.uid).unwrap();
                to_come.add(sample, sample.0 <= (now + BELIEVED) * 1000, &mut { MOST_FAR });
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

    fn signs(stamps: &[Seconds], ahead: Option<Seconds>) -> Signs {
        Signs { stamps: stamps.to_vec(), ahead }
    }

    #[test]
    fn what_is_found_before_its_time_does_not_count_when_it_comes() {
        let mut polls = polls();
        assert_eq!(polls.poll(1000, &[(980, 1), (1040, 2)]), (vec![(980, 1)], signs(&[1040.0], None)));
        assert_eq!(polls.poll(1045, &[(1040, 2)]), (vec![(1040, 2)], signs(&[], None)));
        assert_eq!(polls.poll(1060, &[(1200, 3)]).1, signs(&[], Some(140.0)));
        // Another one may be stamped so.
        assert_eq!(polls.poll(1205, &[(1200, 3), (1200, 4)]).0, [(1200, 4)]);
        polls.foreseen.forget_before(1200.001);
        assert_eq!((polls.foreseen.noted.len(), polls.foreseen.samples), (0, 0));
    }

    /// It may be as old, whoever looked, or did not, when it came.
    #[test]
    fn beside_what_is_found_before_its_time_nothing_counts_that_comes_soon() {
        let mut polls = polls();
        polls.poll(985, &[]);
        let old = [(980, 1), (998, 2), (1040, 3), (1060, 4), (1061, 5)];
        assert_eq!(polls.poll(1000, &old), (vec![], signs(&[980.0, 1040.0, 1060.0], Some(61.0))));
        assert_eq!(polls.poll(1030, &old), (vec![], signs(&[980.0, 998.0, 1040.0, 1060.0], None)));
        assert_eq!(polls.poll(1070, &old), (vec![], signs(&[980.0, 998.0, 1040.0, 1060.0], None)));
        // What comes after that does.
        assert_eq!(polls.poll(1085, &[(1061, 5), (1062, 6)]), (vec![(1062, 6)], signs(&[], None)));
    }

    #[test]
    fn only_what_was_not_found_before_is_a_sign_of_life_wherever_among_the_others_it_is() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let (first, second, third) = ((3600, 1), (1200, 2), (3601, 3));
        assert_eq!(polls.poll(100, &[first]).1, signs(&[], Some(3500.0)));
        assert_eq!(polls.poll(115, &[first]).1, signs(&[], None));
        // One that fails hears nothing; and the same poll may look twice.
        polls.poll += 1;
        assert_eq!(polls.look(120, &[first, second]).1, signs(&[], Some(1080.0)));
        assert_eq!(polls.poll(130, &[first, second]).1, signs(&[], Some(1070.0)));
        // However time goes.
        assert_eq!(polls.poll(128, &[first, second]).1, signs(&[], None));
        assert_eq!(polls.poll(145, &[first, second, third, (3600, 4)]).1, signs(&[], Some(3456.0)));
        assert_eq!(
            polls.poll(146, &[first, second, third, (3600, 4), (3600, 5)]).1,
            signs(&[], Some(3454.0))
        );
        // They come closer, and are none even then.
        for now in (160..1190).step_by(30) {
            assert_eq!(polls.poll(now, &[first, second]).1, signs(&[], None));
        }
        assert_eq!(polls.poll(1190, &[first, second, (1201, 1)]).1, signs(&[1201.0], None));
    }

    #[test]
    fn while_more_are_to_come_than_are_noted_nothing_counts_and_all_is_a_sign_of_life() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let all: Vec<(i64, u64)> = (0..=MOST as i64).map(|n| (200 + n, 1)).collect();
        let latest = 200 + MOST as i64;
        for now in [100, 115, 300] {
            let (came, told) = polls.poll(now, &all);
            assert_eq!((came, told.ahead), (vec![], Some((latest - now) as Seconds)));
            assert_eq!(polls.foreseen.samples, MOST);
        }
        // All are known from here on.
        polls.foreseen.forget_before(310.0);
        assert_eq!(polls.poll(315, &all).1.ahead, Some((latest - 315) as Seconds));
        assert_eq!(polls.poll(330, &all).1.ahead, None);
        let beside = [&all[300..], &[(376, 2)]].concat();
        assert_eq!(polls.poll(381, &beside).0, [(376, 2)]);
    }

    #[test]
    fn what_was_not_noted_for_want_of_room_does_not_count_when_its_time_comes() {
        let mut polls = polls();
        let last = (200, 1);
        let all: Vec<(i64, u64)> = (0..MOST as u64).map(|value| (170, value)).chain([last]).collect();
        assert_eq!(polls.poll(100, &all).1.ahead, Some(100.0));
        assert_eq!(polls.poll(145, &[last]).1, signs(&[200.0], None));
        assert_eq!(polls.poll(206, &[last]).0, []);
    }

    #[test]
    fn clusters_note_no_more_than_there_is_room_for_and_one_takes_no_more_than_its_own() {
        let mut polls = polls();
        let all: Vec<(i64, u64)> = (0..MOST as i64).map(|n| (200 + n, 1)).collect();
        for number in 0..3 {
            polls.labels = Arc::new(stream(&[("instance", ["i", "j", "k"][number])]));
            assert!(polls.look(100, &all).1.ahead.is_some());
            assert_eq!(polls.foreseen.samples, MOST);
        }
        for number in 0..MOST_FAR / MOST {
            polls.cluster = number.to_string();
            assert!(polls.look(100, &all).1.ahead.is_some());
        }
        assert_eq!(polls.foreseen.samples, MOST_FAR);
        // Until they are over.
        assert_eq!(polls.look(100, &[(90, 1)]), (vec![], signs(&[90.0], None)));
        polls.foreseen.forget_before(100_000.0);
        assert_eq!(polls.look(100, &[(90, 1)]).0, [(90, 1)]);
    }
}

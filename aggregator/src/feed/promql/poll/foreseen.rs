//! Samples that were found long before their time: once their time comes, they look like samples of the present, and
//! are as old as when they were found. Until then backends give them again and again, and only new ones are a sign of life.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::fleet::ToCome;
use statusbridge_core::time::Seconds;

use super::head::{Head, SAMPLES, Stamped};
use super::window::{Window, milliseconds, seconds};

/// Samples that are noted under a stream's labels of one cluster: as many as come in two days of scrapes every five seconds.
const MOST: usize = 40_000;
/// The same of all streams.
const MOST_OF_ALL: usize = 1_000_000;

/// What is noted under a stream's labels of one cluster.
#[derive(Debug)]
enum Noted {
    /// Samples, with the number of the poll that found them first.
    Samples(BTreeMap<Stamped, u64>),
    /// When there were too many of them last. No sample of the stream is believed then.
    TooMany(Seconds),
}

/// By the labels of their streams and the clusters' UIDs.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    noted: HashMap<Arc<StreamLabels>, BTreeMap<Option<Fingerprint>, Noted>>,
    /// How many samples that are.
    samples: usize,
}

impl Noted {
    fn has(&self, sample: &Stamped) -> bool {
        match self {
            Self::Samples(noted) => noted.contains_key(sample),
            Self::TooMany(_) => true,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Samples(noted) => noted.len(),
            Self::TooMany(_) => 0,
        }
    }
}

impl Foreseen {
    /// Takes those samples from what came of a stream's labels that were found before their time, and notes those that are now. What
    /// of what is to come is news since the last good poll, by the clusters' UIDs.
    pub(super) fn sift(
        &mut self,
        labels: &Arc<StreamLabels>,
        head: &mut Head,
        window: &Window,
    ) -> BTreeMap<Option<Fingerprint>, ToCome> {
        if self.noted.is_empty() && head.to_come.is_empty() {
            return BTreeMap::new();
        }
        let mut to_come = std::mem::take(&mut head.to_come);
        let mut noted = self.noted.remove(labels).unwrap_or_default();
        // Of whom nothing is to come any more.
        for uid in noted.keys() {
            to_come.entry(*uid).or_default();
        }
        let mut news = BTreeMap::new();
        for (uid, to_come) in to_come {
            let came = head.digests.iter().filter(|(speech, _)| speech.uid == uid);
            let came = came.flat_map(|(_, samples)| samples.iter().copied());
            let before = noted.remove(&uid);
            self.samples -= before.as_ref().map_or(0, Noted::len);
            let (after, told) = note(before, came, to_come, window, MOST_OF_ALL - self.samples);
            if let Some(after) = after {
                self.samples += after.len();
                noted.insert(uid, after);
            }
            if !told.is_empty() {
                news.insert(uid, told);
            }
        }
        if !noted.is_empty() {
            head.digests.retain_mut(|(speech, samples)| {
                if let Some(noted) = noted.get(&speech.uid) {
                    samples.retain(|sample| !noted.has(sample));
                }
                !samples.is_empty()
            });
            self.noted.insert(labels.clone(), noted);
        }
        news
    }

    /// Forgets samples that are stamped before this time.
    pub(super) fn forget_before(&mut self, at: Seconds) {
        self.samples = 0;
        self.noted.retain(|_, of_labels| {
            of_labels.retain(|_, noted| match noted {
                Noted::Samples(samples) => {
                    *samples = samples.split_off(&(milliseconds(at), None));
                    self.samples += samples.len();
                    !samples.is_empty()
                }
                Noted::TooMany(last) => *last >= at,
            });
            !of_labels.is_empty()
        });
    }
}

/// Notes samples that are not believed, in room for so many, beside what was noted `before`. Where nobody looked for a while, or not all were noted,
/// and the clock is ahead, or was, what `came` and what is to come soon may be as old: it is not believed, either.
fn note(
    before: Option<Noted>,
    came: impl Iterator<Item = Stamped>,
    mut to_come: Vec<Stamped>,
    window: &Window,
    room: usize,
) -> (Option<Noted>, ToCome) {
    to_come.sort_unstable();
    to_come.dedup();
    let believed = to_come.partition_point(|(stamp, _)| *stamp <= milliseconds(window.believed));
    let (soon, far) = to_come.split_at(believed);
    let ahead = |(stamp, _): Stamped| seconds(stamp) - window.now;
    let too_many = || {
        let told = ToCome { soon: Vec::new(), ahead: far.last().copied().map(ahead) };
        (Some(Noted::TooMany(window.t)), told)
    };
    if far.len() > MOST {
        return too_many();
    }
    let was_too_many = matches!(before, Some(Noted::TooMany(_)));
    let mut noted = match before {
        Some(Noted::Samples(noted)) => noted,
        _ => BTreeMap::new(),
    };
    let mut latest = None;
    for sample in far {
        let first = *noted.entry(*sample).or_insert(window.poll);
        if window.last.is_none_or(|last| first > last) {
            latest = Some(*sample);
        }
    }
    if was_too_many || (window.is_first && latest.is_some()) {
        noted.extend(came.chain(soon.iter().copied()).map(|sample| (sample, window.poll)));
    }
    if noted.len() > MOST.min(room) {
        return too_many();
    }
    let mut soon: Vec<Seconds> =
        soon.iter().filter(|sample| !noted.contains_key(sample)).map(|(stamp, _)| seconds(*stamp)).collect();
    soon.drain(..soon.len().saturating_sub(SAMPLES));
    let noted = Some(Noted::Samples(noted)).filter(|noted| noted.len() > 0);
    (noted, ToCome { soon, ahead: latest.map(ahead) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::testing::stream;

    use super::super::part_digests::Speech;

    const BELIEVED: Seconds = 60.0;

    /// Polls of one stream of two clusters.
    struct Polls {
        foreseen: Foreseen,
        labels: Arc<StreamLabels>,
        poll: u64,
        /// Number and time of the last good one.
        last: Option<(u64, Seconds)>,
    }

    fn polls() -> Polls {
        let labels = Arc::new(stream(&[("cluster", "a")]));
        Polls { foreseen: Foreseen::default(), labels, poll: 0, last: None }
    }

    fn uid(number: u64) -> Option<Fingerprint> {
        Fingerprint::from_value(number)
    }

    impl Polls {
        /// What a look at `t` takes for samples of cluster 10, and what of it is news that is to come; by second and value.
        fn look(&mut self, t: i64, all: &[(i64, u64)]) -> (Vec<(i64, u64)>, ToCome) {
            let mut head = Head::default();
            let speech = Arc::new(Speech::new("2", "00000000000a"));
            let samples = all.iter().map(|(at, value)| (at * 1000, Some(*value)));
            let (came, to_come): (Vec<_>, Vec<_>) = samples.partition(|(at, _)| *at <= t * 1000);
            head.note_to_come(speech.uid, to_come.into_iter());
            head.digests.push((speech, came));
            let now = t as Seconds;
            let is_first = self.last.is_none_or(|(_, last)| now - last > BELIEVED);
            let last = self.last.map(|(number, _)| number);
            let window =
                Window { t: now, span: 60.0, now, believed: now + BELIEVED, is_first, poll: self.poll, last };
            let mut news = self.foreseen.sift(&self.labels, &mut head, &window);
            let came = head.digests.iter().flat_map(|(_, samples)| samples);
            let came = came.map(|(at, value)| (at / 1000, value.unwrap())).collect();
            (came, news.remove(&uid(10)).unwrap_or_default())
        }

        /// A good poll of one look.
        fn poll(&mut self, t: i64, all: &[(i64, u64)]) -> (Vec<(i64, u64)>, ToCome) {
            self.poll += 1;
            let found = self.look(t, all);
            self.last = Some((self.poll, t as Seconds));
            found
        }
    }

    fn news(soon: &[Seconds], ahead: Option<Seconds>) -> ToCome {
        ToCome { soon: soon.to_vec(), ahead }
    }

    #[test]
    fn what_is_found_before_its_time_does_not_count_when_it_comes_and_what_is_believed_does() {
        let mut polls = polls();
        polls.poll(1000, &[]);
        assert_eq!(polls.poll(1015, &[(1015, 1), (1075, 2), (1076, 3)]).0, [(1015, 1)]);
        assert_eq!(polls.poll(1076, &[(1075, 2), (1076, 3)]).0, [(1075, 2)]);
        // Another sample that is stamped so.
        assert_eq!(polls.poll(1090, &[(1076, 3), (1076, 4)]).0, [(1076, 4)]);
        polls.foreseen.forget_before(1076.001);
        assert_eq!((polls.foreseen.noted.len(), polls.foreseen.samples), (0, 0));
    }

    #[test]
    fn only_what_was_not_found_before_is_news_wherever_among_the_others_it_is() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let (first, second, third) = ((3600, 1), (1200, 2), (3601, 3));
        assert_eq!(polls.poll(100, &[(120, 1), first]).1, news(&[120.0], Some(3500.0)));
        assert_eq!(polls.poll(115, &[first]).1, news(&[], None));
        // Nor has one that failed: what it found is news to the next one; and the same poll may look twice.
        polls.poll += 1;
        assert_eq!(polls.look(120, &[first, second]).1, news(&[], Some(1080.0)));
        assert_eq!(polls.poll(130, &[first, second]).1, news(&[], Some(1070.0)));
        assert_eq!(polls.poll(128, &[first, second]).1, news(&[], None));
        assert_eq!(polls.poll(145, &[first, second, third, (3600, 4)]).1, news(&[], Some(3456.0)));
        assert_eq!(polls.poll(146, &[first, second, third, (3600, 4), (3600, 5)]).1, news(&[], Some(3454.0)));
        // They come closer, and are no news even then.
        let mut at = 160;
        while at < 1190 {
            assert_eq!(polls.poll(at, &[first, second]).1, news(&[], None));
            at += 30;
        }
        assert_eq!(polls.poll(1190, &[first, second, (1201, 1)]).1, news(&[1201.0], None));
    }

    /// They may all be as old.
    #[test]
    fn who_looks_for_the_first_time_believes_nothing_that_came_before_what_is_far_to_come() {
        for last in [None, Some(900)] {
            let mut polls = polls();
            if let Some(last) = last {
                polls.poll(last, &[]);
            }
            let old = [(970, 1), (985, 2), (1000, 3), (1015, 4), (1030, 5), (1061, 6)];
            assert_eq!(polls.poll(1000, &old), (vec![], news(&[], Some(61.0))));
            for at in [1015, 1030, 1061] {
                assert_eq!(polls.poll(at, &old), (vec![], news(&[], None)));
            }
            assert_eq!(polls.poll(1075, &[(1061, 6), (1073, 7)]).0, [(1073, 7)]);
        }
        // However seldom polls come, there is an end.
        let mut polls = self::polls();
        polls.poll(1000, &[(1000, 1), (4000, 2)]);
        assert_eq!(polls.poll(1120, &[(1120, 3), (4000, 2)]).0, [(1120, 3)]);
        // One that looked lately knows of each.
        let mut polls = self::polls();
        polls.poll(985, &[]);
        assert_eq!(polls.poll(1000, &[(1000, 1), (1061, 2)]), (vec![(1000, 1)], news(&[], Some(61.0))));
        // And nothing is far to come.
        assert_eq!(
            self::polls().poll(1000, &[(1000, 1), (1060, 2)]),
            (vec![(1000, 1)], news(&[1060.0], None))
        );
    }

    #[test]
    fn of_more_than_are_noted_none_is_believed_and_all_are_news_until_they_are_fewer() {
        let mut polls = polls();
        polls.poll(85, &[]);
        let all: Vec<(i64, u64)> = (0..=MOST as i64).map(|n| (200 + n, 1)).collect();
        let latest = 200.0 + MOST as Seconds;
        for t in [100, 115] {
            assert_eq!(polls.poll(t, &all), (vec![], news(&[], Some(latest - t as Seconds))));
            assert_eq!(polls.foreseen.samples, 0);
        }
        // What was not noted may be among what came.
        assert_eq!(polls.poll(260, &all[..MOST]), (vec![], news(&[], Some(latest - 261.0))));
        assert_eq!(polls.foreseen.samples, MOST);
        assert_eq!(polls.poll(320, &all[..MOST]), (vec![], news(&[], None)));
        let beside = [&all[50..MOST], &[(321, 2)]].concat();
        assert_eq!(polls.poll(321, &beside), (vec![(321, 2)], news(&[], None)));
    }

    #[test]
    fn all_streams_together_note_no_more_than_there_is_room_for() {
        let mut polls = polls();
        let all: Vec<(i64, u64)> = (0..MOST as i64).map(|n| (200 + n, 1)).collect();
        for stream_number in 0..=MOST_OF_ALL / MOST {
            polls.labels = Arc::new(stream(&[("cluster", stream_number.to_string().as_str())]));
            let (_, told) = polls.look(100, &all);
            assert!(told.ahead.is_some());
        }
        assert_eq!(polls.foreseen.samples, MOST_OF_ALL);
        assert_eq!(polls.look(100, &[(100, 1)]).0, []);
        // Until there is none of it any more.
        polls.foreseen.forget_before(100_000.0);
        assert_eq!(polls.look(100, &[(100, 1)]).0, [(100, 1)]);
    }
}

//! Samples that were found long before their time: once their time comes, they look like samples of the present, and
//! are as old as when they were found. Until then backends give them again and again, and only new ones are a sign of life.

use std::collections::{BTreeMap, HashMap};

use statusbridge_contract::Fingerprint;
use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::fleet::ToCome;
use statusbridge_core::time::Seconds;

use super::digests::Window;
use super::head::SAMPLES;

/// Stamps that are noted of a stream's labels, the nearest ones: as many as come in two days of scrapes every 15 seconds, and
/// some. Further ones are news at every poll, so that the cluster's clock is wrong until they are fewer.
const MOST: usize = 16_384;

/// Stamps of digest samples in milliseconds with the cluster's UID, and the time that the poll asked about that found them first.
type Stamps = BTreeMap<(i64, Option<Fingerprint>), Seconds>;

/// By the labels of their streams.
#[derive(Debug, Default)]
pub(super) struct Foreseen(HashMap<StreamLabels, Stamps>);

impl Foreseen {
    /// Whether the sample of a stream with this stamp was found before its time.
    pub(super) fn has(&self, stream: &StreamLabels, uid: Option<Fingerprint>, stamp: i64) -> bool {
        self.0.get(stream).is_some_and(|stamps| stamps.contains_key(&(stamp, uid)))
    }

    /// Takes note of those of a stream's stamps that are not believed. What of all of them is news since the last good poll.
    pub(super) fn note(
        &mut self,
        stream: &StreamLabels,
        uid: Option<Fingerprint>,
        mut stamps: Vec<i64>,
        window: Window,
    ) -> ToCome {
        stamps.sort_unstable();
        let (soon, far) =
            stamps.split_at(stamps.partition_point(|stamp| *stamp <= milliseconds(window.believed)));
        let newest = soon.get(soon.len().saturating_sub(SAMPLES)..).unwrap_or_default().iter().copied();
        let soon = newest.filter(|stamp| !self.has(stream, uid, *stamp)).map(seconds).collect();
        let mut latest = far.last().copied().filter(|_| far.len() > MOST);
        if !far.is_empty() {
            let known = self.0.entry(stream.clone()).or_default();
            for stamp in far.iter().copied().take(MOST) {
                let first = *known.entry((stamp, uid)).or_insert(window.t);
                if window.last.is_none_or(|last| first > last) {
                    latest = latest.max(Some(stamp));
                }
            }
            while known.len() > MOST {
                known.pop_last();
            }
        }
        ToCome { soon, ahead: latest.map(|stamp| seconds(stamp) - window.now) }
    }

    /// Forgets stamps before this time.
    pub(super) fn forget_before(&mut self, at: Seconds) {
        self.0.retain(|_, stamps| {
            *stamps = stamps.split_off(&(milliseconds(at), None));
            !stamps.is_empty()
        });
    }
}

/// Backends keep milliseconds.
pub(super) fn milliseconds(at: Seconds) -> i64 {
    (at * 1000.0).round() as i64
}

fn seconds(stamp: i64) -> Seconds {
    stamp as Seconds / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::testing::stream;

    const STAMPS: [i64; 4] = [99_999, 100_000, 150_000, 90_000_000];

    /// The poll at `t` believes what is stamped until a minute after it.
    fn window(t: Seconds, last: Option<Seconds>) -> Window {
        Window { t, span: 60.0, now: t, believed: t + 60.0, last }
    }

    #[test]
    fn stamps_beyond_belief_are_known_until_their_time_is_over() {
        let (a, b) = (stream(&[("cluster", "a")]), stream(&[("cluster", "b")]));
        let [ours, other] = [10, 11].map(Fingerprint::from_value);
        let mut foreseen = Foreseen::default();
        foreseen.note(&a, ours, STAMPS.to_vec(), window(39.999, None));
        let has = |foreseen: &Foreseen| STAMPS.map(|stamp| foreseen.has(&a, ours, stamp));
        assert_eq!(has(&foreseen), [false, true, true, true]);
        assert!(!foreseen.has(&b, ours, 100_000));
        assert!(!foreseen.has(&a, other, 100_000));
        foreseen.forget_before(100.001);
        assert_eq!(has(&foreseen), [false, false, true, true]);
        foreseen.forget_before(90_001.0);
        assert!(foreseen.0.is_empty());
    }

    #[test]
    fn only_what_was_not_found_before_is_news_wherever_among_the_others_it_is() {
        let (a, uid) = (stream(&[("cluster", "a")]), Fingerprint::from_value(10));
        let mut foreseen = Foreseen::default();
        let mut note = |stamps: &[i64], t, last| {
            let news = foreseen.note(&a, uid, stamps.to_vec(), window(t, last));
            (news.soon, news.ahead)
        };
        assert_eq!(note(&[120_000, 3_600_000], 100.0, None), (vec![120.0], Some(3500.0)));
        // Where that poll failed later on, or looks again by name.
        assert_eq!(note(&[120_000, 3_600_000], 101.0, None), (vec![120.0], Some(3499.0)));
        assert_eq!(note(&[3_600_000], 115.0, Some(101.0)), (vec![], None));
        assert_eq!(note(&[3_600_000, 1_200_000], 130.0, Some(115.0)), (vec![], Some(1070.0)));
        assert_eq!(note(&[3_600_000, 1_200_000, 3_601_000], 145.0, Some(130.0)), (vec![], Some(3456.0)));
        // They come closer, and are no news even then.
        assert_eq!(note(&[3_600_000, 1_200_000, 1_201_000], 1190.0, Some(1175.0)), (vec![1201.0], None));
    }

    #[test]
    fn no_more_stamps_are_kept_than_come_in_two_days_and_further_ones_stay_news() {
        let (a, uid) = (stream(&[("cluster", "a")]), Fingerprint::from_value(10));
        let mut foreseen = Foreseen::default();
        let all: Vec<i64> = (0..MOST as i64 + 1).map(|n| 200_000 + n).collect();
        for (t, last) in [(100.0, None), (115.0, Some(100.0)), (130.0, Some(115.0))] {
            let news = foreseen.note(&a, uid, all.clone(), window(t, last));
            assert_eq!((news.ahead, foreseen.0[&a].len()), (Some(216.384 - t), MOST));
        }
        let fewer = all[..MOST].to_vec();
        assert_eq!(foreseen.note(&a, uid, fewer, window(145.0, Some(130.0))), ToCome::default());
    }
}

//! Samples that were found long before their time: once their time comes, they look like samples of the present, and
//! are as old as when they were found.

use std::collections::{BTreeSet, HashMap};

use statusbridge_contract::stream::StreamLabels;
use statusbridge_core::time::Seconds;

/// Stamps so far beyond what is believed are not noted yet: they come closer.
pub(super) const HORIZON: Seconds = 1200.0;

/// By the labels of their streams: stamps of digest samples, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Foreseen(HashMap<StreamLabels, BTreeSet<i64>>);

impl Foreseen {
    /// Whether the sample of a stream with this stamp was found before its time.
    pub(super) fn has(&self, stream: &StreamLabels, stamp: i64) -> bool {
        self.0.get(stream).is_some_and(|stamps| stamps.contains(&stamp))
    }

    /// Takes note of stamps of a stream, of those that are later than `believed`.
    pub(super) fn note(&mut self, stream: &StreamLabels, stamps: &[i64], believed: Seconds) {
        let (from, to) = (milliseconds(believed), milliseconds(believed + HORIZON));
        let mut foreseen = stamps.iter().copied().filter(|stamp| (from..to).contains(stamp)).peekable();
        if foreseen.peek().is_some() {
            self.0.entry(stream.clone()).or_default().extend(foreseen);
        }
    }

    /// Forgets stamps before this time.
    pub(super) fn forget_before(&mut self, at: Seconds) {
        self.0.retain(|_, stamps| {
            *stamps = stamps.split_off(&milliseconds(at));
            !stamps.is_empty()
        });
    }
}

/// Backends keep milliseconds.
pub(super) fn milliseconds(at: Seconds) -> i64 {
    (at * 1000.0).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::testing::stream;

    #[test]
    fn stamps_beyond_belief_are_known_until_their_time_is_over() {
        let (a, b) = (stream(&[("cluster", "a")]), stream(&[("cluster", "b")]));
        let mut foreseen = Foreseen::default();
        foreseen.note(&a, &[99_999, 100_000, 150_000, 1_300_000], 100.0);
        let has =
            |foreseen: &Foreseen| [99_999, 100_000, 150_000, 1_300_000].map(|stamp| foreseen.has(&a, stamp));
        assert_eq!(has(&foreseen), [false, true, true, false]);
        assert!(!foreseen.has(&b, 100_000));
        foreseen.forget_before(100.001);
        assert_eq!(has(&foreseen), [false, false, true, false]);
        foreseen.forget_before(200.0);
        assert!(foreseen.0.is_empty());
    }
}

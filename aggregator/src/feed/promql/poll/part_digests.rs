//! The digests of parts, as a look finds them under each stream's labels: one for each other cluster of which an exporter
//! tells.

use std::collections::HashMap;
use std::sync::Arc;

use statusbridge_contract::Fingerprint;
use statusbridge_core::fleet::Parts;

/// What a digest's own labels say of the exporter.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Speech {
    /// Its version of the contract.
    pub(super) contract: Arc<str>,
    label: Box<str>,
    /// The cluster's UID, if they say it.
    pub(super) uid: Option<Fingerprint>,
}

impl Speech {
    pub(super) fn new(contract: &str, uid: &str) -> Self {
        let fingerprint = Some(uid).filter(|uid| !uid.is_empty()).map(Fingerprint::of);
        Self { contract: contract.into(), label: uid.into(), uid: fingerprint }
    }

    /// Whether that is what these labels say.
    pub(super) fn is(&self, contract: &str, uid: &str) -> bool {
        (&*self.contract, &*self.label) == (contract, uid)
    }

    fn len(&self) -> usize {
        self.contract.len() + self.label.len()
    }
}

/// What a part takes besides its texts, in bytes.
const PART: usize = 128;

/// How many bytes parts may take.
#[derive(Debug)]
pub(super) struct Room {
    /// Those of one stream's labels.
    of_stream: usize,
    /// All that are still to come.
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { of_stream: 2 << 20, left: 64 << 20 }
    }
}

/// The newest sample of each part under one stream's labels. Where there is no room for one of them, none counts.
#[derive(Debug, Default)]
pub(super) struct PartDigests {
    newest: HashMap<(Arc<Speech>, Box<str>), (i64, u64)>,
    bytes: usize,
    are_too_many: bool,
}

impl PartDigests {
    /// Takes the newest sample of the part about a cluster: its timestamp and its value.
    pub(super) fn add(
        &mut self,
        speech: Arc<Speech>,
        cluster: Box<str>,
        newest: (i64, u64),
        room: &mut Room,
    ) {
        if self.are_too_many {
            return;
        }
        let bytes = cluster.len() + speech.len() + PART;
        if self.bytes + bytes > room.of_stream || bytes > room.left {
            room.left += self.bytes;
            *self = Self { are_too_many: true, ..Self::default() };
        } else {
            self.newest.insert((speech, cluster), newest);
            self.bytes += bytes;
            room.left -= bytes;
        }
    }

    /// Those of one scrape together, by contract version, UID and timestamp.
    pub(super) fn by_scrape(self) -> HashMap<(Arc<str>, Option<Fingerprint>, i64), Parts> {
        let mut scrapes = HashMap::<_, Parts>::new();
        for ((speech, cluster), (at, digest)) in self.newest {
            scrapes.entry((speech.contract.clone(), speech.uid, at)).or_default().insert(cluster, digest);
        }
        scrapes
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Bytes of one part of these tests.
    const EACH: usize = PART + 17;

    /// How many parts are kept of streams that have so many, which come one stream after the other or by turns.
    fn kept(room: (usize, usize), streams: &[usize], by_turns: bool) -> (Vec<usize>, usize) {
        let mut room = Room { of_stream: room.0 * EACH, left: room.1 * EACH };
        let mut all: Vec<_> = streams.iter().map(|_| PartDigests::default()).collect();
        let each = streams.iter().enumerate();
        let mut order: Vec<_> =
            each.flat_map(|(stream, parts)| (0..*parts).map(move |n| (stream, n))).collect();
        if by_turns {
            order.sort_by_key(|(stream, n)| (*n, *stream));
        }
        for (stream, n) in order {
            let speech = Arc::new(Speech::new("2", "00000000000a"));
            all[stream].add(speech, format!("c{n:03}").into(), (70, 1), &mut room);
        }
        let scrapes = all.into_iter().map(|parts| parts.by_scrape().into_values().map(|it| it.len()).sum());
        (scrapes.collect(), room.left / EACH)
    }

    #[rstest]
    #[case::all_have_room((10, 30), &[10, 10, 10], &[10, 10, 10], 0)]
    #[case::one_has_more_than_its_own((10, 30), &[5, 11, 10], &[5, 0, 10], 15)]
    #[case::one_is_more_than_all_may_have((20, 30), &[10, 15, 6, 5], &[10, 15, 0, 5], 0)]
    #[case::one_without_end((10, 12), &[500, 10], &[0, 10], 2)]
    #[case::none((10, 30), &[], &[], 30)]
    fn a_stream_that_has_too_many_parts_loses_its_own_and_takes_none_from_others(
        #[case] room: (usize, usize),
        #[case] streams: &[usize],
        #[case] expected: &[usize],
        #[case] left: usize,
    ) {
        assert_eq!(kept(room, streams, false), (expected.to_vec(), left));
    }

    #[test]
    fn one_that_has_lost_its_parts_makes_room_for_those_that_come_later() {
        assert_eq!(kept((10, 20), &[50, 10], true), (vec![0, 10], 10));
        assert_eq!(kept((50, 20), &[50, 9], true), (vec![0, 9], 11));
    }
}

//! Which samples are read: a coarse look at everything first, then every scrape where something moved.
//!
//! The coarse look is at distances, and shows a sample for some minutes after the last one. It says where to look, and
//! nothing else: all that it asks for is there as long as the package is, and moves whenever something happens.

use std::collections::BTreeMap;

use statusbridge_core::time::Seconds;

use super::sight::Values;

/// A time from which something is read to its end, in milliseconds.
pub(super) type Window = (i64, i64);

/// Longest time that is looked at in one query.
const MOST_AT_ONCE: i64 = 24 * HOUR;
const HOUR: i64 = 3_600_000;
/// Looks at a time that is looked at in one query.
const LOOKS: i64 = 288;
/// Shortest distance of two looks.
const SHORTEST_STEP: i64 = 15_000;
/// Bytes of cluster names in one query; VictoriaMetrics refuses queries of more than 16 KiB by default.
const NAMES: usize = 6 << 10;
/// For so long Prometheus gives a sample as the present one.
pub(super) const LOOKBACK: i64 = 300_000;

/// Splits a long time, oldest first.
pub(super) fn parts(from: Seconds, to: Seconds) -> Vec<Window> {
    let (from, to) = ((from * 1000.0) as i64, (to * 1000.0) as i64);
    let begins = (from..to).step_by(MOST_AT_ONCE as usize);
    begins.map(|begin| (begin, to.min(begin.saturating_add(MOST_AT_ONCE)))).collect()
}

/// The distance of two looks; never more than what a sample is shown for, so that none is missed.
pub(super) fn step((from, to): Window) -> i64 {
    ((to - from) / LOOKS).clamp(SHORTEST_STEP, LOOKBACK)
}

/// The times within a part in which something moved, or may have: every scrape of them has to be read.
/// Beginning and end of what each stream tells belong to them.
pub(super) fn moved<'a>(
    part: Window,
    step: i64,
    streams: impl Iterator<Item = &'a BTreeMap<i64, Values>>,
) -> Vec<Window> {
    let mut windows = Vec::new();
    for looks in streams {
        let mut last: Option<(i64, &Values)> = None;
        for (at, values) in looks {
            match last {
                // What is seen now is at most so old.
                None => windows.push((at - LOOKBACK, *at)),
                Some((before, _)) if at - before > step => {
                    windows.extend([(before - LOOKBACK, before + step), (at - LOOKBACK, *at)]);
                }
                Some((before, then)) if *then != *values => windows.push((before - LOOKBACK, *at)),
                Some(_) => {}
            }
            last = Some((*at, values));
        }
        windows.extend(last.map(|(at, _)| (at - LOOKBACK, at + step)));
    }
    merged(part, windows)
}

/// The same times without overlaps, and none before the part begins or after it ends but what is seen
/// at its very beginning.
fn merged((from, to): Window, mut windows: Vec<Window>) -> Vec<Window> {
    windows.sort_unstable();
    let mut out: Vec<Window> = Vec::new();
    for (begin, end) in windows {
        let (begin, end) = (begin.max(from - LOOKBACK), end.min(to));
        match out.last_mut() {
            Some((_, last)) if begin <= *last => *last = end.max(*last),
            _ if begin < end => out.push((begin, end)),
            _ => {}
        }
    }
    out
}

/// Work of a query that may be too large, and can be done in two.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// The time that is read.
    pub(super) window: Window,
    /// The clusters that are asked about.
    pub(super) clusters: Vec<String>,
}

impl Piece {
    /// Two halves; None when it is as small as it gets.
    pub(super) fn halves(&self) -> Option<[Self; 2]> {
        let (from, to) = self.window;
        if self.clusters.len() > 1 {
            let (a, b) = self.clusters.split_at(self.clusters.len() / 2);
            Some([a, b].map(|clusters| Self { window: self.window, clusters: clusters.to_vec() }))
        } else if to - from > 2 * LOOKBACK {
            let half = from + (to - from) / 2;
            Some([(from, half), (half, to)].map(|window| Self { window, clusters: self.clusters.clone() }))
        } else {
            None
        }
    }
}

/// Pieces of at most so many samples, unless one cluster is more. Clusters come with how many samples each will be.
pub(super) fn pieces(
    window: Window,
    clusters: impl IntoIterator<Item = (String, u64)>,
    most: u64,
) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut sum, mut names) = (0_u64, 0);
    for (cluster, more) in clusters {
        // Escaping can double a name.
        let name = 2 * cluster.len() + 1;
        match pieces.last_mut() {
            Some(piece) if sum.saturating_add(more) <= most && names + name <= NAMES => {
                piece.clusters.push(cluster);
                (sum, names) = (sum.saturating_add(more), names + name);
            }
            _ => {
                pieces.push(Piece { window, clusters: vec![cluster] });
                (sum, names) = (more, name);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: i64 = 300_000;
    const DAY: Window = (0, 24 * HOUR);

    fn looks(all: &[(i64, u64)]) -> BTreeMap<i64, Values> {
        let values = |value: u64| {
            let mut values = [Some(0); crate::commands::history::sight::SERIES];
            values[0] = Some(value);
            values
        };
        all.iter().map(|(step, value)| (step * STEP, values(*value))).collect()
    }

    fn windows(all: &[(i64, u64)]) -> Vec<(i64, i64)> {
        let windows = moved(DAY, STEP, [looks(all)].iter());
        windows.into_iter().map(|(from, to)| (from / STEP, to / STEP)).collect()
    }

    #[test]
    fn a_quiet_time_is_read_at_both_ends_only() {
        let quiet: Vec<_> = (0..=100).map(|step| (step, 0)).collect();
        assert_eq!(windows(&quiet), [(-1, 0), (99, 101)]);
    }

    #[test]
    fn a_move_is_read_with_what_was_before() {
        let mut all: Vec<_> = (0..=100).map(|step| (step, u64::from(step >= 50))).collect();
        assert_eq!(windows(&all), [(-1, 0), (48, 50), (99, 101)]);
        // Nothing was heard for a while: both ends of that.
        all.retain(|(step, _)| !(20..30).contains(step));
        assert_eq!(windows(&all), [(-1, 0), (18, 20), (29, 30), (48, 50), (99, 101)]);
    }

    #[test]
    fn long_times_are_split_and_looked_at_often_enough() {
        let day = 86_400.0;
        assert_eq!(parts(0.0, 2.5 * day).len(), 3);
        assert_eq!(parts(0.0, day), [DAY]);
        assert_eq!((step(DAY), step((0, HOUR)), step((0, 1))), (300_000, 15_000, 15_000));
    }

    #[test]
    fn pieces_are_bounded_and_can_be_halved() {
        let clusters = (0..10).map(|n| (format!("cluster-{n}"), 30));
        let all = pieces(DAY, clusters, 100);
        assert_eq!(all.iter().map(|p| p.clusters.len()).collect::<Vec<_>>(), [3, 3, 3, 1]);
        let mut work = vec![all[0].clone()];
        let mut smallest = 0;
        while let Some(piece) = work.pop() {
            match piece.halves() {
                Some(halves) => work.extend(halves),
                None => smallest += 1,
            }
        }
        assert!(smallest > 3, "clusters first, then time");
    }
}

//! How far a cluster's clock is from the backend's, measured and steadied.

use crate::clock::Seconds;

/// A measurement within this much below the kept offset changes nothing: rendered times are whole
/// seconds, and scrapes take a while.
const SLACK: Seconds = 2.0;

/// Backend time minus cluster time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Offset {
    /// Last measurement: when the backend stamped an exposition minus when it was rendered.
    measured: Option<Seconds>,
    /// What times of the cluster are corrected by. It moves only when it must, so that corrected
    /// times stand still, and errs towards later.
    kept: Seconds,
}

impl Offset {
    /// Takes a measurement.
    pub(super) fn measure(&mut self, measured: Seconds) {
        if self.measured.is_none() || measured > self.kept || measured < self.kept - SLACK {
            self.kept = measured.ceil();
        }
        self.measured = Some(measured);
    }

    /// Whether times are corrected to earlier ones than they were by `other`, which was measured too.
    pub(super) fn is_before(self, other: Self) -> bool {
        other.measured.is_some() && self.kept < other.kept
    }

    /// The last measurement, if it is beyond `limit` either way.
    pub(super) fn beyond(self, limit: Seconds) -> Option<Seconds> {
        self.measured.filter(|m| m.abs() > limit)
    }

    /// The last measurement.
    pub(super) fn measured(self) -> Option<Seconds> {
        self.measured
    }

    /// A time of the cluster's clock in the backend's.
    pub(super) fn correct(self, theirs: Seconds) -> Seconds {
        theirs + self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_does_not_move_corrected_times() {
        let mut offset = Offset::default();
        offset.measure(0.2);
        offset.measure(1.3);
        let kept = offset.correct(100.0);
        for m in [0.1, 0.9, 1.9, 0.0, 1.2] {
            offset.measure(m);
            assert_eq!(offset.correct(100.0), kept);
        }
        assert!(kept >= 101.9, "errs towards later");
    }

    #[test]
    fn a_clock_that_is_off_is_corrected_and_beyond_a_limit_reported() {
        let mut offset = Offset::default();
        assert_eq!(offset.beyond(60.0), None);
        offset.measure(-300.5);
        assert_eq!((offset.correct(1000.0), offset.beyond(60.0)), (700.0, Some(-300.5)));
        offset.measure(0.5);
        assert_eq!((offset.correct(1000.0), offset.beyond(60.0)), (1001.0, None));
    }
}

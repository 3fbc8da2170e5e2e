//! How far behind the present to look, learnt from what arrives torn.

use statusbridge_core::time::Seconds;

/// How much the delay grows at once.
const STEP: Seconds = 5.0;
/// Whole polls in a row before it shrinks.
const CALM: u32 = 20;

/// The settle delay.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settle {
    least: Seconds,
    most: Seconds,
    delay: Seconds,
    calm: u32,
}

impl Settle {
    pub(super) fn new(least: Seconds, most: Seconds) -> Self {
        Self { least, most: most.max(least), delay: least, calm: 0 }
    }

    pub(super) fn delay(&self) -> Seconds {
        self.delay
    }

    /// Takes a poll into account. `recovered` streams could not be verified by one digest sample and
    /// could by the next: they were only torn. One that never adds up says nothing about delays.
    pub(super) fn learn(&mut self, read: usize, recovered: usize) {
        if recovered == 0 {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.delay = (self.delay - 1.0).max(self.least);
            }
        } else {
            self.calm = 0;
            if recovered * 10 >= read {
                self.delay = (self.delay + STEP).min(self.most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_torn_streams_and_shrinks_when_all_is_calm() {
        let mut settle = Settle::new(5.0, 12.0);
        settle.learn(100, 9);
        assert_eq!(settle.delay(), 5.0);
        settle.learn(100, 10);
        settle.learn(1, 1);
        assert_eq!(settle.delay(), 12.0);
        (0..CALM).for_each(|_| settle.learn(5, 0));
        assert_eq!(settle.delay(), 11.0);
        (0..20 * CALM).for_each(|_| settle.learn(5, 0));
        assert_eq!(settle.delay(), 5.0);
    }
}

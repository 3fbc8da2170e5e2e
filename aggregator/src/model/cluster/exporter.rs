//! A process of the exporter, which keeps the rules by which it vouches for a time.

use statusbridge_core::time::Seconds;

use super::super::START;
use super::Truth;

/// What it sees and vouches for.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) process: u64,
    pub(super) sees: Truth,
    /// Since when it vouches for that, by a clock that nobody sets.
    pub(super) since: Seconds,
    /// How often the object had changed when it looked last; none before the first look.
    version: Option<usize>,
    /// Whether it has lost contact since.
    pub(super) is_blind: bool,
}

impl Exporter {
    pub(super) fn new(process: u64) -> Self {
        Self { process, sees: Truth::NOTHING, since: START, version: None, is_blind: true }
    }

    /// Sees the object in its present version, which says since when it is so, or does not. Whether that was believed,
    /// which it never is against what this process has seen itself.
    pub(super) fn see(&mut self, now: Seconds, truth: Truth, version: usize, own: Option<Seconds>) -> bool {
        let missed = std::mem::take(&mut self.is_blind) && self.version != Some(version);
        let differs = self.version.is_some() && truth.shown() != self.sees.shown();
        let believed = own.filter(|_| missed && !differs);
        if missed || differs {
            self.since = believed.unwrap_or(now).max(self.since);
        }
        (self.sees, self.version) = (truth, Some(version));
        believed.is_some()
    }
}

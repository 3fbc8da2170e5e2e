//! Tells which updates are repeats: updates of a resource that was updated shortly before. Many repeats are a drift storm,
//! in which something changes a resource as often as the provider corrects it.

use std::{collections::HashMap, time::Duration};

/// An update within this time after the last one is a repeat. Providers poll a resource every 1 to 10 minutes.
const WINDOW: Duration = Duration::from_secs(30 * 60);
/// How many resources are remembered. Updates of any others do not count as repeats.
const RESOURCES: usize = 50_000;
/// The least time between two searches for resources to forget.
const SWEEP: Duration = Duration::from_secs(60);

/// When each resource was last updated.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// By a hash of the resource; time since the process began.
    last: HashMap<u64, Duration>,
    swept: Option<Duration>,
}

impl Repeats {
    /// Notes that a resource was updated at `now`, the time since the process began. Returns whether that is a repeat.
    pub(super) fn updated(&mut self, resource: u64, now: Duration) -> bool {
        if let Some(last) = self.last.get_mut(&resource) {
            let since = now.saturating_sub(*last);
            *last = now;
            return since <= WINDOW;
        }
        if self.last.len() >= RESOURCES && self.swept.is_none_or(|at| now.saturating_sub(at) >= SWEEP) {
            self.swept = Some(now);
            self.last.retain(|_, at| now.saturating_sub(*at) <= WINDOW);
        }
        if self.last.len() < RESOURCES {
            self.last.insert(resource, now);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn an_update_soon_after_another_is_a_repeat() {
        let mut repeats = Repeats::default();
        let seen: Vec<bool> = [(1, 0), (2, 1), (1, 10), (1, 40), (1, 71), (2, 71)]
            .map(|(r, at)| repeats.updated(r, minutes(at)))
            .into();
        assert_eq!(seen, [false, false, true, true, false, false]);
    }

    #[test]
    fn memory_is_bounded_and_old_resources_make_room() {
        let mut repeats = Repeats::default();
        let most = RESOURCES as u64;
        for resource in 0..most + 10 {
            assert!(!repeats.updated(resource, minutes(1)));
        }
        assert_eq!(repeats.last.len(), RESOURCES);
        // A resource that is not remembered never repeats.
        assert!(!repeats.updated(most + 1, minutes(2)));
        assert!(repeats.updated(3, minutes(2)));
        assert!(!repeats.updated(most + 1, minutes(40)));
        assert!(repeats.updated(most + 1, minutes(41)));
        assert_eq!(repeats.last.len(), 1);
    }
}

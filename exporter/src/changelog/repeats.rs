//! Which updates are repeats: of a resource that was updated not long before. Many of them are a drift storm, where
//! something changes a resource as often as the provider puts it right.

use std::{collections::HashMap, time::Duration};

/// An update of a resource so soon after its last one is a repeat. Providers look at a resource every 1 to 10 minutes.
pub const WINDOW: Duration = Duration::from_secs(30 * 60);
/// How many resources are remembered. Beyond them, updates are taken for no repeats.
const RESOURCES: usize = 50_000;
/// How often to look for resources that can be forgotten, once there are too many.
const SWEEP: Duration = Duration::from_secs(60);

/// When resources were last updated.
#[derive(Debug, Default)]
pub struct Repeats {
    /// By a hash of what names a resource; times are of the process's own clock.
    last: HashMap<u64, Duration>,
    swept: Option<Duration>,
}

impl Repeats {
    /// A resource was updated at `now`, time since any fixed point. Was that a repeat?
    pub fn updated(&mut self, resource: u64, now: Duration) -> bool {
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
        // One that had no room is never a repeat; one that had is.
        assert!(!repeats.updated(most + 1, minutes(2)));
        assert!(repeats.updated(3, minutes(2)));
        assert!(!repeats.updated(most + 1, minutes(40)));
        assert!(repeats.updated(most + 1, minutes(41)));
        assert_eq!(repeats.last.len(), 1);
    }
}

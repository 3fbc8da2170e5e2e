//! The sign of life: all gates that have to be closed are closed, but for those that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::object::Key;
use crate::time::Now;

/// Gates and namespaces that it names, at most: its annotation has room for 256 KiB.
const MOST_NAMED: usize = 500;

/// How long it waits for the closings that a poll leads to; those that take longer are named.
const PATIENCE: Duration = Duration::from_secs(2);

/// In the place of a gate's name: every gate of the namespace.
pub const EVERY: &str = "*";

/// When it is due, and what it names.
#[derive(Debug, Default)]
pub struct Heartbeat {
    /// Since when.
    due: Option<Duration>,
    /// What the one under way covers: the gates that were not closed, and since when all others were.
    under_way: Option<(BTreeSet<Key>, Duration)>,
    /// The gates that the last one named.
    named: BTreeSet<Key>,
}

impl Heartbeat {
    /// A poll has ended.
    pub fn is_due(&mut self, now: Now) {
        self.due.get_or_insert(now.passed);
    }

    /// What to name now, if it is to be given now; these gates have to be closed and are not.
    pub fn begin(&mut self, unclosed: &BTreeSet<Key>, now: Now) -> Option<BTreeSet<Key>> {
        if self.under_way.is_some() {
            return None;
        }
        // The sweeper closes what is named.
        if !self.named.is_subset(unclosed) {
            self.is_due(now);
        }
        let waits = |due: Duration| !unclosed.is_empty() && now.passed.saturating_sub(due) < PATIENCE;
        if self.due.is_none_or(waits) {
            return None;
        }
        let named = named(unclosed)?;
        self.due = None;
        self.under_way = Some((unclosed.clone(), now.passed));
        Some(named)
    }

    /// The hub has taken the one that was under way, or not. Since when everything else was closed, if it has.
    pub fn end(&mut self, landed: bool, now: Now) -> Option<Duration> {
        let (unclosed, since) = self.under_way.take()?;
        if !landed {
            self.is_due(now);
            return None;
        }
        self.named = unclosed;
        Some(since)
    }
}

/// Each of these gates, or, where they are too many, the namespaces that have most of them. `None` when there are more
/// namespaces than can be named: then there is no heartbeat.
fn named(unclosed: &BTreeSet<Key>) -> Option<BTreeSet<Key>> {
    let mut named = unclosed.clone();
    if named.len() > MOST_NAMED {
        let mut counts = BTreeMap::<&str, usize>::new();
        for key in unclosed {
            *counts.entry(&key.namespace).or_default() += 1;
        }
        let mut namespaces: Vec<(usize, &str)> =
            counts.into_iter().map(|(name, count)| (count, name)).collect();
        namespaces.sort_unstable();
        while named.len() > MOST_NAMED
            && let Some((_, namespace)) = namespaces.pop()
        {
            named.retain(|key| key.namespace != namespace);
            named.insert(Key { namespace: namespace.to_owned(), name: EVERY.to_owned() });
        }
    }
    (named.len() <= MOST_NAMED).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(namespace: &str, count: usize) -> impl Iterator<Item = Key> {
        let key = move |n| Key { namespace: namespace.to_owned(), name: format!("gate-{n}") };
        (0..count).map(key)
    }

    fn at(millis: u64) -> Now {
        Now { wall: 0.0, passed: Duration::from_millis(millis) }
    }

    #[test]
    fn gates_are_named_one_by_one_and_too_many_by_their_namespace() {
        let few: BTreeSet<Key> = gates("a", 300).chain(gates("b", 200)).collect();
        assert_eq!(named(&few), Some(few.clone()));
        let many: BTreeSet<Key> = few.into_iter().chain(gates("noisy", 5000)).collect();
        let noisy = Key { namespace: "noisy".into(), name: EVERY.into() };
        let every_a = Key { namespace: "a".into(), name: EVERY.into() };
        assert_eq!(named(&many), Some(gates("b", 200).chain([noisy, every_a]).collect()));
        let namespaces: Vec<String> = (0..501).map(|n| format!("n{n}")).collect();
        assert_eq!(named(&namespaces.iter().flat_map(|name| gates(name, 2)).collect()), None);
    }

    #[test]
    fn it_waits_for_closings_a_while_and_names_those_that_take_longer() {
        let (mut heartbeat, none) = (Heartbeat::default(), BTreeSet::new());
        assert_eq!(heartbeat.begin(&none, at(0)), None, "nothing was polled");
        heartbeat.is_due(at(1000));
        let hangs: BTreeSet<Key> = gates("a", 1).collect();
        assert_eq!(heartbeat.begin(&hangs, at(2999)), None);
        assert_eq!(heartbeat.begin(&hangs, at(3000)), Some(hangs.clone()));
        assert_eq!(heartbeat.begin(&hangs, at(9000)), None, "one is under way");
        assert_eq!(heartbeat.end(false, at(9000)), None);
        assert_eq!(heartbeat.begin(&hangs, at(11_000)), Some(hangs.clone()));
        assert_eq!(heartbeat.end(true, at(12_000)), Some(at(11_000).passed));
        assert_eq!(heartbeat.begin(&hangs, at(13_000)), None);
        assert_eq!(heartbeat.begin(&none, at(13_000)), Some(none.clone()), "it is named no longer at once");
        assert_eq!(heartbeat.end(true, at(13_100)), Some(at(13_000).passed));
        heartbeat.is_due(at(14_000));
        assert_eq!(heartbeat.begin(&none, at(14_000)), Some(none));
    }
}

//! Whose expression is evaluated next: namespaces take turns, each on a budget of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::reference::Reference;

/// A namespace's expressions may take one core for this part of the time.
const SHARE: u32 = 10;
/// How long they may take at once where the namespace asked for nothing before.
const SAVED: Duration = Duration::from_secs(1);

/// References that wait to be evaluated, by namespace.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: BTreeMap<String, BTreeSet<(Duration, Arc<Reference>)>>,
    /// Until when a namespace has used up its budget, less what it may have saved.
    spent_until: BTreeMap<String, Duration>,
}

impl Turns {
    /// Has a reference wait for its turn, which it gets no earlier than `due`.
    pub(super) fn push(&mut self, due: Duration, reference: Arc<Reference>) {
        self.waiting.entry(reference.place.namespace.clone()).or_default().insert((due, reference));
    }

    /// Nobody waits for this any more.
    pub(super) fn remove(&mut self, due: Duration, reference: &Arc<Reference>) {
        let namespace = &reference.place.namespace;
        if let Some(queue) = self.waiting.get_mut(namespace) {
            queue.remove(&(due, reference.clone()));
            if queue.is_empty() {
                self.waiting.remove(namespace);
            }
        }
    }

    /// The next one, of the namespace that has used least of its budget.
    pub(super) fn next(&mut self, now: Duration) -> Option<Arc<Reference>> {
        self.spent_until.retain(|_, until| *until > now);
        let may_go = self.waiting.iter().filter_map(|(namespace, queue)| {
            let (due, reference) = queue.first()?;
            let spent = self.spent_until.get(namespace).copied().unwrap_or(now);
            (*due <= now && spent <= now + SAVED * SHARE).then_some((spent, *due, reference))
        });
        let (_, due, reference) = may_go.min()?;
        let reference = reference.clone();
        self.remove(due, &reference);
        Some(reference)
    }

    /// Charges a namespace for an evaluation.
    pub(super) fn charge(&mut self, namespace: &str, took: Duration, now: Duration) {
        let spent = self.spent_until.get(namespace).copied().unwrap_or(now).max(now);
        self.spent_until.insert(namespace.to_owned(), spent + took * SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::Place;
    use super::*;

    fn reference(namespace: &str, name: usize) -> Arc<Reference> {
        let place = Place { namespace: namespace.into(), api_version: "v1".into(), kind: "ConfigMap".into() };
        Arc::new(Reference { place, name: name.to_string(), expression: String::new() })
    }

    /// How many evaluations each of these namespaces gets within so many milliseconds when each takes 10 ms.
    fn evaluated(namespaces: &[&str], millis: u64) -> BTreeMap<String, u32> {
        let began = Duration::ZERO;
        let mut turns = Turns::default();
        for (at, name) in namespaces.iter().flat_map(|it| (0..1000).map(move |name| (*it, name))) {
            turns.push(began, reference(at, name));
        }
        let (mut now, mut counts) = (began, BTreeMap::new());
        while now < began + Duration::from_millis(millis) {
            let took = Duration::from_millis(10);
            now += took;
            if let Some(next) = turns.next(now) {
                *counts.entry(next.place.namespace.clone()).or_default() += 1;
                turns.charge(&next.place.namespace, took, now);
            }
        }
        counts
    }

    #[test]
    fn a_namespace_gets_a_second_at_once_and_then_a_tenth_of_a_core() {
        let counts = evaluated(&["a"], 1_000);
        assert!((95..=100).contains(&counts["a"]), "{counts:?}");
        let counts = evaluated(&["a"], 21_000);
        assert!((300..=315).contains(&counts["a"]), "{counts:?}");
    }

    #[test]
    fn namespaces_take_turns_whatever_each_has_waiting() {
        let counts = evaluated(&["a", "b", "c"], 600);
        assert_eq!(counts.values().collect::<Vec<_>>(), [&20, &20, &20]);
        let (now, mut turns) = (Duration::ZERO, Turns::default());
        (0..100).for_each(|name| turns.push(now, reference("a", name)));
        turns.charge("a", Duration::from_millis(1), now);
        turns.push(now + Duration::from_millis(1), reference("b", 0));
        let next = turns.next(now + Duration::from_millis(1)).unwrap();
        assert_eq!(next.place.namespace, "b", "it has used less, though it came later");
    }

    #[test]
    fn nothing_comes_before_it_is_due_nor_once_nobody_waits_for_it() {
        let (now, mut turns) = (Duration::ZERO, Turns::default());
        let due = now + Duration::from_secs(1);
        turns.push(due, reference("a", 0));
        assert_eq!(turns.next(now), None);
        assert_eq!(turns.next(due), Some(reference("a", 0)));
        assert_eq!(turns.next(due), None);
        turns.push(due, reference("a", 0));
        turns.remove(due, &reference("a", 0));
        assert!(turns.next(due).is_none() && turns.waiting.is_empty());
    }
}

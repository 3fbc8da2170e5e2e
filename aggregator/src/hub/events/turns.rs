//! Events that wait. Namespaces take turns, so that one in which everything flaps keeps no other waiting.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// What waits, by namespace. No queue is empty.
#[derive(Debug)]
pub(super) struct Turns<T> {
    most: usize,
    waiting: usize,
    queues: BTreeMap<String, VecDeque<T>>,
    /// The namespace whose turn was last.
    last: String,
}

impl<T> Turns<T> {
    /// At most so many wait.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, waiting: 0, queues: BTreeMap::new(), last: String::new() }
    }

    /// Puts something at the end of a namespace's queue. What found no room comes back: the last in the longest queue.
    pub(super) fn push(&mut self, namespace: String, item: T) -> Option<T> {
        self.queues.entry(namespace).or_default().push_back(item);
        self.waiting += 1;
        if self.waiting <= self.most {
            return None;
        }
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let longest = longest.map(|(namespace, _)| namespace.clone())?;
        self.take(&longest, VecDeque::pop_back)
    }

    /// What is next: the first of the namespace after the one whose turn was last.
    pub(super) fn next(&mut self) -> Option<T> {
        let after = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let next = self.queues.range::<str, _>(after).next().or_else(|| self.queues.first_key_value());
        self.last = next.map(|(namespace, _)| namespace.clone())?;
        let last = self.last.clone();
        self.take(&last, VecDeque::pop_front)
    }

    fn take(&mut self, namespace: &str, from: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let queue = self.queues.get_mut(namespace)?;
        let item = from(queue);
        if queue.is_empty() {
            self.queues.remove(namespace);
        }
        self.waiting -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(most: usize, items: &[(&str, u32)]) -> (Turns<u32>, Vec<u32>) {
        let mut turns = Turns::new(most);
        let refused = items.iter().filter_map(|(namespace, item)| turns.push((*namespace).to_owned(), *item));
        let refused = refused.collect();
        (turns, refused)
    }

    #[test]
    fn namespaces_take_turns_and_each_keeps_its_order() {
        let (mut turns, _) = filled(9, &[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)]);
        let mut next = || turns.next();
        assert_eq!([next(), next(), next()], [Some(1), Some(4), Some(5)]);
        assert_eq!([next(), next(), next(), next()], [Some(2), Some(6), Some(3), None]);
        assert_eq!((turns.waiting, turns.queues.len()), (0, 0));
    }

    #[test]
    fn where_there_is_no_room_whoever_has_most_waiting_goes_without() {
        let (mut turns, refused) = filled(3, &[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("a", 6)]);
        assert_eq!(refused, [3, 2, 6]);
        assert_eq!(
            [turns.next(), turns.next(), turns.next(), turns.next()],
            [Some(1), Some(4), Some(5), None]
        );
    }
}

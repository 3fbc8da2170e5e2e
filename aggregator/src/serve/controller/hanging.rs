//! Writes that the hub's API server does not answer, and how long they are left alone, so that they hold up no others.
//!
//! An admission webhook that hangs, for one: the API server then sits on writes of the objects that the webhook is for,
//! and answers all others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use statusbridge_core::reconcile::store::Key;
use statusbridge_core::reconcile::write_queue::Job;

/// Longest time for a write that others like it let expect to hang.
const BRIEFLY: Duration = Duration::from_secs(2);
/// Closings that hung and are tried again at the same time.
const AGAIN_AT_ONCE: usize = 64;
/// No closing that hung is tried again for so many times as long as the last ones were waited for.
const REST: u32 = 3;
/// Longest time for any other status: heartbeat and closings wait meanwhile.
const STATUS: Duration = Duration::from_secs(4);
/// A status that hung is not written for so long, unless it is a closing.
const STATUS_REST: Duration = Duration::from_secs(60);
/// Nor is any other of its namespace for so long.
const NAMESPACE_REST: Duration = Duration::from_secs(10);
/// A namespace in which nothing has hung for so long is like any other.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Gates whose closing hung.
#[derive(Debug, Default)]
pub(crate) struct HangingClosings {
    /// When each was tried last.
    tried: BTreeMap<Key, Instant>,
    /// None of them is tried before that.
    next: Option<Instant>,
}

impl HangingClosings {
    /// Longest time for a closing that has not hung yet.
    pub(crate) const FIRST: Duration = BRIEFLY;
    /// The same for one that has.
    pub(crate) const AGAIN: Duration = Duration::from_secs(5);

    /// Which of these closings are to be written now: those that have not hung, namespaces by turns; and of the others
    /// those that were tried longest ago, if it is time for them.
    pub(crate) fn due<'a>(
        &mut self,
        closings: &'a BTreeSet<Key>,
        now: Instant,
    ) -> (Vec<&'a Key>, Vec<&'a Key>) {
        self.tried.retain(|key, _| closings.contains(key));
        let (mut again, first): (Vec<&Key>, Vec<&Key>) =
            closings.iter().partition(|key| self.tried.contains_key(key));
        if self.next.is_some_and(|next| now < next) {
            again.clear();
        }
        again.sort_by_key(|key| self.tried.get(key));
        again.truncate(AGAIN_AT_ONCE);
        (by_turns(first), again)
    }

    /// Some closings were written, and these of them hung, until `now`, after a wait of so long.
    pub(crate) fn hung<'a>(
        &mut self,
        gates: impl IntoIterator<Item = &'a Key>,
        waited: Duration,
        now: Instant,
    ) {
        for gate in gates {
            self.tried.insert(gate.clone(), now);
            self.next = Some(now + waited * REST);
        }
    }
}

/// The first of each namespace, then the second of each, and so on. They are sorted.
fn by_turns(keys: Vec<&Key>) -> Vec<&Key> {
    let mut ranked = Vec::with_capacity(keys.len());
    let (mut namespace, mut rank) = ("", 0_usize);
    for key in keys {
        rank = if key.namespace == namespace { rank + 1 } else { 0 };
        namespace = &key.namespace;
        ranked.push((rank, key));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, key)| key).collect()
}

/// Other writes that hung.
#[derive(Debug, Default)]
pub(crate) struct HangingStatuses {
    /// Until when each is left alone.
    jobs: BTreeMap<Job, Instant>,
    /// Until when all of a namespace are.
    namespaces: BTreeMap<String, Instant>,
}

impl HangingStatuses {
    /// Longest time for this write; none when it is left alone now.
    pub(crate) fn patience(&self, job: &Job, now: Instant) -> Option<Duration> {
        let namespace = self.namespaces.get(&job.1.namespace);
        let rests = |until: Option<&Instant>| until.is_some_and(|until| now < *until);
        if rests(namespace) || rests(self.jobs.get(job)) {
            return None;
        }
        let has_hung = namespace.is_some_and(|until| now < *until + FORGOTTEN);
        Some(if has_hung { BRIEFLY } else { STATUS })
    }

    /// A write hung.
    pub(crate) fn hung(&mut self, job: &Job, now: Instant) {
        self.jobs.retain(|_, until| now < *until);
        self.namespaces.retain(|_, until| now < *until + FORGOTTEN);
        self.jobs.insert(job.clone(), now + STATUS_REST);
        self.namespaces.insert(job.1.namespace.clone(), now + NAMESPACE_REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statusbridge_core::reconcile::store::Kind;

    fn key(name: &str) -> Key {
        let (namespace, name) = name.split_once('/').unwrap();
        Key { namespace: namespace.into(), name: name.into() }
    }

    fn keys(names: &str) -> BTreeSet<Key> {
        names.split_whitespace().map(key).collect()
    }

    fn names(keys: Vec<&Key>) -> String {
        keys.into_iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn closings_that_hung_rest_for_longer_than_they_were_waited_for() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let closings = keys("a/1 a/2 a/3 b/1 b/2 c/1");
        let mut hanging = HangingClosings::default();
        let due = |hanging: &mut HangingClosings, closings: &BTreeSet<Key>, now: Instant| {
            let (first, again) = hanging.due(closings, now);
            (names(first), names(again))
        };
        assert_eq!(due(&mut hanging, &closings, at(0)).0, "a/1 b/1 c/1 a/2 b/2 a/3");
        hanging.hung(&keys("a/1 b/1"), Duration::from_secs(2), at(2));
        let fresh = "a/2 b/2 c/1 a/3".to_owned();
        assert_eq!(due(&mut hanging, &closings, at(7)), (fresh.clone(), String::new()));
        assert_eq!(due(&mut hanging, &closings, at(8)), (fresh.clone(), "a/1 b/1".to_owned()));
        hanging.hung(&keys("a/1"), Duration::from_secs(5), at(13));
        assert_eq!(due(&mut hanging, &closings, at(27)), (fresh.clone(), String::new()));
        assert_eq!(due(&mut hanging, &closings, at(28)), (fresh, "b/1 a/1".to_owned()));
        // One that has landed is like any other when it has to be closed again.
        due(&mut hanging, &keys("b/1"), at(28));
        assert_eq!(due(&mut hanging, &keys("a/1 b/1"), at(28)), ("a/1".to_owned(), "b/1".to_owned()));
    }

    #[test]
    fn closings_that_hang_are_tried_again_so_many_at_a_time_each_in_its_turn() {
        let now = Instant::now();
        let closings: BTreeSet<Key> = (0..200).map(|n| key(&format!("a/{n:03}"))).collect();
        let mut hanging = HangingClosings::default();
        hanging.hung(&closings, Duration::ZERO, now);
        let mut tried = BTreeSet::new();
        for round in 1..=4 {
            let then = now + Duration::from_secs(round);
            let some: Vec<Key> = hanging.due(&closings, then).1.into_iter().cloned().collect();
            assert_eq!(some.len(), AGAIN_AT_ONCE);
            hanging.hung(&some, Duration::ZERO, then);
            tried.extend(some);
        }
        assert_eq!(tried, closings);
    }

    #[test]
    fn a_status_that_hung_rests_for_longer_than_its_namespace() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let job = |name: &str| (Kind::FleetPackage, key(name));
        let mut hanging = HangingStatuses::default();
        assert_eq!(hanging.patience(&job("a/1"), begin), Some(STATUS));
        hanging.hung(&job("a/1"), begin);
        let cases = [
            ("a/1", 0, None),
            ("a/2", 9, None),
            ("b/1", 0, Some(STATUS)),
            ("a/2", 10, Some(BRIEFLY)),
            ("a/1", 59, None),
            ("a/1", 60, Some(BRIEFLY)),
            ("a/1", 310, Some(STATUS)),
        ];
        for (name, seconds, expected) in cases {
            assert_eq!(hanging.patience(&job(name), at(seconds)), expected, "{name} at {seconds}");
        }
        for n in 0..1000 {
            hanging.hung(&job(&format!("{n}/{n}")), at(10 * n));
        }
        assert!(hanging.jobs.len() <= 6 && hanging.namespaces.len() <= 32);
    }
}

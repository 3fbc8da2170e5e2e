//! Writes that are under way: which, and how many more there may be.
//!
//! A write that the hub does not answer takes the place of no other namespace's.

use std::collections::BTreeMap;

use super::command::Number;
use super::write_queue::Job;

/// Writes under way of one namespace, at most.
const OF_A_NAMESPACE: usize = 8;
/// Writes under way in all, at most.
const IN_ALL: usize = 256;

/// What is known of a write under way.
#[derive(Debug)]
pub(super) struct Flight<T> {
    /// Of the call.
    pub(super) number: Number,
    /// Whether to look at the job again once it is over.
    pub(super) again: bool,
    /// What else.
    pub(super) what: T,
}

/// All that is under way, one of each job.
#[derive(Debug)]
pub(super) struct Flights<T> {
    jobs: BTreeMap<Job, Flight<T>>,
    of_namespaces: BTreeMap<String, usize>,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self { jobs: BTreeMap::new(), of_namespaces: BTreeMap::new() }
    }
}

impl<T> Flights<T> {
    /// Whether there is room for another one of this namespace.
    pub(super) fn has_room(&self, namespace: &str) -> bool {
        self.jobs.len() < IN_ALL && self.of_namespaces.get(namespace).copied().unwrap_or(0) < OF_A_NAMESPACE
    }

    /// What is under way of a job.
    pub(super) fn get(&self, job: &Job) -> Option<&Flight<T>> {
        self.jobs.get(job)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, job: &Job) -> Option<&mut Flight<T>> {
        self.jobs.get_mut(job)
    }

    /// All of it.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Job, &mut Flight<T>)> {
        self.jobs.iter_mut()
    }

    /// Something is under way, in place of what was under way of the same job.
    pub(super) fn begin(&mut self, job: Job, number: Number, what: T) {
        let namespace = job.1.namespace.clone();
        if self.jobs.insert(job, Flight { number, again: false, what }).is_none() {
            *self.of_namespaces.entry(namespace).or_default() += 1;
        }
    }

    /// It is over: what was known of it, if the call with this number is the one that is under way.
    pub(super) fn end(&mut self, job: &Job, number: Number) -> Option<Flight<T>> {
        self.jobs.get(job).filter(|flight| flight.number == number)?;
        let flight = self.jobs.remove(job)?;
        if let Some(count) = self.of_namespaces.get_mut(&job.1.namespace) {
            *count -= 1;
            if *count == 0 {
                self.of_namespaces.remove(&job.1.namespace);
            }
        }
        Some(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::object::{Key, Kind};

    fn job(namespace: &str, n: usize) -> Job {
        (Kind::RolloutGate, Key { namespace: namespace.to_owned(), name: n.to_string() })
    }

    #[test]
    fn a_namespace_that_hangs_leaves_room_for_others_and_all_together_are_bounded() {
        let mut flights = Flights::default();
        let mut begun = 0;
        for n in 0..100 {
            for namespace in 0..100 {
                let name = format!("ns-{namespace}");
                if flights.has_room(&name) {
                    flights.begin(job(&name, n), begun, ());
                    begun += 1;
                }
                assert!(flights.of_namespaces.values().all(|count| *count <= OF_A_NAMESPACE));
            }
        }
        assert_eq!(begun, IN_ALL as u64);
        assert!(flights.end(&job("ns-0", 0), 7).is_none(), "that is another call");
        assert!(flights.end(&job("ns-0", 0), 0).is_some());
        assert!(flights.has_room("ns-0") && flights.has_room("late"));
        flights.begin(job("late", 0), begun, ());
        assert!(!flights.has_room("later"));
        // What takes the place of another of the same job needs no room.
        flights.begin(job("late", 0), begun + 1, ());
        assert!(flights.end(&job("late", 0), begun).is_none());
        assert!(flights.end(&job("late", 0), begun + 1).is_some());
    }
}

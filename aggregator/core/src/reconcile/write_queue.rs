//! Status writes that wait for the write budget, in the order in which they are worth it.
//!
//! ```text
//!   news       a: 1 4 5   b: 2   c: 3      the namespaces take turns: 1 2 3 4 5
//!   refreshes  a: 6 7                      one of so many writes is a refresh
//! ```
//!
//! However much waits in one namespace, another waits for one of its writes at a time and no more. Each operation takes
//! logarithmic time.

use std::collections::BTreeMap;

use crate::reconcile::object::{Key, Kind};

/// An object whose status, or whose slices, are to be written.
pub(super) type Job = (Kind, Key);

/// How much a write matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// It only says once more what stands there: a younger `asOf`, another `epoch`.
    Refresh,
    /// It says something else than what stands there.
    News,
}

/// One of so many writes is a refresh even while there is news, so that `asOf` never stands still.
const SHARE: u32 = 4;

/// The queue. Each job waits in it once, as the most urgent of what was asked for.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    news: Queue,
    refreshes: Queue,
    /// Each job's urgency and its number in the queue of that.
    waiting: BTreeMap<Job, (Urgency, u64)>,
    /// Numbers that were given away to jobs and turns.
    numbers: u64,
    turn: u32,
}

/// Jobs of one urgency.
#[derive(Debug, Default)]
struct Queue {
    /// By namespace; none is empty.
    lanes: BTreeMap<String, Lane>,
    /// By number: whose turn it is next, and after that.
    turns: BTreeMap<u64, String>,
}

/// What waits in one namespace.
#[derive(Debug)]
struct Lane {
    turn: u64,
    /// In the order in which they came.
    jobs: BTreeMap<u64, Job>,
}

impl WriteQueue {
    /// Adds a job, or makes it more urgent.
    pub(super) fn push(&mut self, job: Job, urgency: Urgency) {
        match self.waiting.get(&job) {
            Some((known, _)) if *known >= urgency => return,
            Some((known, number)) => {
                let (known, number) = (*known, *number);
                self.queue(known).remove(&job, number);
            }
            None => {}
        }
        let number = self.number();
        self.queue(urgency).push(job.clone(), number);
        self.waiting.insert(job, (urgency, number));
    }

    /// Takes the next job of a namespace that may have one.
    pub(super) fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Job> {
        self.turn = (self.turn + 1) % SHARE;
        let mut order = [Urgency::News, Urgency::Refresh];
        if self.turn == 0 {
            order.reverse();
        }
        let number = self.number();
        let job = order.into_iter().find_map(|urgency| self.queue(urgency).pop(number, &may))?;
        self.waiting.remove(&job);
        Some(job)
    }

    fn queue(&mut self, urgency: Urgency) -> &mut Queue {
        match urgency {
            Urgency::News => &mut self.news,
            Urgency::Refresh => &mut self.refreshes,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many jobs wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Queue {
    /// Adds a job under a number that is greater than all before it. A namespace in which nothing waited comes last.
    fn push(&mut self, job: Job, number: u64) {
        let namespace = &job.1.namespace;
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.jobs.insert(number, job);
            return;
        }
        self.turns.insert(number, namespace.clone());
        let lane = Lane { turn: number, jobs: BTreeMap::new() };
        self.lanes.entry(namespace.clone()).or_insert(lane).jobs.insert(number, job);
    }

    /// Takes the job that has waited longest in the namespace whose turn it is, of those that may have one, which then
    /// comes last, by this number.
    fn pop(&mut self, number: u64, may: impl Fn(&str) -> bool) -> Option<Job> {
        let turn = *self.turns.iter().find(|(_, namespace)| may(namespace))?.0;
        let namespace = self.turns.remove(&turn)?;
        let lane = self.lanes.get_mut(&namespace)?;
        let (_, job) = lane.jobs.pop_first()?;
        if lane.jobs.is_empty() {
            self.lanes.remove(&namespace);
        } else {
            lane.turn = number;
            self.turns.insert(number, namespace);
        }
        Some(job)
    }

    fn remove(&mut self, job: &Job, number: u64) {
        let namespace = &job.1.namespace;
        let Some(lane) = self.lanes.get_mut(namespace) else { return };
        lane.jobs.remove(&number);
        if lane.jobs.is_empty() {
            self.turns.remove(&lane.turn);
            self.lanes.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    /// `a/1` is object 1 of namespace a.
    fn job(name: &str) -> Job {
        let (namespace, name) = name.split_once('/').unwrap();
        (Kind::RolloutGate, Key { namespace: namespace.into(), name: name.into() })
    }

    fn jobs(names: &str) -> Vec<Job> {
        names.split_whitespace().map(job).collect()
    }

    fn drain(backlog: &mut WriteQueue) -> String {
        let out: Vec<String> =
            std::iter::from_fn(|| backlog.pop(|_| true)).map(|(_, key)| key.to_string()).collect();
        out.join(" ")
    }

    #[rstest]
    #[case::in_one_namespace("a/3 a/1 a/2", "", "a/3 a/1 a/2")]
    #[case::namespaces_take_turns("a/1 a/2 a/3 a/4 b/1 c/1 b/2", "", "a/1 b/1 c/1 a/2 b/2 a/3 a/4")]
    #[case::news_goes_first_and_refreshes_get_their_share(
        "a/1 a/2 a/3 a/4 a/5 a/6 a/7 a/8",
        "a/r1 a/r2 a/r3 a/r4",
        "a/1 a/2 a/3 a/r1 a/4 a/5 a/6 a/r2 a/7 a/8 a/r3 a/r4"
    )]
    #[case::each_by_turns("a/1 a/2 a/3 a/4 b/1", "a/r1 a/r2 b/r1", "a/1 b/1 a/2 a/r1 a/3 a/4 b/r1 a/r2")]
    fn the_order(#[case] news: &str, #[case] refreshes: &str, #[case] expected: &str) {
        let mut backlog = WriteQueue::default();
        jobs(refreshes).into_iter().for_each(|job| backlog.push(job, Urgency::Refresh));
        jobs(news).into_iter().for_each(|job| backlog.push(job, Urgency::News));
        assert_eq!(backlog.len(), jobs(news).len() + jobs(refreshes).len());
        assert_eq!(drain(&mut backlog), expected);
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_refresh_that_became_news_is_done_once_and_earlier() {
        let mut backlog = WriteQueue::default();
        jobs("a/0 a/1 b/2").into_iter().for_each(|job| backlog.push(job, Urgency::Refresh));
        backlog.push(job("b/2"), Urgency::News);
        backlog.push(job("b/2"), Urgency::Refresh);
        assert_eq!(drain(&mut backlog), "b/2 a/0 a/1");
    }

    #[test]
    fn a_namespace_that_may_not_have_a_turn_waits_and_keeps_no_other_waiting() {
        let mut backlog = WriteQueue::default();
        jobs("a/1 a/2 b/1 b/2").into_iter().for_each(|job| backlog.push(job, Urgency::News));
        let others = |namespace: &str| namespace != "a";
        let out: Vec<Job> = std::iter::from_fn(|| backlog.pop(others)).collect();
        assert_eq!(out, jobs("b/1 b/2"));
        assert_eq!(drain(&mut backlog), "a/1 a/2");
    }

    #[test]
    fn what_is_asked_for_again_and_again_takes_no_more_room() {
        let mut backlog = WriteQueue::default();
        for _ in 0..1000 {
            backlog.push(job("a/1"), Urgency::Refresh);
            backlog.push(job("a/1"), Urgency::News);
            assert!(backlog.pop(|_| true).is_some());
            backlog.push(job("b/1"), Urgency::Refresh);
        }
        let WriteQueue { news, refreshes, waiting, .. } = &backlog;
        let rooms = [news.lanes.len(), news.turns.len(), refreshes.turns.len(), waiting.len()];
        assert!(rooms.iter().all(|it| *it <= 2), "{rooms:?}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8, u8, bool),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..4_u8, 0..20_u8, any::<bool>()).prop_map(|(n, job, news)| Step::Push(n, job, news)),
            2 => Just(Step::Pop),
        ]
    }

    proptest! {
        #[test]
        fn every_job_comes_out_once(steps in prop::collection::vec(step(), 0..200)) {
            let (mut backlog, mut waiting) = (WriteQueue::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Push(namespace, name, news) => {
                        let job = job(&format!("{namespace}/{name}"));
                        backlog.push(job.clone(), if news { Urgency::News } else { Urgency::Refresh });
                        waiting.insert(job);
                    }
                    Step::Pop => {
                        let popped = backlog.pop(|_| true);
                        prop_assert_eq!(popped.is_some(), !waiting.is_empty());
                        prop_assert!(popped.is_none_or(|job| waiting.remove(&job)));
                    }
                }
                prop_assert_eq!(backlog.len(), waiting.len());
            }
            while let Some(job) = backlog.pop(|_| true) {
                prop_assert!(waiting.remove(&job));
            }
            prop_assert!(waiting.is_empty() && backlog.is_empty());
            prop_assert!(backlog.news.lanes.is_empty() && backlog.refreshes.lanes.is_empty());
            prop_assert!(backlog.news.turns.is_empty() && backlog.refreshes.turns.is_empty());
        }

        /// Whatever others do, so long as no more than this many namespaces have anything to write: while a job waits,
        /// none of them gets two turns more than the job's own namespace, and a refresh does not wait for ever.
        #[test]
        fn nobody_waits_for_more_than_a_fair_share(
            before in 0..300_usize,
            hogs in 1..5_usize,
            ours in 1..5_usize,
            news in any::<bool>(),
        ) {
            let mut backlog = WriteQueue::default();
            let hog = |n: usize| job(&format!("hog-{}/{n}", n % hogs));
            (0..before).for_each(|n| backlog.push(hog(n), Urgency::News));
            let urgency = if news { Urgency::News } else { Urgency::Refresh };
            (0..ours).for_each(|n| backlog.push(job(&format!("us/{n}")), urgency));
            let mut writes = 0;
            let mut left = ours;
            while left > 0 {
                // The hogs change something after every write.
                (0..hogs).for_each(|n| backlog.push(hog(before + writes * hogs + n), Urgency::News));
                let (_, key) = backlog.pop(|_| true).unwrap();
                left -= usize::from(key.namespace == "us");
                writes += 1;
            }
            let share = if news { ours * (hogs + 1) * 4 / 3 + 2 } else { ours * 4 };
            prop_assert!(writes <= share, "{} writes until {} of us were done", writes, ours);
        }
    }
}

//! Status writes that wait for the write budget, in the order in which they are worth it.

use std::collections::{BTreeMap, VecDeque};

/// How much a write matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It only says once more what stands there: a younger `asOf`, another `epoch`.
    Refresh,
    /// It says something else than what stands there.
    News,
}

/// One of so many writes is a refresh even while there is news, so that `asOf` never stands still.
const SHARE: u32 = 4;

/// The queue. Each job waits in it once, as the most urgent of what was asked for.
#[derive(Debug)]
pub struct Backlog<J> {
    news: VecDeque<J>,
    refreshes: VecDeque<J>,
    waiting: BTreeMap<J, Urgency>,
    turn: u32,
}

impl<J> Default for Backlog<J> {
    fn default() -> Self {
        Self { news: VecDeque::new(), refreshes: VecDeque::new(), waiting: BTreeMap::new(), turn: 0 }
    }
}

impl<J: Ord + Clone> Backlog<J> {
    /// Adds a job, or makes it more urgent.
    pub fn push(&mut self, job: J, urgency: Urgency) {
        if self.waiting.get(&job).is_some_and(|known| *known >= urgency) {
            return;
        }
        match urgency {
            Urgency::News => self.news.push_back(job.clone()),
            Urgency::Refresh => self.refreshes.push_back(job.clone()),
        }
        self.waiting.insert(job, urgency);
    }

    /// Takes the next job.
    pub fn pop(&mut self) -> Option<J> {
        self.turn = (self.turn + 1) % SHARE;
        let mut order = [Urgency::News, Urgency::Refresh];
        if self.turn == 0 {
            order.reverse();
        }
        order.into_iter().find_map(|urgency| self.pop_from(urgency))
    }

    fn pop_from(&mut self, urgency: Urgency) -> Option<J> {
        let queue = match urgency {
            Urgency::News => &mut self.news,
            Urgency::Refresh => &mut self.refreshes,
        };
        // A job that became more urgent has left its old place behind.
        let job = std::iter::from_fn(|| queue.pop_front())
            .find(|job| self.waiting.get(job).is_some_and(|known| *known == urgency))?;
        self.waiting.remove(&job);
        Some(job)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many jobs wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(backlog: &mut Backlog<u32>) -> Vec<u32> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn news_goes_first_and_refreshes_get_their_share() {
        let mut backlog = Backlog::default();
        (0..4).for_each(|job| backlog.push(job, Urgency::Refresh));
        (10..18).for_each(|job| backlog.push(job, Urgency::News));
        assert_eq!(backlog.len(), 12);
        assert_eq!(drain(&mut backlog), [10, 11, 12, 0, 13, 14, 15, 1, 16, 17, 2, 3]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_refresh_that_became_news_is_done_once_and_earlier() {
        let mut backlog = Backlog::default();
        (0..3).for_each(|job| backlog.push(job, Urgency::Refresh));
        backlog.push(2, Urgency::News);
        backlog.push(2, Urgency::Refresh);
        assert_eq!(drain(&mut backlog), [2, 0, 1]);
    }

    proptest! {
        #[test]
        fn every_job_comes_out_once(jobs in prop::collection::vec((0u32..20, prop::bool::ANY), 0..80)) {
            let mut backlog = Backlog::default();
            let mut expected = std::collections::BTreeSet::new();
            for (job, news) in jobs {
                backlog.push(job, if news { Urgency::News } else { Urgency::Refresh });
                expected.insert(job);
            }
            prop_assert_eq!(backlog.len(), expected.len());
            let mut out = drain(&mut backlog);
            out.sort_unstable();
            prop_assert_eq!(out, expected.into_iter().collect::<Vec<_>>());
            prop_assert!(backlog.is_empty());
        }
    }
}

//! Asks the backend the queries of checks.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use statusbridge_core::checks::{Answer, Answers, Fault, Said};
use statusbridge_core::time::Seconds;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::elements::Elements;
use crate::feed::promql::{PromFeed, QueryApi};

/// Queries of a backend that are under way at the same time.
const AT_ONCE: usize = 16;
/// Those of them that one namespace may have under way.
const OF_A_NAMESPACE: usize = 4;
/// Those of them that all namespaces together may have under way whose last round had a query that hung.
const OF_SLOW_ONES: usize = AT_ONCE / 2;

const NOT_IN_TIME: &str = "not answered in time";

/// Asks one backend.
#[derive(Debug, Clone)]
pub struct Asker<Q = PromFeed> {
    feed: Q,
    cluster_label: String,
    longest: Duration,
    /// Namespaces wait for these in line.
    slots: Arc<Semaphore>,
    /// The slow ones wait for these before.
    slow_slots: Arc<Semaphore>,
}

/// The queries for one time: a backend gets each of them once, however many namespaces have it.
#[derive(Debug)]
pub struct Asked {
    at: Seconds,
    /// From when the longest time counts, for all namespaces alike.
    began: Instant,
    said: HashMap<String, OnceCell<Said>>,
}

impl Asked {
    /// Nothing was answered yet.
    pub fn new(queries: &BTreeSet<&String>, at: Seconds) -> Self {
        let said = queries.iter().map(|query| ((*query).clone(), OnceCell::new())).collect();
        Self { at, began: Instant::now(), said }
    }
}

impl<Q: QueryApi> Asker<Q> {
    /// One that asks through `feed`, where `cluster_label` names the cluster, a round for so long at most.
    pub fn new(feed: Q, cluster_label: &str, longest: Duration) -> Self {
        let [slots, slow_slots] = [AT_ONCE, OF_SLOW_ONES].map(|slots| Arc::new(Semaphore::new(slots)));
        Self { feed, cluster_label: cluster_label.to_owned(), longest, slots, slow_slots }
    }

    /// Asks a namespace's queries in this order, several at a time. When the time is over, a query that the backend has not
    /// answered has failed, and one that it was not asked yet is left out. A namespace `is_slow` if queries of its last round hung.
    /// Nothing more is asked once answers have as many values as there is `room` for.
    pub async fn ask(self, queries: Vec<String>, asked: Arc<Asked>, is_slow: bool, room: usize) -> Answers {
        let until = asked.began + self.longest;
        let taken = AtomicUsize::new(0);
        let said = stream::iter(queries)
            .map(|query| async {
                let said = match taken.load(Ordering::Relaxed) {
                    taken if taken >= room => Err(Fault::NoRoom),
                    _ => self.in_turn(&query, &asked, is_slow, until).await?,
                };
                taken.fetch_add(said.as_ref().map_or(0, Answer::values), Ordering::Relaxed);
                Some((query, (asked.at, said)))
            })
            .buffer_unordered(OF_A_NAMESPACE)
            .filter_map(std::future::ready);
        Answers { said: said.collect().await }
    }

    /// Asks the backend a query once there is a slot for it, or takes the answer that another namespace got.
    async fn in_turn(&self, query: &str, asked: &Asked, is_slow: bool, until: Instant) -> Option<Said> {
        let ask = || async {
            let _slow_slot =
                if is_slow { timeout_at(until, self.slow_slots.acquire()).await.ok() } else { None };
            let _slot = timeout_at(until, self.slots.acquire()).await;
            if Instant::now() >= until {
                return Err(());
            }
            let said = timeout_at(until, self.one(query, asked.at)).await;
            Ok(said.unwrap_or_else(|_| Err(Fault::Backend(NOT_IN_TIME.to_owned()))))
        };
        asked.said.get(query)?.get_or_try_init(ask).await.ok().cloned()
    }

    async fn one(&self, query: &str, at: Seconds) -> Said {
        let elements = self.feed.query(query, at, Elements::new(&self.cluster_label)).await;
        elements.map_err(|error| Fault::Backend(error.to_string()))?.finish()
    }
}

/// Whether the backend was asked something and had not answered when the time was over.
pub(super) fn hung(answers: &Answers) -> bool {
    let is_late = |said: &Said| matches!(said, Err(Fault::Backend(error)) if error == NOT_IN_TIME);
    answers.said.values().any(|(_, said)| is_late(said))
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::feed::promql::FeedError;
    use statusbridge_core::sample::{Labels, Sample, Sink};

    /// Answers numbers with themselves, hangs on `hang`, fails on anything else.
    #[derive(Clone, Default)]
    struct Fake {
        now: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        all: Arc<AtomicUsize>,
    }

    impl QueryApi for Fake {
        async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            self.all.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if expression.starts_with("hang") {
                std::future::pending::<()>().await;
            }
            self.now.fetch_sub(1, Ordering::SeqCst);
            let value =
                expression.parse().map_err(|_| FeedError::Warnings(vec!["a store is gone".into()]))?;
            sink.series(&Labels::default(), &[Sample { at, value }]);
            Ok(sink)
        }

        fn received(&self) -> u64 {
            0
        }
    }

    fn asker(longest: Duration) -> (Asker<Fake>, Fake) {
        let fake = Fake::default();
        (Asker::new(fake.clone(), "cluster", longest), fake)
    }

    const ROOM: usize = 1_000;
    /// Long enough that what does not hang is answered before, however busy the machine is.
    const HANGS_FOR: Duration = Duration::from_secs(5);

    fn asked(queries: &[String], at: Seconds) -> Arc<Asked> {
        Arc::new(Asked::new(&queries.iter().collect(), at))
    }

    #[tokio::test]
    async fn one_bad_query_harms_no_other() {
        let queries = ["1", "nonsense", "hang", "2"].map(str::to_owned);
        let (asker, _) = asker(HANGS_FOR);
        let answers = asker.ask(queries.to_vec(), asked(&queries, 7.0), false, ROOM).await;
        assert_eq!(answers.said["1"], (7.0, Ok(Answer::One(1.0))));
        assert_eq!(answers.said["2"], (7.0, Ok(Answer::One(2.0))));
        let said = |query: &str| answers.said[query].1.clone().unwrap_err().to_string();
        assert_eq!(said("nonsense"), "backend's answer comes with warnings: a store is gone");
        assert_eq!(said("hang"), "not answered in time");
        // The next time those that gave no answer come last, and what was not asked yet first.
        let again = queries.into_iter().chain(["3".to_owned()]).collect();
        assert_eq!(answers.next_round(again), ["3", "1", "2", "hang", "nonsense"]);
    }

    #[tokio::test]
    async fn so_many_are_under_way_at_a_time() {
        let (asker, fake) = asker(Duration::from_secs(60));
        let queries: Vec<String> = (0..1000).map(|it| it.to_string()).collect();
        let of = |n: usize| queries.iter().skip(n * 100).take(100).cloned().collect();
        let asked = asked(&queries, 0.0);
        let one = asker.clone().ask(of(0), asked.clone(), false, ROOM).await;
        assert!(one.said.values().all(|(_, said)| said.is_ok()) && one.said.len() == 100);
        assert_eq!(fake.most.load(Ordering::SeqCst), OF_A_NAMESPACE);
        join_all((1..10).map(|n| asker.clone().ask(of(n), asked.clone(), false, ROOM))).await;
        assert_eq!(fake.most.load(Ordering::SeqCst), AT_ONCE);
    }

    #[tokio::test]
    async fn nothing_is_asked_when_the_answers_fill_the_room() {
        let (asker, fake) = asker(Duration::from_secs(60));
        let queries: Vec<String> = (0..100).map(|it| it.to_string()).collect();
        let asked = asked(&queries, 0.0);
        let answers = asker.clone().ask(queries.clone(), asked.clone(), false, 10).await;
        let good = answers.said.values().filter(|(_, said)| said.is_ok()).count();
        // Those that are under way when the room is full are answered.
        assert!((10..10 + OF_A_NAMESPACE).contains(&good), "{good}");
        assert!(answers.said.values().all(|(_, said)| said.is_ok() || *said == Err(Fault::NoRoom)));
        assert_eq!(fake.all.load(Ordering::SeqCst), good);
        // Another namespace is asked the same.
        let others = asker.ask(queries, asked, false, ROOM).await;
        assert!(others.said.len() == 100 && others.said.values().all(|(_, said)| said.is_ok()));
    }

    #[tokio::test]
    async fn a_query_of_several_namespaces_is_asked_once() {
        let (asker, fake) = asker(Duration::from_secs(60));
        let queries = ["1", "2", "3"].map(str::to_owned).to_vec();
        let asked = asked(&queries, 0.0);
        let all =
            join_all((0..10).map(|_| asker.clone().ask(queries.clone(), asked.clone(), false, ROOM))).await;
        assert!(all.iter().all(|it| *it == all[0]) && all[0].said.len() == 3);
        assert_eq!(fake.all.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn queries_that_hang_keep_only_their_own_namespace_waiting() {
        let (asker, _) = asker(HANGS_FOR);
        let slow: Vec<String> = (0..50).map(|it| format!("hang {it}")).collect();
        let quick: Vec<String> = (0..50).map(|it| it.to_string()).collect();
        let asked = asked(&[&slow[..], &quick[..]].concat(), 0.0);
        let slow = tokio::spawn(asker.clone().ask(slow, asked.clone(), false, ROOM));
        tokio::task::yield_now().await;
        let quick = asker.ask(quick, asked, false, ROOM).await;
        assert!(!slow.is_finished() && quick.said.len() == 50);
        let slow = slow.await.unwrap();
        assert!(slow.said.values().all(|(_, said)| said.is_err()));
        assert_eq!(slow.said.len(), OF_A_NAMESPACE, "the others were not asked yet");
    }

    #[tokio::test]
    async fn namespaces_that_hang_leave_half_of_the_slots_to_those_that_do_not() {
        let (asker, fake) = asker(HANGS_FOR);
        let quick: Vec<String> = (0..50).map(|it| it.to_string()).collect();
        let slow: Vec<Vec<String>> =
            (0..8).map(|of| (0..50).map(|it| format!("hang {of} {it}")).collect()).collect();
        let asked = asked(&[slow.concat(), quick.clone()].concat(), 0.0);
        let slow: Vec<_> = slow
            .into_iter()
            .map(|it| tokio::spawn(asker.clone().ask(it, asked.clone(), true, ROOM)))
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(fake.now.load(Ordering::SeqCst), OF_SLOW_ONES, "they have all that they may have");
        let quick = asker.ask(quick, asked, false, ROOM).await;
        assert_eq!(fake.now.load(Ordering::SeqCst), OF_SLOW_ONES, "they still hang");
        assert!(quick.said.len() == 50 && !hung(&quick));
        let slow: Vec<Answers> = join_all(slow).await.into_iter().map(Result::unwrap).collect();
        // Who was not asked anything did not hang, and is not slow the next time.
        assert_eq!(slow.iter().filter(|it| hung(it)).count(), OF_SLOW_ONES / OF_A_NAMESPACE);
        assert_eq!(slow.iter().map(|it| it.said.len()).sum::<usize>(), OF_SLOW_ONES);
    }
}

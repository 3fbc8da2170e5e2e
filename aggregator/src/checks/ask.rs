//! Asks the backend the queries of checks.

use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::answer::Elements;
use super::{Answers, Fault, Said};
use crate::clock::Seconds;
use crate::feed::{PromFeed, QueryApi};

/// Queries under way at the same time.
const AT_ONCE: usize = 8;

/// Asks one backend.
#[derive(Debug, Clone)]
pub struct Asker<Q = PromFeed> {
    feed: Q,
    cluster_label: String,
    longest: Duration,
}

impl<Q: QueryApi> Asker<Q> {
    /// One that asks through `feed`, where `cluster_label` names the cluster, for so long at most.
    pub fn new(feed: Q, cluster_label: &str, longest: Duration) -> Self {
        Self { feed, cluster_label: cluster_label.to_owned(), longest }
    }

    /// Asks all of `queries` for the time `at`, in this order, several at a time. What has no answer
    /// when the time is over is not waited for any longer.
    pub async fn ask(self, queries: Vec<String>, at: Seconds) -> Answers {
        let late = || Err(Fault::Backend("not answered in time".to_owned()));
        let mut answers = Answers { at, said: queries.iter().map(|query| (query.clone(), late())).collect() };
        let asked = stream::iter(queries)
            .map(|query| async { (self.one(&query, at).await, query) })
            .buffer_unordered(AT_ONCE);
        let mut asked = std::pin::pin!(asked);
        // An error is that the time is over.
        let _ = tokio::time::timeout(self.longest, async {
            while let Some((said, query)) = asked.next().await {
                answers.said.insert(query, said);
            }
        })
        .await;
        answers
    }

    async fn one(&self, query: &str, at: Seconds) -> Said {
        let elements = self.feed.query(query, at, Elements::new(&self.cluster_label)).await;
        elements.map_err(|error| Fault::Backend(error.to_string()))?.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::checks::Answer;
    use crate::feed::{FeedError, Labels, Sample, Sink};

    /// Answers numbers with themselves, hangs on `hang`, fails on anything else.
    #[derive(Clone, Default)]
    struct Fake {
        now: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl QueryApi for Fake {
        async fn query<S: Sink>(&self, expression: &str, at: Seconds, mut sink: S) -> Result<S, FeedError> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if expression == "hang" {
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

    #[tokio::test]
    async fn one_bad_query_harms_no_other() {
        let queries = ["1", "nonsense", "hang", "2"].map(str::to_owned);
        let (asker, _) = asker(Duration::from_millis(50));
        let answers = asker.ask(queries.to_vec(), 7.0).await;
        assert_eq!(answers.at, 7.0);
        assert_eq!(answers.said["1"], Ok(Answer::One(1.0)));
        assert_eq!(answers.said["2"], Ok(Answer::One(2.0)));
        let said = |query: &str| answers.said[query].clone().unwrap_err().to_string();
        assert_eq!(said("nonsense"), "backend's answer comes with warnings: a store is gone");
        assert_eq!(said("hang"), "not answered in time");
        // The next time those that gave no answer come last.
        let again = answers.failed_last(BTreeSet::from(queries.clone()));
        assert_eq!(again, ["1", "2", "hang", "nonsense"]);
    }

    #[tokio::test]
    async fn so_many_are_under_way_at_a_time() {
        let (asker, fake) = asker(Duration::from_secs(60));
        let answers = asker.ask((0..1000).map(|it| it.to_string()).collect(), 0.0).await;
        assert!(answers.said.values().all(Result::is_ok) && answers.said.len() == 1000);
        assert_eq!(fake.most.load(Ordering::SeqCst), AT_ONCE);
    }
}

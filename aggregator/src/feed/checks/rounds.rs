//! Rounds of queries: one for each namespace, so that slow checks of one keep no other's waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use statusbridge_core::checks::{Answers, put_together};
use statusbridge_core::time::Seconds;
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use super::Asker;
use super::ask::Asked;

/// What came of a namespace's round.
pub struct Round {
    /// The namespace.
    pub namespace: String,
    queries: Vec<String>,
    /// The answers of each backend.
    said: Vec<Answers>,
}

/// The rounds that are under way, and what came of those before.
#[derive(Default)]
pub struct Rounds {
    tasks: JoinSet<Round>,
    under_way: BTreeMap<String, AbortHandle>,
    /// The last answers of each backend.
    by_backend: Vec<Answers>,
    /// The same, put together.
    answers: Answers,
}

impl Rounds {
    /// All answers that backends have given so far, put together.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Begins a round for each namespace whose last one has ended, and forgets answers to queries that no gate has any
    /// more. `backends` holds for each backend who asks it, and for which time; `None` where it does not answer now.
    pub fn begin(
        &mut self,
        queries: BTreeMap<String, BTreeSet<String>>,
        backends: &[Option<(Asker, Seconds)>],
    ) {
        let all: BTreeSet<&String> = queries.values().flatten().collect();
        self.by_backend.resize_with(backends.len(), Answers::default);
        for known in self.by_backend.iter_mut().chain([&mut self.answers]) {
            known.said.retain(|query, _| all.contains(query));
        }
        // Of a backend that does not answer, what it said before stays, and ages.
        let share = |(asker, at): &(Asker, Seconds)| (asker.clone(), Arc::new(Asked::new(&all, *at)));
        let backends: Vec<_> = backends.iter().map(|it| it.as_ref().map(share)).collect();
        self.under_way.retain(|_, round| !round.is_finished());
        for (namespace, queries) in &queries {
            if self.under_way.contains_key(namespace) {
                continue;
            }
            let queries = self.answers.next_round(queries.clone());
            let ask = |backend: &Option<(Asker, Arc<Asked>)>| {
                let (backend, queries) = (backend.clone(), queries.clone());
                async {
                    match backend {
                        Some((asker, asked)) => asker.ask(queries, asked).await,
                        None => Answers::default(),
                    }
                }
            };
            let (asked, namespace) = (join_all(backends.iter().map(ask)), namespace.clone());
            let round = Round { namespace: namespace.clone(), queries, said: Vec::new() };
            let task = self.tasks.spawn(async { Round { said: asked.await, ..round } });
            self.under_way.insert(namespace, task);
        }
    }

    /// The next round that ends; `None` when none is under way.
    pub async fn next(&mut self) -> Option<Round> {
        self.tasks.join_next().await?.ok()
    }

    /// Takes in what came of a round.
    pub fn take(&mut self, round: Round) {
        for (known, new) in self.by_backend.iter_mut().zip(round.said) {
            for (query, (at, said)) in new.said {
                if known.get(&query).is_none_or(|it| it.at <= at) {
                    known.said.insert(query, (at, said));
                }
            }
        }
        for query in &round.queries {
            if let Some((at, said)) = put_together(&self.by_backend, query)
                && let Some(error) = self.answers.take(query, at, said)
            {
                warn!(query, error, "what the backend said to a check");
            }
        }
    }
}

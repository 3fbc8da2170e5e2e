//! Rounds of queries: one for each namespace, so that slow checks of one keep no other's waiting.

use std::collections::{BTreeMap, BTreeSet};

use tracing::warn;

use super::{Answers, put_together};

/// The rounds that are under way, and what came of those before.
#[derive(Debug, Default)]
pub struct Rounds {
    under_way: BTreeSet<String>,
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
    /// more: what to ask for each, in this order. There are so many backends.
    pub fn begin(
        &mut self,
        queries: BTreeMap<String, BTreeSet<String>>,
        backends: usize,
    ) -> Vec<(String, Vec<String>)> {
        let all: BTreeSet<&String> = queries.values().flatten().collect();
        self.by_backend.resize_with(backends, Answers::default);
        // Of a backend that does not answer, what it said before stays, and ages.
        for known in self.by_backend.iter_mut().chain([&mut self.answers]) {
            known.said.retain(|query, _| all.contains(query));
        }
        let mut begun = Vec::new();
        for (namespace, queries) in queries {
            if self.under_way.insert(namespace.clone()) {
                begun.push((namespace, self.answers.next_round(queries)));
            }
        }
        begun
    }

    /// Takes in what each backend said to the queries of a namespace's round.
    pub fn take(&mut self, namespace: &str, queries: &[String], said: Vec<Answers>) {
        self.under_way.remove(namespace);
        for (known, new) in self.by_backend.iter_mut().zip(said) {
            for (query, (at, said)) in new.said {
                if known.get(&query).is_none_or(|it| it.at <= at) {
                    known.said.insert(query, (at, said));
                }
            }
        }
        for query in queries {
            if let Some((at, said)) = put_together(&self.by_backend, query)
                && let Some(error) = self.answers.take(query, at, said)
            {
                warn!(query, error, "what the backend said to a check");
            }
        }
    }
}

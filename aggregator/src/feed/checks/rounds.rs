//! Rounds of queries that are under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use statusbridge_core::checks::Answers;
use statusbridge_core::time::Seconds;
use tokio::task::JoinSet;

use super::Asker;
use super::ask::Asked;

/// What came of a namespace's round.
pub struct Round {
    /// The namespace.
    pub namespace: String,
    /// What was asked.
    pub queries: Vec<String>,
    /// The answers of each backend.
    pub said: Vec<Answers>,
}

/// The rounds that are under way.
#[derive(Default)]
pub struct Rounds(JoinSet<Round>);

impl Rounds {
    /// Asks the queries of some namespaces. `backends` holds for each backend who asks it, and for which time; `None` where
    /// it does not answer now.
    pub fn begin(&mut self, rounds: Vec<(String, Vec<String>)>, backends: &[Option<(Asker, Seconds)>]) {
        let all: BTreeSet<&String> = rounds.iter().flat_map(|(_, queries)| queries).collect();
        let share = |(asker, at): &(Asker, Seconds)| (asker.clone(), Arc::new(Asked::new(&all, *at)));
        let backends: Vec<_> = backends.iter().map(|it| it.as_ref().map(share)).collect();
        for (namespace, queries) in rounds {
            let ask = |backend: &Option<(Asker, Arc<Asked>)>| {
                let (backend, queries) = (backend.clone(), queries.clone());
                async {
                    match backend {
                        Some((asker, asked)) => asker.ask(queries, asked).await,
                        None => Answers::default(),
                    }
                }
            };
            let asked = join_all(backends.iter().map(ask));
            self.0.spawn(async { Round { namespace, queries, said: asked.await } });
        }
    }

    /// The next round that ends; `None` when none is under way.
    pub async fn next(&mut self) -> Option<Round> {
        self.0.join_next().await?.ok()
    }
}

//! Rounds of queries that are under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use statusbridge_core::checks::{Answers, Round};
use statusbridge_core::time::Seconds;
use tokio::task::JoinSet;

use super::Asker;
use super::ask::{self, Asked};

/// What came of a namespace's round.
pub struct Ended {
    /// The namespace.
    pub namespace: String,
    /// What was asked.
    pub queries: Vec<String>,
    /// The answers of each backend.
    pub said: Vec<Answers>,
}

/// The rounds that are under way.
#[derive(Default)]
pub struct Rounds {
    under_way: JoinSet<Ended>,
    /// Namespaces whose last round had a query that hung.
    slow: BTreeSet<String>,
}

impl Rounds {
    /// Asks the queries of some namespaces. `backends` holds for each backend who asks it, and for which time; `None` where
    /// it does not answer now.
    pub fn begin(&mut self, rounds: Vec<Round>, backends: &[Option<(Asker, Seconds)>]) {
        let all: BTreeSet<&String> = rounds.iter().flat_map(|round| &round.queries).collect();
        let share = |(asker, at): &(Asker, Seconds)| (asker.clone(), Arc::new(Asked::new(&all, *at)));
        let backends: Vec<_> = backends.iter().map(|it| it.as_ref().map(share)).collect();
        for Round { namespace, queries, room } in rounds {
            let is_slow = self.slow.contains(&namespace);
            let ask = |backend: &Option<(Asker, Arc<Asked>)>| {
                let (backend, queries) = (backend.clone(), queries.clone());
                async move {
                    match backend {
                        Some((asker, asked)) => asker.ask(queries, asked, is_slow, room).await,
                        None => Answers::default(),
                    }
                }
            };
            let asked = join_all(backends.iter().map(ask));
            self.under_way.spawn(async { Ended { namespace, queries, said: asked.await } });
        }
    }

    /// The next round that ends; `None` when none is under way.
    pub async fn next(&mut self) -> Option<Ended> {
        let round = self.under_way.join_next().await?.ok()?;
        if round.said.iter().any(ask::hung) {
            self.slow.insert(round.namespace.clone());
        } else {
            self.slow.remove(&round.namespace);
        }
        Some(round)
    }
}

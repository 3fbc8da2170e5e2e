//! Rounds of queries: one for each namespace, so that slow checks of one keep no other's waiting.

use std::collections::{BTreeMap, BTreeSet};

use tracing::warn;

use super::{Answers, MOST_VALUES, put_together};

/// What to ask for a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The namespace.
    pub namespace: String,
    /// Its queries, in the order in which to ask them.
    pub queries: Vec<String>,
    /// How many values the answers may have together, as far as the others are asked.
    pub room: usize,
}

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
    /// more. There are so many backends.
    pub fn begin(&mut self, queries: BTreeMap<String, BTreeSet<String>>, backends: usize) -> Vec<Round> {
        let all: BTreeSet<&String> = queries.values().flatten().collect();
        self.by_backend.resize_with(backends, Answers::default);
        // Of a backend that does not answer, what it said before stays, and ages.
        for known in self.by_backend.iter_mut().chain([&mut self.answers]) {
            known.said.retain(|query, _| all.contains(query));
        }
        let mut begun = Vec::new();
        for (namespace, all) in queries {
            if !self.under_way.insert(namespace.clone()) {
                continue;
            }
            let queries = self.answers.next_round(all.clone());
            let asked: BTreeSet<&String> = queries.iter().collect();
            let kept = |known: &Answers| known.values(all.iter().filter(|query| !asked.contains(query)));
            let kept = self.by_backend.iter().map(kept).max().unwrap_or_default();
            begun.push(Round { namespace, queries, room: MOST_VALUES.saturating_sub(kept) });
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

#[cfg(test)]
mod tests {
    use super::super::answer::{Answer, Value};
    use super::super::{MOST, Said};
    use super::*;

    fn clusters(count: usize) -> Said {
        Ok(Answer::Clusters((0..count).map(|n| (format!("c{n}"), Value::Number(1.0))).collect()))
    }

    #[test]
    fn what_is_kept_of_queries_that_are_not_asked_takes_room() {
        let query = |n: usize| format!("q{n:04}");
        let all: BTreeSet<String> = (0..MOST + 1).map(query).collect();
        let queries = BTreeMap::from([("team".to_owned(), all)]);
        let mut rounds = Rounds::default();
        let first = rounds.begin(queries.clone(), 2);
        assert_eq!(first[0].room, MOST_VALUES);
        assert_eq!(rounds.begin(queries.clone(), 2), [], "one is under way");
        let said = |at, values| {
            let said = first[0].queries.iter().map(|query| (query.clone(), (at, clusters(values)))).collect();
            Answers { said }
        };
        rounds.take("team", &first[0].queries, vec![said(1.0, 20), said(2.0, 30)]);
        // The last one has its turn, and the last of the others is left out. The backend that says most counts.
        let second = rounds.begin(queries, 2);
        assert_eq!(second[0].queries[0], query(MOST));
        assert_eq!(second[0].room, MOST_VALUES - 30);
    }

    #[test]
    fn of_what_a_backend_said_the_youngest_stays() {
        let mut rounds = Rounds::default();
        rounds.begin(BTreeMap::from([("team".to_owned(), BTreeSet::from(["q".to_owned()]))]), 1);
        for (at, value, stays) in [(2.0, 20.0, 20.0), (1.0, 10.0, 20.0), (2.0, 21.0, 21.0), (3.0, 30.0, 30.0)]
        {
            let said = Answers { said: [("q".to_owned(), (at, Ok(Answer::One(value))))].into() };
            rounds.take("team", &["q".to_owned()], vec![said]);
            let known = rounds.answers().get("q").map(|it| it.said.clone());
            assert_eq!(known, Some(Ok(Answer::One(stays))), "{value} at {at}");
        }
    }
}

//! One answer of what several backends say.

use super::answer::{Answer, Value};
use super::{Answers, Fault, Said};
use crate::time::Seconds;

/// Puts together what backends said to a query. Only what all of them were asked counts, and the whole is as
/// old as its oldest part: one that does not answer any more makes all of it out of date.
pub(super) fn put_together(backends: &[Answers], query: &str) -> Option<(Seconds, Said)> {
    let all: Option<Vec<_>> = backends.iter().map(|it| it.said.get(query).cloned()).collect();
    all?.into_iter().reduce(|(at, said), (other_at, other)| (at.min(other_at), both(said, other)))
}

/// What two backends say together. One that knows nothing of it leaves the word to the other.
fn both(a: Said, b: Said) -> Said {
    match (a, b) {
        (Err(Fault::NoData), other) | (other, Err(Fault::NoData)) => other,
        (Err(fault), _) | (_, Err(fault)) => Err(fault),
        (Ok(Answer::Clusters(mut all)), Ok(Answer::Clusters(more))) => {
            for (cluster, value) in more {
                all.entry(cluster).and_modify(|known| *known = Value::Several).or_insert(value);
            }
            Ok(Answer::Clusters(all))
        }
        (Ok(_), Ok(_)) => {
            Err(Fault::Answer("several backends have an answer that is not by cluster".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn clusters(names: &[&str]) -> Said {
        Ok(Answer::Clusters(names.iter().map(|name| ((*name).to_owned(), Value::Number(1.0))).collect()))
    }

    fn refused() -> Said {
        Err(Fault::Backend("refused".into()))
    }

    #[rstest]
    #[case::each_knows_some(clusters(&["a"]), clusters(&["b"]), clusters(&["a", "b"]))]
    #[case::one_knows_nothing(Err(Fault::NoData), clusters(&["b"]), clusters(&["b"]))]
    #[case::nobody_knows_anything(Err(Fault::NoData), Err(Fault::NoData), Err(Fault::NoData))]
    #[case::one_knows_all(Ok(Answer::One(2.0)), Err(Fault::NoData), Ok(Answer::One(2.0)))]
    #[case::one_fails(refused(), clusters(&["b"]), refused())]
    #[case::one_fails_and_one_knows_nothing(refused(), Err(Fault::NoData), refused())]
    #[case::both_know_all(
        Ok(Answer::One(2.0)), Ok(Answer::One(2.0)),
        Err(Fault::Answer("several backends have an answer that is not by cluster".into())))]
    #[case::both_know_the_same_cluster(
        clusters(&["a"]), clusters(&["a"]),
        Ok(Answer::Clusters([("a".to_owned(), Value::Several)].into())))]
    fn of_two(#[case] a: Said, #[case] b: Said, #[case] expected: Said) {
        assert_eq!(both(a.clone(), b.clone()), expected);
        assert_eq!(both(b, a), expected, "whoever is first");
    }

    #[test]
    fn the_oldest_counts_and_what_not_all_were_asked_does_not() {
        let answers = |at, queries: &[&str]| Answers {
            said: queries.iter().map(|query| ((*query).to_owned(), (at, clusters(&["a"])))).collect(),
        };
        let both = [answers(20.0, &["x", "y"]), answers(10.0, &["y", "z"])];
        assert_eq!(put_together(&both, "y").map(|(at, _)| at), Some(10.0));
        assert_eq!((put_together(&both, "x"), put_together(&both, "z")), (None, None));
        assert_eq!(put_together(&both[..1], "x"), Some((20.0, clusters(&["a"]))));
        assert_eq!(put_together(&[], "x"), None);
    }
}

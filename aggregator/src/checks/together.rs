//! One answer of what several backends say.

use super::answer::{Answer, Value};
use super::{Answers, Fault, Said};

/// Puts together what backends said to the same queries. Only what all of them were asked counts, and
/// the whole is as old as its oldest part: one that does not answer any more makes all of it out of date.
pub fn put_together(backends: &[Answers]) -> Answers {
    let [first, others @ ..] = backends else { return Answers::default() };
    let at = others.iter().fold(first.at, |at, other| at.min(other.at));
    let said = first.said.iter().filter_map(|(query, said)| {
        let all = others.iter().map(|other| other.said.get(query));
        let all: Option<Vec<&Said>> = std::iter::once(Some(said)).chain(all).collect();
        Some((query.clone(), all?.into_iter().cloned().reduce(both)?))
    });
    Answers { at, said: said.collect() }
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
            at,
            said: queries.iter().map(|query| ((*query).to_owned(), clusters(&["a"]))).collect(),
        };
        let all = put_together(&[answers(20.0, &["x", "y"]), answers(10.0, &["y", "z"])]);
        assert_eq!((all.at, all.said.keys().collect::<Vec<_>>()), (10.0, vec![&"y".to_owned()]));
        assert_eq!(put_together(&[answers(20.0, &["x"])]), answers(20.0, &["x"]));
        assert_eq!(put_together(&[]), Answers::default());
    }
}

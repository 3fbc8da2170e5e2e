//! What a feed's last poll came to.

use std::time::Instant;

use statusbridge_core::decide::Backend;
use statusbridge_core::fleet::{FeedName, named};
use statusbridge_core::time::Seconds;
use tracing::{info, warn};

use super::{Feed, Polled, push, scrape};
use crate::feed::checks::Asker;

/// How a feed stands.
#[derive(Debug)]
pub struct Standing {
    /// Its name.
    pub name: FeedName,
    /// What asks it the queries of checks.
    pub asker: Option<Asker>,
    /// Why its last poll failed, if it did; nothing before the first.
    pub last: Option<Result<(), String>>,
    /// Whether it has ever answered.
    pub has_answered: bool,
    /// The time that its last poll asked about.
    pub polled_at: Seconds,
    /// How far behind the present it looks.
    pub settle: Seconds,
    /// Streams that added up at the last good poll, and those that did not.
    pub streams: (usize, usize),
    /// When it was last heard from.
    pub heard: Instant,
    problems: Vec<String>,
}

impl Standing {
    pub(super) fn new(feed: &Feed) -> Self {
        Self {
            name: feed.name.clone(),
            asker: feed.asker.clone(),
            last: None,
            has_answered: false,
            polled_at: 0.0,
            settle: feed.settle,
            streams: (0, 0),
            heard: Instant::now(),
            problems: Vec::new(),
        }
    }

    /// Takes in how a poll ended, and logs what is new.
    pub fn polled(&mut self, polled: Polled) {
        let Polled { t, settle, report, .. } = polled;
        (self.polled_at, self.settle, self.heard) = (t, settle, Instant::now());
        let feed = self.name.as_ref();
        let words = Words::of(feed);
        let news = report.problems.iter().filter(|problem| !self.problems.contains(problem));
        news.for_each(|problem| warn!(feed, %problem, "{}", words.problem));
        self.problems = report.problems;
        let last = report.error.map_or(Ok(()), Err);
        let is_news = self.last.as_ref() != Some(&last);
        match &last {
            Err(error) if is_news => warn!(feed, %error, "{}", words.fails),
            Ok(()) if is_news => {
                let streams = report.verified + report.unverified;
                info!(feed, streams, "{}", words.answers);
            }
            _ => {}
        }
        if last.is_ok() {
            self.has_answered = true;
            self.streams = (report.verified, report.unverified);
        }
        self.last = Some(last);
    }

    /// Whether its last poll was answered.
    pub fn answers(&self) -> bool {
        self.last == Some(Ok(()))
    }

    /// Why there is no answer to the last poll, if there is none.
    fn error(&self) -> Option<String> {
        match &self.last {
            Some(Ok(())) => None,
            None => Some(named(&self.name, "it is being asked for the first time")),
            Some(Err(error)) => Some(named(&self.name, error)),
        }
    }
}

/// What a feed is called in the log.
struct Words {
    problem: &'static str,
    fails: &'static str,
    answers: &'static str,
}

impl Words {
    fn of(feed: &str) -> Self {
        match feed {
            scrape::NAME => Self {
                problem: "what came of a scrape",
                fails: "not all exporters can be tried",
                answers: "all exporters were tried",
            },
            push::NAME => Self {
                problem: "what an exporter pushed",
                fails: "not all exporters have been waited for",
                answers: "all exporters have pushed, or were waited for",
            },
            _ => Self {
                problem: "what the backend returned",
                fails: "the metrics backend does not answer",
                answers: "the metrics backend answers",
            },
        }
    }
}

/// What all feeds together come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overall {
    failing: Option<String>,
    unheard: Option<String>,
    any: bool,
}

impl Overall {
    /// Of these feeds.
    pub fn of(standings: &[Standing]) -> Self {
        let failing = standings.iter().filter(|it| it.has_answered).find_map(Standing::error);
        let unheard = standings.iter().filter(|it| !it.has_answered).find_map(Standing::error);
        Self { failing, unheard, any: standings.iter().any(|it| it.has_answered) }
    }

    /// What may be said of clusters of which something is known.
    pub fn backend(&self) -> Backend<'_> {
        match (&self.failing, &self.unheard) {
            (_, Some(error)) if !self.any => Backend::Unknown(error),
            (Some(error), _) => Backend::Fails(error),
            (None, _) => Backend::Answers,
        }
    }

    /// Why some feed has never answered: nobody knows which clusters it would tell of.
    pub fn unheard(&self) -> Option<&str> {
        self.unheard.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::feed::promql::poll::PollReport;

    fn standing(name: &str, polls: &[Result<(), &str>]) -> Standing {
        let run = Box::new(|_| Box::pin(std::future::ready(())) as _);
        let mut standing = Standing::new(&Feed { name: name.into(), settle: 5.0, asker: None, run });
        for poll in polls {
            let error = poll.err().map(str::to_owned);
            let report = PollReport { ok: poll.is_ok(), error, ..PollReport::default() };
            standing.polled(Polled { report, ..Polled::default() });
        }
        standing
    }

    const FIRST: &str = "feed b: it is being asked for the first time";

    #[rstest]
    #[case::all_answer(&[Ok(())], &[Ok(())], Backend::Answers, None)]
    #[case::one_fails(&[Ok(())], &[Ok(()), Err("gone")], Backend::Fails("feed b: gone"), None)]
    #[case::it_is_back(&[Ok(())], &[Ok(()), Err("gone"), Ok(())], Backend::Answers, None)]
    #[case::one_was_not_asked_yet(&[Ok(())], &[], Backend::Answers, Some(FIRST))]
    #[case::one_never_answered(&[Ok(())], &[Err("gone")], Backend::Answers, Some("feed b: gone"))]
    #[case::one_never_answered_and_one_fails(
        &[Ok(()), Err("full")], &[Err("gone")], Backend::Fails("feed a: full"), Some("feed b: gone"))]
    #[case::nobody_ever_answered(
        &[Err("full")], &[Err("gone")], Backend::Unknown("feed a: full"), Some("feed a: full"))]
    fn what_two_feeds_come_to(
        #[case] a: &[Result<(), &str>],
        #[case] b: &[Result<(), &str>],
        #[case] backend: Backend<'_>,
        #[case] unheard: Option<&str>,
    ) {
        let overall = Overall::of(&[standing("a", a), standing("b", b)]);
        assert_eq!((overall.backend(), overall.unheard()), (backend, unheard));
    }

    #[test]
    fn the_only_feed_has_no_name() {
        let overall = Overall::of(&[standing("", &[Ok(()), Err("gone")])]);
        assert_eq!(overall.backend(), Backend::Fails("gone"));
    }
}

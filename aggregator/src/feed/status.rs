//! What is told of a feed's polls, and when it was last heard from.

use std::time::Instant;

use statusbridge_core::fleet::FeedName;
use statusbridge_core::reconcile::feeds::{self, Failure};
use statusbridge_core::time::Seconds;
use tracing::{info, warn};

use super::promql::FeedError;
use super::{Feed, Polled, push, scrape};
use crate::feed::checks::Asker;

/// One feed.
#[derive(Debug)]
pub struct FeedStatus {
    /// Its name.
    pub name: FeedName,
    /// What asks it the queries of checks.
    pub asker: Option<Asker>,
    /// How far behind the present it looks at first.
    pub settle: Seconds,
    /// When it was last heard from.
    pub heard: Instant,
    /// Why its last poll failed, if it did; nothing before the first.
    last: Option<Result<(), String>>,
    problems: Vec<String>,
}

impl FeedStatus {
    pub(super) fn new(feed: &Feed) -> Self {
        Self {
            name: feed.name.clone(),
            asker: feed.asker.clone(),
            settle: feed.settle,
            heard: Instant::now(),
            last: None,
            problems: Vec::new(),
        }
    }

    /// Takes in how a poll ended, and logs what is new: what follows from it.
    pub fn polled(&mut self, polled: Polled) -> feeds::Polled {
        let Polled { t, settle, report, .. } = polled;
        self.heard = Instant::now();
        let feed = self.name.as_ref();
        let words = Words::of(feed);
        let news = report.problems.iter().filter(|problem| !self.problems.contains(problem));
        news.for_each(|problem| warn!(feed, %problem, "{}", words.problem));
        self.problems = report.problems;
        let clock_lags = report.failure.as_ref().and_then(FeedError::clock_lags);
        let streams = (report.verified, report.unverified);
        let last = report.error.map_or(Ok(()), Err);
        let is_news = self.last.as_ref() != Some(&last);
        match &last {
            Err(error) if is_news => warn!(feed, %error, "{}", words.fails),
            Ok(()) if is_news => info!(feed, streams = streams.0 + streams.1, "{}", words.answers),
            _ => {}
        }
        self.last = Some(last.clone());
        let outcome = last.map(|()| streams).map_err(|error| Failure { error, clock_lags });
        feeds::Polled { t, settle, outcome }
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

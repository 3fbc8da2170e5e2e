//! What the last poll of each feed came to, and the time that follows from it.

use crate::decide::{Backend, Moment};
use crate::fleet::{FeedName, named};
use crate::time::{Floor, Now, Seconds};

/// How a poll ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Polled {
    /// The time that it asked about.
    pub t: Seconds,
    /// How far behind the present the next one will look.
    pub settle: Seconds,
    /// How many streams added up, and how many did not; or why the poll failed.
    pub outcome: Result<(usize, usize), Failure>,
}

/// Why a poll failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// In words.
    pub error: String,
    /// By how much this machine's clock lags behind the backend's, where that is why.
    pub clock_lags: Option<Seconds>,
}

/// One feed, as it is planned.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its name; empty for the only one.
    pub name: FeedName,
    /// How far behind the present it looks.
    pub settle: Seconds,
    /// Whether it can be asked the queries of checks.
    pub asked: bool,
}

/// How a feed stands.
#[derive(Debug, Clone)]
struct Feed {
    name: FeedName,
    /// Whether it can be asked the queries of checks.
    asked: bool,
    /// Why its last poll failed, if it did; nothing before the first.
    last: Option<Result<(), String>>,
    has_answered: bool,
    /// The time that its last poll asked about.
    polled_at: Seconds,
    settle: Seconds,
    /// Streams that added up at the last good poll, and those that did not.
    streams: (usize, usize),
}

impl Feed {
    fn answers(&self) -> bool {
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

/// All feeds.
#[derive(Debug, Default)]
pub struct Feeds {
    all: Vec<Feed>,
    /// Why one that has answered before does not answer now.
    failing: Option<String>,
    /// Why some feed has never answered: nobody knows which clusters it would tell of.
    unheard: Option<String>,
    /// The time looked at when a feed answered last, or that should have been by the backend's clock.
    floor: Option<Floor>,
}

impl Feeds {
    /// These feeds take the place of those before.
    pub fn plan(&mut self, feeds: Vec<Planned>) {
        let feed = |Planned { name, settle, asked }| Feed {
            name,
            asked,
            last: None,
            has_answered: false,
            polled_at: 0.0,
            settle,
            streams: (0, 0),
        };
        self.all = feeds.into_iter().map(feed).collect();
        self.sum_up();
    }

    /// Takes in how a poll of the feed with this number ended.
    pub fn polled(&mut self, feed: usize, polled: Polled, now: Now) {
        let Some(feed) = self.all.get_mut(feed) else { return };
        (feed.polled_at, feed.settle) = (polled.t, polled.settle);
        match polled.outcome {
            Ok(streams) => {
                (feed.last, feed.has_answered, feed.streams) = (Some(Ok(())), true, streams);
                self.floor = Some(Floor::new(self.looked_at(now), now));
            }
            Err(Failure { error, clock_lags }) => {
                feed.last = Some(Err(error));
                if let Some(ahead) = clock_lags.filter(|_| !self.all.iter().any(Feed::answers)) {
                    // Nothing can be asked, but how old everything is by now can be told.
                    let t = self.looked_at(now);
                    let t = self.floor.map_or(t, |floor| floor.raise(t, now)).max(t + ahead);
                    self.floor = Some(Floor::new(t, now));
                }
            }
        }
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.failing = self.all.iter().filter(|it| it.has_answered).find_map(Feed::error);
        self.unheard = self.all.iter().filter(|it| !it.has_answered).find_map(Feed::error);
    }

    /// The time that every feed is looked at.
    fn looked_at(&self, now: Now) -> Seconds {
        now.wall - self.all.iter().map(|it| it.settle).fold(0.0, Seconds::max)
    }

    /// The present, and the time that evidence is measured by.
    pub fn moment(&self, now: Now) -> Moment {
        let t = self.looked_at(now);
        Moment { t: self.floor.map_or(t, |floor| floor.raise(t, now)), now: now.wall }
    }

    /// What may be said of clusters of which something is known.
    pub fn backend(&self) -> Backend<'_> {
        match (&self.failing, &self.unheard) {
            (_, Some(error)) if !self.any_has_answered() => Backend::Unknown(error),
            (Some(error), _) => Backend::Fails(error),
            (None, _) => Backend::Answers,
        }
    }

    /// Why some feed has never answered.
    pub fn unheard(&self) -> Option<&str> {
        self.unheard.as_deref()
    }

    /// Whether there is none.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any feed was asked yet.
    pub fn any_was_polled(&self) -> bool {
        self.all.iter().any(|it| it.last.is_some())
    }

    /// Whether any has ever answered.
    pub(crate) fn any_has_answered(&self) -> bool {
        self.all.iter().any(|it| it.has_answered)
    }

    /// Whether the last poll of each was answered.
    pub fn all_answer(&self) -> bool {
        self.all.iter().all(Feed::answers)
    }

    /// For each feed that can be asked, the time that it was asked about last; none where it does not answer now.
    pub fn asked_at(&self) -> impl Iterator<Item = Option<Seconds>> {
        let asked = self.all.iter().filter(|feed| feed.asked);
        asked.map(|feed| feed.answers().then_some(feed.polled_at))
    }

    /// Streams that added up at the last good polls, and those that did not.
    pub fn streams(&self) -> (usize, usize) {
        self.all.iter().fold((0, 0), |sum, it| (sum.0 + it.streams.0, sum.1 + it.streams.1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::testing::feeds;

    fn at(wall: Seconds, passed: u64) -> Now {
        Now { wall, passed: Duration::from_secs(passed) }
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
        let feeds = feeds(&[("a", a), ("b", b)]);
        assert_eq!((feeds.backend(), feeds.unheard()), (backend, unheard));
    }

    #[test]
    fn the_only_feed_has_no_name() {
        assert_eq!(feeds(&[("", &[Ok(()), Err("gone")])]).backend(), Backend::Fails("gone"));
    }

    #[test]
    fn the_time_goes_on_from_the_last_answer_and_from_what_a_backend_says_of_our_clock() {
        let mut feeds = feeds(&[("", &[])]);
        let outcome = Ok((1, 0));
        feeds.polled(0, Polled { t: 995.0, settle: 5.0, outcome }, at(1000.0, 100));
        assert_eq!(feeds.moment(at(1010.0, 110)), Moment { t: 1005.0, now: 1010.0 });
        assert_eq!(feeds.moment(at(400.0, 110)), Moment { t: 1005.0, now: 400.0 }, "the clock was set back");
        let outcome = Err(Failure { error: "it lags".into(), clock_lags: Some(3600.0) });
        feeds.polled(0, Polled { t: 1005.0, settle: 5.0, outcome }, at(1010.0, 110));
        assert_eq!(feeds.moment(at(1011.0, 111)).t, 4606.0);
    }
}

//! How far back a poll looks for digests.
//!
//! ```text
//!   the first poll, and one every ten minutes: two minutes, of all clusters
//!   the others: since the last poll, and two scrapes before it --fleet.missing--> two minutes of those of whom that misses somebody
//! ```

use statusbridge_contract::Metric;
use statusbridge_core::fleet::{Access, MOST_LATE};
use statusbridge_core::time::Seconds;

use super::PollConfig;
use super::batch::{fit, in_queries};
use super::digests::{BESIDE, Found, Heads, Streams};
use super::foreseen::Foreseen;
use super::window::Window;
use crate::feed::promql::{FeedError, QueryApi};

/// How far back the first poll looks, and how far where that shows too few scrapes of some stream.
const AT_FIRST: [Seconds; 2] = [120.0, 600.0];
/// A poll looks back as far as that again after so long: nobody looks by name for a cluster that is new and always late.
const ANEW_AFTER: Seconds = 600.0;
/// Polls overlap by so many scrapes, if that is not longer than [`LONGEST_OVERLAP`].
const OVERLAP: f64 = 1.5;
/// The overlap as long as nobody knows how often is scraped: that takes two scrapes.
const LONGEST_OVERLAP: Seconds = 120.0;
/// How far beyond the present is looked: VictoriaMetrics takes samples that are stamped up to two days ahead, others
/// less.
const AHEAD: Seconds = 2.0 * 86_400.0 + 600.0;
/// How far back a look may reach: what was found before its time is known as such for so long.
const REMEMBERED: Seconds = 720.0;
/// Clusters that are asked for something by name; of more, all are asked, and so they are where the names are too long for a
/// query.
const BY_NAME: usize = 500;
/// The same of clusters of which a look missed somebody: so many queries name them, and so many clusters each.
const QUERIES_BY_NAME: usize = 8;

/// The looks of one backend's polls.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// How many polls there were.
    polls: u64,
    /// The number of the last good one, and the time that it asked about.
    last: Option<(u64, Seconds)>,
    /// The same of the last one that looked back as far as the first.
    far: Seconds,
    foreseen: Foreseen,
    streams: Streams,
}

impl Looks {
    /// The poll at `t` was good.
    pub(super) fn answered(&mut self, t: Seconds) {
        self.last = Some((self.polls, t));
    }

    /// Looks for digest samples since the last poll; and further back for clusters of which that misses somebody. Their samples
    /// may come later than others, or be stamped by a slow clock: one that took the name of such a cluster would be heard alone.
    pub(super) async fn look(
        &mut self,
        feed: &impl QueryApi,
        config: &PollConfig,
        fleet: &mut impl Access,
        t: Seconds,
        now: Seconds,
    ) -> Result<Found, FeedError> {
        let (max_skew, interval) =
            fleet.with(|fleet| (fleet.max_clock_skew(), fleet.slowest_scrapes())).await;
        self.polls += 1;
        let (poll, last) = (self.polls, self.last);
        let (believed, number) = (now + max_skew, last.map(|(number, _)| number));
        let window = |span| Window { t, span, now, believed, poll, last: number };
        let [far, further] = AT_FIRST;
        let Some((_, last)) = last.filter(|(_, last)| *last < t) else {
            self.far = t;
            let found = self.read(feed, config, window(far)).await?;
            return if found.is_short { self.read(feed, config, window(further)).await } else { Ok(found) };
        };
        let scrapes = if interval > 0.0 { OVERLAP * interval } else { LONGEST_OVERLAP };
        // What is late by more than the settle delay.
        let overlap = scrapes.min(LONGEST_OVERLAP).max(MOST_LATE - (now - t));
        // Only the newest samples are of use, however long the backend was away.
        let span = (t - last + overlap).min(further);
        // Our clock may have been ahead meanwhile.
        if (t - self.far).abs() >= ANEW_AFTER {
            // A backend that refuses as much gives less at the next poll.
            self.far = t;
            return self.read(feed, config, window(far.max(span))).await;
        }
        let found = self.read(feed, config, window(span)).await?;
        let name = config.feed.clone();
        let (found, missing) = fleet
            .with(move |fleet| {
                let missing = fleet.missing(&name, &found.digests, t, t - ANEW_AFTER);
                (found, missing)
            })
            .await;
        if missing.is_empty() || span >= far {
            return Ok(found);
        }
        self.read_missing(feed, config, window(far), found, missing).await
    }

    /// Reads every stream's digest samples.
    async fn read(
        &mut self,
        feed: &impl QueryApi,
        config: &PollConfig,
        window: Window,
    ) -> Result<Found, FeedError> {
        read(feed, config, &[], window, &mut self.foreseen, &mut self.streams).await
    }

    /// Reads those of clusters of which the first look missed somebody once more.
    async fn read_missing(
        &mut self,
        feed: &impl QueryApi,
        config: &PollConfig,
        window: Window,
        mut found: Found,
        missing: Vec<String>,
    ) -> Result<Found, FeedError> {
        let queries = in_queries(missing, BY_NAME);
        if queries.len() > QUERIES_BY_NAME {
            let samples = found.samples;
            drop(found);
            let far = self.read(feed, config, window).await?;
            return Ok(Found { samples: samples + far.samples, ..far });
        }
        for named in queries {
            let of_these =
                read(feed, config, &named, window, &mut self.foreseen, &mut Streams::default()).await?;
            found = found.replaced(&named, of_these);
        }
        Ok(found)
    }
}

/// Reads the digest samples of some clusters, or of all, but for those that were found before their time.
async fn read(
    feed: &impl QueryApi,
    config: &PollConfig,
    clusters: &[String],
    window: Window,
    foreseen: &mut Foreseen,
    streams: &mut Streams,
) -> Result<Found, FeedError> {
    let query = |metrics: &[Metric], clusters: &[String], span: Seconds| {
        let selector = config.exporters.select(metrics, clusters.iter().map(String::as_str));
        format!("{selector}[{}ms]", (span * 1000.0).ceil() as u64)
    };
    let sink = Heads::new(window, config, std::mem::take(streams));
    let Window { t, span, .. } = window;
    let mut heads = feed.query(&query(&[Metric::Digest], clusters, AHEAD + span), t + AHEAD, sink).await?;
    let others = heads.recognize();
    if !others.is_empty() {
        let is_short = others.len() <= BY_NAME && fit(others.iter().map(String::as_str));
        let named = if is_short { others.as_slice() } else { &[] };
        heads = feed.query(&query(&BESIDE, named, span), t, heads).await?;
    }
    let (found, kept) = heads.finish(foreseen);
    *streams = kept;
    foreseen.forget_before(t - REMEMBERED);
    Ok(found)
}

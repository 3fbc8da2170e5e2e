//! Exporters that are scraped from here, with no metrics backend in between.
//!
//! ```text
//!   targets (named, or by ClusterProfiles) ──GET, so many at a time──> expositions ──> fleet
//! ```
//!
//! Each exporter is scraped by itself: one that hangs holds up none but itself. Those that failed last
//! time have turns of their own, so that however many hang, the others do not wait for them.

mod client;
mod failure;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use statusbridge_core::exposition::{self, Evidence, Origin, Outcome};
use statusbridge_core::fleet::{Access, Fleet};
use statusbridge_core::time::Seconds;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::client::Clients;
use self::failure::{Failing, Failure};
use super::receipt_log::{Receipt, ReceiptLog};
use super::{Feed, FeedHandle};
use crate::clock;
use crate::feed::push::server::MADE_OF_ONE;
use crate::metrics::Metrics;

pub use settings::{FromProfiles, Settings, Target};

/// Name of the feed.
pub const NAME: &str = "scrape";

/// Scrapes under way at the same time, of exporters that answered last time.
const AT_ONCE: usize = 64;
/// The same of those that did not.
const AT_ONCE_FAILING: usize = 16;
/// Of these scrapes, those whose exposition is a large one.
const LARGE: usize = 2;
const LARGE_FAILING: usize = 1;
/// Expositions read at the same time.
const READ_AT_ONCE: usize = 4;
/// What is wrong with an exporter that is no longer scraped is not told after so many rounds.
const FORGOTTEN: u32 = 3;

/// Memory that scrapes take at most, in bytes, where an exposition has at most `max_bytes`: bodies, and what is made of
/// those that are read.
pub const fn most_memory(max_bytes: usize) -> usize {
    let small = (AT_ONCE + AT_ONCE_FAILING) * client::SMALL;
    // What is made of an exposition is less than three times its text, or as much as is made of the largest.
    let read = READ_AT_ONCE * 3 * client::SMALL;
    small + read + (LARGE + LARGE_FAILING) * (max_bytes + MADE_OF_ONE)
}

/// Why nothing can be said of clusters that were never seen.
const INCOMPLETE: &str = "not every exporter has been tried yet";

/// A feed that scrapes exporters itself, and reports at least every `pace`.
///
/// # Errors
/// When the settings cannot be used.
pub fn scrape(settings: Settings, pace: Duration, metrics: Arc<Metrics>) -> anyhow::Result<Feed> {
    settings.check()?;
    let scraper = Scraper {
        settings: Arc::new(settings),
        pace,
        metrics,
        clients: Clients::default(),
        turns: Turns::default(),
        failing: Failing::default(),
    };
    let run = move |desk| -> futures::future::BoxFuture<'static, ()> { Box::pin(scraper.run(desk)) };
    Ok(Feed { name: NAME.into(), settle: 0.0, asker: None, run: Box::new(run) })
}

/// Cluster and [instance](Target::instance).
type Id = (String, String);

struct Scraper {
    settings: Arc<Settings>,
    pace: Duration,
    metrics: Arc<Metrics>,
    clients: Clients,
    turns: Turns,
    /// Exporters that failed last time.
    failing: Failing,
}

#[derive(Clone)]
struct Turns {
    good: Turn,
    failing: Turn,
    reading: Arc<Semaphore>,
}

/// What scrapes of one sort have room for.
#[derive(Clone)]
struct Turn {
    scrapes: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self {
            good: Turn { scrapes: of(AT_ONCE), large: of(LARGE) },
            failing: Turn { scrapes: of(AT_ONCE_FAILING), large: of(LARGE_FAILING) },
            reading: of(READ_AT_ONCE),
        }
    }
}

impl Scraper {
    async fn run(mut self, mut desk: FeedHandle) {
        let mut tally = ReceiptLog::new(self.pace, Instant::now());
        let mut ticks = interval(self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut scrapes = JoinSet::new();
        let mut under_way = HashSet::new();
        // Before every exporter was tried once nobody knows which clusters there are. One that hangs was tried once it was given up.
        // They are those that there were when all became known: nobody who comes later holds up what is said of them.
        let (mut complete, mut untried) = (false, None);
        let mut error = Some(INCOMPLETE.to_owned());
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let (targets, missing) = self.targets(&desk).await;
                    error = missing;
                    if !complete && error.is_none() {
                        let there: HashSet<Id> = targets.iter().map(Target::id).collect();
                        untried = Some(match untried {
                            None => there,
                            Some(untried) => &untried & &there,
                        });
                    }
                    self.forget_all_but(&targets, &mut desk).await;
                    for target in targets {
                        let id = target.id();
                        if under_way.insert(id.clone()) {
                            let scraped = self.scrape(target, desk.clone());
                            scrapes.spawn(async move { (id, scraped.await) });
                        }
                    }
                    if scrapes.is_empty() {
                        tally.due_by(Instant::now());
                    }
                }
                Some(Ok((id, Scraped { receipt, failure }))) = scrapes.join_next() => {
                    self.tell(&id, failure, &mut desk).await;
                    under_way.remove(&id);
                    if let Some(untried) = &mut untried {
                        untried.remove(&id);
                    }
                    tally.take(receipt, Instant::now());
                    if scrapes.is_empty() {
                        tally.due_by(Instant::now());
                    }
                }
                () = sleep_until(tally.due()) => {
                    let incomplete = (!complete).then(|| INCOMPLETE.to_owned());
                    let problem = error.clone().or(incomplete);
                    let forget_after = FORGOTTEN * (self.settings.interval + self.settings.timeout);
                    let polled = tally.report(problem, forget_after, Instant::now(), clock::now());
                    let t = polled.t;
                    match error.clone() {
                        Some(error) => desk.with(move |fleet| fleet.unanswered(NAME, error)).await,
                        None if complete => desk.with(move |fleet| fleet.answered(NAME, t)).await,
                        None => {}
                    }
                    desk.polled(polled).await;
                }
            }
            if error.is_none() && untried.as_ref().is_some_and(HashSet::is_empty) {
                (complete, untried) = (true, None);
                tally.due_by(Instant::now());
            }
        }
    }

    /// Takes note of how an exporter was found, so that what rests on its cluster can say why it is silent.
    async fn tell(&mut self, id: &Id, failure: Option<String>, desk: &mut FeedHandle) {
        let news = match failure {
            Some(why) => self.failing.failed(id, why).map(Some),
            None => self.failing.answered(id).then_some(None),
        };
        if let Some(news) = news {
            let id = id.clone();
            desk.with(move |fleet| fleet.unscraped(&id.0, &id.1, news)).await;
        }
    }

    /// What is no longer scraped does not fail either.
    async fn forget_all_but(&mut self, targets: &[Target], desk: &mut FeedHandle) {
        let ids: BTreeSet<Id> = targets.iter().map(Target::id).collect();
        self.clients.keep(targets);
        for (cluster, instance) in self.failing.keep(&ids) {
            desk.with(move |fleet| fleet.unscraped(&cluster, &instance, None)).await;
        }
    }

    /// What is to be scraped now, and why that may not be all.
    async fn targets(&self, desk: &FeedHandle) -> (Vec<Target>, Option<String>) {
        if self.settings.cluster_profiles.is_none() {
            return (self.settings.all_targets(Vec::new()), None);
        }
        match desk.addresses().await {
            Ok(addresses) => (self.settings.all_targets(addresses), None),
            Err(error) => (self.settings.all_targets(Vec::new()), Some(format!("ClusterProfiles: {error}"))),
        }
    }

    /// Scrapes one exporter, once it is its turn.
    fn scrape(&mut self, target: Target, mut desk: FeedHandle) -> impl Future<Output = Scraped> + use<> {
        let way = self.clients.way(&target);
        let turns = self.turns.clone();
        let failing = self.failing.contains(&target.id());
        let (settings, metrics) = (self.settings.clone(), self.metrics.clone());
        async move {
            let subject = format!("cluster {}, {}", target.cluster, target.instance());
            let mut receipt = Receipt { subject, samples: 0, bytes: 0, outcome: Ok(Outcome::Old) };
            let outcome = async {
                let way = way?;
                let turn = if failing { &turns.failing } else { &turns.good };
                let _turn = turn.scrapes.acquire().await;
                // What comes is not older than the question.
                let at = clock::now();
                let Settings { timeout, max_bytes, .. } = *settings;
                let (body, place) = client::fetch(&way, &target, timeout, max_bytes, &turn.large).await?;
                receipt.bytes = body.len() as u64;
                let _reading = turns.reading.acquire().await;
                let evidence = read(target, body, at).await?;
                receipt.samples = evidence.samples;
                let fold = move |fleet: &mut Fleet| {
                    let _place = place;
                    evidence.fold(fleet, clock::now())
                };
                Ok(desk.with(fold).await)
            };
            let outcome: Result<Outcome, Failure> = outcome.await;
            metrics.scraped(matches!(outcome, Ok(Outcome::Verified { .. } | Outcome::Old)));
            let failure = outcome.as_ref().err().map(|failure| failure.brief.clone());
            receipt.outcome = outcome.map_err(|failure| failure.text);
            Scraped { receipt, failure }
        }
    }
}

/// What came of one scrape.
struct Scraped {
    receipt: Receipt,
    /// Why there was nothing to read, in a few words.
    failure: Option<String>,
}

/// Reads and checks what a target answered to a question that was sent at `at`.
async fn read(target: Target, body: Vec<u8>, at: Seconds) -> Result<Evidence, Failure> {
    let instance = target.instance();
    let labels = [("cluster", target.cluster.as_str()), ("instance", &instance)];
    let stream = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let origin = Origin { cluster: target.cluster, feed: NAME.into(), stream, at };
    let unread = |error: &dyn std::error::Error| {
        Failure::new("what answers is no exporter of this contract", error.to_string())
    };
    let read = tokio::task::spawn_blocking(move || exposition::read(&body, origin)).await;
    read.map_err(|error| unread(&error))?.map_err(|error| unread(&error))
}

/// Scrapes each target once, so many at a time, and gives what came of it.
pub async fn look(settings: &Settings, targets: Vec<Target>) -> Vec<(Target, Result<Evidence, Failure>)> {
    let (mut clients, turns) = (Clients::default(), Turns::default());
    let scrapes = targets.into_iter().map(|target| {
        let way = clients.way(&target);
        let large = turns.good.large.clone();
        async move {
            let at = clock::now();
            let evidence = async {
                let Settings { timeout, max_bytes, .. } = *settings;
                let (body, _place) = client::fetch(&way?, &target, timeout, max_bytes, &large).await?;
                read(target.clone(), body, at).await
            };
            let evidence = evidence.await;
            (target, evidence)
        }
    });
    let scrapes: Vec<_> = scrapes.collect();
    futures::stream::iter(scrapes).buffer_unordered(AT_ONCE_FAILING).collect().await
}

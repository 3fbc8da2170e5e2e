//! Evidence that this process reads itself, from backends or exporters, and takes in as the aggregator does: without a hub.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use statusbridge_aggregator::clock::Clock;
use statusbridge_aggregator::feed::{self, Feeds, Message};
use statusbridge_aggregator::metrics::Metrics;
use statusbridge_core::fleet::Fleet;
use statusbridge_core::reconcile::feeds::Planned;
use statusbridge_core::reconcile::holds::Holds;
use statusbridge_core::reconcile::judge::World;
use statusbridge_core::reconcile::judging::Judges;
use statusbridge_core::reconcile::reconciler::Reconciler;
use statusbridge_core::reconcile::state::{Rules, State};

use super::FeedArgs;
use crate::exit::Exit;

/// Evidence, and all that is known of it.
pub(crate) struct Evidence {
    feeds: Feeds,
    reconciler: Reconciler,
    clock: Clock,
    /// Feeds of which nothing was heard yet.
    unheard: BTreeSet<usize>,
}

impl Evidence {
    /// Begins to poll the feeds that flags and configuration file name, every `interval`.
    ///
    /// # Errors
    /// When there are none, or they cannot be used.
    pub(crate) fn begin(args: &FeedArgs, interval: Duration) -> Result<Self> {
        let config = args.config()?;
        let usage = |error: anyhow::Error| Exit::Usage.error(format!("{error:#}"));
        let backends = args.backend.backends(&config.feeds).map_err(usage)?;
        let mut all = Vec::new();
        for backend in backends {
            all.push(backend.feed(args.settle_delay, interval).map_err(usage)?);
        }
        if let Some(scrape) = &config.feeds.scrape {
            all.push(feed::scrape(scrape.clone(), interval, Arc::new(Metrics::aggregator())).map_err(usage)?);
        }
        if all.is_empty() {
            return Err(
                Exit::Usage.error("--backend says which backend is asked, or --config which feeds are")
            );
        }
        let mut feeds = Feeds::new(all);
        let planned =
            feeds.iter().map(|feed| Planned { name: feed.name.clone(), settle: feed.settle, asked: false });
        let planned: Vec<Planned> = planned.collect();
        let unheard = (0..planned.len()).collect();
        let fleet = || Fleet::new(args.backend.fleet());
        let rules = Rules { speakers: config.speakers.clone(), ..Rules::default() };
        let mut state = State::new(fleet(), config.profiles(), rules, 0);
        state.holds = Holds::none();
        let mut reconciler = Reconciler::new(state, Judges::threads()?, None);
        reconciler.planned(planned, fleet());
        feeds.begin();
        Ok(Self { feeds, reconciler, clock: Clock::begin(), unheard })
    }

    /// Takes in what is heard until the poll of a feed has ended.
    ///
    /// # Errors
    /// When a feed has ended, which none does by itself.
    pub(crate) async fn polled(&mut self) -> Result<()> {
        loop {
            match self.feeds.next().await.context("a feed has ended")? {
                Message::Work(work) => work(self.reconciler.fleet()),
                Message::Addresses { reply } => {
                    // Without a hub there are no ClusterProfiles.
                    drop(reply.send(Ok(Vec::new())));
                }
                Message::Polled { feed, polled } => {
                    let Some(status) = self.feeds.get_mut(feed) else { continue };
                    let polled = status.polled(*polled);
                    self.reconciler.polled(feed, polled, self.clock.now());
                    // There is no hub to which anything could be written.
                    drop(self.reconciler.commands());
                    self.unheard.remove(&feed);
                    return Ok(());
                }
            }
        }
    }

    /// The same until every feed was polled.
    ///
    /// # Errors
    /// When a feed has ended, or a feed gives no usable answer.
    pub(crate) async fn first(&mut self) -> Result<()> {
        while !self.unheard.is_empty() {
            self.polled().await?;
        }
        match self.reconciler.state().feeds.unheard() {
            Some(error) => Err(Exit::Failed.error(error)),
            None => Ok(()),
        }
    }

    /// All that is known now.
    pub(crate) fn world(&mut self) -> World<'_> {
        self.reconciler.world(self.clock.now())
    }
}

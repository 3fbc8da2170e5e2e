//! Exporters that push what they have to say, because nobody can reach them.
//!
//! ```text
//!   exporter ──POST──> PushServer (as long as the process) ──Seat (as long as this replica leads)──> fleet
//! ```

pub mod server;
mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use statusbridge_core::fleet::Access;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{info, warn};

use super::receipt_log::ReceiptLog;
use super::{Feed, FeedHandle};
use crate::clock;
use crate::feed::push::server::{PushServer, Receipts, TokensFile};

pub use settings::Settings;

/// Name of the feed.
pub const NAME: &str = "push";

/// Time between looks at the file with the tokens.
const LOOK: Duration = Duration::from_secs(2);
/// Receipts that may wait for being counted.
const WAITING: usize = 256;
/// What is wrong with an exporter that no longer pushes is told for so long at least.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// Why nothing can be said of clusters that were never seen.
const INCOMPLETE: &str = "not every cluster has pushed yet";

/// A feed that takes what exporters push, and reports at least every `pace`.
///
/// # Errors
/// When the settings cannot be used.
pub fn push(settings: Settings, pace: Duration, reception: Arc<PushServer>) -> anyhow::Result<Feed> {
    settings.check()?;
    let tokens = TokensFile::open(Some(settings.tokens_file.clone())).context("feeds.push.tokensFile")?;
    reception.open(settings.doors()?).context("feeds.push")?;
    let push = Push { settings, pace, reception, tokens };
    let run = move |desk| -> futures::future::BoxFuture<'static, ()> { Box::pin(push.run(desk)) };
    Ok(Feed { name: NAME.into(), settle: 0.0, asker: None, run: Box::new(run) })
}

struct Push {
    settings: Settings,
    pace: Duration,
    reception: Arc<PushServer>,
    tokens: TokensFile,
}

impl Push {
    async fn run(mut self, mut desk: FeedHandle) {
        let (sender, mut receipts): (_, Receipts) = mpsc::channel(WAITING);
        let tokens = self.tokens.current().clone();
        let seat = self.reception.seat(desk.clone(), tokens, self.settings.max_bytes, sender);
        let mut tally = ReceiptLog::new(self.pace, Instant::now());
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let patience = Instant::now() + self.settings.expect_within;
        let mut missing: BTreeSet<String> =
            self.tokens.current().clusters().into_iter().map(str::to_owned).collect();
        // Before all have spoken nobody knows what they would say. Who has not by then is silent.
        let mut complete = missing.is_empty();
        loop {
            tokio::select! {
                Some((cluster, receipt)) = receipts.recv() => {
                    tally.take(receipt, Instant::now());
                    missing.remove(&cluster);
                    if missing.is_empty() && !complete {
                        complete = true;
                        tally.due_by(Instant::now());
                    }
                }
                _ = looks.tick() => match self.tokens.reread() {
                    Some(Ok(tokens)) => {
                        info!(clusters = tokens.clusters().len(), "the tokens of clusters have changed");
                        seat.knows(tokens.clone());
                    }
                    Some(Err(error)) => warn!(%error, "the tokens cannot be used; those from before stay"),
                    None => {}
                },
                () = sleep_until(patience), if !complete => {
                    let missing: Vec<&String> = missing.iter().take(16).collect();
                    warn!(?missing, "clusters that have not pushed in time count as silent");
                    complete = true;
                    tally.due_by(Instant::now());
                }
                () = sleep_until(tally.due()) => {
                    let error = (!complete).then(|| INCOMPLETE.to_owned());
                    let polled = tally.report(error, FORGOTTEN.max(4 * self.pace), Instant::now(), clock::now());
                    let t = polled.t;
                    if complete {
                        desk.with(move |fleet| fleet.answered(NAME, t)).await;
                    }
                    desk.polled(polled).await;
                }
            }
        }
    }
}

//! Where evidence comes from: a task for each feed, beside the loop that owns the fleet.
//!
//! ```text
//!   feed task ──work on the fleet──> controller ──judge──> hub
//!             ──a poll has ended──────────> │
//! ```
//!
//! So a feed that is slow or broken keeps no other waiting, and nobody who judges.

mod backends;
pub mod checks;
mod fields;
pub mod flags;
mod handle;
mod pause;
pub mod promql;
pub mod push;
mod query;
mod receipt_log;
pub mod scrape;
mod settings;
mod status;
mod tls;
pub(crate) mod yaml_file;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use statusbridge_core::fleet::FeedName;
use statusbridge_core::time::Seconds;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::feed::checks::Asker;

pub use backends::{Backend, Backends, BasicAuth};
pub use handle::{Addresses, FeedHandle, Message, Polled, Work};
pub use push::push;
pub use query::query;
pub(crate) use receipt_log::Receipt;
pub use scrape::scrape;
pub use settings::Settings;
pub use status::FeedStatus;
pub use tls::TlsFiles;
pub(crate) use tls::{Connector, chain, client_builder};

/// Messages that may wait for the controller.
const WAITING: usize = 64;

/// One way by which evidence comes.
pub struct Feed {
    /// Its name; empty for the only one.
    pub name: FeedName,
    /// How far behind the present it looks, at first.
    pub settle: Seconds,
    /// What asks it the queries of checks, if it can be asked.
    pub asker: Option<Asker>,
    /// What it does.
    pub run: Run,
}

/// What a feed does until it is stopped.
pub type Run = Box<dyn FnOnce(FeedHandle) -> BoxFuture<'static, ()> + Send>;

/// Makes the feeds that the flags and the configuration file name.
///
/// # Errors
/// When they cannot be used.
pub type Plan = Arc<dyn Fn(&Settings) -> anyhow::Result<Vec<Feed>> + Send + Sync>;

/// All feeds.
pub struct Feeds {
    waiting: Vec<Feed>,
    all: Vec<FeedStatus>,
    messages: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    tasks: JoinSet<()>,
}

impl Feeds {
    /// Feeds that have not begun yet.
    pub fn new(feeds: Vec<Feed>) -> Self {
        let (sender, messages) = mpsc::channel(WAITING);
        let all = feeds.iter().map(FeedStatus::new).collect();
        Self { waiting: feeds, all, messages, sender, tasks: JoinSet::new() }
    }

    /// Begins with those that have not begun. They end with this object.
    pub fn begin(&mut self) {
        let waiting = std::mem::take(&mut self.waiting).into_iter().zip(&mut self.all);
        for (feed, (Feed { run, .. }, status)) in waiting.enumerate() {
            self.tasks.spawn(run(FeedHandle::new(feed, self.sender.clone())));
            status.heard = Instant::now();
        }
    }

    /// The next message of any feed; `None` when a feed has ended, which none does by itself.
    pub async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            biased;
            Some(_) = self.tasks.join_next() => None,
            message = self.messages.recv() => message,
        }
    }

    /// Each feed.
    pub fn iter(&self) -> impl Iterator<Item = &FeedStatus> {
        self.all.iter()
    }

    /// One of them.
    pub fn get_mut(&mut self, feed: usize) -> Option<&mut FeedStatus> {
        self.all.get_mut(feed)
    }

    /// How long the most silent feed has been silent.
    pub fn silence(&self) -> Duration {
        if !self.waiting.is_empty() {
            return Duration::ZERO;
        }
        self.all.iter().map(|it| it.heard.elapsed()).max().unwrap_or_default()
    }
}

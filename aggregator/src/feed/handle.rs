//! What a feed has to say to the controller, and how it gets at the fleet.

use statusbridge_core::fleet::{Access, Fleet};
use statusbridge_core::time::Seconds;
use tokio::sync::{mpsc, oneshot};

use crate::feed::promql::poll::PollReport;

/// Work on the fleet.
pub type Work = Box<dyn FnOnce(&mut Fleet) + Send>;

/// Names of clusters and URLs of their exporters, or why they are not known.
pub type Addresses = Result<Vec<(String, String)>, String>;

/// What a feed says.
pub enum Message {
    /// This is to be done to the fleet.
    Work(Work),
    /// Where do exporters answer, as ClusterProfiles tell?
    Addresses {
        /// Where to say it.
        reply: oneshot::Sender<Addresses>,
    },
    /// A poll has ended.
    Polled {
        /// The number of the feed.
        feed: usize,
        /// How it ended.
        polled: Box<Polled>,
    },
}

/// How a poll ended.
#[derive(Debug, Default)]
pub struct Polled {
    /// The time that it asked about.
    pub t: Seconds,
    /// How far behind the present the next one will look.
    pub settle: Seconds,
    /// How long it took, in seconds.
    pub took: Seconds,
    /// What it came to.
    pub report: PollReport,
}

/// A feed's way to the controller. Nothing comes back from one that is gone: the feed ends with it.
#[derive(Debug, Clone)]
pub struct FeedHandle {
    feed: usize,
    sender: mpsc::Sender<Message>,
}

impl FeedHandle {
    pub(super) fn new(feed: usize, sender: mpsc::Sender<Message>) -> Self {
        Self { feed, sender }
    }

    /// Where exporters answer, as ClusterProfiles tell.
    pub async fn addresses(&self) -> Addresses {
        let (reply, addresses) = oneshot::channel();
        self.say(Message::Addresses { reply }).await;
        or_never(addresses).await
    }

    /// Says how a poll ended.
    pub async fn polled(&self, polled: Polled) {
        self.say(Message::Polled { feed: self.feed, polled: Box::new(polled) }).await;
    }

    async fn say(&self, message: Message) {
        if self.sender.send(message).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn or_never<T>(answer: oneshot::Receiver<T>) -> T {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

impl Access for FeedHandle {
    async fn with<R: Send + 'static>(&mut self, work: impl FnOnce(&mut Fleet) -> R + Send + 'static) -> R {
        let (reply, done) = oneshot::channel();
        let work = move |fleet: &mut Fleet| drop(reply.send(work(fleet)));
        self.say(Message::Work(Box::new(work))).await;
        or_never(done).await
    }
}

//! One message for each revision and wave, to those that the configuration names.
//!
//! ```text
//!   controller ──change of an outcome──> ledger of each sink ──oldest first──> its task ──HTTP──> receiver
//!                                          │      ▲                              │
//!                                          │      └──── sent, or given up ───────┘
//!                                          └─ once a second: a ConfigMap of the hub
//! ```
//!
//! | file | holds |
//! |---|---|
//! | [`settings`] | which sinks there are, and what each is told |
//! | [`message`], [`commit`] | what is told, and which commit it is about |
//! | [`ledger`] | what a sink was told and what it waits for: plain data |
//! | [`shelf`] | where ledgers outlive a process |
//! | [`delivery`] | the task of a sink: tries again until it is done |
//! | [`cloud_event`], [`github`], [`gitlab`] | what is sent, sink by sink |
//! | [`http`] | one request, and what its answer means |
//!
//! A receiver that hangs holds up its own task and nobody else. The outcome and the time since which it stands are in the
//! status of the object, written together with the verdict. A leader, after whatever restart, so finds what was not told
//! in the statuses and in the ledger: a message is lost only if the object goes on to another outcome while the ledger
//! has no room for what waits, or a receiver does not take it for an hour.

mod cloud_event;
mod commit;
mod delivery;
mod github;
mod gitlab;
mod http;
mod ledger;
mod message;
mod settings;
mod shelf;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::notify::settings::Sink;
use crate::notify::shelf::Shelf;

pub(crate) use message::{About, Message};
pub(crate) use settings::Settings;

/// For so long a delivery that is under way may go on when this process is told to stop; and the last write after it.
const GRACE: Duration = Duration::from_secs(3);

/// Sends messages as long as this process leads. Dropped, it sends nothing any more.
pub(crate) struct Notifier {
    shelf: Arc<Shelf>,
    task: JoinSet<()>,
    stop: CancellationToken,
}

impl Notifier {
    /// Begins to send to these sinks what earlier leaders have left, and what is told from now on. The ledgers lie in
    /// `namespace`; another notifier of this process hands them over first.
    pub(crate) fn start(
        client: &Client,
        namespace: &str,
        settings: &Settings,
        metrics: &Arc<Metrics>,
        before: Option<Self>,
    ) -> Self {
        let shelf = Arc::new(Shelf::new(client, namespace, settings.sinks(), metrics.clone()));
        let stop = CancellationToken::new();
        let deliver = |sink: &Sink| {
            delivery::run(client.clone(), sink.clone(), shelf.clone(), metrics.clone(), stop.clone())
        };
        let deliveries: Vec<_> = settings.sinks().iter().map(deliver).collect();
        let mut task = JoinSet::new();
        if before.is_some() || !deliveries.is_empty() {
            task.spawn(run(shelf.clone(), deliveries, before, stop.clone()));
        }
        Self { shelf, task, stop }
    }

    /// Tells whoever is to be told, in its own time.
    pub(crate) fn tell(&self, message: &Message) {
        self.shelf.offer(message);
    }

    /// Whether anybody is told anything.
    pub(crate) fn has_sinks(&self) -> bool {
        self.shelf.has_sinks()
    }

    /// Ends deliveries that are under way, or lets go of them, and writes down what was told.
    pub(crate) async fn stop(self) {
        let _ = self.end().await;
    }

    /// The same; what was told and what waits is there to be inherited.
    async fn end(mut self) -> Arc<Shelf> {
        self.stop.cancel();
        let _ = timeout(3 * GRACE, self.task.join_next()).await;
        self.shelf
    }
}

async fn run(
    shelf: Arc<Shelf>,
    deliveries: Vec<impl Future<Output = ()> + Send + 'static>,
    before: Option<Notifier>,
    stop: CancellationToken,
) {
    if let Some(before) = before {
        let before: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(before.end());
        shelf.inherit(&*before.await);
    }
    let mut deliveries: JoinSet<()> = deliveries.into_iter().collect();
    tokio::select! {
        () = stop.cancelled() => {}
        () = shelf.keep() => {}
    }
    let ended = async { while deliveries.join_next().await.is_some() {} };
    let _ = timeout(GRACE, ended).await;
    let _ = timeout(GRACE, shelf.save()).await;
}

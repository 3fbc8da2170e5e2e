//! The task of one sink: the messages of each namespace one after another, each until it is sent, refused, or old. A
//! namespace whose message is refused keeps those of no other waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::Client;
use kube::api::Api;
use statusbridge_api::FleetPackage;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::http::{Failure, Http};
use super::message::Message;
use super::settings::{Sink, Target};
use super::shelf::Shelf;
use super::{cloud_event, github, gitlab};
use crate::hub::write::in_time;
use crate::metrics::{MessageResult, Metrics};

/// Longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause after a failure; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// For so long a message is tried. Those of its namespace wait behind it meanwhile.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What became of a message.
enum Sent {
    Yes,
    /// It is not for this sink, for this reason.
    Skipped(&'static str),
}

/// Sends what waits for a sink until `stop`.
pub(super) async fn run(
    hub: Client,
    sink: Sink,
    shelf: Arc<Shelf>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let base = match &sink.target {
        Target::Webhook { url, .. } => url.url(),
        Target::GitHub(forge) | Target::GitLab(forge) => forge.api.url(),
    };
    let base = match base {
        Ok(base) => base,
        Err(error) => {
            warn!(sink = sink.name, error, "nothing can be sent");
            return;
        }
    };
    let (http, turn) = (Http::new(base, &sink.tls, TIMEOUT), Mutex::new(()));
    let deliver = async |message: Message| {
        let result = deliver(&hub, &http, &turn, &sink, &message, &metrics, &stop).await;
        (message, result)
    };
    let (mut deliveries, mut under_way) = (FuturesUnordered::new(), BTreeSet::new());
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled(), if deliveries.is_empty() => return,
            Some(ended) = deliveries.next() => {
                let (message, result): (Message, Option<MessageResult>) = ended;
                under_way.remove(&message.namespace);
                if let Some(result) = result {
                    metrics.message(&sink.name, result);
                    shelf.done(&sink.name, &message.id);
                }
            }
            message = shelf.next(&sink.name, &under_way), if !stop.is_cancelled() => {
                under_way.insert(message.namespace.clone());
                deliveries.push(deliver(message));
            }
        }
    }
}

/// Tries until it is over; nothing when told to stop before. Each try waits for its turn, behind all others that do:
/// between two steps of a message there is none of another, which may be about the same deployment.
async fn deliver(
    hub: &Client,
    http: &Http,
    turn: &Mutex<()>,
    sink: &Sink,
    message: &Message,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Option<MessageResult> {
    let (begun, mut pause, mut steps) = (Instant::now(), FIRST_PAUSE, 0);
    let (sink_name, about) = (&sink.name, format!("{}/{}", message.namespace, message.name));
    loop {
        let turn = turn.lock().await;
        if stop.is_cancelled() {
            return None;
        }
        let sent = send(hub, http, sink, message, &mut steps).await;
        drop(turn);
        let (error, wait) = match sent {
            Ok(Sent::Yes) => {
                debug!(sink = sink_name, object = about, outcome = ?message.outcome, "told");
                return Some(MessageResult::Sent);
            }
            Ok(Sent::Skipped(why)) => {
                info!(sink = sink_name, object = about, revision = message.revision, why, "not told");
                return Some(MessageResult::Skipped);
            }
            Err(Failure::Never(error)) => {
                warn!(sink = sink_name, object = about, error, "the message was refused and is given up");
                return Some(MessageResult::Failed);
            }
            Err(Failure::Later(error, wait)) => (error, wait),
        };
        if begun.elapsed() > PATIENCE {
            warn!(sink = sink_name, object = about, error, "the message is given up after an hour");
            return Some(MessageResult::Failed);
        }
        warn!(sink = sink_name, object = about, error, "the message is tried again");
        metrics.message(sink_name, MessageResult::Retried);
        // Sinks of one receiver should not always come together.
        let wait = wait.unwrap_or_else(|| pause.mul_f64(0.75 + fastrand::f64() / 2.0));
        pause = (2 * pause).min(LONGEST_PAUSE);
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            () = sleep(wait) => {}
        }
    }
}

async fn send(
    hub: &Client,
    http: &Http,
    sink: &Sink,
    message: &Message,
    steps: &mut u32,
) -> Result<Sent, Failure> {
    if !is_selected(hub, sink, message).await? {
        return Ok(Sent::Skipped("its selector does not select the FleetPackage"));
    }
    let commit = message.commit.as_ref().ok_or("no commit is known of the revision");
    match (&sink.target, commit) {
        (Target::Webhook { .. }, _) => cloud_event::tell(http, &sink.target, message).await?,
        (Target::GitHub(forge), Ok(commit)) => github::tell(http, forge, message, commit, steps).await?,
        (Target::GitLab(forge), Ok(commit)) => gitlab::tell(http, forge, message, commit, steps).await?,
        (_, Err(why)) => return Ok(Sent::Skipped(why)),
    }
    Ok(Sent::Yes)
}

/// Whether the labels of the FleetPackage are those that the sink selects. The aggregator keeps no labels, so they are
/// read; one that is gone is not selected.
async fn is_selected(hub: &Client, sink: &Sink, message: &Message) -> Result<bool, Failure> {
    let Some(selector) = &sink.selector else { return Ok(true) };
    let api = Api::<FleetPackage>::namespaced(hub.clone(), &message.namespace);
    let found = in_time(api.get_metadata_opt(&message.fleet_package)).await;
    let found = found.map_err(|error| Failure::Later(format!("the FleetPackage's labels: {error}"), None))?;
    let labels: Option<BTreeMap<String, String>> = found.map(|it| it.metadata.labels.unwrap_or_default());
    Ok(labels.is_some_and(|labels| selector.matches(&labels)))
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;

//! Where the ledgers lie: in memory for the tasks of the sinks, and in one ConfigMap of the hub beside the Leases, where
//! tenants write nothing, for the next leader. The ConfigMap is written at most once a second, and only by the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use super::ledger::{Ledger, Offered};
use super::message::Message;
use super::settings::Sink;
use crate::hub::write::{FIELD_MANAGER, in_time};
use crate::metrics::{MessageResult, Metrics};

/// Name of the ConfigMap.
const NAME: &str = "statusbridge-aggregator-notifications";
/// Time between two writes of it, and between two tries to read it.
const PAUSE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);
/// Messages that may come before it could be read.
const MOST_EARLY: usize = 16_384;

/// The ledgers of all sinks.
pub(super) struct Shelf {
    api: Api<ConfigMap>,
    sinks: Vec<Sink>,
    state: Mutex<State>,
    /// Something is to be written.
    changed: Notify,
    /// Of each sink: something waits for it.
    wakes: BTreeMap<String, Notify>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    /// By the names of their sinks; none before they were read.
    ledgers: Option<BTreeMap<String, Ledger>>,
    early: Vec<Message>,
}

impl Shelf {
    /// One that was not read yet.
    pub(super) fn new(client: &Client, namespace: &str, sinks: &[Sink], metrics: Arc<Metrics>) -> Self {
        let wakes = sinks.iter().map(|sink| (sink.name.clone(), Notify::new())).collect();
        metrics.sinks(sinks.iter().map(|sink| sink.name.as_str()));
        Self {
            api: Api::namespaced(client.clone(), namespace),
            sinks: sinks.to_vec(),
            state: Mutex::default(),
            changed: Notify::new(),
            wakes,
            metrics,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody is to be told.
    pub(super) fn has_sinks(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// Reads the ledgers, if that is possible now.
    async fn load(&self) {
        let found = match in_time(self.api.get_opt(NAME)).await {
            Ok(found) => found.and_then(|map| map.data).unwrap_or_default(),
            Err(error) => {
                warn!(%error, "the ConfigMap {NAME} could not be read: no message is sent before");
                return;
            }
        };
        let now = Timestamp::now().as_second();
        let ledger = |sink: &Sink| {
            let Some(text) = found.get(&sink.name) else { return Ledger::new(now) };
            serde_json::from_str(text).unwrap_or_else(|error| {
                warn!(sink = sink.name, %error, "what it was told cannot be read in {NAME}: it begins anew");
                Ledger::new(now)
            })
        };
        let ledgers = self.sinks.iter().map(|sink| (sink.name.clone(), ledger(sink))).collect();
        let early = {
            let mut state = self.state();
            state.ledgers = Some(ledgers);
            std::mem::take(&mut state.early)
        };
        for message in &early {
            self.offer(message);
        }
        self.wakes.values().for_each(Notify::notify_one);
        // A new sink begins now, whatever comes later.
        self.changed.notify_one();
    }

    /// Takes in a message for all sinks that it is for.
    pub(super) fn offer(&self, message: &Message) {
        let mut state = self.state();
        let State { ledgers, early } = &mut *state;
        for sink in self.sinks.iter().filter(|sink| sink.is_for(message)) {
            let Some(ledgers) = ledgers else {
                if early.len() < MOST_EARLY {
                    early.push(message.clone());
                } else {
                    self.metrics.message(&sink.name, MessageResult::Dropped);
                }
                // It is offered to all of them later.
                return;
            };
            let Some(ledger) = ledgers.get_mut(&sink.name) else { continue };
            match ledger.offer(message) {
                Offered::Known => {}
                Offered::Full => self.metrics.message(&sink.name, MessageResult::Dropped),
                Offered::Waits => {
                    self.metrics.messages_waiting(&sink.name, ledger.waiting());
                    self.changed.notify_one();
                    if let Some(wake) = self.wakes.get(&sink.name) {
                        wake.notify_one();
                    }
                }
            }
        }
    }

    /// What a sink is to be sent next while messages of these namespaces are under way; waits until there is something.
    pub(super) async fn next(&self, sink: &str, under_way: &BTreeSet<String>) -> Message {
        loop {
            let next = {
                let state = self.state();
                let ledger = state.ledgers.as_ref().and_then(|all| all.get(sink));
                ledger.and_then(|ledger| ledger.next(under_way)).cloned()
            };
            match (next, self.wakes.get(sink)) {
                (Some(message), _) => return message,
                (None, Some(wake)) => wake.notified().await,
                (None, None) => std::future::pending().await,
            }
        }
    }

    /// A message was sent, or given up.
    pub(super) fn done(&self, sink: &str, id: &str) {
        if let Some(ledger) = self.state().ledgers.as_mut().and_then(|all| all.get_mut(sink)) {
            ledger.done(id);
            self.metrics.messages_waiting(sink, ledger.waiting());
        }
        self.changed.notify_one();
    }

    /// Reads the ledgers and then writes what has changed, for ever.
    pub(super) async fn keep(&self) {
        self.load().await;
        while self.state().ledgers.is_none() {
            sleep(RETRY).await;
            self.load().await;
        }
        loop {
            self.changed.notified().await;
            sleep(PAUSE).await;
            if !self.save().await {
                self.changed.notify_one();
                sleep(RETRY).await;
            }
        }
    }

    /// Writes the ledgers, by server-side apply, which creates the ConfigMap the first time and forgets sinks that are no
    /// more. Whether that landed.
    pub(super) async fn save(&self) -> bool {
        let kept: Option<BTreeMap<String, Ledger>> = {
            let state = self.state();
            state.ledgers.as_ref().map(|all| all.iter().map(|(sink, it)| (sink.clone(), it.kept())).collect())
        };
        let Some(kept) = kept else { return true };
        let text = |ledger: &Ledger| serde_json::to_string(ledger).unwrap_or_default();
        let data: BTreeMap<&String, String> = kept.iter().map(|(sink, it)| (sink, text(it))).collect();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let saved = in_time(self.api.patch(NAME, &params, &Patch::Apply(&map))).await;
        if let Err(error) = &saved {
            warn!(%error, "the ConfigMap {NAME} could not be written: a message may be sent twice after a restart");
        }
        saved.is_ok()
    }
}

#[cfg(test)]
impl Shelf {
    /// As if it had been read and there were nothing: sinks are told of whatever comes.
    pub(super) fn read_as_empty(&self) {
        let ledgers = self.sinks.iter().map(|sink| (sink.name.clone(), Ledger::new(0)));
        self.state().ledgers = Some(ledgers.collect());
    }
}

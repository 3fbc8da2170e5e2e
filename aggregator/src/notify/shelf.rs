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
    /// What another shelf of this process knew: more than lies in the hub.
    inherited: BTreeMap<String, Ledger>,
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

    /// Goes on where another one of this process has ended. To be called before the ledgers are read.
    pub(super) fn inherit(&self, other: &Self) {
        let State { ledgers, inherited, early } = std::mem::take(&mut *other.state());
        let mut state = self.state();
        state.inherited = ledgers.unwrap_or(inherited);
        state.early.splice(0..0, early);
        state.early.truncate(MOST_EARLY);
    }

    /// Reads the ledgers, if that is possible now.
    async fn load(&self) {
        match in_time(self.api.get_opt(NAME)).await {
            Ok(found) => self.begin(&found.and_then(|map| map.data).unwrap_or_default()),
            Err(error) => warn!(%error, "the ConfigMap {NAME} could not be read: no message is sent before"),
        }
    }

    /// Begins with what was inherited, and of the other sinks with what was found in the hub.
    fn begin(&self, found: &BTreeMap<String, String>) {
        let now = Timestamp::now().as_second();
        let mut inherited = std::mem::take(&mut self.state().inherited);
        let mut ledger = |sink: &Sink| {
            if let Some(ledger) = inherited.remove(&sink.name) {
                return ledger;
            }
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
        let State { ledgers, early, .. } = &mut *state;
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
        self.state().inherited = self.sinks.iter().map(|sink| (sink.name.clone(), Ledger::new(0))).collect();
        self.begin(&BTreeMap::new());
    }
}

#[cfg(test)]
mod tests {
    use statusbridge_core::decide::transition::Outcome;

    use super::super::message::tests::message;
    use super::super::settings::tests::sink;
    use super::*;

    /// Another sink in the configuration is no reason to lose what waits and does not lie in the hub.
    #[tokio::test]
    async fn one_that_inherits_loses_nothing_of_a_sink_that_stays() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hub = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let shelf = |names: &[&str]| {
            let sink =
                |name: &&str| sink(&format!("[{{name: {name}, to: webhook, url: \"http://127.0.0.1:1\"}}]"));
            let sinks: Vec<Sink> = names.iter().map(sink).collect();
            Shelf::new(&hub, "hub", &sinks, Arc::new(Metrics::aggregator()))
        };
        let waiting = |shelf: &Shelf, sink| {
            shelf.state().ledgers.as_ref().map(|all| all.get(sink).map(Ledger::waiting))
        };
        let first = shelf(&["stays"]);
        first.read_as_empty();
        for at in 1..=100 {
            first.offer(&message(Outcome::Succeeded, at));
        }
        let second = shelf(&["stays", "new"]);
        second.inherit(&first);
        second.offer(&message(Outcome::Succeeded, 101));
        // It was told to stop before it had read anything.
        let third = shelf(&["stays"]);
        third.inherit(&second);
        third.begin(&BTreeMap::new());
        assert_eq!(waiting(&third, "stays"), Some(Some(101)));
        assert_eq!((waiting(&first, "stays"), waiting(&second, "stays")), (None, None));
    }
}

//! Closes gates that nobody watches over any more.
//!
//! A dead aggregator cannot close its gates. The sweeper is a process of its own that looks at
//! the heartbeat, measures its age by its own monotonic clock from when it last saw it change
//! (another machine's clock says nothing about age), and closes every open gate when it is too old.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, ListParams};
use statusbridge_core::decide::closing::{self, Unwatched};
use statusbridge_core::decide::transition::Reported;
use statusbridge_core::reconcile::calls::CALL_TIMEOUT;
use statusbridge_core::reconcile::heartbeat::EVERY;
use statusbridge_core::reconcile::lazy_object::LazyObject;
use statusbridge_core::reconcile::object::{GateObject, HubObject, Key, Kind, Object};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock;
use crate::health::Health;
use crate::hub::events::Events;
use crate::hub::heartbeat::{self, Beat};
use crate::hub::write::{self, HubError, Written, in_time};
use crate::metrics::Metrics;

/// How often a closing is tried again while somebody else changes the gate.
const ATTEMPTS: usize = 5;

/// How many gates are read at once. Each may have 1.5 MiB, and the sweeper has little memory.
const PAGE: u32 = 4;

/// How long ago a heartbeat was last seen to change.
#[derive(Debug)]
struct Pulse {
    renewed: Option<String>,
    changed: Instant,
}

impl Pulse {
    fn see(&mut self, renewed: Option<String>, now: Instant) {
        if renewed.is_some() && renewed != self.renewed {
            self.renewed = renewed;
            self.changed = now;
        }
    }
}

/// Closes open gates while the heartbeat is older than `timeout`.
pub struct Sweeper {
    /// The hub.
    pub client: Client,
    /// Namespace of the heartbeat.
    pub namespace: String,
    /// How old the heartbeat may get.
    pub timeout: Duration,
    /// Own metrics.
    pub metrics: Arc<Metrics>,
    /// Own health.
    pub health: Arc<Health>,
    /// Where closings are told.
    pub(crate) events: Events,
}

impl Sweeper {
    /// Runs until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let period = (self.timeout / 10).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut pulse = Pulse { renewed: None, changed: Instant::now() };
        let mut silent = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.health.alive();
            // What the answer says was so when it was asked for, at best: this process, or the network,
            // may stand still before it is read.
            let asked = Instant::now();
            let mut unclosed = BTreeSet::new();
            match heartbeat::read(&self.client, &self.namespace).await {
                Ok(beat) => {
                    self.health.ready(true);
                    if let Some(Beat { renewed, unclosed: named }) = beat {
                        pulse.see(renewed, asked);
                        unclosed = named;
                    }
                }
                Err(error) => warn!(%error, "the heartbeat could not be read"),
            }
            let age = pulse.changed.elapsed();
            if (age > self.timeout) != silent {
                silent = !silent;
                if silent {
                    warn!(seconds = age.as_secs(), "the aggregator is silent: open gates are closed");
                } else {
                    info!("the aggregator is back");
                }
            }
            // What did not land is tried again at the next tick.
            if silent {
                let everything = write::everywhere(&self.client, Kind::RolloutGate);
                let landed = self
                    .close_all(everything, Unwatched::Silent)
                    .await
                    .inspect_err(|error| warn!(%error, "gates could not be swept"));
                self.metrics.swept(landed.unwrap_or(false));
            } else if timeout(CALL_TIMEOUT, self.close_named(&unclosed)).await.is_err() {
                // What is named may hang; a heartbeat that has ended must not go unseen for that.
                warn!("gates that the heartbeat names could not be closed in time");
            }
        }
    }

    /// Closes those of these gates that are open.
    async fn close_named(&self, gates: &BTreeSet<Key>) {
        for key in gates {
            if key.name == EVERY {
                let gates = write::within(&self.client, Kind::RolloutGate, &key.namespace);
                if let Err(error) = self.close_all(gates, Unwatched::Named).await {
                    warn!(namespace = key.namespace, %error, "gates could not be read");
                }
                continue;
            }
            match write::read(&self.client, Kind::RolloutGate, key).await {
                Ok(gate) => {
                    if let Some(gate) = gate.and_then(Object::read) {
                        self.close(&gate, Unwatched::Named).await;
                    }
                }
                Err(error) => warn!(gate = %key, %error, "could not be read"),
            }
        }
    }

    /// Closes what is open of these, page by page; whether all of it landed. A page that cannot be had is read gate by gate.
    async fn close_all(&self, gates: Api<LazyObject>, why: Unwatched) -> Result<bool, HubError> {
        let mut page = ListParams::default().limit(PAGE);
        let mut landed = true;
        loop {
            let list = match in_time(gates.list(&page)).await {
                Err(error) if page.limit == Some(PAGE) => {
                    warn!(%error, "a page of gates could not be read; its gates are read one by one");
                    page = go_on(page.limit(1), &error);
                    continue;
                }
                answer => answer?,
            };
            page = page.limit(PAGE);
            for gate in list.items.into_iter().filter_map(Object::read) {
                landed &= self.close(&gate, why).await;
            }
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => page = page.continue_token(&token),
                _ => return Ok(landed),
            }
        }
    }

    /// Closes a gate, whatever version it has by now: whether that landed.
    async fn close(&self, gate: &GateObject, why: Unwatched) -> bool {
        let mut reread = None;
        for attempt in 1..=ATTEMPTS {
            let gate = reread.as_ref().unwrap_or(gate);
            match self.try_to_close(gate, why, attempt == ATTEMPTS).await {
                Some(landed) => return landed,
                None => match write::read(&self.client, Kind::RolloutGate, &gate.key).await {
                    Ok(Some(raw)) => reread = Object::read(raw),
                    Ok(None) => return true,
                    Err(error) => {
                        warn!(gate = %gate.key, %error, "could not be read");
                        return false;
                    }
                },
            }
        }
        false
    }

    /// None when somebody else has changed it.
    async fn try_to_close(&self, gate: &GateObject, why: Unwatched, any_version: bool) -> Option<bool> {
        let Some(open) = &gate.status else { return Some(true) };
        let spec = gate.spec.as_deref().map_err(String::as_str);
        let Some(closed) = closing::unwatched(why, spec, open, clock::now()) else { return Some(true) };
        let (least, mut version) = (closing::least(open, &closed), gate.version());
        if any_version {
            version.resource_version.clear();
        }
        let (client, kind) = (&self.client, Kind::RolloutGate);
        let answer = write::status(client, kind, &version, &closed, Some(&least)).await;
        self.metrics.wrote(Kind::RolloutGate, write::result(&answer));
        match &answer {
            Ok(Written::Done(_)) => {
                info!(gate = %gate.key, "closed");
                if let Some(now) = closed.report() {
                    self.events.tell(kind, &version, open.report().as_ref(), &now);
                }
            }
            Ok(Written::Gone) => {}
            Ok(Written::Conflict) => return None,
            Err(error) => warn!(gate = %gate.key, %error, "the gate could not be closed"),
        }
        Some(answer.is_ok())
    }
}

/// The same page once more; where the place that it names is too long ago, the one that the API server names instead.
fn go_on(page: ListParams, refused: &HubError) -> ListParams {
    let HubError::Api(kube::Error::Api(refusal)) = refused else { return page };
    match refusal.metadata.as_ref().and_then(|it| it.continue_.as_deref()) {
        Some(token) if refusal.code == 410 => page.continue_token(token),
        _ => page,
    }
}
